"""Commands of the local cloud (``trn local``)."""
