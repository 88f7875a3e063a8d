"""The graph of a recorded program: resources, their options, and the edges that order them.

Standard library and the plain model only, so that rules, cost and timeline can be read and run anywhere. The JSON form
(:meth:`Graph.to_json`) crosses between a program's process and the command line.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from trainium_eks.model.validation.unseen import UNSEEN

SCHEMA_VERSION = 1
"""Version of the JSON form. It changes when a field is removed or changes meaning, not when one is added."""

UNKNOWN = "[unknown]"
"""Placeholder of a value that only ``pulumi up`` would know (recorded with ``dry_run``)."""

SECRET = UNSEEN
"""Placeholder of every secret value."""

STACK_TYPE = "pulumi:pulumi:Stack"

RETAIN_ON_DELETE = "retainOnDelete"
"""The fact whether a resource stays when it is removed from the program or the stack is destroyed."""

SECRETS = "secrets"
"""The fact which values are secret."""


@dataclass(frozen=True)
class Options:
    """The resource options that reach the engine, as the program gave them (inherited ones included)."""

    protect: bool = False
    retain_on_delete: bool = False
    delete_before_replace: bool = False
    deleted_with: str = ""
    """URN, or empty."""
    ignore_changes: tuple[str, ...] = ()
    replace_on_changes: tuple[str, ...] = ()
    additional_secret_outputs: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    custom_timeouts: Mapping[str, str] = field(default_factory=dict)
    """``create``, ``update``, ``delete`` to a Go duration (``30m``)."""
    import_id: str = ""
    version: str = ""


@dataclass(frozen=True)
class Resource:
    """One registration."""

    urn: str
    type: str
    """Type token: ``aws:ec2/vpc:Vpc``, ``kubernetes:helm.sh/v3:Release``, ``trainium-eks:index:Network``."""
    name: str
    parent: str = ""
    """URN of the parent; empty for the stack alone."""
    custom: bool = True
    """False for components."""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """As sent to the provider: camelCase, whole numbers as int, secrets as :data:`SECRET`."""
    outputs: Mapping[str, Any] = field(default_factory=dict)
    """Answer of the (simulated) provider, or the outputs that a component registered."""
    dependencies: tuple[str, ...] = ()
    """URNs, sorted: ``depends_on`` and every resource with an output that is an input here."""
    property_dependencies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Input name to the URNs it came from."""
    provider: str = ""
    """URN of the explicit provider, or empty for the default one."""
    options: Options = Options()


@dataclass(frozen=True)
class Graph:
    """A whole recorded program, sorted by URN."""

    project: str
    stack: str
    resources: tuple[Resource, ...]
    outputs: Mapping[str, Any]
    config: Mapping[str, Any] = field(default_factory=dict)
    """The project's config, decoded, without namespace; secrets as :data:`SECRET`."""
    simulated: tuple[str, ...] = ()
    """Packages with made-up answers (``aws``, ``eks``, ``kubernetes``)."""
    warnings: tuple[str, ...] = ()
    placeholders: tuple[str, ...] = ()
    """Look-ups with a made-up answer, one line each."""
    untold: frozenset[str] = frozenset()
    """Facts that are unknown for every resource: :data:`RETAIN_ON_DELETE`, :data:`SECRETS`. A policy pack's graph lists
    them; a recorded program's graph lists none."""
    unjudged: tuple[str, ...] = ()
    """Resource types that are not known here, and types of components that another package builds: they are shown, and
    neither priced, timed nor checked by rules."""

    @cached_property
    def by_urn(self) -> Mapping[str, Resource]:
        """Resource by URN."""
        return {resource.urn: resource for resource in self.resources}

    @cached_property
    def _by_type(self) -> Mapping[str, tuple[Resource, ...]]:
        found: dict[str, list[Resource]] = {}
        for resource in self.resources:
            found.setdefault(resource.type, []).append(resource)
        return {type_: tuple(resources) for type_, resources in found.items()}

    @cached_property
    def _children(self) -> Mapping[str, tuple[Resource, ...]]:
        found: dict[str, list[Resource]] = {}
        for resource in self.resources:
            found.setdefault(resource.parent, []).append(resource)
        return {parent: tuple(resources) for parent, resources in found.items()}

    @cached_property
    def not_simulated(self) -> tuple[Resource, ...]:
        """The resources of unknown types, and the components without their parts (a component that was built here
        has outputs)."""
        return tuple(
            each for each in self.resources if each.type in self.unjudged and (each.custom or not each.outputs)
        )

    def of_type(self, *types: str) -> tuple[Resource, ...]:
        """Return the resources of these type tokens, in URN order within each type."""
        return tuple(resource for type_ in types for resource in self._by_type.get(type_, ()))

    def children(self, urn: str) -> tuple[Resource, ...]:
        """Return the direct children of a URN."""
        return self._children.get(urn, ())

    def descendants(self, urn: str) -> Iterator[Resource]:
        """Yield children, their children and so on."""
        for child in self.children(urn):
            yield child
            yield from self.descendants(child.urn)

    def ancestors(self, resource: Resource) -> Iterator[Resource]:
        """Yield parent, its parent and so on, the stack last."""
        while resource.parent and (parent := self.by_urn.get(resource.parent)) is not None:
            yield parent
            resource = parent

    def component_of(self, resource: Resource) -> Resource | None:
        """Return the nearest component above a resource (itself excluded), or None directly under the stack."""
        return next(
            (above for above in self.ancestors(resource) if not above.custom and above.type != STACK_TYPE), None
        )

    @property
    def production(self) -> bool:
        """Whether the environment is held to the production rules."""
        return self.config.get("production") is True

    def to_json(self) -> dict[str, Any]:
        """Return the versioned JSON form; camelCase keys, deterministic order."""
        return {
            "schemaVersion": SCHEMA_VERSION,
            "project": self.project,
            "stack": self.stack,
            "resources": [_camel_keys(asdict(resource)) for resource in self.resources],
            "outputs": dict(self.outputs),
            "config": dict(self.config),
            "simulated": list(self.simulated),
            "warnings": list(self.warnings),
            "placeholders": list(self.placeholders),
            "unjudged": list(self.unjudged),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "Graph":
        """Return the graph of a JSON form (:meth:`to_json`); unknown keys (a plan's cost, its rules) are ignored,
        and another schema version is a ValueError that names both."""
        if data.get("schemaVersion") != SCHEMA_VERSION:
            raise ValueError(f"plan has schema version {data.get('schemaVersion')}, this tool reads {SCHEMA_VERSION}")
        return Graph(
            project=data["project"],
            stack=data["stack"],
            resources=tuple(_resource(item) for item in data["resources"]),
            outputs=data["outputs"],
            config=data.get("config", {}),
            simulated=tuple(data.get("simulated", ())),
            warnings=tuple(data.get("warnings", ())),
            placeholders=tuple(data.get("placeholders", ())),
            unjudged=tuple(data.get("unjudged", ())),
        )


_TUPLES = {"dependencies", "ignore_changes", "replace_on_changes", "additional_secret_outputs", "aliases"}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)


def _camel_keys(record: dict[str, Any]) -> dict[str, Any]:
    """Return a dataclass record with camelCase keys; the keys of foreign data do not change."""
    out: dict[str, Any] = {}
    for name, value in record.items():
        plain = _camel_keys(value) if name == "options" else value
        out[_camel(name)] = list(plain) if isinstance(plain, tuple) else plain
    return out


def _resource(item: Mapping[str, Any]) -> Resource:
    def fields_of(cls: type, data: Mapping[str, Any]) -> dict[str, Any]:
        values = {name: data[_camel(name)] for name in cls.__dataclass_fields__ if _camel(name) in data}  # type: ignore[attr-defined]
        return {name: tuple(value) if name in _TUPLES else value for name, value in values.items()}

    values = fields_of(Resource, item)
    values["options"] = Options(**fields_of(Options, item["options"]))
    values["property_dependencies"] = {
        key: tuple(urns) for key, urns in values.get("property_dependencies", {}).items()
    }
    return Resource(**values)
