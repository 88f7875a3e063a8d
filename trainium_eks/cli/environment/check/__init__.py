"""``trn check``, ``trn verify``, ``trn prices`` and ``trn doctor``."""
