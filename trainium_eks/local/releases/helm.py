"""Helm releases in the local cluster: the real ``helm`` installs them, with its hooks, history and rollback.

The digests of a release's chart and inputs are in the description of its revision, in Helm's record: no other record is
needed, and a rollback, an interrupted operation or another person's upgrade shows as a difference.
"""

import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainium_eks.kube import drift
from trainium_eks.kube.api import Api, ApiError, ObjectReference, in_parallel
from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.changes import ApplyResult, Change, LocalCloudError
from trainium_eks.local.objects import awaits, placeholders
from trainium_eks.local.objects.apply import Objects
from trainium_eks.local.paths import Paths
from trainium_eks.local.releases import webhooks
from trainium_eks.local.releases.charts import Charts, FoundChart, Missing
from trainium_eks.local.releases.helm_cli import HelmCli, HelmError, ReleaseStatus, python_file
from trainium_eks.local.releases.release_inputs import ReleaseInputs, wanted
from trainium_eks.local.releases.volcano import CHART as VOLCANO_CHART
from trainium_eks.local.releases.volcano import Programs, Volcano
from trainium_eks.local.releases.webhooks import WEBHOOK_KINDS

DELETE_SECONDS = 300.0
"""Time limit for the deletion of an uninstalled release's objects."""

_QUIET_SECONDS = 5.0
_CHECK_THREADS = 8
_MARK = re.compile(r"\[trn chart ([0-9a-f]{16}) inputs ([0-9a-f]{16})\]")


@dataclass(frozen=True)
class _Mark:
    """The digests of the chart and inputs that a revision was made from."""

    chart: str
    inputs: str

    def __str__(self) -> str:
        return f"[trn chart {self.chart} inputs {self.inputs}]"

    @staticmethod
    def of(status: ReleaseStatus | None) -> "_Mark | None":
        found = _MARK.search(status.description) if status else None
        return _Mark(*found.groups()) if found else None


class Releases:
    """The Helm releases of a stack. Safe to use from many threads, a release from one at a time.

    Volcano's programs run in the place of its chart's pods. ``waiting`` is called from any thread; waits are given up
    when ``stopping`` is set.
    """

    def __init__(
        self,
        paths: Paths,
        helm: Path,
        api: Api,
        project: Path,
        *,
        environment: Mapping[str, str] = os.environ,
        volcano: Programs | None = None,
        waiting: Callable[[str], None] = lambda _line: None,
        stopping: threading.Event | None = None,
    ) -> None:
        self._api = api
        self._helm = HelmCli(helm, paths, environment)
        self._charts = Charts(self._helm, project, environment)
        self._objects = Objects(api, waiting, stopping)
        self._volcano = Volcano(paths, api, volcano or Programs(), waiting)
        self._waiting = waiting
        self._stopping = stopping or threading.Event()

    def apply(self, inputs: Mapping[str, Any], *, timeout_seconds: float) -> ApplyResult:
        """Install or upgrade a release where it differs from the program, and await its objects as Helm does.

        A missing chart is no failure: an existing release stays unchanged; otherwise placeholders define the kinds of
        the chart that the stack itself creates.
        """
        release = wanted(inputs, timeout_seconds=timeout_seconds)
        self._helm.end_left_behind(release.name, release.namespace)
        before = self._sound(release)
        chart = self._charts.find(release)
        if isinstance(chart, Missing):
            return self._without_chart(release, chart, before)
        volcano = chart.name == VOLCANO_CHART
        answering = self._volcano.answering(release.name, release.namespace) if volcano else {}
        mark = _Mark(chart.digest[:16], _digest(release, answering))
        notes: list[str] = []
        change = Change.SAME
        status = before
        if status is None or not self._is_current(status, mark) or self._drifted(release, status):
            notes += self._upgrade(release, chart, answering, mark)
            change = Change.UPDATED if before else Change.CREATED
            status = self._helm.status(release.name, release.namespace)
            if status is None:
                raise LocalCloudError(f"Helm release {_name(release)} disappeared while it was being installed")
            for each in self._drifted(release, status) if before else ():
                self._api.apply(each)  # Helm does not take a field away that another program has added
            notes += self._without_hook_webhooks(status)
        if left_out := webhooks.left_out(status.manifest):
            notes.append(f"{len(left_out)} left out, because simulated pods cannot answer: {', '.join(left_out)}")
        if volcano:
            notes += self._volcano.run(release.name, status.manifest)
        if change is not Change.SAME:
            # Existing quotas may count the chart's kinds.
            self._objects.await_counts(timeout_seconds=timeout_seconds)
        outputs = _outputs(release, status, chart.name, chart.version)
        return ApplyResult(change, outputs, _about(release, notes))

    def delete(self, name: str, namespace: str) -> None:
        """Uninstall a release, and remove the stand-ins for its chart. An absent release is no error."""
        self._helm.end_left_behind(name, namespace)
        status = self._helm.status(name, namespace)
        if status is not None:
            self._uninstall(name, namespace, DELETE_SECONDS)
            # Last, so that its webhooks still answered when their objects were deleted.
            if _is_volcano(name, status):
                self._volcano.stop()
        placeholders.remove(self._api, self._objects, f"{namespace}.{name}", timeout_seconds=DELETE_SECONDS)

    # --- One release ----------------------------------------------------------------------------------------------

    def _sound(self, release: ReleaseInputs) -> ReleaseStatus | None:
        """Return the release. Half of one, which a kill leaves and Helm refuses to touch, is uninstalled: it is made
        anew."""
        status = self._helm.status(release.name, release.namespace)
        if status is None or status.status in ("deployed", "failed", "superseded"):
            return status
        self._waiting(f"{_name(release)} was left {status.status}: uninstalled first")
        self._uninstall(release.name, release.namespace, release.timeout_seconds)
        return None

    def _uninstall(self, name: str, namespace: str, timeout_seconds: float) -> None:
        try:
            self._helm.uninstall(name, namespace, timeout_seconds=timeout_seconds)
        except HelmError as error:
            raise LocalCloudError(f"uninstalling the Helm release {namespace}/{name}: {error}") from error

    @staticmethod
    def _is_current(status: ReleaseStatus, mark: _Mark) -> bool:
        """Return whether a release is complete, and has the same digests."""
        return status.status == "deployed" and _Mark.of(status) == mark

    def _drifted(self, release: ReleaseInputs, status: ReleaseStatus) -> list[dict[str, Any]]:
        """Return the objects of a release that are gone, or not as it made them."""

        def differs(manifest: dict[str, Any]) -> bool:
            try:
                return bool(drift.differences(self._api, manifest, release.namespace)[1])
            except ApiError:
                return False  # what cannot be compared is not made again

        made = [webhooks.parsed(document) for document in webhooks.documents(status.manifest)]
        wrong = in_parallel(differs, made, threads=_CHECK_THREADS)
        return [
            drift.with_namespace(self._api, each, release.namespace)
            for each, is_wrong in zip(made, wrong, strict=True)
            if is_wrong
        ]

    def _without_chart(self, release: ReleaseInputs, missing: Missing, before: ReleaseStatus | None) -> ApplyResult:
        if before is not None and before.status == "deployed":
            return self._kept(release, missing, before)
        if before is not None:
            # Failed, and cannot be retried: its leftovers would only be in the way.
            self._helm.uninstall(release.name, release.namespace, timeout_seconds=release.timeout_seconds)
        made = placeholders.apply(
            self._api, self._objects, missing.name, release.key, timeout_seconds=release.timeout_seconds
        )
        notes = [f"placeholder definitions: {', '.join(made)}"] if made else []
        change = Change.CREATED if made else Change.SAME
        return ApplyResult(change, {}, _about(release, notes), missing.reason)

    def _kept(self, release: ReleaseInputs, missing: Missing, before: ReleaseStatus) -> ApplyResult:
        """Keep a release with a missing chart unchanged, and report when the program has other settings for it now."""
        volcano = missing.name == VOLCANO_CHART
        answering = self._volcano.answering(release.name, release.namespace) if volcano else {}
        notes = [f"kept as it is, although its chart is not available now: {missing.reason}"]
        if volcano:
            notes += self._run_kept_volcano(release, before.manifest, answering)
        mark = _Mark.of(before)
        is_other = mark is None or mark.inputs != _digest(release, answering)
        return ApplyResult(
            Change.SAME,
            _outputs(release, before, missing.name, release.version),
            _about(release, notes),
            f"kept without the new settings: {missing.reason}" if is_other else "",
        )

    def _run_kept_volcano(self, release: ReleaseInputs, manifest: str, answering: webhooks.Answering) -> list[str]:
        """Run Volcano's available processes, with its webhooks only where these answer."""
        configured = [each for each in webhooks.documents(manifest) if webhooks.head(each)["kind"] in WEBHOOK_KINDS]
        if answering and all(process["url"] in manifest for process in answering.values()):
            notes = self._volcano.run(release.name, manifest)
            for each in configured:
                self._api.create_or_apply(webhooks.parsed(each))
            return notes
        # First: while no process answers them, no queue and no job could be made or deleted.
        gone = self._delete_webhooks(map(webhooks.head, configured))
        return [*gone, *self._volcano.run(release.name, manifest)]

    # --- Helm -----------------------------------------------------------------------------------------------------

    def _upgrade(
        self, release: ReleaseInputs, chart: FoundChart, answering: webhooks.Answering, mark: _Mark
    ) -> list[str]:
        """Install or upgrade a release, and return notes for the user."""
        removed = placeholders.remove(self._api, self._objects, release.key, timeout_seconds=release.timeout_seconds)
        pods = _Pods(self._api, release.namespace, self._waiting, self._stopping)
        try:
            self._helm.upgrade(
                release.name,
                release.namespace,
                chart.path,
                values=release.values,
                description=f"{release.description} {mark}".strip(),
                flags=release.flags,
                post_renderer=python_file(Path(webhooks.__file__), json.dumps(answering)),
                timeout_seconds=release.timeout_seconds,
                look=pods.look,
            )
        except HelmError as error:
            raise LocalCloudError(f"Helm release {_name(release)}: {error}{pods.text()}") from error
        notes = [f"chart from {chart.origin}"] if chart.origin else []
        if removed:
            notes.append(f"the chart's own definitions took the place of placeholders: {', '.join(removed)}")
        return notes

    def _without_hook_webhooks(self, status: ReleaseStatus) -> list[str]:
        """Delete webhooks that a hook made: Helm's post-renderer does not see hooks (helm/helm#7891)."""
        return self._delete_webhooks(webhooks.head(each) for hook in status.hooks for each in webhooks.documents(hook))

    def _delete_webhooks(self, heads: Iterable[Mapping[str, Any]]) -> list[str]:
        gone = []
        for top in heads:
            reference = ObjectReference(top["apiVersion"], top["kind"], "", top["metadata"]["name"])
            if top["kind"] in WEBHOOK_KINDS and self._api.delete(reference):
                gone.append(f"{top['kind']} {top['metadata']['name']}")
        return [f"deleted, because simulated pods cannot answer: {', '.join(gone)}"] if gone else []


class _Pods:
    """The reasons for which a release's pods wait, while Helm waits for them."""

    def __init__(self, api: Api, namespace: str, waiting: Callable[[str], None], stopping: threading.Event) -> None:
        self._api = api
        self._stopping = stopping
        self._namespace = namespace
        self._waiting = waiting
        self._since = time.monotonic()
        self._reasons: list[str] = []
        self._told: list[str] = []

    def look(self) -> None:
        """Read the pods, and report new reasons. With ``atomic`` the pods are gone when Helm reports a failure."""
        if self._stopping.is_set():
            raise HelmError("given up, because everything was stopped")
        try:
            reasons = self._found()
        except ClusterError:
            return  # Helm's error will be clearer
        if reasons and reasons != self._told and time.monotonic() - self._since > _QUIET_SECONDS:
            self._told = reasons
            self._waiting("; ".join(reasons[:3]))
        self._reasons = reasons or self._reasons

    def text(self) -> str:
        """Return the reasons for an error's end; empty when no pod waited."""
        return "".join(f"\n  {reason}" for reason in self._reasons[:5])

    def _found(self) -> list[str]:
        if found := awaits.pods_wait_for(self._api.list("v1", "Pod", namespace=self._namespace)):
            return found
        # Pods that could not even be made: forbidden by Pod Security, by a quota, by a webhook.
        events = self._api.list("v1", "Event", namespace=self._namespace, fields="reason=FailedCreate")
        return sorted({f"{each['involvedObject']['name']}: {each.get('message', '')}" for each in events})


def _outputs(release: ReleaseInputs, status: ReleaseStatus, chart: str, version: str) -> dict[str, Any]:
    return {
        "status": {
            "name": release.name,
            "namespace": release.namespace,
            "revision": status.revision,
            "status": status.status,
            "chart": chart,
            "version": version,
        }
    }


def _about(release: ReleaseInputs, notes: list[str]) -> tuple[str, ...]:
    return tuple(f"{release.name}: {note}" for note in notes)


def _name(release: ReleaseInputs) -> str:
    return f"{release.namespace}/{release.name}"


def _is_volcano(name: str, status: ReleaseStatus) -> bool:
    heads = (webhooks.head(document) for document in webhooks.documents(status.manifest))
    wanted_name = f"{name}-scheduler"
    return any(top.get("kind") == "Deployment" and top["metadata"]["name"] == wanted_name for top in heads)


def _digest(release: ReleaseInputs, answering: webhooks.Answering) -> str:
    # Helm's time limit changes none of its objects.
    wanted_now = {**asdict(release), "timeout_seconds": 0, "answering": answering}
    text = json.dumps(wanted_now, sort_keys=True, separators=(",", ":"), default=dict)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
