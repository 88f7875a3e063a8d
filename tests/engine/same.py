"""Holds what the engine has against what was recorded."""

from collections.abc import Mapping
from dataclasses import replace

from engine.analyzer import after_check
from engine.rig import called
from engine.simulated_aws.checked import name_path
from pulumi.runtime import rpc

from trainium_eks.plan.differences.diff import compare
from trainium_eks.plan.graph import SECRET, UNKNOWN
from trainium_eks.plan.resource_types.paths import value_at

# Added by the engine to the inputs of providers, and not by the program.
_ENGINES_OWN = ("__internal", "version")

_KUBERNETES = "kubernetes:"


def differences(graph, engine, *, first_preview=False):
    """One line for each difference between a recording and the engine's states by URN. In a first preview the
    Kubernetes provider cannot be configured, so the engine asks it nothing: what comes from its objects is unknown,
    and its components have no options."""
    stands = {urn: _plain(state.get("inputs") or {}) for urn, state in engine.items()}
    graph = _renamed(after_check(graph, stands), graph, stands)
    for urn in sorted({*graph.by_urn, *engine}):
        if urn not in engine:
            yield f"{urn}: recorded only"
        elif urn not in graph.by_urn:
            # For a component that another process builds, and for what the SDK asks the engine itself.
            if not ("::pulumi:providers:" in urn and urn.rpartition("::")[2].startswith("default")):
                yield f"{urn}: in the engine only"
        else:
            yield from _different(graph.by_urn[urn], engine[urn], first_preview)


def assert_made(graph, rig):
    assert list(differences(graph, {state["urn"]: state for state in rig.resources(graph.stack)})) == []


def assert_planned(before, after, run):
    planned = compare(before, after)
    for kind in ("create", "update", "replace", "delete"):
        assert {called(item.resource.urn) for item in planned.of(kind)} == run.of(kind) & run.custom, kind


def _renamed(checked, recorded, stands):
    """The program with the engine's names in place of those that a recording makes up, wherever they appear."""
    names = {}
    for resource in recorded.resources:
        path = name_path(resource.type)
        ours, theirs = (value_at(values, path) for values in (resource.outputs, stands.get(resource.urn, {})))
        if path and ours and theirs and ours != UNKNOWN and value_at(resource.inputs, path) is None:
            names[str(ours)] = str(theirs)

    def renamed(value):
        if isinstance(value, str):
            for ours, theirs in names.items():
                value = value.replace(ours, theirs)
            return value
        if isinstance(value, Mapping):
            return {key: renamed(item) for key, item in value.items()}
        return [renamed(item) for item in value] if isinstance(value, list) else value

    resources = tuple(replace(each, inputs=renamed(each.inputs)) for each in checked.resources)
    return replace(checked, resources=resources)


def _different(recorded, state, first_preview):
    pairs = {
        "type": (recorded.type, state["type"]),
        "custom": (recorded.custom, state["custom"]),
        "parent": (recorded.parent, state.get("parent", "")),
        "protect": (recorded.options.protect, bool(state.get("protect"))),
        "retainOnDelete": (recorded.options.retain_on_delete, bool(state.get("retainOnDelete"))),
        "deletedWith": (recorded.options.deleted_with, state.get("deletedWith", "")),
        "ignoreChanges": (sorted(recorded.options.ignore_changes), sorted(state.get("ignoreChanges") or ())),
    }
    if recorded.custom or not (first_preview and recorded.type.startswith(_KUBERNETES)):
        pairs["dependencies"] = (sorted(recorded.dependencies), sorted(state.get("dependencies") or ()))
    # What a component was given stays with the process that builds it.
    if recorded.custom:
        inputs = _plain(state.get("inputs") or {})
        given = _plain(recorded.inputs)
        if first_preview:
            inputs = {name: _unless_unknown(recorded, name, value) for name, value in inputs.items()}
            # Check makes up names, so the engine knows what comes from them; a recording learns it later.
            given = {name: _filled(value, inputs.get(name)) for name, value in given.items()}
        came_from = state.get("propertyDependencies") or {}
        pairs |= {
            "inputs": (given, inputs),
            "propertyDependencies": (_sorted(recorded.property_dependencies), _sorted(came_from)),
            "provider": (recorded.provider, str(state.get("provider", "")).rpartition("::")[0]),
        }
    for what, (ours, theirs) in pairs.items():
        if ours != theirs:
            yield f"{recorded.urn} {what}: recorded {ours!r}, in the engine {theirs!r}"


def _unless_unknown(recorded, name, value):
    """The engine's value, or the recorded one where a Kubernetes object's output makes the engine's unknown."""
    sources = recorded.property_dependencies.get(name, ())
    if not any(urn.split("::")[2].rpartition("$")[2].startswith(_KUBERNETES) for urn in sources):
        return value
    return _filled(value, _plain(recorded.inputs).get(name))


def _filled(value, known):
    if value == UNKNOWN:
        return known
    if isinstance(value, Mapping) and isinstance(known, Mapping):
        return {key: _filled(item, known.get(key)) for key, item in value.items()}
    if isinstance(value, list) and isinstance(known, list) and len(value) == len(known):
        return [_filled(item, each) for item, each in zip(value, known, strict=True)]
    return value


def _sorted(dependencies):
    return {name: sorted(urns) for name, urns in dependencies.items() if urns}


def _plain(value):
    """Secrets, unknowns and the order of keys alike on both sides."""
    if isinstance(value, Mapping):
        if rpc._special_sig_key in value:
            return SECRET
        return {key: _plain(item) for key, item in sorted(value.items()) if key not in _ENGINES_OWN}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return UNKNOWN if value == rpc.UNKNOWN else value
