"""Programs of a job's containers. Standard library alone, unless a module says otherwise."""
