"""Why a job waits: its queue, the nodes, its pods, and what mends it."""
