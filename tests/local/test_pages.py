"""docs/training.md and docs/models.md: each command is run as it stands there, and what it shows is compared."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from local_project import ROOT, LocalProject

from trainium_eks.fetched import cache
from trainium_eks.local.pods import images
from trainium_eks.local.pods.installing import known_recipe

TUTORIAL = ROOT / "docs" / "training.md"
MODELS = ROOT / "docs" / "models.md"
_BLOCK = re.compile(r"^```(console|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _blocks(file: Path) -> list[tuple[str, str]]:
    """Kind and text of each block before the part about AWS."""
    page, on_aws, _ = file.read_text(encoding="utf-8").partition("\n## On AWS\n")
    assert on_aws
    return _BLOCK.findall(page)


@pytest.fixture(scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's cache without its images: the tutorial is run as on a machine that has not made one."""
    place = tmp_path_factory.mktemp("cache")
    cache().mkdir(parents=True, exist_ok=True)
    for each in cache().iterdir():
        if each.name != "images":
            (place / each.name).symlink_to(each)
    return place


@pytest.fixture(scope="module")
def project(
    binaries: Mapping[str, Path], own_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalProject]:
    """The stack `local`, up, with a Volcano."""
    assert binaries
    project = LocalProject.of_the_repository(tmp_path_factory.mktemp("tutorial") / "project")
    project = replace(project, environment={"TRN_VOLCANO": "", "TRN_CACHE": str(own_cache)})
    project.configure("local")
    (project.path / "workloads").symlink_to(ROOT / "workloads")
    (project.path / "trn").write_text(f'#!/bin/sh\nexec {sys.executable} -m trainium_eks.cli "$@"\n')
    (project.path / "trn").chmod(0o755)
    shown = project.trn("local", "up")
    try:
        assert shown.returncode == 0, shown.stderr
        if "vc-scheduler" not in project.processes("local"):
            pytest.skip(
                "no Volcano on this machine: put its programs on PATH, or let it be built (docs/local-cloud.md)"
            )
        yield project
    finally:
        project.trn("local", "down")


@pytest.fixture
def torch(own_cache: Path) -> None:
    """The image `local/torch` of today's requirements, where this user has made it."""
    image = images.find(f"torch:{images.digest(known_recipe('torch').requirements)}")
    if image is None:
        pytest.skip("no image local/torch on this machine: trn local images make torch (`make test-workloads` does)")
    (own_cache / "images").mkdir(exist_ok=True)
    for each in (image.path, image.path.with_suffix(".json")):
        (own_cache / "images" / each.name).symlink_to(each)


def _run(project: LocalProject, line: str, *, may_end_with_the_pod: bool = False) -> str:
    """What a line of the page prints, on either stream.

    What kills a pod's processes may still run when the pod ends, and then it is killed with the pod.
    """
    environment = {**project.surroundings(), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    shown = subprocess.run(
        ["bash", "-c", line],
        cwd=project.path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=180,
        check=False,
    )
    killed_too = may_end_with_the_pod and shown.returncode == 128 + signal.SIGKILL
    assert shown.returncode == 0 or killed_too, f"{line}\n{shown.stdout}"
    return shown.stdout


def _await_checkpoint(project: LocalProject, job: str) -> None:
    """Until a job has saved one, as the page asks its reader to."""
    deadline = time.monotonic() + 60
    while True:
        status = json.loads(project.trn("status", job, "--json").stdout)
        if (status["progress"] or {}).get("checkpointStep"):
            return
        assert time.monotonic() < deadline, status
        time.sleep(0.5)


def _follow(project: LocalProject, page: Path) -> None:
    """Does what a page says."""
    printed = ""
    for kind, block in _blocks(page):
        if kind == "console":
            printed = ""
            for line in block.splitlines():
                if line.startswith("make "):
                    continue
                killed = re.search(r" exec (\S+)-trainer-\S+ -- pkill ", line)
                if killed:
                    _await_checkpoint(project, killed[1])
                printed += _run(project, line, may_end_with_the_pod=killed is not None)
            continue
        rest = printed
        for line in block.splitlines():
            wanted = ".*".join(re.escape(part) for part in line.split("…"))
            found = re.search(wanted, rest)
            assert found, f"the page shows\n  {line}\nand this was printed:\n{printed}"
            rest = rest[found.end() :]


def test_each_command_of_the_tutorial_does_what_the_page_says(project: LocalProject) -> None:
    _follow(project, TUTORIAL)


def test_models_train_as_the_page_says(project: LocalProject, torch: None) -> None:
    _follow(project, MODELS)
    curve = _curve(project, "bert-tiny", "loss")
    steps = [step for _, step, _ in curve]
    assert steps == list(range(1, 401)), "each step once, though a rank was killed"
    losses = [loss for _, _, loss in curve]
    assert sum(losses[-10:]) / 10 < 0.7 * losses[0]


def _curve(project: LocalProject, job: str, tag: str) -> list[list[float]]:
    """Time, step and value of each point, as TensorBoard tells a browser."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    command = project.command("tensorboard", job, "--port", str(port), "--json")
    with subprocess.Popen(command, cwd=project.path, env=project.surroundings(), stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            return _points(url, tag)
        finally:
            process.terminate()


def _points(url: str, tag: str) -> list[list[float]]:
    deadline = time.monotonic() + 30
    while True:
        try:
            address = f"{url}/data/plugin/scalars/scalars?tag={tag}&run=."
            with urllib.request.urlopen(address, timeout=10) as answer:
                found: Any = json.load(answer)
                return list(found)
        except urllib.error.HTTPError:  # it answers before it has read the logs
            assert time.monotonic() < deadline
            time.sleep(0.2)


@pytest.mark.parametrize("page", [TUTORIAL, MODELS], ids=lambda page: page.stem)
def test_a_page_leaves_no_command_untested(page: Path) -> None:
    commands = [line for kind, block in _blocks(page) if kind == "console" for line in block.splitlines()]
    assert len([line for line in commands if line.startswith("./trn ")]) > {"training": 12, "models": 6}[page.stem]
    known = r"\./trn |PYTHONPATH=workloads \$\(\./trn |make local$|mkdir |printf |echo "
    assert not [line for line in commands if not re.match(known, line)]
