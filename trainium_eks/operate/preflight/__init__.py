"""What ``trn check`` asks of AWS before anything is built: quotas, capacity, versions, rights. It only reads."""
