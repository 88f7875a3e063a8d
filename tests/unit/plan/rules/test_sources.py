"""Rules judge by themselves, and from the same facts as the judges of the config and the components."""

import ast
import re
from pathlib import Path

import botocore.session
import pytest
from rule_programs import Program

from trainium_eks import model
from trainium_eks.model.catalogue import lustre
from trainium_eks.model.config import cluster, network, storage
from trainium_eks.model.config.storage import FileSystemConfig
from trainium_eks.model.validation import limits
from trainium_eks.model.validation.config_model import read
from trainium_eks.plan.rules import RULES, judge

PACKAGE = Path(model.__file__).parent.parent


FILE_SYSTEM = {"deploymentType": "PERSISTENT_2", "subnetIds": "s", "perUnitStorageThroughput": 250}


def fails(**inputs):
    """Whether rule R40 refuses a file system."""
    program = Program()
    given = {**FILE_SYSTEM, "storageCapacity": 2400, **inputs}
    program.add("fsx", "aws:fsx/lustreFileSystem:LustreFileSystem", given)
    [found] = [verdict.status for verdict in judge(program.graph()) if verdict.id == "R40"]
    assert found in ("pass", "fail")
    return found == "fail"


def refused(**section):
    """Whether the config's judge refuses it."""
    config = read(FileSystemConfig, section)
    return [*limits.of_places(limits.walk(config)), *storage.validate(config, production=False)] != []


def test_rule_and_config_agree_on_sizes_and_rates():
    for size in (0, 1199, 1200, 1201, 2399, 2400, 2401, 3600, 4799, 4800, 4801, 7200):
        assert refused(storage_capacity_gib=size) == fails(storageCapacity=size), size
    for rate in (0, 124, 125, 126, 249, 250, 500, 999, 1000, 1001):
        assert refused(throughput_per_tib=rate) == fails(perUnitStorageThroughput=rate), rate
    for iops in (0, 1499, 1500, 3000, 4500, 6000, 9000, 12_000, 12_001, 192_000, 204_000):
        metadata = {"mode": "USER_PROVISIONED", "iops": iops}
        assert refused(metadata_iops=iops) == fails(metadataConfiguration=metadata), iops


@pytest.mark.parametrize("throughput", lustre.THROUGHPUT_PER_TIB)
def test_rule_and_config_agree_on_efa_steps(throughput):
    for off in (-1, 0, 1):
        size = lustre.EFA_STEP_GIB[throughput] + off
        failed = fails(perUnitStorageThroughput=throughput, storageCapacity=size, efaEnabled=True)
        assert failed == bool(off)
        assert refused(throughput_per_tib=throughput, storage_capacity_gib=size, efa_enabled=True) == failed


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
    assert [(id_, file) for id_, file in named if f"Independent of `{file}`" not in explained[id_]] == []
    mentioned = {file for text in explained.values() for file in re.findall(r"`(model/[\w/]+\.py)`", text)}
    assert [file for file in mentioned if not (PACKAGE / file).is_file()] == []


def test_log_types_equal_ekss():
    shape = botocore.session.get_session().get_service_model("eks").shape_for("LogType")
    assert set(cluster.LOG_TYPES) == set(shape.enum)


@pytest.mark.parametrize("endpoint", network.COMPLETE_ENDPOINTS)
def test_config_judges_every_endpoint(endpoint):
    rest = tuple(each for each in network.COMPLETE_ENDPOINTS if each != endpoint)
    assert network.lacks_endpoints(network.NetworkConfig(interface_endpoints=rest)) == (endpoint,)
