"""From a pod's object to what its shim runs."""
