"""The doctor over snapshots: no false alarm over healthy stacks, and faults that no local cloud can have."""

import copy
import json
from datetime import UTC, datetime, timedelta

import pytest
import recorded_scenes
from cluster_snapshots import EFA, NEURON, Object, named, objects, outputs, unfilled

from trainium_eks.kube.cluster import Cluster
from trainium_eks.operate.doctor.diagnosis import diagnose
from trainium_eks.operate.doctor.examination import Examination
from trainium_eks.operate.finding import Status
from trainium_eks.operate.verify.check_input import CheckInput

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def ago(seconds):
    return (NOW - timedelta(seconds=seconds)).isoformat()


def examined(made, name="", log=(), stack=None, now=NOW, **rest):
    cluster = Cluster("v1.35.4", {kind: tuple(found) for kind, found in made.items()})
    examination = Examination(CheckInput(stack or outputs(), cluster), now, lambda _pod, _previous: log)
    found = diagnose(examination, name, **rest).of(Status.FAIL)
    assert {each.fault: unfilled(each) for each in found} == {each.fault: set() for each in found}
    return found


def faults(*arguments, **rest):
    return [each.fault for each in examined(*arguments, **rest)]


BENIGN = (
    '{"step": 12, "time": 1795348799.0, "steps": 20000, "loss": 0.25}',
    "NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 8 nics)",
    "0 errors; permission to write /data checked; no missing files",
    "Connection refused, trying again: the first node is not there yet",
    "WARNING:root:memory allocator falls back to mmap",
)
POD = {
    "containers": [{"name": "c", "resources": {"limits": {NEURON: "16", EFA: "8"}}}],
    "nodeSelector": {"node.kubernetes.io/instance-type": "trn1.32xlarge"},
    "tolerations": [{"operator": "Exists"}],
}


def dated(name, seconds, **fields):
    made = named(name, "training", **fields)
    made["metadata"] |= {"uid": f"uid-{name}", "creationTimestamp": ago(seconds)}
    return made


def job(name, phase, nodes, seconds, **status):
    """A Volcano job in a healthy state, and its pods, one on each node."""
    task = {"name": "trainer", "replicas": max(len(nodes), 1), "template": {"spec": copy.deepcopy(POD)}}
    spec = {"queue": "test", "plugins": {"svc": []}, "tasks": [task]}
    state = {"phase": phase, "lastTransitionTime": ago(seconds)}
    made = dated(name, seconds + 60, apiVersion="batch.volcano.sh/v1alpha1", kind="Job", spec=spec)
    pods = [pod(f"{name}-trainer-{rank}", name, node, phase, seconds) for rank, node in enumerate(nodes)]
    return {**made, "status": {"state": state, **status}}, pods


def pod(name, owner, node, phase, seconds):
    over = phase == "Completed"
    state = {"running": {"startedAt": ago(seconds)}}
    if over:
        state = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": ago(seconds)}}
    made = dated(name, seconds + 50, spec={**copy.deepcopy(POD), "nodeName": node})
    made["metadata"]["labels"] = {"volcano.sh/job-name": owner}
    made["metadata"]["ownerReferences"] = [{"uid": f"uid-{owner}", "name": owner, "kind": "Job"}]
    ready = {"type": "Ready", "status": "False" if over else "True", "lastTransitionTime": ago(seconds)}
    phase = "Succeeded" if over else "Running"
    containers = [{"name": "c", "state": state, "lastState": {}}]
    return {**made, "status": {"phase": phase, "conditions": [ready], "containerStatuses": containers}}


def event(kind, uid, reason, message, seconds):
    about = {"kind": kind, "name": uid.removeprefix("uid-"), "namespace": "training", "uid": uid}
    said = {"reason": reason, "message": message, "type": "Warning", "lastTimestamp": ago(seconds)}
    return named(f"{uid}.{reason}", "training", involvedObject=about, **said)


def healthy():
    """Jobs as they are on a good day, with the traces of troubles that are over."""
    made = copy.deepcopy(objects())
    made |= {kind: list[Object]() for kind in ("HyperNode", "ReplicaSet", "Pod", "Job", "Event", "Service", "PodGroup")}
    phases = {
        "Running": (["trn0", "trn1"], 70),
        "Completed": (["gone"], 10**6),
        "Aborted": ([], 3000),
        "Pending": ([], -55),  # just submitted
    }
    for phase, (nodes, seconds) in phases.items():
        name = phase.lower()
        one, pods = job(name, phase, nodes, seconds, retryCount=3)
        made["Job"].append(one)
        made["Pod"] += pods
        made["Service"].append(named(name, "training"))
        for reason, message in (("FailedMount", "timed out"), ("BackOff", 'secret "a" not found')):
            made["Event"].append(event("Pod", f"uid-{name}-trainer-0", reason, message, seconds - 60))
        made["Event"].append(event("Job", f"uid-{name}", "FailedCreate", "exceeded quota: a", 3000))
    claim = named("later", "training", spec={"storageClassName": "gp3"}, status={"phase": "Pending"})
    made["PersistentVolumeClaim"].append(claim)
    made["Event"].append(event("ReplicaSet", "uid-old", "FailedCreate", "failed calling webhook", 2000))
    return made


def test_a_healthy_stack_has_no_fault():
    for name in ("", "running", "completed", "aborted"):
        assert examined(healthy(), name, log=BENIGN) == ()


def running(change):
    """A gang of two that runs for ten minutes, after a change."""
    made = copy.deepcopy(objects())
    one, pods = job("gang", "Running", ["trn0", "trn1"], 600)
    made |= {"Job": [one], "Pod": pods, "Service": [named("gang", "training")], "Event": []}
    change(made)
    return made


def homeless(made):
    del made["Pod"][1]["spec"]["nodeName"]
    made["Pod"][1]["status"] = {"phase": "Pending"}


def regrouped(made):
    for each, name in zip(made["Pod"], ("gang-uid", "none"), strict=True):
        each["spec"]["schedulerName"] = "volcano"
        each["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": name}
    made["PodGroup"] = [named("gang-uid", "training")]


def in_phase(phase, seconds=600):
    state = {"phase": phase, "lastTransitionTime": ago(seconds)}
    return lambda made: made["Job"][0]["status"].update(state=state)


def claim_of(words, reason="LaunchFailed"):
    conditions = [{"type": "Launched", "status": "False", "reason": reason, "message": words}]
    return lambda made: made.update(NodeClaim=[named("pool-x", status={"conditions": conditions})])


INJECTED = {
    "devices-not-counted": regrouped,
    "gang-partly-placed": homeless,
    "devices-held-after-end": in_phase("Completed"),
    "capacity-insufficient": claim_of("no trn1", "InsufficientCapacityError"),
    "rendezvous-service-missing": lambda made: made["Service"].clear(),
    "capacity-block-ended": lambda made: made["Job"][0]["metadata"].update(
        annotations={"trainium-eks/capacity-block-ends": ago(60)}
    ),
    "claim-not-bound": lambda made: made["PersistentVolumeClaim"][0]["status"].update(phase="Lost"),
    "node-lost": lambda made: made["Pod"][0]["spec"].update(nodeName="gone"),
}
"""What no local cloud can have, or not for as long as it takes."""

MORE = {
    "gang-partly-placed": ["volcano-scheduler-silent", "gang-partly-placed"],
    "devices-held-after-end": ["devices-held-after-end"] * 2,  # of two pods
}


@pytest.mark.parametrize(("fault", "change"), INJECTED.items(), ids=INJECTED)
def test_a_fault_of_a_snapshot_is_found_and_no_other(fault, change):
    assert faults(running(lambda _: None)) == []
    assert faults(running(change)) == MORE.get(fault, [fault])


@pytest.mark.parametrize(
    ("scene", "fault", "waits"), [("queue_full", "queue-full", True), ("queue_closed", "queue-closed", False)]
)
def test_a_job_that_only_waits_for_its_turn_is_told_to_who_asks_for_it(scene, fault, waits):
    made = recorded_scenes.snapshot(scene)
    now = recorded_scenes.now(made)
    kinds = {kind: found for kind, found in made.items() if isinstance(found, list)}
    stack = outputs(nodeGroups=[each.model_dump(by_alias=True) for each in recorded_scenes.GROUPS])
    [name] = {"beta", "tau"} & {each["metadata"]["name"] for each in kinds["Job"]}
    assert fault in faults(kinds, name, stack=stack, now=now, checks=False)
    assert (fault in faults(kinds, stack=stack, now=now, checks=False)) is not waits


def waits_for_image(words):
    def change(made):
        waiting = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "ghcr.io/a/t:1": {words}'}
        container = {"name": "c", "image": "ghcr.io/a/t:1", "state": {"waiting": waiting}}
        made["Pod"][0] |= {"status": {"phase": "Pending", "containerStatuses": [container]}}
        made["Event"].append(event("Pod", "uid-gang-trainer-0", "Failed", f"Failed to pull image: {words}", 30))

    return change


def rejected(made):
    words = "Allocate failed due to no healthy devices present"
    made["Pod"][0]["status"] = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": words}


def alone(change):
    return lambda made: (change(made), made["Job"].clear())


def failed(change):
    return lambda made: (in_phase("Failed", 30)(made), change(made))


def exits(code, at="containerStatuses", rank=1):
    def change(made):
        state = {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": ago(120)}}
        phase = "Failed" if code else "Succeeded"
        made["Pod"][rank]["status"] = {"phase": phase, at: [{"name": "c", "state": state}]}
        made["Pod"][rank]["metadata"]["labels"]["volcano.sh/task-index"] = str(rank)

    return change


def late(made):
    [container] = made["Job"][0]["spec"]["tasks"][0]["template"]["spec"]["containers"]
    container["args"] = ["python3 -m trainium_workloads.bert.pretrain"]
    for each in made["Pod"]:
        each["status"]["conditions"][0]["lastTransitionTime"] = ago(8000)


UNAUTHORIZED = "unexpected status from GET request: 401 Unauthorized"
OF_RANK_1, OF_ALL = "trn logs gang --node 1 --namespace lab", "trn logs gang --all --namespace lab"


@pytest.mark.parametrize(
    ("fault", "change", "log", "remedy"),
    [
        ("image-refused", alone(waits_for_image(UNAUTHORIZED)), "", "trn image mirror"),
        ("node-disk-full", waits_for_image("write /x: no space left on device: unknown"), "", "`rootVolumeGib`"),
        ("devices-not-allocated", failed(rejected), "", "device plugin"),
        ("devices-not-allocated", rejected, "", "device plugin"),
        ("end-unexplained", failed(lambda made: made["Pod"].clear()), "", "trn logs gang --namespace lab --since"),
        ("name-not-resolved", failed(exits(1, "initContainerStatuses")), "cannot resolve gang-0", "kube-dns"),
        ("container-failed", failed(exits(3)), "", OF_RANK_1),
        ("container-failed", exits(3), "", OF_RANK_1),
        ("out-of-memory", failed(exits(137)), "", "smaller batch"),
        ("program-crashed", failed(exits(139)), "", OF_RANK_1),
        ("training-stalled", exits(0), "", OF_ALL),
        ("training-stalled", late, "compiles", OF_ALL),
        ("launch-refused", claim_of("UnauthorizedOperation: not authorized"), "", "describe nodeclaims"),
        ("launch-refused", claim_of("words of another year"), "", "describe nodeclaims"),
    ],
)
def test_a_fault_is_told_by_its_speaker_and_with_the_way_to_it(fault, change, log, remedy):
    """The stack's first namespace is another: commands without one would find another team's job."""
    first = {"name": "first", "queues": ["test"], "serviceAccount": "trainer", "claim": "fsx-claim"}
    stack = outputs(namespaces=[first])
    text = json.dumps(running(change)).replace('"training"', '"lab"')
    named_job = "" if fault == "launch-refused" else "gang"
    found = examined(json.loads(text), named_job, [log] if log else (), stack, checks=False)
    assert [each.fault for each in found] == [fault]
    assert remedy in found[0].fix


def test_a_training_that_stands_still_is_told_by_its_log_or_as_stalled_and_what_pods_write_is_cut():
    made = running(lambda _: None)
    steps = [f'{{"step": {step}, "time": {NOW.timestamp() - 3000 + step}, "steps": 900}}' for step in range(9)]
    assert faults(made, "gang", steps) == ["training-stalled"]
    assert faults(made, "gang", [*steps, "CCOM WARN: timed out"]) == ["collective-timed-out"]
    made = running(failed(exits(1, rank=0)))
    [finding] = examined(made, "gang", ["\x1b[2J" + "x" * 9000 + " No space left on device"])
    assert finding.fault == "volume-full"
    assert len(finding.text) <= 300
    # What may not be read is no fault.
    cluster = Cluster("v1.35.4", {"Pod": ()}, unread={"Node": "forbidden"})
    examination = Examination(CheckInput(outputs(), cluster), NOW, lambda _pod, _previous: (), "training")
    found = diagnose(examination)
    assert [(each.id, each.text) for each in found.of(Status.NOT_CHECKED)] == [("unread/Node", "forbidden")]
    assert "devices-not-shown" not in [each.fault for each in found.findings]
