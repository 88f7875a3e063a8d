"""Volcano's programs: from PATH, the cache, images by digest, or Go modules; and what is said where none can be had."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import registry_images as images
import toolchain_fakes as fakes
from waiting import SECONDS, until

from trainium_eks.local.toolchain import (
    VOLCANO_TOOLS,
    Origins,
    Platform,
    Unavailable,
    VolcanoPins,
    find,
    find_volcano,
    go_command,
    provide_volcano,
    tools,
)
from trainium_eks.model.catalogue.versions import CHARTS

ROOT = Path(__file__).parents[4]
TAG = f"v{tools.VOLCANO}"
SAYS = f"API Version: v1alpha1\nVersion: {TAG}"
BINARY = fakes.tool_text(SAYS)
SCRIPT = images.layer(**{"gen-admission-secret.sh": b"#!/bin/bash\n"})
BASE = images.layer(bin__busybox=b"base")


@pytest.fixture(autouse=True)
def _linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Platform, "here", staticmethod(lambda: Platform("linux", "amd64")))


@pytest.fixture
def registry() -> Iterator[images.Registry]:
    registry = images.Registry()
    for tool in VOLCANO_TOOLS:
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


def provided(
    cache: Path, url: str = "http://127.0.0.1:9", said: list[str] | None = None, path: Path | str = "", **more: str
) -> dict[str, str]:
    """Origin by tool."""
    told = said if said is not None else []
    there = provide_volcano(
        progress=told.append,
        environment={"PATH": str(path), **more},
        cache=cache,
        origins=Origins(docker=url),
    )
    return {name: binary.origin for name, binary in there.items()}


def refused(cache: Path, url: str = "http://127.0.0.1:9", path: Path | str = "", **more: str) -> Unavailable:
    with pytest.raises(Unavailable) as caught:
        provided(cache, url, path=path, **more)
    return caught.value


def on_path(directory: Path, says: str = SAYS) -> None:
    for tool in VOLCANO_TOOLS:
        fakes.executable(directory / tool, fakes.tool_text(says))


# --- Versions -----------------------------------------------------------------------------------------------------


def test_the_programs_are_of_the_charts_version() -> None:
    assert CHARTS["volcano"].version == tools.VOLCANO
    go_mod = (go_command.VOLCANO_MODULE / "go.mod").read_text()
    assert re.findall(r"^\tvolcano\.sh/volcano v(\S+)", go_mod, re.MULTILINE) == [tools.VOLCANO]


def test_programs_on_path_that_fit_are_taken(tmp_path: Path) -> None:
    on_path(tmp_path / "bin")
    assert set(provided(tmp_path / "cache", path=tmp_path / "bin").values()) == {"PATH"}


def test_programs_of_another_version_are_passed_over_and_that_is_said(tmp_path: Path) -> None:
    on_path(tmp_path / "bin", "Version: v1.14.2")
    error = refused(tmp_path / "cache", path=tmp_path / "bin")
    assert f"PATH: {tmp_path}/bin/vc-scheduler is 1.14.2, must be 1.15, as the chart" in str(error)


@pytest.mark.parametrize(("noted", "version"), [("mod", "v1.15.0"), ("dep", "v1.15.1-0.20260701000000-0123456789ab")])
def test_a_build_that_does_not_say_its_version_is_known_by_what_go_noted(
    tmp_path: Path, noted: str, version: str
) -> None:
    note = f"\n{noted}\tvolcano.sh/volcano\t{version}\t\n"
    program = fakes.executable(tmp_path / "vc-scheduler", f"#!/bin/sh\necho 'Version: Not provided.'\nexit\n{note}")
    assert find.version("vc-scheduler", program, {}) == version[1:7]
    program.write_text(program.read_text().replace(version, "v0.0.0-20260701000000-0123456789ab"))
    with pytest.raises(find.Silent, match="does not say its version"):
        find.version("vc-scheduler", program, {})


def test_what_runs_already_goes_on_unless_path_has_its_own(tmp_path: Path) -> None:
    on_path(tmp_path / "of another shell")
    running = {tool: tmp_path / "of another shell" / tool for tool in VOLCANO_TOOLS}
    there, missing = find_volcano({"PATH": ""}, tmp_path / "cache", running)
    assert ({binary.origin for binary in there.values()}, missing) == ({"running"}, {})
    on_path(tmp_path / "bin")
    there, _ = find_volcano({"PATH": str(tmp_path / "bin")}, tmp_path / "cache", running)
    assert {binary.origin for binary in there.values()} == {"PATH"}
    on_path(tmp_path / "of another shell", "Version: v1.14.2")
    there, missing = find_volcano({"PATH": ""}, tmp_path / "cache", running)
    assert (there, set(missing)) == ({}, set(VOLCANO_TOOLS))


# --- Images -------------------------------------------------------------------------------------------------------


def test_images_are_fetched_once_with_a_token_and_unpacked(registry: images.Registry, tmp_path: Path) -> None:
    said: list[str] = []
    assert set(provided(tmp_path, registry.url, said).values()) == {"download"}
    asked = len(registry.asked)
    assert set(provided(tmp_path, registry.url).values()) == {"cache"}
    assert len(registry.asked) == asked
    place = tmp_path / "volcano" / VolcanoPins(Platform("linux", "amd64")).key
    assert {file.name: file.read_bytes() for file in place.iterdir()} == dict.fromkeys(VOLCANO_TOOLS, BINARY)
    assert not list((tmp_path / "volcano").glob(".scratch-*"))
    # The base image is not needed: layers are looked through from the last one.
    assert not [path for path in registry.asked if images.digest_of(BASE) in path]
    # Each repository has a token of its own, and asks for it once.
    assert len([path for path in registry.asked if path.startswith("/token")]) == len(VOLCANO_TOOLS)


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

    shutil.rmtree(tmp_path / "volcano" / VolcanoPins(Platform("linux", "amd64")).key)
    said.clear()
    provided(tmp_path, registry.url, said)
    assert not [line for line in said if "trusted" in line]

    shutil.rmtree(tmp_path / "volcano" / VolcanoPins(Platform("linux", "amd64")).key)
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
    digests = {
        tool: images.digest_of(registry.repositories[f"volcanosh/{tool}"].manifests[TAG][1]) for tool in VOLCANO_TOOLS
    }
    provide_volcano(
        progress=lambda _: None,
        environment={"PATH": ""},
        cache=tmp_path,
        origins=Origins(docker=registry.url, volcano_image_digests=digests),
    )
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
    elif kind == "manifest":
        for digest, (media_type, content) in pushed.manifests.items():
            if media_type == images.MANIFEST:
                pushed.manifests[digest] = (media_type, content + b" ")
    else:
        digest = next(name for name, (media_type, _) in pushed.manifests.items() if media_type == images.INDEX)
        assert digest == images.digest_of(pushed.manifests[TAG][1])
        pushed.manifests[digest] = (images.INDEX, pushed.manifests[TAG][1] + b" ")
    error = refused(tmp_path / "cache", registry.url)
    assert set(error.reasons) == {"vc-scheduler"}
    assert "download: WRONG CHECKSUM: " in str(error)
    assert not owned.exists()
    assert not list(tmp_path.rglob("vc-scheduler"))


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ((BASE,), "has no vc-scheduler in its image"),
        ((images.layer(**{"vc-scheduler": BINARY}), images.layer(**{".wh.vc-scheduler": b""})), "taken away again"),
        ((images.layer(**{"vc-scheduler": BINARY}), images.layer(**{".wh..wh..opq": b""})), "taken away again"),
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
        (images.layer(**{"vc-scheduler": b"old"}), images.layer(**{".wh..wh..opq": b"", "vc-scheduler": BINARY})),
        (images.layer(**{"vc-scheduler": BINARY}), images.layer(**{".wh.another": b"", "etc__.wh..wh..opq": b""})),
        (images.layer(**{".__vc-scheduler": BINARY}),),
    ],
)
def test_the_last_layer_that_has_it_counts(
    registry: images.Registry, tmp_path: Path, layers: tuple[bytes, ...]
) -> None:
    registry.repositories["volcanosh/vc-scheduler"] = published("vc-scheduler", *layers)
    assert provided(tmp_path, registry.url)["vc-scheduler"] == "download"


def test_an_image_of_one_platform_is_taken_if_it_is_ours(registry: images.Registry, tmp_path: Path) -> None:
    for tool, architecture in zip(VOLCANO_TOOLS, ("amd64", "arm64", "amd64"), strict=True):
        pushed = images.Pushed()
        image = pushed.image(images.layer(**{tool: BINARY}), architecture=architecture)
        pushed.manifests[TAG] = pushed.manifests[image["digest"]]
        registry.repositories[f"volcanosh/{tool}"] = pushed
    error = refused(tmp_path, registry.url)
    assert set(error.reasons) == {VOLCANO_TOOLS[1]}
    assert "has nothing for linux-amd64" in str(error)


@pytest.mark.parametrize(
    ("part", "status", "words"),
    [
        ("/manifests/", 404, "404 Not Found"),
        ("/manifests/", 429, "429 Too Many Requests: the registry's limit for anonymous downloads"),
        ("/store/", 403, "403 Forbidden"),
        ("/token", 503, "503 Service Unavailable"),
    ],
)
def test_what_a_registry_refuses_is_told_with_its_own_words(
    registry: images.Registry, tmp_path: Path, part: str, status: int, words: str
) -> None:
    registry.answers[part] = status
    error = refused(tmp_path, registry.url)
    assert set(error.reasons) == set(VOLCANO_TOOLS)
    assert words in str(error)


@pytest.mark.parametrize(
    ("challenge", "words"),
    [
        ('Basic realm="Docker Hub"', "wants a login (Basic)"),
        ('Bearer realm="file:///etc/passwd"', "wants a login (Bearer)"),
        ("", "401 Unauthorized"),
    ],
)
def test_a_registry_that_wants_more_than_a_token_is_told(
    registry: images.Registry, tmp_path: Path, challenge: str, words: str
) -> None:
    registry.challenge = challenge
    assert words in str(refused(tmp_path, registry.url))


def test_a_token_that_is_not_taken_is_not_asked_for_again(registry: images.Registry, tmp_path: Path) -> None:
    registry.token = "expired"
    assert "401 Unauthorized" in str(refused(tmp_path, registry.url))
    assert len([path for path in registry.asked if path.startswith("/token")]) == len(VOLCANO_TOOLS)


def test_a_download_that_breaks_off_is_told_and_the_next_one_is_whole(
    registry: images.Registry, tmp_path: Path
) -> None:
    registry.breaks_off = "/store/"
    assert "broke off" in str(refused(tmp_path, registry.url))
    assert not list(tmp_path.rglob("vc-*"))
    registry.breaks_off = ""
    assert set(provided(tmp_path, registry.url).values()) == {"download"}


def test_docker_hub_is_asked_where_nothing_else_is_said() -> None:
    assert Origins().docker == "https://registry-1.docker.io"


def test_debians_registry_serves_the_programs(tmp_path: Path) -> None:
    """The real protocol: uploads, content negotiation, digests."""
    if shutil.which(images.PROGRAM) is None:
        pytest.skip("a real registry is not here: `apt-get install docker-registry` (Debian, Ubuntu) has one")
    with images.docker_registry(tmp_path) as url:
        for tool in VOLCANO_TOOLS:
            images.push(url, f"volcanosh/{tool}", published(tool))
        assert set(provided(tmp_path / "cache", url).values()) == {"download"}
        shutil.rmtree(tmp_path / "cache" / "volcano" / VolcanoPins(Platform("linux", "amd64")).key)
        moved = published("vc-scheduler", images.layer(**{"vc-scheduler": b"#!/bin/sh\n"}))
        images.push(url, "volcanosh/vc-scheduler", moved)
        assert "WRONG CHECKSUM" in str(refused(tmp_path / "cache", url))


# --- Go modules ---------------------------------------------------------------------------------------------------


def test_what_no_registry_has_is_built_from_go_modules(tmp_path: Path) -> None:
    fakes.go(tmp_path / "bin")
    assert set(provided(tmp_path / "cache", path=tmp_path / "bin").values()) == {"build"}
    assert fakes.calls(tmp_path / "bin") == ["mod", "env", "list", "build"]
    line = (tmp_path / "bin" / "go.calls").read_text().splitlines()[-1]
    assert f" -X volcano.sh/volcano/pkg/version.Version={TAG} " in line
    for name in ("go.mod", "go.sum"):
        assert (tmp_path / "bin" / name).read_bytes() == (go_command.VOLCANO_MODULE / name).read_bytes()
    added = (
        tmp_path / "bin" / "apis" / "pkg" / "apis" / "scheduling" / "v1beta1" / "added_for_volcano_1_15.go"
    ).read_text()
    assert 'const QueueAllocationGateKey = GroupName + "/queue-allocation-gate"' in added
    assert (tmp_path / "bin" / "apis" / "of_the_module.go").exists()


def test_modules_are_checked_before_they_are_read(tmp_path: Path) -> None:
    """The real Go, offline, in an empty cache of modules: it looks for the pinned version, and finds none."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not on PATH (https://go.dev/dl/)")
    environment = go_command.go_environment({**os.environ, "GOMODCACHE": str(tmp_path / "modules")}, offline=True)
    with pytest.raises(go_command.GoFailed, match="TRN_OFFLINE or GOPROXY forbids downloads"):
        go_command.source("volcano.sh/apis", "v1.14.0", tmp_path, environment)
    sums = (go_command.VOLCANO_MODULE / "sources.sum").read_text()
    for module in (f"volcano.sh/volcano {TAG}", "volcano.sh/apis v1.14.0"):
        assert len(re.findall(rf"^{re.escape(module)}(?:/go\.mod)? h1:\S+$", sums, re.MULTILINE)) == 2


def test_whoever_needs_the_cores_first_is_waited_for_but_not_with_downloads(
    registry: images.Registry, tmp_path: Path
) -> None:
    fakes.go(tmp_path / "bin")
    del registry.repositories["volcanosh/vc-scheduler"]
    others = threading.Event()
    done: list[str] = []

    def wait() -> None:
        done.append("downloaded")
        others.wait(SECONDS)

    def run() -> None:
        provide_volcano(
            progress=lambda _: None,
            environment={"PATH": str(tmp_path / "bin")},
            cache=tmp_path / "cache",
            origins=Origins(docker=registry.url),
            before_building=wait,
        )
        done.append("built")

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: done)
    assert fakes.calls(tmp_path / "bin") == []
    others.set()
    thread.join(SECONDS)
    assert done == ["downloaded", "built"]
    assert "build" in fakes.calls(tmp_path / "bin")


# --- None to be had -----------------------------------------------------------------------------------------------


def test_offline_asks_nobody(registry: images.Registry, tmp_path: Path) -> None:
    error = refused(tmp_path, registry.url, TRN_OFFLINE="1")
    assert registry.asked == []
    assert "download: not tried, TRN_OFFLINE is set" in str(error)


def test_a_refusal_holds_for_a_while_for_who_is_patient(registry: images.Registry, tmp_path: Path) -> None:
    registry.answers["/manifests/"] = 404
    refused(tmp_path, registry.url)
    asked = len(registry.asked)

    def again(patience_seconds: float) -> str:
        with pytest.raises(Unavailable) as caught:
            provide_volcano(
                progress=lambda _: None,
                environment={"PATH": ""},
                cache=tmp_path,
                origins=Origins(docker=registry.url),
                patience_seconds=patience_seconds,
            )
        return str(caught.value)

    assert "404 Not Found" in again(600)
    assert len(registry.asked) == asked
    again(0)
    assert len(registry.asked) > asked
    registry.answers.clear()
    assert set(provided(tmp_path, registry.url).values()) == {"download"}


def test_what_is_missing_is_told_with_what_helps(tmp_path: Path) -> None:
    error = refused(tmp_path)
    text = str(error)
    assert text.startswith("Volcano needs programs that could not be found, downloaded or built: vc-webhook-manager, ")
    for way in (
        "PATH: not there",
        "cache: not in ",
        "download: 127.0.0.1:9 cannot be reached",
        "build: go is not on PATH",
    ):
        assert way in text
    assert error.last == "build: go is not on PATH"
    assert "What helps: install Go 1.25 or newer" in text
    assert "put the programs of Volcano 1.15 on PATH" in text


def test_it_can_be_left_out(registry: images.Registry, tmp_path: Path) -> None:
    on_path(tmp_path / "bin")
    assert "TRN_VOLCANO is off" in str(refused(tmp_path, registry.url, path=tmp_path / "bin", TRN_VOLCANO="off"))
    assert registry.asked == []


def test_the_command_does_without_volcano_and_says_so(tmp_path: Path) -> None:
    fakes.tools(tmp_path / "bin")
    environment = {"PATH": str(tmp_path / "bin"), "TRN_OFFLINE": "1", "TRN_CACHE": str(tmp_path / "cache")}

    def run() -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "trainium_eks.local.toolchain"]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    without = run()
    assert without.returncode == 0
    assert "Volcano needs programs that could not be found" in without.stderr
    assert "jobs are validated but not scheduled" in without.stderr
    assert "vc-scheduler" not in without.stdout
    on_path(tmp_path / "bin")
    having = run()
    assert (having.returncode, "Volcano" in having.stderr) == (0, False)
    assert re.search(r"^vc-scheduler +1\.15\.0 +PATH ", having.stdout, re.MULTILINE)
