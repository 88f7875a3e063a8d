"""A job that runs: its pods, logs, steps, devices and endings."""
