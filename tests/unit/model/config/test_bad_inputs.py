"""tests/bad_inputs.yaml is what this library promises about bad input: each row is proved here or where it says."""

import ast
import copy
import re
import sys
from functools import cache
from pathlib import Path

import pytest
import yaml
from config_tables import ConfigKind, kind_of
from unit.model.config.test_config import FIELDS, shapes, text

from trainium_eks.model.config.stack_config import load, validate
from trainium_eks.model.validation import limits
from trainium_eks.model.validation.config_model import ConfigModelError
from trainium_eks.model.validation.problems import Problem, Severity, config_path, describe, refused, shown

ROOT = Path(__file__).resolve().parents[4]
ROWS = yaml.safe_load((ROOT / "tests" / "bad_inputs.yaml").read_text())["rows"]
ACCEPTED = yaml.safe_load((ROOT / "tests" / "accepted_configs.yaml").read_text())
SOUND = {
    "region": "us-west-2",
    "owner": "ml-platform",
    "allowedAccountIds": ["111122223333"],
    "cluster": {"endpoint": {"publicAccessCidrs": ["203.0.113.0/24"]}},
}
"""The smallest config that nothing is wrong with."""


def laid_over(base, other):
    merged = copy.deepcopy(dict(base))
    for key, value in other.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = laid_over(merged[key], value) if both else value
    return merged


def judged(data):
    """Every problem of a config as Pulumi would hand it over."""
    try:
        return validate(load(text(data)))
    except ConfigModelError as error:
        return error.problems


def cases():
    """Yield the cases of all rows with their config, and with what the row says for all of its cases."""
    for row in ROWS:
        for number, case in enumerate(row.get("cases", ()), 1):
            data = laid_over(SOUND, case.get("config", {}))
            for key in case.get("without", ()):
                del data[key]
            if repeat := case.get("repeat"):
                entry, times = repeat["entry"], repeat["times"]
                data[repeat["key"]] = [{**entry, "name": entry["name"].format(index)} for index in range(times)]
            severity = Severity(case.get("severity", row["severity"]))
            rule = case.get("rule", row.get("rule", "")) if severity is Severity.ACKNOWLEDGE else ""
            known = {"reason": "", "fix": "", **case, "data": data, "severity": severity, "rule": rule}
            yield {"id": f"{row['row']}-{number}", **known}


CASES = list(cases())


@cache
def problems_of_cases():
    return {case["id"]: judged(case["data"]) for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_bad_input_is_reported_with_path_reason_and_fix(case):
    assert judged(SOUND) == ()
    found = judged(case["data"])
    here = [problem for problem in found if problem.path == case["path"]]
    told = [problem for problem in here if case["reason"] in problem.reason.replace("`", "")]
    assert told, f"not among:\n{describe(found)}"
    assert (told[0].severity, told[0].rule) == (case["severity"], case["rule"])
    said = describe(told[:1], config_path)
    assert case["fix"] in said
    assert config_path(case["path"]) in said
    stopping = any(problem.path == case["path"] for problem in refused(found, {}))
    assert stopping is (case["severity"] is not Severity.WARN)
    assert _shows_the_value(case, here), said
    if case["rule"]:
        waived = {problem.rule: "because" for problem in found if problem.rule}
        assert refused(found, waived) == ()
        assert refused(found, waived | {case["rule"]: "  "}), "a waiver without a reason waives nothing"


def _shows_the_value(case, told):
    """Return whether a problem at the case's path shows the value there, where it is the value that is wrong."""
    place = config_path(case["path"])
    value = case["data"]
    for index, name in re.findall(r"\[(\d+)\]|([^.\[\]]+)", place):
        value = value[int(index)] if index else value.get(name) if isinstance(value, dict) else None
    is_field = re.sub(r"\[\d+\]", "[0]", place) in {place for place, _ in FIELDS}
    if not is_field or not isinstance(value, str | int | float) or not 0 < len(str(value)) < 100:
        return True  # a name is wrong, a whole section, or nothing is there to show
    quoted = [f"{shown(problem.value)} {problem.reason}".lower() for problem in told]
    about_the_name = ("encrypted", "given twice", "unknown name")
    return any(word in each for each in quoted for word in (str(value).lower(), *about_the_name))


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case["source"])
def test_config_that_the_services_accept_is_not_refused(case):
    found = [problem for problem in judged(laid_over(SOUND, case["config"])) if problem.severity is not Severity.WARN]
    assert found == [], describe(found, config_path)


def test_each_row_has_a_proof():
    assert [row["row"] for row in ROWS] == list(range(1, len(ROWS) + 1))
    here = f"{Path(__file__).relative_to(ROOT)}::{test_bad_input_is_reported_with_path_reason_and_fix.__name__}"
    for row in ROWS:
        assert row["severity"] in {severity.value for severity in Severity}, row
        assert row["input"], row
        if row["stage"] == "constructor":
            assert row["cases"], row
            assert row["test"] == here
            continue
        assert row["stage"] in ("design", "check")
        assert "cases" not in row
        assert row["message"], row
        file, _, name = row["test"].partition("::")
        tree = ast.parse((ROOT / file).read_text())
        assert name.startswith("test_"), row
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, row


BEYOND_CONFIGS = (
    # What a program gives: an Output where a plain value belongs, args of another kind.
    "give the queue's name",
    "give the value itself, or take it from the stack's config",
    "write names with values",
    "OUTPUT_FAULT",
    "it must be an object with fields of the catalogue",
    "write it as {{type:",
    'Problem(path, EXTRA, "remove it")',
    # Read back from its JSON form.
    "Severity(data[",
    # No version is supported and without a pinned image today.
    "set `release_version` of each node group",
)
"""Parts of the source of the problems that no config can have."""


def test_every_problem_of_the_model_has_a_case(monkeypatch):
    made = set()
    make = Problem.__init__

    def noted(self, *given, **named):
        caller = sys._getframe(1)
        made.add((Path(caller.f_code.co_filename).name, caller.f_lineno))
        make(self, *given, **named)

    monkeypatch.setattr(Problem, "__init__", noted)
    problems_of_cases.cache_clear()
    problems_of_cases()
    monkeypatch.undo()
    unseen = set()
    for source in (ROOT / "trainium_eks" / "model").rglob("*.py"):
        text = source.read_text()
        for node in ast.walk(ast.parse(text)):
            is_made = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Problem"
            if is_made and (source.name, node.lineno) not in made:
                unseen.add(f"{source.name}: {ast.get_source_segment(text, node)}")
    strange = {each for each in unseen if not any(words in each for words in BEYOND_CONFIGS)}
    assert strange == set(), "add a row or a case to tests/bad_inputs.yaml"
    idle = {words for words in BEYOND_CONFIGS if not any(words in each for each in unseen)}
    assert idle == set(), "no longer there, or a case reaches it"


ANY_VALUE_IS_GOOD = {
    "cluster.addons.snapshot-controller.settings": "the add-on's own",
    "nodeGroups[0].capacity.placementGroup": "a group's name is whatever EC2 took",
    "neuronAddons.neuronValues": "the chart's own",
    "gpuAddons.nvidiaValues": "the chart's own",
    "observability.metrics.values": "the chart's own",
}


def test_every_key_is_tried_with_a_wrong_value():
    told = {place_of_any(config_path(case["path"])) for case in CASES if case["severity"] is not Severity.WARN}
    for (place, _), field in FIELDS.items():
        annotation, kind = field.annotation, kind_of(field.annotation)
        words = "Literal" in str(annotation) or kind is ConfigKind.BOOLEAN or field.path[-1] == "type"
        if words or any(shapes(annotation)) or place in ANY_VALUE_IS_GOOD or place.startswith("existingNetwork.p"):
            continue
        if limits.declared(field.spec)[field.name][0]:
            continue  # test_limits.py
        here = place_of_any(place)
        assert any(each == here or each.startswith((f"{here}[", f"{here}.")) for each in told), place


def place_of_any(place):
    return re.sub(r"\[\d+\]", "[]", re.sub(r"(addons|waivers)\.[\w-]+", r"\1", place))


FAULTS = {
    "region": "us-west-2",
    "network": {"cidrBlock": "10.0.0.0/12"},
    "cluster": {"kubernetesVersion": "1.25"},
    "nodeGroups": [{"name": "train", "instanceType": "trn1.32xlarge", "maxSize": 4, "desiredSize": 8}],
    "fileSystem": {"storageCapacityGib": 1300},
    "volcano": {"replicas": 0},
    "queues": [{"name": "default"}],
    "namespaces": [{"name": "kube-system", "queues": ["default"]}],
    "imageRepository": {"keptImages": 0},
    "waivers": {"R999": {"reason": "why not", "expires": "2027-03-31"}},
}
OF_SHAPE = {"production": "maybe", "queues": [{}], "nodeGroups": 3, "nodeGroup": [], "network": {"cidr": 1}}


def test_one_answer_names_every_problem_of_the_stack():
    """No problem may appear in a second round that the first could have reported."""
    sections = {config_path(problem.path).split(".")[0].split("[")[0] for problem in judged(laid_over(SOUND, FAULTS))}
    assert sections >= FAULTS.keys() - {"region"}
    of_shape = {config_path(problem.path) for problem in judged(laid_over(SOUND, OF_SHAPE))}
    assert of_shape == {"production", "queues[0].name", "nodeGroups", "nodeGroup", "network.cidr"}
