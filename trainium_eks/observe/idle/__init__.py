"""Idle accelerators: who they are and since when, and the guard that takes them away."""
