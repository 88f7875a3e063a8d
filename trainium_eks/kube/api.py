"""The Kubernetes API server, in JSON: discovery, server-side apply, lists, watches, and work in bulk.

The official client's model classes are not used, because manifests have any fields that the program or a chart gives.
"""

import json
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from trainium_eks.kube.errors import ClusterError
from trainium_eks.kube.requests import FIELD_MANAGER, Requests
from trainium_eks.kube.types import ApiError, ApiKind, Cause, NoSuchKindError, ObjectReference

__all__ = ["FIELD_MANAGER", "Api", "ApiError", "ApiKind", "Cause", "NoSuchKindError", "ObjectReference", "in_parallel"]

CONFLICTS = 5
"""Retries of an apply after "the object has been modified"."""
DISCOVERY_SECONDS = 60.0
"""Time that a kind may stay unserved after its CustomResourceDefinition is there."""
PAGE = 500
"""Objects in one answer of a list, as in kubectl."""
BULK_THREADS = 16
"""Requests at a time in bulk work: with more, two cores are not faster."""

_APPLY_PATCH = "application/apply-patch+yaml"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

Item = TypeVar("Item")
Result = TypeVar("Result")
Objects = list[dict[str, Any]]


class Api(Requests):
    """Kinds and objects of one API server. Safe to use from many threads."""

    def __init__(self, client: Any, kubeconfig: Path) -> None:
        super().__init__(client, kubeconfig)
        self._kinds: dict[str, dict[str, ApiKind]] = {}
        self._kinds_lock = threading.Lock()
        self._discovering: dict[str, threading.Lock] = {}

    # --- Discovery ------------------------------------------------------------------------------------------------

    def kind(self, api_version: str, kind: str) -> ApiKind:
        """Return the server's description of a kind; NoSuchKindError: it is not served.

        Remembered. An unknown kind is looked up again, and for some seconds where its definition
        (CustomResourceDefinition) is there: discovery lags behind it.
        """
        deadline = 0.0
        while True:
            with self._kinds_lock:
                discovering = self._discovering.setdefault(api_version, threading.Lock())
            with discovering:  # lists that begin together ask once
                known = self._kinds.get(api_version) or {}
                if kind not in known:
                    known = self._discover(api_version)
            if kind in known:
                return known[kind]
            now = time.monotonic()
            deadline = deadline or (now + DISCOVERY_SECONDS if self._is_defined(api_version, kind) else now)
            if now >= deadline:
                raise NoSuchKindError(self._explain_unknown_kind(api_version, kind, known))
            time.sleep(0.1)

    def _discover(self, api_version: str) -> dict[str, ApiKind]:
        root = "/apis" if "/" in api_version else "/api"
        try:
            resources = self.request("GET", f"{root}/{quote(api_version)}").get("resources") or []
        except ApiError as error:
            if error.status != 404:
                raise
            resources = []
        found = {
            each["kind"]: ApiKind(api_version, each["kind"], each["name"], bool(each["namespaced"]))
            for each in resources
            if "/" not in each["name"]
        }
        with self._kinds_lock:
            self._kinds[api_version] = found
        return found

    def _is_defined(self, api_version: str, kind: str) -> bool:
        """Return whether the kind's definition is there. A researcher may not ask, nor brings definitions that lag
        behind."""
        group, _, version = api_version.partition("/")
        try:
            definitions = self.request("GET", _DEFINITIONS).get("items") or []
        except ApiError as error:
            if error.status == 403:
                return False
            raise
        return any(
            spec["group"] == group
            and spec["names"]["kind"] == kind
            and any(each["name"] == version and each["served"] for each in spec["versions"])
            for spec in (each["spec"] for each in definitions)
        )

    def _explain_unknown_kind(self, api_version: str, kind: str, known: Mapping[str, ApiKind]) -> str:
        start = f"the API server serves no {kind} in {api_version}"
        if known:
            return f"{start}; there it serves {', '.join(sorted(known))}"
        return f"{start}, nor any other kind; what defines them (a chart's CustomResourceDefinition) is missing"

    # --- Objects --------------------------------------------------------------------------------------------------

    def get(self, reference: ObjectReference) -> dict[str, Any] | None:
        """Return the object, or None when it (or its kind) is not there."""
        try:
            kind = self.kind(reference.api_version, reference.kind)
            return self.request("GET", kind.path(reference.namespace, reference.name))
        except NoSuchKindError:
            return None
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def list(self, api_version: str, kind: str, *, namespace: str = "", labels: str = "", fields: str = "") -> Objects:
        """Return all objects of a kind, in pages of 500; each with ``apiVersion`` and ``kind``, which a list leaves
        out. Selectors are texts (``app=x,tier!=y``, ``spec.nodeName=n``); an empty namespace is all of them."""
        path = self.kind(api_version, kind).path(namespace)
        query = _without_empty({"limit": str(PAGE), "labelSelector": labels, "fieldSelector": fields})
        found: Objects = []
        after = ""
        while True:
            try:
                page = self.request("GET", path, query={**query, "continue": after} if after else query)
            except ApiError as error:
                if error.status != 410 or not after:  # the place in the list is too old: from the beginning
                    raise
                found, after = [], ""
                continue
            found += [{"apiVersion": api_version, "kind": kind, **item} for item in page.get("items") or []]
            after = (page.get("metadata") or {}).get("continue") or ""
            if not after:
                return found

    def watch(
        self, api_version: str, kind: str, *, namespace: str = "", since: str = "", labels: str = "", fields: str = ""
    ) -> Generator[tuple[str, dict[str, Any]], None, None]:
        """Yield changes of a kind's objects as they happen: ``ADDED``, ``MODIFIED``, ``DELETED`` or ``BOOKMARK``, and
        the object. The watch ends when the server ends it, every few minutes.

        ``since`` is the resource version of a known list; everything is ``ADDED`` first when it is empty. ApiError 410:
        it is too old, list again.
        """
        query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": since}
        query |= {"labelSelector": labels, "fieldSelector": fields}
        for line in self.lines(self.kind(api_version, kind).path(namespace), query=_without_empty(query)):
            event = json.loads(line)
            if event["type"] == "ERROR":
                raise ApiError.of(int(event["object"].get("code") or 500), json.dumps(event["object"]))
            yield event["type"], event["object"]

    def apply(self, manifest: Mapping[str, Any], *, subresource: str = "", dry_run: bool = False) -> dict[str, Any]:
        """Apply an object on the server as ``trn``: strict about fields, and taking over fields that others own."""
        reference = self.reference(manifest)
        path = self.kind(reference.api_version, reference.kind).path(reference.namespace, reference.name, subresource)
        query = {"fieldManager": FIELD_MANAGER, "force": "true", "fieldValidation": "Strict"}
        if dry_run:
            query["dryRun"] = "All"
        pinned = bool((manifest.get("metadata") or {}).get("resourceVersion"))
        for left in range(CONFLICTS, -1, -1):
            try:
                return self.request("PATCH", path, manifest, query=query, content_type=_APPLY_PATCH)
            except ApiError as error:
                if error.status != 409 or error.reason != "Conflict" or pinned or not left:
                    raise
                time.sleep(0.05)
        raise AssertionError("unreachable")

    def create(self, manifest: Mapping[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        """Create an object, status included where the kind takes one from its creator (a Node does); ApiError 409
        ``AlreadyExists`` when there is one."""
        reference = self.reference(manifest)
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
        path = self.kind(reference.api_version, reference.kind).path(reference.namespace)
        return self.request("POST", path, manifest, query=query)

    def delete(self, reference: ObjectReference, *, propagation: str = "Foreground") -> bool:
        """Request an object's deletion, without waiting for its end; return whether the object was there.
        ``propagation`` to its dependents: ``Foreground`` (it goes after them), ``Background`` or ``Orphan``."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        try:
            path = self.kind(reference.api_version, reference.kind).path(reference.namespace, reference.name)
            self.request("DELETE", path, body)
        except NoSuchKindError:
            return False
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    def reference(self, manifest: Mapping[str, Any]) -> ObjectReference:
        """Return the reference to a manifest's object; without a namespace, a namespaced kind is in ``default``."""
        metadata = manifest.get("metadata") or {}
        for field, value in (
            ("apiVersion", manifest.get("apiVersion")),
            ("kind", manifest.get("kind")),
            ("metadata.name", metadata.get("name")),
        ):
            if not value or not isinstance(value, str):
                raise ClusterError(f"an object without {field} cannot be applied: {json.dumps(manifest)[:300]}")
        kind = self.kind(manifest["apiVersion"], manifest["kind"])
        namespace = (metadata.get("namespace") or "default") if kind.namespaced else ""
        return ObjectReference(kind.api_version, kind.kind, namespace, metadata["name"])

    # --- Bulk -----------------------------------------------------------------------------------------------------

    def delete_all(self, api_version: str, kind: str, *, labels: str, namespace: str = "") -> int:
        """Request the deletion of all objects with these labels, a page in each request; return their number. A
        namespaced kind needs a namespace: the API has no such call across namespaces."""
        found = self.kind(api_version, kind)
        if not labels or (found.namespaced and not namespace):
            raise ValueError("deletes only with labels, and in one namespace")
        query = {"labelSelector": labels, "limit": str(PAGE), "propagationPolicy": "Background"}
        count, after = 0, ""
        while True:
            page = self.request("DELETE", found.path(namespace), query={**query, "continue": after} if after else query)
            count += len(page.get("items") or [])
            after = (page.get("metadata") or {}).get("continue") or ""
            if not after:
                return count

    def create_or_apply(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object with one request, or apply it when there is one."""
        try:
            return self.create(manifest)
        except ApiError as error:
            # A server too busy to answer in a minute may have created it all the same.
            if error.reason not in ("AlreadyExists", "Timeout"):
                raise
            return self.apply(manifest)


def in_parallel(work: Callable[[Item], Result], items: Sequence[Item], *, threads: int = BULK_THREADS) -> list[Result]:
    """Return the results of ``work`` for the items, in their order. The first error ends it: items not begun stay
    undone.

    For work on :class:`Api`, such as ``in_parallel(api.create_or_apply, nodes)``. Measured on 2 cores, with the API
    server on the same: 4 s to create 1,000 Nodes, 6 s to apply them again, in proportion to their number (2026-11,
    Kubernetes 1.35).
    """
    with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="bulk") as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                future.result()
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def list_kinds(
    api: Api, kinds: Sequence[tuple[str, str]], namespace: str = "", fields: str = ""
) -> list[Objects | ClusterError]:
    """Return the objects of each kind (API version and kind), listed at the same time, or the error of its list. Of
    kinds that have a namespace only that one's objects, where it is given."""

    def listed(kind: tuple[str, str]) -> Objects | ClusterError:
        try:
            return api.list(*kind, namespace=namespace, fields=fields)
        except ClusterError as error:
            return error

    return in_parallel(listed, kinds, threads=len(kinds))


def readable(answer: Objects | ClusterError) -> Objects | None:
    """Return the objects of an answer; none of a kind that is not served, and None for a kind that may not be read.
    Raises every other error."""
    if isinstance(answer, NoSuchKindError):
        return []
    if isinstance(answer, ApiError) and answer.status in (401, 403):
        return None
    if isinstance(answer, ClusterError):
        raise answer
    return answer


def _without_empty(query: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in query.items() if value}
