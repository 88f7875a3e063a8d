"""The rows: complete, and true to the SDK's classes."""

import importlib
import json
import os
import re
import typing
from dataclasses import replace
from pathlib import Path

import pulumi_kubernetes
import pytest
import yaml
from hand_built import Builder
from pulumi import _types

from trainium_eks.model.sizing import bill
from trainium_eks.plan import cost
from trainium_eks.plan.graph import Options, Resource
from trainium_eks.plan.resource_types import registry, replacements, sdk_inputs
from trainium_eks.plan.resource_types.registry import ROWS
from trainium_eks.plan.resource_types.resource_type import REGION, BilledElsewhere, ResourceType, When
from trainium_eks.plan.resource_types.rows import fsx, kubernetes, providers

AWS = sorted(token for token in ROWS if token.startswith("aws:"))
GOLDEN = Path(__file__).parents[3] / "golden_plans"


def inputs_of(token):
    importlib.import_module("pulumi_aws")
    return sdk_inputs.input_types(token)


def types_of_environments():
    return {
        urn.split("::")[2].rpartition("$")[2] for file in GOLDEN.glob("*.json") for urn in json.loads(file.read_text())
    }


def test_every_type_has_one_row_and_free_types_are_known():
    components = re.compile(r"trainium-eks:|eks:index:|pulumi:pulumi:Stack$|kubernetes:kustomize/")
    types = types_of_environments()
    assert len(types) > 50
    assert {type_ for type_ in types if type_ not in ROWS and not components.match(type_)} == set()
    assert len(ROWS) == sum(1 for module in registry.MODULES for _ in registry.rows_of(module)), "one is there twice"
    rows = [ROWS[each] for each in types_of_environments() if each in ROWS]
    free = {row.token for row in rows if row.price is None and row.holds is None}
    listed = yaml.safe_load(Path(__file__).with_name("free_and_empty.yaml").read_text())
    known = {(group, name) for group, names in listed.items() for name in names}
    assert {(re.split(r"/|:(?=\w+$)", each)[0], each.rpartition(":")[2]) for each in free} == known


def test_unknown_type_has_no_price_and_its_changes_need_a_review():
    for token in ("random:index/randomId:RandomId", "trainium-eks:index:Network", "aws:ivs/channel:Channel"):
        assert registry.find(token) is None
    build = Builder()
    build.add("aws:ivs/channel:Channel", "jobs")
    assert cost.estimate(build.graph()).unknown == ("aws:ivs/channel:Channel",)
    row = ResourceType(token="x", simulated=registry.UNKNOWN_TYPE.simulated, replaced_by=())
    assert (row.understood, row.creation, row.deletion) == ((), None, None), "a change goes to a reviewer"


@pytest.mark.parametrize("token", AWS)
def test_row_matches_the_sdk(token):
    takes, row = inputs_of(token), ROWS[token]
    assert row.tagged == ("tags" in takes)
    assert (REGION in row.replaced_by) == ("region" in takes)
    for path in (*(each.path if isinstance(each, When) else each for each in row.replaced_by), *row.named_by):
        types = takes
        for step in path.split("."):
            assert step in types, f"{token} has no input {path}"
            types = nested(types[step])


def nested(typ):
    """The keys of an object among the forms that an input may take."""
    if isinstance(typ, type) and _types.is_input_type(typ):
        return _types.input_type_types(typ)
    return next(filter(None, map(nested, typing.get_args(typ))), {})


def test_built_in_groups_equal_the_sdks():
    source = Path(pulumi_kubernetes.__file__).read_text(encoding="utf-8")
    groups = set(re.findall(r'"mod": "([^"/]+)/', source))
    assert groups - {"helm.sh", "kustomize", "meta", "yaml"} == kubernetes.BUILT_IN_GROUPS


def test_every_use_billed_elsewhere_has_a_bill():
    elsewhere = {row.price.under for row in (*ROWS.values(),) if isinstance(row.price, BilledElsewhere)}
    assert elsewhere - set(bill.BY_USE) == {"nodes", "file systems and volumes"}


CAPACITY, IOPS = "storageCapacity", "metadataConfiguration.iops"
SECOND, FIRST = {"deploymentType": "PERSISTENT_2"}, {"deploymentType": "SCRATCH_1"}
CLUSTER, INSTANCE = ROWS["aws:eks/cluster:Cluster"], ROWS["aws:ec2/instance:Instance"]
KEYS = {"resources": ["secrets"]}


@pytest.mark.parametrize(
    ("row", "inputs", "path", "before", "after", "replaced"),
    [
        # A file system grows in place, unless it is of the first generation.
        (fsx.FILE_SYSTEM, SECOND, CAPACITY, 2400, 1200, True),
        (fsx.FILE_SYSTEM, SECOND, CAPACITY, 1200, 2400, False),
        (fsx.FILE_SYSTEM, SECOND, CAPACITY, 1200, 1200, False),
        (fsx.FILE_SYSTEM, SECOND, CAPACITY, None, 1200, False),
        (fsx.FILE_SYSTEM, FIRST, CAPACITY, 1200, 2400, True),
        (fsx.FILE_SYSTEM, {}, CAPACITY, 1200, 2400, True),
        # Metadata IOPS are only raised in place.
        (fsx.FILE_SYSTEM, {}, IOPS, 6000, 3000, True),
        (fsx.FILE_SYSTEM, {}, IOPS, 3000, 6000, False),
        (fsx.FILE_SYSTEM, {}, IOPS, None, 3000, False),
        # Encryption of secrets is put on in place.
        (CLUSTER, {}, "encryptionConfig", None, KEYS, False),
        (CLUSTER, {}, "encryptionConfig", KEYS, None, True),
        # User data replaces an instance if the program asks for it.
        (INSTANCE, {}, "userData", "a", "b", False),
        (INSTANCE, {"userDataReplaceOnChange": False}, "userData", "a", "b", False),
        (INSTANCE, {"userDataReplaceOnChange": True}, "userData", "a", "b", True),
        (INSTANCE, {}, "launchTemplate.version", "1", "2", True),
        (INSTANCE, {}, "vpcSecurityGroupIds", ["sg-1"], ["sg-2"], False),
        # A kubeconfig replaces a provider that does not know its cluster.
        (providers.KUBERNETES, {"clusterIdentifier": "arn"}, "kubeconfig", "a", "b", False),
    ],
)
def test_replacing_change_is_recognised(row, inputs, path, before, after, replaced):
    top, _, nested_key = path.partition(".")
    given = {**inputs} if nested_key else {**inputs, top: after}
    resource = Resource("u", row.token, "n", inputs=given)
    assert replacements.replaces(resource, path, before, after) is replaced


def test_replacing_paths_depend_on_inputs_and_options():
    provider = Resource("u", providers.KUBERNETES.token, "n")
    assert replacements.replacing_paths(provider) == ("clusterIdentifier", "kubeconfig")
    known = replace(provider, inputs={"clusterIdentifier": "arn"})
    assert replacements.replacing_paths(known) == ("clusterIdentifier",)
    options = Options(replace_on_changes=("userData",))
    template = Resource("u", "aws:ec2/launchTemplate:LaunchTemplate", "n", inputs={"userData": "a"}, options=options)
    assert replacements.replaces(template, "userData", "a", "b"), "the program says so"


SCHEMA = os.environ.get("PULUMI_AWS_SCHEMA")
"""What ``pulumi package get-schema aws`` prints for the installed version; it is too large to keep here."""


@pytest.mark.skipif(not SCHEMA, reason="set PULUMI_AWS_SCHEMA to the output of `pulumi package get-schema aws`")
def test_replacing_inputs_equal_the_providers_schema():
    schema = json.loads(Path(SCHEMA or "").read_text(encoding="utf-8"))

    def replacing(properties, prefix="", seen=()):
        """The shortest paths that the schema marks as replacing. Of lists of objects no row speaks."""
        for name, property_ in properties.items():
            reference = property_.get("$ref", "").removeprefix("#/types/")
            if property_.get("willReplaceOnChanges"):
                yield f"{prefix}{name}"
            elif reference not in seen:
                inner = schema["types"].get(reference, {}).get("properties", {})
                yield from replacing(inner, f"{prefix}{name}.", (*seen, reference))

    for token in AWS:
        always = {each for each in ROWS[token].replaced_by if isinstance(each, str)}
        assert always == set(replacing(schema["resources"][token]["inputProperties"])), token
