"""The alerts, by what they are about."""
