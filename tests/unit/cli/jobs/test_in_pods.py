"""`trn status --devices`, `tensorboard` and `profile`: commands that reach into pods, over real WebSockets."""

import json
import os
import signal
import socket
import sys
import threading
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from stub_api import Channel, StubApi, answer_http, run_command
from waiting import SECONDS, until
from watched_team import Call

from trainium_eks.cli.jobs import profile
from trainium_eks.cli.jobs import tensorboard as command
from trainium_eks.cli.jobs.status import bars, memory
from trainium_eks.client import device_use, tensorboard
from trainium_eks.client.failure import CommandError

NODE_0, NODE_1 = "alpha-trainer-0-0", "alpha-trainer-1-0"
SERVED_PORT = "TensorBoard"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (device_use, tensorboard, profile):
        monkeypatch.setattr(module, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(device_use, "FIRST_SECONDS", SECONDS)
    monkeypatch.setattr(tensorboard, "ANSWER_SECONDS", SECONDS)


# --- status --devices -------------------------------------------------------------------------------------------------


def report(busy: float) -> str:
    in_use = {str(core): {"neuroncore_utilization": busy} for core in range(4)}
    used = {"neuron_runtime_used_bytes": {"neuron_device": 8 * 1024**3}}
    process = {
        "pid": 1,
        "error": "",
        "report": {"neuroncore_counters": {"neuroncores_in_use": in_use}, "memory_used": used},
    }
    hardware = {"neuron_device_count": 16, "neuron_device_memory_size": 34359738368, "error": ""}
    system = {"vcpu_usage": {"average_usage": {"idle": 75.0}}, "memory_info": {}}
    return json.dumps({"neuron_runtime_data": [process], "neuron_hardware_info": hardware, "system_data": system})


def test_each_node_of_the_job_is_shown(call: Call, api: StubApi) -> None:
    node_1_is_read = threading.Event()

    def node_1(channel: Channel) -> None:
        run_command([report(0.0), report(50.0)])(channel)
        assert not [*channel.received()]  # until it is closed on the other side, too
        node_1_is_read.set()

    def node_0(channel: Channel) -> None:
        # There is a picture as soon as each node has said something.
        node_1_is_read.wait(SECONDS)
        run_command([report(100.0)])(channel)

    api.channels |= {f"{NODE_0}/exec": node_0, f"{NODE_1}/exec": node_1}
    code, out = call("status", "alpha", "--devices")
    assert code == 0
    lines = out[out.index("NODE") :].splitlines()
    assert lines[0].split() == ["NODE", "BUSY", "EACH", "CORE", "DEVICE", "MEM", "CPU", "HOST", "MEM", "ERR"]
    assert lines[1].split() == ["0", "100%", "████", "8/512G", "25%", "-", "0"]
    assert lines[2].split() == ["1", "50%", "▄▄▄▄", "8/512G", "25%", "-", "0"]
    assert all("container=trainer" in each and "neuron-monitor" in each for each in api.asked if "/exec?" in each)


def test_nodes_that_cannot_be_read_say_why(call: Call, api: StubApi) -> None:
    api.channels[f"{NODE_0}/exec"] = run_command([], code=3)
    api.refuses[f"/api/v1/namespaces/training/pods/{NODE_1}/exec"] = 403
    code, out = call("status", "alpha", "--devices", "--json")
    assert code == 1
    assert [(each["usage"], each["trouble"]) for each in json.loads(out)["devices"]] == [
        (None, "its image has neither neuron-monitor (aws-neuronx-tools) nor nvidia-smi"),
        (None, "you may not run commands in pods (pods/exec)"),
    ]


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (b"this kubelet runs no commands\n", "this kubelet runs no commands"),
        (b'{"message": "no such container"}', "no such container"),
        (b'{"status": "Failure", "message": "container not found"}', "container not found"),
    ],
)
def test_a_kubelet_that_runs_no_command_is_quoted(call: Call, api: StubApi, told: bytes, why: str) -> None:
    # The API server has opened the channel by then, so that only what is said there tells.
    def speak(channel: Channel) -> None:
        channel.send(3, told)
        channel.close()

    api.channels[f"{NODE_0}/exec"] = api.channels[f"{NODE_1}/exec"] = speak
    code, out = call("status", "alpha", "--devices", "--json")
    assert code == 1
    assert json.loads(out)["devices"][0]["trouble"] == why


def test_on_the_local_cloud_a_pods_processes_are_looked_at(tmp_path: Path) -> None:
    node = device_use.NodeReading("p", "uid", 0, "n")
    (tmp_path / "state.json").write_text(json.dumps({"containers": {"trainer": {"pid": os.getpid()}}}))
    reading = threading.Thread(target=device_use.read_here, args=(tmp_path, node, "trainer"), daemon=True)
    reading.start()
    found = until(lambda: node.reader.last)
    assert found is not None
    assert found.unit == "process"
    assert (found.host_bytes or 0) > 10 * 1024**2
    (tmp_path / "state.json").unlink()
    reading.join(SECONDS)
    assert node.trouble.startswith("its containers are simulated, or have ended")


def test_a_job_that_waits_has_no_usage(call: Call) -> None:
    code, out = call("status", "beta", "--devices")
    assert code == 1
    assert "pending for 4s: " in out


def test_cores_are_bars_in_groups_of_eight() -> None:
    assert bars({core: core * 100 / 8 for core in range(9)}) == " ▁▂▃▄▅▆▇ █"
    assert bars({10: 100.0, 2: 0.0}) == " █"
    assert bars({}) == ""


def test_memory_is_of_all_where_that_is_known_and_else_in_the_unit_that_is_read_at_once() -> None:
    shown = [memory(3 * 2**30, 2**35), memory(1.5 * 2**30, None), memory(33 * 2**20, None), memory(None, None)]
    assert shown == ["3/32G", "1.5G", "33M", "-"]


# --- tensorboard ------------------------------------------------------------------------------------------------------


def starts(api: StubApi, phase: str = "Running") -> None:
    def act(made: dict[str, Any]) -> None:
        made["status"] = {"phase": phase}
        made["spec"]["nodeName"] = "cpu-1"

    api.after_create = act


def serve_once(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Instead of waiting for Ctrl-C: asks the address that is shown, as a browser does."""
    seen: list[tuple[str, str]] = []

    def serve(_: object, url: str, directory: str, where: str) -> None:
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:
            seen.append((answer.read().decode(), directory))
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_serve", serve)
    return seen


def test_tensorboard_is_a_pod_whose_port_is_forwarded(
    call: Call, api: StubApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts(api)
    made: list[dict[str, Any]] = []
    inner = api.after_create
    api.after_create = lambda pod: (inner(pod), made.append(pod))
    api.channels["tensorboard-alpha/portforward"] = answer_http(SERVED_PORT)
    seen = serve_once(monkeypatch)
    assert call("tensorboard", "alpha")[0] == 0
    assert seen == [(SERVED_PORT, "/data/output/alpha/tensorboard")]
    (pod,) = made
    (container,) = pod["spec"]["containers"]
    assert container["image"] == "busybox"
    assert container["args"][:2] == ["--logdir", "/data/output/alpha/tensorboard"]
    assert container["volumeMounts"][0] == {"name": "data", "mountPath": "/data", "readOnly": True}
    assert api.deleted == ["/api/v1/namespaces/training/pods/tensorboard-alpha"]


def test_a_pod_that_is_kept_is_used_again(call: Call, api: StubApi, monkeypatch: pytest.MonkeyPatch) -> None:
    starts(api)
    api.channels["tensorboard-alpha/portforward"] = answer_http(SERVED_PORT)
    seen = serve_once(monkeypatch)
    assert call("tensorboard", "alpha", "--keep")[0] == 0
    assert call("tensorboard", "alpha", "--keep")[0] == 0
    assert len(seen) == 2
    assert api.deleted == []


def test_an_image_without_tensorboard_is_said_and_its_pod_removed(call: Call, api: StubApi) -> None:
    starts(api, "Failed")
    api.logs["tensorboard-alpha"] = ["/usr/bin/python3: No module named tensorboard"]
    code, out = call("tensorboard", "alpha")
    assert code == 1
    assert "the image busybox has no TensorBoard (/usr/bin/python3: No module named tensorboard)" in out
    assert api.deleted == ["/api/v1/namespaces/training/pods/tensorboard-alpha"]


def test_a_port_that_may_not_be_forwarded_is_said(call: Call, api: StubApi) -> None:
    starts(api)
    api.refuses["/api/v1/namespaces/training/pods/tensorboard-alpha/portforward"] = 403
    code, out = call("tensorboard", "alpha")
    assert code == 1
    assert "the port of tensorboard-alpha cannot be reached: Handshake status 403" in out
    assert len(api.deleted) == 1


def test_the_logs_of_a_job_that_is_gone_need_an_image(
    call: Call, api: StubApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out = call("tensorboard", "gone-for-good")
    assert code == 2
    assert "name an image with TensorBoard by --image" in out
    starts(api)
    api.channels["tensorboard-gone-for-good/portforward"] = answer_http(SERVED_PORT)
    seen = serve_once(monkeypatch)
    assert call("tensorboard", "gone-for-good", "--image", "board:1")[0] == 0
    assert seen == [(SERVED_PORT, "/data/output/gone-for-good/tensorboard")]


def test_a_port_that_is_taken_is_said(call: Call, api: StubApi) -> None:
    starts(api)
    api.channels["tensorboard-alpha/portforward"] = answer_http(SERVED_PORT)
    taken = api.url.rpartition(":")[2]
    code, out = call("tensorboard", "alpha", "--port", taken)
    assert code == 2
    assert f"port {taken} of this machine cannot be had: Address already in use" in out


TENSORBOARD = """#!{python}
import http.server, sys, time
sys.stderr.write("a warning\\n" * 20_000)  # more than a pipe holds
if "{ends}":
    sys.exit("{ends}")
time.sleep(0.5)
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"curves")
http.server.HTTPServer(("127.0.0.1", int(sys.argv[-1])), Page).serve_forever()
"""


def _on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str = "") -> Any:
    """A session of a local stack, and a program `tensorboard`."""
    program = tmp_path / "bin" / "tensorboard"
    program.parent.mkdir()
    program.write_text(TENSORBOARD.format(python=sys.executable, ends=ends))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    (tmp_path / "claims" / "team" / "claim" / "output" / "alpha" / "tensorboard").mkdir(parents=True)
    paths = SimpleNamespace(claims=tmp_path / "claims")
    namespace = SimpleNamespace(name="team", claim="claim")
    return SimpleNamespace(source=SimpleNamespace(paths=paths), namespace=namespace)


DIRECTORY = "/data/output/alpha/tensorboard"


def test_on_a_local_stack_its_address_is_given_once_it_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = _on_this_machine(tmp_path, monkeypatch)
    with (
        tensorboard.here(session, "alpha", DIRECTORY, port=_free_port()) as url,
        urllib.request.urlopen(url, timeout=SECONDS) as answer,
    ):
        assert answer.read() == b"curves"


def test_on_a_local_stack_sigterm_ends_it_as_ctrl_c_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session, port = _on_this_machine(tmp_path, monkeypatch), _free_port()

    def end() -> None:
        with tensorboard.here(session, "alpha", DIRECTORY, port=port):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(SECONDS)

    with pytest.raises(KeyboardInterrupt):
        end()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_on_a_local_stack_what_ends_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = _on_this_machine(tmp_path, monkeypatch, ends="no module tensorflow")
    with (
        pytest.raises(CommandError, match=r"tensorboard ended: no module tensorflow$"),
        tensorboard.here(session, "alpha", DIRECTORY, port=_free_port()),
    ):
        pass
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        with (
            pytest.raises(CommandError, match="Address already in use"),
            tensorboard.here(session, "alpha", DIRECTORY, port=taken),
        ):
            pass


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


# --- profile ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def writes(api: StubApi) -> None:
    """alpha says where it writes, as what `trn train` submits does."""
    for task in api.objects["Job"][0]["spec"]["tasks"]:
        container = task["template"]["spec"]["containers"][0]
        container["env"] = [{"name": "TRN_OUTPUT_DIR", "value": "/data/output/alpha"}]
        container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]


@pytest.mark.usefixtures("writes")
def test_profile_runs_the_job_again_for_some_steps_and_removes_that_run(call: Call, api: StubApi) -> None:
    made: list[dict[str, Any]] = []

    def begin(job: dict[str, Any]) -> None:
        made.append(job)
        job["status"] = {"state": {"phase": "Running"}, "running": 2}
        pod = json.loads(json.dumps(api.named("Pod", NODE_0)))
        labels = {**pod["metadata"]["labels"], "volcano.sh/job-name": "alpha-profile"}
        pod["metadata"] |= {"name": "alpha-profile-trainer-0-0", "labels": labels, "uid": "p"}
        api.objects["Pod"].append(pod)
        lines = [json.dumps({"step": step, "time": time.time()}) for step in (1, 2, 3, 4)]
        api.logs["alpha-profile-trainer-0-0"] = lines

    api.after_create = begin
    code, out = call("profile", "alpha", "--steps", "4")
    assert code == 0
    assert "Profiled 4 steps: /data/profiles/alpha on the team's volume." in out
    assert "neuron-explorer view -d /data/profiles/alpha" in out
    assert made[0]["metadata"]["name"] == "alpha-profile"
    assert api.deleted == ["/apis/batch.volcano.sh/v1alpha1/namespaces/training/jobs/alpha-profile"]


@pytest.mark.usefixtures("writes")
def test_a_profile_that_fails_is_removed_too(call: Call, api: StubApi) -> None:
    at = "2026-11-22T05:40:00Z"
    api.after_create = lambda job: job.update(status={"state": {"phase": "Failed", "lastTransitionTime": at}})
    code, out = call("profile", "alpha")
    assert code == 1
    assert "alpha-profile failed before its first step" in out
    assert len(api.deleted) == 1


def test_a_job_that_cannot_be_profiled_is_refused_with_the_reason(call: Call, api: StubApi) -> None:
    code, out = call("profile", "alpha")
    assert code == 1
    assert "alpha has no shared volume at /data to write profiles to" in out
    assert api.deleted == []
