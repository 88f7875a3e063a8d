"""`trn logs`: ranks, nodes, and following over whatever happens to pods, connections and the API server."""

import copy
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from recorded_scenes import snapshot
from stub_api import StubApi
from waiting import until
from watched_team import end

from trainium_eks.cli.shared.log_lines import Printer
from trainium_eks.client import follow, reading
from trainium_eks.kube.api import Api
from trainium_eks.kube.errors import ClusterError

NODE_0, NODE_1 = "alpha-trainer-0-0", "alpha-trainer-1-0"
LOG = f"/api/v1/namespaces/training/pods/{NODE_0}/log"


def stamped(second, text):
    return f"2026-11-22T05:33:{second:02}Z {text}"


@pytest.fixture(autouse=True)
def _written(api, monkeypatch):
    monkeypatch.setattr(follow, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(follow, "AGAIN_SECONDS", 0.05)
    lines = ((1, "launcher of node 0"), (2, "[default0]:rank 0"), (4, "[default1]:rank 1"))
    api.logs[NODE_0] = [stamped(*each) for each in lines]
    api.logs[NODE_1] = [stamped(3, "[default0]:rank 2"), stamped(5, "[default1]:rank 3")]


@pytest.fixture
def once(monkeypatch):
    """Waits until a line or notice has been shown that holds the text, while a command still follows."""
    shown = []
    write, say = Printer.write, follow.Follower._say

    def written(self, lines):
        write(self, lines)
        shown.extend(each.line.text for each in lines)

    def noticed(self, notice):
        say(self, notice)
        shown.append(notice)

    monkeypatch.setattr(Printer, "write", written)
    monkeypatch.setattr(follow.Follower, "_say", noticed)
    return lambda text: until(lambda: any(text in each for each in shown), f"{text} is shown") and None


@pytest.fixture
def followed(call, api):
    """Follows a log while something is done, after which the jobs end: it would be followed for ever."""

    def acted(act):
        try:
            act()
        finally:
            for job in api.objects["Job"]:
                if job["status"]["state"]["phase"] not in ("Completed", "Failed"):
                    end(api, job["metadata"]["name"])

    def run(code, act, *words, job="alpha"):
        with ThreadPoolExecutor(1) as pool:
            acting = pool.submit(acted, act)
            said = call.ends(code, f"logs {job} --follow", *words)
            acting.result()
        return said

    return run


# --- Once -------------------------------------------------------------------------------------------------------------


def test_a_rank_is_found_on_its_node_and_each_line_has_its_time(call, api):
    for options, lines in (
        ([], ["launcher of node 0", "[default0]:rank 0"]),
        (["--rank", "1"], ["launcher of node 0", "[default1]:rank 1"]),
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
    ):
        code, out = call("logs", "alpha", *options)
        assert (code, out.splitlines()) == (0, lines)
    code, out = call("logs", "alpha", "--all", "--tail", "1", "--timestamps")
    assert (code, out.splitlines()[0]) == (0, "2026-11-22T05:33:04.000Z node 0 | [default1]:rank 1")
    follows = call("logs", "alpha", "-t", "--since", "2026-11-22T05:33:00Z")[1]
    assert follows.startswith("2026-11-22T05:33:01.000Z launcher of node 0\n")
    api.named("Pod", NODE_0)["spec"]["containers"].append({"name": "sidecar"})
    call("logs", "alpha", "--since", "10m")
    assert ("sinceSeconds=600" in api.asked[-1], "container=trainer" in api.asked[-1]) == (True, True)
    del api.objects["Job"][0]["metadata"]["annotations"]
    call.ends(0, "logs alpha", "rank 0")
    call.ends(2, "logs alpha --rank 1", "--node N shows all of a node")
    api.objects["Job"][0]["spec"]["tasks"] = []
    call.ends(0, "logs alpha --since 1h", "rank 0")
    assert "is kept" not in call.ends(2, "logs gone --since 1h", "has no job 'gone'"), "the stack has no log store"


def test_invalid_log_options_are_refused(call, api):
    for options, why in (
        ("--rank 4", "--rank 4: alpha has ranks 0 to 3"),
        ("--rank -1", "--rank -1: alpha has ranks 0 to 3"),
        ("--node 2", "--node 2: alpha has nodes 0 to 1"),
        ("--node 0 --rank 0", "give one of --rank and --node"),
        ("--all --rank 0", "give one of --rank and --all"),
        ("--since 2026-11-22T05:30:00", "--since 2026-11-22T05:30:00: give a time such as 90s, 10m or 2h"),
        ("--previous --follow", "--previous without --follow"),
        ("--all --follow", "100 nodes are more than can be followed (64): choose one by --node or --rank"),
    ):
        if "100" in why:
            tasks = api.objects["Job"][0]["spec"]["tasks"]
            tasks[:] = [{**tasks[0], "name": "trainer", "replicas": 100}]
        call.ends(2, f"logs alpha {options}", why)


@pytest.mark.parametrize(
    ("scene", "job", "why", "what_is_left"),
    [
        (snapshot("queue_full"), "beta", "beta has no log yet: queue test may use 32 aws.", "trn cancel alpha"),
        (snapshot("aborted"), "run", "run is aborted: the pods are gone, and the log too", "it wrote is on the volume"),
        (snapshot("failed"), "run", "run is failed: that pod is gone, and the log too", "left: ./trn logs run --all"),
    ],
)
def test_job_without_a_log_shows_the_reason(call, job, why, what_is_left):
    call.ends(1, f"logs {job}", why, what_is_left)


def test_refused_log_shows_the_servers_reason_and_ctrl_c_is_silent(call, api, monkeypatch):
    api.refuses[LOG] = 403
    call.ends(1, "logs alpha", f"the log of {NODE_0} cannot be read: {LOG} is forbidden")
    call.ends(1, "logs alpha --previous", "A gang that restarts gets new pods")

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(follow.Follower, "_look", interrupt)
    assert call("logs", "alpha", "--follow") == (130, "")


# --- Following --------------------------------------------------------------------------------------------------------


def test_follow_ends_with_the_jobs_last_lines(followed, api, once):
    def act():
        once("rank 0")
        api.logs[NODE_0].append(stamped(9, "[default0]:last words"))
        end(api)

    out = followed(0, act, "[default0]:last words", "-- alpha has completed")
    assert out.count("[default0]:rank 0") == 1


def test_follow_ends_with_the_first_failed_node(followed, api, once):
    def act():
        once("rank 0")
        for name, code in ((NODE_0, 143), (NODE_1, 3)):
            ended = {"exitCode": code, "reason": "Error", "finishedAt": f"2026-11-22T05:39:{code % 60:02}Z"}
            state = {"terminated": {**ended, "message": "no disk"}}
            api.named("Pod", name)["status"]["containerStatuses"] = [{"name": "trainer", "state": state}]
        end(api, state="Failed")

    fault = "container-failed: job alpha of training: alpha-trainer-1-0 ended with exit code 3: no disk"
    first = f"-- alpha: node 1 ({NODE_1}) ended first with exit code 3\n  → "
    followed(1, act, "-- alpha has failed", first, "trn logs alpha --node 1\n", fault)


def test_follow_reports_a_stalled_training(followed, api, once):
    def act():
        for number in range(3):
            line = json.dumps({"step": number, "time": reading.now().timestamp() - 90 + number})
            api.logs[NODE_0].append(stamped(10 + number, f"[default0]:{line}"))
        once("alpha has stalled: no step since step 2 for far longer than usual; ")
        api.named("Job", "alpha")["status"]["retryCount"] = 1
        once("alpha restarts")
        time.sleep(0.3)  # in which a new pod would load its data

    assert followed(0, act).count("has stalled") == 1


@pytest.mark.parametrize("are_gone", [True, False], ids=["pods gone for a while", "pods replaced at once"])
def test_follow_continues_after_a_gang_restart(followed, api, once, are_gone):
    def restart():
        once("rank 0")
        before = api.objects["Pod"]
        pods = copy.deepcopy([pod for pod in before if pod["metadata"]["name"].startswith("alpha")])
        others = [pod for pod in before if not pod["metadata"]["name"].startswith("alpha")]
        status = api.named("Job", "alpha")["status"]
        status |= {"retryCount": 1, "state": {"phase": "Restarting"}}
        for pod in pods:
            pod["metadata"]["uid"] += "-new"
        if are_gone:
            api.objects["Pod"] = others
            once("alpha restarts")
        # A clock that is behind must not make its lines those shown before, nor one before the others' twice.
        api.logs[NODE_0] = [stamped(0 if are_gone else 9, "[default0]:resumed from step 10")]
        api.objects["Pod"] = [*others, *pods]
        once("alpha restarts")
        status["state"] = {"phase": "Running"}
        once("resumed")
        time.sleep(0.2)  # in which the stream of the old pod would open the new one's

    lines = followed(0, restart).splitlines()
    assert lines.index("[default0]:rank 0") < lines.index("[default0]:resumed from step 10")
    assert [lines.count(each) for each in ("[default0]:resumed from step 10", "-- alpha restarts (1 of 3)")] == [1, 1]


def test_broken_connection_is_reopened_without_duplicate_lines(followed, api, once, monkeypatch):
    whole = StubApi.log

    def breaking(self, pod, *, follow, tail):
        lines = whole(self, pod, follow=follow, tail=tail)
        return iter([next(lines), next(lines)]) if len(self.asked) == 1 else lines

    def act():
        until(lambda: len(api.asked) > 1, "a second request")
        api.logs[NODE_0].append(stamped(9, "[default0]:more"))

    monkeypatch.setattr(StubApi, "log", breaking)
    told = [line for line in followed(0, act, job="alpha --tail 9").splitlines() if not line.startswith("--")]
    assert told == ["launcher of node 0", "[default0]:rank 0", "[default0]:more"]
    assert "sinceTime=2026-11-22T05%3A33%3A02Z" in api.asked[1]
    assert ["tailLines" in each for each in api.asked[:2]] == [True, False], "what came meanwhile is all shown"


def test_last_lines_are_read_after_a_broken_connection(call, api, monkeypatch):
    whole, broken = Api.lines, threading.Event()

    def breaking(self, path, **rest):
        if broken.is_set():
            yield from whole(self, path, **rest)
            return
        broken.set()
        yield stamped(1, "launcher of node 0")
        end(api)
        raise ClusterError("connection reset")

    monkeypatch.setattr(Api, "lines", breaking)
    out = call.ends(0, "logs alpha --follow")
    assert [out.count(text) for text in ("launcher of node 0", "rank 0")] == [1, 1]


def test_follow_waits_for_an_unreachable_api_server(followed, api, once):
    def act():
        path = "/apis/batch.volcano.sh/v1alpha1/namespaces/training/jobs/alpha"
        once("rank 0")
        api.refuses[path] = 500
        once("does not answer")
        del api.refuses[path]

    followed(0, act, "-- the API server does not answer; waiting for it", "-- the API server answers again")


def test_waiting_job_is_followed_from_its_start(followed, api, once):
    beta = api.named("Pod", "beta-trainer-0")
    assert beta["status"]["phase"] == "Pending"

    def begin():
        once("beta waits")
        api.logs["beta-trainer-0"] = [stamped(9, "[default0]:begun")]
        beta["spec"]["nodeName"] = "trn-1"
        beta["status"] = dict(api.named("Pod", NODE_0)["status"])
        api.named("Job", "beta")["status"]["state"] = {"phase": "Running"}
        once("begun")

    waits = "-- beta waits: queue test may use 32 aws.amazon.com/neuron"
    followed(0, begin, waits, "[default0]:begun", job="beta")


def test_follow_ends_when_the_job_is_deleted(followed, api, once):
    def remove():
        for rank in range(4):
            once(f"rank {rank}")
        api.objects["Job"] = []
        api.objects["Pod"] = []

    followed(1, remove, "-- alpha was removed", "node 1 | [default0]:rank 2", job="alpha --all")
