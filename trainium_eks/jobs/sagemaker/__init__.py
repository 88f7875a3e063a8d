"""Trainings as SageMaker training jobs: their requests, and their states at AWS."""
