"""The transforms of a program: functions that change registrations, which the engine calls back.

The order is the engine's (Pulumi's ``source_eval.go``): a resource's own, then its parent's, the parent's parent's
and so on, then the stack's. The older ``transformations`` are applied by the SDK itself, before it sends a request.
"""

import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from google.protobuf.message import Message  # type: ignore[import-untyped]
from pulumi.runtime.proto import callback_pb2, resource_pb2

from trainium_eks.plan.recording.registration import Request

# Field of TransformResourceOptions to the field of the registration with the same meaning.
_FIELDS = {
    "depends_on": "dependencies",
    "protect": "protect",
    "ignore_changes": "ignoreChanges",
    "replace_on_changes": "replaceOnChanges",
    "version": "version",
    "aliases": "aliases",
    "provider": "provider",
    "custom_timeouts": "customTimeouts",
    "plugin_download_url": "pluginDownloadURL",
    "retain_on_delete": "retainOnDelete",
    "deleted_with": "deletedWith",
    "delete_before_replace": "deleteBeforeReplace",
    "additional_secret_outputs": "additionalSecretOutputs",
    "providers": "providers",
    "import": "importId",
    "replace_with": "replace_with",
}

_M = TypeVar("_M", bound=Message)

Run = Callable[[str, Message], bytes]
"""Function that calls the transform of a token, and returns its answer as the SDK would send it."""


class Transforms:
    """The transforms of one program. Threads of registrations call them, each for one registration at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stack: list[str] = []
        self._invoke: list[str] = []
        self._own: dict[str, tuple[str, ...]] = {}
        self._parents: dict[str, str] = {}

    def add_for_stack(self, callback: callback_pb2.Callback) -> None:
        """Add a transform for every resource that is registered from now on."""
        with self._lock:
            self._stack.append(callback.token)

    def add_for_invokes(self, callback: callback_pb2.Callback) -> None:
        """Add a transform for every look-up from now on."""
        with self._lock:
            self._invoke.append(callback.token)

    def of_registration(self, request: Request, urn: str, run: Run) -> Request:
        """Return the registration as its transforms leave it; the given request is not changed."""
        own = tuple(callback.token for callback in request.transforms)
        with self._lock:
            self._own[urn], self._parents[urn] = own, request.parent
            tokens = (*own, *self._above(request.parent), *self._stack)
        for token in tokens:
            asked = resource_pb2.TransformRequest(
                type=request.type,
                name=request.name,
                custom=request.custom,
                parent=request.parent,
                properties=request.object,
                options=_options(request),
            )
            request = _changed(request, resource_pb2.TransformResponse.FromString(run(token, asked)))
        return request

    def of_invoke(self, request: resource_pb2.ResourceInvokeRequest, run: Run) -> resource_pb2.ResourceInvokeRequest:
        """Return the look-up as its transforms leave it."""
        with self._lock:
            tokens = tuple(self._invoke)
        for token in tokens:
            asked = resource_pb2.TransformInvokeRequest(token=request.tok, args=request.args)
            answer = resource_pb2.TransformInvokeResponse.FromString(run(token, asked))
            if answer.HasField("args"):
                request = _copy(request)
                request.args.CopyFrom(answer.args)
        return request

    def _above(self, urn: str) -> Iterator[str]:
        while urn:
            yield from self._own.get(urn, ())
            urn = self._parents.get(urn, "")


def _options(request: Request) -> resource_pb2.TransformResourceOptions:
    options = resource_pb2.TransformResourceOptions()
    for field, source in _FIELDS.items():
        _carry(request, source, options, field)
    if not request.deleteBeforeReplaceDefined:
        options.ClearField("delete_before_replace")
    return options


def _changed(request: Request, answer: resource_pb2.TransformResponse) -> Request:
    changed = _copy(request)
    if answer.HasField("properties"):
        changed.object.CopyFrom(answer.properties)
        for key in set(changed.propertyDependencies) - set(answer.properties.fields):
            del changed.propertyDependencies[key]
    if answer.HasField("options"):
        for field, target in _FIELDS.items():
            changed.ClearField(target)  # type: ignore[arg-type]  # the stubs know literals alone
            _carry(answer.options, field, changed, target)
        changed.deleteBeforeReplaceDefined = answer.options.HasField("delete_before_replace")
    return changed


def _carry(source: Message, field: str, target: Message, name: str) -> None:
    """Copy a field, if it is set, to another message's field of the same type."""
    described = source.DESCRIPTOR.fields_by_name[field]
    value = getattr(source, field)
    if described.has_presence and not source.HasField(field):
        return
    if described.message_type is not None and described.message_type.GetOptions().map_entry:
        getattr(target, name).update(value)
    elif described.is_repeated:
        getattr(target, name).extend(value)
    elif described.message_type is not None:
        getattr(target, name).CopyFrom(value)
    else:
        setattr(target, name, value)


def _copy(message: _M) -> _M:
    copied: _M = type(message)()
    copied.CopyFrom(message)
    return copied
