"""A job as one model, and the Kubernetes objects that each kind of job becomes."""
