"""Rules judge by themselves, and from the same facts as the judges of the config and the components."""

import ast
import re
from pathlib import Path

import botocore.session
import pytest

from trainium_eks import model
from trainium_eks.model.config import cluster, network
from trainium_eks.plan.rules import CONFIG_ALONE, RULES

PACKAGE = Path(model.__file__).parent.parent


def test_rule_shared_with_the_config_names_its_independent_judge():
    explained = {rule.id: rule.explanation for rule in RULES}
    named = {
        (keyword.value.value, source.relative_to(PACKAGE).as_posix())
        for source in (PACKAGE / "model").rglob("*.py")
        for call in ast.walk(ast.parse(source.read_text()))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Problem"
        for keyword in call.keywords
        if keyword.arg == "rule" and isinstance(keyword.value, ast.Constant)
    }
    assert {id_ for id_, _ in named} >= {"R02", "R29", "R58", "R68"}
    assert {id_ for id_, _ in named} - explained.keys() == CONFIG_ALONE.keys() - {"R43"}  # R43 is in a variable there
    judged_too = [(id_, file) for id_, file in named if id_ in explained]
    assert [(id_, file) for id_, file in judged_too if f"Independent of `{file}`" not in explained[id_]] == []
    mentioned = {file for text in explained.values() for file in re.findall(r"`(model/[\w/]+\.py)`", text)}
    assert [file for file in mentioned if not (PACKAGE / file).is_file()] == []


def test_log_types_equal_ekss():
    shape = botocore.session.get_session().get_service_model("eks").shape_for("LogType")
    assert set(cluster.LOG_TYPES) == set(shape.enum)


@pytest.mark.parametrize("endpoint", network.COMPLETE_ENDPOINTS)
def test_config_judges_every_endpoint(endpoint):
    rest = tuple(each for each in network.COMPLETE_ENDPOINTS if each != endpoint)
    assert network.lacks_endpoints(network.NetworkConfig(interface_endpoints=rest)) == (endpoint,)
