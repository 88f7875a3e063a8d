"""A job from its request to its end: its objects, its submission, its data and images. Imports no pulumi."""
