"""``trn train``, ``trn compile`` and their helpers."""
