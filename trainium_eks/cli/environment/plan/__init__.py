"""``trn plan``, and how a plan is shown."""
