"""How jobs ended, and why gangs restarted."""

from typing import Any

import pytest
from recorded_scenes import Snapshot, of

from trainium_eks.jobs.watch import endings
from trainium_eks.jobs.watch.endings import Exit, exits, first_failure, restarts, root_cause


def ended(name: str, code: int, at: str, reason: str = "Error") -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": reason, "finishedAt": f"2026-11-22T05:00:{at}Z"}}
    status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [{"name": "trainer", "state": state}]}
    return {"metadata": {"name": name}, "status": status}


def test_the_recorded_failure_names_its_pod_and_exit_code() -> None:
    first = first_failure(exits(of("failed", "run").pods))
    assert first is not None
    assert (first.pod, first.node, first.code) == ("run-trainer-1-0", 1, 1)


def test_the_first_to_fail_of_its_own_is_the_cause() -> None:
    # Node 0 is ended by the launcher before node 1, which failed, has been reaped.
    pods = [ended("a-trainer-0", 143, "01"), ended("a-trainer-1", 7, "02"), ended("a-trainer-2", 1, "03")]
    first = first_failure(exits(pods))
    assert first is not None
    assert (first.node, first.code) == (1, 7)
    alone = first_failure(exits(pods[:1]))
    assert alone is not None
    assert alone.code == 143
    assert first_failure(exits([ended("a-trainer-0", 0, "01", "Completed")])) is None


@pytest.mark.parametrize(
    ("code", "reason", "meaning"),
    [
        (1, "Error", "exit code 1"),
        (137, "OOMKilled", "exit code 137 (SIGKILL, out of memory)"),
        (137, "Error", "exit code 137 (SIGKILL)"),
        (139, "Error", "exit code 139 (SIGSEGV)"),
        (-6, "", "exit code -6 (SIGABRT)"),
        (255, "Error", "exit code 255"),
        (128, "ContainerCannotRun", "exit code 128 (ContainerCannotRun)"),
        (0, "Completed", "exit code 0"),
    ],
)
def test_exit_codes_are_said_in_words(code: int, reason: str, meaning: str) -> None:
    assert Exit("p", 0, "trainer", code, reason, "", None).meaning == meaning


def test_torchruns_summary_names_the_rank() -> None:
    log = """
[default3]:Traceback (most recent call last):
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-22_05:36:54
  host      : run-trainer-1-0.run
  rank      : 35 (local_rank: 3)
  exitcode  : -9 (pid: 123)
"""
    assert root_cause(log) == (35, -9)
    assert root_cause("Traceback (most recent call last):") is None


def test_restarts_are_those_that_volcano_remembers() -> None:
    found = restarts(of("restarted", "run"))
    assert [f"{each.at:%H:%M:%S}" for each in found] == ["05:36:46"]
    assert found[0].cause == endings.UNKNOWN


@pytest.mark.parametrize(
    ("reason", "type_", "kind", "named"),
    [
        ("TaintManagerEviction", "Normal", "Pod", True),
        ("Evicted", "Warning", "Pod", True),
        ("OOMKilling", "Warning", "Pod", True),
        ("FailedScheduling", "Warning", "Pod", False),
        ("Pulled", "Normal", "Pod", False),
        ("Unschedulable", "Warning", "PodGroup", False),
    ],
)
def test_events_of_its_pods_tell_why_a_gang_restarted(reason: str, type_: str, kind: str, named: bool) -> None:
    def change(found: Snapshot) -> None:
        event = {"metadata": {"name": "e"}, "involvedObject": {"kind": kind, "name": "run-trainer-0-0"}}
        at = {"lastTimestamp": "2026-11-22T05:36:40Z", "type": type_, "reason": reason}
        found["Event"].append({**event, **at, "message": "it had to go"})

    found = restarts(of("restarted", "run", change))
    assert (found[0].cause == "run-trainer-0-0: it had to go") is named


def test_an_event_of_long_before_is_not_the_cause() -> None:
    def change(found: Snapshot) -> None:
        event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "run-trainer-0-0"}}
        at = {"lastTimestamp": "2026-11-22T05:30:00Z", "type": "Warning", "reason": "Evicted"}
        found["Event"].append({**event, **at, "message": "it had to go"})

    assert restarts(of("restarted", "run", change))[0].cause.startswith("a pod failed or was deleted")


def test_the_reasons_that_tell_of_no_end_are_warnings_about_pods() -> None:
    assert not set(endings._PLACING) & set(endings._TELLING)
