"""The starts, restarts and ends of a pod's containers: the rules of the kubelet, without a process or a clock.

A :class:`Lifecycle` takes events with their time, and returns the next steps. Times are seconds since the epoch. Source
of the rules: Kubernetes' documentation, "Pod Lifecycle", "Init Containers".
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from trainium_eks.local.spec.plan import Action, Container, PodPlan, Probe, RestartPolicy

BACK_OFF_SECONDS = 10.0
"""Wait before the second restart; it doubles with each further one. The first restart is at once."""
BACK_OFF_LIMIT_SECONDS = 300.0
BACK_OFF_FORGOTTEN_SECONDS = 600.0
"""Run time from which a container is restarted at once again."""

KILLED = 137
"""Exit code after SIGKILL, as container runtimes report it."""


class CheckKind(StrEnum):
    """The kinds of probes and hooks."""

    STARTUP = "startup"
    READINESS = "readiness"
    LIVENESS = "liveness"
    POST_START = "postStart"
    PRE_STOP = "preStop"


@dataclass(frozen=True)
class Start:
    """The step to start a container."""

    container: Container
    restart: int
    """Number of earlier starts."""


@dataclass(frozen=True)
class CheckRun:
    """The step to run a probe or hook; :meth:`Lifecycle.found` takes the outcome."""

    container: Container
    kind: CheckKind
    action: Action
    timeout_seconds: float


@dataclass(frozen=True)
class Signal:
    """The step to send SIGTERM to a container, or with ``force`` SIGKILL to all its processes."""

    container: Container
    force: bool


Step = Start | CheckRun | Signal


@dataclass(frozen=True)
class ContainerEnd:
    """The end of a container."""

    exit_code: int
    reason: str = ""
    """``Completed`` or ``Error`` by the code when empty."""
    message: str = ""


@dataclass
class _Probe:
    """A probe of one run of a container."""

    kind: CheckKind
    probe: Probe
    next_time: float
    passed: bool
    running: bool = False
    successes: int = 0
    failures: int = 0


@dataclass
class _Status:
    """The state of one container."""

    plan: Container
    state: str = "waiting"  # or running, terminated
    reason: str = "PodInitializing"
    message: str = ""
    exit_code: int = 0
    started_at: float = 0.0
    finished_at: float = 0.0
    restarts: int = 0
    last: dict[str, Any] | None = None
    probes: dict[CheckKind, _Probe] = field(default_factory=dict)
    hook_running: bool = False
    back_off: float = 0.0
    start_at: float | None = None
    """When to start it again; at once when None."""
    is_starting: bool = False
    """Whether a start was ordered that is not reported as done yet."""
    is_done: bool = False
    """It ended and is never started again."""
    kill_at: float | None = None
    """When SIGKILL follows the SIGTERM that was sent, or that waits for the preStop hook."""
    term_sent: bool = False
    killed: bool = False

    @property
    def started(self) -> bool:
        startup = self.probes.get(CheckKind.STARTUP)
        is_up = self.state == "running" and not self.is_starting and not self.hook_running
        return is_up and (startup is None or startup.passed)

    @property
    def ready(self) -> bool:
        readiness = self.probes.get(CheckKind.READINESS)
        return self.started and (readiness is None or readiness.passed)

    def terminated(self) -> dict[str, Any]:
        return {
            "exitCode": self.exit_code,
            "reason": self.reason,
            "message": self.message,
            "startedAt": self.started_at,
            "finishedAt": self.finished_at,
        }


class Lifecycle:
    """The lifecycle of one pod."""

    def __init__(self, plan: PodPlan, now: float, before: Mapping[str, Any] | None = None) -> None:
        """Begin the lifecycle of a pod.

        ``before`` is :meth:`to_json` of a shim that was lost with all its processes; its restarts still count.
        """
        self._plan = plan
        self._init = [_Status(each) for each in plan.init]
        self._main = [_Status(each) for each in plan.containers]
        self._begun = float(before["begunAt"]) if before else now
        self._stop_at: float | None = None
        self._kill_at = float("inf")
        self.reason = ""
        self.message = ""
        for status in self._all() if before else ():
            self._go_on(status, (before or {})["containers"].get(status.plan.name) or {}, now)

    # --- Steps ----------------------------------------------------------------------------------------------------

    def steps(self, now: float) -> list[Step]:
        """Return the next steps. To be called after each event, and at :meth:`next_time`."""
        made: list[Step] = []
        deadline = self._plan.deadline_seconds
        if deadline is not None and not self.stopping and now >= self._begun + deadline:
            self.stop(now, self._plan.grace_seconds, "DeadlineExceeded", "Pod was active longer than its deadline")
        if self.stopping:
            for status in self._all():
                if status.state == "running" and status.kill_at is None:
                    status.kill_at = self._kill_at
        else:
            made += self._start_steps(now)
        for status in self._all():
            made += self._probe_steps(status, now)
            made += self._kill_steps(status, now)
        return made

    def next_time(self) -> float:
        """Return the latest time for the next call of :meth:`steps`."""
        times = [float("inf")]
        if self._plan.deadline_seconds is not None and not self.stopping:
            times.append(self._begun + self._plan.deadline_seconds)
        for status in self._all():
            if status.kill_at is not None and not status.killed:
                times.append(status.kill_at)
            if status.state == "waiting" and status.start_at is not None:
                times.append(status.start_at)
            if status.state == "running" and not self.stopping:
                times += [each.next_time for each in status.probes.values() if _is_due_later(status, each)]
        return min(times)

    @property
    def stopping(self) -> bool:
        """Return whether the whole pod is being ended."""
        return self._stop_at is not None

    @property
    def is_ended(self) -> bool:
        """Return whether no container runs or will run."""
        if any(each.state == "running" for each in self._all()):
            return False
        return self.stopping or self._is_over()

    # --- Events ---------------------------------------------------------------------------------------------------

    def started(self, name: str, now: float) -> Iterable[Step]:
        """Take note that a container runs now; return the next steps."""
        status = self._status(name)
        status.state, status.reason, status.message, status.started_at = "running", "", "", now
        status.start_at, status.kill_at, status.term_sent, status.killed = None, None, False, False
        status.is_starting = False
        plan = status.plan
        status.probes = {
            kind: _Probe(kind, probe, now + probe.initial_delay_seconds, passed=kind is CheckKind.LIVENESS)
            for kind, probe in (
                (CheckKind.STARTUP, plan.startup),
                (CheckKind.READINESS, plan.readiness),
                (CheckKind.LIVENESS, plan.liveness),
            )
            if probe is not None
        }
        if plan.post_start is not None:
            status.hook_running = True
            return [CheckRun(plan, CheckKind.POST_START, plan.post_start, self._plan.grace_seconds)]
        return []

    def ended(self, name: str, ended: ContainerEnd, now: float) -> None:
        """Take note that a container has ended, or could not be started."""
        status = self._status(name)
        begun = status.started_at if status.state == "running" else now
        status.state, status.exit_code, status.finished_at, status.started_at = (
            "terminated",
            ended.exit_code,
            now,
            begun,
        )
        status.reason = ended.reason or ("Completed" if ended.exit_code == 0 else "Error")
        # A container that a probe killed has no message; the probe's message replaces it.
        status.message = ended.message or (status.message if status.kill_at is not None else "")
        status.hook_running, status.is_starting, status.kill_at, status.probes = False, False, None, {}
        self._decide(status, now)

    def report_check(self, name: str, kind: CheckKind, passed: bool, now: float, message: str = "") -> None:
        """Take the outcome of a probe or a hook."""
        status = self._status(name)
        if kind is CheckKind.PRE_STOP:
            status.hook_running = False
            return
        if kind is CheckKind.POST_START:
            status.hook_running = False
            if not passed and status.state == "running":
                self._kill(status, now, self._plan.grace_seconds, f"postStart hook failed: {message}")
            return
        probed = status.probes.get(kind)
        if probed is None or status.state != "running":
            return  # of a run that is over
        probed.running = False
        probed.next_time = now + probed.probe.period_seconds
        probed.successes, probed.failures = (probed.successes + 1, 0) if passed else (0, probed.failures + 1)
        if passed and probed.successes >= probed.probe.success_threshold:
            probed.passed = True
        elif not passed and probed.failures >= probed.probe.failure_threshold:
            probed.passed = False
            if kind is not CheckKind.READINESS and status.kill_at is None and not self.stopping:
                grace = probed.probe.grace_seconds
                why = f"{kind.value} probe failed: {message}"
                self._kill(status, now, self._plan.grace_seconds if grace is None else grace, why)

    def stop(self, now: float, grace_seconds: float, reason: str = "", message: str = "") -> None:
        """End the pod; a second call with a shorter time ends it sooner.

        The grace period is between SIGTERM and SIGKILL, the preStop hook included. The reason is empty for a deleted
        pod.
        """
        if self._stop_at is None:
            self._stop_at, self.reason, self.message = now, reason, message
        self._kill_at = min(self._kill_at, now + grace_seconds)
        for status in self._all():
            if status.kill_at is not None:
                status.kill_at = min(status.kill_at, self._kill_at)

    # --- State ----------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Return all data for a pod's status."""
        return {
            "begunAt": self._begun,
            "ended": self.is_ended,
            "stopping": self.stopping,
            "reason": self.reason,
            "message": self.message,
            "initialized": all(_is_past(each) for each in self._init),
            "containers": {each.plan.name: _container_state(each) for each in self._all()},
        }

    # --- Inside ---------------------------------------------------------------------------------------------------

    def _all(self) -> list[_Status]:
        return self._init + self._main

    def _status(self, name: str) -> _Status:
        return next(each for each in self._all() if each.plan.name == name)

    def _go_on(self, status: _Status, before: Mapping[str, Any], now: float) -> None:
        """Restore a container after the loss of its shim. A running one has ended; an ended one restarts by policy."""
        status.restarts = int(before.get("restartCount") or 0)
        status.last = before.get("last")
        state = before.get("state")
        if state not in ("running", "terminated"):
            return
        status.started_at = float(before.get("startedAt") or now)
        if state == "terminated":
            status.state, status.reason = "terminated", str(before.get("reason") or "")
            status.exit_code, status.message = int(before["exitCode"]), str(before.get("message") or "")
            status.finished_at = float(before.get("finishedAt") or now)
            status.is_done = True
            if not self._may_restart(status):
                return
        else:
            status.state, status.exit_code, status.finished_at = "terminated", KILLED, now
            status.reason = "ContainerStatusUnknown"
            status.message = "The container was lost with the process that looked after it"
        self._decide(status, now)

    def _start_steps(self, now: float) -> list[Step]:
        made: list[Step] = []
        for status in self._init:
            made += self._start_if_due(status, now)
            if not _is_past(status):
                return made
        for status in self._main:
            made += self._start_if_due(status, now)
        return made

    def _start_if_due(self, status: _Status, now: float) -> list[Step]:
        if status.state != "waiting" or now < (status.start_at or 0) or self._is_failed():
            return []
        status.state, status.started_at, status.is_starting = "running", now, True
        return [Start(status.plan, status.restarts)]

    def _kill(self, status: _Status, now: float, grace_seconds: float, why: str = "") -> None:
        status.kill_at = now + grace_seconds
        status.message = why

    def _kill_steps(self, status: _Status, now: float) -> list[Step]:
        if status.state != "running" or status.kill_at is None or status.killed:
            return []
        if now >= status.kill_at:
            status.killed = True
            return [Signal(status.plan, force=True)]
        if status.term_sent:
            return []
        hook = status.plan.pre_stop
        if hook is not None and CheckKind.PRE_STOP not in status.probes:
            # Marked as done by a separate entry, so that it is run once.
            status.probes[CheckKind.PRE_STOP] = _Probe(CheckKind.PRE_STOP, Probe(hook), float("inf"), passed=True)
            status.hook_running = True
            return [CheckRun(status.plan, CheckKind.PRE_STOP, hook, max(status.kill_at - now, 0.1))]
        if hook is not None and status.hook_running:
            return []
        status.term_sent = True
        return [Signal(status.plan, force=False)]

    def _probe_steps(self, status: _Status, now: float) -> list[Step]:
        if status.state != "running" or status.kill_at is not None or self.stopping:
            return []
        made: list[Step] = []
        for probed in status.probes.values():
            if _is_due_later(status, probed) and now >= probed.next_time:
                probed.running = True
                made.append(CheckRun(status.plan, probed.kind, probed.probe.action, probed.probe.timeout_seconds))
        return made

    def _decide(self, status: _Status, now: float) -> None:
        """Decide after an end whether the container restarts, and when."""
        if self.stopping or not self._may_restart(status):
            status.is_done = True
            return
        lasted = status.finished_at - status.started_at
        if lasted >= BACK_OFF_FORGOTTEN_SECONDS:
            status.back_off = 0.0
        status.last = status.terminated()
        status.start_at = now + status.back_off
        status.state = "waiting"
        if status.back_off:
            status.reason = "CrashLoopBackOff"
            status.message = f"back-off {status.back_off:.0f}s restarting failed container {status.plan.name}"
        else:
            status.reason, status.message = "PodInitializing", ""
        status.back_off = min(max(status.back_off * 2, BACK_OFF_SECONDS), BACK_OFF_LIMIT_SECONDS)
        status.restarts += 1
        status.is_done = False

    def _may_restart(self, status: _Status) -> bool:
        policy = status.plan.restart
        if status in self._init:
            return status.exit_code != 0 and policy is not RestartPolicy.NEVER
        return policy is RestartPolicy.ALWAYS or (policy is RestartPolicy.ON_FAILURE and status.exit_code != 0)

    def _is_failed(self) -> bool:
        """Return whether an init container failed for good, which keeps all others from starting."""
        return any(each.is_done and each.exit_code != 0 for each in self._init)

    def _is_over(self) -> bool:
        """Return whether no container runs or will run again."""
        return self._is_failed() or all(each.is_done for each in self._main)


def _is_past(status: _Status) -> bool:
    """Return whether the containers after an init container may start."""
    return status.is_done and status.exit_code == 0


def _is_due_later(status: _Status, probed: _Probe) -> bool:
    """Return whether a probe will run again. Others wait for the startup probe, which is not repeated after a pass."""
    if probed.running or probed.kind is CheckKind.PRE_STOP or status.hook_running or status.kill_at is not None:
        return False
    if probed.kind is CheckKind.STARTUP:
        return not probed.passed
    return status.started


def _container_state(status: _Status) -> dict[str, Any]:
    told: dict[str, Any] = {
        "state": status.state,
        "reason": status.reason,
        "message": status.message,
        "startedAt": status.started_at,
        "restartCount": status.restarts,
        "started": status.started,
        "ready": status.ready,
        "last": status.last,
    }
    if status.state == "terminated":
        told |= status.terminated()
    return told
