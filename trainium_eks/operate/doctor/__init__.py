"""The doctor: faults of the catalogue, recognised in one snapshot of a cluster and the last lines of logs."""
