"""Checks of a cluster against its stack's outputs, and against its state."""
