"""Training images: what they are built from, and how they are built and copied."""
