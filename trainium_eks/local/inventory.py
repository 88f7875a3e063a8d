"""The inventory of a stack's resources on this machine, by which ``up`` finds resources that have left the program.

``made.json`` lists the resources of the last successful ``up``. While ``up`` runs, and after a failure,
``unfinished.json`` replaces it: the resources of the new program, and those of earlier programs. A kill at any moment
leaves one of the two files, and each lists every resource that may exist.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from trainium_eks.local.changes import Change, LocalCloudError
from trainium_eks.local.control_plane.processes import write_json
from trainium_eks.local.makers import kind_of, made_as, reference_of
from trainium_eks.local.paths import Paths
from trainium_eks.model.validation.parsing import MISSHAPEN, parse_json
from trainium_eks.plan.graph import UNKNOWN, Graph, Resource
from trainium_eks.plan.resource_types import replacements


@dataclass(frozen=True)
class Item:
    """One resource of a stack."""

    urn: str
    type: str
    kind: str
    """Kind of the maker: ``object``, ``release``, ``nodes``, ``addon``, or ``simulated`` for a resource in name only.
    """
    reference: Mapping[str, Any]
    """The data by which its maker finds it on this machine."""
    inputs: Mapping[str, Any]
    """Inputs as used on this machine; secrets are hidden."""
    outputs: Mapping[str, Any]
    ignore_changes: tuple[str, ...] = ()
    replaced_with: tuple[str, ...] = ()
    """URNs of the resources it is made from: when one of these is replaced, it is deleted first and recreated."""
    deleted_with: str = ""
    """URN of the resource that is deleted with this one; empty for a resource that is deleted by itself."""
    protect: bool = False
    retain: bool = False
    whole: bool = False
    """Whether an ``up`` with this resource has succeeded."""

    @property
    def key(self) -> tuple[str, str]:
        """Return the identity: a resource that has a new name on this machine is another item."""
        return self.urn, json.dumps(self.reference, sort_keys=True)


def load(paths: Paths) -> list[Item]:
    """Return the resources that may exist, in the order of creation; none before the first ``up``."""
    file = next((each for each in (paths.unfinished, paths.made) if each.exists()), None)
    if file is None:
        return []
    try:
        return [_parsed(each) for each in parse_json(file.read_text(encoding="utf-8"))["deployment"]["resources"]]
    except (OSError, *MISSHAPEN) as error:
        fix = "`trn local down` removes it with the rest of the stack"
        raise LocalCloudError(f"{file} is damaged, or of another version of trn ({error!r}): {fix}") from None


def begin(paths: Paths, plan: Graph, before: list[Item]) -> None:
    """Write the list of an ``up``, before it makes a resource."""
    known = {each.key: each for each in before}
    planned = [replace(each, whole=each.key in known and known[each.key].whole) for each in list_items(plan)]
    # No resource of the program depends on the removed ones: after a kill they are deleted first.
    _write(paths.unfinished, [*planned, *find_removed(before, planned)])
    paths.made.unlink(missing_ok=True)


def complete(paths: Paths, made: list[Item]) -> None:
    """Write the list of a successful ``up``."""
    _write(paths.made, [replace(each, whole=True) for each in made])
    paths.unfinished.unlink()


def find_removed(before: list[Item], now: list[Item]) -> list[Item]:
    """Return the resources that have left the program, in the order of creation."""
    asked = {each.key for each in now}
    return [each for each in before if each.key not in asked]


def count_simulated(before: list[Item], now: list[Item]) -> Counter[str]:
    """Return the number of simulated resources by their change."""
    whole = {each.key: each.inputs for each in before if each.whole}

    def change(resource: Item) -> Change:
        if resource.key not in whole:
            return Change.CREATED
        return Change.SAME if whole[resource.key] == resource.inputs else Change.UPDATED

    return Counter(change(each) for each in now if each.kind == "simulated")


def list_items(graph: Graph) -> list[Item]:
    """Return the resources of a program, each after those that it depends on."""
    edges = {each.urn: (*each.dependencies, each.parent, each.provider) for each in graph.resources}
    order = (graph.by_urn[urn] for urn in TopologicalSorter(edges).static_order() if urn in graph.by_urn)
    items = (_item(each) for each in order if each.custom)
    # A name that comes from a real object is known only after the creation of that object.
    return [each for each in items if UNKNOWN not in json.dumps(each.reference)]


def _item(resource: Resource) -> Item:
    kind, outputs, options = kind_of(resource.type), resource.outputs, resource.options
    return Item(
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


def _parsed(data: Mapping[str, Any]) -> Item:
    values: dict[str, Any] = {each.name: data[each.name] for each in fields(Item)}
    lists = {name: tuple(values[name]) for name in ("ignore_changes", "replaced_with")}
    return Item(**{**values, **lists})


def _write(file: Path, items: list[Item]) -> None:
    """Write the items in the form of Pulumi's state, which ``trn doctor`` compares with the cluster."""
    # As in Pulumi's state, a resource with an id exists.
    states = [{**asdict(each), "id": each.urn, "ignoreChanges": each.ignore_changes} for each in items]
    write_json(file, {"version": 3, "deployment": {"resources": states}})
