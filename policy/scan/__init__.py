"""A recorded program as security scanners read it, and their findings against what is waived (docs/policy.md)."""
