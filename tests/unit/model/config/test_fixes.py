"""Every fix is put back into the config that it mends, and judged again: a value, a removal, another name."""

import copy
import difflib
import json
import math
import re
import shlex
from typing import Any

import pytest
from unit.model.config.test_bad_inputs import CASES, SOUND, judged, problems_of_cases
from unit.model.config.test_config import text as as_text
from unit.model.validation.test_limits import CASES as LIMITS

from trainium_eks.model.config.stack_config import StackConfig, load
from trainium_eks.model.sizing.bill import of_config
from trainium_eks.model.validation import formats, other_names
from trainium_eks.model.validation.config_model import ConfigModel, sections
from trainium_eks.model.validation.problems import config_path, config_set, describe, steps_of, with_value

INPUTS = [
    *(pytest.param(case["data"], id=case["id"]) for case in CASES),
    *(
        pytest.param(each.values[0], id=each.id, marks=pytest.mark.slow)
        for each in LIMITS
        if not each.values[3] and "karpenter.instanceTypes" not in str(each.id)  # a hundred misspelt words
    ),
]


def put_back(data, problem):
    """Return the config as the problem's fix makes it; None for a fix in words, or with a place to fill in."""
    if problem.is_settable:
        return run(data, config_set(problem.path, problem.good))
    *most, last = steps_of(problem.path)
    data = copy.deepcopy(data)
    at = data
    for step in most:
        at = at[step] if isinstance(at, list) else at.get(config_path(str(step)), at.get(step, {}))
    squashed = other_names._squashed
    key = last if isinstance(at, list) else next((each for each in at if squashed(each) == squashed(str(last))), None)
    if key is None:
        return None
    if re.match("(or )?(remove it|leave it out)", problem.fix):
        del at[key]
        return data
    found = re.search("(name it|did you mean) `?(?P<name>[^`? ]+)`?", problem.fix)
    if found is None:
        return None
    name = found["name"]
    if isinstance(key, int) or difflib.SequenceMatcher(None, str(at[key]), name).ratio() > 0.7:
        at[key] = name
    else:
        at[name] = at.pop(key)
    return data


def run(data, line):
    """Return the config after the commands of a fix, which store digits and truth values as such."""
    for command in line.split(" && "):
        *_, key, text = shlex.split(command)
        plain = "--path" in command and re.fullmatch(r"-?(0|[1-9]\d*)|true|false", text)
        data = with_value(data, key, json.loads(text) if plain else text)
    return data


def hourly_usd(data, unread):
    """Return the price at the largest sizes; ``unread`` for a config that has none."""
    try:
        bill = of_config(load(as_text(data)))
    except ValueError:
        return unread
    return sum((line.unit_hourly_usd or 0) * line.maximum for line in bill.lines)


@pytest.mark.parametrize("data", INPUTS)
def test_config_with_the_fix_is_valid(data):
    told, together, values = judged(data), data, dict[str, Any]()
    known = {(each.path, each.reason) for each in told}
    for problem in told:
        mended = put_back(data, problem)
        if mended is not None:
            again = {each.reason for each in judged(mended) if each.path == problem.path}
            assert again <= {reason for path, reason in known if path == problem.path} - {problem.reason}
            is_dearer = hourly_usd(mended, 0) > 1.5 * hourly_usd(data, math.inf)
            assert not is_dearer or problem.value == 0, "a group of none that gets a node"
        if problem.is_settable:
            assert values.setdefault(problem.path, problem.good) == problem.good, "two fixes for one value"
            together = run(together, config_set(problem.path, problem.good))
    assert len(known) == len(told), "a problem is told twice"
    new = {each.path for each in judged(together) if (each.path, each.reason) not in known}
    assert not new & set(values), "fixes undo each other"


def test_most_fixes_are_tried():
    tried = [put_back(case["data"], problem) for case in CASES for problem in problems_of_cases()[case["id"]]]
    assert sum(each is not None for each in tried) > 180


@pytest.mark.parametrize(
    ("section", "named", "fix"),
    [
        ("nodeGroups.0", "desiredCapacity Desired_Capacity node-count", "name it desiredSize"),
        ("nodeGroups.0", "volumeSize disk_size", "name it rootVolumeGib"),
        ("nodeGroups.0", "efaEnabled enable_efa_support", "a type that has EFA gets it"),
        ("nodeGroups.0", "capacity_reservation_specification CapacityReservation", "{type: reservation"),
        ("nodeGroups.0", "iam_role_arn createIamRole NodeRole", "the stack makes each role"),
        ("cluster", "version cluster_version K8sVersion", "name it kubernetesVersion"),
        ("cluster", "name", "the stack's name makes"),
        ("cluster", "natGateways", "it belongs into network.natGateways"),
        ("fileSystem", "id fileSystemId dns_name", "LustreVolumes"),
        ("fileSystem", "fsx_storage_capacity", "name it storageCapacityGib"),
        ("autoscaling.karpenter", "nodePools", "name it acceleratorPools"),
        ("", "existingFileSystem", "LustreVolumes"),
        ("", "cluster_version", "it belongs into cluster.kubernetesVersion"),
        ("", "vpc_id subnetIds", "existingNetwork"),
        ("", "enable_karpenter", "it belongs into autoscaling.karpenter"),
    ],
)
def test_names_of_other_tools_suggest_ours(section, named, fix):
    base = {**SOUND, "nodeGroups": [{"name": "a", "instanceType": "trn1.32xlarge"}]}
    for name in named.split():
        steps = [int(step) if step == "0" else step for step in section.split(".") if step]
        data = with_value(base, [*steps, name], "1")
        told = [each for each in judged(data) if "unknown name" in each.reason]
        assert fix in describe(told, config_path), name


def test_suggested_names_are_existing_keys():
    models = {model.__name__: model for _, model in sections(StackConfig)}
    every = {field for model in models.values() for field in model.model_fields}
    assert {*other_names._sections()} - {*models} == {"ConfigModel"}
    for model, (_, rules) in other_names._sections().items():
        near_by = {*models.get(model, ConfigModel).model_fields, *StackConfig.model_fields}
        for ours in rules.values():
            assert re.fullmatch("[a-z0-9_]+", ours) is None or ours in every, ours
            for path in re.findall("`([^`]+)`", ours):
                first, *rest = path.split(".")
                assert first in near_by, (model, ours)
                assert {*rest} <= every, (model, ours)


@pytest.mark.parametrize(
    ("arn", "says"),
    [
        ("role/AWSReservedSSO_Admin_0123456789abcdef", "role/aws-reserved/sso.amazonaws.com/<region>/AWSReservedSSO_A"),
        ("role/x/AWSReservedSSO_Admin_0123456789abcdef", "get-role --role-name AWSReservedSSO_Admin_0123456789abcdef"),
        ("role/AWSServiceRoleForAmazonEKS", "name the role that people or runners assume"),
        ("federated-user/jane", "asked for the session"),
        ("root", "no account has access as a whole"),
    ],
)
def test_invalid_principal_arn_is_refused_with_the_right_form(arn, says):
    for partition in ("aws", "aws-us-gov", "aws-cn"):
        value = f"arn:{partition}:{'sts' if 'federated' in arn else 'iam'}::111122223333:{arn}"
        (told,) = formats.principal("admin_principals[0]", value)
        assert says in describe([told], config_path)
        assert told.good is None or formats.principal("", str(told.good)), "a place to fill in is no ARN"
