"""``trn orphans`` and ``trn recover``."""
