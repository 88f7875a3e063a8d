"""Commands about images (``trn image``)."""
