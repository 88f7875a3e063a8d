"""Reading recorded values: paths, JSON in strings, IAM policies, user data, Kubernetes quantities.

Nothing here raises for a value of an unexpected kind: a recorded input may be absent, unknown until ``pulumi up``
or a secret, and a rule has to say so instead of stopping.
"""

import base64
import binascii
import email
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainium_eks.plan.graph import SECRET, UNKNOWN

Json = Any
"""A recorded value: whatever JSON can hold."""


def at(value: Json, path: str) -> Json:
    """The value at a dotted path (``scalingConfig.maxSize``, ``rules[0].status``); None where the way ends.

    An unknown or secret value on the way is the answer: what lies below it cannot be seen.
    """
    for step in re.findall(r"[^.\[\]]+", path):
        if value in (UNKNOWN, SECRET):
            return value
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, Sequence) and not isinstance(value, str) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


def known(value: Json) -> bool:
    """Whether the value is there and can be seen."""
    return value is not None and value not in (UNKNOWN, SECRET)


def given(value: Json) -> bool:
    """Whether the program set a value, known now or only later."""
    return value is not None and value not in ("", [], {})


def mapping(value: Json) -> Mapping[str, Json]:
    """The value when it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def items(value: Json) -> Sequence[Json]:
    """The value when it is a list, else an empty one."""
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def listed(value: Json) -> Sequence[Json]:
    """A list as it is, a single value as a list of one, nothing as an empty list."""
    if value is None:
        return ()
    return items(value) if not isinstance(value, str | Mapping | int | float) else (value,)


def text(value: Json) -> str:
    """The value when it is known text, else empty."""
    return value if isinstance(value, str) and known(value) else ""


def number(value: Json) -> float | None:
    """The value as a number (also of text that is one), else None."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def true(value: Json) -> bool:
    """Whether a flag is on; the bridged providers send some flags as text."""
    return value is True or value == "true"


def show(value: Json) -> str:
    """A value for a message, short."""
    if value is None:
        return "unset"
    if value == UNKNOWN:
        return "not known in this plan"
    if value == SECRET:
        return "a secret that cannot be read"
    shown = json.dumps(value, sort_keys=True, default=str)
    return shown if len(shown) <= 120 else f"{shown[:117]}..."


def differs(inputs: Json, path: str, wanted: Json) -> Iterator[str]:
    """A fault when the value at the path is another one."""
    found = at(inputs, path)
    same = true(found) if wanted is True else found == wanted
    if not same:
        yield f"{path} is {show(found)}, wanted {show(wanted)}"


def missing(inputs: Json, path: str, wanted: str) -> Iterator[str]:
    """A fault when nothing was given at the path; an unknown value counts as given."""
    if not given(at(inputs, path)):
        yield f"{path} is unset, wanted {wanted}"


def document(value: Json) -> Mapping[str, Json] | None:
    """A JSON object given as text or as data; None when it is neither, or cannot be seen."""
    if isinstance(value, Mapping):
        return value
    try:
        parsed = json.loads(text(value))
    except ValueError:
        return None
    return parsed if isinstance(parsed, Mapping) else None


def statements(policy: Json) -> tuple[Mapping[str, Json], ...] | None:
    """The statements of an IAM policy (text or data), or None when the policy cannot be read."""
    parsed = document(policy)
    if parsed is None:
        return None
    found = parsed.get("Statement", parsed.get("statements"))
    return tuple(mapping(each) for each in listed(found))


def principals(statement: Mapping[str, Json]) -> tuple[tuple[str, str], ...]:
    """``(kind, who)`` of a statement: ``("Service", "pods.eks.amazonaws.com")``; a bare star is ``("*", "*")``."""
    principal = statement.get("Principal")
    if isinstance(principal, str):
        return (("*", principal),)
    return tuple((kind, str(who)) for kind, value in mapping(principal).items() for who in listed(value))


def actions(statement: Mapping[str, Json]) -> frozenset[str]:
    """The actions of a statement."""
    return frozenset(str(action) for action in listed(statement.get("Action")))


def allows(statement: Mapping[str, Json]) -> bool:
    """Whether the statement grants, rather than denies."""
    return statement.get("Effect") == "Allow"


def user_data(value: Json) -> tuple[str, ...] | None:
    """The parts of a launch template's user data (base64 of plain text or of MIME multipart); None if unreadable."""
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


def leaves(value: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    """Every value that is no container, with its path."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from leaves(each, f"{path}.{key}" if path else str(key))
    elif items(value):
        for index, each in enumerate(items(value)):
            yield from leaves(each, f"{path}[{index}]")
    else:
        yield path, value
