"""Each alert has a page, and what the pages tell people to type can be typed."""

import re
import shlex
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from trainium_eks.cli.app import app
from trainium_eks.model.alerts import AlertSettings
from trainium_eks.observe import rules
from trainium_eks.observe.alerts import runbook

PAGES = runbook.sections()
SECTIONS = ["**Look:**", "**Mend.**", "**Cost of waiting.**"]
NEXT = {
    rule["alert"]: rule["annotations"]["next"]
    for group in rules.alerts(AlertSettings(), "STACK")
    for rule in group["rules"]
}
COMMENT = re.compile(r"\s+# .*$")


def typed(text: str) -> list[str]:
    """The lines of a page's console blocks, without comments."""
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    return [COMMENT.sub("", line) for block in blocks for line in block.splitlines()]


COMMANDS = sorted(
    {line for text in PAGES.values() for line in typed(text) if line.startswith("trn ")}
    | {each for text in PAGES.values() for each in re.findall(r"`(trn \w[^`]*)`", text) if " " in each[4:]}
    | {re.sub(r"{{.*?}}", "x", command) for command in NEXT.values() if command.startswith("trn ")}
)


def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    assert PAGES.keys() == rules.severities().keys()


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_says_what_it_means_what_to_look_at_what_mends_it_and_what_it_costs(name: str) -> None:
    means, *rest = PAGES[name].strip().split("\n\n")
    assert len(means) > 40
    assert [found for part in rest for found in re.findall(r"^\*\*[^*]+\*\*", part, re.MULTILINE)] == SECTIONS
    assert len(typed(PAGES[name])) >= 2
    assert all(len(line) <= 120 for line in PAGES[name].splitlines())


@pytest.mark.parametrize("alert", NEXT)
def test_what_an_alert_tells_to_type_is_on_its_page_too(alert: str) -> None:
    words = NEXT[alert].split()[:2]
    assert any(line.split()[:2] == words for line in typed(PAGES[alert])), NEXT[alert]


def parsed(command: str) -> typer.Context:
    """The command's own context after its words were read; nothing is run."""
    found: Any = typer.main.get_command(app)
    words = shlex.split(command)[1:]
    context = typer.Context(found)
    while isinstance(found, TyperGroup):
        name, found, words = found.resolve_command(context, words)
        context = typer.Context(found, info_name=name, parent=context)
    words = ["1" if word == "NODES" else word for word in words]
    made: typer.Context = found.make_context(found.name, words, resilient_parsing=False)
    return made


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_trn_is_one_with_such_options(command: str) -> None:
    assert parsed(command) is not None


def test_there_are_commands_of_trn() -> None:
    assert len(COMMANDS) > 10


def test_the_first_sentence_is_what_it_is_about() -> None:
    assert runbook.about("ExporterDown") == "An exporter does not answer Prometheus."
    assert all(runbook.about(name).endswith(".") and "\n" not in runbook.about(name) for name in PAGES)
