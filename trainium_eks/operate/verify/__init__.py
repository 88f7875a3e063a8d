"""Checks of a cluster against its stack's outputs."""
