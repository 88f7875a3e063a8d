"""What runs inside a job's containers. Standard library alone, but for what says otherwise."""
