"""Parts of the rows of :mod:`trainium_eks.operate.preflight.deploy_table`: actions on one kind of thing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Tags(Enum):
    """The tags that AWS shows IAM with a request."""

    NONE = "none"
    """No tag decides: names do, or nothing does."""
    REQUEST = "request"
    """Tags that a new resource gets."""
    RESOURCE = "resource"
    """Tags that the resource has."""


@dataclass(frozen=True)
class Ask:
    """Actions that one type of resource takes on one kind of thing: a part of a row."""

    actions: tuple[str, ...]
    resource: str
    """ARN with words in braces: fields of :class:`~.deploy_rights.AccountRegion`, the resource's inputs and outputs."""
    tags: Tags = Tags.NONE
    context: Mapping[str, str] = field(default_factory=dict)
    """Further condition keys; their values have words, too."""
    of: str = ""
    """Input with the id of the thing, or several: a parent of the resource. The word ``parent`` stands for its id and
    ``end`` for the id's last part. A parent that the program does not make has no tags that are known. Empty for the
    resource itself."""


def reads(*actions: str) -> tuple[Ask, ...]:
    """Return actions that AWS knows on no single resource."""
    return (Ask(actions, "*"),)


def named(resource: str, *actions: str, **context: str) -> tuple[Ask, ...]:
    """Return actions on something that its name tells from others'. Condition keys are given with ``__`` for ``:`` and
    ``___`` for ``/``."""
    return (Ask(actions, resource, Tags.NONE, _keys(context)),)


def makes(resource: str, *actions: str, **context: str) -> tuple[Ask, ...]:
    """Return actions that make a resource, with its tags in the request."""
    return (Ask(actions, resource, Tags.REQUEST, _keys(context)),)


def has(resource: str, *actions: str, of: str = "", **context: str) -> tuple[Ask, ...]:
    """Return actions on an existing resource, or on the parent that an input names."""
    return (Ask(actions, resource, Tags.RESOURCE, _keys(context), of),)


def _keys(context: Mapping[str, str]) -> dict[str, str]:
    return {key.replace("___", "/").replace("__", ":"): value for key, value in context.items()}
