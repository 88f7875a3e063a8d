"""The plan's autoscaling section for people: the pools that scale automatically, and their limits for gangs."""

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from trainium_eks.plan.autoscaling import Autoscaling, Scaled


def autoscaling(found: Autoscaling) -> RenderableType:
    """Return one line for each pool, then the limits for gangs."""
    lines = [*(Text(_line(pool)) for pool in found.pools), *(Text(limit, "dim") for limit in found.limits)]
    return Group(Text("Autoscaling", "bold underline"), *(Padding(each, (0, 0, 0, 2), expand=False) for each in lines))


def _line(pool: Scaled) -> str:
    return f"{pool.pool}: {pool.minimum} to {pool.maximum} × {pool.instance_type}, by {pool.by}"
