"""``trn local``."""
