"""The parts of an alert."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from trainium_eks.model.alerts import AlertSettings

Severity = Literal["critical", "warning"]
"""``critical``: until somebody acts, nodes stand still, or data may be lost. ``warning``: today."""


@dataclass(frozen=True)
class Alert:
    """One alert. Texts are templates of Prometheus: ``{{ $labels.node }}``, ``{{ $value }}``."""

    name: str
    """Name of the alert and of its section in docs/alerts.md."""
    severity: Severity
    expr: str
    """PromQL; each series of its result fires."""
    summary: str
    """One line, with the subject."""
    description: str
    """Text with the values that it fired for, and the consequences."""
    command: str
    """Command to type next. ``STACK`` stands for the stack's name."""
    wait_minutes: int = 0
    """Minutes that the expression must hold; 0 where it looks back by itself."""


Judge = Callable[[AlertSettings], Sequence[Alert]]
"""Function that returns the alerts of one subject."""

JOB = "{{ $labels.job_name }} of {{ $labels.namespace }}"
"""Name of a training in the texts of an alert."""

STATUS = "trn status {{ $labels.job_name }} --namespace {{ $labels.namespace }} --stack STACK"
"""Command about a training."""

NODE = "kubectl describe node {{ $labels.node }}"
"""Command about a node."""
