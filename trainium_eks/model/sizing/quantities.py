"""Kubernetes quantities: ``16``, ``500m``, ``1200Gi``, ``1e12``."""

import re
from decimal import Decimal

_QUANTITY = re.compile(
    r"(?P<number>[+-]?(\d+\.?\d*|\.\d+))(?P<unit>[KMGTPE]i|[numkMGTPE])?([eE](?P<exponent>[+-]?\d{1,3}))?", re.ASCII
)
_UNITS = {
    **{unit: Decimal(1024) ** power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
    **{unit: Decimal(1000) ** power for power, unit in enumerate(("k", "M", "G", "T", "P", "E"), start=1)},
    **{unit: Decimal(1000) ** -power for power, unit in enumerate(("m", "u", "n"), start=1)},
}


def quantity(value: object) -> Decimal | None:
    """Return a quantity, a whole number or text, as a number; None for a value that is no quantity. The syntax is the
    API server's (apimachinery, ``resource.Quantity``): a unit or a decimal exponent, not both."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    match = _QUANTITY.fullmatch(str(value))
    if match is None or (match["unit"] and match["exponent"]):
        return None
    factor = _UNITS[match["unit"]] if match["unit"] else Decimal(10) ** int(match["exponent"] or 0)
    return Decimal(match["number"]) * factor


def shown(amount: Decimal) -> str:
    """Return a number as a quantity: whole, or in thousandths (``16``, ``127500m``), the finest that Kubernetes
    counts."""
    whole = amount.to_integral_value()
    return f"{whole:f}" if whole == amount else f"{amount * 1000:.0f}m"
