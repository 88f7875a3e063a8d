"""Edits of plain documents at dotted paths, in which numbers are list indices."""

DROP = object()
"""In the place of a value: what is there goes."""


def put(document, path, value):
    """Set what is at a path; a function gets the old value, None without one. Missing objects on the way are made."""
    *steps, last = (int(step) if step.isdigit() else step for step in path.split("."))
    for step in steps:
        document = document[step] if isinstance(step, int) else document.setdefault(step, {})
    is_there = isinstance(document, list) or last in document
    if value is not DROP:
        document[last] = value(document[last] if is_there else None) if callable(value) else value
    elif is_there:
        del document[last]
