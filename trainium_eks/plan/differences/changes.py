"""Data of the changes between two recorded programs."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from trainium_eks.plan.graph import Resource
from trainium_eks.plan.resource_types import registry
from trainium_eks.plan.resource_types.paths import covers
from trainium_eks.plan.resource_types.rows import eks, kubernetes

ChangeKind = Literal["create", "delete", "replace", "update"]

KINDS: tuple[ChangeKind, ...] = get_args(ChangeKind)

_TAGS = ("tags", "tagsAll", "defaultTags")


@dataclass(frozen=True)
class PathChange:
    """One changed input."""

    path: str
    """camelCase, with list indices: ``scalingConfig.desiredSize``, ``subnetIds[0]``."""
    before: Any = None
    """None when there was none."""
    after: Any = None
    """None when it is removed."""
    replaces: bool = False
    """Whether this change is the reason why the resource is replaced."""
    cause: str = ""
    """URN of the changed resource that the new value comes from, when only ``pulumi up`` knows it; ``before`` and
    ``after`` are None then."""


@dataclass(frozen=True)
class Effect:
    """A risk of a change that a reviewer must see, besides the loss of a resource."""

    words: str
    """Description of the risk: ``backups are kept for a shorter time``."""
    paths: tuple[PathChange, ...] = ()
    note: str = ""
    """Details of the case, from the values of the inputs; empty without any."""
    loses: bool = False


@dataclass(frozen=True)
class ResourceChange:
    """The change of one resource."""

    kind: ChangeKind
    resource: Resource
    """The resource of the later program; a deleted resource as it was."""
    component: str
    """Name of the component it belongs to; the stack's name directly under the stack."""
    paths: tuple[PathChange, ...] = ()
    follows: str = ""
    """URN of the changed resource that causes this change or a part of it; empty when only its own inputs do."""
    lost: str = ""
    """Data or work lost with a resource or its nodes: ``its files``; empty when nothing is lost."""
    refused: str = ""
    """Reason why AWS refuses the change, so that ``pulumi up`` stops there although the preview passes."""
    effects: tuple[Effect, ...] = ()
    harmless: bool = False
    """Whether every part of the change is understood and none needs a review."""

    @property
    def stateful(self) -> bool:
        """Whether data or running work is lost with the change."""
        return bool(self.lost) or any(effect.loses for effect in self.effects)

    @property
    def unjudged(self) -> bool:
        """Whether the update may be a replacement, because the type is unknown."""
        return self.kind == "update" and registry.find(self.resource.type) is None

    @property
    def tags_only(self) -> bool:
        """Whether nothing but tags change."""
        return (
            self.kind == "update"
            and bool(self.paths)
            and all(any(covers(tag, change.path) for tag in _TAGS) for change in self.paths)
        )

    @property
    def rolls_nodes(self) -> bool:
        """Whether a node group stays and all its nodes are replaced, at most ``updateConfig`` of them at a time."""
        return (
            self.kind == "update"
            and self.resource.type == eks.NODE_GROUP.token
            and any(covers(roll, path.path) for roll in eks.ROLLS_NODES for path in self.paths)
        )

    @property
    def blocked(self) -> bool:
        """Whether ``protect`` makes Pulumi refuse the change, at preview already."""
        return self.kind in ("delete", "replace") and self.resource.options.protect


@dataclass(frozen=True)
class OptionChange:
    """A resource option that changed; the engine acts on it although no input changed."""

    urn: str
    name: str
    option: str
    """camelCase: ``protect``, ``retainOnDelete``."""
    before: Any
    after: Any

    @property
    def weakens(self) -> bool:
        """Whether a guard of the resource's data is taken off."""
        return self.option in ("protect", "retainOnDelete") and bool(self.before) and not self.after

    @property
    def harmless(self) -> bool:
        """Whether the change is understood and needs no review: a guard put on, another time-out."""
        if self.option == "additionalSecretOutputs":
            return set(self.before) <= set(self.after)
        return self.option in ("protect", "retainOnDelete", "customTimeouts") and not self.weakens


@dataclass(frozen=True)
class Changes:
    """The difference between two programs."""

    items: tuple[ResourceChange, ...]
    """What AWS refuses first, then lost data and work (replaced, deleted, then rolled), the rest by component."""
    options: tuple[OptionChange, ...] = ()
    outputs: tuple[PathChange, ...] = ()
    """Exports of the stack that the later program lacks or leaves empty."""

    def of(self, *kinds: ChangeKind) -> tuple[ResourceChange, ...]:
        """Return the changes of these kinds, in order."""
        return tuple(change for change in self.items if change.kind in kinds)

    @property
    def rolled(self) -> tuple[ResourceChange, ...]:
        """Return the node groups that stay while their nodes are replaced, groups without nodes included."""
        return tuple(change for change in self.items if change.rolls_nodes)

    @property
    def deleted(self) -> tuple[ResourceChange, ...]:
        """Resources that go away."""
        return self.of("delete")

    @property
    def replaced(self) -> tuple[ResourceChange, ...]:
        """Resources made anew under the same name."""
        return self.of("replace")

    @property
    def claims(self) -> tuple[ResourceChange, ...]:
        """Return the volume claims that are deleted while their namespace stays. Kubernetes keeps a claim until the
        last pod that mounts it, running or finished, is deleted. A claim that is an input of another deleted or
        replaced resource is left out: that resource goes first."""
        going = self.of("replace", "delete")
        own = {urn for change in going for urns in change.resource.property_dependencies.values() for urn in urns}
        gone = {change.resource.urn for change in going if change.resource.type == kubernetes.NAMESPACE.token}
        return tuple(
            change
            for change in going
            if change.resource.type == kubernetes.PERSISTENT_VOLUME_CLAIM.token
            and change.resource.urn not in own
            and change.resource.options.deleted_with not in gone
        )

    def __bool__(self) -> bool:
        return bool(self.items or self.options or self.outputs)

    def to_json(self) -> dict[str, Any]:
        """Return camelCase data, in the order shown."""
        return {
            "items": [
                {
                    "kind": change.kind,
                    "urn": change.resource.urn,
                    "type": change.resource.type,
                    "name": change.resource.name,
                    "component": change.component,
                    "stateful": change.stateful,
                    "blockedByProtect": change.blocked,
                    "tagsOnly": change.tags_only,
                    "unjudged": change.unjudged,
                    "rollsNodes": change.rolls_nodes,
                    "refused": change.refused,
                    "follows": change.follows,
                    "effects": [asdict(effect) for effect in change.effects],
                    "paths": [asdict(path) for path in change.paths],
                }
                for change in self.items
            ],
            "claims": [change.resource.urn for change in self.claims],
            "options": [{**asdict(option), "weakens": option.weakens} for option in self.options],
            "outputs": [asdict(output) for output in self.outputs],
        }
