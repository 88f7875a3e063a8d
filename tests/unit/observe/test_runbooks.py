"""Each alert has a page, and what the pages tell people to type can be typed."""

import re

import pytest
from command_lines import parse, words

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
    {each for text in PAGES.values() for each in re.findall(r"`trn (\w[^`]* [^`]*)`", text)}
    | {re.sub(r"{{.*?}}", "x", command[4:]) for command in NEXT.values() if command.startswith("trn ")}
)
"""Beside those in console blocks, which are read as docs/alerts.md."""


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_says_what_it_means_what_to_look_at_what_mends_it_and_what_it_costs(name: str) -> None:
    means, *rest = PAGES[name].strip().split("\n\n")
    assert len(means) > 40
    assert [found for part in rest for found in re.findall(r"^\*\*[^*]+\*\*", part, re.MULTILINE)] == SECTIONS
    assert len(typed(PAGES[name])) >= 2
    assert all(len(line) <= 120 for line in PAGES[name].splitlines())
    first = NEXT[name].split()[:2]
    assert any(line.split()[:2] == first for line in typed(PAGES[name])), NEXT[name]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_trn_is_one_with_such_options(command: str) -> None:
    assert parse(words(command.replace("NODES", "1")))


def test_every_alert_has_a_page_whose_first_sentence_says_what_it_is_about() -> None:
    assert PAGES.keys() == rules.severities().keys()
    assert runbook.about("ExporterDown") == "An exporter does not answer Prometheus."
    assert all(runbook.about(name).endswith(".") and "\n" not in runbook.about(name) for name in PAGES)
