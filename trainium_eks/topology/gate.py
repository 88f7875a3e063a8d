"""The gate of accelerator nodes: closed nodes are tested, passing ones opened, failing ones cordoned.

A node is open while its label :data:`PASSED` names its present boot; the taint follows the label. Both are on the
node, tests are Jobs: the controller keeps no state, and no restart of anything opens a node. Nodes join with the taint
(node groups and Karpenter's pools set it), so that a controller that is down or late opens none, either.

``python -m trainium_eks.topology.gate --account DIRECTORY --ready FILE``; SETTINGS holds the gate's settings as JSON:
``namespace``, ``service`` (of the tests' pods), ``taint``, ``poolLabel``, ``settleSeconds``, and ``pools``: pool to
``devices`` (resources of a whole node) and ``template`` (of the test's pods).
"""

import argparse
import contextlib
import copy
import datetime
import hashlib
import http
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainium_eks.topology.api import MERGE, NODES, REQUEST_SECONDS, ApiStatusError, Connection, Object
from trainium_eks.topology.controller import WATCH_SECONDS, Nodes, connector, rounds, say

PASSED = "node-restriction.kubernetes.io/fabric-passed"
"""Label with the boot on which the test passed. Kubelets may not set labels of this prefix (NodeRestriction)."""
CONDITION = "FabricTested"
"""Condition of a node with the result of its last test."""
TESTED = "trainium-eks/tested-nodes"
"""Annotation of a test's Job: JSON, node to the boot that it had when the test began."""
POOL = "trainium-eks/tested-pool"
"""Label of a test's Job."""
LOOK_SECONDS = 15.0
TEST_SECONDS = 3600
"""Longest test, with the download of its image."""
RETRY_SECONDS = 600.0
"""Rest of nodes after a test that told nothing about any of them."""

_JOB_NAME = "batch.kubernetes.io/job-name"
_MARK = '{"fabric":'


@dataclass(frozen=True)
class GateResult:
    """Result of a test: nodes that passed, nodes that failed with the finding, and a note for people."""

    passed: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


def facts(settings: Mapping[str, Any]) -> Callable[[Object], Mapping[str, Any]]:
    """Return the function that picks the gate's facts of a node; empty for nodes of no gated pool."""

    def picked(node: Object) -> Mapping[str, Any]:
        labels = node["metadata"].get("labels") or {}
        pool = settings["pools"].get(labels.get(settings["poolLabel"]))
        if pool is None:
            return {}
        spec, status = node["spec"], node.get("status") or {}
        ready = [each for each in status.get("conditions") or () if each["type"] == "Ready"]
        boot = (status.get("nodeInfo") or {}).get("bootID", "")
        is_ready = any(each["status"] == "True" for each in ready)
        offered = status.get("allocatable") or {}
        return {
            "pool": labels[settings["poolLabel"]],
            "boot": boot,
            # A node that is away may come back from a reboot: it is closed before it can take a pod.
            "mayOpen": is_ready and boot != "" and labels.get(PASSED) == boot,
            "isClosed": any(each["key"] == settings["taint"]["key"] for each in spec.get("taints") or ()),
            "isCordoned": bool(spec.get("unschedulable")),
            "canTest": is_ready and boot != "" and all(offered.get(name) for name in pool["devices"]),
            "since": max((each.get("lastTransitionTime") or "" for each in ready), default=""),
        }

    return picked


def judge(tested: Mapping[str, str], places: Mapping[str, str], reports: Sequence[Mapping[str, Any]]) -> GateResult:
    """Return the verdict of a test of these nodes, by the places of its pods (pod to node) and the reports of its
    ranks: one, or one of each rank that found no backend."""
    failed: dict[str, str] = {}
    said = []
    for report in reports:
        names = [places.get(str(each.get("name")), "") for each in report.get("nodes") or ()]
        if report.get("ok") and sorted(names) == sorted(tested):
            return GateResult(passed=tuple(sorted(tested)))
        for each in report.get("findings") or ():
            number = each.get("node")
            if not each.get("ok"):
                said.append(str(each.get("detail")))
                if isinstance(number, int) and number < len(names) and names[number] in tested:
                    failed.setdefault(names[number], str(each.get("detail")))
    if len(failed) == len(tested) > 1:
        # Hardware does not fail everywhere at once: the image does, or the network.
        return GateResult(note=f"all {len(tested)} nodes fail alike: {said[0]}")
    return GateResult(failed=failed, note="" if failed else "; ".join(said[:3]))


class Gate:
    """Keeps the gate of a cluster's nodes.

    ``connect`` opens a connection, given the limit of an answer in seconds. The module describes ``settings``. The file
    ``ready`` is written once every node's taint is as it must be.
    """

    def __init__(self, connect: Callable[[float], Connection], settings: Mapping[str, Any], ready: Path) -> None:
        self._settings, self._ready = settings, ready
        self._facts = facts(settings)
        self._changed = threading.Event()
        self._api = connect(REQUEST_SECONDS)
        self._nodes = Nodes(connect(WATCH_SECONDS + REQUEST_SECONDS), self._facts, self._changed, whole=True)
        home = settings["namespace"]
        self._jobs, self._pods = f"/apis/batch/v1/namespaces/{home}/jobs", f"/api/v1/namespaces/{home}/pods"

    def run(self) -> None:
        """Watch nodes and keep the gate for ever."""
        self._nodes.start()
        rounds(self._changed, self._round, "gate", LOOK_SECONDS)

    def _round(self) -> None:
        with contextlib.closing(self._api):
            self.keep(self._nodes.found)

    def keep(self, nodes: Mapping[str, Mapping[str, Any]] | None) -> None:
        """Close and open nodes, take the results of tests in, and start tests; do nothing where the nodes' facts are
        not known yet. With one of :data:`~trainium_eks.topology.api.Failures` earlier changes of the round stay."""
        if nodes is None:
            return
        nodes = dict(nodes)
        for name, each in nodes.items():
            if each["mayOpen"] == each["isClosed"]:
                self._patch(name, lambda _: {})
        resting, busy = set(), set()
        for job in self._api.items(self._jobs)[0]:
            ended = _end(job)
            if ended is None:
                busy.add(job["metadata"]["labels"][POOL])
            elif not self._take_in(job, ended):
                resting |= json.loads(job["metadata"]["annotations"][TESTED]).keys()
        due = {each["pool"] for name, each in nodes.items() if _is_due(each) and name not in resting}
        for pool in due - busy:
            self._test(pool, resting)
        self._ready.touch()

    # Results

    def _take_in(self, job: Object, ended: tuple[str, float]) -> bool:
        """Record the result of a test on its nodes; return whether its nodes may be tested again."""
        name, why = job["metadata"]["name"], ended[0]
        tested: dict[str, str] = json.loads(job["metadata"]["annotations"][TESTED])
        verdict = self._verdict(name, tested)
        for node in verdict.passed:
            self._patch(node, lambda facts: self._passed(facts, tested), (True, "passed", name))
        for node, finding in verdict.failed.items():
            self._patch(node, lambda facts: self._cordoned(facts, tested), (False, finding, name))
        told = not verdict.passed and not verdict.failed
        if told:
            for node in tested:
                self._tell(node, name, "FabricTestUnclear", verdict.note or f"no report of {name}: {why}")
        if told and time.time() - ended[1] < RETRY_SECONDS:
            return False
        self._api.send("DELETE", f"{self._jobs}/{name}", {"propagationPolicy": "Background"}).read()
        return True

    def _verdict(self, job: str, tested: Mapping[str, str]) -> GateResult:
        pods = self._api.items(self._pods, labels=f"{_JOB_NAME}={job}")[0]
        reports = []
        for pod in pods:
            with contextlib.suppress(ApiStatusError):  # of a node that is gone
                text = self._api.send("GET", f"{self._pods}/{pod['metadata']['name']}/log").read().decode()
                for line in text.splitlines():
                    _, mark, rest = line.partition(_MARK)
                    if mark:
                        with contextlib.suppress(ValueError):  # cut off
                            reports.append(json.loads(mark + rest)["fabric"])
        # A report names pods by their host names.
        places = {pod["spec"].get("hostname", ""): pod["spec"].get("nodeName", "") for pod in pods}
        verdict = judge(tested, places, reports)
        waiting = next(filter(None, map(_why_waiting, pods)), "")
        return verdict if reports or not waiting else GateResult(note=waiting)

    def _passed(self, node: Object, tested: Mapping[str, str]) -> dict[str, Any] | None:
        boot = self._facts(node).get("boot")
        is_same = boot and boot == tested.get(node["metadata"]["name"])
        return {"metadata": {"labels": {PASSED: boot}}} if is_same else None

    def _cordoned(self, node: Object, tested: Mapping[str, str]) -> dict[str, Any] | None:
        is_same = self._facts(node).get("boot") == tested.get(node["metadata"]["name"])
        return {"metadata": {"labels": {PASSED: None}}, "spec": {"unschedulable": True}} if is_same else None

    def _patch(
        self,
        name: str,
        change: Callable[[Object], dict[str, Any] | None],
        result: tuple[bool, str, str] | None = None,
    ) -> None:
        """Change a node, and its taint with it, in one request that a change by another in between refuses.

        ``change`` returns the change of the node as it is now, or None for a node that is no longer the tested one.
        ``result`` of a test is whether it passed, the finding, and the test's name.
        """
        path = f"{NODES}/{name}"
        try:
            with self._api.send("GET", path) as answer:
                node = json.load(answer)
            body = change(node)
            if body is None:
                return
            labels = {**(node["metadata"].get("labels") or {}), **body.get("metadata", {}).get("labels", {})}
            may_open = self._facts({**node, "metadata": {**node["metadata"], "labels": labels}}).get("mayOpen")
            taint = self._settings["taint"]
            taints = [each for each in node["spec"].get("taints") or () if each["key"] != taint["key"]]
            body.setdefault("metadata", {})["resourceVersion"] = node["metadata"]["resourceVersion"]
            body.setdefault("spec", {})["taints"] = taints if may_open else [*taints, taint]
            self._api.send("PATCH", path, body, content=MERGE).read()
            if result is not None:
                self._show(path, *result)
        except ApiStatusError as error:
            # It is gone, or somebody else changed it: the watch tells.
            if error.status not in (http.HTTPStatus.NOT_FOUND, http.HTTPStatus.CONFLICT):
                raise
            self._changed.set()
            return
        say(f"{name}: {'open' if may_open else 'closed'}" + (f", {result[2]}: {result[1]}" if result else ""))
        if result is not None and not result[0]:
            self._tell(name, result[2], "FabricTestFailed", f"cordoned: {result[1]}")

    def _show(self, path: str, passed: bool, finding: str, job: str) -> None:
        """Write the condition of a node with a result."""
        condition = {
            "type": CONDITION,
            "status": str(passed),
            "reason": "Passed" if passed else "Failed",
            "message": f"{job}: {finding}"[:1000],
            "lastHeartbeatTime": _now(),
            "lastTransitionTime": _now(),
        }
        body = {"status": {"conditions": [condition]}}
        self._api.send("PATCH", f"{path}/status", body, content="application/strategic-merge-patch+json").read()

    def _tell(self, node: str, job: str, reason: str, message: str) -> None:
        """Write an event of a node, once for each test."""
        about = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node}
        event = {
            "metadata": {"name": f"{node}.{job}", "namespace": "default"},
            "involvedObject": about,
            "type": "Warning",
            "reason": reason,
            "message": message[:1000],
            "source": {"component": "fabric-gate"},
            "firstTimestamp": _now(),
            "lastTimestamp": _now(),
            "count": 1,
        }
        try:
            self._api.send("POST", "/api/v1/namespaces/default/events", event).read()
        except ApiStatusError as error:
            if error.status != http.HTTPStatus.CONFLICT:
                raise
            return
        say(f"{node}: {reason}: {message}")

    # Tests

    def _test(self, pool: str, resting: set[str]) -> None:
        """Start a test of the closed nodes of a pool once none of them has become ready lately."""
        # As they are now: the watch may not have told yet whom this round has cordoned.
        listed = self._api.items(NODES, labels=f"{self._settings['poolLabel']}={pool}")[0]
        found = {each["metadata"]["name"]: self._facts(each) for each in listed}
        free = {
            name: each
            for name, each in found.items()
            if each["canTest"] and not each["isCordoned"] and name not in resting
        }
        due = [name for name, each in free.items() if _is_due(each)]
        latest = max((free[name]["since"] for name in due), default="")
        if not due or _now(-self._settings["settleSeconds"]) < latest:
            return
        devices = self._settings["pools"][pool]["devices"]
        taken = {
            pod["spec"].get("nodeName")
            for pod in self._api.items("/api/v1/pods")[0]
            if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed") and _names(pod, devices)
        }
        chosen = sorted(name for name in due if name not in taken)
        if len(chosen) == 1:
            # A node alone has no partner over the network: an idle node that is open is its partner.
            chosen += sorted(name for name in free if name not in taken and name not in due)[:1]
        if chosen:
            job = job_of(self._settings, pool, {name: free[name]["boot"] for name in chosen})
            try:
                self._api.send("POST", self._jobs, job).read()
            except ApiStatusError as error:
                if error.status != http.HTTPStatus.CONFLICT:
                    raise
                return  # another copy of the controller was faster
            say(f"{job['metadata']['name']} tests {', '.join(chosen)}")


def job_of(settings: Mapping[str, Any], pool: str, boots: Mapping[str, str]) -> dict[str, Any]:
    """Return the Job that tests nodes of a pool (``boots``: each with its present boot): a pod for each, that all meet
    in torchrun."""
    digest = hashlib.sha256(json.dumps([pool, *sorted(boots.items())]).encode()).hexdigest()[:10]
    name = f"fabric-{digest}"
    template = copy.deepcopy(settings["pools"][pool]["template"])
    spec = template["spec"]
    # By name, so that no other node is taken; each pod takes all devices of one. A term may name one node.
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in sorted(boots)]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    spec["affinity"] = {"nodeAffinity": required}
    told = {"TRN_JOB": name, "GATE_NODES": str(len(boots)), "GATE_HOST": f"{name}-0.{settings['service']}"}
    spec["containers"][0]["env"] += [{"name": key, "value": value} for key, value in told.items()]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {POOL: pool}, "annotations": {TESTED: json.dumps(dict(boots))}},
        "spec": {
            "completionMode": "Indexed",
            "completions": len(boots),
            "parallelism": len(boots),
            # A failed pod is to leave the others: their logs name the node that failed.
            "backoffLimitPerIndex": 0,
            "activeDeadlineSeconds": TEST_SECONDS,
            "template": template,
        },
    }


def _end(job: Object) -> tuple[str, float] | None:
    """Return why and when a Job ended; None while it runs."""
    for each in (job.get("status") or {}).get("conditions") or ():
        if each["type"] in ("Complete", "Failed") and each["status"] == "True":
            when = datetime.datetime.fromisoformat(each["lastTransitionTime"])
            return str(each.get("message") or each["type"]), when.timestamp()
    return None


def _why_waiting(pod: Object) -> str:
    states = [each.get("state") or {} for each in (pod.get("status") or {}).get("containerStatuses") or ()]
    waiting: Object = next((each["waiting"] for each in states if each.get("waiting")), {})
    return ": ".join(filter(None, (waiting.get("reason"), waiting.get("message"))))


def _is_due(facts: Mapping[str, Any]) -> bool:
    """Return whether a node waits for a test."""
    return bool(facts["canTest"]) and not facts["mayOpen"] and not facts["isCordoned"]


def _names(pod: Object, devices: Mapping[str, str]) -> bool:
    """Return whether a pod holds such devices."""
    limits = [(each.get("resources") or {}).get("limits") or {} for each in pod["spec"].get("containers") or ()]
    return any(name in each for each in limits for name in devices)


def _now(seconds: float = 0.0) -> str:
    now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def main(arguments: Sequence[str]) -> None:
    """Run the gate with a pod's service account; see the module."""
    parser = argparse.ArgumentParser(prog="gate")
    parser.add_argument("--account", type=Path, required=True)
    parser.add_argument("--ready", type=Path, required=True)
    given = parser.parse_args(arguments)
    Gate(connector(given.account), json.loads(os.environ["SETTINGS"]), given.ready).run()


if __name__ == "__main__":
    main(sys.argv[1:])
