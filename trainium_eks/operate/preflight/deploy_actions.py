"""The AWS actions of each resource type, read from ``deploy_actions.yaml``, which says what its entries mean."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import yaml


class Tags(Enum):
    """The tags that AWS shows IAM with a request."""

    NONE = "named"
    """No tag decides: names do, or nothing does."""
    REQUEST = "makes"
    """Tags that a new resource gets."""
    RESOURCE = "has"
    """Tags that the resource has."""


@dataclass(frozen=True)
class Ask:
    """Actions that one type of resource takes on one kind of thing."""

    actions: tuple[str, ...]
    resource: str
    """ARN with words in braces: fields of :class:`~.deploy_rights.AccountRegion`, the resource's inputs and outputs."""
    tags: Tags = Tags.NONE
    context: Mapping[str, str] = field(default_factory=dict)
    """Further condition keys; their values have words, too."""
    of: str = ""
    """Input with the id of the thing, or several: a parent of the resource. The word ``parent`` stands for its id and
    ``end`` for the id's last part. A parent that the program does not make has no tags that are known. Empty for the
    resource itself; ``key`` for the program's KMS keys."""
    via: str = ""
    """Service that takes the actions with the caller's rights (``aws:CalledVia``)."""
    role: str = ""
    """ARN of the role of the stack that takes the actions, with words; empty for the caller."""
    source: str = ""
    """Document that asks for rights beyond the caller's own calls; set for each ``caller`` and ``role``."""


def _asks(entry: Mapping[str, Any]) -> Iterator[Ask]:
    actions = tuple(entry.get("actions", ()))
    match entry:
        case {"reads": reads}:
            yield Ask(tuple(reads), "*")
        case {"ec2": kind, "of": of}:
            yield Ask(actions, _ec2(f"{kind}/{{parent}}"), Tags.RESOURCE, of=of)
        case {"ec2": kind, "create": create}:
            arn = _ec2(f"{kind}/{{id}}")
            yield Ask((f"ec2:{create}",), arn, Tags.REQUEST)
            yield Ask(("ec2:CreateTags",), arn, Tags.REQUEST, {"ec2:CreateAction": create})
            yield Ask(("ec2:CreateTags", "ec2:DeleteTags", *actions), arn, Tags.RESOURCE)
        case {"passes": role, "to": service}:
            yield Ask(("iam:PassRole",), role, context={"iam:PassedToService": service})
            yield Ask(("iam:GetRole",), role)
        case {"linked": service}:
            role = f"arn:{{partition}}:iam::{{account}}:role/aws-service-role/{service}/AWSServiceRole"
            yield Ask(("iam:CreateServiceLinkedRole",), role, context={"iam:AWSServiceName": service})
            yield Ask(("iam:GetRole",), role)
        case {"caller": resource, "source": source}:
            of, tags = entry.get("of", ""), Tags.NONE
            if resource == "key":
                resource, of, tags = "{parent}", "key", Tags.RESOURCE
            yield Ask(actions, resource, tags, entry.get("context", {}), of, entry.get("via", ""), source=source)
        case {"role": role, "resource": "key", "source": source}:
            yield Ask(actions, "{parent}", Tags.RESOURCE, of="key", role=role, source=source)
        case {"role": role, "resource": resource, "source": source}:
            yield Ask(actions, resource, role=role, source=source)
        case {"encrypts": more}:
            yield Ask(("kms:CreateGrant", "kms:DescribeKey", *more), "{parent}", Tags.RESOURCE, of="key")
        case _:
            tags = next(each for each in Tags if each.value in entry)
            yield Ask(actions, entry[tags.value], tags, entry.get("context", {}), entry.get("of", ""))


def _ec2(path: str) -> str:
    return f"arn:{{partition}}:ec2:{{region}}:{{account}}:{path}"


def _read() -> dict[str, tuple[Ask, ...]]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    rows = yaml.load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"), Loader=loader)
    return {type_: tuple(ask for entry in entries for ask in _asks(entry)) for type_, entries in rows.items()}


NEEDS: Mapping[str, tuple[Ask, ...]] = _read()
"""Resource type to its actions; a type of another service has no action known here."""
