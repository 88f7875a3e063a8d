"""The catalogue of faults: symptom, cause, remedy and source of each, shared by all commands that explain."""
