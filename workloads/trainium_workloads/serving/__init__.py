"""Answers of a trained model: :mod:`.server` over HTTP, :mod:`.batch` for a file."""
