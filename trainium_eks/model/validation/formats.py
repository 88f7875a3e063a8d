"""The forms of names, ids, ranges and numbers, each validated in one place for every section.

A function takes the path and the value and returns the value's problems. Patterns come from the services' own models
(botocore), and a test compares them.
"""

import datetime
import functools
import ipaddress
import re
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated

from trainium_eks.model.catalogue import regions
from trainium_eks.model.validation import ranges
from trainium_eks.model.validation.config_model import OutputText, StrictInt
from trainium_eks.model.validation.limits import Bounds, Choices, Form, LimitedValue
from trainium_eks.model.validation.problems import Problem, Severity, join, join_key, nearest, under

RETENTION_DAYS = (
    1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653,
)  # fmt: skip
"""Days that CloudWatch Logs can keep a log group (PutRetentionPolicy)."""

RetentionDays = Annotated[StrictInt, Choices(RETENTION_DAYS, "days", "CloudWatch Logs offers")]

SMALLEST_ROOT_GIB = 20
"""The size of the AL2023 EKS image: a smaller root volume does not start."""

LARGEST_ROOT_GIB = 16384
"""The largest gp3 volume that every region has."""

RootVolumeGib = Annotated[StrictInt, Bounds(SMALLEST_ROOT_GIB, LARGEST_ROOT_GIB, "GiB")]

LARGEST_NODE_GROUP = 450
"""Nodes in one managed node group (EKS quota L-BD136A63)."""

IAM_ROLE_NAME_LENGTH = 64
PULUMI_SUFFIX_LENGTH = 8
"""Pulumi makes physical names unique with a dash and seven characters."""
COMPONENT_PREFIX_LENGTH = 16
"""Room kept in physical names for the parts that components put before and after a name of the config."""

DERIVED_NAME_LENGTH = IAM_ROLE_NAME_LENGTH - PULUMI_SUFFIX_LENGTH - COMPONENT_PREFIX_LENGTH
"""The longest name from which an IAM role's name can be made."""

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_LABEL_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
RESERVED_LABEL_PREFIXES = ("kubernetes.io", "k8s.io", "k8s.aws", "eks.amazonaws.com")
"""Ends of label prefixes that Kubernetes and EKS keep for themselves. EKS does not refuse ``k8s.aws``, but sets its own
labels there on every node (``topology.k8s.aws/zone-id``)."""

_ID = re.compile(r"(?P<prefix>[a-z]+)-([0-9a-f]{8}|[0-9a-f]{17})")
_PLACEHOLDER = re.compile(r"(^|[-/:])sim-")
"""A text that `trn plan` made up for the answer of a look-up (``trainium_eks.plan.recording.lookup_answers``)."""
_RESERVATION = re.compile(r"cr-[0-9a-f]{17}")
_ACCOUNT = re.compile(r"[0-9]{12}")
_ARN = re.compile(r"arn:(?P<partition>aws[a-z-]*):[a-z0-9-]+:(?P<region>[a-z0-9-]*):")
# Names as in IAM's API, where \w is ASCII; a path in front of the name takes any printable character (botocore).
_PRINCIPAL = re.compile(
    r"arn:(?P<partition>aws[a-z-]*):iam::(?P<account>[0-9]{12}):(role|user)/([!-~]+/)?(?P<name>[A-Za-z0-9_+=,.@-]{1,64})"
)
_SERVICE_LINKED = re.compile(
    r"arn:aws[a-z-]*:(iam|sts)::[0-9]{12}:(role/aws-service-role/.*|(assumed-)?role/AWSServiceRoleFor.*)", re.DOTALL
)
_OF_SSO = re.compile(r"[^/]+/aws-reserved/sso\.amazonaws\.com/([a-z0-9-]+/)?AWSReservedSSO_.*")
"""Role of a permission set of IAM Identity Center; the region is left out for us-east-1 (terraform-aws-eks#2969)."""
_OTHER_KINDS = (
    (":root", "name the role that people or runners assume: no account has access as a whole"),
    (":federated-user/", "name the IAM user or role that asked for the session"),
    (":instance-profile/", "name the role in it"),
    ("", "give the ARN of a role or user"),
)
KMS_KEY_ARN = re.compile(r"arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+")
_POLICY = re.compile(r"arn:aws[a-z-]*:iam::([0-9]{12}|aws):policy/([!-~]+/)?[A-Za-z0-9_+=,.@-]{1,128}")
_ASSUMED_ROLE = re.compile(
    r"arn:(?P<partition>aws[a-z-]*):sts::(?P<account>[0-9]{12}):assumed-role/(?P<name>[A-Za-z0-9_+=,.@-]+)(/[!-~]+)?"
)
# Letters and digits of any script, as AWS takes them; of its white space, line separators among it, the plain space.
_TAG_TEXT = re.compile(r"[\w .:/=+@-]*")
_OWNED = "kubernetes.io/cluster/"
"""How the tag begins by which controllers know a cluster's resources (kubernetes/cloud-provider-aws, ``tags.go``)."""
_NO_TAGS: Mapping[str, str] = MappingProxyType({})
_HOST = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_ADDRESS = re.compile(r"[A-Za-z0-9._~:/?#@!$&'()*+,;=%-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def dns_label(path: str, value: str, *, longest: int = 63, because: str = "Kubernetes takes") -> list[Problem]:
    """Return the problems of a name of lower-case letters, digits and dashes, at most ``longest`` characters."""
    cleaned = re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-")[:longest].strip("-")
    if not _DNS_LABEL.fullmatch(value):
        reason = "a name is lower-case letters, digits and dashes, with a letter or digit first and last"
        return [Problem(path, reason, value=value, good=cleaned or "<name>")]
    return _too_long(path, value, longest, because, cleaned)


def dns_subdomain(path: str, value: str, *, longest: int = 253) -> list[Problem]:
    """Return the problems of a name of DNS labels with dots between them, as most objects of Kubernetes take it."""
    cleaned = re.sub(r"[^a-z0-9.]+", "-", value.lower())[:longest].strip(".-")
    if not all(_DNS_LABEL.fullmatch(part) for part in value.split(".")):
        reason = (
            "a name is lower-case letters, digits, dashes and dots, with a letter or digit at both ends of each part"
        )
        fits = all(_DNS_LABEL.fullmatch(part) for part in cleaned.split("."))
        return [Problem(path, reason, value=value, good=cleaned if fits else "<name>")]
    return _too_long(path, value, longest, "Kubernetes takes", cleaned)


def _too_long(path: str, value: str, longest: int, because: str, good: str) -> list[Problem]:
    if len(value) <= longest:
        return []
    reason = f"the name has {len(value)} characters, and {because} {longest}"
    return [Problem(path, reason, f"shorten it by {len(value) - longest}", value=value, good=good)]


def derived_name(path: str, value: str) -> list[Problem]:
    """Return the problems of a name that IAM roles and other physical names are made from."""
    because = (
        f"an IAM role's name takes {IAM_ROLE_NAME_LENGTH}, of which Pulumi's suffix ({PULUMI_SUFFIX_LENGTH}) and the "
        f"component's own part ({COMPONENT_PREFIX_LENGTH}) leave"
    )
    return dns_label(path, value, longest=DERIVED_NAME_LENGTH, because=because)


def duplicates(path: str, values: Sequence[str], field: str) -> list[Problem]:
    """Return the entries of a list of objects that repeat an earlier entry's ``field``."""
    first: dict[str, int] = {}
    found = []
    for index, value in enumerate(values):
        if value in first:
            reason = f"entry {first[value] + 1} of the list has the same"
            found.append(Problem(join(join(path, index), field), reason, "give each its own", value=value))
        first.setdefault(value, index)
    return found


_RANGE_FIX = "write the network's first address and its prefix"


def cidr(path: str, value: str, *, shortest: int = 0, longest: int = 32, what: str = "a range") -> list[Problem]:
    """Return the problems of an IPv4 range with no host bits set, its prefix within bounds."""
    try:
        network = ipaddress.ip_network(value, strict=False)
    except ValueError:
        return [
            Problem(path, "it is not an IPv4 range", _RANGE_FIX, value=value, allowed=("10.0.0.0/16 and the like",))
        ]
    if network.version != 4 or "/" not in value:
        good = f"{value}/{'32' if longest == 32 else '<prefix>'}" if network.version == 4 else None
        allowed = ("10.0.0.0/16 and the like",)
        reason = "it is not an IPv4 range with its prefix"
        return [Problem(path, reason, "" if good else _RANGE_FIX, value=value, allowed=allowed, good=good)]
    if not shortest <= network.prefixlen <= longest:
        prefix = min(max(network.prefixlen, shortest), longest)
        good = str(ipaddress.ip_network(f"{network.network_address}/{prefix}", strict=False))
        allowed = (f"/{shortest} to /{longest}",)
        return [Problem(path, f"{what} is /{shortest} to /{longest}", value=value, allowed=allowed, good=good)]
    if str(network) != value:
        return [Problem(path, "it has bits set after its prefix", value=value, good=str(network))]
    return []


def usable_cidr(path: str, value: str, *, shortest: int = 0, longest: int = 32, what: str) -> list[Problem]:
    """Return the problems of an IPv4 range that :func:`cidr` finds, and of a range with a reserved part."""
    found = cidr(path, value, shortest=shortest, longest=longest, what=what)
    use = ranges.unusable(value)
    if use and not found:
        allowed = (*map(str, ranges.PRIVATE), str(ranges.SHARED), "public ranges of your own")
        reason = f"no network can have these addresses ({use})"
        found.append(Problem(path, reason, "take a range of one of the allowed", value=value, allowed=allowed))
    return found


def reservation_id(path: str, value: str) -> list[Problem]:
    """Return the problems of the id of a capacity reservation or a Capacity Block."""
    if _RESERVATION.fullmatch(value):
        return []
    allowed = ("cr- and 17 hexadecimal digits (cr-0123456789abcdef0)",)
    fix = "aws ec2 describe-capacity-reservations shows the ids"
    return [Problem(path, "it is not the id of a capacity reservation", fix, value=value, allowed=allowed)]


def utc_text(moment: datetime.datetime) -> str:
    """Return a moment as RFC 3339 text in UTC, to the second: ``2027-01-11T11:30:00Z``."""
    return f"{moment.astimezone(datetime.UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z"


def utc_time(path: str, value: str) -> list[Problem]:
    """Return the problem of text that is no moment as :func:`utc_text` writes it."""
    try:
        moment = datetime.datetime.fromisoformat(value)
        good = utc_text(moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC))
    except (ValueError, OverflowError):
        allowed = ("<YYYY-MM-DD>T<hh:mm:ss>Z, as 2027-01-11T11:30:00Z",)
        fix = "aws ec2 describe-capacity-reservations shows it"
        return [Problem(path, "it is not a time in UTC", fix, value=value, allowed=allowed)]
    return [] if value == good else [Problem(path, "it is not a time in UTC", value=value, good=good)]


def resource_id(path: str, value: str, *, prefix: str, shown_by: str) -> list[Problem]:
    """Return the problems of an id of EC2 or FSx: ``prefix``, and 8 or 17 hexadecimal digits (EC2 user guide, resource
    ids). ``shown_by`` is the command that shows the ids."""
    found = _ID.fullmatch(value)
    if (found and found["prefix"] == prefix) or _PLACEHOLDER.search(value):
        return []
    what = shown_by.rpartition("describe-")[2].removesuffix("s").replace("-", " ")
    fix, allowed = f"aws {shown_by} shows the ids", (f"{prefix}- and 8 or 17 hexadecimal digits",)
    return [Problem(path, f"it is not the id of a {what}", fix, value=value, allowed=allowed)]


def region(path: str, value: str) -> list[Problem]:
    """Return the problem of a region that AWS does not have; one with a region's form of name may be newer than this
    release."""
    if value in regions.REGIONS or regions.may_be_new(value):
        return []
    good, known = nearest(value, regions.REGIONS), tuple(regions.REGIONS)
    fix = "aws account list-regions shows the regions of an account"
    return [Problem(path, "this release does not know it", "" if good else fix, value=value, allowed=known, good=good)]


def _id_form(prefix: str, shown_by: str) -> Form:
    judge = functools.partial(resource_id, prefix=prefix, shown_by=shown_by)
    return Form(judge, f"`{prefix}-` and 8 or 17 hexadecimal digits")


Region = Annotated[str, Form(region)]
VpcId = Annotated[str, _id_form("vpc", "ec2 describe-vpcs")]
SubnetId = Annotated[str, _id_form("subnet", "ec2 describe-subnets")]
SecurityGroupId = Annotated[str, _id_form("sg", "ec2 describe-security-groups")]
FileSystemId = Annotated[str, _id_form("fs", "fsx describe-file-systems")]


def account_id(path: str, value: str) -> list[Problem]:
    """Return the problems of an AWS account id."""
    if _ACCOUNT.fullmatch(value):
        return []
    quoted = "; write it in quotes, or YAML drops its leading zeros" if value.isdigit() and len(value) < 12 else ""
    return [Problem(path, f"an AWS account id has 12 digits{quoted}", value=value, good="<12 digits>")]


def principal(path: str, value: str) -> list[Problem]:
    """Return the problems of the ARN of an IAM role or user for an EKS access entry."""
    if _SERVICE_LINKED.fullmatch(value):
        reason = "it is a service-linked role: only its service assumes it, and EKS takes no access entry for it"
        return [Problem(path, reason, "name the role that people or runners assume", value=value)]
    role, session = _PRINCIPAL.fullmatch(value), _ASSUMED_ROLE.fullmatch(value)
    arn = role or session
    if arn is None:
        fix = next(text for part, text in _OTHER_KINDS if part in value)
        allowed = ("arn:aws:iam::<account>:role/<name>", "arn:aws:iam::<account>:user/<name>")
        return [Problem(path, "it is not the ARN of an IAM role or user", fix, value=value, allowed=allowed)]
    own = f"arn:{arn['partition']}:iam::{arn['account']}:role"
    shows = f"aws iam get-role --role-name {arn['name']} --query Role.Arn shows it"
    if arn["name"].startswith("AWSReservedSSO_") and not _OF_SSO.fullmatch(value):
        reason = "it lacks the path of a role of IAM Identity Center, and EKS takes the role's whole ARN alone"
        good = f"{own}/aws-reserved/sso.amazonaws.com/<region>/{arn['name']}"
        return [Problem(path, reason, f"{shows} (in us-east-1 without <region>/)", value=value, good=good)]
    if role is None:
        reason = "it is a session's ARN, where EKS takes the role's own (with its path, if it has one)"
        return [Problem(path, reason, f"{shows}: {own}/{arn['name']} if it has no path", value=value)]
    return []


def keyed_principals(path: str, values: Mapping[str, OutputText]) -> list[Problem]:
    """Return the problems of IAM principals by the keys that resources are named after; ARNs that are known later are
    skipped."""
    found = []
    for key, arn in values.items():
        here = join_key(path, key)
        found += under(here, dns_label("", key))
        found += principal(here, arn) if isinstance(arn, str) else []
    return found


def kms_key_arn(path: str, value: str) -> list[Problem]:
    """Return the problems of the ARN of a KMS key."""
    if KMS_KEY_ARN.fullmatch(value) or _PLACEHOLDER.search(value):
        return []
    fix = "an alias may point to another key tomorrow: give the key that it points to" if ":alias/" in value else ""
    good = "arn:aws:kms:<region>:<account>:key/<id>"
    return [Problem(path, "it is not the ARN of a KMS key", fix, value=value, good=good)]


KeyArn = Annotated[str, Form(kms_key_arn)]


def policy_arn(path: str, value: str) -> list[Problem]:
    """Return the problems of the ARN of an IAM policy, of the account or of AWS."""
    if _POLICY.fullmatch(value):
        return []
    return [
        Problem(path, "it is not the ARN of an IAM policy", value=value, good="arn:aws:iam::<account>:policy/<name>")
    ]


PolicyArn = Annotated[str, Form(policy_arn)]


def arns(places: Iterable[LimitedValue], region: str) -> list[Problem]:
    """Return the problems of ARNs in any field that belong to another partition or region than the stack's."""
    partition, found = regions.partition(region), []
    for place in places:
        arn = _ARN.match(place.value) if isinstance(place.value, str) else None
        if arn is None:
            continue
        if arn["partition"] != partition:
            good = f"arn:{partition}{place.value[arn.end('partition') :]}"
            reason = f"it is of the partition {arn['partition']}, and {region} is in the partition {partition}"
            found.append(Problem(place.path, reason, value=place.value, good=good))
        elif arn["region"] not in ("", region):
            reason = f"it is in {arn['region']}, but the stack is in {region}"
            found.append(Problem(place.path, reason, f"name one in {region}", value=place.value, allowed=(region,)))
    return found


def bucket(path: str, value: str) -> list[Problem]:
    """Return the problems of the name of an S3 bucket."""
    address = re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+", value)
    odd = ".." in value or value.startswith(("xn--", "sthree-")) or value.endswith(("-s3alias", "--ol-s3", "--x-s3"))
    if _BUCKET.fullmatch(value) and not address and not odd:
        return []
    allowed = ("3 to 63 lower-case letters, digits, dots and dashes, a letter or digit first and last",)
    hint = "give the name alone" if value.startswith(("s3://", "arn:")) else "give the bucket's name"
    name, _, prefix = re.sub(r"^(s3://|arn:aws[a-z-]*:s3:::)", "", value).partition("/")
    hint = f"then give {prefix.strip('/')} as the prefix, where there is one" if prefix.strip("/*") else hint
    good = name if name != value and _BUCKET.fullmatch(name) else None
    return [Problem(path, "it is not the name of an S3 bucket", hint, value=value, allowed=allowed, good=good)]


def bucket_key(path: str, key: object, bucket_path: str, name: object) -> list[Problem]:
    """Return the problems of an existing bucket's KMS key, at ``path``; an Output is not validated. ``bucket_path`` is
    that of the bucket's name, which is None for no existing bucket."""
    if key is None:
        return []
    if name is None:
        reason = f"`{bucket_path}` names no existing bucket that the key could encrypt"
        return [
            Problem(path, reason, f"remove it, or set `{bucket_path}`", value=key if isinstance(key, str) else None)
        ]
    return kms_key_arn(path, key) if isinstance(key, str) else []


def labels(path: str, values: Mapping[str, str]) -> list[Problem]:
    """Return the problems of a node group's labels under EKS' rules, stricter than Kubernetes', which allow empty
    values and long keys.

    EKS' API model bounds keys, prefix included, and values to 1 to 63 characters; its error names the reserved prefixes
    (eksctl#4007, containers-roadmap#1451, aws-sdk-go-v2#2267).
    """
    found = []
    for key, value in values.items():
        here = join_key(path, key)
        prefix, _, name = key.rpartition("/")
        if not _LABEL_NAME.fullmatch(name) or ("/" in key and not _LABEL_PREFIX.fullmatch(prefix)):
            found.append(Problem(here, "it is not the name of a Kubernetes label", "rename it"))
        elif len(key) > 63:
            reason = f"the key has {len(key)} characters, and EKS takes 63, the prefix included"
            found.append(Problem(here, reason, "shorten it"))
        elif prefix.endswith(RESERVED_LABEL_PREFIXES):
            reserved = listed((f"{each}/" for each in RESERVED_LABEL_PREFIXES), "or")
            found.append(
                Problem(here, f"Kubernetes and EKS keep prefixes that end with {reserved}", "use a prefix of your own")
            )
        if not _LABEL_VALUE.fullmatch(value):
            reason = "EKS takes 1 to 63 letters, digits, dashes, dots and underscores, a letter or digit first and last"
            good = re.sub(r"[^A-Za-z0-9_.-]+", "-", value)[:63].strip("_.-") or "true"
            found.append(Problem(here, reason, value=value, good=good))
    return found


def tags(path: str, values: Mapping[str, OutputText], *, taken: Mapping[str, str] = _NO_TAGS) -> list[Problem]:
    """Return the problems of AWS tags; values that are known later are skipped. ``taken`` are keys that the stack sets
    on the same resources, each with its remedy: IAM refuses two keys that differ by case alone, where other services
    take them."""
    found = []
    folded: dict[str, str] = {}
    own = {key.casefold(): key for key in taken}
    for key, value in values.items():
        here, low = join_key(path, key), key.casefold()
        if not key or len(key) > 128 or not _TAG_TEXT.fullmatch(key):
            found.append(Problem(here, "a tag's key is 1 to 128 letters, digits, spaces and _.:/=+-@", "rename it"))
        elif low.startswith("aws:"):
            found.append(Problem(here, "keys that begin with aws: belong to AWS", "rename it"))
        elif low.startswith(_OWNED):
            reason = (
                "EKS and controllers take what has this tag for the cluster's own: Karpenter may end such nodes, and "
                "load balancers fail at a second security group with it"
            )
            severity = Severity.REFUSE if value == "owned" else Severity.WARN
            found.append(Problem(here, reason, "remove it: EKS tags what needs it", severity=severity))
        elif low in own:
            reason = f"the stack sets the tag {own[low]} itself, and IAM takes a key once, whatever its case"
            found.append(Problem(here, reason, taken[own[low]]))
        elif low in folded:
            reason = f"it differs from {folded[low]} only by case, and IAM takes a key once, whatever its case"
            found.append(Problem(here, reason, "keep one of them"))
        folded.setdefault(low, key)
        if isinstance(value, str) and (len(value) > 256 or not _TAG_TEXT.fullmatch(value)):
            cleaned = re.sub(r"[^\w .:/=+@-]+", "-", value)[:256]
            what = "a tag's value is at most 256 letters, digits, spaces and _.:/=+-@"
            found.append(Problem(here, what, value=value, good=cleaned))
    if len(values) > 40:
        reason = f"there are {len(values)} tags, and AWS takes 50 on a resource, of which the stack's own need 10"
        found.append(Problem(path, reason, f"remove {len(values) - 40}", allowed=("at most 40",)))
    return found


def one_line(path: str, value: str) -> list[Problem]:
    """Return the problem of text with control characters: AWS refuses a line break in a name or a path, or never finds
    it again."""
    if not _CONTROL.search(value):
        return []
    good = _CONTROL.sub("", value).strip()
    fix = "" if good else "leave it out"
    return [Problem(path, "it has a line break or another control character", fix, value=value, good=good or None)]


def https_address(path: str, value: str) -> list[Problem]:
    """Return the problems of an address for browsers: ``https`` with a host, of characters that RFC 3986 allows."""
    allowed = ("https://<host>/<path>, with no spaces, quotes, brackets or braces",)
    try:
        parts = urllib.parse.urlsplit(value)
        host = parts.hostname or ""
        named = _HOST.fullmatch(host) or ipaddress.IPv6Address(host)
        sound = parts.scheme == "https" and bool(named) and parts.port != 0 and "@" not in parts.netloc
    except ValueError:  # a host that is none, a port that is none, a bracket that is not closed
        sound = False
    if sound and _ADDRESS.fullmatch(value.replace(parts.netloc, "", 1)):
        return []
    return [Problem(path, "it is not an https address", "give the whole address", value=value, allowed=allowed)]


def warn(path: str, reason: str, fix: str = "") -> Problem:
    """Return a problem that is shown and does not stop a build."""
    return Problem(path, reason, fix, severity=Severity.WARN)


def listed(words: Iterable[str], last: str = "and") -> str:
    """Return words as ``a, b and c``."""
    *most, end = list(words) or ["none"]
    return f"{', '.join(most)} {last} {end}" if most else end
