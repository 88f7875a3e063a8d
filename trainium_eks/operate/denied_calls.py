"""Denied calls in the output of an engine or a command: action, resource, the kind of policy that denied the call, and
the statement to add or the time to wait.

The wordings are AWS' own (IAM user guide, Troubleshoot access denied error messages) and those of services that name no
action; ``tests/unit/operate/denied_messages.yaml`` has each with the public report that it comes from.
"""

import json
import re
from bisect import bisect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum


class PolicyKind(StrEnum):
    """The kind of policy that denied a call, in IAM's words."""

    IDENTITY = "identity-based policy"
    BOUNDARY = "permissions boundary"
    SERVICE_CONTROL = "service control policy"
    RESOURCE_CONTROL = "resource control policy"
    RESOURCE = "resource-based policy"
    SESSION = "session policy"
    ENDPOINT = "VPC endpoint policy"
    TRUST = "role trust policy"
    UNKNOWN = "policy that AWS does not name"


KMS_WAIT_SECONDS = 300
"""KMS takes up to five minutes until a key's tags and aliases count (AWS KMS developer guide, ABAC for AWS KMS)."""

ROLE_WAIT_SECONDS = 60
"""IAM takes a while, seconds as a rule, until a new role, policy or instance profile counts (IAM user guide, Changes
that I make are not always immediately visible)."""

ENTRY_WAIT_SECONDS = 120
"""EKS takes up to minutes until a new access entry counts (terraform-provider-aws' and terraform-aws-eks' reports)."""


@dataclass(frozen=True)
class DeniedCall:
    """A call that AWS denied."""

    action: str
    """IAM action (``logs:CreateLogStream``); the call's name alone where its service is unknown; empty if nothing names
    it."""
    resource: str
    """ARN, or the text that AWS wrote for it; empty if nothing names it."""
    policy_kind: PolicyKind
    statement: str
    """IAM statement that allows the call, as JSON; empty where an Allow does not help or the action is unknown."""
    is_explicit: bool = False
    """Whether a Deny statement matched, which no Allow mends."""
    wait_seconds: int = 0
    """Time after which the same call may pass without a change; 0 where no such race is known."""
    encoded: str = ""
    """EC2's encoded message, which ``aws sts decode-authorization-message`` reads."""

    @property
    def remedy(self) -> str:
        """Return what mends it: a wait, the policy to change, or the command that tells more."""
        place = _PLACES.get(self.policy_kind, "a policy of the caller")
        if self.wait_seconds:
            return f"wait {self.wait_seconds} seconds and run it again: AWS needs that time after a change"
        if self.is_explicit:
            return f"change the Deny statement in {place}"
        if self.statement:
            return f"allow it in {place}"
        if self.encoded:
            return f"aws sts decode-authorization-message --encoded-message {self.encoded}"
        if self.policy_kind is PolicyKind.TRUST:
            return f"change {place}"
        return "aws cloudtrail lookup-events shows the call with its action and resource"


_PLACES = {
    PolicyKind.IDENTITY: "a policy of the caller (the account's stack: Rights=wide, docs/deploying.md)",
    PolicyKind.BOUNDARY: "the permissions boundary (docs/deploying.md, The account's stack)",
    PolicyKind.SERVICE_CONTROL: "the organization's service control policies, by its administrators",
    PolicyKind.RESOURCE_CONTROL: "the organization's resource control policies, by its administrators",
    PolicyKind.RESOURCE: "the resource's own policy: key policy, bucket policy or queue policy",
    PolicyKind.SESSION: "the session policy with which the credentials were issued",
    PolicyKind.ENDPOINT: "the policy of the VPC endpoint",
    PolicyKind.TRUST: "the role's trust policy: principal, `aud` and `sub` (docs/deploying.md, The account's stack)",
}

_ARN = r"arn:aws[\w-]*:[\w-]*:[\w-]*:[\w*-]*:[^\s\"'\\,()]+"
_KINDS = "|".join(kind.value for kind in PolicyKind if kind is not PolicyKind.UNKNOWN)
_NAMED = re.compile(
    r"not authorized to perform:? \**(?P<action>[\w-]+:\w+)\**(?: operation)?"
    r"(?: on (?:this resource|resource:? ?[\"\\]*"
    rf"(?P<resource>{_ARN}|(?:role|policy|user|instance profile) [^\s\"\\,]+|[\w*/<>.-]+))?[\"\\]*)?"
    rf"(?:,? ?(?:because no (?P<no>{_KINDS})"
    rf"|with (?P<deny>an explicit deny)(?: in (?:an?|the) (?P<denied_by>{_KINDS}))?))?",
    re.IGNORECASE,
)
"""The message that names its action; some services leave out resource or policy."""

_USER = re.compile(r"arn:(aws[\w-]*):(?:iam|sts)::(\d{12}):\S+ is $")

_START = re.compile(r"operation error |An error occurred \(|\b[Ee]rror: |\b\w+_FAILED\b|\bAPI: ")
"""Where a message begins: Go's SDK, boto3, the engine, CloudFormation, CloudFormation's older handlers."""

_CODE = re.compile(
    r"\b(?:AccessDenied(?:Exception)?|UnauthorizedOperation|AuthorizationError|FailedResourceAccessException)\b"
    r"|not authorized to perform this operation|Access denied for operation '(?P<type>[\w:]+)'"
)
"""Error codes and words of a denial without an action."""
_CALL = re.compile(
    r"(?:\((?P<name>[\w.-]{3,63})\)[\w ]*: )?operation error (?P<service>[\w ]+): (?P<call>\w+)"
    r"|calling the (?P<other>\w+) operation|API: (?P<action>[\w-]+:\w+)"
)
_PREFIXES = {
    "cloudwatch logs": "logs", "auto scaling": "autoscaling", "application auto scaling": "application-autoscaling",
    "eventbridge": "events", "cloudwatch events": "events", "amp": "aps",
}  # fmt: skip
"""Service in Go's SDK, in small letters, to its prefix in IAM, where that is not the name without spaces."""
_S3 = {
    "HeadBucket": "ListBucket", "ListObjectsV2": "ListBucket", "PutPublicAccessBlock": "PutBucketPublicAccessBlock",
    "PutBucketEncryption": "PutEncryptionConfiguration",
    "PutBucketLifecycleConfiguration": "PutLifecycleConfiguration",
}  # fmt: skip
"""Call of S3 to its action, where the names differ (Service Authorization Reference, Amazon S3)."""

_ROLE = r"(?:the role |role )?[\"']?(?P<resource>arn:aws[\w-]*:iam::\w+:role/[\w+=.@/-]+)?"
_OWN_WORDS: tuple[tuple[str, tuple[str, ...], PolicyKind, int], ...] = (
    # EKS, at CreateCluster: it tries the key with the rights of the caller and of the cluster's role.
    (rf"Access denied to KMS key (?P<resource>{_ARN})", ("kms:CreateGrant", "kms:DescribeKey"), PolicyKind.UNKNOWN,
     KMS_WAIT_SECONDS),
    # FSx for Lustre guide, troubleshooting data repository associations.
    (r"unable to validate access to the S3 bucket", ("s3:Get*", "s3:List*", "s3:PutObject"), PolicyKind.IDENTITY, 0),
    (r"not have permission to create the service-linked role", ("iam:CreateServiceLinkedRole",),
     PolicyKind.IDENTITY, 0),
    (r"not authorized to (?:use|launch instances with this) launch template", ("ec2:RunInstances",),
     PolicyKind.UNKNOWN, 0),
    # Application Auto Scaling.
    (r"missing the following permissions: (?P<several>[\w:*-]+(?:, ?[\w:*-]+)*)", (), PolicyKind.IDENTITY, 0),
    (rf"Role with arn: {_ROLE},? could not be assumed", ("sts:AssumeRole",), PolicyKind.TRUST, ROLE_WAIT_SECONDS),
    (rf"(?:Could not|unable to) assume {_ROLE}", ("sts:AssumeRole",), PolicyKind.TRUST, ROLE_WAIT_SECONDS),
    (r"role doesn't have the Amazon EKS Managed Policies", ("sts:AssumeRole",), PolicyKind.TRUST, ROLE_WAIT_SECONDS),
    (r"Invalid IAM Instance Profile name", ("iam:PassRole",), PolicyKind.UNKNOWN, ROLE_WAIT_SECONDS),
    (rf"IAM Instance Profile \"?(?P<resource>{_ARN})\"? has no associated IAM Roles", ("iam:PassRole",),
     PolicyKind.UNKNOWN, ROLE_WAIT_SECONDS),
    # CloudWatch Logs, whose service uses the key by the key's policy.
    (rf"KMS key .{{0,60}}not allowed to be used with \w+ '?(?P<resource>{_ARN})", ("kms:Encrypt", "kms:Decrypt"),
     PolicyKind.RESOURCE, KMS_WAIT_SECONDS),
    (r"the server has asked for the client to provide credentials", ("eks:AccessKubernetesApi",), PolicyKind.UNKNOWN,
     ENTRY_WAIT_SECONDS),
)  # fmt: skip
"""Words of services that name no action: pattern, actions, kind of policy, and the wait of a race with these words."""


def find_denied_calls(text: str) -> tuple[DeniedCall, ...]:
    """Return the denied calls in a text, each once, in its order.

    Args:
        text: output of any length; line breaks within a message, colours and Pulumi's own marks do no harm.
    """
    plain = re.sub(r"\s+", " ", re.sub(r"\x1b\[[0-9;]*[A-Za-z]|<\{%[^%]*%\}>", "", text))
    starts = [found.start() for found in _START.finditer(plain)]
    # A key's tags do not count yet in the run that makes the key.
    is_key_new = re.search(r"aws:kms:Key \S+ creat", plain) is not None
    found: dict[tuple[int, int], DeniedCall] = {}
    judged: set[int] = set()

    def add(match: re.Match[str], calls: Iterable[DeniedCall]) -> None:
        judged.add(bisect(starts, match.start()))
        found.update({(match.start(), index): call for index, call in enumerate(calls)})

    for match in _NAMED.finditer(plain):
        add(match, [_from_name(match, is_key_new=is_key_new)])
    for pattern, actions, kind, seconds in _OWN_WORDS:
        for match in re.finditer(pattern, plain, re.IGNORECASE):
            if bisect(starts, match.start()) not in judged:
                add(match, _from_own_words(match, actions, kind, seconds))
    for match in _CODE.finditer(plain):
        if (index := bisect(starts, match.start())) not in judged:
            end = starts[index] if index < len(starts) else len(plain)
            # Its bucket's name stands before the message.
            add(match, [_from_code(match, plain[max(0, (starts[index - 1] if index else 0) - 90) : end])])
    return tuple(dict.fromkeys(found[place] for place in sorted(found)))


def format_denied_calls(calls: Iterable[DeniedCall]) -> Iterator[str]:
    """Yield lines for people: each call, its remedy, and the statement that allows it."""
    for call in calls:
        what = f"{call.action or 'a call'} on {call.resource}" if call.resource else call.action or "a call"
        article = "an" if call.policy_kind is PolicyKind.IDENTITY else "a"
        yield f"denied: {what}, by {article} {call.policy_kind}"
        yield f"  fix: {call.remedy}"
        if call.statement and not call.wait_seconds:
            yield f"  {call.statement}"


def _statement(actions: Iterable[str], resource: str) -> str:
    named = sorted(actions)
    return json.dumps(
        {"Effect": "Allow", "Action": named[0] if len(named) == 1 else named, "Resource": resource or "*"}
    )


def _from_name(match: re.Match[str], *, is_key_new: bool) -> DeniedCall:
    action, resource = match["action"], (match["resource"] or "").rstrip(".;:")
    if of_iam := re.fullmatch(r"(role|policy|user|instance profile) (\S+)", resource, re.IGNORECASE):
        user = _USER.search(match.string[: match.start()][-300:])
        account = f"arn:{user[1]}:iam::{user[2]}" if user else "arn:*:iam::*"
        kind, name = of_iam[1].lower().replace(" ", "-"), of_iam[2]
        resource = name if name.startswith("arn:") else f"{account}:{kind}/{name}"
    words = (match["no"] or match["denied_by"] or "").lower()
    unnamed = PolicyKind.TRUST if action.startswith("sts:AssumeRole") else PolicyKind.UNKNOWN
    by = next((each for each in PolicyKind if each.value.lower() == words), unnamed)
    explicit = match["deny"] is not None
    encoded = _encoded(match.string[match.end() : match.end() + 8000].partition(" not authorized ")[0])
    is_race = is_key_new and action.startswith("kms:") and not explicit
    return DeniedCall(
        action,
        resource,
        by,
        "" if explicit or by is PolicyKind.TRUST else _statement([action], resource),
        explicit,
        KMS_WAIT_SECONDS if is_race else 0,
        encoded,
    )


def _from_own_words(
    match: re.Match[str], actions: tuple[str, ...], kind: PolicyKind, seconds: int
) -> Iterator[DeniedCall]:
    groups = match.groupdict()
    if several := groups.get("several"):
        actions = tuple(several.replace(" ", "").split(","))
    resource = (groups.get("resource") or "").rstrip(".;:")
    if actions == ("iam:CreateServiceLinkedRole",):
        resource = "arn:*:iam::*:role/aws-service-role/*"
    statement = "" if kind is PolicyKind.TRUST else _statement(actions, resource)
    for action in actions:
        yield DeniedCall(action, resource, kind, statement, wait_seconds=seconds)


def _from_code(match: re.Match[str], message: str) -> DeniedCall:
    action, resource = match["type"] or "", ""
    if call := _CALL.search(message):
        action = call["action"] or call["other"] or ""
        if service := call["service"]:
            prefix = _PREFIXES.get(service.lower(), service.lower().replace(" ", ""))
            name = _S3.get(call["call"], call["call"]) if prefix == "s3" else call["call"]
            action = f"{prefix}:{name}"
            resource = f"arn:*:s3:::{call['name']}" if prefix == "s3" and call["name"] else ""
    encoded = _encoded(message)
    # An encoded message may be about another action of the same call: iam:PassRole in RunInstances.
    is_certain = re.fullmatch(r"[a-z][a-z0-9-]*:\w+", action) is not None and not encoded
    statement = _statement([action], resource) if is_certain else ""
    return DeniedCall(action, resource, PolicyKind.UNKNOWN, statement, encoded=encoded)


def _encoded(text: str) -> str:
    found = re.search(r"Encoded authorization failure message: ?([\w-]{20,})", text)
    return found[1] if found else ""
