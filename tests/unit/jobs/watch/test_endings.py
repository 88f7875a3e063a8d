"""How jobs ended, and why gangs restarted."""

import pytest
from recorded_scenes import of

from trainium_eks.jobs.watch import endings
from trainium_eks.jobs.watch.endings import Exit, exits, first_failure, restarts, root_cause

TOLD = "run-trainer-0-0: it had to go"


def ended(name, code, at, reason="Error"):
    state = {"terminated": {"exitCode": code, "reason": reason, "finishedAt": f"2026-11-22T05:00:{at}Z"}}
    status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [{"name": "trainer", "state": state}]}
    return {"metadata": {"name": name}, "status": status}


def failed_first(pods):
    first = first_failure(exits(pods))
    return (first.pod, first.node, first.code) if first else None


def test_first_own_failure_is_named_as_the_cause():
    assert failed_first(of("failed", "run").pods) == ("run-trainer-1-0", 1, 1)
    # Node 0 is ended by the launcher before node 1, which failed, has been reaped.
    pods = [ended("a-trainer-0", 143, "01"), ended("a-trainer-1", 7, "02"), ended("a-trainer-2", 1, "03")]
    assert failed_first(pods) == ("a-trainer-1", 1, 7)
    assert [each.to_json()["finished"] for each in exits(pods[:1])] == ["2026-11-22T05:00:01+00:00"]
    assert failed_first(pods[:1]) == ("a-trainer-0", 0, 143)
    assert failed_first([ended("a-trainer-0", 0, "01", "Completed")]) is None
    assert failed_first([ended("a-trainer-1", 7, "02"), ended("a-trainer-0", 9, "01")]) == ("a-trainer-0", 0, 9)
    evicted = ended("a-trainer-0", 137, "01", reason="")
    evicted["status"] |= {"reason": "Evicted", "message": "The node was low on memory."}
    [found] = exits([evicted])
    assert (found.reason, found.message) == ("Evicted", "The node was low on memory.")
    log = """
Root Cause (first observed failure):
[0]:
  host      : run-trainer-1-0.run
  rank      : 35 (local_rank: 3)
  exitcode  : -9 (pid: 123)
"""
    assert root_cause(log) == (35, -9)
    assert root_cause("Traceback (most recent call last):") is None
    starts = "exit code 1 before a step, 3 times in a row: no restart mends that"
    assert Exit("p", 0, "trainer", 78, "Error", starts, None).meaning == "exit code 1, 3 starts in a row"
    for code, reason, meaning in (
        (137, "OOMKilled", "exit code 137 (SIGKILL, out of memory)"),
        (137, "Error", "exit code 137 (SIGKILL)"),
        (-6, "", "exit code -6 (SIGABRT)"),
        (255, "Error", "exit code 255"),
        (128, "ContainerCannotRun", "exit code 128 (ContainerCannotRun)"),
        (0, "Completed", "exit code 0"),
    ):
        assert Exit("p", 0, "trainer", code, reason, "", None).meaning == meaning


TORCHRUN = """
[0]:Traceback (most recent call last):
[0]:ValueError: logged, and handled
[1]:Traceback (most recent call last):
[1]:  File "/work/slow_fail.py", line 5, in <module>
[1]:    print("loading", os.environ["MY_DATA_DIR"])
[1]:KeyError: 'MY_DATA_DIR'
[1]:
Traceback (most recent call last):
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 123)
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"""


@pytest.mark.parametrize(
    ("log", "error"),
    [
        (TORCHRUN, "rank 1: KeyError: 'MY_DATA_DIR'"),
        (f"{TORCHRUN}\nthe first failure: exit code 1 of rank 1: A", "exit code 1 of rank 1: A"),
        (TORCHRUN.replace("[1]:KeyError", "[2]:KeyError"), ""),
        ("[0]:Traceback (most recent call last):\n[0]:KeyError: 'A'", ""),
    ],
)
def test_error_of_first_failed_rank_is_found_above_the_summary(log, error):
    assert endings.first_error(log.splitlines()) == error
    assert endings.run_before([*log.splitlines(), "the start before ended with B"]) == "B"


@pytest.mark.parametrize(("finished", "is_cause"), [("2026-11-22T05:36:40Z", True), ("2026-11-22T05:37:30Z", False)])
def test_pod_of_a_later_start_is_not_the_cause_of_a_restart(finished, is_cause):
    def change(found):
        for pod in found["Pod"]:
            pod["status"] = ended("run", 78, "00")["status"]
            for each in pod["status"]["containerStatuses"]:
                each["state"]["terminated"]["finishedAt"] = finished

    (found,) = restarts(of("restarted", "run", change))
    assert ("exit code 78" in found.cause) is is_cause


@pytest.mark.parametrize(
    ("reason", "type_", "kind", "at", "cause"),
    [
        ("TaintManagerEviction", "Normal", "Pod", "05:36:40", TOLD),
        ("OOMKilling", "Warning", "Pod", "05:36:40", TOLD),
        ("Evicted", "Warning", "Pod", "05:30:00", endings.UNKNOWN),
        ("FailedScheduling", "Warning", "Pod", "05:36:40", endings.UNKNOWN),
        ("Pulled", "Normal", "Pod", "05:36:40", endings.UNKNOWN),
        ("Unschedulable", "Warning", "PodGroup", "05:36:40", endings.UNKNOWN),
    ],
)
def test_pod_events_explain_a_gangs_restart(reason, type_, kind, at, cause):
    def change(found):
        event = {"metadata": {"name": "e"}, "involvedObject": {"kind": kind, "name": "run-trainer-0-0"}}
        event |= {"lastTimestamp": f"2026-11-22T{at}Z", "type": type_, "reason": reason, "message": "it had to go"}
        found["Event"].append(event)

    found = restarts(of("restarted", "run", change))
    assert [(f"{each.at:%H:%M:%S}", each.cause) for each in found] == [("05:36:46", cause)]
