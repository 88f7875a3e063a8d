"""Commands of researchers."""
