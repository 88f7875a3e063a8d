"""The commands of docs/staging.md, docs/images.md and docs/upgrading.md are commands, with options that there are."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from cluster_snapshots import outputs
from typer.testing import CliRunner

from trainium_eks.cli import image, image_mirror, stage, upgrade, verify
from trainium_eks.cli.app import app
from trainium_eks.launch import staging

DOCS = Path(__file__).resolve().parents[3] / "docs"
COMMENT = re.compile(r"\s{2,}(# )?[A-Za-z].*$")
COMMANDS = [
    COMMENT.sub("", line)
    for page in ("staging.md", "images.md", "upgrading.md")
    for block in re.findall(r"```console\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    for line in block.splitlines()
    if line.startswith("trn ")
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_documented_command_is_understood(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def note(options: Any, **_: Any) -> int:
        asked.append(options)
        return 0

    monkeypatch.setattr(stage, "run", note)
    monkeypatch.setattr(image, "build", note)
    monkeypatch.setattr(image, "push", note)
    monkeypatch.setattr(image_mirror, "mirror", note)
    monkeypatch.setattr(upgrade, "run", note)
    monkeypatch.setattr(verify, "run", note)
    shown = CliRunner().invoke(app, shlex.split(command)[1:])
    assert shown.exit_code == 0, shown.output
    for options in asked:
        if isinstance(options, stage.StageOptions):
            request = stage._request(options, is_local=False)
            assert staging.problems(request, outputs().namespaces[0], is_local=False) == []


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 10
