"""docs/deploy-role-*.json and role-boundary.json, as IAM would judge them.

Every request of `up`, a change and a `destroy` of all environments with all features on is held against the published
policies: the policies allow each request, each part of a policy is needed by a request, and the same requests are
denied on another owner's resources.
"""

import json
import re
from dataclasses import replace
from functools import cache

import deploy_needs
import full_environments
import pytest
import yaml
from deploy_needs import ACCOUNT, CHECKS, CLEANUP, KEY, PLACE, PROVIDER, STATE, STATE_BUCKET, STATE_KEY, asks
from full_environments import DATA_BUCKET, DATA_KEY, TOPIC_KEY
from golden import ENVIRONMENTS, ROOT
from iam_evaluation import allowed, altered, managed, matching

from trainium_eks.operate.preflight.deploy_actions import NEEDS, Tags
from trainium_eks.operate.preflight.deploy_rights import IamRequest, requests

pytestmark = pytest.mark.slow

PLACEHOLDERS = {
    "STATE_BUCKET": STATE_BUCKET, "STATE_KEY_ARN": STATE_KEY, "DATA_BUCKET": DATA_BUCKET, "DATA_KEY_ARN": DATA_KEY,
    "TOPIC_KEY_ARN": TOPIC_KEY,
}  # fmt: skip
MOST_CHARACTERS = 6144
"""Of a managed policy, without white space (IAM quotas)."""

EVERYTHING = {"Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}}


def filled(name, values):
    text = (ROOT / "docs" / name).read_text()
    for placeholder, value in sorted(values.items(), key=lambda each: -len(each[0])):
        text = text.replace(placeholder, value)
    return json.loads(text)


POLICIES = ("deploy-role-policy.json", "deploy-role-resources.json", "deploy-role-operations.json")
NARROW = [filled(name, PLACEHOLDERS) for name in POLICIES]
WIDE = [managed("PowerUserAccess"), filled("deploy-role-wide.json", PLACEHOLDERS)]
RIGHTS = pytest.mark.parametrize("deployer", [pytest.param(NARROW, id="narrow"), pytest.param(WIDE, id="wide")])
BOUNDS = filled("role-boundary.json", PLACEHOLDERS)

NAMED = {"aws__ResourceTag___Name": "payroll"}
THROUGH_FSX = {"aws__CalledVia": ["fsx.amazonaws.com"], "kms__ViaService": "s3.us-west-2.amazonaws.com"}
FIXED = (
    *STATE,
    *PROVIDER,
    *CHECKS,
    *CLEANUP,
    # What `trn check` asks of buckets and keys that the config names and others made.
    *asks(f"arn:aws:s3:::{DATA_BUCKET}", "s3:ListBucket", "s3:GetEncryptionConfiguration"),
    *asks(DATA_KEY, "kms:DescribeKey", **NAMED),
    *asks(TOPIC_KEY, "kms:DescribeKey", **NAMED),
    # A link to a bucket with a key of others.
    *(
        each
        for key in (DATA_KEY, TOPIC_KEY)
        for each in asks(key, "kms:Decrypt", "kms:GenerateDataKey", **THROUGH_FSX, **NAMED)
    ),
)


@cache
def caused(stack):
    """The requests of an environment, each once."""
    graph = full_environments.recorded(stack)
    asked = requests(graph, PLACE)
    found = {f"{ask.tags} {ask.of} {request}": (ask, request) for ask, request in asked if not ask.role}
    return tuple(found.values())


@cache
def every_need():
    alike = {}
    for request in (request for stack in ENVIRONMENTS for _, request in caused(stack)):
        # Of requests that differ by the ends of names and by tags, one.
        known = {key: value for key, value in request.context.items() if "/" not in key and key != "aws:TagKeys"}
        kind = re.sub(r"(-(dev|prod|gpu)|-[0-9a-f]{7}).*", "", request.resource)
        owner = str(request.context.get("aws:ResourceTag/Name"))[:4]
        alike.setdefault((request.action, kind, str(known), owner), request)
    return (*FIXED, *alike.values())


def test_table_lists_the_types_of_the_environments():
    made = {each.type for stack in ENVIRONMENTS for each in full_environments.recorded(stack).resources}
    assert {each for each in made if each.startswith("aws:")} == NEEDS.keys()


@RIGHTS
@pytest.mark.parametrize("stack", ENVIRONMENTS)
def test_deploy_role_can_create_change_and_destroy_an_environment(stack, deployer):
    asked = [*FIXED, *(request for _, request in caused(stack))]
    assert [each for each in asked if not allowed(each, deployer)] == []


LATER = re.compile(
    r"\w+:(Delete|Update|Untag|Schedule|CreateBackup|CreateDataRepository)\w*|ec2:\w+|(aps|fsx|grafana):TagResource"
)
"""Actions on a thing older than five minutes, or whose tags count at once. EC2: AmazonEKSServiceRolePolicy opens a
security group by the tag of its creation. FSx takes longer than that to make a file system."""


@pytest.mark.parametrize("stack", ENVIRONMENTS)
def test_new_resource_is_allowed_before_its_tags_count(stack):
    """KMS: a key's tags count after up to five minutes (AWS KMS developer guide, ABAC for AWS KMS)."""
    early = [
        replace(request, context={key: value for key, value in request.context.items() if "ResourceTag/" not in key})
        for ask, request in caused(stack)
        if ask.tags is Tags.RESOURCE and not LATER.fullmatch(request.action)
    ]
    assert any(each.action == "kms:PutKeyPolicy" for each in early)
    assert [each for each in early if not allowed(each, NARROW)] == []
    key = IamRequest("kms:CreateGrant", KEY)
    assert allowed(key, [EVERYTHING], BOUNDS), "EKS uses the key as the cluster's role half a minute after its creation"


@pytest.mark.parametrize("stack", ENVIRONMENTS)
def test_roles_have_the_rights_that_their_services_use(stack):
    graph = full_environments.recorded(stack)
    policies = {}
    for each in graph.of_type("aws:iam/rolePolicyAttachment:RolePolicyAttachment"):
        document = managed(str(each.inputs["policyArn"]).rpartition("/")[2])
        policies.setdefault(shortened(each.inputs["role"]), []).append(document)
    for each in graph.of_type("aws:iam/rolePolicy:RolePolicy"):
        policies.setdefault(shortened(each.inputs["role"]), []).append(json.loads(shortened(each.inputs["policy"])))
    asked = {str(each): each for ask, each in requests(graph, PLACE) if ask.role}.values()
    assert asked
    assert [each for each in asked if not allowed(each, policies[each.principal.rpartition("/")[2]], BOUNDS)] == []


def shortened(text):
    """Names and ARNs of the recording as the requests have them."""
    return re.sub(r"\bsim-([0-9a-f]{7})[0-9a-f]?", r"\1", str(text)).replace("0" * 12, ACCOUNT)


NOT_OURS = {
    "aws:ResourceTag/Name": "payroll", "aws:ResourceTag/Environment": "prod", "aws:ResourceTag/ManagedBy": "pulumi"
}  # fmt: skip
BY_ANYONE = {
    # Nothing tells a thing without tags from one that is being made.
    "aps:TagResource", "fsx:TagResource", "grafana:TagResource",
    # A key's tags do not count in its first minutes.
    "kms:CreateAlias", "kms:CreateGrant", "kms:Decrypt", "kms:DeleteAlias", "kms:EnableKeyRotation",
    "kms:GenerateDataKey", "kms:PutKeyPolicy", "kms:RetireGrant", "kms:TagResource", "kms:UntagResource",
    "kms:UpdateAlias", "kms:UpdateKeyDescription",
}  # fmt: skip
"""What the role may do to a thing without a ``Name`` tag although another made it (decision 79)."""


UNNAMED = {"cloudwatch:DeleteAlarms", "cloudwatch:PutMetricAlarm"}
"""What Application Auto Scaling asks of the caller without a name (Application Auto Scaling guide)."""

READING = re.compile(r"\w+:(Describe|Get|List|View)")


def of_another(ask, request):
    """Yield the request for another owner's resource: under another name, with other tags and with none. Requests that
    only read are left out."""
    if READING.match(request.action) or "ec2:CreateAction" in request.context:
        return
    theirs = re.sub(r"\b(trn|trainium-eks)-(dev|prod|gpu)\b", "payroll", request.resource)
    if ask.tags is Tags.RESOURCE:
        plain = {key: value for key, value in request.context.items() if "ResourceTag/" not in key}
        yield IamRequest(request.action, theirs, {**plain, **NOT_OURS})
        if request.action not in BY_ANYONE:
            yield IamRequest(request.action, theirs, plain)
    elif theirs != request.resource:
        yield replace(request, resource=theirs)
    elif ask.tags is Tags.REQUEST:
        # A new thing has no other owner; one that is there already does.
        yield replace(request, context={**request.context, **NOT_OURS})


NEW = re.compile(r"(ec2|aps|grafana|kms):(Create(?!Tags)|Allocate|Authorize)\w+|fsx:\w+|kms:TagResource")
"""Actions whose resource is being made, where the tags of the request decide."""


@pytest.mark.parametrize("stack", ENVIRONMENTS)
def test_deploy_role_cannot_touch_another_owners_resources(stack):
    adopted = {"ec2:CreateSecurityGroup"}  # a group of the stack's own in another's VPC
    open_ = [
        other
        for ask, request in caused(stack)
        for other in of_another(ask, request)
        if not (ask.of == "vpcId" and request.action in adopted)
        and not (ask.tags is Tags.REQUEST and NEW.fullmatch(request.action) and request.action not in BY_ANYONE)
        and request.action not in UNNAMED
        and allowed(other, NARROW)
    ]
    assert open_ == []


ON_ANYTHING = re.compile(
    r"[\w-]+:(Describe|List|Get|Simulate)\w*|eks:CreateCluster|ec2:RunInstances|logs:(Create|Delete)LogDelivery"
    r"|sso:\w+ManagedApplicationInstance|ecr:\w+PullThroughCacheRule|cloudwatch:(DeleteAlarms|PutMetricAlarm)"
)
"""Actions without a resource that a policy could name: reading, and what AWS knows by the request alone."""


@pytest.mark.parametrize("stack", ENVIRONMENTS)
def test_action_without_a_resource_changes_nothing(stack):
    on_all = {request.action for ask, request in caused(stack) if request.resource == "*" and ask.tags is Tags.NONE}
    assert {action for action in on_all if not ON_ANYTHING.fullmatch(action)} == set()


WIDER = re.compile(r" without (String|Arn|Null|ForAnyValue)[\w:]* |NoReadingWithKeys")
"""Alterations of a document that take nothing away: a condition or a denial gone."""


@pytest.mark.parametrize("name", POLICIES)
def test_every_part_of_a_policy_is_needed(name):
    """A statement, an action or a resource that goes takes a request with it."""
    document = filled(name, PLACEHOLDERS)
    others = [filled(each, PLACEHOLDERS) for each in POLICIES if each != name]
    mine = [each for each in every_need() if matching(each, document) and not allowed(each, others)]
    idle = []
    for what, fewer in altered(document):
        if not WIDER.search(what) and all(allowed(each, [fewer, *others]) for each in mine):
            idle.append(what)
    assert idle == []


TEXT = (ROOT / "tests" / "unit" / "environments" / "denied_requests.yaml").read_text()
NAMES = {**vars(deploy_needs), "DATA_KEY": DATA_KEY, "TOPIC_KEY": TOPIC_KEY, **yaml.safe_load(TEXT)["names"]}


def denied(who):
    """Return a table of ``denied_requests.yaml``: what would be done, and by which requests."""
    text = TEXT
    while (filled := re.sub(r"\b[A-Z_]+\b", lambda found: str(NAMES.get(found[0], found[0])), text)) != text:
        text = filled
    found = {}
    for what, rows in yaml.safe_load(text)[who].items():
        asked = (asks(each["arn"], *each["ask"], **each.get("with", {})) for each in rows)
        found[what] = [request for requests in asked for request in requests]
    return found


ESCALATIONS, OF_OTHERS, BEYOND = denied("escalations"), denied("of others"), denied("beyond the boundary")


@RIGHTS
@pytest.mark.parametrize("escalation", ESCALATIONS)
def test_role_cannot_grant_more_rights(escalation, deployer):
    assert [each for each in ESCALATIONS[escalation] if allowed(each, deployer)] == []


@pytest.mark.parametrize("thing", OF_OTHERS)
def test_narrow_role_cannot_use_foreign_resources(thing):
    assert [each for each in OF_OTHERS[thing] if allowed(each, NARROW)] == []


def test_every_part_of_the_wide_policy_is_needed():
    """An allowed part by an environment's request, a denied one by an escalation."""
    document = WIDE[1]
    wanted = [each for each in every_need() if allowed(each, WIDE)]
    unwanted = [each for requests in ESCALATIONS.values() for each in requests]
    idle = [
        what
        for what, fewer in altered(document)
        if all(allowed(each, [WIDE[0], fewer]) for each in wanted)
        and not any(allowed(each, [WIDE[0], fewer]) for each in unwanted)
    ]
    assert idle == []


def test_key_policy_naming_the_role_grants_no_use_of_the_key():
    """Who may write a key's policy could name itself in it: an explicit denial overrides that."""
    named = {"Statement": {"Effect": "Allow", "Action": "kms:*", "Resource": "*"}}
    own_use, by_service = (
        IamRequest("kms:Decrypt", KEY, context) for context in ({}, {"kms:ViaService": "fsx.us-west-2.amazonaws.com"})
    )
    assert not allowed(own_use, [*NARROW, named])
    assert allowed(by_service, [*NARROW, named])


@pytest.mark.parametrize("what", BEYOND)
def test_bounded_role_is_no_administrator_with_any_policy(what):
    assert [each for each in BEYOND[what] if allowed(each, [EVERYTHING], BOUNDS)] == []


ANY = {
    "kms": KEY,
    "iam": f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/elasticloadbalancing.amazonaws.com/x",
    "ssm:GetParameter": "arn:aws:ssm:us-west-2::parameter/aws/service/eks/optimized-ami/1.35/x",
    "ssm:GetParameters": "arn:aws:ssm:us-west-2::parameter/aws/service/eks/optimized-ami/1.35/x",
}
"""A resource for each service, and some actions, that the boundary opens on some resources alone."""


def concrete(action):
    """An action that a pattern stands for."""
    return action.replace("ReEncrypt*", "ReEncryptFrom").replace("GenerateDataKey*", "GenerateDataKeyWithoutPlaintext")


def granted(document):
    """A request for each action on each resource that a policy allows, its conditions met."""
    for statement in document["Statement"]:
        actions, resources = (
            value if isinstance(value, list) else [value] for value in (statement["Action"], statement["Resource"])
        )
        of_others = {DATA_KEY, TOPIC_KEY} & {*resources}
        context = {"aws:ResourceTag/Name": "payroll" if of_others else "trn-dev-key"}
        for keys in statement.get("Condition", {}).values():
            context |= {key: value if isinstance(value, str) else value[0] for key, value in keys.items()}
        for action in actions:
            for resource in resources:
                some = ANY.get(action, ANY.get(action.split(":")[0], "*")) if resource == "*" else resource
                yield IamRequest(concrete(action), some.replace(":*:*:", f":us-west-2:{ACCOUNT}:"), context)


LEFT_OUT = {"ec2:ModifyInstanceAttribute"}
"""Of AWS' policy for the control plane: it changes the start-up script of any stopped instance of the account, and only
clusters whose cloud controller writes routes use it."""


@cache
def of_roles():
    """Return the requests that the policies of the stacks' roles allow, by policy."""
    found = {}
    for stack in ENVIRONMENTS:
        graph = full_environments.recorded(stack)
        for each in graph.of_type("aws:iam/rolePolicyAttachment:RolePolicyAttachment"):
            name = str(each.inputs["policyArn"]).rpartition("/")[2]
            found[name] = tuple(granted(managed(name)))
        for each in graph.of_type("aws:iam/rolePolicy:RolePolicy"):
            found[each.name] = tuple(granted(json.loads(str(each.inputs["policy"]))))
    return found


def test_boundary_allows_all_role_policies_and_needs_all_its_parts():
    cut = {
        (name, each.action)
        for name, requests in of_roles().items()
        for each in requests
        if not allowed(each, [EVERYTHING], BOUNDS)
    }
    assert {action for _, action in cut} <= LEFT_OUT, cut
    every = [each for requests in of_roles().values() for each in requests]
    every = [each for each in every if allowed(each, [EVERYTHING], BOUNDS)]
    assert [
        what
        for what, fewer in altered(BOUNDS)
        if not WIDER.search(what) and all(allowed(each, [EVERYTHING], fewer) for each in every)
    ] == []


@pytest.mark.parametrize("stack", ["dev", "gpu"])
def test_a_teams_role_may_use_the_key_of_an_existing_bucket(stack):
    """By the namespace's own bucket in one, by the file system's link in the other."""
    roles = full_environments.recorded(stack).of_type("aws:iam/rolePolicy:RolePolicy")
    [policy] = [json.loads(str(each.inputs["policy"])) for each in roles if each.name.endswith("-training-data")]
    through = {"kms:ViaService": "s3.us-west-2.amazonaws.com"}
    assert allowed(IamRequest("kms:GenerateDataKey", DATA_KEY, through), [policy], BOUNDS)
    assert not allowed(IamRequest("kms:GenerateDataKey", DATA_KEY), [policy], BOUNDS)


TAKEN_BY = {
    "-node": "ec2.amazonaws.com",
    "-eks": "eks.amazonaws.com",
    "-flow-logs": "vpc-flow-logs.amazonaws.com",
    "-vpc-cni": "pods.eks.amazonaws.com",
    "-driver": "pods.eks.amazonaws.com",
    "-autoscaler": "pods.eks.amazonaws.com",
    "-idle": "pods.eks.amazonaws.com",
    "-role": "pods.eks.amazonaws.com",
}
"""How a role's name ends, and the one service that may take it."""


def test_each_role_is_assumed_by_exactly_one_service(graph):
    roles = graph.of_type("aws:iam/role:Role")
    assert roles
    for role in roles:
        (service,) = (taker for ending, taker in TAKEN_BY.items() if role.name.endswith(ending))
        (statement,) = json.loads(str(role.inputs["assumeRolePolicy"]))["Statement"]
        assert statement["Principal"] == {"Service": service}
        assert set(statement) == {"Effect", "Principal", "Action"}
        tagged = {"sts:TagSession"} if service == "pods.eks.amazonaws.com" else set()
        actions = statement["Action"]
        assert set([actions] if isinstance(actions, str) else actions) == {"sts:AssumeRole"} | tagged


def test_roles_buckets_and_keys_have_the_policies_prefix(graph):
    made = graph.of_type("aws:iam/role:Role", "aws:s3/bucket:Bucket")
    assert made
    assert [each.name for each in made if not each.name.startswith("trn-") or "name" in each.inputs] == []
    keys = graph.of_type("aws:kms/key:Key")
    assert keys
    assert [each.name for each in keys if not str(each.inputs["tags"]["Name"]).startswith("trn-")] == []
