"""docs/training.md: each command of the tutorial is run as it stands there, and what it shows is compared."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from local_project import ROOT, LocalProject

PAGE = ROOT / "docs" / "training.md"
_BLOCK = re.compile(r"^```(console|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _blocks() -> list[tuple[str, str]]:
    """Kind and text of each block before the part about AWS."""
    page, on_aws, _ = PAGE.read_text(encoding="utf-8").partition("\n## On AWS\n")
    assert on_aws
    return _BLOCK.findall(page)


@pytest.fixture(scope="module")
def project(binaries: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalProject]:
    """The stack `local`, up, with a Volcano."""
    assert binaries
    project = LocalProject.of_the_repository(tmp_path_factory.mktemp("tutorial") / "project")
    project = replace(project, environment={"TRN_VOLCANO": ""})
    project.configure("local")
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


def _run(project: LocalProject, line: str) -> str:
    """What a line of the page prints, on either stream."""
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
    assert shown.returncode == 0, f"{line}\n{shown.stdout}"
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


def test_each_command_of_the_tutorial_does_what_the_page_says(project: LocalProject) -> None:
    printed = ""
    for kind, block in _blocks():
        if kind == "console":
            lines = [line for line in block.splitlines() if not line.startswith("make ")]
            printed = ""
            for line in lines:
                if " exec " in line:
                    _await_checkpoint(project, "faulty")
                printed += _run(project, line)
            continue
        rest = printed
        for line in block.splitlines():
            wanted = ".*".join(re.escape(part) for part in line.split("…"))
            found = re.search(wanted, rest)
            assert found, f"the page shows\n  {line}\nand this was printed:\n{printed}"
            rest = rest[found.end() :]


def test_the_page_leaves_no_command_untested() -> None:
    commands = [line for kind, block in _blocks() if kind == "console" for line in block.splitlines()]
    assert len([line for line in commands if line.startswith("./trn ")]) > 12
    assert not [line for line in commands if not re.match(r"\./trn |make local$|mkdir |printf |echo ", line)]
