"""Why a command stopped, as it is shown."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from trainium_eks.cli.app import app
from trainium_eks.client.failure import FAILED, INTERRUPTED, WRONG_USAGE, CommandError, as_typed, complain
from trainium_eks.kube.errors import ClusterError, MissingError


@pytest.mark.parametrize(
    ("installed", "text", "shown"),
    [
        (
            None,
            "run `trn local up`, then trn doctor; not attrn plan",
            "run `./trn local up`, then ./trn doctor; not attrn plan",
        ),
        ("/bin/trn", "run `trn local up`", "run `trn local up`"),
        (None, "./trn local up", "./trn local up"),
    ],
)
def test_a_command_is_shown_as_it_can_be_typed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], installed: str | None, text: str, shown: str
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: installed)
    assert as_typed(text) == shown
    assert complain(CommandError(FAILED, text)) == FAILED
    assert capsys.readouterr().err == f"{shown}\n"


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (CommandError(WRONG_USAGE, "no such job"), WRONG_USAGE, "no such job\n"),
        (ClusterError("nobody answers"), FAILED, "nobody answers\n"),
        (MissingError("there is no kubectl"), WRONG_USAGE, "there is no kubectl\n"),
        (KeyboardInterrupt(), INTERRUPTED, "\nInterrupted.\n"),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, BaseException) else None,
)
@pytest.mark.parametrize("as_json", [False, True])
def test_what_stops_a_command_is_reported_where_it_is_called(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, told: str, as_json: bool
) -> None:
    def stopped(*_: object) -> int:
        raise error

    monkeypatch.setattr("trainium_eks.client.session.open_session", stopped)
    # After `--` stand the script's own arguments.
    shown = CliRunner().invoke(app, ["train", "--stack", "dev", *(["--json"] if as_json else []), "--", "--json"])
    assert shown.exit_code == code
    if as_json and isinstance(error, Exception):
        assert [each["reason"] for each in json.loads(shown.stdout)["problems"]] == [told.strip()]
    else:
        assert shown.stderr.removeprefix("Stack dev (--stack)\n") == told
