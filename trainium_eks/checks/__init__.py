"""Checks of what is there: a cluster against its stack's outputs."""
