"""docs/bootstrap.yaml: made, changed and deleted by moto's CloudFormation; its policies are the published documents."""

import json
import re
from pathlib import Path

import cfnlint
import pytest
import yaml
from bootstrap_account import ACCOUNT, STACK, client, mended_moto
from cfnlint.decode import decode
from deploy_needs import STATE_BUCKET
from golden import ROOT
from unit.environments.test_deploy_role import DATA_BUCKET, DATA_KEY, MOST_CHARACTERS, PLACEHOLDERS, TOPIC_KEY, filled
from unit.environments.test_deploy_role import POLICIES as DOCUMENTS

FILE = ROOT / "docs" / "bootstrap.yaml"
TEMPLATE, _ = decode(str(FILE))
VALUES = yaml.safe_load((Path(__file__).parent / "bootstrap_parameters.yaml").read_text())
PERSON = "arn:aws:iam::111122223333:role/aws-reserved/sso.amazonaws.com/Admin"
PIPELINES = {"OidcHost": "gitlab.example.com", "OidcSubjects": "project_path:a/b:ref_type:branch:ref:main,p"}
NAMES = ("training-deployer", "training-resources", "training-operations", "trn-boundary")
POLICIES = dict(zip(NAMES, (*DOCUMENTS, "role-boundary.json"), strict=True))


@pytest.fixture
def account():
    with mended_moto():
        yield


def deployed(how="create_stack", **parameters):
    given = [{"ParameterKey": name, "ParameterValue": value} for name, value in parameters.items()]
    getattr(client("cloudformation"), how)(StackName=STACK, TemplateBody=FILE.read_text(), Parameters=given)
    [stack] = client("cloudformation").describe_stacks(StackName=STACK)["Stacks"]
    return {each["OutputKey"]: each["OutputValue"] for each in stack["Outputs"]}


def policy(name):
    arn = f"arn:aws:iam::{ACCOUNT}:policy/{name}"
    version = client("iam").get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
    return client("iam").get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]["Document"]


def key():
    return client("kms").describe_key(KeyId="alias/training-state")["KeyMetadata"]["Arn"]


def published(name, **values):
    """A document with this account's names; a statement with a name that is not given is left out."""
    document = json.loads(json.dumps(filled(POLICIES[name], values)).replace("${aws:PrincipalAccount}", ACCOUNT))
    there = [each for each in document["Statement"] if not re.search("DATA_|TOPIC_", json.dumps(each))]
    if name == "trn-boundary":  # its 6,144 characters hold lists, and no names of statements
        there = [{key: value for key, value in each.items() if key != "Sid"} for each in there]
    return {**document, "Statement": there}


def attached():
    found = client("iam").list_attached_role_policies(RoleName="training-deployer")["AttachedPolicies"]
    return {each["PolicyName"] for each in found}


def test_template_policies_equal_the_published_documents(account):
    named = {"TrustedPrincipals": PERSON, "StateBucketName": STATE_BUCKET, "Rights": "narrow"}
    deployed(**named)
    state = {"STATE_BUCKET": STATE_BUCKET, "STATE_KEY_ARN": key()}
    assert {name: policy(name) for name in POLICIES} == {name: published(name, **state) for name in POLICIES}
    deployed("update_stack", **named, DataBuckets=DATA_BUCKET, ExistingKeyArns=f"{DATA_KEY},{TOPIC_KEY}")
    for name in POLICIES:
        assert policy(name) == published(name, **PLACEHOLDERS | state)


def test_deploy_role_is_power_user_with_bounded_roles_unless_narrow(account):
    named = {"TrustedPrincipals": PERSON, "StateBucketName": STATE_BUCKET}
    deployed(**named)
    # moto leaves ManagedPolicyArns out.
    arns = TEMPLATE["Resources"]["DeployRole"]["Properties"]["ManagedPolicyArns"]["Fn::If"]
    assert arns == ["IsWide", [{"Fn::Sub": "arn:${AWS::Partition}:iam::aws:policy/PowerUserAccess"}], []]
    filled_in = {"STATE_BUCKET": STATE_BUCKET, "STATE_KEY_ARN": key()}
    document = json.dumps(filled("deploy-role-wide.json", filled_in)).replace("${aws:PrincipalAccount}", ACCOUNT)
    assert (attached(), policy("training-deployer")) == ({"training-deployer"}, json.loads(document))
    deployed("update_stack", **named | {"TrustedPrincipals": f"{PERSON},{PERSON}2"})
    assert policy("training-deployer") == json.loads(document)
    client("cloudformation").delete_stack(StackName=STACK)  # moto sees no change of a condition in an update
    deployed(**named, KeptKeyArn=filled_in["STATE_KEY_ARN"], Rights="narrow")
    assert policy("training-deployer") == published("training-deployer", **filled_in)
    assert attached() == {"training-deployer", "training-resources", "training-operations"}


def longest(parameter, each):
    """A list as long as its parameter takes."""
    limit = TEMPLATE["Parameters"][parameter]["MaxLength"]
    length = min((limit - 9) // 10, each)
    return ",".join(f"{index}{'x' * (length - 1)}" for index in range(10))


def test_longest_lists_fit_the_policies(account):
    gov = "arn:aws-us-gov:kms:us-gov-west-1"
    keys = ",".join(f"{gov}:{ACCOUNT}:key/{index}{'1' * 35}" for index in range(10))
    lists = {"Projects": longest("Projects", 60), "DataBuckets": longest("DataBuckets", 63), "ExistingKeyArns": keys}
    given = {"TrustedPrincipals": PERSON, "KeptKeyArn": keys[:86], "StateBucketName": "s" * 63, **lists}
    assert [*refusals(given)] == []
    assert [*refusals(given | {"ExistingKeyArns": f"{keys},{keys[:86]}"})] == ["ExistingKeyArns"]
    deployed(**given, Rights="narrow")
    for name in POLICIES:
        text = json.dumps(policy(name), separators=(",", ":")).replace("arn:aws:", "arn:aws-us-gov:")
        assert len(text) <= MOST_CHARACTERS, (name, len(text))
    names = lists["DataBuckets"].split(",")
    assert all(
        f"repository/{name}-*" in json.dumps(policy("training-resources")) for name in lists["Projects"].split(",")
    )
    assert all(f'arn:*:s3:::{name}", ' in json.dumps(policy("trn-boundary")) for name in names)
    assert all(f'arn:*:s3:::{name}/*"' in json.dumps(policy("trn-boundary")) for name in names)


@pytest.mark.parametrize("wanted", ["no", "yes"])
def test_only_acceptance_accounts_let_the_role_end_nodes(account, wanted):
    deployed(TrustedPrincipals=PERSON, Acceptance=wanted)
    names = client("iam").list_role_policies(RoleName="training-deployer")["PolicyNames"]
    assert len(names) == (wanted == "yes")
    for name in names:
        found = client("iam").get_role_policy(RoleName="training-deployer", PolicyName=name)["PolicyDocument"]
        statements = {each["Sid"]: each for each in found["Statement"]}
        own = {"StringLike": {"aws:ResourceTag/eks:cluster-name": "trn-*"}}
        assert statements["NodesOfOwnClusters"]["Condition"] == own
        assert statements["TrainingImages"]["Resource"] == ["arn:*:ecr:*:*:repository/trainium-eks-*"]


def test_bucket_and_key_outlive_the_stack_and_are_adopted_by_the_next(account):
    named = {"TrustedPrincipals": PERSON, "Rights": "narrow"}
    first, kept, bucket = deployed(**named), key(), f"training-state-{ACCOUNT}-us-west-2"
    tags = client("kms").list_resource_tags(KeyId=kept)["Tags"]
    assert tags == [{"TagKey": "Name", "TagValue": "training-state"}], "the deploy role may take a key without a name"
    client("cloudformation").delete_stack(StackName=STACK)
    assert client("iam").list_roles()["Roles"] == client("iam").list_policies(Scope="Local")["Policies"] == []
    assert ([each["Name"] for each in client("s3").list_buckets()["Buckets"]], key()) == ([bucket], kept)
    second = deployed(**named, KeptKeyArn=kept)
    assert second == first | {"SecretsProvider": f"awskms:///{kept}?region=us-west-2"}
    assert policy("training-deployer") == published("training-deployer", STATE_BUCKET=bucket, STATE_KEY_ARN=kept)
    stays = {name: each.get("UpdateReplacePolicy") for name, each in TEMPLATE["Resources"].items() if "State" in name}
    assert stays == dict.fromkeys(("StateKey", "StateAlias", "StateBucket", "StateBucketPolicy"), "Retain")


@pytest.mark.parametrize(
    "parameters", [{"TrustedPrincipals": PERSON}, PIPELINES, {"TrustedPrincipals": PERSON, **PIPELINES}]
)
def test_role_trusts_only_the_named_principals(account, parameters):
    deployed(**parameters, OidcProvider="existing", OidcAudience="aud")
    statements = client("iam").get_role(RoleName="training-deployer")["Role"]["AssumeRolePolicyDocument"]["Statement"]
    trusted = {"AWS": [PERSON]}, {"Federated": f"arn:aws:iam::{ACCOUNT}:oidc-provider/gitlab.example.com"}
    named = [name in parameters for name in ("TrustedPrincipals", "OidcHost")]
    assert [each["Principal"] for each in statements] == [
        each for each, given in zip(trusted, named, strict=True) if given
    ]
    token = {"gitlab.example.com:aud": "aud", "gitlab.example.com:sub": PIPELINES["OidcSubjects"].split(",")}
    assert not named[1] or statements[-1]["Condition"] == {"StringEquals": token}


def refusals(given):
    """What CloudFormation would refuse of some parameters, by their patterns and the template's rules."""
    values = {name: given.get(name, each["Default"]) for name, each in TEMPLATE["Parameters"].items()}

    def holds(term):
        [(function, arguments)] = term.items()
        terms = [values[each["Ref"]] if "Ref" in each else each and holds(each) for each in arguments]
        return {"Fn::Not": not terms[0], "Fn::Or": any(terms), "Fn::Equals": terms[0] == terms[-1]}[function]

    for name, each in TEMPLATE["Parameters"].items():
        if not re.search(each.get("AllowedPattern", ""), values[name]) or len(values[name]) > each.get(
            "MaxLength", 4096
        ):
            yield name
    for name, rule in TEMPLATE["Rules"].items():
        if "RuleCondition" not in rule or holds(rule["RuleCondition"]):
            yield from (name for each in rule["Assertions"] if not holds(each["Assert"]))


def test_overly_broad_parameter_is_refused_and_common_values_pass():
    for name, value in ((name, value) for name, values in VALUES["refused"].items() for value in values):
        assert name in [*refusals({name: value})], value
    for given in VALUES["together"]:
        assert [*refusals(given)] == ([given["rule"]] if "rule" in given else []), given


def test_cfn_lint_finds_nothing_and_the_template_fits_the_command_line():
    assert [str(each) for each in cfnlint.api.lint_file(FILE)] == []
    assert len(FILE.read_bytes()) <= 51_200  # `aws cloudformation deploy` without a bucket


def test_state_needs_tls_and_the_stacks_prefix_needs_the_boundary():
    made = {name: each["Properties"] for name, each in TEMPLATE["Resources"].items()}
    [statement] = made["StateBucketPolicy"]["PolicyDocument"]["Statement"]
    assert (statement["Effect"], statement["Action"], len(statement["Resource"])) == ("Deny", "s3:*", 2)
    assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert set(made["StateBucket"]["PublicAccessBlockConfiguration"].values()) == {True}
    own = [str(value) for each in made.values() for key, value in each.items() if key.endswith("Name")]
    assert [value for value in own if "trn-" in value] == ["trn-boundary"]
    runner = yaml.safe_load((ROOT / "examples/production/network/Pulumi.prod.yaml").read_text())["config"]
    assert runner["production-network:deployPolicies"] == [*NAMES[:3]]
