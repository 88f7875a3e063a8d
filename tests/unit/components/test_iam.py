import json

import pytest

from components import _iam


def statements(text: str) -> list[dict[str, object]]:
    document = json.loads(text)
    assert document["Version"] == "2012-10-17"
    found: list[dict[str, object]] = document["Statement"]
    return found


def test_pods_take_roles_from_pod_identity_and_nobody_else() -> None:
    (statement,) = statements(_iam.pod_identity_trust())
    assert statement["Principal"] == {"Service": "pods.eks.amazonaws.com"}
    assert statement["Action"] == ["sts:AssumeRole", "sts:TagSession"]
    assert statement["Effect"] == "Allow"


def test_a_service_takes_its_role_without_tags() -> None:
    (statement,) = statements(_iam.service_trust("ec2.amazonaws.com"))
    assert statement == {
        "Effect": "Allow",
        "Principal": {"Service": "ec2.amazonaws.com"},
        "Action": "sts:AssumeRole",
    }


def test_a_policy_holds_its_statements_in_their_order() -> None:
    given = [{"Effect": "Allow", "Action": "b", "Resource": "*"}, {"Effect": "Deny", "Action": "a", "Resource": "*"}]
    assert statements(_iam.policy(given)) == given


@pytest.mark.parametrize(
    ("region", "partition"), [("us-west-2", "aws"), ("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov")]
)
def test_managed_policies_are_those_of_the_regions_partition(region: str, partition: str) -> None:
    arn = _iam.managed_policy_arn(region, "service-role/AmazonEBSCSIDriverPolicy")
    assert arn == f"arn:{partition}:iam::aws:policy/service-role/AmazonEBSCSIDriverPolicy"


def test_the_account_is_read_from_a_resources_own_arn() -> None:
    arn = "arn:aws-cn:kms:cn-north-1:123456789012:key/00000000-0000-0000-0000-000000000000"
    assert _iam.account_root(arn) == "arn:aws-cn:iam::123456789012:root"
