"""``trn serve`` and ``trn predict``."""
