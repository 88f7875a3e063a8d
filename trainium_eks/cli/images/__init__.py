"""``trn image``."""
