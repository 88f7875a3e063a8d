"""The network of the pods that run on this machine."""
