"""What an attacker, or a tired colleague, would change: security-relevant mutations of a recorded program.

Each kind of mutation looks for the resources it can be applied to; :func:`mutations` gives every kind at every place,
and :func:`sample` a seeded choice of them that has every kind.
"""

import copy
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dotted
import yaml

from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.resource_types.paths import value_at

Edit = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Mutation:
    kind: str
    urn: str
    graph: Graph
    """The program with the change."""

    @property
    def title(self):
        return f"{self.kind}: {self.urn.rpartition('::')[2]}"


def changed(graph, urn, edit):
    """The program with one resource's inputs edited. Its answers follow where they repeat an input."""

    def one(resource):
        inputs = copy.deepcopy(dict(resource.inputs))
        edit(inputs)
        repeated = {key: inputs[key] for key in resource.outputs if key in inputs and key in resource.inputs}
        return replace(resource, inputs=inputs, outputs={**resource.outputs, **repeated})

    return replace(graph, resources=tuple(one(each) if each.urn == urn else each for each in graph.resources))


@dataclass(frozen=True)
class Kind:
    """One kind of mutation: an edit of every resource of a type that a condition picks, or its removal."""

    name: str
    type: str
    edit: Edit | None
    """None removes the resource."""
    when: Callable[[Resource], bool] = lambda _: True

    def places(self, graph):
        return (each.urn for each in graph.of_type(self.type) if self.when(each))

    def at(self, graph, urn):
        if self.edit is not None:
            return Mutation(self.name, urn, changed(graph, urn, self.edit))
        left = tuple(each for each in graph.resources if each.urn != urn)
        return Mutation(self.name, urn, replace(graph, resources=left))


def _of_row(type_, row):
    """The kind that a row of security_mutations.yaml describes."""

    def edit(inputs):
        for path, value in row.get("set", {}).items():
            dotted.put(inputs, path, value)
        if "unset" in row:
            dotted.put(inputs, row["unset"], dotted.DROP)
        for path, granted in row.get("allow", {}).items():
            document = json.loads(inputs[path])
            document["Statement"].append({"Effect": "Allow", **granted})
            inputs[path] = json.dumps(document)
        if "rule" in row:
            inputs["rules"] = [*inputs["rules"], row["rule"]]

    def when(resource):
        text = str(resource.inputs)
        return (
            ("has" not in row or value_at(resource.inputs, row["has"]))
            and row.get("with", "") in text
            and ("without" not in row or row["without"] not in text)
            and row.get("named", "") in resource.name
            and all(value_at(resource.inputs, path) == value for path, value in row.get("when", {}).items())
        )

    return Kind(row["kind"], type_, None if row.get("gone") else edit, when)


def plain_volume(inputs):
    volume = {"deviceName": "/dev/xvdb", "ebs": {"volumeSize": 10, "volumeType": "gp3"}}
    inputs["blockDeviceMappings"].append(volume)


def privileged(inputs):
    inputs["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = "privileged"


KINDS: tuple[Kind, ...] = (
    *(_of_row(type_, row) for type_, rows in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text()).items()
      for row in rows),
    Kind("a second volume in plain text", "aws:ec2/launchTemplate:LaunchTemplate", plain_volume),
    Kind("a privileged namespace", "kubernetes:core/v1:Namespace", privileged,
         lambda each: "baseline" in str(each.inputs)),
)  # fmt: skip


def sample(graph, count, seed):
    """So many mutations of a program: each kind once where it has a place, then others at random."""
    chooser = random.Random(seed)
    places = [(kind, urn) for kind in KINDS for urn in kind.places(graph)]
    first = {kind.name: (kind, urn) for kind, urn in chooser.sample(places, len(places))}
    rest = [each for each in places if each not in first.values()]
    chosen = [*first.values(), *chooser.sample(rest, max(0, min(len(rest), count - len(first))))]
    return [kind.at(graph, urn) for kind, urn in chosen]
