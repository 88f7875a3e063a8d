"""Cleanup of a stack: export before a destroy, resources left in the account, and recovery after an interrupted
update."""
