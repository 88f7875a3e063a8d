"""``trn train``, ``trn compile`` and what they need."""
