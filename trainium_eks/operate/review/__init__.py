"""What a pull request does to an environment, judged and written as one comment."""
