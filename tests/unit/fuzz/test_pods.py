"""What pods and their owners write, as every command reads it: hostile inputs end none, and none steers a terminal."""

import io
import json
import re
from datetime import UTC, datetime

import pytest
import watched_team
from hostile import JSON, TEXT, as_text, budget, damaged, hostile
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client.exceptions import ApiException
from recorded_scenes import now, snapshot
from stub_api import StubApi
from typer.testing import CliRunner

from trainium_eks.cli.app import app
from trainium_eks.cli.jobs.status import UsageTable, steps_lines
from trainium_eks.cli.shared.console import Console, lines
from trainium_eks.cli.shared.progress import ShownProgress
from trainium_eks.client import device_use, ending, reading
from trainium_eks.client.failure import TRACEBACK
from trainium_eks.jobs.watch import cloudwatch_logs, endings, log_lines, steps, usage
from trainium_eks.kube import pod_channels
from trainium_eks.kube.pod_text import printable
from trainium_eks.kube.requests import Requests
from trainium_eks.local.agent import log_retention

pytestmark = pytest.mark.slow

NOW = datetime(2026, 11, 22, 5, 40, tzinfo=UTC)
STEP = {"step": 12, "time": 1763000000.1, "loss": 0.5, "steps": 100, "tokens_per_second": 3.5, "checkpoint_step": 10}
RUNTIME = {
    "neuroncore_counters": {"neuroncores_in_use": {"0": {"neuroncore_utilization": 40.5}}},
    "memory_used": {"neuron_runtime_used_bytes": {"neuron_device": 1000}},
    "execution_stats": {"error_summary": {"generic": 1}},
}
REPORT = {
    "neuron_runtime_data": [{"report": RUNTIME}],
    "neuron_hardware_info": {"neuron_device_count": 16, "neuron_device_memory_size": 10**10, "error": ""},
    "system_data": {
        "vcpu_usage": {"average_usage": {"idle": 40.0}},
        "memory_info": {"memory_used_bytes": 1000, "memory_total_bytes": 2000},
        "neuron_hw_counters": {"neuron_devices": [{"mem_ecc_uncorrected": 0, "sram_ecc_uncorrected": 1}]},
    },
}
COPIER = {"stage": "copying", "bytes": 1, "total_bytes": 2, "files": 0, "total_files": 1, "rate": 3.5, "message": "m"}
STATUS = {"status": "Failure", "message": "m", "details": {"causes": [{"reason": "ExitCode", "message": "3"}]}}
EVENT = {"log": "a line", "time": "2026-11-22T05:30:00Z", "kubernetes": {"pod_name": "p"}}


def is_plain(text):
    """Whether a text steers no terminal."""
    return not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text)


def shown(*parts):
    """What is printed of them."""
    buffer = io.StringIO()
    console = Console(file=buffer, width=100, force_terminal=False)
    for each in parts:
        console.print(each)
    return buffer.getvalue()


def read_steps(texts):
    found = steps.progress(steps.parse_all(texts), NOW.timestamp())
    if found is not None:
        json.dumps(found.to_json(), allow_nan=False)
        assert is_plain(shown(lines(steps_lines(found))))
    return found


def read_reports(texts):
    reader = usage.Reader()
    for each in texts:
        reader.line(each)
    if reader.last is not None:
        json.dumps(reader.last.to_json(), allow_nan=False)
        node = device_use.NodeReading("p", "u", 0, "n", reader)
        assert is_plain(shown(UsageTable([node])))
    return reader.last


def read_copier(texts):
    buffer = io.StringIO()
    progress = ShownProgress(Console(file=buffer, width=100, force_terminal=False), None)
    for each in texts:
        progress.line(each)
    assert is_plain(buffer.getvalue())
    return progress.count("bytes")


def read_log(texts):
    for each in texts:
        line = log_lines.parse(each)
        assert line.local_rank is None or line.local_rank >= 0
    return endings.root_cause("\n".join(texts))


def event(message):
    return cloudwatch_logs.line_of({"message": message, "timestamp": 1_763_000_000_000}).text


LINES = {
    "steps": (STEP, read_steps),
    "neuron-monitor": (REPORT, read_reports),
    "nvidia-smi": ("0, 97, 61234, 81559", read_reports),
    "copier": (COPIER, read_copier),
    "log": ("[default0]:rank : 1 (local_rank: 1) exitcode : 1", read_log),
    "log shipper": (EVENT, lambda texts: [event(each) for each in texts]),
    "end of a command": (STATUS, lambda texts: [pod_channels._ending(each) for each in texts]),
}


@pytest.mark.parametrize("reader", LINES)
def test_any_log_line_is_parsed(reader):
    document, read = LINES[reader]
    line = damaged(document).map(as_text) if isinstance(document, dict) else TEXT.map(lambda text: f"{document}{text}")

    @budget(60)
    @given(st.lists(st.one_of(line, TEXT, JSON.map(as_text)), max_size=4))
    def run(texts):
        read(texts)

    run()


@budget(60)
@given(TEXT)
def test_printable_text_is_plain_and_unchanged_by_a_second_call(text):
    made = printable(text)
    assert is_plain(made)
    assert printable(made) == made


@budget(60)
@given(st.lists(st.one_of(st.binary(max_size=60), st.just(b"2026-11-22T05:30:00.000000000Z F a\n"))), TEXT)
def test_kept_logs_of_deleted_pods_are_readable(tmp_path_factory, parts, name):
    place = tmp_path_factory.getbasetemp() / "kept"
    container = place / "team" / "pod" / "uid" / "c"
    container.mkdir(parents=True, exist_ok=True)
    (container / "0.log").write_bytes(b"".join(parts))
    (container / "1.log.old").write_bytes(b"".join(reversed(parts)))
    assert all(line.pod == "pod" for line in log_retention.lines(place, "team", "pod", ""))
    assert log_retention.pods(place, "team") == ["pod"]


CHECKED = frozenset(
    {"name", "generateName", "namespace", "uid", "kind", "apiVersion", "involvedObject", "ownerReferences", "labels"}
    | {"creationTimestamp", "lastTransitionTime", "startedAt", "finishedAt", "lastTimestamp", "firstTimestamp"}
    | {"eventTime", "lastObservedTime", "lastHeartbeatTime", "lastProbeTime", "startTime", "deletionTimestamp"}
    | {"resources", "allocatable", "capacity", "capability", "allocated", "deserved", "guarantee", "minResources"}
    | {"matchLabels", "nodeInfo", "type", "status", "effect", "operator", "tier", "resourceVersion", "managedFields"}
)
"""What an API server checks of the objects that people make, or writes itself."""

COMMANDS = ("jobs --all", "status alpha", "status beta", "logs alpha --all", "logs alpha --rank 1", "cancel alpha")
COMMANDS += ("status alpha --devices", "status", "logs alpha --since 1h", "jobs --json", "status alpha --json")


def objects():
    """A team's jobs, with every text of their owners that commands read."""
    found = snapshot("queue_full")
    for job in found["Job"]:
        noted = {"world-size": "64", "nodes": "2", "launcher": "gang", "capacity-block-ends": "2026-11-23T00:00:00Z"}
        job["metadata"]["annotations"] = {f"trainium-eks/{key}": value for key, value in noted.items()}
        for task in job["spec"]["tasks"]:
            env = [{"name": "TRN_OUTPUT_DIR", "value": "/data/output/x"}]
            task["template"]["spec"]["containers"][0].update(args=["--nproc_per_node 2"], env=env)
    for pod in found["Pod"]:
        pod["spec"]["containers"][0]["env"] = [{"name": "TRN_CHECKPOINT_SECONDS", "value": "60"}]
        ended = {"exitCode": 1, "reason": "Error", "message": "because", "finishedAt": "2026-11-22T05:33:00Z"}
        pod["status"]["containerStatuses"] = [{"name": "c", "state": {"terminated": ended}, "image": "x"}]
    return found


SCENE = objects()
LISTS = {kind: value for kind, value in SCENE.items() if isinstance(value, list)}
LOG = [f"2026-11-22T05:33:0{second}Z [default0]:{json.dumps({**STEP, 'step': second})}" for second in range(9)]


class Served(StubApi):
    """A server without a network: every request of the process is answered by it."""

    def once(self, method, path, _, query, *__):
        log = re.fullmatch("/api/v1/namespaces/[^/]+/pods/([^/]+)/log", path)
        if log:
            return "\n".join(self.log(log[1], follow=False, tail=int(query.get("tailLines", 10**6))))
        status, answer = self.delete(path) if method == "DELETE" else self.answer(path, query.get("labelSelector", ""))
        if status >= 400:
            raise ApiException(status=status, reason="x", http_resp=None)
        return json.dumps(answer)


@pytest.fixture
def served(monkeypatch):
    stub = Served({}, "http://127.0.0.1:9")
    monkeypatch.setattr(Requests, "_once", lambda _, *given: stub.once(*given))
    monkeypatch.setattr(reading, "now", lambda: now(SCENE))
    monkeypatch.setattr(device_use, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(ending, "MARGIN_SECONDS", 0.0)
    monkeypatch.setattr(ending, "_grace_seconds", lambda _: 0)

    def no_way(*_):
        raise pod_channels.NoChannelError("the command ended with exit code 3")

    monkeypatch.setattr(pod_channels, "lines", no_way)
    return stub


def call(served, folder, command):
    """The exit code of a command of the team, and what it printed."""

    def trn(*arguments):
        return CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False)

    return watched_team.researcher(trn, served, folder)(*command.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_hostile_job_cannot_break_a_teams_commands(command, served, tmp_path, monkeypatch):
    """A job of one member, its pods and its log, against what all others of the team see."""
    monkeypatch.setenv(TRACEBACK, "1")
    monkeypatch.setenv("COLUMNS", "100")

    @budget(6)
    @given(hostile({"Job": SCENE["Job"], "Pod": SCENE["Pod"]}, CHECKED), st.lists(TEXT, max_size=3))
    def run(changed, lines):
        # The lists themselves stay: their entries are user input.
        served.objects = {**LISTS, **{kind: changed[kind] or LISTS[kind] for kind in changed}}
        served.logs = {pod["metadata"]["name"]: [*LOG, *lines] for pod in served.objects["Pod"]}
        code, out = call(served, tmp_path, command)
        assert code in (0, 1, 2), out
        if not command.startswith("logs"):
            assert is_plain(out)
        if "--json" in command:
            json.loads(out)

    run()
