"""Applies and deletes Kubernetes objects as Pulumi's Kubernetes provider does, on a real API server.

Server-side apply with strict field validation; readiness is awaited (:mod:`trainium_eks.local.objects.awaits`); an
object is replaced when Kubernetes refuses a change of an immutable field; a deletion is done when the object is gone.
Two things differ from Pulumi, so that an ``up`` that was killed can be repeated: an existing object is taken over
instead of refused, and readiness is awaited also where nothing changed.
"""

import base64
import math
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainium_eks.kube.api import FIELD_MANAGER, Api, ApiError, NoSuchKindError, ObjectReference
from trainium_eks.kube.cluster import find_volume_users
from trainium_eks.local.changes import ApplyResult, Change, LocalCloudError
from trainium_eks.local.objects import awaits
from trainium_eks.local.patience import Patience

__all__ = ["ObjectReference", "Objects"]

COUNTING_SECONDS = 5.0
"""Interval between two requests to count a quota's objects again."""

# The API server's words for a field that cannot be changed: `field is immutable` (most kinds), `updates to provisioner
# are forbidden` (StorageClass), `cannot change roleRef`, `may not change once set` (a Service's cluster IP), `pod
# updates may not change fields other than`, `may not be changed in an update` (PriorityClass).
_IMMUTABLE = re.compile(
    r"immutable|updates? .*(is|are) forbidden|(can ?not|may not|must not) (be )?change", re.IGNORECASE
)
# Faults that a dry run of the new object may report only because the old object still exists.
_OLD_ONES_FAULT = ("already allocated", "exceeded quota")

_COUNT = "count/"
"""Prefix of a limit of a quota, before the resource and its group: the name of a kind's definition."""

_PASSING = "count/again.trainium-eks"
"""A limit that is added and removed, of a kind that does not exist: the quota's other limits keep their owners."""


class Objects:
    """The objects of a stack. Safe to use from many threads.

    ``waiting`` is called from any thread; waits are given up when ``stopping`` is set (another resource failed, or the
    user interrupted).
    """

    def __init__(self, api: Api, waiting: Callable[[str], None], stopping: threading.Event | None = None) -> None:
        self._api = api
        self._waiting = waiting
        self._stopping = stopping or threading.Event()

    def apply(
        self,
        manifest: Mapping[str, Any],
        *,
        timeout_seconds: float,
        wait: bool = True,
        make_room: Callable[[], None] = lambda: None,
    ) -> ApplyResult:
        """Apply a manifest, and wait until the object is ready.

        The annotations ``pulumi.com/skipAwait`` and ``pulumi.com/timeoutSeconds`` are honoured. ``make_room`` is called
        before the object is deleted because it has to be replaced. Return the change, by the fields that the library
        owns before and after, and the live object.
        """
        try:
            wanted = _normalised(manifest)
            reference = self._api.reference(wanted)
            patience = Patience(awaits.timeout_seconds(wanted, timeout_seconds), self._waiting, self._stopping)
        except (NoSuchKindError, ValueError) as error:
            metadata = manifest.get("metadata") or {}
            name = "/".join(filter(None, (metadata.get("namespace"), metadata.get("name"))))
            raise LocalCloudError(f"{manifest.get('kind')} {name}: {error}") from error
        try:
            change, live = self._apply(reference, wanted, patience, make_room)
        except ApiError as error:
            raise _about(reference, error) from error
        if wait:
            live = self._await_ready(reference, live, patience)
            # A quota may exist before the kinds that it counts, or after.
            if reference.kind == "ResourceQuota":
                self._await_counts(reference, patience)
            elif reference.kind == "CustomResourceDefinition":
                self._await_counts(None, patience)
        return ApplyResult(change, _without_managed_fields(live))

    def await_counts(self, *, timeout_seconds: float) -> None:
        """Wait until the quotas of all namespaces count the custom kinds that they limit."""
        self._await_counts(None, Patience(timeout_seconds, self._waiting, self._stopping))

    def delete(self, reference: ObjectReference, *, timeout_seconds: float) -> None:
        """Delete an object with its dependents, and wait until it is gone. An absent object is no error."""
        patience = Patience(timeout_seconds, self._waiting, self._stopping)
        try:
            before = self._api.get(reference)
            if before is not None:
                self._delete(reference, before, patience)
        except ApiError as error:
            raise _about(reference, error, "deleting it: ") from error

    # --- Applying -------------------------------------------------------------------------------------------------

    def _apply(
        self, reference: ObjectReference, wanted: Mapping[str, Any], patience: Patience, make_room: Callable[[], None]
    ) -> tuple[Change, dict[str, Any]]:
        before = self._api.get(reference)
        if before is None:
            return Change.CREATED, self._api.apply(wanted)
        if before["metadata"].get("deletionTimestamp"):
            if reference.kind == "PersistentVolume":
                make_room()  # the volume stays until its claim is gone, which no other owner deletes
            self._await_deletion(reference, before, patience)
            return Change.CREATED, self._api.apply(wanted)
        if (before.get("status") or {}).get("phase") != "Lost":  # a claim whose volume is gone never binds again
            try:
                after = self._api.apply(wanted)
                return Change.SAME if _is_same(wanted, before, after) else Change.UPDATED, after
            except ApiError as error:
                if not _is_immutable(error):
                    raise
        self._check_replacement(wanted)
        make_room()
        self._delete(reference, before, patience)
        return Change.REPLACED, self._api.apply(wanted)

    def _delete(self, reference: ObjectReference, before: Mapping[str, Any], patience: Patience) -> None:
        self._check_not_held(reference)
        self._api.delete(reference)
        self._await_deletion(reference, before, patience)

    def _check_not_held(self, reference: ObjectReference) -> None:
        """Raise ClusterError when pods, also finished ones, hold a claim: its deletion would wait for them, and could
        not be undone."""
        if (reference.api_version, reference.kind) != ("v1", "PersistentVolumeClaim"):
            return
        pods = self._api.list("v1", "Pod", namespace=reference.namespace)
        held = [
            each for each in find_volume_users(pods, reference.name) if not each["metadata"].get("deletionTimestamp")
        ]
        if held:
            names = ", ".join(f"{each['metadata']['name']} ({each['status'].get('phase')})" for each in held)
            raise LocalCloudError(
                f"{reference} is not deleted while pods hold it, finished ones too: {names}\n"
                f"  delete their jobs, or the pods (kubectl -n {reference.namespace} delete pod ...), and try again"
            )

    def _check_replacement(self, wanted: Mapping[str, Any]) -> None:
        """Raise ApiError when the new object is invalid, so that no object is deleted that could not be made again."""
        try:
            self._api.create(wanted, dry_run=True)
        except ApiError as error:
            if error.reason != "AlreadyExists" and not any(each in error.message for each in _OLD_ONES_FAULT):
                raise

    # --- Awaiting -------------------------------------------------------------------------------------------------

    def _await_ready(self, reference: ObjectReference, live: dict[str, Any], patience: Patience) -> dict[str, Any]:
        while True:
            state = awaits.readiness(live, self._related(live))
            if state.ready:
                return live
            if state.failed:
                raise LocalCloudError(f"{reference} failed: {state.reason}")
            if not patience.wait(f"{reference}: {state.reason}"):
                raise LocalCloudError(self._not_ready(reference, live, state.reason, patience))
            found = self._api.get(reference)
            if found is None:
                raise LocalCloudError(f"{reference} was deleted while it was awaited")
            live = found

    def _await_counts(self, quota: ObjectReference | None, patience: Patience) -> None:
        """Wait for the counts of one quota, or of all; see :meth:`await_counts`.

        Kubernetes looks for new kinds each 30 s, and counts the objects of a quota again each 5 minutes, or when its
        limits change (kube-controller-manager, ``startResourceQuotaController`` and ``addQuota``). Until both have
        happened after a kind is new, the API server refuses all objects of the kind in the quota's namespace.
        """
        asked = -math.inf
        while True:
            found = self._api.list("v1", "ResourceQuota") if quota is None else [self._api.get(quota)]
            behind = [(each, missing) for each in found if each and (missing := _unknown_counts(self._api, each))]
            if not behind:
                return
            [(first, missing), *_] = behind
            place = f"ResourceQuota {first['metadata']['namespace']}/{first['metadata']['name']}"
            if not patience.wait(f"{place}: Kubernetes has not counted {', '.join(missing)} yet"):
                raise LocalCloudError(f"{place} {patience.describe_end('was not counted')}: {', '.join(missing)}")
            if time.monotonic() - asked > COUNTING_SECONDS:
                asked = time.monotonic()
                for each, _ in behind:
                    _count_again(self._api, each)

    def _related(self, live: Mapping[str, Any]) -> awaits.Related:
        """Return a reader of the objects, of a kind, that an object's readiness depends on."""
        metadata, spec = live["metadata"], live.get("spec") or {}

        def related(kind: str) -> Sequence[Mapping[str, Any]]:
            if kind == "StorageClass":
                name = spec.get("storageClassName")
                found = self._api.get(ObjectReference("storage.k8s.io/v1", kind, "", name)) if name else None
                return [found] if found else []
            if kind == "EndpointSlice":
                labels = f"kubernetes.io/service-name={metadata['name']}"
                return self._api.list("discovery.k8s.io/v1", kind, namespace=metadata["namespace"], labels=labels)
            return self._pods(live)

        return related

    def _not_ready(self, reference: ObjectReference, live: Mapping[str, Any], reason: str, patience: Patience) -> str:
        lines = [f"{reference} {patience.describe_end('was not ready')}: {reason}"]
        lines += awaits.pods_wait_for(self._pods(live))
        events = self._api.list("v1", "Event", namespace=reference.namespace or "default", fields="type!=Normal")
        lines += awaits.warnings(events, reference.name)
        return "\n  ".join(lines)

    def _pods(self, workload: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the pods that an object of a workload kind or a Service selects."""
        namespace = workload["metadata"].get("namespace")
        selector = _selector(workload)
        return self._api.list("v1", "Pod", namespace=namespace, labels=selector) if namespace and selector else []

    def _await_deletion(self, reference: ObjectReference, before: Mapping[str, Any], patience: Patience) -> None:
        while True:
            live = self._api.get(reference)
            # An object with another uid was recreated since, by a controller for instance.
            if live is None or live["metadata"].get("uid") != before["metadata"].get("uid"):
                return
            if not patience.wait(f"{reference}: it is being deleted"):
                raise LocalCloudError(
                    "\n  ".join([f"{reference} {patience.describe_end('was not gone')}", *self._holders(live)])
                )

    def _holders(self, live: Mapping[str, Any]) -> list[str]:
        """Return the reasons why an object is not gone yet."""
        metadata, spec, lines = live["metadata"], live.get("spec") or {}, []
        finalizers = [*(metadata.get("finalizers") or ()), *(spec.get("finalizers") or ())]
        if finalizers:
            lines.append(f"held by finalizers: {', '.join(map(str, finalizers))}")
        if live["kind"] == "PersistentVolumeClaim":
            users = find_volume_users(self._api.list("v1", "Pod", namespace=metadata["namespace"]), metadata["name"])
            lines += [f"used by Pod {pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in users]
        if live["kind"] == "PersistentVolume" and (claim := spec.get("claimRef")):
            lines.append(f"bound to PersistentVolumeClaim {claim.get('namespace')}/{claim.get('name')}")
        conditions = (live.get("status") or {}).get("conditions") or () if live["kind"] == "Namespace" else ()
        return lines + [each.get("message", "") for each in conditions if each.get("status") == "True"]


def _unknown_counts(api: Api, quota: Mapping[str, Any]) -> list[str]:
    """Return a quota's limits on custom kinds that it does not count yet, such as ``count/jobs.batch.volcano.sh``.

    Limits on kinds without a definition in the cluster are left out: there is nothing to count or to refuse.
    """
    used = (quota.get("status") or {}).get("used") or {}
    limits = (quota.get("spec") or {}).get("hard") or {}
    missing = [each for each in limits if each.startswith(_COUNT) and each not in used]
    kind = "apiextensions.k8s.io/v1", "CustomResourceDefinition"
    return [each for each in missing if api.get(ObjectReference(*kind, "", each.removeprefix(_COUNT)))]


def _count_again(api: Api, quota: Mapping[str, Any]) -> None:
    """Have Kubernetes count the objects of a quota now, instead of within 5 minutes. A quota that is gone is fine."""
    metadata = quota["metadata"]
    path = api.kind("v1", "ResourceQuota").path(metadata["namespace"], metadata["name"])
    for amount in ("0", None):
        patch = {"spec": {"hard": {_PASSING: amount}}}
        try:
            api.request("PATCH", path, patch, content_type="application/merge-patch+json")
        except ApiError as error:
            if error.status != 404:
                raise


def _normalised(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest as Pulumi's provider sends it.

    A Secret's ``stringData`` becomes ``data``: the API server does so too, but then server-side apply no longer knows
    the fields' owner. ``metadata.managedFields`` (of an object that was read) is refused in an apply.
    """
    result = _without_managed_fields(manifest)
    if manifest.get("kind") == "Secret" and manifest.get("apiVersion") == "v1" and "stringData" in manifest:
        text = result.pop("stringData") or {}
        encoded = {key: base64.b64encode(str(value).encode()).decode() for key, value in text.items()}
        result["data"] = {**(manifest.get("data") or {}), **encoded}
    return result


def _is_same(wanted: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether an apply left the library's fields as they were: the set of fields, and their values.

    An apply that repairs another client's change takes a field back, so that the set differs. The time of our entry in
    ``managedFields`` is no sign: after a controller's first status it is new although the object is the same (a
    ValidatingAdmissionPolicy on 1.35), and two changes within a second have the same.
    """
    ours = {key: value for key, value in wanted.items() if key != "status"}
    return _owned(before) == _owned(after) and _part(ours, before) == _part(ours, after)


def _owned(live: Mapping[str, Any]) -> list[object]:
    """Return the fields of an object that the library owns."""
    entries = live["metadata"].get("managedFields") or ()
    return [
        entry.get("fieldsV1")
        for entry in entries
        if entry.get("manager") == FIELD_MANAGER and entry.get("operation") == "Apply" and not entry.get("subresource")
    ]


def _part(wanted: Mapping[str, Any], live: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a live object that its manifest names; lists whole."""
    return {
        key: _part(value, live[key]) if isinstance(value, Mapping) and isinstance(live.get(key), Mapping) else live[key]
        for key, value in wanted.items()
        if key in live
    }


def _is_immutable(error: ApiError) -> bool:
    """Return whether an object was refused because it exists with a field that cannot be changed.

    The error may name other faults as well; the check of the replacement finds the faults of the new object.
    """
    return error.reason == "Invalid" and any(_IMMUTABLE.search(cause.message) for cause in error.causes)


def _about(reference: ObjectReference, error: ApiError, doing: str = "") -> ApiError:
    """Return the error with the name of its object in the message."""
    return ApiError(error.status, error.reason, f"{reference}: {doing}{error.message}", error.causes)


def _without_managed_fields(object_: Mapping[str, Any]) -> dict[str, Any]:
    metadata = object_.get("metadata") or {}
    return {**object_, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}


def _selector(workload: Mapping[str, Any]) -> str:
    """Return a label selector as text, of a workload's or a Service's ``spec.selector``, or an empty string."""
    selector = (workload.get("spec") or {}).get("selector") or {}
    if not isinstance(selector, Mapping):
        return ""
    labels = selector.get("matchLabels") or {} if {"matchLabels", "matchExpressions"} & set(selector) else selector
    parts = [f"{key}={value}" for key, value in labels.items()]
    operators = {"In": "{} in ({})", "NotIn": "{} notin ({})", "Exists": "{}", "DoesNotExist": "!{}"}
    parts += [
        operators[each["operator"]].format(each["key"], ",".join(each.get("values") or ()))
        for each in selector.get("matchExpressions") or ()
    ]
    return ",".join(parts)
