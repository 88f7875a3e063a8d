"""Terms of Kubernetes' admission policies: the parts of a policy, and CEL expressions that several policies share.

The dialect is the API server's, with its libraries (quantities, lists): Kubernetes documentation, "Common Expression
Language in Kubernetes". Its budget is a cost of 1,000,000 for an expression and 10,000,000 for a policy, and a policy
that exceeds it refuses (``k8s.io/apiserver/pkg/apis/cel``).
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

WRITTEN = ("CREATE", "UPDATE")
CHANGED = 'request.operation == "CREATE" || '
"""Start of the condition of a policy that skips some updates."""


@dataclass(frozen=True)
class Limits:
    """Limits of one namespace."""

    queues: tuple[str, ...]
    """Queues of its jobs."""
    priority_classes: tuple[str, ...]
    """Priority classes that its pods may name; they need not name one."""
    pods: int
    """Pods at one time, as its quota has it (``pods``). One object must not lead to more."""
    finished_pods: int
    """Pods, ended pods included (``count/pods``). One object must not make more in its life."""
    jobs: int
    """Volcano jobs, ended jobs included (``count/jobs.batch.volcano.sh``)."""
    counted_requests: tuple[str, ...] = ()
    """Resources in requests that the quota counts."""
    closed_storage_classes: tuple[str, ...] = ()
    """Storage classes of which it may claim no volume."""
    researchers: str = ""
    """Kubernetes group of its researchers."""
    service_accounts: tuple[str, ...] = ("default",)
    """Existing service accounts that the pods of Volcano jobs may run as."""
    reserved_names: tuple[str, ...] = ()
    """Names of the stack's own network policies in it."""


@dataclass(frozen=True)
class Match:
    """Requests that a policy validates."""

    group: str
    version: str
    resource: str


@dataclass(frozen=True)
class Variable:
    """A named expression that later variables and validations use as ``variables.<name>``."""

    name: str
    expression: str


@dataclass(frozen=True)
class Validation:
    """An expression that must be true."""

    expression: str
    message: str
    """Message of the refusal."""
    details: str = ""
    """Expression for a message with the object's own numbers, in place of ``message``; empty for none."""


@dataclass(frozen=True)
class Policy:
    """One policy over requests of some operations."""

    matches: tuple[Match, ...]
    variables: tuple[Variable, ...]
    validations: tuple[Validation, ...]
    condition: str = ""
    """Expression for whether the policy validates a request at all; empty for always. An update that does not change
    the validated fields must pass, so that objects made under a less strict policy can be finished and deleted."""
    operations: tuple[str, ...] = WRITTEN


def others(limits: Limits) -> str:
    """Return the expression for a request of anyone but the namespace's researchers."""
    return f'!("{limits.researchers}" in request.userInfo.groups)'


def text(subject: str, field: str) -> str:
    """Return the expression for a field's text, ``""`` where it is unset."""
    return f'(has({subject}.{field}) ? {subject}.{field} : "")'


def listed(subject: str, field: str) -> str:
    """Return the expression for a field's list, empty where it is unset."""
    return f"(has({subject}.{field}) ? {subject}.{field} : [])"


def number(subject: str, field: str, default: int) -> str:
    """Return the expression for a field's whole number."""
    return f"(has({subject}.{field}) ? int({subject}.{field}) : {default})"


def letters(value: str) -> str:
    """Return the expression for the size of a value with all its fields, in letters of JSON."""
    return f"size('%s'.format([{value}]))"


def entry(subject: str, field: str, key: str) -> str:
    """Return the expression for a list with the value of a map's key, empty where the map or the key is missing."""
    quoted = json.dumps(key)
    return f"(has({subject}.{field}) && {quoted} in {subject}.{field} ? [{subject}.{field}[{quoted}]] : [])"


def names(values: Iterable[str]) -> str:
    """Return a list of names; JSON text is CEL text for names of letters, digits and dashes."""
    return json.dumps(list(values))
