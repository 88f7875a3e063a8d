"""Idle accelerators: the nodes with the times since when they are idle, and the guard that removes them."""
