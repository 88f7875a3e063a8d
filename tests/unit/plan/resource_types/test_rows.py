"""The rows: complete, and true to the SDK's classes."""

import importlib
import json
import re
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pulumi_kubernetes
import pytest
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


def inputs_of(token: str) -> Mapping[str, Any]:
    importlib.import_module("pulumi_aws")
    found = sdk_inputs.input_types(token)
    assert found is not None, f"{token} is not in pulumi_aws"
    return found


def types_of_environments() -> set[str]:
    return {
        urn.split("::")[2].rpartition("$")[2] for file in GOLDEN.glob("*.json") for urn in json.loads(file.read_text())
    }


def paths(row: ResourceType) -> list[str]:
    return [each.path if isinstance(each, When) else each for each in row.replaced_by]


# --- whole --------------------------------------------------------------------------------------------------------


FREE_AND_EMPTY = {
    "aws:autoscaling": "Tag",
    "aws:budgets": "Budget",
    "aws:ec2": "DefaultSecurityGroup InternetGateway LaunchTemplate PlacementGroup Route RouteTable "
    "RouteTableAssociation SecurityGroup",
    "aws:ecr": "LifecyclePolicy",
    "aws:eks": "AccessEntry AccessPolicyAssociation Addon PodIdentityAssociation",
    "aws:fsx": "DataRepositoryAssociation",
    "aws:iam": "Role RolePolicy RolePolicyAttachment",
    "aws:kms": "Alias KeyPolicy",
    "aws:s3": "BucketLifecycleConfiguration BucketOwnershipControls BucketPolicy BucketPublicAccessBlock "
    "BucketServerSideEncryptionConfiguration BucketVersioning",
    "aws:vpc": "SecurityGroupEgressRule SecurityGroupIngressRule",
    "kubernetes:admissionregistration.k8s.io": "ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding",
    "kubernetes:core": "ConfigMap LimitRange Namespace ResourceQuota ServiceAccount",
    "kubernetes:monitoring.coreos.com": "PodMonitor PrometheusRule ServiceMonitor",
    "kubernetes:networking.k8s.io": "NetworkPolicy",
    "kubernetes:policy": "PodDisruptionBudget",
    "kubernetes:rbac.authorization.k8s.io": "ClusterRole ClusterRoleBinding Role RoleBinding",
    "kubernetes:scheduling.k8s.io": "PriorityClass",
    "kubernetes:scheduling.volcano.sh": "Queue",
    "kubernetes:storage.k8s.io": "StorageClass",
    "pulumi:providers": "aws kubernetes",
}
"""The types of dev, prod and gpu that cost nothing and hold nothing, as a row says that leaves both columns out. Add a
type here only when that is true of it."""


def test_a_type_that_is_free_and_holds_nothing_is_known_to() -> None:
    rows = [ROWS[each] for each in types_of_environments() if each in ROWS]
    free = {row.token for row in rows if row.price is None and row.holds is None}
    known = {(group, name) for group, names in FREE_AND_EMPTY.items() for name in names.split()}
    assert {(re.split(r"/|:(?=\w+$)", each)[0], each.rpartition(":")[2]) for each in free} == known


def test_what_a_row_leaves_out_is_cautious_about_changes() -> None:
    row = ResourceType(token="x", simulated=registry.UNKNOWN_TYPE.simulated, replaced_by=())
    assert (row.understood, row.creation, row.deletion) == ((), None, None), "a change goes to a reviewer"


def test_every_type_has_one_row() -> None:
    assert len(ROWS) == sum(1 for module in registry.MODULES for _ in registry.rows_of(module))


def test_every_type_of_the_environments_has_a_row_of_its_own() -> None:
    components = re.compile(r"trainium-eks:|eks:index:|pulumi:pulumi:Stack$|kubernetes:kustomize/")
    types = types_of_environments()
    assert len(types) > 50
    assert {type_ for type_ in types if type_ not in ROWS and not components.match(type_)} == set()


@pytest.mark.parametrize(
    "token", ["random:index/randomId:RandomId", "trainium-eks:index:Network", "aws:ivs/channel:Channel"]
)
def test_a_type_of_which_nothing_is_known_has_no_row(token: str) -> None:
    assert registry.find(token) is None


def test_the_price_of_an_unknown_type_is_unknown_and_not_nothing() -> None:
    build = Builder()
    build.add("aws:ivs/channel:Channel", "jobs")
    assert cost.estimate(build.graph()).unknown == ("aws:ivs/channel:Channel",)


# --- true ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", AWS)
def test_who_takes_tags_and_a_region_is_as_the_sdk_says(token: str) -> None:
    takes, row = inputs_of(token), ROWS[token]
    assert row.tagged == ("tags" in takes)
    assert (REGION in row.replaced_by) == ("region" in takes)


@pytest.mark.parametrize("token", AWS)
def test_every_path_of_a_row_is_an_input(token: str) -> None:
    for path in (*paths(ROWS[token]), *ROWS[token].named_by):
        types: Mapping[str, Any] = inputs_of(token)
        for step in path.split("."):
            assert step in types, f"{token} has no input {path}"
            types = nested(types[step])


def nested(typ: Any) -> Mapping[str, Any]:
    """The keys of an object among the forms that an input may take."""
    if isinstance(typ, type) and _types.is_input_type(typ):
        return _types.input_type_types(typ)
    return next(filter(None, map(nested, typing.get_args(typ))), {})


def test_built_in_groups_are_those_that_the_sdk_has() -> None:
    source = Path(pulumi_kubernetes.__file__).read_text(encoding="utf-8")
    groups = set(re.findall(r'"mod": "([^"/]+)/', source))
    assert groups - {"helm.sh", "kustomize", "meta", "yaml"} == kubernetes.BUILT_IN_GROUPS


def test_what_is_billed_elsewhere_is_billed_somewhere() -> None:
    elsewhere = {row.price.under for row in (*ROWS.values(),) if isinstance(row.price, BilledElsewhere)}
    assert elsewhere - set(bill.BY_USE) == {"nodes", "file systems and volumes"}


# --- what replaces ------------------------------------------------------------------------------------------------


def resource(row: ResourceType, replace_on_changes: tuple[str, ...] = (), **inputs: Any) -> Resource:
    return Resource("u", row.token, "n", inputs=inputs, options=Options(replace_on_changes=replace_on_changes))


@pytest.mark.parametrize(
    ("deployment", "before", "after", "replaced"),
    [
        ("PERSISTENT_2", 2400, 1200, True),
        ("PERSISTENT_2", 1200, 2400, False),
        ("PERSISTENT_2", 1200, 1200, False),
        ("PERSISTENT_2", None, 1200, False),
        ("SCRATCH_1", 1200, 2400, True),
        (None, 1200, 2400, True),
    ],
)
def test_a_file_system_grows_in_place_unless_it_is_of_the_first_generation(
    deployment: str | None, before: int | None, after: int, replaced: bool
) -> None:
    given = {"deploymentType": deployment} if deployment else {}
    file_system = resource(fsx.FILE_SYSTEM, storageCapacity=after, **given)
    assert replacements.replaces(file_system, "storageCapacity", before, after) is replaced


@pytest.mark.parametrize(
    ("before", "after", "replaced"), [(6000, 3000, True), (3000, 6000, False), (None, 3000, False)]
)
def test_metadata_iops_are_only_raised_in_place(before: int | None, after: int, replaced: bool) -> None:
    file_system = resource(fsx.FILE_SYSTEM)
    assert replacements.replaces(file_system, "metadataConfiguration.iops", before, after) is replaced


def test_encryption_of_secrets_is_put_on_in_place_and_taken_off_by_a_new_cluster() -> None:
    cluster = resource(ROWS["aws:eks/cluster:Cluster"])
    assert not replacements.replaces(cluster, "encryptionConfig", None, {"resources": ["secrets"]})
    assert replacements.replaces(cluster, "encryptionConfig", {"resources": ["secrets"]}, None)


def test_a_kubeconfig_replaces_a_provider_that_does_not_know_its_cluster() -> None:
    assert replacements.replacing_paths(resource(providers.KUBERNETES)) == ("clusterIdentifier", "kubeconfig")
    known = resource(providers.KUBERNETES, clusterIdentifier="arn")
    assert replacements.replacing_paths(known) == ("clusterIdentifier",)
    assert not replacements.replaces(known, "kubeconfig", "a", "b")


@pytest.mark.parametrize(("switch", "replaced"), [(None, False), (False, False), (True, True)])
def test_user_data_replaces_an_instance_where_the_program_says_so(switch: bool | None, replaced: bool) -> None:
    given = {} if switch is None else {"userDataReplaceOnChange": switch}
    instance = resource(ROWS["aws:ec2/instance:Instance"], userData="b", **given)
    assert replacements.replaces(instance, "userData", "a", "b") is replaced
    assert replacements.replaces(instance, "launchTemplate.version", "1", "2"), "a new version of its template"
    assert not replacements.replaces(instance, "vpcSecurityGroupIds", ["sg-1"], ["sg-2"])


def test_what_the_program_says_replaces_too() -> None:
    template = resource(ROWS["aws:ec2/launchTemplate:LaunchTemplate"], ("userData",), userData="a")
    assert replacements.replaces(template, "userData", "a", "b")
