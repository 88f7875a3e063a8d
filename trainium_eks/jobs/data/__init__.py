"""Data sets, files and tokens that a job needs."""
