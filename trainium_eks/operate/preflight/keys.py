"""The KMS key that an earlier stack of the same name kept, and that the next ``up`` would make once more."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from trainium_eks.aws.account import Account, RequestError
from trainium_eks.model.catalogue import prices
from trainium_eks.model.finding import Finding
from trainium_eks.model.validation.problems import config_set
from trainium_eks.operate.preflight.existing_resources import AccountState
from trainium_eks.operate.preflight.needs import Needs
from trainium_eks.operate.preflight.question import Question, failed, passed, warned

KEY = "aws:kms/key:Key"


def questions(needs: Needs, account: Account, present: AccountState) -> Iterator[Question]:
    """Yield a question about the key that the config names; without one, about a key of an earlier stack."""
    named = needs.config.kept_key_arn if needs.config else None
    if named is not None:
        yield Question("keys/kept", f"KMS key {named.rpartition('/')[2]}", partial(_usable, needs, account, named))
    elif needs.graph.of_type(KEY):
        yield Question("keys/kept", "KMS key of an earlier stack", partial(_offered, needs, account, present))


def _usable(needs: Needs, account: Account, arn: str) -> Finding:
    """Check that the key is enabled, and made by a stack of this name."""
    try:
        state = _state(account, arn)
    except RequestError as error:
        if error.code != "NotFoundException":
            raise
        return failed(f"there is none in {account.region}", f"pulumi config rm keptKeyArn --stack {needs.stack}")
    if state != "Enabled":
        remedy = f"aws kms enable-key --key-id {arn}"
        if state == "PendingDeletion":
            remedy = f"aws kms cancel-key-deletion --key-id {arn}, then {remedy}"
        return failed(f"it is {state}", remedy)
    if arn not in {key["ResourceARN"] for key in _kept(needs, account)}:
        detail = "it does not carry this stack's tags, and an `up` would give it this stack's key policy"
        return failed(detail, f"pulumi config rm keptKeyArn --stack {needs.stack}")
    return passed("enabled, and of an earlier stack of this name")


def _offered(needs: Needs, account: Account, present: AccountState) -> Finding:
    """Check that no enabled key is left of an earlier stack. A running stack has its own, which looks the same."""
    if present.cluster() is not None:
        return passed("not looked for: the stack is there")
    arns = sorted(key["ResourceARN"] for key in _kept(needs, account))
    enabled = [arn for arn in arns if _state(account, arn) == "Enabled"]
    if not enabled:
        return passed("none is kept")
    month = f"{prices.KMS_KEY_MONTH * len(enabled):g} USD a month"
    detail = f"{', '.join(enabled)} is kept of an earlier stack of this name ({month}), and this `up` makes another"
    remedy = (
        f"to use it again: {config_set('kept_key_arn', enabled[-1])}; leave it after an interrupted first `up`, whose "
        "state has the key"
    )
    return warned(detail, remedy)


def _kept(needs: Needs, account: Account) -> list[Mapping[str, Any]]:
    """Return keys with the tags of a key of a stack of this name."""
    tags = {"Name": f"trn-{needs.stack}-key", "Environment": needs.stack, "ManagedBy": "pulumi"}
    return account.pages(
        "resourcegroupstaggingapi",
        "get_resources",
        "ResourceTagMappingList",
        TagFilters=[{"Key": key, "Values": [value]} for key, value in tags.items()],
        ResourceTypeFilters=["kms:key"],
    )


def _state(account: Account, arn: str) -> str:
    """Return ``Enabled``, ``Disabled``, ``PendingDeletion`` or another state that KMS documents (KeyMetadata,
    KeyState)."""
    return str(account.call("kms", "describe_key", KeyId=arn)["KeyMetadata"]["KeyState"])
