"""What AWS asks of the role that deploys, in the account of the tests; the table is the library's."""

from collections.abc import Sequence

from trainium_eks.preflight import deploy_rights
from trainium_eks.preflight.deploy_rights import Place, Request

ACCOUNT = "123456789012"
STATE_BUCKET = "acme-pulumi-state"
STATE_KEY = f"arn:aws:kms:us-west-2:{ACCOUNT}:key/11111111-1111-1111-1111-111111111111"
DATA_BUCKET = "acme-data"
BOUNDARY = f"arn:aws:iam::{ACCOUNT}:policy/trn-boundary"
PLACE = Place(ACCOUNT, "us-west-2", "aws", "trn-dev", BOUNDARY)


def asks(resource: str, *actions: str, **context: str | Sequence[str]) -> tuple[Request, ...]:
    """The actions on one resource. Condition keys are given with ``__`` for ``:`` and ``___`` for ``/``."""
    return deploy_rights.filled(deploy_rights.asks(resource, *actions, **context), PLACE)


ROLE, KEY = (
    asks(resource, "sts:GetCallerIdentity")[0].resource for resource in (deploy_rights.ROLE, deploy_rights.KEY)
)

STATE: tuple[Request, ...] = (
    *asks(f"arn:aws:s3:::{STATE_BUCKET}", "s3:ListBucket"),
    # The lock is an object that each update writes and deletes.
    *asks(f"arn:aws:s3:::{STATE_BUCKET}/.pulumi/locks/x.json", "s3:GetObject", "s3:PutObject", "s3:DeleteObject"),
    *asks(STATE_KEY, "kms:Encrypt", "kms:Decrypt", "kms:DescribeKey"),
    *asks(STATE_KEY, "kms:GenerateDataKey", "kms:Decrypt", kms__ViaService="s3.us-west-2.amazonaws.com"),
)
"""What Pulumi itself asks: ``login``, ``stack init --secrets-provider=awskms`` and the state of every update."""

PROVIDER = deploy_rights.filled(deploy_rights.PROVIDER, PLACE)
CLEANUP = deploy_rights.filled(deploy_rights.CLEANUP, PLACE)
CHECKS = deploy_rights.filled(deploy_rights.CHECKS, PLACE)
NEEDS = {type_: deploy_rights.filled(requests, PLACE) for type_, requests in deploy_rights.NEEDS.items()}
