"""Trainings as SageMaker training jobs: their requests, and what AWS answers about them."""
