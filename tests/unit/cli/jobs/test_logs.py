"""`trn logs`: ranks, nodes, and following over whatever happens to pods, connections and the API server."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from recorded_scenes import Snapshot, snapshot
from stub_api import StubApi
from waiting import until
from watched_team import Call

from trainium_eks.cli.shared.log_lines import Printer
from trainium_eks.client import follow, reading
from trainium_eks.client.logs import PodLine
from trainium_eks.kube.api import Api
from trainium_eks.kube.errors import ClusterError

NODE_0, NODE_1 = "alpha-trainer-0-0", "alpha-trainer-1-0"


def stamped(second: int, text: str) -> str:
    return f"2026-11-22T05:33:{second:02}Z {text}"


@pytest.fixture
def scene() -> Snapshot:
    """alpha runs on two nodes with two ranks each, beta waits."""
    found = snapshot("queue_full")
    noted = {"trainium-eks/world-size": "4", "trainium-eks/nodes": "2"}
    found["Job"][0]["metadata"]["annotations"] = noted
    return found


@pytest.fixture(autouse=True)
def _written(api: StubApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(follow, "AGAIN_SECONDS", 0.05)
    api.logs[NODE_0] = [
        stamped(1, "launcher of node 0"),
        stamped(2, "[default0]:rank 0"),
        stamped(4, "[default1]:rank 1"),
    ]
    api.logs[NODE_1] = [stamped(3, "[default0]:rank 2"), stamped(5, "[default1]:rank 3")]


def end(api: StubApi, job: str = "alpha", state: str = "Completed") -> None:
    """The job ends, and its pods with it."""
    for pod in api.objects["Pod"]:
        if pod["metadata"]["name"].startswith(job):
            pod["status"]["phase"] = "Succeeded" if state == "Completed" else "Failed"
    at = "2026-11-22T05:40:00Z"
    api.named("Job", job)["status"]["state"] = {"phase": state, "lastTransitionTime": at}  # type: ignore[index]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lines and notices that a command has shown so far, while it still follows."""
    texts: list[str] = []
    write, say = Printer.write, follow.Follower._say

    def written(self: Printer, lines: list[PodLine]) -> None:
        write(self, lines)
        texts.extend(each.line.text for each in lines)

    def said(self: follow.Follower, notice: str) -> None:
        say(self, notice)
        texts.append(notice)

    monkeypatch.setattr(Printer, "write", written)
    monkeypatch.setattr(follow.Follower, "_say", said)
    return texts


def once_shown(shown: list[str], text: str) -> None:
    """Until a line or notice has been shown that holds the text."""
    until(lambda: any(text in each for each in shown), f"{text} is shown")


@contextmanager
def meanwhile(api: StubApi, act: Callable[[], None]) -> Iterator[None]:
    """Does something while a log is followed, and ends the jobs."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001 (it is raised below)
            failed.append(error)
        finally:
            # Or it would be followed for ever.
            for job in api.objects["Job"]:
                name = job["metadata"]["name"]
                if job["status"]["state"]["phase"] not in ("Completed", "Failed"):
                    end(api, name)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield
    thread.join()
    if failed:
        raise failed[0]


def test_a_job_without_tasks_has_the_logs_of_its_pods(call: Call, api: StubApi) -> None:
    api.objects["Job"][0]["spec"]["tasks"] = []
    assert call("logs", "alpha", "--since", "1h")[0] == 0
    assert "rank 0" in call("logs", "alpha")[1]


# --- Once -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ([], ["launcher of node 0", "[default0]:rank 0"]),
        (["--rank", "1"], ["launcher of node 0", "[default1]:rank 1"]),
        (["--rank", "2"], ["[default0]:rank 2"]),
        (["--rank", "3"], ["[default1]:rank 3"]),
        (["--node", "1"], ["[default0]:rank 2", "[default1]:rank 3"]),
        (["--tail", "1", "--node", "0"], ["[default1]:rank 1"]),
        (
            ["--all"],
            [
                "node 0 | launcher of node 0",
                "node 0 | [default0]:rank 0",
                "node 1 | [default0]:rank 2",
                "node 0 | [default1]:rank 1",
                "node 1 | [default1]:rank 3",
            ],
        ),
    ],
    ids=["rank-0", "rank-1", "rank-2", "rank-3", "node-1", "tail", "all-by-time"],
)
def test_a_rank_is_found_on_its_node(call: Call, options: list[str], lines: list[str]) -> None:
    code, out = call("logs", "alpha", *options)
    assert (code, out.splitlines()) == (0, lines)


def test_each_line_has_its_time(call: Call) -> None:
    code, out = call("logs", "alpha", "--all", "--tail", "1", "--timestamps")
    assert (code, out.splitlines()[0]) == (0, "2026-11-22T05:33:04.000Z node 0 | [default1]:rank 1")
    follows = call("logs", "alpha", "-t", "--since", "2026-11-22T05:33:00Z")[1]
    assert follows.startswith("2026-11-22T05:33:01.000Z launcher of node 0\n")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--rank", "4"], "--rank 4: alpha has ranks 0 to 3"),
        (["--rank", "-1"], "--rank -1: alpha has ranks 0 to 3"),
        (["--node", "2"], "--node 2: alpha has nodes 0 to 1"),
        (["--node", "0", "--rank", "0"], "give one of --rank and --node"),
        (["--all", "--rank", "0"], "give one of --rank and --all"),
        (["--since", "yesterday"], "--since yesterday: give a time such as 90s, 10m or 2h"),
        (["--previous", "--follow"], "--previous without --follow"),
    ],
)
def test_options_that_cannot_be_are_refused(call: Call, options: list[str], why: str) -> None:
    code, out = call("logs", "alpha", *options)
    assert code == 2
    assert why in out


def test_a_job_that_does_not_say_its_ranks_has_nodes(call: Call, api: StubApi) -> None:
    del api.objects["Job"][0]["metadata"]["annotations"]
    assert call("logs", "alpha")[0] == 0
    code, out = call("logs", "alpha", "--rank", "1")
    assert code == 2
    assert "--node N shows all of a node" in out


def test_a_job_that_waits_has_no_log_and_says_why(call: Call) -> None:
    code, out = call("logs", "beta")
    assert code == 1
    assert "beta has no log yet: queue test may use 32 aws.amazon.com/neuron" in out
    assert "trn cancel alpha" in out


@pytest.mark.parametrize("scene", [snapshot("aborted")])
def test_a_job_whose_pods_are_gone_says_so(call: Call) -> None:
    code, out = call("logs", "run")
    assert code == 1
    assert "run is aborted: the pods are gone, and the log too (observability.logs of the stack's config" in out
    assert "what it wrote is on the volume" in out


@pytest.mark.parametrize("scene", [snapshot("failed")])
def test_a_job_with_other_pods_left_says_how_to_read_them(call: Call, api: StubApi) -> None:
    code, out = call("logs", "run")
    assert code == 1
    assert "run is failed: that pod is gone, and the log too" in out
    assert "what is left: " in out
    assert "trn logs run --all" in out


def test_times_are_asked_of_the_server(call: Call, api: StubApi) -> None:
    call("logs", "alpha", "--since", "10m")
    assert "sinceSeconds=600" in api.asked[-1]


@pytest.mark.parametrize("status", [400, 403, 410])
def test_a_log_that_is_refused_is_said_in_the_servers_words(call: Call, api: StubApi, status: int) -> None:
    api.refuses[f"/api/v1/namespaces/training/pods/{NODE_0}/log"] = status
    code, out = call("logs", "alpha")
    assert code == 1
    assert f"the log of {NODE_0} cannot be read: /api/v1/namespaces/training/pods/{NODE_0}/log is forbidden" in out


def test_previous_of_a_pod_that_was_not_restarted_is_explained(call: Call, api: StubApi) -> None:
    api.refuses[f"/api/v1/namespaces/training/pods/{NODE_0}/log"] = 400
    code, out = call("logs", "alpha", "--previous")
    assert code == 1
    assert "A gang that restarts gets new pods" in out


# --- Following --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "expected"), [("Completed", 0), ("Failed", 1)])
def test_following_ends_with_the_job_and_has_its_exit_code(
    call: Call, api: StubApi, shown: list[str], state: str, expected: int
) -> None:
    def act() -> None:
        once_shown(shown, "rank 0")
        api.logs[NODE_0].append(stamped(9, "[default0]:last words"))
        end(api, state=state)

    with meanwhile(api, act):
        code, out = call("logs", "alpha", "--follow")
    assert code == expected
    assert out.count("[default0]:rank 0") == 1
    assert "[default0]:last words" in out
    assert f"-- alpha has {state.lower()}" in out


def test_following_ends_with_the_node_that_failed_first(call: Call, api: StubApi, shown: list[str]) -> None:
    def act() -> None:
        once_shown(shown, "rank 0")
        for name, code in ((NODE_0, 143), (NODE_1, 3)):
            ended = {"exitCode": code, "reason": "Error", "finishedAt": f"2026-11-22T05:39:{code % 60:02}Z"}
            status = api.named("Pod", name)["status"]  # type: ignore[index]
            status["containerStatuses"] = [
                {"name": "trainer", "state": {"terminated": {**ended, "message": "no disk"}}}
            ]
        end(api, state="Failed")

    with meanwhile(api, act):
        code, out = call("logs", "alpha", "--follow")
    assert code == 1
    assert f"-- alpha: node 1 ({NODE_1}) ended first with exit code 3\n  → " in out
    assert "trn logs alpha --node 1\n" in out
    assert "container-failed: job alpha of training: alpha-trainer-1-0 ended with exit code 3: no disk" in out


def test_following_tells_of_a_training_that_stands_still(call: Call, api: StubApi, shown: list[str]) -> None:
    def act() -> None:
        for number in range(3):
            line = json.dumps({"step": number, "time": reading.now().timestamp() - 90 + number})
            api.logs[NODE_0].append(stamped(10 + number, f"[default0]:{line}"))
        once_shown(shown, "alpha has stalled: no step since step 2 for far longer than usual; ")
        api.named("Job", "alpha")["status"]["retryCount"] = 1  # type: ignore[index]
        once_shown(shown, "alpha restarts")
        time.sleep(0.3)  # in which a new pod would load its data

    with meanwhile(api, act):
        _, out = call("logs", "alpha", "--follow")
    assert out.count("has stalled") == 1


def test_following_goes_on_over_a_restart_of_the_gang(call: Call, api: StubApi, shown: list[str]) -> None:
    def restart() -> None:
        once_shown(shown, "rank 0")
        pods = [pod for pod in api.objects["Pod"] if pod["metadata"]["name"].startswith("alpha")]
        api.objects["Pod"] = [pod for pod in api.objects["Pod"] if pod not in pods]
        status = api.named("Job", "alpha")["status"]  # type: ignore[index]
        status |= {"retryCount": 1, "state": {"phase": "Restarting"}}
        once_shown(shown, "alpha restarts")
        for pod in pods:
            pod["metadata"]["uid"] += "-new"
        # The clock of the new pod's node is behind: its lines must not be taken for those shown before.
        api.logs[NODE_0] = [stamped(0, "[default0]:resumed from step 10")]
        api.objects["Pod"] += pods
        status["state"] = {"phase": "Running"}

    with meanwhile(api, restart):
        code, out = call("logs", "alpha", "--follow")
    lines = out.splitlines()
    assert code == 0
    assert lines.index("[default0]:rank 0") < lines.index("[default0]:resumed from step 10")
    assert "-- alpha restarts (1 of 3)" in lines


def test_a_pod_that_is_replaced_at_once_is_read_once(call: Call, api: StubApi, shown: list[str]) -> None:
    def replace() -> None:
        once_shown(shown, "rank 0")
        pod = api.named("Pod", NODE_0)
        assert pod is not None
        api.logs[NODE_0] = [stamped(30, "[default0]:resumed")]
        pod["metadata"]["uid"] = "another"
        once_shown(shown, "resumed")
        api.logs[NODE_0].append(stamped(31, "[default0]:goes on"))

    with meanwhile(api, replace):
        code, out = call("logs", "alpha", "--follow")
    assert code == 0
    assert [out.count(text) for text in ("rank 0", "resumed", "goes on")] == [1, 1, 1]


def test_a_connection_that_breaks_off_is_opened_again_without_lines_twice(
    call: Call, api: StubApi, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = StubApi.log

    def breaking(self: StubApi, pod: str, *, follow: bool, tail: int | None) -> Iterator[str]:
        lines = whole(self, pod, follow=follow, tail=tail)
        return iter([next(lines), next(lines)]) if len(self.asked) == 1 else lines

    def act() -> None:
        until(lambda: len(api.asked) > 1, "a second request")
        api.logs[NODE_0].append(stamped(9, "[default0]:more"))

    monkeypatch.setattr(StubApi, "log", breaking)
    with meanwhile(api, act):
        code, out = call("logs", "alpha", "--follow")
    told = [line for line in out.splitlines() if not line.startswith("--")]
    assert code == 0
    assert told == ["launcher of node 0", "[default0]:rank 0", "[default0]:more"]
    assert "sinceTime=2026-11-22T05%3A33%3A02Z" in api.asked[1]


def test_the_last_lines_are_read_although_the_connection_broke_with_the_job(
    call: Call, api: StubApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, broken = Api.lines, threading.Event()

    def breaking(self: Api, path: str, **rest: Any) -> Iterator[str]:
        if broken.is_set():
            yield from whole(self, path, **rest)
            return
        broken.set()
        yield stamped(1, "launcher of node 0")
        end(api)
        raise ClusterError("connection reset")

    monkeypatch.setattr(Api, "lines", breaking)
    code, out = call("logs", "alpha", "--follow")
    assert code == 0
    assert [out.count(text) for text in ("launcher of node 0", "rank 0")] == [1, 1]


def test_an_api_server_that_goes_away_is_waited_for(call: Call, api: StubApi, shown: list[str]) -> None:
    def act() -> None:
        path = "/apis/batch.volcano.sh/v1alpha1/namespaces/training/jobs/alpha"
        once_shown(shown, "rank 0")
        api.refuses[path] = 500
        once_shown(shown, "does not answer")
        del api.refuses[path]

    with meanwhile(api, act):
        code, out = call("logs", "alpha", "--follow")
    assert code == 0
    assert "-- the API server does not answer; waiting for it" in out
    assert "-- the API server answers again" in out


def test_a_job_that_waits_is_followed_from_its_beginning(call: Call, api: StubApi, shown: list[str]) -> None:
    # Free of alpha, beta starts.
    beta = next(pod for pod in api.objects["Pod"] if pod["metadata"]["name"] == "beta-trainer-0")
    waiting = dict(beta["status"])
    alpha = api.named("Pod", NODE_0)
    assert alpha is not None

    def begin() -> None:
        once_shown(shown, "beta waits")
        api.logs["beta-trainer-0"] = [stamped(9, "[default0]:begun")]
        beta["spec"]["nodeName"] = "trn-1"
        beta["status"] = dict(alpha["status"])
        api.named("Job", "beta")["status"]["state"] = {"phase": "Running"}  # type: ignore[index]
        once_shown(shown, "begun")

    with meanwhile(api, begin):
        code, out = call("logs", "beta", "--follow")
    assert waiting["phase"] == "Pending"
    assert code == 0
    assert "-- beta waits: queue test may use 32 aws.amazon.com/neuron" in out
    assert "[default0]:begun" in out


def test_a_job_that_is_removed_ends_it(call: Call, api: StubApi, shown: list[str]) -> None:
    def remove() -> None:
        for rank in range(4):
            once_shown(shown, f"rank {rank}")
        api.objects["Job"] = []
        api.objects["Pod"] = []

    with meanwhile(api, remove):
        code, out = call("logs", "alpha", "--follow", "--all")
    assert code == 1
    assert "-- alpha was removed" in out
    assert "node 1 | [default0]:rank 2" in out


def test_ctrl_c_is_quiet(call: Call, api: StubApi, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(follow.Follower, "_look", interrupt)
    assert call("logs", "alpha", "--follow") == (130, "")


def test_more_nodes_than_can_be_followed_are_refused(call: Call, api: StubApi) -> None:
    tasks = api.objects["Job"][0]["spec"]["tasks"]
    tasks[:] = [{**tasks[0], "name": "trainer", "replicas": 100}]
    code, out = call("logs", "alpha", "--all", "--follow")
    assert code == 2
    assert "100 nodes are more than can be followed (64): choose one by --node or --rank" in out
