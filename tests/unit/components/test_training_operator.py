"""The Training Operator's manifests are fetched once, checked, and read from the cache ever after."""

import hashlib
import re
from concurrent.futures import ThreadPoolExecutor

import pulumi
import pytest
from staging_servers import file_server

from components import _training_operator
from components._training_operator import MIRROR_VARIABLE, kustomization
from components.gpu_addons import GpuAddons
from trainium_eks import fetched
from trainium_eks.fetched import FetchError, ProjectFiles, fetch

FILES = {"base/service.yaml": b"kind: Service\n", "overlays/standalone/kustomization.yaml": b"resources: []\n"}


@pytest.fixture
def server():
    with file_server() as stub:
        stub.files = {f"/{path}": content for path, content in FILES.items()}
        yield stub


def source(server, **other):
    pins = {path: hashlib.sha256(content).hexdigest() for path, content in {**FILES, **other}.items()}
    return ProjectFiles("operator-v1", server.url, pins)


def environment(tmp_path, **other):
    return {"TRN_CACHE": str(tmp_path / "cache"), **other}


def test_files_are_fetched_once_in_parallel_and_again_after_a_change(tmp_path, server):
    place = tmp_path / "kept"
    with ThreadPoolExecutor(6) as pool:
        (home,) = set(pool.map(lambda _: fetch(source(server), place), range(6)))
    assert {str(each.relative_to(home)): each.read_bytes() for each in home.rglob("*.yaml")} == FILES
    assert fetched.wrong(source(server), home) == ()
    server.asked.clear()
    assert fetch(source(server), place) == home
    assert not server.asked
    (home / "base/service.yaml").write_bytes(b"changed")
    assert fetch(source(server), place) == home
    assert (home / "base/service.yaml").read_bytes() == FILES["base/service.yaml"]
    assert server.asked == dict.fromkeys(server.files, 1)
    assert [each.name for each in place.iterdir()] == [home.name]


def test_failed_fetch_is_reported_and_keeps_no_file(tmp_path, server):
    pinned = source(server)
    server.files["/base/service.yaml"] = b"kind: Secret\n"
    with pytest.raises(FetchError, match=r"base/service\.yaml has SHA-256 [0-9a-f]{64}, and operator-v1 is pinned to"):
        fetch(pinned, tmp_path / "kept")
    assert list((tmp_path / "kept").iterdir()) == []
    server.files["/base/service.yaml"] = FILES["base/service.yaml"]
    with pytest.raises(FetchError, match=r"no\.yaml: 404"):
        fetch(source(server, **{"no.yaml": b""}), tmp_path / "kept")
    (tmp_path / "file").write_text("")
    with pytest.raises(FetchError, match="file/kept cannot be written: Not a directory"):
        fetch(pinned, tmp_path / "file" / "kept")


def test_kustomization_from_a_mirror_needs_no_network(tmp_path, server):
    gone = ProjectFiles("operator-v1", "http://127.0.0.1:1", source(server).sha256)
    mirror = environment(tmp_path, **{MIRROR_VARIABLE: f"{server.url}/"})
    directory = kustomization(gangs=True, pinned=gone, environment=mirror)
    assert directory.name == "training-operator-volcano"
    assert (directory.parent / "training-operator" / "kustomization.yaml").exists()
    assert (directory.parent / "upstream" / "overlays/standalone/kustomization.yaml").exists()
    assert server.asked.total() == len(FILES)
    assert kustomization(gangs=True, pinned=gone, environment=environment(tmp_path)) == directory
    plain = kustomization(gangs=False, pinned=source(server), environment=environment(tmp_path))
    assert plain == directory.parent / "training-operator"
    assert server.asked.total() == len(FILES)


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
