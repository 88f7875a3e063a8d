"""Images are copied between registries: from one as Docker Hub is, to one as ECR is, and between two of Debian's."""

import base64
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from registry_images import PROGRAM, Pushed, Registry, digest_of, docker_registry, push
from registry_target import Target
from trainium_workloads.mirror import __main__ as command
from trainium_workloads.mirror.registry import Reference, Repository, logins_of
from trainium_workloads.stage.files import StageError
from trainium_workloads.stage.web import Web

LOGIN = base64.b64encode(b"AWS:password").decode()
LAYERS = (random.Random(1).randbytes(3_000_000), random.Random(2).randbytes(100), random.Random(2).randbytes(100))

Mirror = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def hub() -> Iterator[Registry]:
    registry = Registry()
    pushed = registry.repositories["library/base"] = Pushed()
    arm = pushed.image(b"arm", architecture="arm64")
    pushed.index("1.0", arm, pushed.image(*LAYERS))
    yield registry
    registry.close()


@pytest.fixture
def target() -> Iterator[Target]:
    registry = Target(f"Basic {LOGIN}")
    yield registry
    registry.close()


@pytest.fixture
def mirror(
    hub: Registry, target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Mirror:
    """Copies the hub's image; the exit code and the last line."""
    monkeypatch.setattr("trainium_workloads.mirror.__main__.time.sleep", lambda _: None)
    logins = tmp_path / "config.json"
    logins.write_text(json.dumps({"auths": {target.host: {"auth": LOGIN}}}))

    def call(what: str = "library/base:1.0", to: str = "team/training:m") -> tuple[int, dict[str, Any]]:
        code = command.main(
            [f"{hub.url.removeprefix('http://')}/{what}", f"{target.host}/{to}", "--logins", str(logins)]
        )
        return code, json.loads(capsys.readouterr().out.splitlines()[-1])

    return call


def test_the_image_of_our_platform_is_copied_byte_for_byte(mirror: Mirror, hub: Registry, target: Target) -> None:
    code, last = mirror()
    assert (code, last["stage"]) == (0, "complete"), last
    kind, manifest = target.manifests["team/training:m"]
    assert hub.repositories["library/base"].manifests[digest_of(manifest)] == (kind, manifest)
    layers = [each["digest"] for each in json.loads(manifest)["layers"]]
    assert layers == [digest_of(layer) for layer in LAYERS]
    assert {digest_of(layer) for layer in LAYERS} < set(target.blobs["team/training"])
    assert last["bytes"] == last["total_bytes"] == sum(map(len, target.blobs["team/training"].values()))


def test_a_second_copy_moves_nothing(mirror: Mirror, target: Target) -> None:
    mirror()
    target.asked.clear()
    code, last = mirror()
    assert (code, last["stage"]) == (0, "unchanged")
    assert {each.split()[0] for each in target.asked} == {"HEAD"}


def test_what_is_there_is_not_copied_again_and_another_repositorys_blobs_are_mounted(
    mirror: Mirror, target: Target, hub: Registry
) -> None:
    mirror()
    target.asked.clear()
    assert mirror(to="team/training:other")[0] == 0
    assert not [each for each in target.asked if each.startswith(("PATCH", "POST"))]
    to = Repository(target.host, "team/third", Web(), {target.host: LOGIN})
    assert to.mount(digest_of(LAYERS[0]), "team/training") == ""
    assert digest_of(LAYERS[0]) in target.blobs["team/third"]


def test_an_upload_that_breaks_off_is_made_again(mirror: Mirror, target: Target) -> None:
    target.cuts_upload = lambda number: number < 2
    code, last = mirror()
    assert code == 0, last
    assert last["bytes"] == last["total_bytes"]


def test_a_registry_that_always_breaks_off_is_tried_again_later(mirror: Mirror, target: Target) -> None:
    target.cuts_upload = lambda _: True
    code, last = mirror()
    assert (code, last["stage"]) == (75, "interrupted")
    assert "team/training:m" not in target.manifests
    target.cuts_upload = lambda _: False
    assert mirror()[0] == 0


def test_wrong_bytes_are_never_part_of_an_image(mirror: Mirror, hub: Registry, target: Target) -> None:
    hub.repositories["library/base"].blobs[digest_of(LAYERS[0])] = LAYERS[0][:-1] + b"x"
    code, last = mirror()
    assert (code, last["stage"]) == (1, "failed")
    assert f"blob {digest_of(LAYERS[0])} came with sha256:" in last["message"]
    assert target.manifests == {}
    assert digest_of(LAYERS[0]) not in target.blobs["team/training"]


def test_a_tag_that_is_taken_is_not_moved(mirror: Mirror, target: Target) -> None:
    target.manifests["team/training:m"] = ("application/vnd.oci.image.manifest.v1+json", b"{}")
    code, last = mirror()
    assert (code, "is there already and is sha256:" in last["message"]) == (1, True)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("library/base:2.0", "library/base: 2.0: 404"),
        ("library/base", "names no tag and no digest"),
        (f"library/base@sha256:{'0' * 64}", "404"),
    ],
)
def test_an_image_that_is_not_there(mirror: Mirror, what: str, said: str) -> None:
    code, last = mirror(what)
    assert code == 1
    assert said in last["message"]


def test_a_login_that_is_not_good_is_said(mirror: Mirror, target: Target) -> None:
    target.login = "Basic other"
    code, last = mirror()
    assert code == 1
    assert "401" in last["message"]


def test_an_image_for_other_machines_alone_is_refused(mirror: Mirror, hub: Registry) -> None:
    pushed = hub.repositories["library/base"]
    pushed.index("arm", pushed.image(b"arm", architecture="arm64"))
    code, last = mirror("library/base:arm")
    assert (code, "has no image for linux/amd64" in last["message"]) == (1, True)


def test_the_login_is_for_its_own_registry(mirror: Mirror, hub: Registry) -> None:
    """The source's store refuses whoever brings a token, and its registry whoever brings none."""
    assert mirror()[0] == 0
    assert any(path.startswith("/token?") for path in hub.asked)
    assert any(path.startswith("/store/") for path in hub.asked)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("docker.io/library/x:1", Reference("registry-1.docker.io", "library/x", "1")),
        ("docker.io/x:1", Reference("registry-1.docker.io", "library/x", "1")),
        ("localhost:5000/a/b:1", Reference("localhost:5000", "a/b", "1")),
        (f"quay.io/a/b:1@sha256:{'a' * 64}", Reference("quay.io", "a/b", f"sha256:{'a' * 64}")),
    ],
)
def test_references(text: str, wanted: Reference) -> None:
    assert Reference.parse(text) == wanted
    with pytest.raises(StageError):
        Reference.parse("a/b:1")


def test_logins_are_read_as_docker_writes_them() -> None:
    text = json.dumps({"auths": {"https://a.example/": {"auth": "x"}, "b.example": {"username": "u", "password": "p"}}})
    assert logins_of(text) == {"a.example": "x", "b.example": base64.b64encode(b"u:p").decode()}


def test_between_two_real_registries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which(PROGRAM) is None:
        pytest.skip("a real registry is not here: `apt-get install docker-registry` (Debian, Ubuntu) has one")
    for name in ("from", "to"):
        (tmp_path / name).mkdir()
    pushed = Pushed()
    pushed.index("1.0", pushed.image(*LAYERS))
    with docker_registry(tmp_path / "from") as origin, docker_registry(tmp_path / "to") as target:
        push(origin, "team/base", pushed)
        hosts = [url.removeprefix("http://") for url in (origin, target)]
        for to, ends in ((hosts[1], "complete"), (hosts[0], "complete"), (hosts[1], "unchanged")):
            assert command.main([f"{hosts[0]}/team/base:1.0", f"{to}/team/training:m"]) == 0
            assert json.loads(capsys.readouterr().out.splitlines()[-1])["stage"] == ends
        copied = Repository(hosts[1], "team/training", Web(), {})
        assert command.find(copied, "m").digest in pushed.manifests
        assert all(copied.has_blob(digest_of(layer)) for layer in LAYERS)
