"""Drift: the fields of a live object that are not as its manifest says.

A dry run of server-side apply answers with the object as an apply would leave it, with the API server's own defaults,
forms of quantities and keys of lists. It changes nothing, but needs the right to patch, and costs the server a hundred
times a read: objects that have each field as the manifest says are not asked for. Fields that the manifest leaves out,
and entries that others added to a list with keys, do not count as drift: an apply leaves them alone.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trainium_eks.kube.api import Api, ApiError, NoSuchKindError, ObjectReference
from trainium_eks.kube.cluster import Object
from trainium_eks.model.validation.unseen import UNSEEN

GONE = "does not exist"
ENDING = "is being deleted"
ADDED = " was added by "
"""In the line of a field that the manifest leaves out and kubectl has set: an apply does not take it off."""
IGNORED = "[ignored]"
"""Place of a value in a manifest that any value may take."""

_PULUMIS_SECRET = "4dabf18193072939515e22adb298388d"
"""Key of every secret value in Pulumi's state."""
# A separate manager: fields that are left out stay the others'.
_DRY_RUN = {"dryRun": "All", "fieldManager": "trn-compare", "force": "true", "fieldValidation": "Ignore"}
_SERVERS = ("managedFields", "resourceVersion", "uid", "creationTimestamp", "generation")
_LONGEST = 100


def differences(
    api: Api, manifest: Object, namespace: str = "", read: Callable[[ObjectReference], Object | None] | None = None
) -> tuple[str, tuple[str, ...]]:
    """Return an object's kind and name, and its differences from its manifest, a line each: :data:`GONE` or
    :data:`ENDING` alone, or fields with their values (of a Secret without). Values that the manifest hides are not
    compared. ``read`` reads an object in place of a request. ApiError: the dry run is refused, for want of rights or
    by a webhook that takes none."""
    try:
        manifest = with_namespace(api, manifest, namespace)
    except NoSuchKindError:
        return f"{manifest['kind']} {manifest['metadata']['name']}", (GONE,)
    reference = api.reference(manifest)
    live = (read or api.get)(reference)
    if live is None:
        return str(reference), (GONE,)
    if live["metadata"].get("deletionTimestamp"):
        return str(reference), (ENDING,)
    wanted = _comparable(manifest, live)
    if _is_held(wanted, live, _managed(live)):
        return str(reference), tuple(_added(manifest, live))
    path = api.kind(reference.api_version, reference.kind).path(reference.namespace, reference.name)
    try:
        after = api.request("PATCH", path, wanted, query=_DRY_RUN, content_type="application/apply-patch+yaml")
    except ApiError as error:
        # A field that no update changes: the object was deleted, and recreated with another value.
        if error.reason != "Invalid" or not error.causes:
            raise
        return str(reference), tuple(dict.fromkeys(str(each).partition("\n")[0] for each in error.causes))
    lines = [*_changes(wanted, live, after, ""), *_added(manifest, live)]
    hidden = reference.kind == "Secret" and reference.api_version == "v1"
    return str(reference), tuple(f"{line.partition(' ')[0]} differs" if hidden else line for line in lines)


def _managed(live: Object) -> dict[str, Any]:
    """Return the fields that managers own, as a tree of ``managedFields``: what has parts in it is merged by an apply,
    part by part, and the rest is replaced whole (Kubernetes, Server-Side Apply, "Merge strategy")."""
    found: dict[str, Any] = {"f:metadata": {"f:name": {}}}

    def add(tree: dict[str, Any], more: Mapping[str, Any]) -> None:
        for key, inner in more.items():
            add(tree.setdefault(key, {}), inner)

    for entry in live["metadata"].get("managedFields") or ():
        if entry.get("apiVersion") == live["apiVersion"] and not entry.get("subresource"):
            add(found, entry["fieldsV1"])
    return found


def _is_held(wanted: Any, live: Any, managed: Mapping[str, Any]) -> bool:
    """Return whether an apply of the wanted value would surely leave no difference. False where only the server knows:
    it reads some texts in several forms, and fills in keys of lists."""
    is_merged = any(key.startswith("f:") for key in managed)
    if isinstance(wanted, Mapping) and isinstance(live, Mapping) and is_merged:
        return all(key in live and _is_held(wanted[key], live[key], managed.get(f"f:{key}", {})) for key in wanted)
    keyed = [(json.loads(key[2:]).items(), inner) for key, inner in managed.items() if key.startswith("k:")]
    if isinstance(wanted, list) and isinstance(live, list) and keyed and len(wanted) == len(live):
        items = [each.items() if isinstance(each, Mapping) else {}.items() for each in wanted]
        parts = [[inner for key, inner in keyed if key <= each] for each in items]
        return all(
            len(inner) == 1 and _is_held(one, other, inner[0])
            for one, other, inner in zip(wanted, live, parts, strict=True)
        )
    return bool(wanted == live)


def with_namespace(api: Api, manifest: Object, namespace: str) -> dict[str, Any]:
    """Return a manifest with the namespace, if it names none and its kind has one."""
    has_one = api.kind(manifest["apiVersion"], manifest["kind"]).namespaced
    place = {"namespace": namespace or "default"} if has_one else {}
    return {**manifest, "metadata": {**place, **manifest["metadata"]}}


def _comparable(manifest: Object, live: Object) -> dict[str, Any]:
    """Return the part of a manifest that can be compared, with the live values in the places of hidden ones."""
    wanted = {key: value for key, value in manifest.items() if key != "status"}
    text, data = wanted.pop("stringData", None) or {}, wanted.get("data") or {}
    if text:
        sealed = _PULUMIS_SECRET in text or _PULUMIS_SECRET in data
        wanted["data"] = IGNORED if sealed else {**data, **dict.fromkeys(text, UNSEEN)}
    metadata = {key: value for key, value in wanted["metadata"].items() if key not in _SERVERS}
    notes = metadata.pop("annotations", None) or {}
    if given := {key: value for key, value in notes.items() if not key.startswith("pulumi.com/")}:
        metadata["annotations"] = given
    return {**_known(wanted, live), "metadata": _known(metadata, live["metadata"])}


def _known(wanted: Any, live: Any) -> Any:
    if wanted in (UNSEEN, IGNORED) or (isinstance(wanted, Mapping) and _PULUMIS_SECRET in wanted):
        return "" if live is None else live
    if isinstance(wanted, Mapping):
        there = live if isinstance(live, Mapping) else {}
        return {
            key: _known(value, there.get(key))
            for key, value in wanted.items()
            if not (value is None or key.startswith("__") or (value == IGNORED and key not in there))
        }
    if isinstance(wanted, list):
        found = live if isinstance(live, list) else []
        return [_known(value, found[at] if at < len(found) else None) for at, value in enumerate(wanted)]
    return wanted


def _changes(wanted: Object | None, live: Object, after: Object, path: str) -> Iterator[str]:
    """Yield the differences in the wanted fields and in those that an apply removes, in all of them without any."""
    removed = [key for key in live if key not in after]
    for key in {**live, **after} if wanted is None else dict.fromkeys([*wanted, *removed]):
        has, due = live.get(key), after.get(key)
        inner = wanted.get(key) if wanted and isinstance(has, Mapping) else None
        if isinstance(has, list) and isinstance(due, list) and len(has) == len(due):
            has, due = dict(enumerate(has)), dict(enumerate(due))
        if isinstance(has, Mapping) and isinstance(due, Mapping):
            yield from _changes(inner, has, due, f"{path}{key}.")
        elif has != due:
            yield f"{path}{key} {_difference(has, due)}"


def _difference(has: object, due: object) -> str:
    """Return both values in words; of long lists their lengths, and the entries that one of them lacks."""
    if isinstance(has, list) and isinstance(due, list) and len(json.dumps([has, due])) > _LONGEST:
        lacking, beside = ([each for each in one if each not in other] for one, other in ((due, has), (has, due)))
        parts = [f"without {_text(lacking)}"] if lacking else []
        parts += [f"with {_text(beside)} beside them"] if beside else []
        return " ".join((f"has {len(has)} entries, was made with {len(due)}:", " and ".join(parts) or "one twice"))
    is_now = "is missing" if has is None else f"is {_text(has)}"
    return f"{is_now}, was made {'without' if due is None else f'as {_text(due)}'}"


def _added(manifest: Object, live: Object) -> Iterator[str]:
    for entry in live["metadata"].get("managedFields") or ():
        manager = str(entry.get("manager"))
        # A restart is a person's, too, and no drift.
        if manager.startswith("kubectl") and manager != "kubectl-rollout" and not entry.get("subresource"):
            fields = {key: value for key, value in entry["fieldsV1"].items() if key not in ("f:metadata", "f:status")}
            yield from (f"{path}{ADDED}{manager}" for path in _added_paths(fields, manifest, ""))


def _added_paths(fields: Mapping[str, Any], wanted: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the paths of managed fields that a manifest leaves out; lists are compared whole."""
    for key in (key for key in fields if key.startswith("f:")):
        value = wanted.get(key[2:])
        if value is None:
            yield f"{path}{key[2:]}"
        elif isinstance(value, Mapping):
            yield from _added_paths(fields[key], value, f"{path}{key[2:]}.")


def _text(value: object) -> str:
    text = " ".join((value if isinstance(value, str) else json.dumps(value)).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
