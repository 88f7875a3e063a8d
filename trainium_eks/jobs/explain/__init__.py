"""Explanation of a waiting job: its queue, the nodes, its pods, and the remedy."""
