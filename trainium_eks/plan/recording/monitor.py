"""The resource monitor that records a program's registrations, in the engine's place."""

import hashlib
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from google.protobuf import empty_pb2, struct_pb2  # type: ignore[import-untyped]
from google.protobuf.message import Message  # type: ignore[import-untyped]
from pulumi.runtime.proto import callback_pb2, engine_pb2, provider_pb2, resource_pb2

from trainium_eks.model.validation import limits
from trainium_eks.plan import sdk
from trainium_eks.plan.backend import Backend, SimulationError, UnknownTypeError
from trainium_eks.plan.graph import SECRET, STACK_TYPE, UNKNOWN, Graph, Resource
from trainium_eks.plan.recording import eks_cluster, registration, wire
from trainium_eks.plan.recording.assumptions import Assumptions
from trainium_eks.plan.recording.lookups import Lookups, UnknownLookupError
from trainium_eks.plan.recording.transforms import Run, Transforms

_GET_RESOURCE = "pulumi:pulumi:getResource"
_KUSTOMIZATION = "kubernetes:kustomize/v2:Directory"
_STACK_REFERENCE = "pulumi:pulumi:StackReference"
_READ_STACK_OUTPUTS = "pulumi:pulumi:readStackOutputs"
_PROVIDERS = "pulumi:providers:"


class RecordingError(Exception):
    """A program that cannot be recorded. The message has one line for each fault, with its place."""


class Engine:
    """Collector of the program's warnings and errors."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def Log(self, request: engine_pb2.LogRequest) -> empty_pb2.Empty:  # noqa: N802 (name of the RPC)
        """Keep a warning or an error of ``pulumi.log`` and ignore other messages."""
        if request.severity == engine_pb2.WARNING:
            self.messages.append(request.message)
        elif request.severity == engine_pb2.ERROR:
            self.messages.append(f"error: {request.message}")
        return empty_pb2.Empty()

    def RequirePulumiVersion(  # noqa: N802
        self, _request: engine_pb2.RequirePulumiVersionRequest
    ) -> engine_pb2.RequirePulumiVersionResponse:
        """Accept any required version of the CLI, because no CLI takes part here."""
        return engine_pb2.RequirePulumiVersionResponse()


@dataclass
class _Entry:
    """A registration under construction."""

    resource: Resource
    retain_on_delete: bool | None


class Monitor(sdk.BaseMonitor):
    """Recorder of registrations. One instance records one program: ``errors`` has its faults, ``in_flight`` the
    ``<type> <name>`` of the registrations that the backend is working on, and ``run_callback``, set when the program
    runs, calls its transforms."""

    def __init__(
        self,
        backend: Backend,
        *,
        project: str,
        stack: str,
        dry_run: bool,
        region: str,
        secrets: Collection[str] = (),
        assumptions: Assumptions | None = None,
        foreign: bool = False,
    ) -> None:
        super().__init__()
        self.project = project
        self.stack = stack
        self.dry_run = dry_run
        self.engine = Engine()
        self.errors: list[str] = []
        self.in_flight: set[str] = set()
        self._backend = backend
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._outputs: dict[str, dict[str, Any]] = {}
        self._states: dict[str, tuple[str, struct_pb2.Struct]] = {}
        self._secrets = set(secrets)
        self._region = region
        self._transforms = Transforms()
        self._lookups = Lookups(assumptions) if assumptions is not None else None
        self._foreign = foreign or assumptions is not None
        self._unjudged: set[str] = set()
        self._read: set[str] = set()
        self.run_callback: Run | None = None

    @property
    def has_unknowns(self) -> bool:
        """Whether values may be unknown: in a preview, and when a foreign program is recorded."""
        return self.dry_run or self._foreign

    # --- what the SDK calls ---------------------------------------------------------------------------------------

    def make_urn(self, parent: str, type_: str, name: str) -> str:
        """Return the URN as the engine makes it: with the types of all parents, the stack left out."""
        qualified = parent.split("::")[2] if parent else ""
        if qualified and qualified != STACK_TYPE:
            type_ = f"{qualified}${type_}"
        return f"urn:pulumi:{self.stack}::{self.project}::{type_}::{name}"

    def RegisterResource(  # noqa: N802
        self, request: resource_pb2.RegisterResourceRequest
    ) -> resource_pb2.RegisterResourceResponse:
        """Record a resource or component and answer it."""
        urn = self.make_urn(request.parent, request.type, request.name)
        with self._checked(request):
            request = self._transforms.of_registration(request, urn, self._run)
            # Before any value is shown or kept: a secret may travel on inside another text.
            with self._lock:
                self._secrets |= wire.secret_texts(request.object)
            resource = registration.resource(request, urn)
            _refuse_outputs_as_text({"name": request.name, **resource.inputs})
            self._add(resource, registration.retain_on_delete(request))
            if request.remote:
                return self._construct(request, resource)
            if not request.custom:
                return resource_pb2.RegisterResourceResponse(urn=urn)
            secret = wire.secret_keys(request.object) | frozenset(request.additionalSecretOutputs)
            identity, state = self._create(resource, wire.decode(request.object, mask=False), secret)
            return resource_pb2.RegisterResourceResponse(
                urn=urn,
                id=identity,
                object=wire.encode(state, secret=secret),
            )

    def RegisterResourceOutputs(  # noqa: N802
        self, request: resource_pb2.RegisterResourceOutputsRequest
    ) -> empty_pb2.Empty:
        """Record the outputs of a component; the stack's outputs are the exports."""
        with self._lock:
            self._secrets |= wire.secret_texts(request.outputs)
            self._outputs[request.urn] = wire.decode(request.outputs, mask=True)
        try:
            _refuse_outputs_as_text(self._outputs[request.urn])
        except RecordingError as error:
            raise self._refused(f"{request.urn.rpartition('::')[2]}: output {error}") from None
        return empty_pb2.Empty()

    def Invoke(self, request: resource_pb2.ResourceInvokeRequest) -> resource_pb2.ResourceInvokeResponse:  # noqa: N802
        """Answer a look-up. Without assumptions, only the SDK's own for a component's resource is allowed."""
        if request.tok == _GET_RESOURCE:
            urn = request.args.fields["urn"].string_value
            identity, state = self._states[urn]
            fields = {"urn": urn, "id": identity}
            answer = wire.encode(fields)
            answer.fields["state"].struct_value.CopyFrom(state)
            return resource_pb2.ResourceInvokeResponse(**{"return": answer})
        if self._lookups is None:
            raise self._refused(
                f"the program calls {request.tok}, but look-ups are not allowed here: pass the value as an argument"
            )
        request = self._transforms.of_invoke(request, self._run)
        _, provider = self._states.get(registration.provider_urn(request.provider), ("", struct_pb2.Struct()))
        region = provider.fields["region"].string_value if "region" in provider.fields else ""
        arguments = wire.decode(request.args, mask=False)
        try:
            answer = (
                _stack_outputs(arguments["name"], self._lookups.stack_values(arguments["name"]))
                if request.tok == _READ_STACK_OUTPUTS
                else self._lookups.function(request.tok, arguments, region or self._region)
            )
        except UnknownLookupError as error:
            raise self._refused(str(error)) from None
        return resource_pb2.ResourceInvokeResponse(**{"return": wire.encode(answer)})

    def Call(self, request: resource_pb2.ResourceCallRequest) -> provider_pb2.CallResponse:  # noqa: N802
        """Answer a call of a resource's method."""
        if self._lookups is None:
            raise self._refused(f"the program calls the method {request.tok}, but look-ups are not allowed here")
        answer = self._lookups.method(request.tok, wire.decode(request.args, mask=False))
        return provider_pb2.CallResponse(**{"return": wire.encode(answer)})

    def ReadResource(self, request: resource_pb2.ReadResourceRequest) -> resource_pb2.ReadResourceResponse:  # noqa: N802
        """Answer ``.get()`` and references to other stacks: look-ups too. Such resources are not this
        stack's, and are not recorded."""
        urn = self.make_urn(request.parent, request.type, request.name)
        if self._lookups is None:
            raise self._refused(
                f"the program reads {request.type} {request.name}, but look-ups are not allowed here: pass its id and "
                "attributes"
            )
        if request.type == _STACK_REFERENCE:
            state: Mapping[str, Any] = _stack_outputs(request.id, self._lookups.stack_outputs(request.id))
        else:
            given = self._lookups.resource(request.type, request.name, request.id)
            state = {**wire.decode(request.properties, mask=False), **given}
        with self._lock:
            self._read.add(urn)
            self._states[urn] = (request.id, wire.encode(state))
        return resource_pb2.ReadResourceResponse(urn=urn, id=request.id, properties=wire.encode(state))

    def ExistsResource(self, request: resource_pb2.ExistsResourceRequest) -> Any:  # noqa: N802
        """Answer whether a resource exists: a look-up, too."""
        if self._lookups is None:
            raise self._refused(
                f"the program asks whether {request.type} {request.id} exists, but look-ups are not allowed here"
            )
        return resource_pb2.ExistsResourceResponse(exists=self._lookups.existing(request.type, request.id))

    def RegisterStackTransform(self, request: callback_pb2.Callback) -> empty_pb2.Empty:  # noqa: N802
        """Add a transform for every resource from now on."""
        self._transforms.add_for_stack(request)
        return empty_pb2.Empty()

    def RegisterStackInvokeTransform(self, request: callback_pb2.Callback) -> empty_pb2.Empty:  # noqa: N802
        """Add a transform for every look-up from now on."""
        self._transforms.add_for_invokes(request)
        return empty_pb2.Empty()

    def _run(self, token: str, request: Message) -> bytes:
        if self.run_callback is None:
            raise RecordingError("the program has not begun")
        return self.run_callback(token, request)

    # --- what is recorded -----------------------------------------------------------------------------------------

    def graph(self, config: Mapping[str, Any]) -> Graph:
        """Return the graph of all registrations, in an order that depends only on the program."""
        resources = [self._finished(self._entries[urn]) for urn in sorted(self._entries)]
        placeholders = self._lookups.placeholders if self._lookups is not None else ()
        stack_urn = next((resource.urn for resource in resources if resource.type == STACK_TYPE), "")
        simulated = {
            _package(resource.type)
            for resource in resources
            if resource.custom and self._backend.simulates(resource.type)
        } | {_package(resource.type) for resource in resources if resource.type == eks_cluster.TYPE}
        return Graph(
            project=self.project,
            stack=self.stack,
            resources=tuple(resources),
            outputs=wire.ordered(self._hide(self._outputs.get(stack_urn, {}))),
            config=wire.ordered(config),
            simulated=tuple(sorted(simulated - {"pulumi"})),
            warnings=tuple(sorted({str(self._hide(message)) for message in self.engine.messages})),
            placeholders=tuple(sorted(str(self._hide(each)) for each in placeholders)),
            unjudged=tuple(sorted(self._unjudged)),
        )

    def made_up_answers(self, stack: str) -> str:
        """Return the look-ups that got a placeholder, and how to give their answers; empty without any."""
        found = sorted(str(self._hide(each)) for each in self._lookups.placeholders) if self._lookups else []
        lines = (
            "These look-ups got made-up or empty answers, which may be the cause. Give the real ones in "
            f"answers.{stack}.yaml, or with --stub FILE (lookups: {{<function>: {{<field>: <value>}}}}):",
            *(f"- {each}" for each in found),
        )
        return "\n".join(lines) if found else ""

    def _finished(self, entry: _Entry) -> Resource:
        """Return a resource with its later outputs and the options that the engine (not the SDK) passes to children.

        The engine's list: ``inheritFromParent`` in Pulumi's ``source_eval.go``.
        """
        resource, options = entry.resource, entry.resource.options
        above: _Entry | None = entry
        while above is not None and above.retain_on_delete is None:
            above = self._entries.get(above.resource.parent)
        options = replace(options, retain_on_delete=bool(above and above.retain_on_delete))
        parent = self._entries.get(resource.parent)
        while not options.deleted_with and parent is not None:
            options = replace(options, deleted_with=parent.resource.options.deleted_with)
            parent = self._entries.get(parent.resource.parent)
        outputs = {**resource.outputs, **self._outputs.get(resource.urn, {})}
        return replace(
            resource,
            inputs=wire.ordered(self._hide(resource.inputs)),
            outputs=wire.ordered(self._hide(outputs)),
            options=options,
            # Resources that the program read are not this stack's, and exist already.
            dependencies=tuple(urn for urn in resource.dependencies if urn not in self._read),
            property_dependencies={
                name: kept
                for name, urns in resource.property_dependencies.items()
                if (kept := tuple(urn for urn in urns if urn not in self._read)) or not urns
            },
        )

    def _add(self, resource: Resource, retain_on_delete: bool | None) -> None:
        with self._lock:
            if resource.urn in self._entries:
                raise RecordingError(f"two resources have the URN {resource.urn}: give one of them another name")
            self._entries[resource.urn] = _Entry(resource, retain_on_delete)

    def _create(
        self, resource: Resource, inputs: dict[str, Any], secret: frozenset[str] = frozenset()
    ) -> tuple[str, dict[str, Any]]:
        """Record the backend's answer and return it: an id (empty when unknown) and the state."""
        subject = f"{resource.type} {resource.name}"
        self.in_flight.add(subject)
        try:
            identity, computed = self._answer(replace(resource, inputs=inputs))
        finally:
            self.in_flight.discard(subject)
        identity = resource.options.import_id or ("" if self.dry_run else identity)
        state = {**inputs, **(preview_state(computed, inputs) if self.dry_run else computed)}
        shown = {
            key: value if key not in secret else resource.inputs[key] if value == inputs.get(key) else SECRET
            for key, value in state.items()
        }
        with self._lock:
            self._secrets |= wire.secret_texts(
                wire.encode({key: state[key] for key in secret & state.keys()}, secret=secret)
            )
            self._states[resource.urn] = (identity, wire.encode(state, secret=secret))
            self._entries[resource.urn].resource = replace(resource, outputs={**shown, "id": identity or UNKNOWN})
        return identity, state

    def _answer(self, asked: Resource) -> tuple[str, Mapping[str, Any]]:
        try:
            return self._backend.create(asked)
        except UnknownTypeError:
            if not self._foreign:
                raise
        if not asked.type.startswith(_PROVIDERS):
            with self._lock:
                self._unjudged.add(asked.type)
        return f"sim-{hashlib.sha256(asked.urn.encode()).hexdigest()[:8]}", {}

    def _construct(
        self, request: resource_pb2.RegisterResourceRequest, component: Resource
    ) -> resource_pb2.RegisterResourceResponse:
        """Answer for a component that another process would build. Only ``eks:index:Cluster`` gets its children here,
        and not with every option."""
        if request.type == _KUSTOMIZATION:
            # Its provider fetches it during the update: the objects are the kustomization's, at its pinned ref.
            self.engine.messages.append(f"{component.name}: the objects of {request.type} are not in the plan")
            return resource_pb2.RegisterResourceResponse(urn=component.urn, object=wire.encode({"resources": []}))
        inputs = wire.decode(request.object, mask=False)
        beyond = (
            eks_cluster.unsupported_inputs(inputs)
            if request.type == eks_cluster.TYPE
            else "it is built by its own package"
        )
        if beyond and self._foreign:
            self.engine.messages.append(
                f"{component.name}: not simulated: {request.type} is a component that another package builds in its "
                "own process. What it creates is not in this plan, and its outputs are unknown"
            )
            with self._lock:
                self._unjudged.add(request.type)
            return resource_pb2.RegisterResourceResponse(urn=component.urn)
        if beyond:
            raise RecordingError(
                f"what {request.type} creates is unknown here, so a plan would leave it out ({beyond}). Use plain "
                "resources (for Helm charts: helm.v3.Release)"
            )
        provider = registration.provider_urn(request.providers["aws"]) if "aws" in request.providers else ""

        def create(child: Resource) -> tuple[str, Mapping[str, Any]]:
            child = replace(child, urn=self.make_urn(child.parent, child.type, child.name))
            asked = registration.request(child)
            changed = self._transforms.of_registration(asked, child.urn, self._run)
            if changed is not asked:
                child = registration.resource(changed, child.urn)
            self._add(child, None)
            identity, state = self._create(child, dict(child.inputs))
            return child.urn, {**state, "id": identity or UNKNOWN}

        outputs, cluster_urn = eks_cluster.construct(component, inputs, provider, create)
        with self._lock:
            self._outputs[component.urn] = {
                key: wire.decode(wire.encode({key: value}), mask=True)[key] for key, value in outputs.items()
            }
        return resource_pb2.RegisterResourceResponse(
            urn=component.urn,
            object=wire.encode(outputs),
            propertyDependencies={
                key: resource_pb2.RegisterResourceResponse.PropertyDependencies(urns=[cluster_urn]) for key in outputs
            },
        )

    # --- faults and secrets ---------------------------------------------------------------------------------------

    @contextmanager
    def _checked(self, request: resource_pb2.RegisterResourceRequest) -> Iterator[None]:
        """Keep the error of a registration: the SDK reports only one of several."""
        try:
            yield
        except (RecordingError, SimulationError) as error:
            raise self._refused(f"{request.name}: {error}", request) from None

    def _refused(self, message: str, request: resource_pb2.RegisterResourceRequest | None = None) -> RecordingError:
        position = request.sourcePosition if request is not None and request.HasField("sourcePosition") else None
        place = f" ({_place(position.uri)}:{position.line})" if position is not None and position.uri else ""
        self.errors.append(f"{self._hide(message)}{place}")
        return RecordingError(self.errors[-1])

    def _hide(self, value: Any) -> Any:
        """Return the value without any text that the program declared secret, at any place."""
        return wire.hidden(value, self._secrets)


def preview_state(computed: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of an answer that a first preview knows: the inputs. The provider computes the rest later."""

    def known(answer: Any, given: Any) -> Any:
        if isinstance(answer, Mapping) and isinstance(given, Mapping):
            return preview_state(answer, given)
        if isinstance(answer, list) and isinstance(given, list) and len(answer) == len(given):
            return [known(item, sent) for item, sent in zip(answer, given, strict=True)]
        return given

    return {key: known(value, inputs[key]) if key in inputs else UNKNOWN for key, value in computed.items()}


def _stack_outputs(name: str, outputs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the engine's answer about another stack; `pulumi stack output` without ``--show-secrets`` hides
    secrets as ``[secret]``."""
    secret = sorted(key for key, value in (outputs or {}).items() if value == SECRET)
    return {"name": name, "outputs": UNKNOWN if outputs is None else outputs, "secretOutputNames": secret}


def _refuse_outputs_as_text(data: Mapping[str, Any]) -> None:
    """Raise for a text that the SDK made of an Output: the engine would pass it on to the provider."""
    for fault in limits.outputs_as_text(data):
        raise RecordingError(f"{fault.path}: {fault.reason}; {fault.fix}")


def _package(type_: str) -> str:
    return type_.partition(":")[0]


def _place(uri: str) -> str:
    path = Path(unquote(urlparse(uri).path))
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
