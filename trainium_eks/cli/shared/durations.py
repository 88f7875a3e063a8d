"""Durations for people."""


def duration(seconds: float) -> str:
    """Return a duration in two units at most: ``45s``, ``12m``, ``3h05m``, ``2d04h``."""
    whole = int(seconds)
    if whole < 120:
        return f"{whole}s"
    if whole < 7200:
        return f"{whole // 60}m{whole % 60:02}s" if whole < 600 else f"{whole // 60}m"
    hours = whole // 3600
    return f"{hours}h{whole % 3600 // 60:02}m" if hours < 48 else f"{hours // 24}d{hours % 24:02}h"
