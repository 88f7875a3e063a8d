"""Jobs: the model of a training job, and the Kubernetes objects made from it. Imports no pulumi."""
