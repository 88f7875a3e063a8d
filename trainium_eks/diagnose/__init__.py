"""Diagnosis: why a job waits, and the faults of the catalogue in one state of a cluster and the last lines of logs."""
