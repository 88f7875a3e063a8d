"""What IAM answers to a request: a small evaluator of policy documents.

It knows what the policies of this repository use: Allow and Deny, NotAction and NotResource, principals, policy
variables, and the condition operators of :data:`_OPERATORS`; anything else raises, so that no test passes for want of
understanding. The logic is IAM's (IAM user guide, policy evaluation logic; condition operators).
"""

import json
import re
from collections.abc import Mapping
from functools import cache

from moto.iam.aws_managed_policies import aws_managed_policies_data


def allowed(request, policies, boundary=None):
    """Whether a principal with these identity policies, and under this boundary, may do it."""
    policies, bounds = list(policies), [] if boundary is None else [boundary]
    return (
        all(matching(request, each) for each in bounds)
        and not any(matching(request, each, "Deny") for each in (*policies, *bounds))
        and any(matching(request, each) for each in policies)
    )


def matching(request, document, effect="Allow"):
    """The statements of a document that decide on the request with this effect."""
    return [each for each in _statements(document) if each["Effect"] == effect and _applies(each, request)]


def altered(document):
    """The document with one thing changed, and what: a statement, condition, action or resource gone, or a principal
    that is now anyone."""
    statements = _statements(document)
    for index, statement in enumerate(statements):
        name = statement.get("Sid", f"statement {index + 1}")

        def swapped(new, at=index):
            return {"Statement": [*statements[:at], *([new] if new else []), *statements[at + 1 :]]}

        yield f"{name} gone", swapped(None)
        for operator, keys in statement.get("Condition", {}).items():
            for key in keys:
                fewer = {each: value for each, value in keys.items() if each != key}
                conditions = {**statement["Condition"], operator: fewer}
                yield f"{name} without {operator} {key}", swapped({**statement, "Condition": conditions})
                for value, others in _shorter(keys[key]):
                    conditions = {**statement["Condition"], operator: {**keys, key: others}}
                    yield f"{name} without {key} {value}", swapped({**statement, "Condition": conditions})
        for part in ("Action", "Resource"):
            for value, others in _shorter(statement.get(part, [])):
                yield f"{name} without {value}", swapped({**statement, part: others})
        if statement.get("Principal", "*") not in ("*", {"AWS": "*"}):
            yield f"{name} for anyone", swapped({**statement, "Principal": "*"})


def _shorter(values):
    """Each value of several, and the others."""
    listed = _listed(values)
    if len(listed) > 1:
        yield from ((value, [each for each in listed if each != value]) for value in listed)


@cache
def _managed():
    return json.loads(aws_managed_policies_data)


def managed(name):
    """A policy that AWS maintains, as moto has it from AWS, by its name without path."""
    return _managed()[name]["Document"]


def _statements(document):
    found = document["Statement"]
    return [found] if isinstance(found, Mapping) else list(found)


_KNOWN = {"Sid", "Effect", "Action", "NotAction", "Resource", "NotResource", "Principal", "Condition"}


def _applies(statement, request):
    if unknown := set(statement) - _KNOWN:
        raise NotImplementedError(f"statement with {unknown}")
    key = "Action" if "Action" in statement else "NotAction"
    is_named = any(_like(request.action.lower(), each.lower()) for each in _listed(statement[key]))
    return (
        is_named == (key == "Action")
        and _on(statement, request)
        and ("Principal" not in statement or _by(statement["Principal"], request.principal))
        and all(
            _holds(operator, key, _listed(values), request.context)
            for operator, keys in statement.get("Condition", {}).items()
            for key, values in keys.items()
        )
    )


def _on(statement, request):
    if "NotResource" in statement:
        return not any(_arn_like(request.resource, each) for each in _listed(statement["NotResource"]))
    if "Resource" not in statement:
        # A trust policy: its role is the resource.
        return True
    patterns = _listed(statement["Resource"])
    return any(_arn_like(request.resource, _filled(each, request.context)) for each in patterns)


def _by(principals, principal):
    if principals == "*":
        return True
    (_, names), *more = principals.items()
    if more:
        raise NotImplementedError(f"several kinds of principal: {principals}")
    return any(name in ("*", principal) for name in _listed(names))


def _holds(operator, key, wanted, context):
    quantifier, _, plain = operator.rpartition(":")
    plain, if_exists, _ = plain.partition("IfExists")
    given = _lower(context).get(key.lower())
    if plain == "Null":
        return (given is None) == (wanted == ["true"])
    negated = "Not" in plain
    if given is None:
        # Operators that deny hold for an absent key, and so do all of a set of no values.
        return bool(if_exists) or negated or quantifier == "ForAllValues"
    values = [given] if isinstance(given, str) else list(given)
    patterns = [_filled(each, context) for each in wanted]
    compare = _OPERATORS[plain.replace("Not", "")]
    matches = [any(compare(value, pattern) for pattern in patterns) != negated for value in values]
    if quantifier == "ForAnyValue":
        return any(matches)
    if quantifier == "" and len(values) != 1:
        raise NotImplementedError(f"{key} has several values: say ForAnyValue or ForAllValues")
    return all(matches)


def _lower(context):
    return {name.lower(): value for name, value in context.items()}


def _filled(pattern, context):
    given = _lower(context)
    # A variable without a value matches nothing.
    return re.sub(r"\$\{([^}]+)\}", lambda found: str(given.get(found[1].lower(), "\0")), pattern)


@cache
def _compiled(pattern):
    translated = "".join({"*": ".*", "?": "."}.get(letter, re.escape(letter)) for letter in pattern)
    return re.compile(translated, re.DOTALL)


def _like(text, pattern):
    return _compiled(pattern).fullmatch(text) is not None


def _arn_like(text, pattern):
    """Part by part: a star does not reach over a colon into the next part of an ARN."""
    if pattern == "*":
        return True
    parts, patterns = text.split(":", 5), pattern.split(":", 5)
    return len(parts) == len(patterns) and all(_like(*pair) for pair in zip(parts, patterns, strict=True))


_OPERATORS = {
    "StringEquals": str.__eq__,
    "StringLike": _like,
    "ArnEquals": _arn_like,
    "ArnLike": _arn_like,
    "Bool": lambda text, pattern: text.lower() == pattern.lower(),
}


def _listed(value):
    return [value] if isinstance(value, str) else list(value)
