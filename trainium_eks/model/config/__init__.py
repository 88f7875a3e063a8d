"""The sections of a stack's config, each with its validators, and :class:`StackConfig`, which holds them."""
