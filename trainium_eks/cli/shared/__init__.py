"""Common parts of the commands: the stack and its cluster, options, output, and failures."""
