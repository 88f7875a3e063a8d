"""What AWS asks of the role that deploys, in the account of the tests; the table is the library's."""

from collections.abc import Sequence

from trainium_eks.preflight import deploy_table
from trainium_eks.preflight.deploy_rights import Place, Request, filled

ACCOUNT = "123456789012"
STATE_BUCKET = "acme-pulumi-state"
STATE_KEY = f"arn:aws:kms:us-west-2:{ACCOUNT}:key/11111111-1111-1111-1111-111111111111"
BOUNDARY = f"arn:aws:iam::{ACCOUNT}:policy/trn-boundary"
PLACE = Place(ACCOUNT, "us-west-2", "aws", BOUNDARY)
ROLE = f"arn:aws:iam::{ACCOUNT}:role/trn-dev-cluster-node-0a1b2c3"
KEY = f"arn:aws:kms:us-west-2:{ACCOUNT}:key/22222222-2222-2222-2222-222222222222"


def asks(resource: str, *actions: str, **context: str | Sequence[str]) -> tuple[Request, ...]:
    """The actions on one resource. Condition keys are given with ``__`` for ``:`` and ``___`` for ``/``."""
    keys = {key.replace("___", "/").replace("__", ":"): value for key, value in context.items()}
    return tuple(Request(each, resource, {"aws:PrincipalAccount": ACCOUNT, **keys}) for each in actions)


STATE: tuple[Request, ...] = (
    *asks(f"arn:aws:s3:::{STATE_BUCKET}", "s3:ListBucket"),
    # The lock is an object that each update writes and deletes.
    *asks(f"arn:aws:s3:::{STATE_BUCKET}/.pulumi/locks/x.json", "s3:GetObject", "s3:PutObject", "s3:DeleteObject"),
    *asks(STATE_KEY, "kms:Encrypt", "kms:Decrypt", "kms:DescribeKey"),
    *asks(STATE_KEY, "kms:GenerateDataKey", "kms:Decrypt", kms__ViaService="s3.us-west-2.amazonaws.com"),
)
"""What Pulumi itself asks: ``login``, ``stack init --secrets-provider=awskms`` and the state of every update."""

PROVIDER = filled(deploy_table.PROVIDER, PLACE)
CLEANUP = filled(deploy_table.CLEANUP, PLACE)
CHECKS = filled(deploy_table.CHECKS, PLACE)
