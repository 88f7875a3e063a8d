"""The recorded program, and what is judged from it."""
