"""A trained model that answers, as Kubernetes objects."""
