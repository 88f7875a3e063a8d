"""What a chart's webhooks become before Helm installs them."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import yaml

from trainium_eks.local.releases import webhooks
from trainium_eks.local.releases.helm_cli import python_file

CONFIG_MAP = "# Source: chart/templates/a.yaml\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: v\n"
PROCESS = {"url": "https://127.0.0.1:20001", "caBundle": "Q0E="}


def configuration(*services, kind="ValidatingWebhookConfiguration"):
    hooks = []
    for place in services:
        namespace, _, name = place.partition("/")
        service = {"namespace": namespace, "name": name, "path": "/queues/validate", "port": 443}
        hooks.append({"name": f"{name}.example.com", "clientConfig": {"service": service}, "failurePolicy": "Fail"})
    metadata = {"name": "conf"}
    return {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": metadata, "webhooks": hooks}


def manifest(*objects):
    return "".join(f"---\n{text}" for text in (CONFIG_MAP, *(yaml.safe_dump(each) for each in objects)))


def objects(text):
    return [body for body in yaml.safe_load_all(text) if body]


def test_webhook_of_a_running_process_is_redirected_and_others_are_removed():
    after = webhooks.rewritten(manifest(configuration("ns/svc", "other/gone")), {"ns/svc": PROCESS})
    (hook,) = objects(after)[1]["webhooks"]
    assert hook["name"] == "svc.example.com"
    assert hook["clientConfig"] == {"url": "https://127.0.0.1:20001/queues/validate", "caBundle": "Q0E="}
    assert hook["failurePolicy"] == "Fail"
    assert webhooks.left_out(after) == ["ValidatingWebhookConfiguration conf (gone.example.com)"]
    elsewhere = webhooks.rewritten(manifest(configuration("elsewhere/svc")), {"ns/svc": PROCESS})
    assert len(webhooks.left_out(elsewhere)) == 1, "a service of the same name"


def test_external_webhook_and_local_api_service_are_kept():
    def api(name, **spec):
        metadata = {"name": name}
        return {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": metadata, "spec": spec}

    outside, local = configuration("ns/svc"), api("v1.b", group="b")
    outside["webhooks"][0]["clientConfig"] = {"url": "https://example.com/x"}
    after = webhooks.rewritten(manifest(outside, api("v1.a", service={"name": "s", "namespace": "n"}), local), {})
    assert objects(after)[1:] == [outside, local]
    assert webhooks.left_out(after) == ["APIService v1.a"]


def test_manifest_without_webhooks_is_unchanged():
    text = f"{manifest()}  inside: |\n    kind: ValidatingWebhookConfiguration\n"
    assert webhooks.rewritten(text, {}) == text
    for form in (yaml.safe_dump, json.dumps):
        after = webhooks.rewritten(form(configuration("ns/svc")), {})
        assert objects(after) == []
        assert webhooks.left_out(after) == ["ValidatingWebhookConfiguration conf"]


def test_manifest_is_written_completely_after_a_stop_signal(tmp_path):
    """As by Ctrl-Z: a signal cuts the write to a full pipe short, and Python without buffers takes that for the end."""
    given = tmp_path / "manifest.yaml"
    given.write_text(f"---\nkind: ConfigMap\ndata: {'x' * 500_000}\n")
    command = python_file(Path(webhooks.__file__), "{}")
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with (
        given.open("rb") as stdin,
        subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, env=environment) as writing,
    ):
        while int.from_bytes(fcntl.ioctl(writing.stdout, termios.FIONREAD, bytes(4)), sys.byteorder) < 65_536:
            assert writing.poll() is None
            time.sleep(0.01)
        writing.send_signal(signal.SIGSTOP)
        writing.send_signal(signal.SIGCONT)
        time.sleep(0.1)  # it must meet the signals before there is room
        assert writing.stdout.read() == given.read_bytes()


def test_head_of_a_manifest_is_parsed():
    inner = "metadata:\n  labels: {x: y}\n  name: b\nspec:\n  kind: Inner\nkind: K\napiVersion: g/v1\n"
    comment = "metadata:\n# a comment\n  name: c\n\n  namespace: n\nkind: K\napiVersion: v1\ndata:\n  t: |\n    'open\n"
    one_line = '{"apiVersion": "v1", "kind": "K", "metadata": {"name": "d"}}'
    for document, kind, name in (
        (CONFIG_MAP, "ConfigMap", "a"),
        (inner, "K", "b"),
        (comment, "K", "c"),
        (one_line, "K", "d"),
    ):
        top = webhooks.head(document)
        assert (top["kind"], top["metadata"]["name"], bool(top["apiVersion"])) == (kind, name, True)
    assert len(list(webhooks.documents("# only\n---\n# Source: x\n---\nkind: A\n---\n\n"))) == 1
