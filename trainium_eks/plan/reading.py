"""Reading recorded values: paths, JSON in strings, IAM policies, user data, Kubernetes quantities.

No function here raises for a value of an unexpected kind: a recorded input may be absent, unknown until ``pulumi up``
or a secret, and a rule has to report that instead of stopping.
"""

import base64
import binascii
import email
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from trainium_eks.plan.resource import SECRET, UNKNOWN

Json = Any
"""A recorded value: any JSON value."""

OBJECT, LIST = (dict, Mapping), (list, Sequence)
"""The usual type first: the check of an abstract class takes ten times as long, and rules make millions."""


def at(value: Json, path: str) -> Json:
    """Return the value at a dotted path (``scalingConfig.maxSize``, ``rules[0].status``); None for a missing path.

    An unknown or secret value on the way is returned: values below it cannot be seen.
    """
    for step in _steps(path):
        if isinstance(value, OBJECT):
            value = value.get(step)
        elif value in (UNKNOWN, SECRET):
            return value
        elif isinstance(value, LIST) and not isinstance(value, str) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


@lru_cache(maxsize=4096)
def _steps(path: str) -> Sequence[str]:
    return re.findall(r"[^.\[\]]+", path)


def known(value: Json) -> bool:
    """Return whether the value is set and can be seen."""
    return value is not None and value not in (UNKNOWN, SECRET)


def given(value: Json) -> bool:
    """Return whether the program set a value, known now or only later."""
    return value is not None and value not in ("", [], {})


def mapping(value: Json) -> Mapping[str, Json]:
    """Return the value when it is an object, else an empty object."""
    return value if isinstance(value, OBJECT) else {}


def items(value: Json) -> Sequence[Json]:
    """Return the value when it is a list, else an empty list."""
    return value if isinstance(value, LIST) and not isinstance(value, str) else ()


def listed(value: Json) -> Sequence[Json]:
    """Return a list unchanged, a single value as a list of one, None as an empty list."""
    if value is None:
        return ()
    return items(value) if not isinstance(value, str | Mapping | int | float) else (value,)


def text(value: Json) -> str:
    """Return the value when it is known text, else empty."""
    return value if isinstance(value, str) and known(value) else ""


def number(value: Json) -> float | None:
    """Return a number, or text that is a number, as a float, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def true(value: Json) -> bool:
    """Return whether a flag is on; the bridged providers send some flags as text."""
    return value is True or value == "true"


def show(value: Json) -> str:
    """Return a value for a message, shortened to 120 characters."""
    if value is None:
        return "unset"
    if value == UNKNOWN:
        return "not known in this plan"
    if value == SECRET:
        return "a secret that cannot be read"
    shown = json.dumps(value, sort_keys=True, default=str)
    return shown if len(shown) <= 120 else f"{shown[:117]}..."


def differs(inputs: Json, path: str, wanted: Json) -> Iterator[str]:
    """Yield a fault when the value at the path is not the wanted value."""
    found = at(inputs, path)
    same = true(found) if wanted is True else found == wanted
    if not same:
        yield f"{path} is {show(found)}, wanted {show(wanted)}"


def missing(inputs: Json, path: str, wanted: str) -> Iterator[str]:
    """Yield a fault when the value at the path is unset; an unknown value counts as set."""
    if not given(at(inputs, path)):
        yield f"{path} is unset, wanted {wanted}"


def document(value: Json) -> Mapping[str, Json] | None:
    """Return a JSON object given as text or as data; None for any other value, or when it cannot be seen."""
    if isinstance(value, Mapping):
        return value
    try:
        parsed = json.loads(text(value))
    except ValueError:
        return None
    return parsed if isinstance(parsed, Mapping) else None


def statements(policy: Json) -> tuple[Mapping[str, Json], ...] | None:
    """Return the statements of an IAM policy (text or data), or None when the policy cannot be read."""
    parsed = document(policy)
    if parsed is None:
        return None
    found = parsed.get("Statement", parsed.get("statements"))
    return tuple(mapping(each) for each in listed(found))


def principals(statement: Mapping[str, Json]) -> tuple[tuple[str, str], ...]:
    """Return kind and name of a statement's principals: ``("Service", "pods.eks.amazonaws.com")``; a bare star is
    ``("*", "*")``."""
    principal = statement.get("Principal")
    if isinstance(principal, str):
        return (("*", principal),)
    return tuple((kind, str(who)) for kind, value in mapping(principal).items() for who in listed(value))


def actions(statement: Mapping[str, Json]) -> frozenset[str]:
    """Return the actions of a statement."""
    return frozenset(str(action) for action in listed(statement.get("Action")))


def matches(granted: str, action: str) -> bool:
    """Return whether a statement's action, which may have the wildcards ``*`` and ``?``, is or includes an action."""
    return re.fullmatch(re.escape(granted).replace(r"\*", ".*").replace(r"\?", "."), action) is not None


def allows(statement: Mapping[str, Json]) -> bool:
    """Return whether the statement grants, rather than denies."""
    return statement.get("Effect") == "Allow"


def user_data(value: Json) -> tuple[str, ...] | None:
    """Return the parts of user data of a launch template (base64 of text or MIME multipart); None if unreadable."""
    if not known(value):
        return None
    try:
        decoded = base64.b64decode(text(value), validate=False).decode("utf-8", errors="replace")
    except (binascii.Error, ValueError):
        return None
    message = email.message_from_string(decoded)
    if not message.is_multipart():
        return (decoded,)
    parts = []
    for part in message.walk():
        if not part.is_multipart():
            payload = part.get_payload(decode=True)
            parts.append(payload.decode("utf-8", errors="replace") if isinstance(payload, bytes) else str(payload))
    return tuple(parts)


def texts(value: Json) -> Iterator[str]:
    """Yield every text in a value, without keys."""
    return (each for _, each in leaves(value) if isinstance(each, str))


def with_texts(value: Json, change: Callable[[str], str]) -> Json:
    """Return a value with every text in it changed, without keys."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: with_texts(each, change) for key, each in value.items()}
    return [with_texts(each, change) for each in value] if isinstance(value, list) else value


def leaves(value: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    """Yield every value that is no container, with its path."""
    if isinstance(value, OBJECT):
        for key, each in value.items():
            yield from leaves(each, f"{path}.{key}" if path else str(key))
    elif items(value):
        for index, each in enumerate(items(value)):
            yield from leaves(each, f"{path}[{index}]")
    else:
        yield path, value
