"""A registration as Pulumi's SDK sends it, and as the graph keeps it."""

from collections.abc import Mapping
from typing import Any

from pulumi.runtime.proto import alias_pb2, resource_pb2

from trainium_eks.plan.graph import Options, Resource
from trainium_eks.plan.recording import wire

Request = resource_pb2.RegisterResourceRequest


def resource(request: Request, urn: str) -> Resource:
    """Return the resource that the graph keeps of a request, secrets masked."""
    return Resource(
        urn=urn,
        type=request.type,
        name=request.name,
        parent=request.parent,
        custom=request.custom,
        inputs=wire.decode(request.object, mask=True),
        dependencies=tuple(sorted(request.dependencies)),
        property_dependencies={
            key: tuple(sorted(request.propertyDependencies[key].urns)) for key in sorted(request.propertyDependencies)
        },
        provider=provider_urn(request.provider),
        options=_options(request),
    )


def request(child: Resource) -> Request:
    """Return the request for a child that a component registers in another process, from the child's known options."""
    options = child.options
    return Request(
        type=child.type,
        name=child.name,
        parent=child.parent,
        custom=child.custom,
        object=wire.encode(child.inputs),
        dependencies=child.dependencies,
        propertyDependencies={
            key: Request.PropertyDependencies(urns=urns) for key, urns in child.property_dependencies.items()
        },
        provider=f"{child.provider}::{child.name}" if child.provider else "",
        protect=options.protect,
        ignoreChanges=options.ignore_changes,
    )


def provider_urn(reference: str) -> str:
    """Return the URN of a provider reference, which is the URN, ``::`` and the id."""
    return reference.rpartition("::")[0]


def retain_on_delete(request: Request) -> bool | None:
    """Return the resource's own ``retainOnDelete``; None when it leaves that to its parent."""
    return request.retainOnDelete if request.HasField("retainOnDelete") else None


def _options(request: Request) -> Options:
    timeouts = request.customTimeouts
    return Options(
        protect=request.protect,
        retain_on_delete=request.retainOnDelete,
        delete_before_replace=request.deleteBeforeReplace,
        deleted_with=request.deletedWith,
        ignore_changes=tuple(request.ignoreChanges),
        replace_on_changes=tuple(request.replaceOnChanges),
        additional_secret_outputs=tuple(request.additionalSecretOutputs),
        aliases=tuple(_alias(alias) for alias in request.aliases),
        custom_timeouts={
            step: getattr(timeouts, step) for step in ("create", "update", "delete") if getattr(timeouts, step)
        },
        import_id=request.importId,
        version=request.version,
    )


def _alias(alias: alias_pb2.Alias) -> str:
    """Return a URN unchanged; a spec as ``name=old type=… parent=…`` (only the given parts)."""
    if alias.WhichOneof("alias") == "urn":
        return alias.urn
    spec = alias.spec
    parts: Mapping[str, Any] = {
        "name": spec.name,
        "type": spec.type,
        "stack": spec.stack,
        "project": spec.project,
        "parent": spec.parentUrn,
        "no-parent": "true" if spec.noParent else "",
    }
    return " ".join(f"{key}={value}" for key, value in parts.items() if value)
