"""How a training's own metrics are found: one port, one label, one namespace that may ask.

The launcher gives them to pods, a team's network policy lets the monitoring namespace in, and what scrapes selects pods
by them.
"""

PORT = 9600
"""Where rank 0 of a training serves them, TCP."""

PORT_NAME = "trn-metrics"
"""Of the container's port."""

LABEL = "trainium-eks/metrics"
"""Label of a pod that serves them: ``"true"``."""

NAMESPACE = "monitoring"
"""Of what scrapes. It stands here because the launcher reads this module where pydantic is not installed."""
