"""The local cloud: a stack on this machine, with a real Kubernetes and a simulated AWS."""
