"""Checks of a cluster against its stack's outputs, and against all that its state says was made."""
