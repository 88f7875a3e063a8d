"""Jobs: what a training job is, and the objects that it becomes. Imports no pulumi."""
