"""Limits on a team's namespace, as CEL for Kubernetes' ValidatingAdmissionPolicy: the policies of ``admission.yaml``.

Pure functions: the policies are data here, and :mod:`components.training_namespace` puts them into objects.
"""

import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainium_eks.model.catalogue.instances import NEURON_RESOURCE, NVIDIA_RESOURCE
from trainium_eks.model.sizing.quantities import quantity
from trainium_eks.model.validation.parsing import read_table

SCHEDULER = "volcano"
"""Name of Volcano's scheduler."""

GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
"""The PodGroup that a pod belongs to."""

QUEUE_ANNOTATION = "scheduling.volcano.sh/queue-name"
"""The queue of the PodGroup that Volcano makes for a pod that has none."""

ACCELERATOR_PREFIXES = ("aws.amazon.com/neuron", "nvidia.com/", "vpc.amazonaws.com/efa")
"""Prefixes of the scarce resources that queues count."""

DEVICE_RESOURCES = frozenset((NEURON_RESOURCE, NVIDIA_RESOURCE))
"""Devices by which a node is taken whole. A node's cores and slices of its devices are counted beside these."""

WRITTEN = ("CREATE", "UPDATE")
_CHANGED = 'request.operation == "CREATE" || object.spec != oldObject.spec'
_DEFAULT_SCHEDULER = '"default-scheduler"'
"""Expression for Kubernetes' own scheduler, which takes a pod that names none."""

LEAST_LETTERS, MOST_LETTERS, ALL_LETTERS = 16 * 1024, 32 * 1024, 4 * 1024**2
"""Bounds of a pod's template, in letters of JSON, and of the templates of all pods of a namespace."""

_PLACE = re.compile(r"<([a-z_]+)( [^<>]*)?>")


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
    nodes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Instance type to what pods can ask of one of its nodes; empty: its pods may take any part of any node."""
    partial_nodes: bool = False
    """Whether its pods may take a part of a node's devices, and leave it to the scheduler which."""

    @property
    def takes_whole_nodes(self) -> bool:
        """Return whether its pods take all devices of their nodes."""
        return bool(self.nodes) and not self.partial_nodes

    @property
    def devices(self) -> dict[str, dict[str, float]]:
        """Return device resource to instance type to the devices of a node; of no type, the most that a node has."""
        found: dict[str, dict[str, float]] = {}
        for kind, offered in self.nodes.items():
            for resource in DEVICE_RESOURCES & offered.keys():
                count = float(offered[resource])
                by_type = found.setdefault(resource, {"": 0.0})
                by_type |= {kind: count, "": max(count, by_type[""])}
        return found

    @property
    def shares(self) -> dict[str, dict[str, dict[str, float]]]:
        """Return device resource to instance type to a device's part of the node's other resources; of no type, the
        least of all. Empty where pods take whole nodes, or any part."""
        found: dict[str, dict[str, dict[str, float]]] = {}
        for resource, by_type in (self.devices if self.partial_nodes else {}).items():
            least: dict[str, float] = {}
            found[resource] = {"": least}
            for kind in by_type.keys() - {""}:
                amounts = {each: float(quantity(text) or 0) for each, text in self.nodes[kind].items()}
                part = {each: amount / by_type[kind] for each, amount in amounts.items() if each != resource}
                found[resource][kind] = part
                least |= {each: min(amount, least.get(each, amount)) for each, amount in part.items()}
        return found


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


def policies(limits: Limits, written: Sequence[Match]) -> dict[str, Policy]:
    """Return the policies of one namespace, by name; ``written`` are kinds that its researchers create or change."""
    return {name: _policy(name, row, limits, written) for name, row in table()["policies"].items()}


@functools.cache
def table() -> Mapping[str, Any]:
    """Return ``admission.yaml``."""
    found: dict[str, Any] = read_table(Path(__file__).with_suffix(".yaml"))
    return found


def _policy(name: str, row: Mapping[str, Any], limits: Limits, written: Sequence[Match]) -> Policy:
    places, words = _expressions(name, row, limits), _words(limits)
    counts, of_templates = row.get("counts", ()), "templates" in row
    variables = {**row.get("variables", {}), **(table()["template_variables"] if of_templates else {})}
    variables |= {f"count{index}": each["expression"] for index, each in enumerate(counts)}
    rows = [
        *({**each, "count": f"variables.count{index}", "most": "pods"} for index, each in enumerate(counts)),
        *(table()["template_validations"] if of_templates else ()),
        *row.get("validations", ()),
    ]
    return Policy(
        tuple(written if row["matches"] == "written" else (Match(**each) for each in row["matches"])),
        tuple(Variable(each, _filled(expression, places)) for each, expression in variables.items()),
        tuple(_validations(name, rows, limits, places, words)),
        row.get("condition", _CHANGED if of_templates else ""),
        tuple(row.get("operations", WRITTEN)),
    )


def _validations(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    limits: Limits,
    places: Mapping[str, str],
    words: Mapping[str, str],
) -> Iterator[Validation]:
    for row in rows:
        if "most" in row:
            yield _bounded(_filled(row["count"], places), row["field"], row["most"], limits)
        elif name not in row.get("except", ()) and ("needs" not in row or getattr(limits, row["needs"])):
            yield Validation(_filled(row["expression"], places), _filled(row["message"], words))


def _bounded(expression: str, field: str, limit: str, limits: Limits) -> Validation:
    most = getattr(limits, limit)
    quota = {"pods": "pods", "finished_pods": "count/pods", "jobs": "count/jobs.batch.volcano.sh"}[limit]
    ends = (
        f"and this namespace's quota has {most} ({quota}): ask for fewer, or have resourceQuota of the namespace raised"
    )
    return Validation(
        f"{expression} <= {most}",
        f"{field} must be at most {most}, {ends}",
        f'"{field}: " + string({expression}) + " is more than {most}, {ends}"',
    )


def _expressions(name: str, row: Mapping[str, Any], limits: Limits) -> dict[str, str]:
    """Return the places in the expressions of a policy. JSON is CEL for texts of letters, digits and dashes."""
    given = {
        field: json.dumps(list(each)) if isinstance(each, tuple) else str(each) for field, each in vars(limits).items()
    }
    uncounted = (
        "!has(container.resources) || !has(container.resources.requests) || "
        f"!({json.dumps(each)} in container.resources.requests)"
        for each in limits.counted_requests
    )
    pods = name == "pods"
    return given | {
        "uncounted": " || ".join(uncounted),
        "devices": json.dumps(limits.devices, sort_keys=True),
        "shares": json.dumps(limits.shares, sort_keys=True),
        "pod_letters": str(_letters(limits)),
        "templates": row.get("templates", ""),
        "default_scheduler": row.get("scheduler", _DEFAULT_SCHEDULER),
        "pod_updated_or": 'request.operation == "UPDATE" || ' if pods else "",
        "others_pod_or": "<others> || " if pods else "",
    }


def _words(limits: Limits) -> dict[str, str]:
    """Return the places in messages."""
    given = {field: ", ".join(each) if isinstance(each, tuple) else str(each) for field, each in vars(limits).items()}
    closed = " or ".join(limits.closed_storage_classes)
    sizes: dict[str, list[str]] = {}
    for resource, by_type in sorted(limits.devices.items()):
        for kind in sorted(by_type.keys() - {""}):
            sizes.setdefault(f"{by_type[kind]:.0f} {resource}", []).append(kind)
    return given | {
        "whole_nodes": " or ".join(f"{size} of {', '.join(kinds)}" for size, kinds in sizes.items()),
        "service_accounts": " or ".join(limits.service_accounts),
        "priorities": f"be one of this namespace's: {given['priority_classes']}"
        if limits.priority_classes
        else "be unset in this namespace",
        "no_closed_class": f", nor be of the storage class {closed}, of which the quota allows none" if closed else "",
        "pod_letters": str(_letters(limits)),
        "annotation_letters": str(2 * _letters(limits)),
    }


def _letters(limits: Limits) -> int:
    return min(MOST_LETTERS, max(LEAST_LETTERS, ALL_LETTERS // max(limits.pods, 1)))


def _filled(text: str, places: Mapping[str, str]) -> str:
    """Return a text with its places filled: by a value, or by a term with its arguments. Another place is an error."""

    def put(found: re.Match[str]) -> str:
        name, arguments = found[1], (found[2] or "").split()
        body: str = places[name] if name in places else table()["terms"][name]
        for number, argument in enumerate(arguments, 1):
            body = body.replace(f"@{number}", "" if argument == "-" else argument)
        return _filled(body, places)

    return _PLACE.sub(put, text)
