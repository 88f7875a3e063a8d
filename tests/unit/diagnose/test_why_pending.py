"""Why a job waits, by what a real Volcano said of jobs (``scenes``), and by what kubelets say."""

from pathlib import Path

import pytest
import yaml
from recorded_scenes import GROUPS, of

from trainium_eks.diagnose.reason import Cause
from trainium_eks.diagnose.why_pending import why, why_ended
from trainium_eks.model.node_labels import ULTRASERVER_LABELS


def waits(name, job, change=None, **rest):
    return why(of(name, job, change, **rest))


UNREAD = {"Node": None, "Queue": None, "HyperNode": None, "PersistentVolumeClaim": None}


def each(kind, edit, prefix=""):
    """A change of the objects of a kind whose names begin so."""

    def change(found):
        for one in found[kind]:
            if one["metadata"]["name"].startswith(prefix):
                edit(one)

    return change


def only(prefix):
    """Other teams' pods are not seen."""
    return lambda found: found.update(Pod=[pod for pod in found["Pod"] if pod["metadata"]["name"].startswith(prefix)])


def together(*changes):
    return lambda found: [change(found) for change in changes]


def ending(prefix=""):
    return each("Pod", lambda pod: pod["metadata"].update(deletionTimestamp="2026-11-22T05:33:00Z"), prefix)


def of_group(message):
    conditions = [{"type": "Unschedulable", "message": message}]
    return each("PodGroup", lambda group: group["status"].update(conditions=conditions))


def event(kind, **fields):
    """An event of now about the first object of the kind."""

    def change(found):
        about = {"kind": kind, **{key: found[kind][0]["metadata"][key] for key in ("name", "uid")}}
        made = {"metadata": {"name": "e"}, "involvedObject": about, "lastTimestamp": found["now"], **fields}
        found["Event"].append(made)

    return change


def fewer(kind, count):
    return lambda found: found.update({kind: found[kind][:count]})


def tainted(key):
    return lambda node: node["spec"].update(taints=[{"key": key, "effect": "NoSchedule"}])


def phase(name):
    return lambda found: found["Job"][0]["status"]["state"].update(phase=name, lastTransitionTime=found["now"])


RELEASING = of_group("2/1 tasks in gang unschedulable: pod group is not ready, 1 Releasing, 2 minAvailable")


def in_ultraservers(size, **job):
    """A change that makes UltraServers, or halves, of the leaf switches."""
    label = ULTRASERVER_LABELS[0 if size == 4 else 1]

    def change(found):
        for number, one in enumerate(each for each in found["HyperNode"] if each["spec"]["tier"] == 1):
            one["spec"]["tierName"] = label
            one["metadata"]["labels"] = {label: f"us{number}"}
        found["Job"][0]["spec"].update(job)

    return change


def test_gang_waiting_for_an_ultraserver_shows_the_free_nodes():
    reason = waits("topology_fragmented", "lam", in_ultraservers(2))
    shown = "1 of 2 nodes of half UltraServer us0 are free and 1 of 2 nodes of half UltraServer us1 are free"
    assert reason.sentence == f"it must have 1 half UltraServer to itself: {shown}"
    assert (reason.fault, reason.fix[:20]) == ("ultraserver-busy", "wait for one and two")


# --- Quotas -----------------------------------------------------------------------------------------------------------


def held_by_quota(requested, used, limited):
    """As the scheduler's plugin ``resourcequota`` writes it (Volcano 1.15.0)."""
    maps = f"requested: map[{requested}], used: map[{used}], limited: map[{limited}]"
    return event("PodGroup", message=f"resource quota insufficient, {maps}", reason="Unschedulable")


PODS = [f"pods:{{{{{count} 0}} {{<nil>}} {count} DecimalSI}}" for count in (4, 162, 164)]
AMOUNTS = ("{16400 -3} {<nil>} ", "{0 0} {<nil>} 0", "{8 0} {<nil>} 8")
CPUS = [f"requests.cpu:{{{each} DecimalSI}}" for each in AMOUNTS]


def test_running_and_ended_jobs_wait_for_nothing():
    for name, job in (("running", "alpha"), ("topology_fragmented", "one"), ("restarted", "run"), ("failed", "run")):
        assert why(of(name, job)) is None
    gave_up = event("Job", message="Job failed on action SyncJob for retry limit reached")
    ended = of("quota", "nu", together(phase("Terminated"), gave_up))
    assert why(ended) is None
    reason = why_ended(ended)
    assert reason.cause is Cause.QUOTA
    assert "gave up making its pods: the namespace's quota team is used up" in reason.sentence
    assert why_ended(of("failed", "run")) is None


def pods_wait(reason, message, image="busybox"):
    state = {"waiting": {"reason": reason, "message": message}}
    statuses = [{"name": "trainer", "image": image, "state": state}]
    return each("Pod", lambda pod: pod.update(status={"phase": "Pending", "containerStatuses": statuses}))


def warned(reason, message):
    return together(pods_wait("ContainerCreating", ""), event("Pod", type="Warning", reason=reason, message=message))


def later(found):
    found["now"] = found["now"].replace("T05", "T06")


LOST = 'MountVolume.SetUp failed for volume "files" : configmap "files" not found'


@pytest.mark.parametrize("said", [warned("FailedMount", LOST), pods_wait("ContainerCreating", LOST)])
@pytest.mark.parametrize("state", ["Running", "Restarting"])
def test_new_pods_waiting_for_a_deleted_configmap_name_the_volume(state, said):
    """The PodGroup's condition and the job's phase are of the restart, the pods of now."""
    reason = waits("running", "alpha", together(said, RELEASING, phase(state)))
    assert (reason.cause, reason.fault) == (Cause.VOLUME, "config-missing")


def saying(*counts):
    message = f"3/3 tasks in gang unschedulable: pod group is not ready, {', '.join(counts)}; Pending: 1 Lost"
    silent = each("Pod", lambda pod: pod["status"].update(conditions=[]))
    return together(lambda found: found.update(**UNREAD, Event=[]), silent, of_group(message))


def seven_nodes(found):
    """One node too many for its group, while another job is in its queue."""
    each("Job", lambda job: job["spec"]["tasks"][0].update(replicas=7), "beta")(found)
    each("Queue", lambda queue: queue["spec"]["capability"].update({"aws.amazon.com/neuron": 128}), "test")(found)


def busy_nodes_alone(found):
    held = {pod["spec"].get("nodeName") for pod in found["Pod"]}
    found["Node"] = [node for node in found["Node"] if node["metadata"]["name"] in held]


def above_another(found):
    """The queue has one below it, whose amounts are in its own."""
    only("delta")(found)
    [queue] = [each for each in found["Queue"] if each["metadata"]["name"] == "test"]
    found["Queue"].append({**queue, "metadata": {"name": "part"}, "spec": {"parent": "test"}})


def two_do_not_answer(found):
    for node in found["Node"][:2]:
        node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
        tainted("node.kubernetes.io/unreachable")(node)
    together(fewer("Node", 3), only("delta"))(found)


def parts(prefix, **metadata):
    """One device a pod, in place of all of a node's."""

    def change(pod):
        pod["metadata"].update(metadata)
        pod["spec"]["containers"][0]["resources"]["requests"]["aws.amazon.com/neuron"] = "1"

    return each("Pod", change, prefix)


def let_in(found):
    """The scheduler lets a job into its queue now."""
    written = [{"manager": "vc-scheduler", "time": found["now"]}]
    made = {"creationTimestamp": "2026-11-22T01:00:00Z", "managedFields": written}
    for group in found["PodGroup"]:
        group["status"]["phase"] = "Inqueue"
        group["metadata"].update(made)


def at_once(found):
    """Without pods nothing but its PodGroup's phase tells that it has been looked at."""
    found["now"] = found["Job"][0]["metadata"]["creationTimestamp"]


TOLERATIONS = (
    ("any", {"operator": "Exists"}, True),
    ("its key", {"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}, True),
    ("another effect", {"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}, False),
    ("another key", {"key": "other", "operator": "Exists"}, False),
    ("another value", {"key": "dedicated", "value": "other"}, False),
)
FORBIDDEN = 'Message:"pods is forbidden: exceeded quota: team, requested: pods=1, used: pods=4, limited: pods=4"'


def two_kinds(found):
    """Beside its trainers the job has a task of another kind, and waits for both."""
    for job in found["Job"]:
        [trainers] = job["spec"]["tasks"]
        spec = {**trainers["template"]["spec"], "nodeSelector": {"pool": "none"}}
        job["spec"]["tasks"].append({"name": "leader", "template": {"spec": spec}})


def tolerating(**toleration):
    def edit(job):
        job["spec"]["tasks"][0]["template"]["spec"]["tolerations"] = [toleration]

    return each("Job", edit)


def first_by_init(found):
    """The first container of each pod is one that only prepares, and asks for more."""
    for job in found["Job"]:
        spec = job["spec"]["tasks"][0]["template"]["spec"]
        more = {"resources": {"limits": {"aws.amazon.com/neuron": "17"}}}
        spec["initContainers"] = [{**spec["containers"][0], **more}]


CREATING = pods_wait("ContainerCreating", "")
PULLING = warned("Pulling", 'Pulling image "busybox"')
CHANGES = {
    None: None,
    "other teams' share": only("beta"),
    "pods of the team that are being ended are no other team's": ending("alpha"),
    **{f"counts in one order, {order}": saying(*order)
       for order in (("2 Pending", "1 Bound"), ("1 Bound", "2 Pending"))},
    "nodes look free": only("delta"),
    "nodes look free in a queue above another": above_another,
    "its pods have a part": parts("alpha"),
    "another team's pods have a part": parts("alpha", namespace="speech"),
    "a part of each node is held unseen": together(
        only("delta"),
        each("Queue", lambda queue: queue["status"].update(allocated={"aws.amazon.com/neuron": "4"}), "test"),
    ),
    "let in, and forgotten": together(fewer("Pod", 0), let_in, later),
    "let in a moment ago": together(fewer("Pod", 0), later, let_in),
    "nothing may be read": lambda found: found.update(UNREAD),
    "nodes may not be read": lambda found: found.update(Node=None),
    "kept back at once": at_once,
    "never placed, while another job is there": seven_nodes,
    "the group grows, but not beyond busy nodes": busy_nodes_alone,
    "pods of before": together(RELEASING, fewer("Pod", 1)),
    "a pod of before": together(fewer("Pod", 1), ending()),
    "pods of a restart are refused": together(
        phase("Restarting"), event("Job", reason="FailedCreate", message=FORBIDDEN), fewer("Pod", 0)
    ),
    "the quota is full": held_by_quota(*PODS),
    "the quota is too small": held_by_quota(*CPUS),
    "an hour later": later,
    "no secret": pods_wait("CreateContainerConfigError", 'secret "hf-token" not found'),
    "beside a task of another kind": two_kinds,
    "no such queue": fewer("Queue", 0),
    "a queue below itself": each("Queue", lambda queue: queue["spec"].update(parent="test"), "test"),
    **{f"it is {name} and its pods leave": together(phase(name), ending(), CREATING)
       for name in ("Aborting", "Restarting", "Completing")},
    "no claim at all": fewer("PersistentVolumeClaim", 0),
    "no part of the network is known": fewer("HyperNode", 0),
    "a pod has failed": together(fewer("Pod", 1), each("Pod", lambda pod: pod.update(status={"phase": "Failed"}))),
    **{f"restart {n}": each("Job", lambda job, n=n: job["status"].update(retryCount=n)) for n in (2, 3, 12, 22)},
    **{f"the taint is {'' if is_so else 'not '}tolerated by {words}": tolerating(**toleration)
       for words, toleration, is_so in TOLERATIONS},
    "an init container asks for more": first_by_init,
    "containers": CREATING,
    "containers for long": together(CREATING, later),
    "a volume": warned("FailedMount", 'MountVolume.SetUp failed for volume "fsx": rpc error: code = DeadlineExceeded'),
    "pulling": PULLING,
    "pulling after a warning": together(warned("FailedMount", "failed to sync configmap cache"), PULLING),
    "a claim": lambda found: found.update(
        PersistentVolumeClaim=[{"metadata": {"name": "nowhere"}, "status": {"phase": "Pending"}}]
    ),
    "nodes that do not answer": two_do_not_answer,
    "nodes before their fabric test": each("Node", tainted("trainium-eks/fabric-untested")),
    "a node that is gone": CREATING,
}  # fmt: skip
GIVEN = {
    None: {},
    "small groups": {"groups": tuple(group.model_copy(update={"max_size": 4}) for group in GROUPS)},
    "a local stack": {"is_local": True},
    "one group": {"groups": GROUPS[:1]},
    "no Volcano": {"unscheduled": "vc-scheduler is not on PATH"},
}
ROWS = yaml.safe_load((Path(__file__).parent / "waiting.yaml").read_text())


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['scene']} {row.get('change', '')}" for row in ROWS])
def test_waiting_reason_and_fix_are_those_of_the_table(row):
    change = pods_wait(**row["pods"]) if "pods" in row else CHANGES[row.get("change")]
    reason = waits(row["scene"], row["job"], change, **GIVEN[row.get("given")])
    assert reason.to_json() == {key: row[key] for key in ("cause", "sentence", "fix", "fault")}
