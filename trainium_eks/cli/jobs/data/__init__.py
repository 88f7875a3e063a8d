"""``trn stage``."""
