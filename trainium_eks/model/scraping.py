"""Discovery of a training's own metrics: one port, one label, one namespace that may scrape.

The launcher sets port and label on pods, a team's network policy admits the monitoring namespace, and the monitor
selects pods by the label.
"""

PORT = 9600
"""TCP port on which rank 0 of a training serves its metrics."""

PORT_NAME = "trn-metrics"
"""Name of the container's port."""

LABEL = "trainium-eks/metrics"
"""Label of a pod that serves metrics: ``"true"``."""

NAMESPACE = "monitoring"
"""Namespace of Prometheus. It is defined here because the launcher imports this module where pydantic is not
installed."""
