"""What an alert is made of."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from trainium_eks.model.alerts import AlertSettings

Severity = Literal["critical", "warning"]
"""``critical``: nodes stand still, or data may be lost, until somebody acts. ``warning``: today."""


@dataclass(frozen=True)
class Alert:
    """One alert. Texts are templates of Prometheus: ``{{ $labels.node }}``, ``{{ $value }}``."""

    name: str
    """Also of its page in ``runbooks``."""
    severity: Severity
    expr: str
    """PromQL; what it gives fires."""
    summary: str
    """One line, with what it is about."""
    description: str
    """With the values that it fired for, and what follows."""
    command: str
    """What to type next. ``STACK`` stands for the stack's name."""
    wait_minutes: int = 0
    """How long the expression must hold; 0 where it looks back by itself."""


Judge = Callable[[AlertSettings], Sequence[Alert]]
"""Gives the alerts of one matter."""

JOB = "{{ $labels.job_name }} of {{ $labels.namespace }}"
"""A training, in the texts of an alert about one."""

STATUS = "trn status {{ $labels.job_name }} --namespace {{ $labels.namespace }} --stack STACK"
"""What to type about a training."""

NODE = "kubectl describe node {{ $labels.node }}"
"""What to type about a node."""
