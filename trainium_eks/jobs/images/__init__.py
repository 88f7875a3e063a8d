"""Training images: their contents, their builds and their copies."""
