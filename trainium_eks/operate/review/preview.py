"""``pulumi preview --json`` as two programs and the changes between them.

The engine compared the program with the account's state, so its operations and its ``detailedDiff`` are taken as they
are. Given ``--show-sames`` the document holds every resource, and cost, time and rules can be judged as for a plan.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainium_eks.model.config.stack_config import decode
from trainium_eks.model.validation.parsing import MISSHAPEN
from trainium_eks.operate.review.safe_text import NAME
from trainium_eks.plan.differences import diff
from trainium_eks.plan.differences.changes import ChangeKind, Changes, PathChange, ResourceChange
from trainium_eks.plan.graph import SECRET, UNKNOWN, Graph, Options, Resource
from trainium_eks.plan.resource_types.paths import dotted, value_at

COMPUTED = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""Pulumi's text for a value that only ``pulumi up`` will know (``plugin.UnknownStringValue``)."""

_URN_PARTS = 4
"""``urn:pulumi:stack``, project, types, name."""

_KINDS: Mapping[str, ChangeKind] = {
    "create": "create",
    "import": "create",
    "update": "update",
    "replace": "replace",
    "delete": "delete",
}
"""Operations of steps; the parts of a replacement (``create-replacement``, ``delete-replaced``) say nothing more."""


@dataclass(frozen=True)
class Preview:
    """The engine's planned operations."""

    before: Graph
    after: Graph
    changes: Changes
    phantom: frozenset[str]
    """URNs of replacements that only follow from a provider with inputs that ``pulumi up`` will know: it will find them
    unchanged (pulumi-eks#338, #352)."""
    whole: bool
    """Whether unchanged resources were shown too."""
    errors: tuple[str, ...]


def parse(document: object, stack: str) -> Preview:
    """Return the two programs of a preview's document; ValueError for another document."""
    if not isinstance(document, Mapping) or not isinstance(document.get("steps"), list):
        raise ValueError("it has no list `steps`: give the output of `pulumi preview --json --show-sames`")
    steps = [step for step in document["steps"] if isinstance(step, Mapping) and "urn" in step]
    if not steps:  # nothing changes, and the resources that stay are not shown
        raise ValueError(
            "none of its `steps` names the project: give the output of `pulumi preview --json --show-sames`"
        )
    try:
        return _parsed(document, steps, stack)
    except MISSHAPEN as error:
        raise ValueError(f"it has another form than `pulumi preview --json` prints: {error!r}") from None


def _parsed(document: Mapping[str, Any], steps: list[Mapping[str, Any]], stack: str) -> Preview:
    project = steps[0]["urn"].split("::")[1]
    if not NAME.fullmatch(project):
        raise ValueError(f"its project is called {project!r}")
    config = _config(document.get("config") or {}, project)
    before = Graph(project, stack, tuple(_states(steps, "oldState")), {}, config)
    after = Graph(project, stack, tuple(_standing(steps, before)), {}, config)
    own = {change.resource.urn: change for change in _changes(steps, before, after)}
    changes = diff.judged(before, after, own)
    summary = document.get("changeSummary") or {}
    shown = sum(step.get("op") == "same" for step in steps)
    diagnostics = document.get("diagnostics") or ()
    errors = [str(each.get("message", "")).strip() for each in diagnostics if each.get("severity") == "error"]
    return Preview(
        before, after, changes, _phantom(steps, after, changes), shown >= summary.get("same", 0), tuple(errors)
    )


def _config(values: Mapping[str, Any], project: str) -> dict[str, Any]:
    """Return the project's own config; a preview prints values as text, or with a flag that says whether they are
    secret."""
    own = {}
    for key, value in values.items():
        namespace, _, name = key.partition(":")
        if namespace == project:
            text = value.get("value", SECRET) if isinstance(value, Mapping) else value
            own[name] = SECRET if isinstance(value, Mapping) and value.get("secret") else str(text)
    return decode(own)


# --- states -------------------------------------------------------------------------------------------------------


def _states(steps: Iterable[Mapping[str, Any]], which: str) -> Iterator[Resource]:
    """Yield each resource once, by URN."""
    found = {step["urn"]: step[which] for step in steps if isinstance(step.get(which), Mapping)}
    for urn, state in sorted(found.items()):
        yield _resource(urn, state)


def _standing(steps: Iterable[Mapping[str, Any]], before: Graph) -> Iterator[Resource]:
    """Yield the resources as planned. A preview leaves out computed outputs of the resources that stay: these keep
    their old outputs."""
    stay = {step["urn"] for step in steps if step.get("op") in ("same", "update")}
    for resource in _states(steps, "newState"):
        old = before.by_urn.get(resource.urn) if resource.urn in stay else None
        yield replace(resource, outputs={**old.outputs, **resource.outputs}) if old else resource


def _resource(urn: str, state: Mapping[str, Any]) -> Resource:
    timeouts = state.get("customTimeouts") or {}
    return Resource(
        urn=urn,
        type=str(state.get("type", "")),
        name=urn.rsplit("::", 1)[-1],
        parent=str(state.get("parent", "")),
        custom=bool(state.get("custom")),
        inputs=_known(_given(state.get("inputs") or {})),
        # A recorded program has the id among the outputs, and rules look for it there.
        outputs=_known({**(state.get("outputs") or {}), **({"id": state["id"]} if state.get("id") else {})}),
        dependencies=tuple(sorted(state.get("dependencies") or ())),
        property_dependencies={
            name: tuple(urns or ()) for name, urns in (state.get("propertyDependencies") or {}).items()
        },
        provider=_provider(str(state.get("provider", ""))),
        options=Options(
            protect=bool(state.get("protect")),
            retain_on_delete=bool(state.get("retainOnDelete")),
            deleted_with=str(state.get("deletedWith", "")),
            ignore_changes=tuple(state.get("ignoreChanges") or ()),
            aliases=tuple(state.get("aliases") or ()),
            custom_timeouts={name: str(value) for name, value in timeouts.items()},
        ),
    )


def _provider(reference: str) -> str:
    """Return the URN in a reference to a provider, which ends with ``::`` and its id."""
    urn, _, _ = reference.rpartition("::")
    return urn if urn.count("::") == _URN_PARTS - 1 else reference


def _given(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the inputs that the program gave: a provider lists the names of inputs that it filled in itself."""
    filled = inputs.get("__defaults") or ()
    return {key: value for key, value in inputs.items() if key not in filled}


def _known(value: Any) -> Any:
    """Return a value with :data:`~trainium_eks.plan.graph.UNKNOWN` in each place that only ``pulumi up`` will fill."""
    if isinstance(value, Mapping):
        return {key: _known(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_known(inner) for inner in value]
    return UNKNOWN if isinstance(value, str) and COMPUTED in value else value


# --- changes ------------------------------------------------------------------------------------------------------


def _changes(steps: Iterable[Mapping[str, Any]], before: Graph, after: Graph) -> Iterator[ResourceChange]:
    kinds = {step["urn"]: _KINDS[step["op"]] for step in steps if step.get("op") in _KINDS}
    by_urn = {step["urn"]: step for step in steps if step.get("op") in _KINDS}
    for urn, kind in kinds.items():
        resource = (before if kind == "delete" else after).by_urn.get(urn)
        if resource is None or not resource.custom:
            continue
        old = before.by_urn.get(urn)
        paths = tuple(_paths(by_urn[urn], old, resource, kinds)) if kind in ("update", "replace") else ()
        causes = [path.cause for path in paths if path.cause and path.replaces]
        provider = resource.provider if _reasons(by_urn[urn]) == {"provider"} else ""
        yield ResourceChange(kind, resource, "", paths, follows=provider or (causes[0] if causes else ""))


def _reasons(step: Mapping[str, Any]) -> set[str]:
    return set(step.get("replaceReasons") or ())


def _paths(
    step: Mapping[str, Any], old: Resource | None, new: Resource, kinds: Mapping[str, ChangeKind]
) -> Iterator[PathChange]:
    detailed = step.get("detailedDiff") or {
        name: {"kind": "update-replace" if name in _reasons(step) else "update"}
        for name in step.get("diffReasons") or ()
        if name != "provider"
    }
    for path, told in sorted(detailed.items()):
        steps = _steps(path)
        after = _at(new.inputs, steps)
        before = _at(old.inputs, steps) if old else None
        before = _at(old.outputs, steps) if old and before is None else before
        changed = [urn for urn in new.property_dependencies.get(str(steps[0]), ()) if urn in kinds]
        cause = changed[0] if after == UNKNOWN and changed else ""
        replaces = str(told.get("kind", "")).endswith("-replace")
        if cause:
            yield PathChange(dotted(steps), replaces=replaces, cause=cause)
        else:
            yield PathChange(dotted(steps), before, after, replaces)


def _steps(path: str) -> tuple[str | int, ...]:
    """Return the parts of a property path of Pulumi's: ``spec.hard["requests.cpu"]``,
    ``networkInterfaces[0].description``."""
    found = re.findall(r'\["((?:[^"\\]|\\.)*)"\]|\[(\d+)\]|([^.\[\]]+)', path)
    return tuple(int(index) if index else quoted or name for quoted, index, name in found) or (path,)


def _at(value: Any, steps: tuple[str | int, ...]) -> Any:
    for step in steps:
        if isinstance(value, Mapping):
            value = value.get(str(step))
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        elif value == UNKNOWN:
            return UNKNOWN
        else:
            return None
    return value


# --- apparent replacements ----------------------------------------------------------------------------------------


def _phantom(steps: Iterable[Mapping[str, Any]], after: Graph, changes: Changes) -> frozenset[str]:
    """Return the URNs of replacements that will not happen. These are providers replaced for an input that is merely
    unknown, without a replaced or created source, and resources replaced only because of them."""
    made = {change.resource.urn for change in changes.items if change.kind in ("replace", "create")}
    reasons = {step["urn"]: _reasons(step) for step in steps}
    providers = set()
    for change in changes.replaced:
        resource = after.by_urn.get(change.resource.urn)
        if resource is None or not resource.type.startswith("pulumi:providers:"):
            continue
        names = {path.path.partition(".")[0] for path in change.paths if path.replaces} or reasons[resource.urn]
        unknown = all(value_at(resource.inputs, name) in (UNKNOWN, SECRET, None) for name in names)
        sources = {urn for name in names for urn in resource.property_dependencies.get(name, ())}
        if names and unknown and not sources & made:
            providers.add(resource.urn)
    followers = {
        change.resource.urn
        for change in changes.replaced
        if change.resource.provider in providers and not any(path.replaces for path in change.paths)
    }
    return frozenset(providers | followers)
