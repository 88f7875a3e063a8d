"""What commands share: the stack and its cluster, options, output, and how a command fails."""
