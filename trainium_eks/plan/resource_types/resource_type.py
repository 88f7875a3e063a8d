"""Facts about one resource type, in one row that all parts of a plan read.

A row is a :class:`ResourceType`. A column that is left out has the value of most types: free, one quick call, no name
that can be set, only counted, and nothing lost with it. ``tests/unit/plan/resource_types/test_rows.py`` lists the types
that are free and hold nothing. Without the columns about changes (``understood``, ``creation``, ``deletion``) a
reviewer must look at every change of the type.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, Literal

from trainium_eks.model.catalogue.instances import Catalogue
from trainium_eks.model.sizing.bill import Line
from trainium_eks.plan.backend import Answerer
from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.resource_types.paths import covers

DEFAULT_REGION: Final = "us-west-2"
"""Region of resources when neither a provider nor the config names one."""

REGION: Final = "region"
"""Since version 6 of the Terraform provider each regional resource has its own region, and moving is replacing."""

ONE_CALL: Final = 1.0
"""Seconds of a type that is one quick call, with nothing to wait for."""


@dataclass(frozen=True)
class When:
    """A path with changes that replace the resource only sometimes."""

    path: str
    replaces: Callable[[Resource, object, object], bool]
    """Called with the resource of the new program, the value so far and the new value. A value is None when it is not
    set, and ``[unknown]`` when only ``pulumi up`` knows it."""


@dataclass(frozen=True)
class Concern:
    """An input with a known effect, and the cases for a reviewer."""

    path: str
    """camelCase, without list indices; it covers every path below it."""
    when: Callable[[Any, Any], bool | str]
    """Called with the value so far and the new value, None when not set. A text counts as true, and gives the
    details."""
    words: str
    """``backups are kept for a shorter time``."""
    loses: bool = False
    """Whether data or running work is lost, so that a person must accept it."""
    new: bool = False
    """Whether a new resource is checked too; ``when`` gets None for the value so far."""
    of: Callable[[Graph, Resource], bool] = lambda _graph, _resource: True
    """Whether the concern applies to this resource of the new program; if not, it explains no change."""


@dataclass(frozen=True)
class Kept:
    """An input that stays on AWS as it is when a program no longer sets it. It is optional and computed in the
    provider's schema, so that its value comes from the state and no request is made (terraform-plugin-sdk,
    ``helper/schema``). ``tests/kept_inputs.py`` finds such inputs in Pulumi's SDK."""

    path: str
    """camelCase, as in :class:`Concern`."""
    note: str
    """What stays, and the line of the config that changes it; empty for an input without an effect once it is left
    out."""


@dataclass(frozen=True)
class BilledElsewhere:
    """The price of a type that is billed with other usage, without a separate line."""

    under: str
    """Kind of usage that it is billed with (``logs``), as :data:`trainium_eks.model.sizing.bill.BY_USE` names it."""


Priced = Callable[[Graph, Resource, Catalogue], Iterable[Line]]
"""The lines of one resource in its program."""

Facts = Callable[[Graph, Resource], Iterable[str]]
"""Facts that a plan shows beside a resource's name; an empty text is left out."""


@dataclass(frozen=True)
class ShownType:
    """A type with resources that a plan shows one by one."""

    facts: Facts
    joined_as: Callable[[Resource], str] | None = None
    """Name of a resource in the one line that all resources of the type share (its own name when empty); None when
    each has a separate line."""


class Worth(IntEnum):
    """Severity of a loss, worst first."""

    DATA = 0
    """Data that cannot be made again."""
    TIE = 1
    """A link to data that stays."""
    COPY = 2
    """Data that can be made again, or is only read later."""
    WORK = 3
    """Running work."""
    GROUND = 4
    """A resource that all others depend on."""


@dataclass(frozen=True)
class Holds:
    """The loss when a resource is deleted."""

    what: str
    """``its files``."""
    worth: Worth
    while_: Callable[[Resource], bool] = lambda _: True
    """Whether a resource holds it at the moment."""
    when_deleted: Callable[[Resource], str] | None = None
    """Effect of ``pulumi destroy`` on a resource that is neither protected nor retained, when a user must be warned of
    it; None for other types."""


@dataclass(frozen=True)
class Switch:
    """An input that refuses deletion while it is on."""

    input: str
    answer: str
    """The cloud's words."""


@dataclass(frozen=True)
class RefusesDeletion:
    """A type with resources that cannot be deleted while an existing resource names them."""

    answer: str
    """The cloud's words; ``{id}`` is the resource's id."""
    for_: tuple[str, ...] = ()
    """The types that prevent the deletion; every type when empty."""
    switch: Switch | None = None


Brief = str | Callable[[Resource], str] | None
"""Note for the reviewer of a created or deleted resource: empty for nothing to see, None when the row does not say."""

Local = Literal["object", "release", "nodes", "addon", "simulated"]
"""Form of a type in the local cloud: an object or a Helm release on the real API server, simulated nodes, the workloads
of an EKS add-on; ``simulated`` exists in name only."""


@dataclass(frozen=True, kw_only=True)
class ResourceType:
    """The facts of one resource type."""

    token: str
    simulated: Answerer
    """Made-up answer of the provider: an id and the computed properties."""
    replaced_by: tuple[str | When, ...]
    """The inputs that its provider cannot change in place. camelCase; a path covers every path below it."""
    named_by: tuple[str, ...] = ()
    """The inputs that together are the physical name. The last one decides: when a program sets it and keeps it, the
    old and the new resource cannot exist at once. Empty for types without a name that can be set."""
    tagged: bool = True
    """Whether it takes tags, and so the default tags of its provider."""
    seconds: float | Callable[[Resource], float] = ONE_CALL
    price: Priced | BilledElsewhere | None = None
    """None for a type that costs nothing by itself."""
    shown: ShownType | None = None
    """None for a type that a plan only counts, in one line with others."""
    holds: Holds | None = None
    """None for a type with resources that hold nothing: new ones equal the old ones."""
    refuses_deletion: RefusesDeletion | None = None
    """None for a type that its provider deletes even while resources name it, or with users that are always deleted
    first."""
    local: Local = "simulated"
    understood: tuple[str | Concern, ...] = ()
    """The inputs with understood changes: inputs without an effect that a reviewer must see, and concerns. A path
    covers every path below it. Tags and descriptions need no entry."""
    creation: Brief = None
    deletion: Brief = None
    kept: tuple[Kept, ...] = ()
    """The inputs that a program may leave out again, and that AWS keeps then."""

    def keeps(self, path: str, before: object, after: object) -> Kept | None:
        """Return the entry of a changed input that was set and is left out, where AWS keeps it; else None."""
        if before is None or after is not None:
            return None
        return next((each for each in self.kept if covers(each.path, path)), None)

    def seconds_of(self, resource: Resource) -> float:
        """Return the seconds that this resource takes to create."""
        return self.seconds(resource) if callable(self.seconds) else self.seconds

    def lines(self, graph: Graph, resource: Resource, catalogue: Catalogue) -> Iterable[Line]:
        """Return the lines of this resource's own cost."""
        return self.price(graph, resource, catalogue) if callable(self.price) else ()

    def loses_data(self, resource: Resource) -> bool:
        """Return whether data or running work is lost with this resource in its present state."""
        return self.holds is not None and self.holds.while_(resource)


def whole(value: object, default: int = 0) -> int:
    """Return an input as a whole number; ``default`` when it is absent or not known."""
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else default


def nothing_more(_graph: Graph, _resource: Resource) -> Iterable[str]:
    """Return no facts, for a type with a name that is enough."""
    return ()


def deleted_if_empty(switch: str) -> Callable[[Resource], str]:
    """Return the effect of ``pulumi destroy`` on a type that is deleted with its contents only by an input."""
    with_contents, otherwise = "DELETED with its contents", "deleted if empty, otherwise destroy stops here"
    return lambda resource: with_contents if resource.inputs.get(switch) else otherwise


def guards(_graph: Graph, resource: Resource) -> Iterable[str]:
    """Yield the guards of a resource, for a type without other facts worth showing."""
    yield "protected" if resource.options.protect else ""
    yield "retained on destroy" if resource.options.retain_on_delete else ""
