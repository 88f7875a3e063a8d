"""Scan of a recorded program with checkov, and the waivers of its findings (docs/policy.md)."""
