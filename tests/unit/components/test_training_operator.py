"""The Training Operator's manifests are fetched once, checked, and read from the cache ever after."""

import hashlib
import http.server
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pulumi
import pytest

from components import _training_operator
from components._training_operator import MIRROR_VARIABLE, kustomization
from components.gpu_addons import GpuAddons
from trainium_eks import fetched
from trainium_eks.fetched import FetchError, ProjectFiles, fetch

FILES = {"base/service.yaml": b"kind: Service\n", "overlays/standalone/kustomization.yaml": b"resources: []\n"}


@dataclass
class Server:
    """A web server of this machine, and what it was asked for."""

    root: Path
    url: str = ""
    asked: list[str] = field(default_factory=list)

    def source(self, **other):
        pins = {path: hashlib.sha256(content).hexdigest() for path, content in {**FILES, **other}.items()}
        return ProjectFiles("operator-v1", self.url, pins)


@pytest.fixture
def server(tmp_path):
    made = Server(tmp_path / "web")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            made.asked.append(self.path.lstrip("/"))

    for path, content in FILES.items():
        (made.root / path).parent.mkdir(parents=True, exist_ok=True)
        (made.root / path).write_bytes(content)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(made.root))) as web:
        made.url = f"http://127.0.0.1:{web.server_address[1]}"
        threading.Thread(target=web.serve_forever, daemon=True).start()
        yield made
        web.shutdown()


def environment(tmp_path, **other):
    return {"TRN_CACHE": str(tmp_path / "cache"), **other}


def test_files_are_fetched_once_in_parallel_and_again_after_a_change(tmp_path, server):
    place = tmp_path / "kept"
    with ThreadPoolExecutor(6) as pool:
        (home,) = set(pool.map(lambda _: fetch(server.source(), place), range(6)))
    assert {str(each.relative_to(home)): each.read_bytes() for each in home.rglob("*.yaml")} == FILES
    assert fetched.wrong(server.source(), home) == ()
    server.asked.clear()
    assert fetch(server.source(), place) == home
    assert server.asked == []
    (home / "base/service.yaml").write_bytes(b"changed")
    assert fetch(server.source(), place) == home
    assert (home / "base/service.yaml").read_bytes() == FILES["base/service.yaml"]
    assert sorted(server.asked) == sorted(FILES)
    assert [each.name for each in place.iterdir()] == [home.name]


def test_failed_fetch_is_reported_and_keeps_no_file(tmp_path, server):
    pinned = server.source()
    (server.root / "base/service.yaml").write_bytes(b"kind: Secret\n")
    with pytest.raises(FetchError, match=r"base/service\.yaml has SHA-256 [0-9a-f]{64}, and operator-v1 is pinned to"):
        fetch(pinned, tmp_path / "kept")
    assert list((tmp_path / "kept").iterdir()) == []
    (server.root / "base/service.yaml").write_bytes(FILES["base/service.yaml"])
    with pytest.raises(FetchError, match=r"no\.yaml: 404"):
        fetch(server.source(**{"no.yaml": b""}), tmp_path / "kept")
    (tmp_path / "file").write_text("")
    with pytest.raises(FetchError, match="file/kept cannot be written: Not a directory"):
        fetch(pinned, tmp_path / "file" / "kept")


def test_kustomization_from_a_mirror_needs_no_network(tmp_path, server):
    gone = ProjectFiles("operator-v1", "http://127.0.0.1:1", server.source().sha256)
    mirror = environment(tmp_path, **{MIRROR_VARIABLE: f"{server.url}/"})
    directory = kustomization(gangs=True, pinned=gone, environment=mirror)
    assert directory.name == "training-operator-volcano"
    assert (directory.parent / "training-operator" / "kustomization.yaml").exists()
    assert (directory.parent / "upstream" / "overlays/standalone/kustomization.yaml").exists()
    assert len(server.asked) == len(FILES)
    assert kustomization(gangs=True, pinned=gone, environment=environment(tmp_path)) == directory
    plain = kustomization(gangs=False, pinned=server.source(), environment=environment(tmp_path))
    assert plain == directory.parent / "training-operator"
    assert len(server.asked) == len(FILES)


def test_every_upstream_file_is_pinned_and_a_failed_fetch_names_the_fix(record, tmp_path, monkeypatch):
    pins = _training_operator.source().sha256
    assert {"overlays/standalone/kustomization.yaml", "base/kustomization.yaml", "base/deployment.yaml"} <= set(pins)
    assert all(re.fullmatch(r"[0-9a-f]{64}", sha) for sha in pins.values())
    assert sum(path.startswith("base/crds/kubeflow.org_") for path in pins) == 6
    gone = ProjectFiles("operator-v1", "http://127.0.0.1:1", {"base/service.yaml": "0" * 64})
    monkeypatch.setenv("TRN_CACHE", str(tmp_path))
    monkeypatch.setattr(_training_operator, "source", lambda: gone)

    def up():
        fetched.PLANNING.set(False)
        GpuAddons("gpu", {"region": "us-west-2", "instance_types": ("p5.48xlarge",)})

    with pytest.raises(pulumi.RunError, match=rf"127.0.0.1:1/base/service\.yaml.*{MIRROR_VARIABLE}.*leave v1 out"):
        record(up)
