"""Applies and deletes Kubernetes objects as Pulumi's Kubernetes provider does, on a real API server.

Server-side apply with strict field validation; readiness is awaited (:mod:`trainium_eks.local.objects.awaits`); an
object whose change Kubernetes does not take, because a field is immutable, is replaced; a deletion is done when the
object is gone. Two things differ from Pulumi, so that an ``up`` that was killed can be repeated: an object that
exists already is taken over instead of refused, and readiness is awaited also where nothing changed.
"""

import base64
import math
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from trainium_eks.kube.api import FIELD_MANAGER, Api, ApiError, NoSuchKind, ObjectReference
from trainium_eks.local.changes import Applied, Change, LocalCloudError
from trainium_eks.local.objects import awaits, counts
from trainium_eks.local.objects.awaits import Failed, Readiness, Ready, Related, Waiting
from trainium_eks.local.objects.holders import holding

__all__ = ["ObjectReference", "Objects"]

SHORTEST_SECONDS = 0.05
"""Between two looks at an object that is awaited; grows."""
LONGEST_SECONDS = 0.5
COUNTING_SECONDS = 5.0
"""Between two requests to count a quota's objects again."""
QUIET_SECONDS = 2.0
"""What takes less is not announced as awaited."""

# How the API server says that a field cannot be changed: `field is immutable` (most kinds), `updates to provisioner are
# forbidden` (StorageClass), `cannot change roleRef`, `may not change once set` (a Service's cluster IP), `pod updates
# may not change fields other than`, `may not be changed in an update` (PriorityClass).
_IMMUTABLE = re.compile(
    r"immutable|updates? .*(is|are) forbidden|(can ?not|may not|must not) (be )?change", re.IGNORECASE
)
# What a dry run of the new object may say only because the old one is still there.
_OLD_ONES_FAULT = ("already allocated", "exceeded quota")


class Objects:
    """The objects of a stack. Safe to use from many threads.

    Args:
        api: the API server.
        waiting: told, in a line, what takes longer than a moment; may be called from any thread.
        stopping: when set, what is being awaited is given up (another resource failed, or the user interrupted).
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
    ) -> Applied:
        """Makes an object what its manifest says, and awaits that it is ready.

        Args:
            manifest: with ``apiVersion``, ``kind`` and ``metadata.name``. Its annotations ``pulumi.com/skipAwait`` and
                ``pulumi.com/timeoutSeconds`` are honoured.
            timeout_seconds: for all of it.
            wait: whether readiness is awaited.
            make_room: called before the object is deleted because it has to be replaced.

        Returns:
            What changed, judged by the fields that we own before and after, and the live object.

        Raises:
            ClusterError: refused, in the API server's words; failed; or not ready in time, with what it waits for.
        """
        try:
            wanted = _normalised(manifest)
            reference = self._reference(wanted)
            patience = _Patience(awaits.timeout_seconds(wanted, timeout_seconds), self._stopping, self._waiting)
        except ValueError as error:
            raise LocalCloudError(f"{manifest.get('kind')} {_name(manifest)}: {error}") from error
        try:
            change, live = self._apply(reference, wanted, patience, make_room)
        except ApiError as error:
            raise _about(reference, error) from error
        if wait:
            live = self._await_ready(reference, live, patience)
            # A quota may be there before the kinds that it counts, or after.
            if reference.kind == "ResourceQuota":
                self._await_counts(reference, patience)
            elif reference.kind == "CustomResourceDefinition":
                self._await_counts(None, patience)
        return Applied(change, _without_managed_fields(live))

    def await_counts(self, *, timeout_seconds: float) -> None:
        """Wait until the quotas of all namespaces count the custom kinds that they limit.

        Raises:
            ClusterError: Kubernetes does not count them in time; until it does, it refuses their objects.
        """
        self._await_counts(None, _Patience(timeout_seconds, self._stopping, self._waiting))

    def delete(self, reference: ObjectReference, *, timeout_seconds: float) -> None:
        """Deletes an object and what it owns, and waits until it is gone. One that is absent is fine.

        Raises:
            ClusterError: refused, in the API server's words; or still there in time, with what holds it.
        """
        patience = _Patience(timeout_seconds, self._stopping, self._waiting)
        try:
            before = self._api.get(reference)
            if before is None:
                return
            self._check_not_held(reference)
            self._api.delete(reference)
            self._await_gone(reference, before, patience)
        except ApiError as error:
            raise _about(reference, error, "deleting it: ") from error

    # --- Applying -------------------------------------------------------------------------------------------------

    def _reference(self, manifest: Mapping[str, Any]) -> ObjectReference:
        try:
            return self._api.reference(manifest)
        except NoSuchKind as error:
            kind = str(manifest.get("kind"))
            if kind.endswith("Patch"):
                raise LocalCloudError(
                    f"{kind} {_name(manifest)}: a Patch resource changes an object that somebody else owns, which the "
                    "local cloud does not do; declare the object itself"
                ) from error
            raise LocalCloudError(f"{kind} {_name(manifest)}: {error}") from error

    def _apply(
        self,
        reference: ObjectReference,
        wanted: Mapping[str, Any],
        patience: "_Patience",
        make_room: Callable[[], None],
    ) -> tuple[Change, dict[str, Any]]:
        before = self._api.get(reference)
        if before is not None and self._is_ending(reference, before):
            self._await_gone(reference, before, patience)
            before = None
        if before is None:
            return Change.CREATED, self._create(reference, wanted, patience)
        try:
            after = self._api.apply(wanted)
        except ApiError as error:
            if not _is_immutable(error):
                raise
            self._check_replacement(wanted)
            make_room()
            self._check_not_held(reference)
            self._api.delete(reference)
            self._await_gone(reference, before, patience)
            return Change.REPLACED, self._create(reference, wanted, patience)
        return Change.SAME if _is_same(wanted, before, after) else Change.UPDATED, after

    def _is_ending(self, reference: ObjectReference, live: Mapping[str, Any]) -> bool:
        """Whether an object is being deleted, or will be with its namespace."""
        if live["metadata"].get("deletionTimestamp"):
            return True
        namespace = self._api.get(_namespace(reference)) if reference.namespace else None
        return namespace is not None and bool(namespace["metadata"].get("deletionTimestamp"))

    def _create(self, reference: ObjectReference, wanted: Mapping[str, Any], patience: "_Patience") -> dict[str, Any]:
        try:
            return self._api.apply(wanted)
        except ApiError as error:
            if not any(cause.reason == "NamespaceTerminating" for cause in error.causes):
                raise
        namespace = _namespace(reference)
        if live := self._api.get(namespace):
            self._await_gone(namespace, live, patience)
        return self._api.apply(wanted)

    def _check_not_held(self, reference: ObjectReference) -> None:
        """A claim is not deleted while pods hold it: it would go only after them, and there would be no way back."""
        if (reference.api_version, reference.kind) != ("v1", "PersistentVolumeClaim"):
            return
        pods = self._api.list("v1", "Pod", namespace=reference.namespace)
        held = [each for each in holding(pods, reference.name) if not each["metadata"].get("deletionTimestamp")]
        if held:
            names = ", ".join(f"{each['metadata']['name']} ({each['status'].get('phase')})" for each in held)
            raise LocalCloudError(
                f"{reference} is not deleted while pods hold it, finished ones too: {names}\n"
                f"  delete their jobs, or the pods (kubectl -n {reference.namespace} delete pod ...), and try again"
            )

    def _check_replacement(self, wanted: Mapping[str, Any]) -> None:
        """Nothing is deleted that could not be made again: the new object is validated first."""
        try:
            self._api.create(wanted, dry_run=True)
        except ApiError as error:
            if error.reason != "AlreadyExists" and not any(each in error.message for each in _OLD_ONES_FAULT):
                raise

    # --- Awaiting -------------------------------------------------------------------------------------------------

    def _await_ready(self, reference: ObjectReference, live: dict[str, Any], patience: "_Patience") -> dict[str, Any]:
        while True:
            state = self._readiness(live)
            if isinstance(state, Ready):
                return live
            if isinstance(state, Failed):
                raise LocalCloudError(f"{reference} failed: {state.reason}")
            if not patience.goes_on(f"{reference}: {state.reason}"):
                raise LocalCloudError(self._not_ready(reference, live, state, patience))
            found = self._api.get(reference)
            if found is None:
                raise LocalCloudError(f"{reference} was deleted by somebody else while it was awaited")
            live = found

    def _await_counts(self, quota: ObjectReference | None, patience: "_Patience") -> None:
        """As :meth:`await_counts`; of one quota, or of all."""
        asked = -math.inf
        while True:
            found = self._api.list("v1", "ResourceQuota") if quota is None else [self._api.get(quota)]
            behind = [(each, missing) for each in found if each and (missing := counts.unknown_counts(self._api, each))]
            if not behind:
                return
            [(first, missing), *_] = behind
            place = f"ResourceQuota {first['metadata']['namespace']}/{first['metadata']['name']}"
            if not patience.goes_on(f"{place}: Kubernetes has not counted {', '.join(missing)} yet"):
                raise LocalCloudError(f"{place} {patience.ended('was not counted')}: {', '.join(missing)}")
            if time.monotonic() - asked > COUNTING_SECONDS:
                asked = time.monotonic()
                for each, _ in behind:
                    counts.count_again(self._api, each)

    def _readiness(self, live: Mapping[str, Any]) -> Readiness:
        relation = awaits.relates_to(live)
        if not relation:
            return awaits.readiness(live)
        metadata, spec = live["metadata"], live.get("spec") or {}
        if relation == "StorageClass":
            name = spec.get("storageClassName")
            reference = ObjectReference("storage.k8s.io/v1", "StorageClass", "", name or "")
            return awaits.readiness(live, Related(storage_class=self._api.get(reference) if name else None))
        if relation == "EndpointSlice":
            slices = self._api.list(
                "discovery.k8s.io/v1",
                "EndpointSlice",
                namespace=metadata["namespace"],
                labels=f"kubernetes.io/service-name={metadata['name']}",
            )
            return awaits.readiness(live, Related(endpoint_slices=slices))
        return awaits.readiness(live, Related(pods=self._pods(live)))

    def _not_ready(
        self, reference: ObjectReference, live: Mapping[str, Any], state: Waiting, patience: "_Patience"
    ) -> str:
        lines = [f"{reference} {patience.ended('was not ready')}: {state.reason}"]
        lines += awaits.pods_wait_for(self._pods(live))
        events = self._api.list("v1", "Event", namespace=reference.namespace or "default", fields="type!=Normal")
        lines += awaits.warnings(events, reference.name)
        return "\n  ".join(lines)

    def _pods(self, workload: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The pods that an object of a workload kind or a Service selects."""
        namespace = workload["metadata"].get("namespace")
        selector = _selector(workload)
        return self._api.list("v1", "Pod", namespace=namespace, labels=selector) if namespace and selector else []

    def _await_gone(self, reference: ObjectReference, before: Mapping[str, Any], patience: "_Patience") -> None:
        while True:
            live = self._api.get(reference)
            # One with another uid was made anew since, by a controller for instance.
            if live is None or live["metadata"].get("uid") != before["metadata"].get("uid"):
                return
            if not patience.goes_on(f"{reference}: it is being deleted"):
                raise LocalCloudError(
                    "\n  ".join([f"{reference} {patience.ended('was not gone')}", *self._holders(live)])
                )

    def _holders(self, live: Mapping[str, Any]) -> list[str]:
        """What keeps an object from going."""
        metadata, spec, lines = live["metadata"], live.get("spec") or {}, []
        finalizers = [*(metadata.get("finalizers") or ()), *(spec.get("finalizers") or ())]
        if finalizers:
            lines.append(f"held by finalizers: {', '.join(map(str, finalizers))}")
        if live["kind"] == "PersistentVolumeClaim":
            users = holding(self._api.list("v1", "Pod", namespace=metadata["namespace"]), metadata["name"])
            lines += [f"used by Pod {pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in users]
        if live["kind"] == "PersistentVolume" and (claim := spec.get("claimRef")):
            lines.append(f"bound to PersistentVolumeClaim {claim.get('namespace')}/{claim.get('name')}")
        conditions = (live.get("status") or {}).get("conditions") or () if live["kind"] == "Namespace" else ()
        return lines + [each.get("message", "") for each in conditions if each.get("status") == "True"]


class _Patience:
    """The time for one object, which all its steps share."""

    def __init__(self, seconds: float, stopping: threading.Event, waiting: Callable[[str], None]) -> None:
        self._seconds = seconds
        self._stopping = stopping
        self._waiting = waiting
        self._started = time.monotonic()
        self._pause = SHORTEST_SECONDS
        self._told = ""

    def goes_on(self, state: str) -> bool:
        """Pauses before the next look; false when the time is over."""
        spent = time.monotonic() - self._started
        if spent >= self._seconds or self._stopping.is_set():
            return False
        if spent > QUIET_SECONDS and state != self._told:
            self._told = state
            self._waiting(state)
        self._stopping.wait(min(self._pause, self._seconds - spent))
        self._pause = min(self._pause * 1.3, LONGEST_SECONDS)
        return True

    def ended(self, what: str) -> str:
        """How the wait ended, for a message."""
        spent = time.monotonic() - self._started
        return f"{what} when everything was stopped" if self._stopping.is_set() else f"{what} after {spent:.0f} s"


def _normalised(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest as Pulumi's provider sends it.

    A Secret's ``stringData`` becomes ``data``: the API server does so too, but then server-side apply no longer knows
    whose the fields are. ``metadata.managedFields`` (of an object that was read) is refused in an apply.
    """
    result = dict(manifest)
    result["metadata"] = {
        key: value for key, value in (manifest.get("metadata") or {}).items() if key != "managedFields"
    }
    if manifest.get("kind") == "Secret" and manifest.get("apiVersion") == "v1" and "stringData" in manifest:
        text = result.pop("stringData") or {}
        encoded = {key: base64.b64encode(str(value).encode()).decode() for key, value in text.items()}
        result["data"] = {**(manifest.get("data") or {}), **encoded}
    return result


def _is_same(wanted: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether an apply changed nothing that is ours: the fields that we own, and their values.

    One that repairs what somebody else changed takes a field back, so that what is ours differs. The time of our entry
    in ``managedFields`` tells nothing: after a controller's first status it is new although the object is the same (a
    ValidatingAdmissionPolicy on 1.35), and two changes within a second have the same.
    """
    ours = {key: value for key, value in wanted.items() if key != "status"}
    return _owned(before) == _owned(after) and _part(ours, before) == _part(ours, after)


def _owned(live: Mapping[str, Any]) -> list[object]:
    """Which fields of an object are ours."""
    entries = live["metadata"].get("managedFields") or ()
    return [
        entry.get("fieldsV1")
        for entry in entries
        if entry.get("manager") == FIELD_MANAGER and entry.get("operation") == "Apply" and not entry.get("subresource")
    ]


def _part(wanted: Mapping[str, Any], live: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a live object that its manifest names; lists whole."""
    return {
        key: _part(value, live[key]) if isinstance(value, Mapping) and isinstance(live.get(key), Mapping) else live[key]
        for key, value in wanted.items()
        if key in live
    }


def _is_immutable(error: ApiError) -> bool:
    """Whether an object was refused because it exists with a field that cannot be changed.

    Other faults may be named beside that; the check of the replacement finds those that are the new object's.
    """
    return error.reason == "Invalid" and any(_IMMUTABLE.search(cause.message) for cause in error.causes)


def _about(reference: ObjectReference, error: ApiError, doing: str = "") -> ApiError:
    """The same error, saying which object it is about."""
    return ApiError(error.status, error.reason, f"{reference}: {doing}{error.message}", error.causes)


def _name(manifest: Mapping[str, Any]) -> str:
    metadata = manifest.get("metadata") or {}
    return "/".join(filter(None, (metadata.get("namespace"), metadata.get("name"))))


def _namespace(reference: ObjectReference) -> ObjectReference:
    return ObjectReference("v1", "Namespace", "", reference.namespace)


def _without_managed_fields(live: Mapping[str, Any]) -> dict[str, Any]:
    return {**live, "metadata": {key: value for key, value in live["metadata"].items() if key != "managedFields"}}


def _selector(workload: Mapping[str, Any]) -> str:
    """A label selector as text, of a workload's or a Service's ``spec.selector``; empty when there is none."""
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
