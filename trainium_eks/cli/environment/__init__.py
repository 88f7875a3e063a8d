"""Commands about a whole environment."""
