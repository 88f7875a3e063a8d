"""`trn status --devices`, `tensorboard` and `profile`: commands that reach into pods, over real WebSockets."""

import json
import os
import threading
import urllib.request
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from stub_api import answer_http, run_command
from waiting import SECONDS, until

from trainium_eks.cli.jobs import profile
from trainium_eks.cli.jobs import tensorboard as command
from trainium_eks.cli.jobs.status import bars, memory
from trainium_eks.client import device_use, tensorboard
from trainium_eks.client.failure import CommandError

NODE_0, NODE_1 = "alpha-trainer-0-0", "alpha-trainer-1-0"
SERVED_PORT = "TensorBoard"


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    for module in (device_use, tensorboard, profile):
        monkeypatch.setattr(module, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(device_use, "FIRST_SECONDS", SECONDS)
    monkeypatch.setattr(tensorboard, "ANSWER_SECONDS", SECONDS)


# --- status --devices -------------------------------------------------------------------------------------------------


def report(busy):
    in_use = {str(core): {"neuroncore_utilization": busy} for core in range(4)}
    used = {"neuron_runtime_used_bytes": {"neuron_device": 8 * 1024**3}}
    counted = {"neuroncore_counters": {"neuroncores_in_use": in_use}, "memory_used": used}
    process = {"pid": 1, "error": "", "report": counted}
    hardware = {"neuron_device_count": 16, "neuron_device_memory_size": 34359738368, "error": ""}
    system = {"vcpu_usage": {"average_usage": {"idle": 75.0}}, "memory_info": {}}
    return json.dumps({"neuron_runtime_data": [process], "neuron_hardware_info": hardware, "system_data": system})


def test_each_node_of_the_job_is_shown(call, api):
    node_1_is_read = threading.Event()

    def node_1(channel):
        run_command([report(0.0), report(50.0)])(channel)
        assert not [*channel.received()]  # until it is closed on the other side, too
        node_1_is_read.set()

    def node_0(channel):
        # There is a picture as soon as each node has said something.
        node_1_is_read.wait(SECONDS)
        run_command([report(100.0)])(channel)

    api.channels |= {f"{NODE_0}/exec": node_0, f"{NODE_1}/exec": node_1}
    out = call.ends(0, "status alpha --devices")
    lines = out[out.index("NODE") :].splitlines()
    assert lines[0].split() == ["NODE", "BUSY", "EACH", "CORE", "DEVICE", "MEM", "CPU", "HOST", "MEM", "ERR"]
    assert lines[1].split() == ["0", "100%", "████", "8/512G", "25%", "-", "0"]
    assert lines[2].split() == ["1", "50%", "▄▄▄▄", "8/512G", "25%", "-", "0"]
    assert all("container=trainer" in each and "neuron-monitor" in each for each in api.asked if "/exec?" in each)


def troubles(call):
    code, out = call("status", "alpha", "--devices", "--json")
    assert (code, {each["usage"] for each in json.loads(out)["devices"]}) == (1, {None})
    return [each["trouble"] for each in json.loads(out)["devices"]]


def test_unreadable_node_shows_its_reason(call, api):
    api.channels[f"{NODE_0}/exec"] = run_command([], code=3)
    api.refuses[f"/api/v1/namespaces/training/pods/{NODE_1}/exec"] = 403
    assert troubles(call) == [
        "its image has neither neuron-monitor (aws-neuronx-tools) nor nvidia-smi",
        "you may not run commands in pods (pods/exec)",
    ]
    call.ends(1, "status beta --devices", "pending for 4s: ")
    for told, why in (
        (b"this kubelet runs no commands\n", "this kubelet runs no commands"),
        (b'{"status": "Failure", "message": "container not found"}', "container not found"),
    ):
        # The API server has opened the channel by then, so that only what is said there tells.
        def speak(channel, told=told):
            channel.send(3, told)
            channel.close()

        api.channels[f"{NODE_0}/exec"] = api.channels[f"{NODE_1}/exec"] = speak
        assert troubles(call)[0] == why


def test_usage_of_a_local_pod_shows_cores_as_bars_and_memory_with_its_unit(tmp_path):
    node = device_use.NodeReading("p", "uid", 0, "n")
    (tmp_path / "state.json").write_text(json.dumps({"containers": {"trainer": {"pid": os.getpid()}}}))
    reading = threading.Thread(target=device_use.read_here, args=(tmp_path, node, "trainer"), daemon=True)
    reading.start()
    found = until(lambda: node.reader.last)
    assert found.unit == "process"
    assert (found.host_bytes or 0) > 10 * 1024**2
    (tmp_path / "state.json").unlink()
    reading.join(SECONDS)
    assert node.trouble.startswith("its containers are simulated, or have ended")
    assert bars({core: core * 100 / 8 for core in range(9)}) == " ▁▂▃▄▅▆▇ █"
    assert bars({10: 100.0, 2: 0.0}) == " █"
    assert bars({}) == ""
    # Memory is of all where that is known, and else in the unit that is read at once.
    shown = [memory(3 * 2**30, 2**35), memory(1.5 * 2**30, None), memory(33 * 2**20, None), memory(None, None)]
    assert shown == ["3/32G", "1.5G", "33M", "-"]


# --- tensorboard ------------------------------------------------------------------------------------------------------


PODS = "/api/v1/namespaces/training/pods"
DIRECTORY = "/data/output/alpha/tensorboard"


@pytest.fixture
def made(api):
    """Pods that were made; each runs at once, and its TensorBoard answers."""
    pods = []

    def act(pod):
        pods.append(pod)
        pod["status"] = {"phase": "Running"}
        pod["spec"]["nodeName"] = "cpu-1"

    api.after_create = act
    for job in ("alpha", "gone-for-good"):
        api.channels[f"tensorboard-{job}/portforward"] = answer_http(SERVED_PORT)
    return pods


@pytest.fixture
def seen(monkeypatch):
    """What a browser sees at the address that is shown, which is asked instead of waiting for Ctrl-C."""
    found = []

    def show(_, url, directory, pod):
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:
            found.append((answer.read().decode(), directory))
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_show", show)
    return found


def test_tensorboard_forwards_a_pods_port_or_names_the_missing_image(call, api, made, seen):
    call.ends(0, "tensorboard alpha --keep")
    assert api.deleted == []
    call.ends(0, "tensorboard alpha")
    assert seen == [(SERVED_PORT, DIRECTORY)] * 2
    assert len(made) == 1, "one that is kept is used again"
    (container,) = made[0]["spec"]["containers"]
    assert (container["image"], container["args"][:2]) == ("busybox", ["--logdir", DIRECTORY])
    assert container["volumeMounts"][0] == {"name": "data", "mountPath": "/data", "readOnly": True}
    assert api.deleted == [f"{PODS}/tensorboard-alpha"]
    taken = api.url.rpartition(":")[2]
    said = f"port {taken} of this machine cannot be had: Address already in use"
    call.ends(2, f"tensorboard alpha --port {taken}", said)
    api.refuses[f"{PODS}/tensorboard-alpha/portforward"] = 403
    call.ends(1, "tensorboard alpha", "the port of tensorboard-alpha cannot be reached: Handshake status 403")
    assert {*api.deleted} == {f"{PODS}/tensorboard-alpha"}
    call.ends(2, "tensorboard gone-for-good", "name an image with TensorBoard by --image")
    call.ends(0, "tensorboard gone-for-good --image board:1")
    assert seen[2:] == [(SERVED_PORT, "/data/output/gone-for-good/tensorboard")]


def test_image_without_tensorboard_is_reported_and_its_pod_deleted(call, api):
    api.after_create = lambda pod: pod.update(status={"phase": "Failed"})
    why = "/usr/bin/python3: No module named tensorboard"
    api.logs["tensorboard-alpha"] = [why]
    call.ends(1, "tensorboard alpha", f"the image busybox has no TensorBoard ({why})")
    assert api.deleted == [f"{PODS}/tensorboard-alpha"]


@pytest.fixture
def local(tmp_path, monkeypatch):
    """A local stack's claim, without logs, and a program `tensorboard` on PATH."""
    program = tmp_path / "bin" / "tensorboard"
    program.parent.mkdir()
    program.touch(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setattr(tensorboard.job_access.images, "all_images", list)
    (tmp_path / "claims" / "team" / "claim").mkdir(parents=True)
    paths, namespace = SimpleNamespace(claims=tmp_path / "claims"), SimpleNamespace(name="team", claim="claim")
    session = SimpleNamespace(source=SimpleNamespace(paths=paths), namespace=namespace, is_local=True)
    return SimpleNamespace(session=session, program=program, claim=tmp_path / "claims/team/claim")


def test_tensorboard_of_a_local_stack_takes_the_place_of_the_command(call, local, monkeypatch):
    with pytest.raises(CommandError, match="alpha has written no TensorBoard logs: there is no /data/output/alpha"):
        tensorboard.local_command(local.session, "alpha", DIRECTORY, 1)
    logs = local.claim / "output/alpha/tensorboard"
    logs.mkdir(parents=True)
    ran = []
    monkeypatch.setattr(command, "open_session", lambda _: nullcontext(local.session))
    monkeypatch.setattr(tensorboard, "logs_of", lambda *_: (DIRECTORY, ""))
    monkeypatch.setattr(os, "execv", lambda program, words: ran.append((program, words)))
    out = call.ends(0, "tensorboard alpha")
    assert f"TensorBoard of {DIRECTORY}: http://127.0.0.1:6006" in out
    program = str(local.program)
    assert ran == [(program, [program, "--logdir", str(logs), "--host", "127.0.0.1", "--port", "6006"])]
    local.program.unlink()
    call.ends(2, "tensorboard alpha", "no tensorboard on PATH")
