"""What is known of one resource type, in one row that everything reads.

A row is a :class:`ResourceType`. Whoever adds a type decides each column, or says that there is nothing to say
(:data:`FREE`, :data:`COUNTED`, :data:`NO_DATA`, :data:`ALWAYS_DELETABLE`). A row left half written does not type-check
and does not import. Only the columns about changes (``understood``, ``creation``, ``deletion``) may be left out: then
a reviewer must look at every change of the type.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Final, Literal

from trainium_eks.model.catalogue.instances import Catalogue
from trainium_eks.model.sizing.bill import Line
from trainium_eks.plan.backend import Answerer
from trainium_eks.plan.graph import Graph, Resource

REGION: Final = "region"
"""Since version 6 of the Terraform provider each regional resource has its own region, and moving is replacing."""

ONE_CALL: Final = 1.0
"""Seconds of a type that is one quick call, with nothing to wait for."""

NO_TIME: Final = 0.0
"""Seconds of what is made on this side: providers."""


@dataclass(frozen=True)
class When:
    """A path whose change replaces the resource only sometimes."""

    path: str
    replaces: Callable[[Resource, object, object], bool]
    """Called with the resource as it is to be, the value so far and the value to be. A value is None where there is
    none, and ``[unknown]`` where only ``pulumi up`` knows it."""


@dataclass(frozen=True)
class Concern:
    """An input with a known effect, and the cases for a reviewer."""

    path: str
    """camelCase, without list indices; it covers all that is under it."""
    when: Callable[[Any, Any], bool | str]
    """Called with the value so far and the value to be, None where there is none. A text is true, and says what it is
    in particular."""
    words: str
    """``backups are kept for a shorter time``."""
    loses: bool = False
    """Whether data or running work is lost, so that somebody must accept it."""
    new: bool = False
    """Whether a new resource is asked too; ``when`` gets None for the value so far."""
    of: Callable[[Graph, Resource], bool] = lambda _graph, _resource: True
    """Whether it is about this resource of this program, as they are to be; otherwise it explains nothing."""


class Free(Enum):
    """What costs nothing by itself."""

    FREE = "free"


FREE: Final = Free.FREE


@dataclass(frozen=True)
class BilledElsewhere:
    """What costs money, but by no line of its own."""

    under: str
    """What it is billed with: ``logs`` and the like, as :data:`trainium_eks.model.sizing.bill.BY_USE` names them."""


Priced = Callable[[Graph, Resource, Catalogue], Iterable[Line]]
"""The lines of one resource in its program."""

Facts = Callable[[Graph, Resource], Iterable[str]]
"""What to say about a resource beside its name; an empty text is left out."""


@dataclass(frozen=True)
class Shown:
    """A type whose resources a plan shows one by one."""

    facts: Facts
    joined_as: Callable[[Resource], str] | None = None
    """All resources of the type share one line, each under this name (its own where it is empty); None when each has
    a line of its own."""


COUNTED: Final = None
"""A type that a plan only counts, in one line with others."""


class Worth(IntEnum):
    """How bad a loss is, worst first."""

    DATA = 0
    """What cannot be made again."""
    TIE = 1
    """What leads to data that stays."""
    COPY = 2
    """What can be made again, or is only looked at later."""
    WORK = 3
    """What runs."""
    GROUND = 4
    """What everything else stands on."""


@dataclass(frozen=True)
class Holds:
    """What goes when a resource goes."""

    what: str
    """``its files``."""
    worth: Worth
    while_: Callable[[Resource], bool] = lambda _: True
    """Whether a resource holds it at the moment."""
    when_deleted: Callable[[Resource], str] | None = None
    """What ``pulumi destroy`` does to a resource that is neither protected nor retained, for those that a user must be
    told of before; None for the others."""


NO_DATA: Final = None
"""A type whose resources are made again as they were."""


@dataclass(frozen=True)
class Switch:
    """An input that refuses deletion while it is on."""

    input: str
    answer: str
    """As the cloud words it."""


@dataclass(frozen=True)
class RefusesDeletion:
    """A type whose resources cannot be deleted while something that exists names them."""

    answer: str
    """As the cloud words it; ``{id}`` is the resource's."""
    for_: tuple[str, ...] = ()
    """The types that stand in the way; every type when empty."""
    switch: Switch | None = None


ALWAYS_DELETABLE: Final = None
"""A type that its provider deletes whoever still names it, or whose users always go first."""

Brief = str | Callable[[Resource], str] | None
"""What a reviewer must know of a resource that comes or goes: empty for nothing, None when nobody has said."""

Local = Literal["object", "release", "nodes", "addon", "simulated"]
"""How the local cloud makes a type: as an object or a Helm release on the real API server, as simulated nodes, as the
workloads of an EKS add-on; ``simulated`` exists in name only."""


@dataclass(frozen=True, kw_only=True)
class ResourceType:
    """One row."""

    token: str
    """``aws:ec2/vpc:Vpc``."""
    simulated: Answerer
    """What the provider would answer, made up: an id and the computed properties."""
    named_by: tuple[str, ...]
    """The inputs that together are the physical name, the last of which decides: where a program gives it and keeps
    it, the old and the new resource cannot exist at once. Empty for what has no name that can be given."""
    tagged: bool
    """Whether it takes tags, and so the default tags of its provider."""
    replaced_by: tuple[str | When, ...]
    """The inputs that its provider cannot change in place. camelCase; a path covers all that is under it."""
    seconds: float | Callable[[Resource], float]
    """How long one takes to create."""
    price: Priced | BilledElsewhere | Free
    shown: Shown | None
    holds: Holds | None
    refuses_deletion: RefusesDeletion | None
    local: Local
    understood: tuple[str | Concern, ...] = ()
    """The inputs whose change is understood: those that change nothing a reviewer must see, and concerns. A path covers
    all that is under it. Tags and descriptions need no entry."""
    creation: Brief = None
    deletion: Brief = None

    def seconds_of(self, resource: Resource) -> float:
        """How long this resource takes to create."""
        return self.seconds(resource) if callable(self.seconds) else self.seconds

    def lines(self, graph: Graph, resource: Resource, catalogue: Catalogue) -> Iterable[Line]:
        """What this resource costs by itself."""
        if isinstance(self.price, BilledElsewhere | Free):
            return ()
        return self.price(graph, resource, catalogue)

    def loses_data(self, resource: Resource) -> bool:
        """Whether data or running work goes with this resource as it stands."""
        return self.holds is not None and self.holds.while_(resource)


def whole(value: object, default: int = 0) -> int:
    """An input as a whole number; ``default`` when it is absent or not known."""
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else default


def nothing_more(_graph: Graph, _resource: Resource) -> Iterable[str]:
    """The facts of a type whose name says it all."""
    return ()


def guards(_graph: Graph, resource: Resource) -> Iterable[str]:
    """The facts of a type of which only its guards are worth saying."""
    yield "protected" if resource.options.protect else ""
    yield "retained on destroy" if resource.options.retain_on_delete else ""
