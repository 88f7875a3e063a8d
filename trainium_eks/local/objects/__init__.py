"""Kubernetes objects on a real API server, applied and awaited as Pulumi's provider does."""
