"""Why a command stopped, as it is shown."""

import shutil

import pytest

from trainium_eks.cli.shared.failure import FAILED, Failure, as_typed, complain


@pytest.mark.parametrize(
    ("installed", "shown"),
    [(None, "run `./trn local up`, then ./trn verify; not attrn plan"), ("/bin/trn", None)],
)
def test_a_command_is_shown_as_it_can_be_typed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], installed: str | None, shown: str | None
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: installed)
    text = "run `trn local up`, then trn verify; not attrn plan"
    assert as_typed(text) == (shown or text)
    assert complain(Failure(FAILED, text)) == FAILED
    assert capsys.readouterr().err == f"{shown or text}\n"


def test_what_is_spelled_out_already_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert as_typed("./trn local up") == "./trn local up"
