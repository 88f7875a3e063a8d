"""The rules of the kubelet as a table: what happens, and what is done then."""

from dataclasses import replace

import pytest

from trainium_eks.local.runtime.lifecycle import CheckKind, CheckRun, ContainerEnd, Lifecycle, Signal, Start
from trainium_eks.local.spec.plan import Action, Container, Isolation, PodPlan, Probe, RestartPolicy

NEVER, ON_FAILURE, ALWAYS = RestartPolicy.NEVER, RestartPolicy.ON_FAILURE, RestartPolicy.ALWAYS
PROBE = Probe(Action(port=80), initial_delay_seconds=5, period_seconds=10, failure_threshold=2)


def container(name="c", **fields):
    return replace(Container(name, ("true",), {}, "/", restart=NEVER), **fields)


def plan(*containers, init=(), **fields):
    made = PodPlan("uid", "ns", "pod", "pod", Isolation.NS, "100.127.0.2", init, containers or (container(),))
    return replace(made, **fields)


def begun(*containers, init=(), **fields):
    life = Lifecycle(plan(*containers, init=init, **fields), 0)
    started(life, 0)
    return life


def started(life, now):
    names = [step.container.name for step in life.steps(now) if isinstance(step, Start)]
    for name in names:
        life.started(name, now)
    return names


def words_of(steps):
    def word(step):
        return (
            "term" if isinstance(step, Signal) and not step.force else "kill" if isinstance(step, Signal) else "start"
        )

    return [f"{step.kind.value if isinstance(step, CheckRun) else word(step)} {step.container.name}" for step in steps]


def state(life, name="c"):
    return life.to_json()["containers"][name]


@pytest.mark.parametrize(
    ("policy", "code", "restarted"),
    [(NEVER, 0, False), (NEVER, 1, False), (ON_FAILURE, 0, False), (ON_FAILURE, 1, True), (ALWAYS, 0, True)],
)
def test_restart_policy_decides_restarts(policy, code, restarted):
    life = begun(container(restart=policy))
    life.ended("c", ContainerEnd(code), 1)
    assert life.is_ended is not restarted
    assert started(life, 1) == (["c"] if restarted else [])


def test_restart_delay_doubles_to_five_minutes_and_resets_after_ten():
    life = Lifecycle(plan(container(restart=ALWAYS)), 0)
    now, waits = 0.0, []
    for _ in range(9):
        assert started(life, now) == ["c"]
        life.ended("c", ContainerEnd(1), now)
        waits.append(life.next_time() - now)
        now = life.next_time()
    assert waits == [0, 10, 20, 40, 80, 160, 300, 300, 300]
    waiting = ("CrashLoopBackOff", "back-off 300s restarting failed container c")
    assert (state(life)["reason"], state(life)["message"]) == waiting
    assert started(life, now) == ["c"]
    life.ended("c", ContainerEnd(1), now + 601)
    assert life.next_time() == now + 601


@pytest.mark.parametrize("kind", [CheckKind.LIVENESS, CheckKind.STARTUP])
def test_container_failing_its_probe_is_terminated_and_then_killed(kind):
    life = begun(container(**{kind.value: PROBE}, restart=ALWAYS), grace_seconds=30)
    for now in (5, 15):
        assert words_of(life.steps(now)) == [f"{kind.value} c"]
        life.report_check("c", kind, False, now, "refused")
    assert words_of(life.steps(15)) == ["term c"]
    assert life.next_time() == 45
    assert words_of(life.steps(45)) == ["kill c"]
    life.ended("c", ContainerEnd(137), 46)
    assert state(life)["last"]["message"] == f"{kind.value} probe failed: refused"
    assert started(life, 46) == ["c"]


def test_stopped_pod_is_terminated_and_then_killed():
    life = begun(container("a"), container("b"))
    life.stop(10, 30)
    assert words_of(life.steps(10)) == ["term a", "term b"]
    assert words_of(life.steps(11)) == []
    life.ended("a", ContainerEnd(0), 12)
    assert not life.is_ended
    life.stop(13, 5)
    assert life.next_time() == 18, "the shorter time holds"
    assert words_of(life.steps(18)) == ["kill b"]
    life.ended("b", ContainerEnd(137), 18)
    assert life.is_ended
    assert state(life, "b")["exitCode"] == 137


def test_init_containers_come_first_and_hooks_before_sigterm():
    init = (container("first", restart=ON_FAILURE), container("second"))
    main = container("main", readiness=PROBE, pre_stop=Action(command=("x",)))
    life = begun(main, init=init, deadline_seconds=100, grace_seconds=30)
    life.ended("first", ContainerEnd(1), 1)
    assert started(life, 1) == ["first"], "it may fail, and is started again"
    life.ended("first", ContainerEnd(0), 2)
    assert started(life, 2) == ["second"]
    life.ended("second", ContainerEnd(0), 2)
    assert started(life, 2) == ["main"]
    assert (life.to_json()["initialized"], state(life, "main")["ready"], life.next_time()) == (True, False, 7)
    for now, passed, is_ready in ((7, True, True), (17, False, True), (27, False, False)):
        assert words_of(life.steps(now)) == ["readiness main"]
        assert life.next_time() == 100, "a probe that runs is not due"
        life.report_check("main", CheckKind.READINESS, passed, now)
        assert (state(life, "main")["ready"], life.next_time()) == (is_ready, now + 10)
    assert words_of(life.steps(100)) == ["preStop main"]
    assert (life.to_json()["reason"], words_of(life.steps(101))) == ("DeadlineExceeded", [])
    life.report_check("main", CheckKind.PRE_STOP, True, 102)
    assert words_of(life.steps(102)) == ["term main"]
    life.ended("main", ContainerEnd(0), 103)
    assert life.is_ended


def test_pod_ends_when_its_init_container_fails_for_good():
    life = begun(container(), init=(container("first"), container("second")))
    life.ended("first", ContainerEnd(0), 1)
    assert started(life, 1) == ["second"]
    life.ended("second", ContainerEnd(5), 1)
    assert (life.is_ended, started(life, 1), life.to_json()["initialized"]) == (True, [], False)


def test_a_failed_post_start_hook_ends_the_container():
    life = Lifecycle(plan(container(post_start=Action(command=("x",)))), 0)
    assert words_of(life.steps(0)) == ["start c"]
    assert words_of(list(life.started("c", 0))) == ["postStart c"]
    assert not state(life)["started"]
    life.report_check("c", CheckKind.POST_START, False, 1, "no")
    assert words_of(life.steps(1)) == ["term c"]


def test_container_lost_with_its_shim_has_ended_and_counts_its_restarts():
    wanted = plan(container(restart=ALWAYS), init=(container("i", restart=ALWAYS),))
    life = Lifecycle(wanted, 0)
    started(life, 0)
    life.ended("i", ContainerEnd(0), 1)
    started(life, 1)
    again = Lifecycle(wanted, 5, life.to_json())
    assert state(again, "i")["exitCode"] == 0
    assert started(again, 5) == ["c"]
    assert (state(again)["restartCount"], state(again)["last"]["exitCode"]) == (1, 137)
    assert state(again)["last"]["reason"] == "ContainerStatusUnknown"
