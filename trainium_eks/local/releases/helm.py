"""Helm releases in the local cluster: the real ``helm`` installs them, with its hooks, history and rollback.

The digests of a release's chart and inputs are in the description of its revision, in Helm's record: no other record is
needed, and a rollback, an interrupted operation or another person's upgrade shows as a difference.
"""

import contextlib
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
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
from trainium_eks.local.releases.volcano import SCHEDULER, Programs, Volcano, described
from trainium_eks.local.releases.webhooks import WEBHOOK_KINDS

DELETE_SECONDS = 300.0
"""Time limit for the deletion of an uninstalled release's objects."""

_QUIET_SECONDS = 5.0
_CHECK_THREADS = 8


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
        mark = f"[trn chart {chart.digest[:16]} {_inputs_mark(release, answering)}"
        notes: list[str] = []
        change = Change.SAME
        status = before
        is_current = status is not None and status.status == "deployed" and status.description.endswith(mark)
        if status is None or not is_current or self._drifted(release, status):
            notes += self._upgrade(release, chart, answering, mark)
            change = Change.UPDATED if before else Change.CREATED
            status = self._helm.status(release.name, release.namespace)
            if status is None:
                raise LocalCloudError(f"Helm release {_name(release)} disappeared while it was being installed")
            for each in self._drifted(release, status) if before else ():
                self._api.apply(each)  # Helm does not take a field away that another program has added
            # Webhooks that a hook made: Helm's post-renderer does not see hooks (helm/helm#7891).
            notes += self._delete_webhooks(each for hook in status.hooks for each in webhooks.documents(hook))
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
            if SCHEDULER in described(name, status.manifest, Path()):
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
            is_answered = answering and all(process["url"] in before.manifest for process in answering.values())
            if not is_answered:
                # First: while no process answers them, no queue and no job could be made or deleted.
                notes += self._delete_webhooks(webhooks.documents(before.manifest))
            notes += self._volcano.run(release.name, before.manifest)
            for each in self._drifted(release, before) if is_answered else ():
                self._api.create_or_apply(each)  # webhooks that were deleted for that, too
        is_other = not before.description.endswith(_inputs_mark(release, answering))
        return ApplyResult(
            Change.SAME,
            _outputs(release, before, missing.name, release.version),
            _about(release, notes),
            f"kept without the new settings: {missing.reason}" if is_other else "",
        )

    # --- Helm -----------------------------------------------------------------------------------------------------

    def _upgrade(
        self, release: ReleaseInputs, chart: FoundChart, answering: webhooks.Answering, mark: str
    ) -> list[str]:
        """Install or upgrade a release, and return notes for the user."""
        removed = placeholders.remove(self._api, self._objects, release.key, timeout_seconds=release.timeout_seconds)
        begun, reasons, told = time.monotonic(), list[str](), list[str]()

        def look() -> None:
            """Read why pods wait: with ``atomic`` they are gone when Helm reports a failure."""
            if self._stopping.is_set():
                raise HelmError("given up, because everything was stopped")
            with contextlib.suppress(ClusterError):  # Helm's error will be clearer
                reasons[:] = self._waiting_pods(release.namespace) or reasons
                if reasons != told and time.monotonic() - begun > _QUIET_SECONDS:
                    told[:] = reasons
                    self._waiting("; ".join(reasons[:3]))

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
                look=look,
            )
        except HelmError as error:
            waited = "".join(f"\n  {reason}" for reason in reasons[:5])
            raise LocalCloudError(f"Helm release {_name(release)}: {error}{waited}") from error
        notes = [f"chart from {chart.origin}"] if chart.origin else []
        if removed:
            notes.append(f"the chart's own definitions took the place of placeholders: {', '.join(removed)}")
        return notes

    def _waiting_pods(self, namespace: str) -> list[str]:
        """Return the reasons for which pods of a namespace wait, or could not even be made (by a quota, a webhook)."""
        if found := awaits.pods_wait_for(self._api.list("v1", "Pod", namespace=namespace)):
            return found
        events = self._api.list("v1", "Event", namespace=namespace, fields="reason=FailedCreate")
        return sorted({f"{each['involvedObject']['name']}: {each.get('message', '')}" for each in events})

    def _delete_webhooks(self, documents: Iterable[str]) -> list[str]:
        gone = []
        for top in map(webhooks.head, documents):
            reference = ObjectReference(top["apiVersion"], top["kind"], "", top["metadata"]["name"])
            if top["kind"] in WEBHOOK_KINDS and self._api.delete(reference):
                gone.append(f"{top['kind']} {top['metadata']['name']}")
        return [f"deleted, because simulated pods cannot answer: {', '.join(gone)}"] if gone else []


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


def _inputs_mark(release: ReleaseInputs, answering: webhooks.Answering) -> str:
    """Return the end of the description of a revision that is made from these inputs."""
    # Helm's time limit changes none of its objects.
    wanted_now = {**asdict(release), "timeout_seconds": 0, "answering": answering}
    text = json.dumps(wanted_now, sort_keys=True, separators=(",", ":"), default=dict)
    return f"inputs {hashlib.sha256(text.encode()).hexdigest()[:16]}]"
