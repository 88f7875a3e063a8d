"""The ports of a control plane: chosen once, and refused when another program has one."""

import dataclasses
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml
from waiting import SECONDS

from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.control_plane import ports
from trainium_eks.local.control_plane.flags import OPTIONAL_PORTS, PORTS, STAGES, commands
from trainium_eks.local.control_plane.ports import Settings, is_answered, is_free
from trainium_eks.local.control_plane.programs import AGENT
from trainium_eks.local.paths import Paths

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def paths(tmp_path):
    paths = Paths.of(tmp_path, "dev")
    paths.root.mkdir(parents=True)
    return paths


@pytest.fixture
def settings():
    return dataclasses.replace(Settings().with_ports(owns_no_port), kubernetes="1.35", is_complete=True)


def owns_no_port(_port):
    """No process of the stack listens."""
    return False


def test_each_listener_has_its_own_remembered_port(paths, settings):
    assert set(settings.ports) == {*PORTS, *OPTIONAL_PORTS}
    assert len(set(settings.ports.values())) == len(settings.ports)
    assert all(20000 <= port < 32768 for port in settings.ports.values())
    settings.save(paths)
    assert Settings.load(paths) == settings
    assert settings.with_ports(owns_no_port) == settings
    # Settings that cannot be read or have impossible ports are none.
    saved = json.loads(paths.settings.read_text())
    spoilt = [json.dumps({**saved, "ports": {**settings.ports, "etcd": port}}) for port in (0, 65536, "80")]
    for text in ("", "{", "[]", '{"ports": {"etcd": 1}}', '{"ports": 3, "complete": true}', *spoilt):
        paths.settings.write_text(text)
        assert Settings.load(paths) == Settings(), text


def test_kept_port_in_use_is_refused_with_its_program(settings, monkeypatch):
    monkeypatch.setattr(ports, "_FREE_WITHIN_SECONDS", 0.1)
    taken = settings.ports["etcd"]
    with socket.create_server(("127.0.0.1", taken)):
        assert [is_answered(settings.ports[name]) for name in ("etcd", "kube-apiserver")] == [True, False]
        assert settings.with_ports(lambda port: port == taken) == settings
        said = rf"Port {taken} of etcd is in use by \S+ \(process {os.getpid()}\)\. .*`trn local down`"
        with pytest.raises(ClusterError, match=said):
            settings.with_ports(owns_no_port)
        monkeypatch.setattr(ports, "_RANGE", range(taken, taken + 2))
        with pytest.raises(ClusterError, match=f"No free port was found on 127.0.0.1 between {taken} and {taken + 1}"):
            ports.free_port({taken + 1})


@pytest.mark.parametrize(("name", "is_complete"), [("etcd", False), ("vc-webhook-manager", True)])
def test_port_in_use_at_first_start_or_of_volcano_is_replaced(settings, monkeypatch, name, is_complete):
    monkeypatch.setattr(ports, "_FREE_WITHIN_SECONDS", 0.1)
    begun = dataclasses.replace(settings, is_complete=is_complete)
    with socket.create_server(("127.0.0.1", settings.ports[name])):
        found = begun.with_ports(owns_no_port)
    assert found.ports.items() ^ settings.ports.items() == {(name, each.ports[name]) for each in (found, settings)}


def test_port_of_an_ending_listener_is_kept(settings, monkeypatch):
    monkeypatch.setattr(ports, "_FREE_WITHIN_SECONDS", SECONDS)
    listener = socket.create_server(("127.0.0.1", settings.ports["etcd"]))
    ending = threading.Timer(0.2, listener.close)
    ending.start()
    assert settings.with_ports(owns_no_port) == settings
    ending.join()


def test_a_port_of_a_closed_listener_is_free_again(settings):
    port = settings.ports["etcd"]
    with socket.create_server(("127.0.0.1", port)) as server:
        client = socket.create_connection(("127.0.0.1", port))
        connection, _ = server.accept()
        connection.close()  # the server's side goes first, and its connection times out for a minute
        client.close()
        assert not is_free(port)
    assert is_free(port)


def test_probing_a_port_does_not_block_its_listener(settings):
    """The pods' agent begins to listen while it is waited for."""
    port = settings.ports["etcd"]
    asks = f"print('asks', flush=True)\nwhile True: is_answered({port})"
    code = f"from {is_answered.__module__} import is_answered; {asks}"
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE) as asking:
        try:
            assert asking.stdout.readline() == b"asks\n"
            for _ in range(3000):
                socket.create_server(("127.0.0.1", port)).close()
        finally:
            asking.kill()


def test_every_command_line_names_the_stack_and_only_loopback(paths, settings):
    programs = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"]
    lines = commands(paths, {name: Path("/bin") / name for name in programs}, settings.ports, "10.100.0.0/16")
    assert list(lines) == [*programs, AGENT]
    assert f"--root={paths.root}" in lines.pop(AGENT)
    for name, line in lines.items():
        assert line[0] == f"/bin/{name}"
        assert any(f"={paths.root}/" in argument for argument in line)
        assert not any("0.0.0.0" in argument for argument in line)


def test_kwok_stages_converge_and_skip_pods_with_local_images():
    """A stage that did not end what it begins with would be played with each renewal of 1,000 nodes' leases."""
    documents = [each for each in yaml.safe_load_all(STAGES.read_text()) if each["kind"] == "Stage"]
    stages = {each["metadata"]["name"]: each["spec"] for each in documents}
    for name, begins, ends in (("pod-ready", "Pending", "Running"), ("pod-of-job-succeeded", "Running", "Succeeded")):
        phase = {"key": ".status.phase", "operator": "In", "values": [begins]}
        assert phase in stages[name]["selector"]["matchExpressions"]
        assert f"phase: {ends}\n" in stages[name]["next"]["statusTemplate"]
    assert stages["node-heartbeat"]["delay"]["durationMilliseconds"] >= 600_000
    for name in stages:
        if name.startswith("pod-"):
            expressions = stages[name]["selector"]["matchExpressions"]
            local = [each["operator"] for each in expressions if 'startswith("local/")' in each["key"]]
            assert local == ["DoesNotExist"], name
