"""Why a job waits, by what a real Volcano said of jobs (``scenes``), and by what kubelets say."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from recorded_scenes import GROUPS, Change, Snapshot, of

from trainium_eks.jobs.explain.reason import Cause, Reason
from trainium_eks.jobs.explain.why_pending import why, why_ended

RECORDED = yaml.safe_load((Path(__file__).parent / "waiting.yaml").read_text())


def waits(name: str, job: str, change: Change | None = None, **rest: Any) -> Reason:
    reason = why(of(name, job, change, **rest))
    assert reason is not None
    return reason


@pytest.mark.parametrize("row", RECORDED, ids=[row["scene"] for row in RECORDED])
def test_what_volcano_leaves_unsaid_is_said(row: Mapping[str, str]) -> None:
    reason = waits(row["scene"], row["job"])
    assert reason.to_json() == {key: row[key] for key in ("cause", "sentence", "fix", "fault")}


@pytest.mark.parametrize(
    ("name", "job"),
    [
        *(("running", "alpha"), ("queue_full", "alpha"), ("topology_fragmented", "one")),
        *((each, "run") for each in ("restarted", "completed", "failed", "aborted")),
    ],
)
def test_a_job_that_runs_or_has_ended_waits_for_nothing(name: str, job: str) -> None:
    assert why(of(name, job)) is None


UNREAD = {"Node": None, "Queue": None, "HyperNode": None, "PersistentVolumeClaim": None}


def only(prefix: str) -> Change:
    """Other teams' pods are not seen."""

    def change(found: Snapshot) -> None:
        found["Pod"] = [pod for pod in found["Pod"] if pod["metadata"]["name"].startswith(prefix)]

    return change


def of_group(message: str) -> Change:
    def change(found: Snapshot) -> None:
        for group in found["PodGroup"]:
            group["status"]["conditions"] = [{"type": "Unschedulable", "message": message}]

    return change


RELEASING = of_group("2/1 tasks in gang unschedulable: pod group is not ready, 1 Releasing, 2 minAvailable")
SMALL_GROUPS = tuple(group.model_copy(update={"max_size": 4}) for group in GROUPS)


# --- What a researcher does not see -----------------------------------------------------------------------------------


def test_other_teams_share_of_a_queue_is_what_its_own_jobs_do_not_explain() -> None:
    reason = waits("queue_full", "beta", only("beta"))
    assert reason.sentence.endswith("32 are in use by other teams' jobs (32), and it needs 16")
    assert reason.fix == "wait for other teams' jobs"


def test_pods_of_the_team_that_are_being_ended_are_no_other_teams() -> None:
    def alpha_ends(found: Snapshot) -> None:
        for pod in found["Pod"]:
            if pod["metadata"]["name"].startswith("alpha"):
                pod["metadata"]["deletionTimestamp"] = found["now"]

    reason = waits("queue_full", "beta", alpha_ends)
    assert reason.cause is Cause.ENDING
    assert reason.sentence.endswith("in use by pods of alpha that are being ended (32), and it needs 16")


def test_volcanos_counts_are_in_one_order() -> None:
    def saying(*counts: str) -> Change:
        def change(found: Snapshot) -> None:
            found |= {**UNREAD, "Event": []}
            for pod in found["Pod"]:
                pod["status"]["conditions"] = []
            ready = f"pod group is not ready, {', '.join(counts)}; Pending: 1 Lost"
            of_group(f"3/3 tasks in gang unschedulable: {ready}")(found)

        return change

    one = waits("no_nodes", "zeta", saying("2 Pending", "1 Bound"))
    assert "1 Bound, 2 Pending; Pending: 1 Lost" in one.sentence
    assert one == waits("no_nodes", "zeta", saying("1 Bound", "2 Pending"))


def test_nodes_that_look_free_may_be_held_by_other_teams() -> None:
    reason = waits("capacity_partly", "delta", only("delta"))
    assert reason.cause is Cause.CAPACITY
    held = "other teams' jobs hold 32 aws.amazon.com/neuron"
    assert reason.sentence == f"it needs 3 nodes of trn1.32xlarge to itself, and {held}"
    assert reason.fix == "wait for them, or trn scale ng1 5"


def test_what_may_not_be_read_is_left_to_volcanos_own_words() -> None:
    reason = waits("no_nodes", "zeta", lambda found: found.update(UNREAD))
    assert reason.cause is Cause.UNKNOWN
    assert reason.sentence.startswith("Volcano says: 0/7 nodes are unavailable: 3 Insufficient aws.amazon.com/neuron")
    reason = waits("kept_back_behind", "chi", lambda found: found.update(Node=None))
    assert reason.sentence.startswith("Volcano says: resource in cluster is overused: overused cpu, overused memory")


def test_a_job_that_is_kept_back_has_been_looked_at() -> None:
    """Without pods nothing but its PodGroup's phase tells."""

    def at_once(found: Snapshot) -> None:
        [job] = found["Job"]
        found["now"] = job["metadata"]["creationTimestamp"]

    reason = waits("kept_back_by_queue", "upsilon", at_once)
    assert reason.cause is Cause.QUEUE


def test_a_job_that_can_never_be_placed_is_not_told_to_wait() -> None:
    """One node too many for its group, while another job is in its queue."""

    def seven_nodes(found: Snapshot) -> None:
        next(job for job in found["Job"] if job["metadata"]["name"] == "beta")["spec"]["tasks"][0]["replicas"] = 7
        queue = next(each for each in found["Queue"] if each["metadata"]["name"] == "test")
        queue["spec"]["capability"]["aws.amazon.com/neuron"] = 128

    reason = waits("queue_full", "beta", seven_nodes)
    assert reason.sentence == "it needs 7 nodes of trn1.32xlarge, and ng1 can have 6 at most: it is never placed"
    assert reason.fix == "ask for at most 6 nodes, or have `maxSize` of ng1 raised"


def test_a_group_at_its_most_is_not_told_to_grow() -> None:
    never = waits("capacity_never", "epsilon", groups=SMALL_GROUPS)
    assert never.fix == "ask for at most 4 nodes, or have `maxSize` of ng1 raised"
    assert waits("capacity_partly", "delta", groups=SMALL_GROUPS).fix == "wait for alpha"


def test_a_group_that_can_grow_to_the_gang_but_not_beyond_busy_nodes_grows_and_waits() -> None:
    def two_nodes(found: Snapshot) -> None:
        held = {pod["spec"].get("nodeName") for pod in found["Pod"]}
        found["Node"] = [node for node in found["Node"] if node["metadata"]["name"] in held]

    reason = waits("capacity_partly", "delta", two_nodes, groups=SMALL_GROUPS)
    assert reason.sentence == "it needs 3 nodes of trn1.32xlarge, and 2 are there"
    assert reason.fix == "trn scale ng1 4, and wait for alpha"


def test_a_type_that_no_group_has_is_said() -> None:
    reason = waits("no_nodes", "zeta", groups=GROUPS[:1])
    assert reason.fix.startswith("no node group of the stack has trn1n.32xlarge")


# --- Quotas -----------------------------------------------------------------------------------------------------------


def held_by_quota(requested: str, used: str, limited: str) -> Change:
    """As the scheduler's plugin ``resourcequota`` writes it (Volcano 1.15.0)."""

    def change(found: Snapshot) -> None:
        [group] = found["PodGroup"]
        maps = f"requested: map[{requested}], used: map[{used}], limited: map[{limited}]"
        about = {"kind": "PodGroup", "uid": group["metadata"]["uid"]}
        event = {"metadata": {"name": "held"}, "involvedObject": about, "lastTimestamp": found["now"]}
        found["Event"].append(event | {"message": f"resource quota insufficient, {maps}", "reason": "Unschedulable"})

    return change


@pytest.mark.parametrize(
    ("amounts", "sentence", "fix"),
    [
        (
            [f"pods:{{{{{count} 0}} {{<nil>}} {count} DecimalSI}}" for count in (4, 162, 164)],
            "the namespace's quota has no room for it: it needs 4 pods, of which 162 of 164 are in use",
            "end something (`trn jobs`), ask for less, or have `resourceQuota` of the namespace raised",
        ),
        (
            [
                "requests.cpu:{{16400 -3} {<nil>}  DecimalSI}",
                "requests.cpu:{{0 0} {<nil>} 0 DecimalSI}",
                "requests.cpu:{{8 0} {<nil>} 8 DecimalSI}",
            ],
            "the namespace's quota has no room for it: it needs 16400m requests.cpu, of which 0 of 8 are in use",
            "it never starts: ask for less requests.cpu, or have `resourceQuota` of the namespace raised",
        ),
    ],
)
def test_a_job_that_is_held_back_for_the_quota_says_what_it_lacks(
    amounts: Sequence[str], sentence: str, fix: str
) -> None:
    reason = waits("kept_back_by_queue", "upsilon", held_by_quota(*amounts))
    assert reason.to_json() == {"cause": "quota", "sentence": sentence, "fix": fix, "fault": reason.fault}
    assert reason.fault in ("quota-full", "quota-too-small")


def test_a_job_that_volcano_ended_for_the_quota_says_so() -> None:
    def given_up(found: Snapshot) -> None:
        [job] = found["Job"]
        job["status"]["state"]["phase"] = "Terminated"
        about = {"kind": "Job", "uid": job["metadata"]["uid"]}
        event = {"metadata": {"name": "end"}, "involvedObject": about, "lastTimestamp": found["now"]}
        found["Event"].append(event | {"message": "Job failed on action SyncJob for retry limit reached"})

    ended = of("quota", "nu", given_up)
    assert why(ended) is None
    reason = why_ended(ended)
    assert reason is not None
    assert reason.cause is Cause.QUOTA
    assert "gave up making its pods: the namespace's quota team is used up" in reason.sentence
    assert why_ended(of("failed", "run")) is None


# --- Volcano itself ---------------------------------------------------------------------------------------------------


def later(found: Snapshot) -> None:
    found["now"] = found["now"].replace("T05", "T06")


@pytest.mark.parametrize(
    ("name", "sentence", "log"),
    [
        ("controllers_down", "Volcano's controllers have not seen it for 3604 s", "deploy/volcano-controllers"),
        ("scheduler_down", "Volcano's scheduler has not looked at it for 3604 s", "deploy/volcano-scheduler"),
    ],
)
def test_a_volcano_that_hangs_is_told_from_one_that_has_not_looked_yet(name: str, sentence: str, log: str) -> None:
    assert waits(name, "rho").cause is Cause.STARTING
    reason = waits(name, "rho", later)
    assert reason.cause is Cause.VOLCANO
    assert reason.sentence.startswith(sentence)
    assert log in reason.fix
    assert "trn local logs vc-" in waits(name, "rho", later, is_local=True).fix


def test_a_machine_without_volcano_says_so() -> None:
    missing = "vc-scheduler is not on PATH"
    reason = waits("controllers_down", "rho", unscheduled=missing)
    assert reason.cause is Cause.VOLCANO
    assert reason.sentence == f"Volcano does not run here: {missing}; jobs are checked but not scheduled"


def test_pods_of_before_that_are_being_ended_are_waited_for() -> None:
    def releasing(found: Snapshot) -> None:
        RELEASING(found)
        found["Pod"] = found["Pod"][:1]

    reason = waits("running", "alpha", releasing)
    assert (reason.cause, reason.fix) == (Cause.ENDING, "")

    def leaving(found: Snapshot) -> None:
        found["Pod"] = found["Pod"][:1]
        found["Pod"][0]["metadata"]["deletionTimestamp"] = found["now"]

    reason = waits("running", "alpha", leaving)
    assert reason.sentence == "1 of its pods is being ended, and made anew after that"


# --- Kubelets ---------------------------------------------------------------------------------------------------------


def pods_wait(reason: str, message: str, image: str = "busybox") -> Change:
    def change(found: Snapshot) -> None:
        for pod in found["Pod"]:
            state = {"waiting": {"reason": reason, "message": message}}
            statuses = [{"name": "trainer", "image": image, "state": state}]
            pod["status"] = {"phase": "Pending", "containerStatuses": statuses}

    return change


ECR = "123456789012.dkr.ecr.us-west-2.amazonaws.com/training:nope"
MISSING = "trn image push, mend --image, or bring it over: trn image mirror {}"
NOT_FOUND = (
    f'rpc error: code = NotFound desc = failed to pull and unpack image "{ECR}": '
    f'failed to resolve reference "{ECR}": {ECR}: not found'
)
BACK_OFF = f'Back-off pulling image "{ECR}": ErrImagePull: {NOT_FOUND}'
DENIED = (
    'failed to pull and unpack image "docker.io/team/x:1": failed to resolve reference: pull access denied, repository '
    "does not exist or may require authorization: server message: insufficient_scope: authorization failed"
)
NO_ROUTE = 'failed to do request: Head "https://ghcr.io/v2/x": dial tcp 1.2.3.4:443: i/o timeout'


@pytest.mark.parametrize(
    ("said", "message", "image", "sentence", "fix"),
    [
        ("ErrImagePull", NOT_FOUND, ECR, "there is no image {}", MISSING),
        (
            "ImagePullBackOff",
            BACK_OFF,
            ECR,
            "there is no image {}",
            MISSING,
        ),
        (
            *("ErrImagePull", DENIED, "docker.io/team/x:1", "the registry refuses to give {} to the nodes"),
            "bring it over: trn image mirror {}; in ECR the nodes' role must be allowed to pull: trn image push",
        ),
        (
            *("ErrImagePull", f'failed to pull and unpack image "ghcr.io/x:1": {NO_ROUTE}', "ghcr.io/x:1"),
            f"the image {{}} cannot be pulled: {NO_ROUTE}",
            "a registry the nodes do not reach? Bring it into the stack's own: trn image mirror {}",
        ),
        (
            *("ErrImageNeverPull", "no such image", "local/torch", "this machine has no image {}"),
            "trn local images make torch; `trn local images` lists those it has",
        ),
        (
            *("ErrImageNeverPull", "no such image", "local/mine:abc", "this machine has no image {}"),
            "trn local images make mine --requirements FILE; `trn local images` lists those it has",
        ),
        (
            *("InvalidImageName", "couldn't parse image name", "A:B:C", "'{}' is no name of an image"),
            "submit it anew with a good --image",
        ),
    ],
    ids=["not-found", "back-off", "denied", "no-route", "local-torch", "local-own", "bad-name"],
)
def test_a_pod_that_has_a_node_waits_for_its_image(
    said: str, message: str, image: str, sentence: str, fix: str
) -> None:
    reason = waits("running", "alpha", pods_wait(said, message, image))
    assert (reason.cause, reason.sentence, reason.fix) == (Cause.IMAGE, sentence.format(image), fix.format(image))


def test_a_pod_that_has_a_node_waits_for_its_containers() -> None:
    reason = waits("running", "alpha", pods_wait("CreateContainerConfigError", 'secret "hf-token" not found'))
    assert reason.sentence == 'a container of alpha-trainer-0-0 cannot be made: secret "hf-token" not found'
    assert reason.fix == "trn secret --namespace NAMESPACE, or mend --hf-secret and submit anew: trn cancel alpha"
    assert reason.cause is Cause.CONFIG
    reason = waits("running", "alpha", pods_wait("ContainerCreating", ""))
    assert (reason.cause, reason.fix) == (Cause.STARTING, "")
    assert reason.sentence == "all its pods have nodes; 0 of 2 run already"


def events(reason: str, message: str) -> Callable[[Snapshot], None]:
    def change(found: Snapshot) -> None:
        pods_wait("ContainerCreating", "")(found)
        pod = found["Pod"][0]["metadata"]
        about = {"kind": "Pod", "name": pod["name"], "uid": pod["uid"]}
        event: dict[str, Any] = {"metadata": {"name": "e"}, "involvedObject": about, "lastTimestamp": found["now"]}
        found["Event"].append({**event, "type": "Warning", "reason": reason, "message": message})

    return change


def test_a_volume_that_does_not_mount_is_told_by_the_kubelets_events() -> None:
    words = 'MountVolume.SetUp failed for volume "fsx": rpc error: code = DeadlineExceeded'
    reason = waits("running", "alpha", events("FailedMount", words))
    assert reason.cause is Cause.VOLUME
    assert reason.sentence == f"a volume of alpha-trainer-0-0 does not mount: {words}"


LOST = 'MountVolume.SetUp failed for volume "files" : configmap "files" not found'


@pytest.mark.parametrize("said", [events("FailedMount", LOST), pods_wait("ContainerCreating", LOST)])
@pytest.mark.parametrize("phase", ["Running", "Restarting"])
def test_new_pods_that_wait_for_a_deleted_configmap_are_not_pods_of_before(phase: str, said: Change) -> None:
    """The PodGroup's condition and the job's phase are of the restart, the pods of now."""

    def restarted(found: Snapshot) -> None:
        said(found)
        RELEASING(found)
        found["Job"][0]["status"]["state"]["phase"] = phase

    reason = waits("running", "alpha", restarted)
    assert (reason.cause, reason.fault) == (Cause.VOLUME, "config-missing")


def test_pods_of_a_restart_that_are_refused_are_not_only_awaited() -> None:
    def restarting(found: Snapshot) -> None:
        found["Job"][0]["status"]["state"] = {"phase": "Restarting", "lastTransitionTime": found["now"]}
        event = {"metadata": {"name": "e"}, "involvedObject": {"uid": found["Job"][0]["metadata"]["uid"]}}
        said = 'Message:"pods is forbidden: exceeded quota: team, requested: pods=1, used: pods=4, limited: pods=4"'
        found["Event"] = [event | {"reason": "FailedCreate", "message": said, "lastTimestamp": found["now"]}]
        found["Pod"] = []

    reason = waits("running", "alpha", restarting)
    assert reason.fault == "quota-full"


def test_a_pod_that_has_had_a_node_for_long_is_overdue() -> None:
    def late(found: Snapshot) -> None:
        pods_wait("ContainerCreating", "")(found)
        later(found)

    reason = waits("running", "alpha", late)
    assert reason.fault == "container-not-made"
    assert "and does not run; no event says why" in reason.sentence


def test_pulling_is_progress_and_a_warning_from_before_is_over() -> None:
    def both(found: Snapshot) -> None:
        events("FailedMount", "failed to sync configmap cache: timed out")(found)
        events("Pulling", "Pulling image")(found)

    for change in (both, events("Pulling", 'Pulling image "busybox"')):
        reason = waits("running", "alpha", change)
        assert (reason.cause, reason.sentence) == (Cause.STARTING, "all its pods have nodes; 1 of 2 pull the image")


def test_a_claim_that_is_not_bound_holds_the_job() -> None:
    pending = {"metadata": {"name": "nowhere"}, "status": {"phase": "Pending"}}
    reason = waits("claim_missing", "iota", lambda found: found.update(PersistentVolumeClaim=[pending]))
    assert (reason.cause, reason.sentence) == (Cause.VOLUME, "its claim nowhere is Pending, not Bound")


def test_nodes_that_do_not_answer_are_told_from_nodes_that_are_not_there() -> None:
    def not_ready(found: Snapshot) -> None:
        for node in found["Node"][:2]:
            node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
            node["spec"]["taints"] = [{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]
        found["Node"] = found["Node"][:3]
        only("delta")(found)

    reason = waits("capacity_partly", "delta", not_ready)
    assert reason.cause is Cause.NODE
    assert reason.sentence == "it needs 3 nodes of trn1.32xlarge, and 2 of the 3 are not ready (trn-1 and trn-2)"


def test_closed_nodes_open_by_the_fabric_test_and_not_by_hand() -> None:
    def closed(found: Snapshot) -> None:
        for node in found["Node"]:
            node["spec"]["taints"] = [{"key": "trainium-eks/fabric-untested", "effect": "NoSchedule"}]

    reason = waits("taint", "rho", closed)
    assert reason.cause is Cause.TAINT
    assert reason.fix == (
        "they open when the fabric test has passed: kubectl -n fabric-gate logs deployment/fabric-gate"
    )


def test_a_pod_on_a_node_that_is_gone_waits_for_kubernetes_to_give_it_up() -> None:
    reason = waits("node_deleted", "lost", pods_wait("ContainerCreating", ""))
    assert reason.cause is Cause.NODE
    assert reason.sentence == "its node trn-1 is gone"
    assert "kubectl delete pod lost-trainer-" in reason.fix
