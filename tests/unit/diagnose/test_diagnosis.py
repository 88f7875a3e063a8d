"""The doctor over snapshots: no false alarm over healthy stacks, and faults that no local cloud can have."""

import copy
import json
from datetime import UTC, datetime, timedelta

import pytest
import recorded_scenes
from cluster_snapshots import EFA, NEURON, Object, named, objects, outputs, unfilled

from trainium_eks.diagnose.cluster_state import ClusterState
from trainium_eks.diagnose.diagnosis import diagnose
from trainium_eks.diagnose.why_pending import why
from trainium_eks.model.finding import Status
from trainium_eks.operate.verify.verify import verify

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def ago(seconds):
    return (NOW - timedelta(seconds=seconds)).isoformat()


def examined(made, name="", log=(), stack=None, now=NOW, checks=True):
    held = {kind: tuple(found) for kind, found in made.items()}
    cluster = ClusterState(stack or outputs(), "v1.35.4", held, now=now, log=lambda _pod, _previous: log)
    found = diagnose(cluster, name, checked=verify(cluster) if checks else ()).of(Status.FAIL)
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


def of_node(type_, status):
    condition = {"type": type_, "status": status, "reason": "x", "message": "words"}
    return lambda made: made["Node"][3]["status"]["conditions"].append(condition)


def calling(service="hook", policy="Fail", ready=True, of="hook"):
    """A webhook whose service has an endpoint that is ready or not, or has not said."""

    def change(made):
        [webhook] = made["ValidatingWebhookConfiguration"][0]["webhooks"]
        webhook["clientConfig"]["service"] = {"name": service, "namespace": "v"}
        webhook["failurePolicy"] = policy
        made["Service"].append(named("hook", "v"))
        endpoints = [{"conditions": {} if ready is None else {"ready": ready}}]
        made["EndpointSlice"] = [named("hook-1", "v", endpoints=endpoints)]
        made["EndpointSlice"][0]["metadata"]["labels"] = {"kubernetes.io/service-name": of}

    return change


def added(kind, name="lone", age=900, metadata=None, **fields):
    """One object more; of pods one that has a node."""

    def change(made):
        made[kind].append(dated(name, age, **{"spec": {**copy.deepcopy(POD), "nodeName": "trn0"}, **fields}))
        made[kind][-1]["metadata"] |= metadata or {}

    return change


def ending(kind, seconds):
    return added(kind, metadata={"deletionTimestamp": ago(seconds)})


def terminating(made):
    """The team's namespace: a check tells it, once."""
    made["Namespace"][0]["metadata"]["deletionTimestamp"] = ago(61)
    made["Namespace"][0]["status"]["phase"] = "Terminating"


def claimed(phase, **spec):
    return added("PersistentVolumeClaim", spec=spec, status={"phase": phase})


def unplaced(seconds):
    conditions = [{"type": "PodScheduled", "status": "False", "message": "0/5 nodes"}]
    return added("Pod", age=seconds, spec=copy.deepcopy(POD), status={"conditions": conditions, "phase": "Pending"})


def in_set(name, age, **status):
    owner = {"uid": "uid-set", "name": "set", "kind": "ReplicaSet"}
    return added("Pod", name, age, {"ownerReferences": [owner]}, status=status)


def crashed(seconds, **status):
    """A pod of a set that has ended with an error; its end may have more findings."""
    ended = {"terminated": {"exitCode": 3, "reason": "Error", "finishedAt": ago(seconds)}}
    return in_set("one", 900, phase="Failed", containerStatuses=[{"name": "c", "state": ended}], **status)


def restarted(made):
    """What is left of a gang that an eviction ended: the note of its restart, and the event of its pod."""
    made["Pod"].clear()
    made["Job"][0]["status"]["conditions"] = [{"status": "Restarting", "lastTransitionTime": ago(90)}]
    made["Event"].append(event("Pod", "uid-gang-trainer-1", "Evicted", "disk pressure", 100))


def refused(seconds, uid="uid-set", reason="FailedCreate"):
    return lambda made: made["Event"].append(event("ReplicaSet", uid, reason, "exceeded quota: a", seconds))


def block(seconds):
    ends = {"trainium-eks/capacity-block-ends": ago(seconds)}
    return lambda made: made["Job"][0]["metadata"].update(annotations=ends)


def restarts(made):
    """No pod of the first job runs."""
    for pod in made["Pod"]:
        if pod["metadata"]["name"].startswith(made["Job"][0]["metadata"]["name"]):
            pod["status"]["phase"] = "Unknown"


def unmet(made):
    made["Service"].clear()


def exits(code, at="containerStatuses", rank=1, seconds=120):
    def change(made):
        state = {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": ago(seconds)}}
        phase = "Failed" if code else "Succeeded"
        made["Pod"][rank]["status"] = {"phase": phase, at: [{"name": "c", "state": state}]}
        made["Pod"][rank]["metadata"]["labels"]["volcano.sh/task-index"] = str(rank)

    return change


def both(*changes):
    return lambda made: [change(made) for change in changes]


def of_pods(edit):
    return lambda made: [edit(pod) for pod in made["Pod"]]


def just_ready(pod):
    for each in pod["status"].get("conditions", ()):
        each["lastTransitionTime"] = ago(59)


INJECTED = [
    ("devices-not-counted", regrouped),
    ("gang-partly-placed", homeless),
    ("devices-held-after-end", in_phase("Completed", 61)),
    ("capacity-insufficient", claim_of("no trn1", "InsufficientCapacityError")),
    ("rendezvous-service-missing", unmet),
    ("capacity-block-ended", both(block(60), restarts)),
    ("claim-not-bound", lambda made: made["PersistentVolumeClaim"][0]["status"].update(phase="Lost")),
    ("claim-not-bound", claimed("Lost")),
    ("claim-not-bound", claimed("Pending", storageClassName="none")),
    ("node-lost", lambda made: made["Pod"][0]["spec"].update(nodeName="gone")),
    *(("node-pressure", of_node(f"{each}Pressure", "True")) for each in ("Disk", "Memory", "PID")),
    ("accelerator-unhealthy", of_node("AcceleratedHardwareReady", "False")),
    ("accelerator-unhealthy", of_node("NeuronHealth", "True")),
    ("webhook-not-answering", calling("none")),
    ("webhook-not-answering", calling(ready=False)),
    ("webhook-not-answering", calling(of="another")),
    ("namespace-terminating", ending("Namespace", 61)),
    ("namespace-terminating", terminating),
    ("pod-stuck-terminating", ending("Pod", 21)),
    ("pod-unplaced", unplaced(61)),
    ("quota-full", refused(299)),
    ("training-stalled", exits(0, seconds=301)),
    ("container-failed", crashed(3599)),
    ("pod-evicted", crashed(60, reason="Evicted", message="words")),
    ("container-failed", both(in_phase("Failed", 60), restarted)),
    ("end-unexplained", both(in_phase("Failed", 3599), lambda made: made["Pod"].clear())),
    ("volcano-scheduler-silent", both(homeless, of_pods(just_ready))),
]
"""What no local cloud can have, or not for as long as it takes."""

SOUND = {
    "a node whose conditions are good": both(
        of_node("DiskPressure", "False"), of_node("NeuronHealth", "False"), of_node("AcceleratedHardwareReady", "True")
    ),
    "a webhook that answers": calling(),
    "a webhook whose endpoint has not said": calling(ready=None),
    "a webhook that may fail": calling("none", policy="Ignore"),
    "a webhook whose service was not read": both(calling("none"), lambda made: made.pop("EndpointSlice")),
    "a namespace that has just begun to end": ending("Namespace", 59),
    "a pod in its grace period": ending("Pod", 19),
    "a pod that was just made": unplaced(59),
    "a claim that waits for its first pod": both(claimed("Pending"), claimed("Pending", storageClassName="gp3")),
    "a refusal of some time ago": refused(301),
    "a refusal before there were pods": refused(1, uid="uid-gang"),
    "an event of another kind": refused(1, reason="SuccessfulCreate"),
    "a crash of long ago": crashed(3601),
    "a crash after which a new pod runs": both(crashed(60), in_set("two", 100, phase="Running")),
    "a crash after which an older pod succeeds": both(in_set("two", 1000, phase="Succeeded"), crashed(60)),
    "a block that goes on": block(-60),
    "a block that was extended, whose pods run": block(60),
    "a job that has just ended": in_phase("Completed", 59),
    "a pod that has just ended": exits(0, seconds=299),
    "a failure of long ago": both(in_phase("Failed", 3601), lambda made: made["Pod"].clear()),
    "a gang whose plugin makes no service": both(unmet, lambda made: made["Job"][0]["spec"].update(plugins={})),
    "a gang of one": both(
        unmet, lambda made: (made["Pod"].pop(), made["Job"][0]["spec"]["tasks"][0].update(replicas=1))
    ),
    "pods of another scheduler": both(regrouped, of_pods(lambda pod: pod["spec"].update(schedulerName="default"))),
    "pods without devices": both(regrouped, of_pods(lambda pod: pod["spec"].update(containers=[{"name": "c"}]))),
}


MORE = {
    "gang-partly-placed": ["volcano-scheduler-silent", "gang-partly-placed"],
    "devices-held-after-end": ["devices-held-after-end"] * 2,  # of two pods
}


@pytest.mark.parametrize(("fault", "change"), INJECTED, ids=[fault for fault, _ in INJECTED])
def test_snapshot_has_exactly_its_fault(fault, change):
    assert faults(running(change)) == MORE.get(fault, [fault])


@pytest.mark.parametrize("change", [lambda _: None, *SOUND.values()], ids=["a gang that runs", *SOUND])
def test_sound_cluster_next_to_a_fault_has_no_fault(change):
    assert faults(running(change)) == []


@pytest.mark.parametrize(
    ("scene", "fault", "waits"), [("queue_full", "queue-full", True), ("queue_closed", "queue-closed", False)]
)
def test_job_waiting_for_its_turn_is_reported_only_when_asked_for(scene, fault, waits):
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


def creating(words, reason="FailedCreatePodSandBox", minutes=11):
    """Pods have had nodes for so long, and the first has an event."""

    def change(made):
        since = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": ago(60 * minutes)}]
        waiting = [{"name": "c", "state": {"waiting": {"reason": "ContainerCreating"}}}]
        for pod in made["Pod"]:
            pod["status"] = {"phase": "Pending", "conditions": since, "containerStatuses": waiting}
        in_phase("Pending")(made)
        made["Event"].append(event("Pod", "uid-gang-trainer-0", reason, words, 30))

    return change


CNI = 'plugin type="aws-cni" failed (add): dial tcp 127.0.0.1:50051: connect: connection refused'
LONG = f"{'failed to set up sandbox container ' * 9}: {CNI}"


@pytest.mark.parametrize(
    ("words", "rest", "fault"),
    [
        (LONG, {}, "sandbox-not-made"),
        ("netplugin failed with no error message", {"minutes": 2}, "sandbox-not-made"),
        (CNI, {"minutes": 0.5}, ""),
        ('no runtime for "nvidia" is configured', {"minutes": 0.5}, "runtime-missing"),
        (
            'failed to get sandbox image "602.dkr.ecr.us-west-2.amazonaws.com/eks/pause:3.5": 401',
            {},
            "pause-image-refused",
        ),
        ("a text that nobody knows", {"reason": "NetworkNotReady"}, "container-not-made"),
    ],
)
def test_finding_of_a_pod_without_sandbox_ends_with_its_event(words, rest, fault):
    found = examined(running(creating(words, **rest)), "gang", checks=False)
    assert [each.fault for each in found] == ([fault] if fault else [])
    assert all(each.text.endswith(words[-len(CNI) :]) and len(each.text) <= 300 for each in found)
    held = {kind: tuple(each) for kind, each in running(creating(words, **rest)).items()}
    around = ClusterState(outputs(), objects=held, now=NOW).snapshot_of(held["Job"][0])
    assert why(around).sentence.endswith(words), "`trn status` quotes it at once"


def rejected(made):
    words = "Allocate failed due to no healthy devices present"
    made["Pod"][0]["status"] = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": words}


def alone(change):
    return lambda made: (change(made), made["Job"].clear())


def failed(change):
    return lambda made: (in_phase("Failed", 30)(made), change(made))


def late(made):
    [container] = made["Job"][0]["spec"]["tasks"][0]["template"]["spec"]["containers"]
    container["args"] = ["python3 -m trainium_workloads.bert.pretrain"]
    for each in made["Pod"]:
        each["status"]["conditions"][0]["lastTransitionTime"] = ago(8000)


FIRST_FAILURE = "the first failure: "
IN_A_ROW = "exit code 1 before a step, 3 times in a row: no restart mends that; exit code 1 of rank 1: "
UNAUTHORIZED = "unexpected status from GET request: 401 Unauthorized"
OF_RANK_1, OF_ALL = "trn logs gang --node 1 --namespace lab", "trn logs gang --all --namespace lab"


@pytest.mark.parametrize(
    ("fault", "change", "log", "remedy"),
    [
        ("image-refused", alone(waits_for_image(UNAUTHORIZED)), "", "crane copy"),
        ("node-disk-full", waits_for_image("write /x: no space left on device: unknown"), "", "`rootVolumeGib`"),
        ("devices-not-allocated", failed(rejected), "", "device plugin"),
        ("devices-not-allocated", rejected, "", "device plugin"),
        ("end-unexplained", failed(lambda made: made["Pod"].clear()), "", "trn logs gang --namespace lab --since"),
        ("name-not-resolved", failed(exits(1, "initContainerStatuses")), "cannot resolve gang-0", "kube-dns"),
        ("container-failed", failed(exits(3)), "", OF_RANK_1),
        ("container-failed", exits(3), "", OF_RANK_1),
        ("out-of-memory", failed(exits(137)), "", "smaller batch"),
        ("program-raised", failed(exits(1)), "[rank1]: ValueError: no words of any entry", OF_RANK_1),
        ("program-raised", failed(exits(1)), FIRST_FAILURE + "exit code 1 of rank 1: KeyError: 'A'", OF_RANK_1),
        ("starts-failed", failed(exits(78)), f"{FIRST_FAILURE}{IN_A_ROW}KeyError: 'A'", "trn logs gang"),
        ("module-missing", failed(exits(78)), f"{FIRST_FAILURE}{IN_A_ROW}ImportError: liba is not there", ""),
        ("starts-failed", lambda _: None, "the start before ended with exit code 1: KeyError: 'A'", "trn logs gang"),
        ("out-of-memory", failed(exits(137)), "ValueError: no words of any entry", "smaller batch"),
        *(("program-crashed", failed(exits(code)), "", OF_RANK_1) for code in (132, 136, 139)),
        ("program-aborted", failed(exits(134)), "terminate called after throwing an instance", OF_ALL),
        ("command-not-executable", failed(exits(126)), "", ""),
        ("command-not-found", failed(exits(127)), "", ""),
        ("job-refused", failed(exits(78)), "", ""),
        ("shared-memory-full", failed(exits(135)), "", ""),
        ("training-stalled", exits(0), "", OF_ALL),
        ("training-stalled", late, "compiles", OF_ALL),
        ("launch-refused", claim_of("UnauthorizedOperation: not authorized"), "", "describe nodeclaims"),
        ("launch-refused", claim_of("words of another year"), "", "describe nodeclaims"),
    ],
)
def test_fault_is_reported_by_its_source_with_the_fix(fault, change, log, remedy):
    """The stack's first namespace is another: commands without one would find another team's job."""
    first = {"name": "first", "queues": ["test"], "serviceAccount": "trainer", "claim": "fsx-claim"}
    stack = outputs(namespaces=[first])
    text = json.dumps(running(change)).replace('"training"', '"lab"')
    named_job = "" if fault == "launch-refused" else "gang"
    found = examined(json.loads(text), named_job, [log] if log else (), stack, checks=False)
    assert [each.fault for each in found] == [fault]
    assert remedy in found[0].fix


def test_stalled_training_is_recognised_by_its_log_or_its_steps():
    made = running(lambda _: None)
    steps = [f'{{"step": {step}, "time": {NOW.timestamp() - 3000 + step}, "steps": 900}}' for step in range(9)]
    assert faults(made, "gang", steps) == ["training-stalled"]
    assert faults(made, "gang", [*steps, "CCOM WARN: timed out"]) == ["collective-timed-out"]
    made = running(failed(exits(1, rank=0)))
    [finding] = examined(made, "gang", ["\x1b[2J" + "x" * 9000 + " No space left on device"])
    assert finding.fault == "volume-full"
    assert len(finding.text) <= 300
    made = running(of_node("Ready", "Unknown"))
    made["Node"][3]["status"]["conditions"].pop(0)
    assert faults(made) == ["node-not-ready", "node-lost"]
    # Another job's end is not the asked one's.
    made = running(failed(exits(1, rank=0)))
    made["Job"].append(job("other", "Failed", [], 30)[0])
    assert [each.subject for each in examined(made, "gang")] == [finding.subject]
    assert len(examined(made)) > 1
    # An unreadable kind is no fault, and a researcher gets no other report.
    cluster = ClusterState(outputs(), "v1.35.4", {"Pod": ()}, unread={"Node": "forbidden"}, namespace="training")
    found = diagnose(cluster, checked=verify(cluster))
    assert [(each.id, each.text) for each in found.of(Status.NOT_CHECKED)] == [("unread/Node", "forbidden")]
    assert {each.section for each in found.findings} <= {"nodes", "devices", "topology", "queues", "objects", "unread"}
    assert "devices-not-shown" not in [each.fault for each in found.findings]
