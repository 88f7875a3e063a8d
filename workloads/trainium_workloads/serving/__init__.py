"""Predictions of a trained model: :mod:`.server` answers over HTTP, :mod:`.batch` works through a file."""
