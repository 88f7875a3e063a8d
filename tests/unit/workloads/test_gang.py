"""Ranks that meet, add, fail together, stop together and go on: real processes over loopback."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from trainium_workloads import gang, ultraserver
from waiting import SECONDS, until

ENVIRONMENT = {"PYTHONPATH": str(Path(__file__).parents[3] / "workloads"), "PYTHONUNBUFFERED": "1"}

FOR_EVER = "100000"
"""Steps of a training that the test ends."""


@pytest.fixture
def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@dataclass(frozen=True)
class _Node:
    """A node that runs."""

    process: "subprocess.Popen[bytes]"
    output: Path
    """What it and its ranks print, as one text; a pipe would hold them up when it is full."""

    def ended(self):
        """Its exit code and output."""
        return self.process.wait(SECONDS), self.output.read_text()


@pytest.fixture
def node(tmp_path_factory, port):
    """Starts nodes; none is left after the test."""
    directory, started = tmp_path_factory.mktemp("outputs"), []

    def start(nodes, *program, ranks=1, job="j", number=0, port=port, environment=ENVIRONMENT):
        where = f"--nnodes {nodes} --nproc_per_node {ranks} --rdzv_endpoint 127.0.0.1:{port} --node_rank {number}"
        command = [sys.executable, "-m", "trainium_workloads.gang", *where.split(), "--rdzv_id", job, *program]
        how = {
            "env": {**os.environ, **ENVIRONMENT, **environment},
            "stderr": subprocess.STDOUT,
            "start_new_session": True,
        }
        output = directory / str(len(started))
        with output.open("wb") as sink:
            started.append(_Node(subprocess.Popen(command, stdout=sink, **how), output))
        return started[-1]

    yield start
    for each in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(each.process.pid, signal.SIGKILL)
        each.process.wait()


def _two(node, *program, **how):
    return [node(2, *program, number=number, **how) for number in range(2)]


def _sum(directory, *options):
    return "-m", "trainium_workloads.gradient_sum", "--output", str(directory), "--step-seconds", "0.02", *options


def _ended(*nodes):
    return [each.ended() for each in nodes]


def _await_listening(port):
    connections = psutil.net_connections
    until(lambda: any(each.laddr.port == port and each.status == "LISTEN" for each in connections("tcp")))


def _await_checkpoint(directory):
    """Until there is one; the directory of all."""
    checkpoints = directory / "checkpoints"
    until(lambda: list(checkpoints.glob("*.ckpt")), "a checkpoint")
    return checkpoints


def test_two_nodes_of_two_ranks_agree_on_the_sum(node, tmp_path):
    ended = _ended(*_two(node, *_sum(tmp_path, "--steps", "6"), ranks=2))
    assert [code for code, _ in ended] == [0, 0]
    text = "".join(output for _, output in ended)
    assert sorted(re.findall(r"rank (\d): the gradients' sum is 10; 4 of 4 ranks agree", text)) == ["0", "1", "2", "3"]
    lines = [json.loads(line[line.index("{") :]) for line in text.splitlines() if "{" in line]
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert [line["checkpoint_step"] for line in lines] == [0, 0, 0, 0, 5, 6]


def test_nodes_have_their_given_numbers(node, tmp_path):
    script = tmp_path / "rank.py"
    script.write_text("from os import environ as on\nprint(on['GROUP_RANK'], on['RANK'], on['LOCAL_WORLD_SIZE'])")
    others = [node(3, str(script), number=number) for number in (2, 1)]
    ended = _ended(node(3, str(script), number=0), *others)
    assert ended == [(0, "[default0]:0 0 1\n"), (0, "[default0]:2 2 1\n"), (0, "[default0]:1 1 1\n")]


TOLD = """\
import json, os, time
keys = ("RANK", "MASTER_ADDR", "PET_NODE_RANK", "PET_MASTER_ADDR")
time.sleep(0.7 * (os.environ["NEURON_GLOBAL_TOPOID"] == "0"))  # node 0 has ended by then
told = {key: text for key, text in os.environ.items() if key in keys or key.startswith("NEURON_")}
print("[0]:" * ("RANK" not in os.environ) + "told", json.dumps(told), flush=True)
"""


def _drive(directory, modes, server, place):
    """What the driver shows of a node in a half."""
    directory.mkdir(exist_ok=True)
    for name, text in (("ultraserver_mode", modes), ("server_id_2", server), ("node_id_2", place)):
        (directory / name).write_text(f"{text}\n")


@pytest.fixture
def placed(node, tmp_path):
    """Starts the nodes of a gang, each with the id of its half and its number there."""
    (tmp_path / "told.py").write_text(TOLD)

    def start(*places, launcher=False):
        hosts = {f"VC_TRAINER_{each}_HOSTS": f"127.0.0.{each + 1}" for each in range(len(places))}
        words = ["--node-config", "2", *(["--launcher", sys.executable] if launcher else []), str(tmp_path / "told.py")]
        started = []
        for number, place in enumerate(places):
            _drive(sysfs := tmp_path / f"node{number}", "1,2,3,4", *place)
            how = {"number": number, "environment": {**hosts, ultraserver.SYSFS: str(sysfs)}}
            started.append(node(len(places), *words, **how))
        return started

    return start


def _variables(output):
    return [json.loads(line.partition("told ")[2]) for line in output.splitlines() if "told {" in line]


@pytest.mark.parametrize("launcher", [False, True])
def test_ranks_follow_node_places_and_rank_0_is_on_node_0(placed, launcher):
    places = (("b", "1"), ("a", "0"), ("b", "0"), ("a", "1"))
    said = [_variables(output) for _, output in _ended(*placed(*places, launcher=launcher))]
    keys = ("NEURON_RT_ULTRASERVER_SERVER_ID", "NEURON_RT_ULTRASERVER_NODE_ID")
    pairs = zip(said, places, strict=True)
    own = [next(each for each in told if tuple(map(each.get, keys)) == place) for told, place in pairs]
    rank, first = ("PET_NODE_RANK", "PET_MASTER_ADDR") if launcher else ("RANK", "MASTER_ADDR")
    for key in ("NEURON_GLOBAL_TOPOID", rank):
        assert [each[key] for each in own] == ["3", "0", "2", "1"]
    assert {each[key] for each in own for key in ("NEURON_GLOBAL_TOPOID0_HOST", first)} == {"127.0.0.2"}
    assert {each["NEURON_RT_ULTRASERVER_MODE"] for each in own} == {"3"}
    assert [sorted(each[rank] for each in told) for told in said] == [["0", "3"], ["0"], ["2"], ["1"]]


PARTS = {("a", "b"): "the gang has 1 of 2 nodes of a, 1 of 2 nodes of b", ("a", "a"): "two nodes with one place"}


@pytest.mark.parametrize(("servers", "said"), PARTS.items())
def test_gang_with_partial_ultraserver_halves_is_refused(placed, servers, said):
    for code, output in _ended(*placed(*((server, 0) for server in servers))):
        assert code == gang.REFUSED
        assert said in output


def test_node_waits_for_the_drivers_election_and_needs_a_driver(tmp_path, monkeypatch):
    monkeypatch.setenv(ultraserver.SYSFS, str(tmp_path))
    with pytest.raises(ultraserver.PlaceError, match="in no UltraServer, or its driver is too old"):
        ultraserver.membership(4)
    _drive(tmp_path, "busy", "0" * 16, "busy")
    monkeypatch.setattr(ultraserver.time, "sleep", lambda _: _drive(tmp_path, "1,2,4", "ab", "1"))
    assert ultraserver.membership(2) == ultraserver.Membership(("ab", 1), "2")
    monkeypatch.setattr(ultraserver, "_WAIT_SECONDS", -1.0)
    _drive(tmp_path, "busy", "0" * 16, "busy")
    with pytest.raises(TimeoutError, match="modes busy"):
        ultraserver.membership(2)
    assert [*ultraserver.membership(1).variables(5, "first").values()] == ["5", "first", "4", "0" * 16, "-1"]


def test_rendezvous_avoids_a_used_port(node, tmp_path):
    with socket.create_server(("", 0)) as other:
        # The port above the rendezvous' is the first that comes to mind.
        ended = node(1, *_sum(tmp_path, "--steps", "3"), ranks=2, port=other.getsockname()[1] - 1).ended()
    assert ended[0] == 0, ended


def test_killed_rank_fails_all_nodes_and_the_next_run_resumes(node, tmp_path):
    nodes = _two(node, *_sum(tmp_path, "--steps", FOR_EVER, "--checkpoint-every", "2"))
    checkpoints = _await_checkpoint(tmp_path)
    ranks = subprocess.run(["pgrep", "-P", str(nodes[1].process.pid)], capture_output=True, text=True, check=True)
    os.kill(int(ranks.stdout), signal.SIGKILL)
    ended = _ended(*nodes)
    assert (ended[1][0], ended[0][0] != 0) == (128 + signal.SIGKILL, True)
    saved = max(int(path.name[5:13]) for path in checkpoints.glob("*.ckpt"))
    again = _sum(tmp_path, "--steps", str(saved + 3), "--checkpoint-every", "2")
    ended = _ended(*_two(node, *again))
    assert [code for code, _ in ended] == [0, 0]
    assert f"resumed from step {saved} " in "".join(output for _, output in ended)


def test_sigterm_at_one_node_stops_all_after_a_checkpoint(node, tmp_path):
    nodes = _two(node, *_sum(tmp_path, "--steps", FOR_EVER, "--checkpoint-every", "2"))
    _await_checkpoint(tmp_path)
    nodes[1].process.send_signal(signal.SIGTERM)
    ended = _ended(*nodes)
    assert {code for code, _ in ended} == {143}, ended
    [stopped] = set(re.findall(r"rank \d: stops after step (\d+)", "".join(output for _, output in ended)))
    assert max(int(path.name[5:13]) for path in (tmp_path / "checkpoints").glob("step-*")) == int(stopped)


def test_changed_world_size_starts_from_the_beginning(node, tmp_path):
    assert node(1, *_sum(tmp_path, "--steps", "2")).ended()[0] == 0
    code, output = node(1, *_sum(tmp_path, "--steps", "3"), ranks=2).ended()
    assert code == 0
    assert "is of 1 ranks, not 2: starts over" in output


def test_node_of_another_job_is_rejected(node, port, tmp_path):
    first = node(2, *_sum(tmp_path, "--steps", "2"), job="ours")
    _await_listening(port)
    code, output = node(2, "x.py", job="theirs", number=1).ended()
    assert code == 1
    assert "this is the rendezvous of 'ours'" in output
    second = node(2, *_sum(tmp_path, "--steps", "2"), job="ours", number=1)
    assert [code for code, _ in _ended(first, second)] == [0, 0]


def test_node_exits_with_the_scripts_code(node, tmp_path):
    script = tmp_path / "fails.py"
    script.write_text(
        "import os, sys\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], sys.argv[1:])\nsys.exit(7)\n"
    )
    code, output = node(1, str(script), "--an", "option").ended()
    assert code == 7
    assert "[default0]:rank 0 of 1 ['--an', 'option']" in output
    assert "local rank 0 failed: exit code 7" in output


def test_sigterm_ends_a_node_that_waits_for_others(node, port):
    alone = node(2, "x.py")
    _await_listening(port)
    alone.process.send_signal(signal.SIGTERM)
    assert alone.ended()[0] == 143


def test_join_error_names_missing_nodes_and_a_port_in_use(port, monkeypatch):
    with socket.create_server(("127.0.0.1", port)), pytest.raises(gang.JoinError, match="node 0 cannot listen there"):
        gang.join("127.0.0.1", port, "j", 2, rank=0)
    monkeypatch.setattr(gang, "JOIN_SECONDS", 0.2)
    with pytest.raises(gang.JoinError, match=r"1 of 2 nodes came within 0 s"):
        gang.join("127.0.0.1", port, "j", 2, 0)
    with pytest.raises(gang.JoinError, match=r"no\.such\.host\.invalid is not known"):
        gang.join("no.such.host.invalid", port, "j", 2, 0)


_ALL_FAIL = """
import os, pathlib, sys, time
here = pathlib.Path(sys.argv[1])
rank = int(os.environ["RANK"])
(here / f"began-{rank}").touch()
while len(list(here.glob("began-*"))) < int(os.environ["WORLD_SIZE"]):
    time.sleep(0.01)
if rank == int(sys.argv[2]):
    print("no disk", flush=True)
    time.sleep(0.3)
    (here / "failed").touch()
    time.sleep(0.5)  # of teardown
    sys.exit(3)
while not (here / "failed").exists():
    time.sleep(0.01)
sys.exit(sys.argv[3])
"""

_TORCHRUN = """
import os, subprocess, sys, time
size = {"WORLD_SIZE": sys.argv[1], "RANK": sys.argv[2]}
with open(f"{sys.argv[3]}.{sys.argv[2]}", "wb") as file:
    rank = subprocess.Popen([sys.executable, *sys.argv[3:]], env={**os.environ, **size}, stdout=file, stderr=file)
while rank.poll() is None:
    time.sleep(0.1)
if rank.returncode:
    print("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \\n===", file=sys.stderr, flush=True)
    time.sleep(600)  # its interpreter takes itself down
"""


def _hears(other, words):
    """It reports it, its ranks end, and it stays: Volcano would end a job of which all pods have failed."""
    until(lambda: words in other.output.read_text())
    until(lambda: not psutil.Process(other.process.pid).children())
    assert other.process.poll() is None
    other.process.send_signal(signal.SIGTERM)
    assert other.ended()[0] == 143


@pytest.mark.parametrize("launcher", ["gang", "torchrun"])
@pytest.mark.parametrize("bad", [0, 1])
@pytest.mark.parametrize("said", ["failed, too", "Connection closed by peer"])
def test_first_failed_node_ends_at_once_and_the_others_are_notified(node, tmp_path, launcher, bad, said):
    """Although the others' ranks end before its own: they have noticed. A stand-in of torchrun hides exit codes, and
    does not end by itself."""
    script, torchrun = tmp_path / "fails.py", tmp_path / "torchrun"
    script.write_text(_ALL_FAIL)
    torchrun.write_text(f"#!{sys.executable}\n{_TORCHRUN}")
    torchrun.chmod(0o755)
    nodes = []
    for number in range(2):
        launched = ["--launcher", str(torchrun), "2", str(number)] if launcher == "torchrun" else []
        words = ["--stay", "60", *launched, str(script), str(tmp_path), str(bad), said]
        nodes.append(node(2, *words, number=number))
    assert nodes[bad].ended()[0] == 3
    _hears(nodes[1 - bad], f"node {bad} failed first, with exit code 3")


@pytest.mark.parametrize("gone", [0, 1])
def test_killed_node_is_named_as_the_first_failure(node, tmp_path, gone):
    nodes = _two(node, "--stay", "60", *_sum(tmp_path, "--steps", FOR_EVER))
    _await_checkpoint(tmp_path)
    os.killpg(nodes[gone].process.pid, signal.SIGKILL)
    _hears(nodes[1 - gone], f"node {gone} failed first, with exit code 137")


def test_node_ends_when_the_gang_is_not_restarted(node, tmp_path):
    nodes = _two(node, "--stay", "0.1", *_sum(tmp_path, "--steps", FOR_EVER))
    _await_checkpoint(tmp_path)
    os.killpg(nodes[1].process.pid, signal.SIGKILL)
    assert nodes[0].ended()[0] == 143


def _starts(start, tmp_path, monkeypatch, starts, *options):
    """The ends of a gang that starts again and again: of ranks with an exit code, by a signal, or after a step."""
    script = tmp_path / "fails.py"
    script.write_text(
        "import os, sys\nprint(sys.argv[2], flush=True)\ncode = int(sys.argv[1])\n"
        "os.kill(os.getpid(), -code) if code < 0 else sys.exit(code)\n"
    )
    ended = []
    for attempt, how in enumerate(starts):
        monkeypatch.setenv("TRN_ATTEMPT", str(attempt))
        said = {"trains": '{"step": 1}', "broken": "ModuleNotFoundError: No module named 'm'"}.get(str(how), "loads")
        words = [str(how) if isinstance(how, int) else "2", said]
        ended.append(start(1, *options, str(script), *words).ended())
    return ended


@pytest.mark.parametrize(
    ("starts", "most", "codes"),
    [
        ([2, 2, 2], "3", [2, 2, 78]),
        ([2, 1, 2, 2], "3", [2, 1, 2, 2]),
        ([2, 2, -9, 2, 2], "3", [2, 2, 137, 2, 2]),
        ([2, 2, "trains", 2, 2], "3", [2, 2, 2, 2, 2]),
        ([2, 2, 2, 2], "0", [2, 2, 2, 2]),
        ([2, 2, 5, 5], "2:5", [2, 2, 5, 78]),
        ([-6, -6], "2:134", [134, 78]),
    ],
)
def test_repeated_failed_starts_end_the_job(node, tmp_path, monkeypatch, starts, most, codes):
    record = tmp_path / "output" / ".failed-starts"
    record.parent.mkdir()
    record.write_text("2 2\n")  # of an earlier job of the name
    ended = _starts(node, tmp_path, monkeypatch, starts, "--failed-starts", most, "--record", str(record))
    assert [code for code, _ in ended] == codes
    assert ("times in a row: no restart mends that" in ended[-1][1]) is (codes[-1] == 78)


_RANK_1_FAILS = """
import os, sys, time
if os.environ["RANK"] == "1":
    print("loading", os.environ["NOT_THERE"])
time.sleep(0.3)
raise ConnectionError("closed by peer")
"""


RAISED = ["[1]:Traceback (most recent call last):", '[1]:  File "a.py", line 1', "[1]:KeyError: 'A'"]


@pytest.mark.parametrize(
    ("lines", "local", "code", "cause"),
    [
        (RAISED, 1, 1, "exit code 1 of rank 3: KeyError: 'A'"),
        (RAISED, -1, 1, "exit code 1: KeyError: 'A'"),
        (RAISED, 0, 1, "exit code 1 of rank 2"),
        (RAISED, 1, 137, "exit code 137 of rank 3"),
        ([*RAISED, "later", "[1]:no disk"], 1, 1, "exit code 1 of rank 3: no disk"),
        (["[default1]:refused: no data", "[default1]:more"], 1, 78, "exit code 78 of rank 3: refused: no data"),
    ],
)
def test_cause_is_the_last_error_of_the_failed_rank(lines, local, code, cause, monkeypatch):
    ranks, now = object.__new__(gang._Ranks), 0
    ranks._in_traceback, ranks._errors, ranks._last_words = set(), {}, {}
    ranks._node, ranks._asked = SimpleNamespace(number=1), SimpleNamespace(nproc_per_node=2)
    monkeypatch.setattr(gang, "time", SimpleNamespace(monotonic=lambda: now))
    for line in lines:
        now += 60 * (line == "later")
        ranks._note_error(f"{line}\n".encode())
    assert ranks._cause(local, code) == cause


def test_traceback_of_the_first_failed_rank_is_the_last_line(node, tmp_path, monkeypatch):
    script, record = tmp_path / "fails.py", tmp_path / "record"
    script.write_text(_RANK_1_FAILS)
    cause, lines = "exit code 1 of rank 1: KeyError: 'NOT_THERE'", []
    for attempt in range(2):
        monkeypatch.setenv("TRN_ATTEMPT", str(attempt))
        lines.append(node(1, "--failed-starts", "2", "--record", str(record), str(script), ranks=2).ended()[1])
    assert lines[0].splitlines()[-1] == f"the first failure: {cause}"
    assert f"the start before ended with {cause}\n" in lines[1]
    assert "exit code 1 before a step, 2 times in a row" in lines[1].splitlines()[-1]
    monkeypatch.setattr(gang, "_MESSAGE_FILE", tmp_path / "message")
    gang._leave(cause)
    assert not (tmp_path / "message").exists(), "only where the kubelet has made it"
    (tmp_path / "message").touch()
    gang._leave(cause)
    assert (tmp_path / "message").read_text() == f"{cause}\n"


def test_failing_program_without_a_volume_ends_after_its_restarts(node, tmp_path, monkeypatch):
    starts = [2, -9, 2, 2, "trains", "broken"]
    ended = _starts(node, tmp_path, monkeypatch, starts, "--failed-starts", "3")
    assert [code for code, _ in ended] == [2, 137, 2, 2, 2, 78]
