"""What stays behind of a stack, what goes when it is destroyed, and how an interrupted update goes on."""
