"""The plan of a pod for its shim, made from the pod's object."""
