"""The effects of one change that a reviewer must see: concerns of its type's row, and inputs that no row explains."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainium_eks.plan.differences.changes import Effect, PathChange, ResourceChange
from trainium_eks.plan.differences.kept import kept_inputs
from trainium_eks.plan.graph import UNKNOWN, Graph, Resource
from trainium_eks.plan.resource_types import registry
from trainium_eks.plan.resource_types.paths import leaves, value_at, within
from trainium_eks.plan.resource_types.resource_type import Brief, Concern

EXPLAINED_EVERYWHERE = ("tags", "tagsAll", "description")
"""Inputs that describe a resource and do not change its behaviour."""

NOT_UNDERSTOOD = "not understood: a reviewer must say what this change does"
NEW_AND_NOT_UNDERSTOOD = "new, and not understood: a reviewer must say what it does"
STAYS = "taken out of the program, and stays on AWS as it is"
UNKNOWN_TYPE = "may be a replacement: nothing is known of its type"
ADOPTED = "takes over what is there already"
UNREADABLE = "a value of another form than the type's"
KNOWN_BY_UP = "`up` alone knows the new value"


@dataclass(frozen=True)
class ChangeContext:
    """A changed resource and the programs around it."""

    change: ResourceChange
    standing: Mapping[str, Any]
    """The resource's inputs so far; empty for a new resource."""
    resource: Resource
    """The resource of the later program; a deleted resource as it was."""
    graph: Graph
    replaced: Collection[str]
    """URNs of the replaced resources: values that come from them are reported with those replacements."""

    @property
    def _entries(self) -> list[str | Concern]:
        return [
            each
            for each in (*EXPLAINED_EVERYWHERE, *registry.of(self.resource).understood)
            if isinstance(each, str) or each.of(self.graph, self.resource)
        ]

    def effects(self) -> tuple[Effect, ...]:
        """Return the effects that a reviewer must see: first concerns, then inputs that no row explains."""
        kind, row = self.change.kind, registry.of(self.resource)
        if kind == "delete":
            return tuple(Effect(f"deleted: {effect.words}") for effect in _brief(row.deletion, self.resource, ""))
        if kind == "create":
            adopted = (Effect(ADOPTED),) if self.resource.options.import_id else ()
            brief = _brief(row.creation, self.resource, NEW_AND_NOT_UNDERSTOOD)
            return (*adopted, *self._concerns(lambda each: each.new), *brief)
        found = (*self._kept(), *self._concerns(self._is_touched))
        open_ = tuple(path for path in self.change.paths if not self._is_explained(path))
        if kind == "replace" or not open_:
            return found
        return (*found, Effect(UNKNOWN_TYPE if self.change.unjudged else NOT_UNDERSTOOD, open_))

    def is_harmless(self, effects: Collection[Effect]) -> bool:
        """Return whether every input of the change is explained and no effect is left to review."""
        if self.change.kind == "delete":
            return registry.of(self.resource).deletion is not None and not effects
        own = self.change.kind != "replace" or not self.change.follows
        return own and not effects and all(self._is_explained(path) for path in self.change.paths)

    def _kept(self) -> Iterator[Effect]:
        for entry, path in kept_inputs(self.change):
            if entry.note:
                yield Effect(STAYS, (path,), entry.note)

    def _concerns(self, asked: Callable[[Concern], bool]) -> Iterator[Effect]:
        for each in self._entries:
            if isinstance(each, Concern) and asked(each):
                before, after = value_at(self.standing, each.path), value_at(self.resource.inputs, each.path)
                found = _found(each, before, after)
                if found:
                    note = found if isinstance(found, str) else ""
                    loses = each.loses and found != KNOWN_BY_UP
                    yield Effect(each.words, (PathChange(each.path, before, after),), note, loses)

    def _is_touched(self, concern: Concern) -> bool:
        gone = [path.path for _, path in kept_inputs(self.change)]
        return any(
            within(concern.path, path.path) or concern.path.startswith(f"{path.path}.")
            for path in self.change.paths
            if path.path not in gone
        )

    def _is_explained(self, path: PathChange) -> bool:
        """Return whether entries cover every change under a path, or a replaced resource causes it."""
        if path.cause in self.replaced or any(path is kept for _, kept in kept_inputs(self.change)):
            return True
        covered = [each if isinstance(each, str) else each.path for each in self._entries]
        values = (*leaves(path.path, path.before), *leaves(path.path, path.after))
        changed = {leaf for leaf, value in values if value is not None} or {path.path}
        return all(any(within(each, leaf) for each in covered) for leaf in changed)


def _found(concern: Concern, before: Any, after: Any) -> bool | str:
    if after == UNKNOWN != before:
        return KNOWN_BY_UP
    try:
        return concern.when(before, after)
    except (ValueError, TypeError, KeyError, AttributeError):
        # A foreign program may give a value that no provider takes.
        return UNREADABLE


def _brief(brief: Brief, resource: Resource, unsaid: str) -> tuple[Effect, ...]:
    words = brief(resource) if callable(brief) else unsaid if brief is None else brief
    return (Effect(words),) if words else ()
