"""``trn comment``."""
