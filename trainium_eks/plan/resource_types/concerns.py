"""Conditions that the concerns of many rows share: called with the value so far and the value to be."""

from collections.abc import Callable, Mapping
from typing import Any

from trainium_eks.model.sizing.quantities import quantity

Condition = Callable[[Any, Any], bool]


def changed(before: Any, after: Any) -> bool:
    """Return whether the value differs."""
    return bool(before != after)


def switched_off(before: Any, after: Any) -> bool:
    """Return whether a switch that was on is off or unset."""
    return before is True and after is not True


def switched_on(before: Any, after: Any) -> bool:
    """Return whether a switch that was off or unset is on."""
    return before is not True and after is True


def no_longer_false(before: Any, after: Any) -> bool:
    """Return whether a switch that is on unless set to false is no longer false."""
    return before is False and after is not False


def no_longer_true(before: Any, after: Any) -> bool:
    """Return whether a switch that is on unless set to false was set to false."""
    return before is not False and after is False


def no_longer(value: str) -> Condition:
    """Return the condition that a value was ``value`` and no longer is."""
    return lambda before, after: before == value and after != value


def fewer(before: Any, after: Any) -> bool:
    """Return whether an entry of a list, or a key or value of a mapping, was removed."""
    return not _entries(before) <= _entries(after)


def _entries(value: Any) -> set[str]:
    if isinstance(value, Mapping):
        return {f"{key}={each}" for key, each in value.items()}
    return set(map(str, value)) if isinstance(value, list | tuple) else set()


def less(before: Any, after: Any) -> bool:
    """Return whether a number fell, or is no longer set."""
    return _is_number(before) and (after is None or (_is_number(after) and after < before))


def more(before: Any, after: Any) -> bool:
    """Return whether a bound was raised, or taken off."""
    return _is_number(before) and (after is None or (_is_number(after) and after > before))


def sooner(before: Any, after: Any) -> bool:
    """Return whether a retention has fewer days; 0 days, or none, is for ever."""
    return bool(after) and _is_number(after) and (not before or (_is_number(before) and after < before))


def alone(before: Any, after: Any) -> bool:
    """Return whether two or more copies fell to one or none."""
    return less(before, after) and (after or 0) < 2 <= before


def grows(before: Any, after: Any) -> str:
    """Return the amounts of a quota or a capability that rose; an amount that it lacks has no bound."""
    return _raised(_amounts(before), _amounts(after))


def shrinks(before: Any, after: Any) -> str:
    """Return the amounts of a mapping that fell; an amount that the old mapping lacks had no bound."""
    return _raised(_amounts(after), _amounts(before))


def _amounts(amounts: Any) -> dict[str, Any]:
    return {str(name): quantity(each) for name, each in amounts.items()} if isinstance(amounts, Mapping) else {}


def _raised(low: Mapping[str, Any], high: Mapping[str, Any]) -> str:
    raised = (name for name in low if name not in high or (high[name] or 0) > (low[name] or 0))
    return ", ".join(sorted(raised))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
