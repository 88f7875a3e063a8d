"""The processes of a real Kubernetes control plane on this machine."""
