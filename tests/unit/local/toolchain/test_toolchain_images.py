"""Volcano's programs out of its images, by digest; and what is said where none can be had."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import registry_images as images
import toolchain_fakes as fakes

from trainium_eks.local.toolchain import VOLCANO, Bundle, UnavailableError, provide
from trainium_eks.local.toolchain.tools import VOLCANO_VERSION, Platform

NAMES = tuple(tool.name for tool in VOLCANO.tools)
TAG = f"v{VOLCANO_VERSION}"
BINARY = fakes.tool_text(f"API Version: v1alpha1\nVersion: {TAG}")
SCRIPT = images.layer(**{"gen-admission-secret.sh": b"#!/bin/bash\n"})
BASE = images.layer(bin__busybox=b"base")


@pytest.fixture(autouse=True)
def _linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Platform, "here", staticmethod(lambda: Platform("linux", "amd64")))


@pytest.fixture
def registry() -> Iterator[images.Registry]:
    registry = images.Registry()
    for tool in NAMES:
        registry.repositories[f"volcanosh/{tool}"] = published(tool)
    yield registry
    registry.close()


def published(tool: str, *layers: bytes) -> images.Pushed:
    """As Volcano publishes: two platforms, and the webhook manager's program is not in its last layer."""
    ours = layers or (BASE, images.layer(**{tool: BINARY}), *([SCRIPT] if tool == "vc-webhook-manager" else []))
    pushed = images.Pushed()
    others = pushed.image(BASE, images.layer(**{tool: b"of another machine"}), architecture="arm64")
    pushed.index(TAG, others, pushed.image(*ours))
    return pushed


def at(url: str, digests: dict[str, str] | None = None) -> Bundle:
    tools = tuple(
        replace(
            tool,
            image=tool.image.replace("https://registry-1.docker.io", url),
            reference=(digests or {}).get(tool.name, tool.reference),
        )
        for tool in VOLCANO.tools
    )
    return replace(VOLCANO, tools=tools)


def provided(cache: Path, url: str, said: list[str] | None = None, patience_seconds: float = 0.0) -> set[str]:
    """Origins."""
    told = said if said is not None else []
    there = provide(
        at(url), progress=told.append, environment={"PATH": ""}, cache=cache, patience_seconds=patience_seconds
    )
    assert set(there) == set(NAMES)
    return {binary.origin for binary in there.values()}


def refused(cache: Path, url: str, patience_seconds: float = 0.0) -> UnavailableError:
    with pytest.raises(UnavailableError) as caught:
        provided(cache, url, patience_seconds=patience_seconds)
    return caught.value


def test_images_are_fetched_once_with_a_token_and_unpacked(registry: images.Registry, tmp_path: Path) -> None:
    assert VOLCANO.tools[0].image == "https://registry-1.docker.io/v2/volcanosh/vc-webhook-manager"
    assert provided(tmp_path, registry.url) == {"download"}
    asked = len(registry.asked)
    assert provided(tmp_path, registry.url) == {"cache"}
    assert len(registry.asked) == asked
    place = tmp_path / VOLCANO.place
    assert {file.name: file.read_bytes() for file in place.iterdir()} == dict.fromkeys(NAMES, BINARY)
    assert not list((tmp_path / "volcano").glob(".scratch-*"))
    # The base image is not needed: layers are looked through from the last one.
    assert not [path for path in registry.asked if images.digest_of(BASE) in path]
    # Each repository has a token of its own, and asks for it once.
    assert len([path for path in registry.asked if path.startswith("/token")]) == len(NAMES)


def test_a_tag_is_trusted_the_first_time_and_another_image_under_it_never(
    registry: images.Registry, tmp_path: Path
) -> None:
    said: list[str] = []
    provided(tmp_path, registry.url, said)
    notes = json.loads((tmp_path / "volcano" / "images.json").read_text())
    name = f"{registry.url.removeprefix('http://')}/volcanosh/vc-scheduler:{TAG}"
    digest = images.digest_of(registry.repositories["volcanosh/vc-scheduler"].manifests[TAG][1])
    assert notes[name]["digest"] == digest
    assert any(f"{name} is {digest}: trusted because it is the first" in line for line in said)

    shutil.rmtree(tmp_path / VOLCANO.place)
    said.clear()
    provided(tmp_path, registry.url, said)
    assert not [line for line in said if "trusted" in line]

    shutil.rmtree(tmp_path / VOLCANO.place)
    other = images.layer(**{"vc-scheduler": b"#!/bin/sh\necho Version: v1.15.0; touch /tmp/owned\n"})
    registry.repositories["volcanosh/vc-scheduler"] = published("vc-scheduler", other)
    error = refused(tmp_path, registry.url)
    assert set(error.reasons) == {"vc-scheduler"}
    assert f"WRONG CHECKSUM: {name} was {digest} the first time" in str(error)
    assert not list(tmp_path.rglob("vc-scheduler"))


def test_notes_that_cannot_be_read_trust_nothing_new(registry: images.Registry, tmp_path: Path) -> None:
    (tmp_path / "volcano").mkdir()
    (tmp_path / "volcano" / "images.json").write_text("{")
    assert "remove it to trust the images anew" in str(refused(tmp_path, registry.url))


def test_a_pinned_digest_is_asked_for_and_the_tag_is_not(registry: images.Registry, tmp_path: Path) -> None:
    digests = {name: images.digest_of(registry.repositories[f"volcanosh/{name}"].manifests[TAG][1]) for name in NAMES}
    provide(at(registry.url, digests), progress=lambda _: None, environment={"PATH": ""}, cache=tmp_path)
    assert not [path for path in registry.asked if path.endswith(f"/{TAG}")]
    assert not (tmp_path / "volcano" / "images.json").exists()


@pytest.mark.parametrize("kind", ["blob", "manifest", "index"])
def test_what_has_another_checksum_is_not_used(registry: images.Registry, tmp_path: Path, kind: str) -> None:
    pushed = registry.repositories["volcanosh/vc-scheduler"]
    owned = tmp_path / "owned"
    if kind == "blob":
        for digest, content in pushed.blobs.items():
            if content not in (BASE, SCRIPT) and not content.startswith(b"{"):
                pushed.blobs[digest] = images.layer(**{"vc-scheduler": f"#!/bin/sh\ntouch {owned}\n".encode()})
    else:
        wanted = images.MANIFEST if kind == "manifest" else images.INDEX
        for reference, (media_type, content) in pushed.manifests.items():
            if media_type == wanted and reference != TAG:
                pushed.manifests[reference] = (media_type, content + b" ")
    error = refused(tmp_path / "cache", registry.url)
    assert set(error.reasons) == {"vc-scheduler"}
    assert "download: WRONG CHECKSUM: " in str(error)
    assert not owned.exists()
    assert not list(tmp_path.rglob("vc-scheduler"))


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ((BASE,), "has no vc-scheduler in its image"),
        ((images.layer(**{"vc-scheduler": BINARY}), images.layer(**{"vc-scheduler": "/bin/sh"})), "is no file"),
        ((b"\x28\xb5\x2f\xfd of another compression",), "is no layer that can be read here"),
        ((images.layer(**{"vc-scheduler": b"#!/bin/sh\necho Version: v1.14.0\n"}),), "got vc-scheduler 1.14.0 instead"),
    ],
)
def test_an_image_that_does_not_have_the_program_is_refused(
    registry: images.Registry, tmp_path: Path, layers: tuple[bytes, ...], words: str
) -> None:
    registry.repositories["volcanosh/vc-scheduler"] = published("vc-scheduler", *layers)
    error = refused(tmp_path, registry.url)
    assert set(error.reasons) == {"vc-scheduler"}
    assert words in str(error)


@pytest.mark.parametrize(
    "layers",
    [
        (images.layer(**{"vc-scheduler": b"old"}), images.layer(**{"vc-scheduler": BINARY}), SCRIPT),
        (images.layer(**{".__vc-scheduler": BINARY}),),
    ],
)
def test_the_last_layer_that_has_it_counts(
    registry: images.Registry, tmp_path: Path, layers: tuple[bytes, ...]
) -> None:
    registry.repositories["volcanosh/vc-scheduler"] = published("vc-scheduler", *layers)
    assert provided(tmp_path, registry.url) == {"download"}


def test_an_image_for_other_platforms_is_refused(registry: images.Registry, tmp_path: Path) -> None:
    pushed = registry.repositories["volcanosh/vc-scheduler"] = images.Pushed()
    pushed.index(TAG, pushed.image(images.layer(**{"vc-scheduler": BINARY}), architecture="arm64"))
    error = refused(tmp_path, registry.url)
    assert set(error.reasons) == {"vc-scheduler"}
    assert "has nothing for linux-amd64" in str(error)


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
def test_what_a_registry_refuses_is_told_with_its_own_words(
    registry: images.Registry, tmp_path: Path, refusal: dict[str, Any], words: str
) -> None:
    for name, value in refusal.items():
        setattr(registry, name, value)
    error = refused(tmp_path, registry.url)
    assert set(error.reasons) == set(NAMES)
    assert words in str(error)
    assert len([path for path in registry.asked if path.startswith("/token")]) <= len(NAMES), "asked for once each"


def test_a_refusal_holds_for_a_while_for_who_is_patient(registry: images.Registry, tmp_path: Path) -> None:
    registry.answers["/manifests/"] = 404
    error = refused(tmp_path, registry.url)
    assert str(error).startswith("Volcano needs programs that could not be found, downloaded or built: vc-webhook-")
    for way in ("cache: not in ", "404 Not Found", "build: go is not on PATH", "What helps: install Go 1.25 or newer"):
        assert way in str(error)
    asked = len(registry.asked)
    assert "404 Not Found" in str(refused(tmp_path, registry.url, patience_seconds=600))
    assert len(registry.asked) == asked
    refused(tmp_path, registry.url)
    assert len(registry.asked) > asked
    registry.answers.clear()
    assert provided(tmp_path, registry.url) == {"download"}
