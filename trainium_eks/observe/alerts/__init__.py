"""The alerts, by subject."""
