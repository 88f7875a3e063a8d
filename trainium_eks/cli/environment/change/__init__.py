"""``trn deploy``, ``trn upgrade`` and ``trn scale``."""
