"""Reason why a job has not started, in one sentence, with the remedy. Pure functions of a snapshot.

Volcano's own words seldom say it. A job that its queue has no room for, that no switch has enough nodes for, or that
asks for more memory than there is, all get ``pod group is not ready, 3 Pending, 3 minAvailable`` (Volcano 1.15,
recorded in ``tests/unit/diagnose/snapshots``). So the queue, the nodes and the topology are reckoned anew here;
Volcano's words come last.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal

from trainium_eks.diagnose import why_no_room, why_not_started
from trainium_eks.diagnose.reason import Cause, Reason, fault_reason
from trainium_eks.jobs.observed.free_capacity import asks
from trainium_eks.jobs.observed.job_snapshot import ENDED, JobSnapshot, wanted_pods
from trainium_eks.kube.cluster import condition, is_bound, is_over, is_running, moment, name_of, when
from trainium_eks.model.sizing.quantities import quantity, shown
from trainium_eks.observe.faults.catalogue import in_message
from trainium_eks.observe.faults.fault import Speaker

_COMPUTED = (Cause.QUEUE, Cause.CAPACITY, Cause.TOPOLOGY, Cause.TAINT, Cause.NODE)
"""Causes that are reckoned from amounts, and not read."""

PATIENCE_SECONDS = 15
"""Time that Volcano may take to look at a job: its scheduler does each second."""

FORGOTTEN_SECONDS = 60
"""Time from a job's admission to its queue until its first pod, under any load that was measured (decision 96)."""

_RESTART_LOCAL_CONTROLLERS = "end the process vc-controller-manager, then trn local up"

_NO_QUOTA = re.compile(r"resource quota insufficient, requested: map\[(.*)\], used: map\[(.*)\], limited: map\[(.*)\]")
"""Message of the scheduler's plugin ``resourcequota`` about a job that it holds back (Volcano 1.15)."""

_AMOUNT = re.compile(r"(?P<name>[^\s:]+):\{\{(?P<value>-?\d+) (?P<scale>-?\d+)\} \{\S+\} (?P<text>\S*) \w+\}")
"""One amount in it, as Go prints a quantity: digits, power of ten, and its text, which may be missing."""

_GAVE_UP = "retry limit reached"
"""Text in the event of a job that Volcano's controllers have ended after 15 failed tries (1.15, ``handleJobError``)."""

_PLACED = re.compile(r"0/\d+ tasks in gang unschedulable")
"""Start of the condition of a gang that is being placed, or has no pods yet."""

_COUNTS = re.compile(r"\d+ [^,;:]+(?:, \d+ [^,;:]+)+")

_REFUSED = re.compile(r'Message:"(?P<message>(?:[^"\\]|\\.)*)"')


def why(snapshot: JobSnapshot) -> Reason | None:
    """Return the reason why a job is not running; None for a job that runs with all its pods, or has ended."""
    running = [pod for pod in snapshot.pods if is_running(pod) or pod.get("status", {}).get("phase") == "Succeeded"]
    is_complete = snapshot.pods and len(snapshot.pods) == len(running) >= wanted_pods(snapshot.job)
    if snapshot.phase in ENDED or is_complete:
        return None
    reason = next(_reasons(snapshot), None)
    return _unknown(snapshot) if reason is None else _with_words(snapshot, reason)


def _with_words(snapshot: JobSnapshot, reason: Reason) -> Reason:
    """Return a computed reason with the scheduler's words at its end, where these say something: a wrong computation
    shows beside them."""
    words = _telling(snapshot) if reason.cause in _COMPUTED else ()
    return replace(reason, sentence=f"{reason.sentence} (Volcano says: {words[0]})") if words else reason


def why_ended(snapshot: JobSnapshot) -> Reason | None:
    """Return the reason of an end that no program caused: a node's kubelet ended a pod, or Volcano gave up making the
    job's pods; None for a job with another end."""
    if snapshot.phase not in ENDED or snapshot.phase == "Completed":
        return None
    if ended := next(filter(None, map(why_not_started.ended_by_node, snapshot.pods)), None):
        return ended
    if not any(_GAVE_UP in str(event.get("message")) for event in snapshot.events):
        return None
    reason = next(_refused(snapshot), None)
    if reason is None:
        return None
    fix = "when the quota has room, submit it again" if reason.cause is Cause.QUOTA else reason.fix
    return Reason(reason.cause, f"Volcano gave up making its pods: {reason.sentence}", fix, reason.fault)


def _reasons(snapshot: JobSnapshot) -> Iterator[Reason]:
    """Yield the reasons that hold the job, the nearest cause first."""
    yield from _leaving(snapshot)
    yield from _queue_state(snapshot)
    yield from _refused(snapshot)
    yield from _held_by_quota(snapshot)
    yield from why_not_started.reasons(snapshot)
    yield from _between(snapshot)
    if all(map(is_bound, snapshot.pods)) and len(snapshot.pods) >= wanted_pods(snapshot.job):
        return
    yield from why_not_started.claims(snapshot)
    wanted = asks(snapshot)
    # Without pods and without a verdict, Volcano has not judged it: the estimate below would be a guess.
    if not _is_judged(snapshot):
        yield from _not_scheduled(snapshot)
    yield from _forgotten(snapshot)
    yield from why_no_room.reasons(snapshot, wanted)
    yield from _kept_back(snapshot)


def _leaving(snapshot: JobSnapshot) -> Iterator[Reason]:
    """Yield a reason for pods that leave. The phase alone tells only why they do: it changes before and after them."""
    leaving = [pod for pod in snapshot.pods if pod["metadata"].get("deletionTimestamp")]
    left = "1 pod is" if len(snapshot.pods) == 1 else f"{len(snapshot.pods)} pods are"
    if snapshot.phase in ("Aborting", "Terminating") or snapshot.job["metadata"].get("deletionTimestamp"):
        yield Reason(Cause.ENDING, f"it is being ended: {left} still there, each with its grace period", "")
    elif snapshot.phase in ("Restarting", "Completing") and (leaving or any(map(is_over, snapshot.pods))):
        verb = "restarted" if snapshot.phase == "Restarting" else "completed"
        yield Reason(Cause.ENDING, f"it is being {verb}: {left} still there", "")
    elif leaving:
        pods = "1 of its pods is" if len(leaving) == 1 else f"{len(leaving)} of its pods are"
        yield Reason(Cause.ENDING, f"{pods} being ended, and recreated after that", "")


def _between(snapshot: JobSnapshot) -> Iterator[Reason]:
    """Yield a reason for a gang between two tries: a pod has failed, or old pods are gone and some new ones missing."""
    for pod in snapshot.pods:
        if (pod.get("status") or {}).get("phase") == "Failed":
            ended = why_not_started.ended_by_node(pod)
            sentence = ended.sentence if ended else f"{name_of(pod)} has failed"
            fix = f"trn doctor {snapshot.name}"
            yield Reason(Cause.UNKNOWN, f"{sentence}; Volcano has not restarted or ended the job for it", fix)
    if len(snapshot.pods) >= wanted_pods(snapshot.job):
        return
    if any(" Releasing" in text for text in _of_gang(snapshot)):
        # The queue's allocation still holds those pods.
        yield Reason(Cause.ENDING, "its previous pods are being ended: it starts after that", "")
    elif snapshot.phase == "Restarting":
        count = (snapshot.job.get("status") or {}).get("retryCount", 0)
        sentence = f"it restarts for the {_ordinal(count)} time: its new pods are not made yet"
        yield Reason(Cause.STARTING, sentence, "")


def _queue_state(snapshot: JobSnapshot) -> Iterator[Reason]:
    name = snapshot.job["spec"].get("queue") or "default"
    if snapshot.queues is None or snapshot.unscheduled:
        return
    queue = next((each for each in snapshot.queues if name_of(each) == name), None)
    if queue is None:
        known = ", ".join(sorted(name_of(each) for each in snapshot.queues if name_of(each) not in ("root", "default")))
        deploy = "trn local up" if snapshot.is_local else "pulumi up"
        sentence = f"there is no queue {name}"
        yield fault_reason(Cause.QUEUE, "queue-missing", sentence, queues=known or "the stack", deploy=deploy)
    elif (state := (queue.get("status") or {}).get("state", "Open")) not in ("Open", "", "Unknown"):
        sentence = f"queue {name} is {state.lower()} and starts no jobs"
        yield fault_reason(Cause.CLOSED, "queue-closed", sentence, queue=name)


def _refused(snapshot: JobSnapshot) -> Iterator[Reason]:
    """Yield a reason if the API server refuses the pods that Volcano creates, as seen in the job's events."""
    if len(snapshot.pods) >= wanted_pods(snapshot.job):
        return
    said = [event for event in snapshot.events if event.get("reason") == "FailedCreate"]
    if snapshot.phase == "Restarting":  # what was refused before is history
        said = [event for event in said if when(event) >= moment(snapshot.job["status"]["state"]["lastTransitionTime"])]
    messages = [found["message"] for event in said if (found := _REFUSED.search(event.get("message", "")))]
    if not messages:
        return
    message = messages[-1].replace('\\"', '"')
    _, _, why_refused = message.partition(" is forbidden: ")
    made = f"{len(snapshot.pods)} of {wanted_pods(snapshot.job)} pods were made"
    quota = re.search(r"exceeded quota: (\S+), requested: (\S+), used: (\S+), limited: (\S+)", message)
    if quota:
        name, requested, used, limited = quota.groups()
        yield fault_reason(
            Cause.QUOTA,
            "quota-full",
            f"the namespace's quota {name} is used up: {made}, the next one needs {requested}, {used} of "
            f"{limited.rpartition('=')[2]} are in use",
        )
        return
    known = in_message(message, Speaker.ADMISSION)
    yield fault_reason(
        Cause.REFUSED,
        known.name if known else "pods-refused",
        f"the API server refuses its pods: {why_refused or message}",
        job=snapshot.name,
        deploy="trn local up" if snapshot.is_local else "pulumi up",
    )


def _held_by_quota(snapshot: JobSnapshot) -> Iterator[Reason]:
    """Yield a reason if the scheduler lets no pods be created for the job, because the quota would not hold them
    all."""
    if not _is_kept_back(snapshot):
        return
    events = [found for event in snapshot.events if (found := _NO_QUOTA.search(str(event.get("message"))))]
    if not events:
        return
    requested, used, limited = map(_amounts, events[-1].groups())
    lacking = [
        f"{shown(amount)} {name}, of which {shown(used.get(name, Decimal(0)))} of {shown(limited[name])} are in use"
        for name, amount in requested.items()
        if name in limited
    ]
    never = [name for name, amount in requested.items() if name in limited and amount > limited[name]]
    fault = "quota-too-small" if never else "quota-full"
    sentence = f"the namespace's quota has no room for it: it needs {'; '.join(lacking)}"
    yield fault_reason(Cause.QUOTA, fault, sentence, resources=", ".join(never))


def _amounts(text: str) -> dict[str, Decimal]:
    """Return the amounts of a Go map of quantities, by resource."""
    return {
        found["name"]: (quantity(found["text"]) if found["text"] else None)
        or Decimal(found["value"]).scaleb(int(found["scale"]))
        for found in _AMOUNT.finditer(text)
    }


def _is_judged(snapshot: JobSnapshot) -> bool:
    """Return whether Volcano's scheduler has looked at the job."""
    if snapshot.podgroup is None:
        return False
    status = snapshot.podgroup.get("status") or {}
    if _is_kept_back(snapshot) or any(each.get("type") == "Unschedulable" for each in status.get("conditions") or ()):
        return True
    return any(condition(pod, "PodScheduled") for pod in snapshot.pods)


def _not_scheduled(snapshot: JobSnapshot) -> Iterator[Reason]:
    if snapshot.unscheduled:
        sentence = f"Volcano does not run here: {snapshot.unscheduled}; jobs are checked but not scheduled"
        yield fault_reason(Cause.VOLCANO, "volcano-absent", sentence)
        return
    where = "trn local logs {}" if snapshot.is_local else "kubectl -n volcano-system logs deploy/volcano-{}"
    if snapshot.age_seconds < PATIENCE_SECONDS:
        yield Reason(Cause.STARTING, "it was submitted a moment ago, and Volcano has not judged it yet", "")
    elif not snapshot.phase:
        log = where.format("vc-controller-manager" if snapshot.is_local else "controllers")
        sentence = f"Volcano's controllers have not seen it for {snapshot.age_seconds:.0f} s: "
        sentence += "they do not run, or lag far behind"
        yield fault_reason(Cause.VOLCANO, "volcano-controllers-silent", sentence, log=log)
    elif not (snapshot.podgroup or {}).get("status", {}).get("phase"):
        log = where.format("vc-scheduler" if snapshot.is_local else "scheduler")
        sentence = f"Volcano's scheduler has not looked at it for {snapshot.age_seconds:.0f} s: "
        sentence += "it does not run, or hangs"
        yield fault_reason(Cause.VOLCANO, "volcano-scheduler-silent", sentence, log=log)


def _forgotten(snapshot: JobSnapshot) -> Iterator[Reason]:
    """Yield a reason if the scheduler has let the job in and its controllers make no pods: a PodGroup that was let
    in before they saw it never changes again, and only a change wakes its job (volcano#5325)."""
    phase = ((snapshot.podgroup or {}).get("status") or {}).get("phase")
    if phase != "Inqueue" or snapshot.phase != "Pending" or snapshot.pods:
        return
    metadata = (snapshot.podgroup or snapshot.job)["metadata"]
    changed = [each["time"] for each in metadata.get("managedFields") or () if "time" in each]
    silent = (snapshot.now - max(map(moment, [metadata["creationTimestamp"], *changed]))).total_seconds()
    if silent > FORGOTTEN_SECONDS:
        sentence = f"Volcano's scheduler let it in, and its controllers have made no pod in {silent:.0f} s"
        restart = _RESTART_LOCAL_CONTROLLERS if snapshot.is_local else ""
        yield fault_reason(Cause.VOLCANO, "volcano-controllers-missed-it", sentence, job=snapshot.name, restart=restart)


def _is_kept_back(snapshot: JobSnapshot) -> bool:
    """Return whether the scheduler lets no pods be created for the job: its action `enqueue` has looked, and left it
    ``Pending``."""
    phase = ((snapshot.podgroup or {}).get("status") or {}).get("phase")
    return phase == "Pending" and not snapshot.pods and not snapshot.unscheduled


def _kept_back(snapshot: JobSnapshot) -> Iterator[Reason]:
    """Yield a reason if the job would fit beside the running jobs. Volcano reserves room for whole gangs in the order
    of their admission, even for gangs that no node suits (plugins ``overcommit``, ``proportion`` and ``capacity``)."""
    if _is_kept_back(snapshot) and snapshot.nodes is not None and snapshot.queues is not None:
        sentence = "there is room for it, which Volcano keeps for jobs that it has let in before and that still wait"
        yield fault_reason(Cause.QUEUE, "room-reserved", sentence)


def _unknown(snapshot: JobSnapshot) -> Reason:
    """Return Volcano's own words as the reason, when no better one is known."""
    words = [*_telling(snapshot), *_words(snapshot)]
    if words:
        return Reason(Cause.UNKNOWN, f"Volcano says: {words[0]}", f"kubectl describe vcjob {snapshot.name}")
    unread = [kind for kind in ("queues", "nodes", "claims") if getattr(snapshot, kind) is None]
    sentence = "nothing that was read holds it" + (f" (not read: {', '.join(unread)})" if unread else "")
    return Reason(Cause.STARTING, sentence, "")


def _words(snapshot: JobSnapshot) -> list[str]:
    texts = [condition(pod, "PodScheduled").get("message", "") for pod in snapshot.pods if not is_bound(pod)]
    texts += _of_gang(snapshot)
    texts += [
        event.get("message", "")
        for event in sorted(snapshot.events, key=when, reverse=True)
        if event.get("reason") in ("FailedScheduling", "Unschedulable")
    ]
    return [_COUNTS.sub(_in_order, text) for text in texts if text and not _PLACED.match(text)]


def _telling(snapshot: JobSnapshot) -> list[str]:
    """Return the words about a pod's own troubles, which say more than the gang's."""
    return [each for each in _words(snapshot) if "pod group is not ready" not in each and "can possibly" not in each]


def _in_order(counts: re.Match[str]) -> str:
    """Return counts such as ``2 Pending, 1 Running`` in one order: Volcano's changes from second to second."""
    return ", ".join(sorted(counts[0].split(", ")))


def _of_gang(snapshot: JobSnapshot) -> list[str]:
    """Return Volcano's messages about the gang as a whole."""
    conditions = (snapshot.podgroup or {}).get("status", {}).get("conditions") or ()
    return [str(each.get("message", "")) for each in conditions if each.get("type") == "Unschedulable"]


def _ordinal(count: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(count % 10, "th") if count % 100 not in (11, 12, 13) else "th"
    return f"{count}{ending}"
