"""What a Pulumi engine shows a policy pack of a recorded program, without an engine.

An analyzer sees a resource's inputs after its provider's Check, with secrets in clear and without the provider's own
notes; of the options neither ``retainOnDelete`` nor what only the engine needs. In a first preview the Kubernetes
provider cannot be configured, so the engine asks it nothing (pulumi's ``pkg/resource/deploy/step_generator.go``).
"""

import json
from collections import UserDict, UserList
from dataclasses import replace
from types import MappingProxyType, SimpleNamespace
from typing import Any

from engine.simulated_aws.checked import checked
from rule_programs import kubeconfig

from trainium_eks.plan.graph import SECRET, UNKNOWN
from trainium_eks.plan.policy_pack import Pack
from trainium_eks.plan.reading import leaves

SENTINEL = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"


class UnknownError(Exception):
    """What reading an unknown value raises."""


class Props(UserDict[str, Any]):
    """As the SDK's: an unknown value raises when it is read."""

    def __getitem__(self, key):
        if key == "__target":
            return self.data
        if self.data[key] == SENTINEL:
            raise UnknownError(key)
        return self.data[key]


class Items(UserList[Any]):
    def __getitem__(self, key):
        return self.data if key == "__target" else self.data[key]


def proxied(value):
    """A recorded value as the SDK hands it over: numbers are floats, unknowns the engine's words for them."""
    if isinstance(value, dict):
        return Props({key: proxied(each) for key, each in value.items() if not key.startswith("__")})
    if isinstance(value, list | tuple):
        return Items([proxied(each) for each in value])
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if value == SECRET:
        return kubeconfig()  # the one secret that a rule reads
    return SENTINEL if value == UNKNOWN else value


def after_check(graph, before=MappingProxyType({})):
    """Return the program with inputs as the providers complete them. A resource that stands (``before`` has its
    checked inputs by URN) keeps the name that was made up."""

    def one(resource):
        provider = graph.by_urn.get(resource.provider)
        # What a provider is configured with is not known yet: the engine asks it nothing.
        if not resource.custom or provider is None or any(value == UNKNOWN for _, value in leaves(provider.inputs)):
            return resource
        stands = before.get(resource.urn)
        found = checked(resource.type, resource.name, resource.inputs, provider=provider.inputs, before=stands)
        assert not found.faults, (resource.urn, found.faults)
        return replace(resource, inputs=found.inputs)

    return replace(graph, resources=tuple(map(one, graph.resources)))


def without_a_cluster(graph):
    """Return a program as a first preview has it: objects answer nothing, and what other inputs have of their names is
    unknown."""
    named = {each.urn: each.inputs["metadata"].get("name") for each in graph.resources if "metadata" in each.inputs}

    def forgotten(value, names):
        if isinstance(value, dict):
            return {key: forgotten(each, names) for key, each in value.items()}
        if isinstance(value, list):
            return [forgotten(each, names) for each in value]
        return UNKNOWN if value in names else value

    def one(resource):
        came = resource.property_dependencies
        names = {key: {named[urn] for urn in came.get(key, ()) if urn in named} for key in resource.inputs}
        return replace(resource, inputs={key: forgotten(each, names[key]) for key, each in resource.inputs.items()})

    return replace(graph, resources=tuple(map(one, graph.resources)))


def pack(graph, *, preview=False):
    """Return the pack after the engine has shown it each resource that is about to be made."""
    config = {f"{graph.project}:{key}": json.dumps(value) for key, value in graph.config.items()}
    made = Pack(graph.project, graph.stack, config, preview)
    for each in after_check(graph).resources:
        made.remember(each.urn, proxied(dict(each.inputs)))
    return made


def shown(graph):
    """Return what a stack policy sees: outputs and a few options, and no inputs."""
    seen = {
        each.urn: SimpleNamespace(urn=each.urn, resource_type=each.type, name=each.name) for each in graph.resources
    }
    for each in graph.resources:
        one, options = seen[each.urn], each.options
        one.props = proxied(dict(each.outputs or (graph.outputs if not each.parent else {})))
        one.opts = SimpleNamespace(
            protect=options.protect, ignore_changes=list(options.ignore_changes), additional_secret_outputs=[]
        )
        one.provider = SimpleNamespace(urn=each.provider) if each.custom else None
        one.parent = seen.get(each.parent)
        one.dependencies = [seen[urn] for urn in each.dependencies if urn in seen]
        one.property_dependencies = {
            name: [seen[urn] for urn in urns if urn in seen] for name, urns in each.property_dependencies.items()
        }
    return list(seen.values())
