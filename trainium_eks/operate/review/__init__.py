"""Review of a pull request: its effects on an environment, evaluated and written as one comment."""
