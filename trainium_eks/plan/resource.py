"""A resource of a recorded program, with its options."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainium_eks.model.validation.unseen import UNSEEN

SCHEMA_VERSION = 1
"""Version of a graph's JSON form. It changes when a field is removed or changes meaning, not when one is added."""

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
