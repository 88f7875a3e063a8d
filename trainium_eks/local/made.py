"""The list of a stack's resources on this machine, by which an ``up`` finds what has left the program.

``made.json`` lists the resources of the last whole ``up``. From the beginning of an ``up`` until its whole end,
``unfinished.json`` stands in its place: it lists everything that this ``up`` may make, and everything that was there
before. A kill at any moment leaves one of the two, and each names all that exists.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from graphlib import TopologicalSorter
from typing import Any

from trainium_eks import whole_file
from trainium_eks.local.changes import Change, LocalCloudError
from trainium_eks.local.makers import kind_of, made_as, reference_of
from trainium_eks.local.paths import Paths
from trainium_eks.model.validation.parsing import MISSHAPEN, parse_json
from trainium_eks.plan.graph import UNKNOWN, Graph, Resource
from trainium_eks.plan.resource_types import replacements


@dataclass(frozen=True)
class MadeResource:
    """One resource, with the place of what was made for it."""

    urn: str
    type: str
    kind: str
    """Kind of the maker: ``object``, ``release``, ``nodes``, ``addon``, or ``simulated`` for a resource in name only.
    """
    reference: Mapping[str, Any]
    """The data by which its maker finds it again."""
    inputs: Mapping[str, Any]
    """As made; secrets are hidden."""
    outputs: Mapping[str, Any]
    ignore_changes: tuple[str, ...] = ()
    replaced_with: tuple[str, ...] = ()
    """URNs of the resources it is made from: when one of these is replaced, it is deleted first and made anew."""
    deleted_with: str = ""
    """URN of the resource that is deleted with this one; empty for a resource that is deleted by itself."""
    protect: bool = False
    retain: bool = False
    whole: bool = False
    """Whether an ``up`` that made it has ended well."""

    @property
    def key(self) -> tuple[str, str]:
        """Return what sets it apart from other resources, and from its own earlier name."""
        return self.urn, json.dumps(self.reference, sort_keys=True)


def load(paths: Paths) -> list[MadeResource]:
    """Return the resources that may exist, in the order in which they were made; none before the first ``up``."""
    file = next((each for each in (paths.unfinished, paths.made) if each.exists()), None)
    if file is None:
        return []
    try:
        return [_parsed(each) for each in parse_json(file.read_text(encoding="utf-8"))["deployment"]["resources"]]
    except (OSError, *MISSHAPEN) as error:
        fix = "`trn local down` removes it with the rest of the stack"
        raise LocalCloudError(f"{file} is damaged, or of another version of trn ({error!r}): {fix}") from None


def begin(paths: Paths, plan: Graph, before: list[MadeResource]) -> None:
    """Write down what an ``up`` may make, before it makes anything."""
    known = {each.key: each for each in before}
    planned = [replace(each, whole=each.key in known and known[each.key].whole) for each in resources(plan)]
    # What has left the program was made before, but nothing of the program is made from it: it is deleted first.
    _write(paths, "unfinished", [*planned, *left_over(before, planned)])
    paths.made.unlink(missing_ok=True)


def complete(paths: Paths, made: list[MadeResource]) -> None:
    """Write down what a whole ``up`` has made."""
    _write(paths, "made", [replace(each, whole=True) for each in made])
    paths.unfinished.unlink()


def left_over(before: list[MadeResource], now: list[MadeResource]) -> list[MadeResource]:
    """Return the resources that are no longer asked for, in the order in which they were made."""
    asked = {each.key for each in now}
    return [each for each in before if each.key not in asked]


def count_simulated(before: list[MadeResource], now: list[MadeResource]) -> Counter[str]:
    """Return the number of changes by kind of change, of the resources that exist in name only."""
    whole = {each.key: each.inputs for each in before if each.whole}

    def change(resource: MadeResource) -> Change:
        if resource.key not in whole:
            return Change.CREATED
        return Change.SAME if whole[resource.key] == resource.inputs else Change.UPDATED

    return Counter(change(each) for each in now if each.kind == "simulated")


def resources(graph: Graph) -> list[MadeResource]:
    """Return the resources of a program, each after those that it depends on."""
    edges = {each.urn: (*each.dependencies, each.parent, each.provider) for each in graph.resources}
    order = (graph.by_urn[urn] for urn in TopologicalSorter(edges).static_order() if urn in graph.by_urn)
    made = (_made(each) for each in order if each.custom)
    # The name of such an object depends on the answer of a real one, and is known when that is made.
    return [each for each in made if UNKNOWN not in json.dumps(each.reference)]


def _made(resource: Resource) -> MadeResource:
    kind, outputs, options = kind_of(resource.type), resource.outputs, resource.options
    return MadeResource(
        urn=resource.urn,
        type=resource.type,
        kind=kind,
        reference=reference_of(resource.type, resource.inputs, outputs),
        inputs=made_as(resource.inputs, outputs) if kind == "object" else resource.inputs,
        outputs={key: outputs[key] for key in ("name", "namespace", "nodeGroupName") if key in outputs},
        ignore_changes=options.ignore_changes,
        replaced_with=replacements.replaced_with(resource),
        deleted_with=options.deleted_with,
        protect=options.protect,
        retain=options.retain_on_delete,
    )


def _parsed(data: Mapping[str, Any]) -> MadeResource:
    values: dict[str, Any] = {each.name: data[each.name] for each in fields(MadeResource)}
    lists = {name: tuple(values[name]) for name in ("ignore_changes", "replaced_with")}
    return MadeResource(**{**values, **lists})


def _write(paths: Paths, name: str, made: list[MadeResource]) -> None:
    """Write a list in the form of Pulumi's state, which ``trn doctor`` compares with the cluster."""
    file = getattr(paths, name)
    # As in Pulumi's state, a resource with an id exists.
    states = [{**asdict(each), "id": each.urn, "ignoreChanges": each.ignore_changes} for each in made]
    data = {"version": 3, "deployment": {"resources": states}}
    try:
        whole_file.write(file, json.dumps(data, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise LocalCloudError(f"{file} cannot be written: {error.strerror}") from None
