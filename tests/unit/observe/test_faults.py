"""The catalogue of faults: each entry can be found, is complete, and names commands that exist."""

import re
from pathlib import Path

import pytest
import typer
import yaml

from trainium_eks.cli.app import app
from trainium_eks.observe import rules
from trainium_eks.observe.alerts import runbook
from trainium_eks.observe.faults import catalogue
from trainium_eks.observe.faults.catalogue import BY_NAME, FAULTS
from trainium_eks.observe.faults.fault import Speaker

ROOT = Path(runbook.__file__).parents[2]
COMMANDS = typer.main.get_command(app).commands
CODE = "".join(file.read_text() for room in ("diagnose", "jobs", "operate") for file in (ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_entry_is_found_and_complete(fault):
    assert re.fullmatch(r"[a-z]+(-[a-z]+)+", fault.name)
    assert BY_NAME[fault.name] is fault
    assert fault.says or f'"{fault.name}"' in CODE, "no recognizer names it"
    assert all((fault.symptom.endswith("."), fault.cause.endswith("."), fault.remedy, fault.source))
    assert not fault.alert or f"- **{fault.name}**: {fault.symptom} Remedy: {fault.mend()}" in runbook.page(fault.alert)
    assert [name for name in re.findall(r"\btrn ([a-z]+)", fault.remedy) if name not in COMMANDS] == []
    pages = re.findall(r"docs/[\w-]+\.md", f"{fault.remedy} {fault.source}")
    assert [page for page in pages if not (ROOT.parent / page).is_file()] == []


def test_placeholders_are_capitals_and_named_objects_and_keys_exist():
    fault = BY_NAME["node-cordoned"]
    assert fault.mend(node="n1").endswith("kubectl uncordon n1")
    assert fault.mend().endswith("kubectl uncordon NODE")
    fault = BY_NAME["topology-busy"]
    assert fault.mend(wait="", looser="--tier 2") == "wait for those, or submit it with --tier 2"
    assert fault.mend() == "wait for those, or submit it with --topology soft"
    # A placeholder for words, as LOOK, would tell a reader nothing.
    names = "AMOUNT CLAIM CLASS CLUSTER GROUP HYPERNODES IMAGE INSTANCE JOB KIND NAMESPACE NODE NODES OBJECT POD"
    names += " PROCESS QUEUE QUEUES REGION RESOURCES STACK TAINT WEBHOOK"
    found = {each for fault in FAULTS for each in re.findall(r"\{(\w+)\}", fault.remedy)}
    assert found == {each.lower() for each in names.split()}
    assert all(" " in re.sub(r"\{\w+\}", "", fault.remedy).strip() for fault in FAULTS)
    assert {fault.alert for fault in FAULTS} - {""} <= rules.severities().keys()
    known = (ROOT.parent / "docs" / "config.md").read_text()
    keys = re.findall(r"`([a-z]+[A-Z]\w+|[a-z]+(?:\.\w+)+)`", " ".join(fault.remedy for fault in FAULTS))
    assert [key for key in keys if key not in known and key != "subPath"] == []


SAID = yaml.safe_load((Path(__file__).parent / "said.yaml").read_text())


def _rows(faults):
    return [(text, fault) for fault, said in faults.items() for text in ([said] if isinstance(said, str) else said)]


@pytest.mark.parametrize(("line", "fault"), _rows(SAID["logs"]))
def test_log_line_identifies_its_fault(line, fault):
    found = catalogue.in_log(["loading data", line, "local rank 0 failed: exit code 1"])
    assert (found[0].name, found[1]) == (fault, line)


@pytest.mark.parametrize("line", SAID["sound"].splitlines())
def test_log_line_of_a_sound_training_identifies_no_fault(line):
    assert catalogue.in_log([line]) is None


MESSAGES = [(who, *row) for who, faults in SAID["messages"].items() for row in _rows(faults)]


@pytest.mark.parametrize(("who", "text", "fault"), MESSAGES)
def test_message_identifies_its_fault_by_its_source(who, text, fault):
    assert catalogue.in_message(text, Speaker(who)).name == fault


def test_every_source_of_a_fault_has_a_message_and_every_pattern_a_line():
    assert {fault.name for fault in FAULTS if Speaker.PROGRAM in fault.says} == SAID["logs"].keys()
    told = {(fault.name, who) for fault in FAULTS for who in fault.says if who is not Speaker.PROGRAM}
    assert told == {(fault, who) for who, _, fault in MESSAGES}
