"""Conversion of a policy pack's view of resources to the graph that the rules check, and the rules' findings.

``policy/__main__.py`` passes the engine's answers; nothing here imports Pulumi's policy SDK, so tests call it with
recorded resources.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from trainium_eks.model.config.stack_config import decode
from trainium_eks.model.finding import Finding
from trainium_eks.plan import rules, waivers
from trainium_eks.plan.graph import RETAIN_ON_DELETE, SECRETS, STACK_TYPE, UNKNOWN, Graph, Options, Resource
from trainium_eks.plan.resource_types import registry
from trainium_eks.plan.resource_types.paths import value_at
from trainium_eks.plan.rules import RULES, Rule, RuleResult, may_be_unseen

_MADE_UP = re.compile(r"-[0-9a-f]{7,8}")
"""The end of a name that a provider makes of a logical name: 7 digits in AWS, 8 in Kubernetes."""

_UNKNOWNS = frozenset(
    {
        "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",
        "3eeb2bf0-c639-47a8-9e75-3b44932eb421",
        "04da6b54-80e4-46f7-96ec-b56ff0331ba9",
        "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",
        "030794c1-ac77-496b-92df-f27374a8bd58",
        "e48ece36-62e2-4504-bad9-02848725956a",
        "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",
    }
)
"""Texts that the engine sends for an unknown value of each kind (sdk/go/common/resource/plugin/rpc.go)."""


class SeenOptions(Protocol):
    """The attributes of the SDK's ``PolicyResourceOptions`` that are read."""

    protect: bool
    ignore_changes: Sequence[str]
    additional_secret_outputs: Sequence[str]


class SeenProvider(Protocol):
    """The SDK's ``PolicyProviderResource``."""

    urn: str


class SeenResource(Protocol):
    """The SDK's ``PolicyResource``."""

    urn: str
    resource_type: str
    name: str
    props: Mapping[str, Any]
    """Outputs in a stack policy, inputs in a resource policy."""
    opts: SeenOptions
    provider: SeenProvider | None
    """None for components."""
    parent: "SeenResource | None"
    dependencies: "Sequence[SeenResource]"
    property_dependencies: "Mapping[str, Sequence[SeenResource]]"


@dataclass
class Pack:
    """One run of an engine: inputs are remembered as resources are registered, and checked together at the end.

    A stack policy sees outputs alone. They lack the properties that a provider does not return (all of them, for a
    Kubernetes object in a first preview), so the inputs come from a policy that sees each resource before it is made.
    """

    project: str
    stack: str
    config: Mapping[str, str]
    """Full config key to its text, as the engine passes them."""
    preview: bool
    _inputs: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _judged: tuple[Graph, tuple[RuleResult, ...]] | None = None

    def remember(self, urn: str, inputs: Mapping[str, Any]) -> None:
        """Keep the inputs of a resource that is about to be registered."""
        self._inputs[urn] = plain(inputs)
        self._judged = None

    def broken(self, rule: Rule, resources: Iterable[SeenResource]) -> tuple[Finding, ...]:
        """Return the findings against a rule that no waiver covers. Raise NotSeenError when no visible value breaks the
        rule, and an invisible one may."""
        graph, verdicts = self._judge(resources)
        verdict = next(each for each in verdicts if each.id == rule.id)
        # Of a waived rule, too: where nothing broke it for certain, its waiver may be stale.
        failures = verdict.failures
        seen = tuple(each for each in failures if not (self.preview and may_be_unseen(rule, each, graph)))
        if failures and not seen:
            raise NotSeenError("some values are known only during the update")
        if verdict.unseen and not failures:
            raise NotSeenError("; ".join(dict.fromkeys(each.text for each in verdict.unseen)))
        return seen if verdict.status == "fail" else ()

    def not_judged(self, resources: Sequence[SeenResource]) -> str:
        """Return one line with the rules that the engine's view leaves open, each with the reason; empty without
        any."""
        reasons: dict[str, list[str]] = {}
        for rule in RULES:
            try:
                self.broken(rule, resources)
            except NotSeenError as reason:
                reasons.setdefault(str(reason), []).append(rule.id)
        said = "; ".join(f"{', '.join(ids)} ({reason})" for reason, ids in reasons.items())
        graph, _ = self._judge(resources)
        waived = [each for ids in reasons.values() for each in ids if each in waivers.of(graph)]
        open_ = f"; nor is whether their waivers are stale: {', '.join(waived)}" if waived else ""
        return f"not judged by this policy pack, but by `trn plan`: {said}{open_}" if said else ""

    def stale_waivers(self, resources: Iterable[SeenResource]) -> tuple[str, ...]:
        """Return one line for each waiver that has expired or excuses nothing."""
        graph, verdicts = self._judge(resources)
        return rules.stale_waivers(graph, verdicts)

    def graph(self, resources: Iterable[SeenResource]) -> Graph:
        """Return the graph of the resources that the engine showed."""
        found = sorted((self._resource(each) for each in resources), key=lambda each: each.urn)
        kept = tuple(each for each in found if not _is_default_provider(each))
        outputs = next((each.outputs for each in kept if each.type == STACK_TYPE), {})
        prefix = f"{self.project}:"
        own = {key.removeprefix(prefix): text for key, text in self.config.items() if key.startswith(prefix)}
        untold = frozenset({RETAIN_ON_DELETE, SECRETS})
        return Graph(self.project, self.stack, kept, outputs=outputs, config=decode(own), untold=untold)

    def _judge(self, resources: Iterable[SeenResource]) -> tuple[Graph, tuple[RuleResult, ...]]:
        """Return the graph and the verdicts, computed once: the SDK calls each policy with the resources read anew."""
        if self._judged is None:
            graph = self.graph(resources)
            self._judged = graph, rules.judge(graph)
        return self._judged

    def _resource(self, seen: SeenResource) -> Resource:
        outputs = plain(seen.props)
        return Resource(
            urn=seen.urn,
            type=seen.resource_type,
            name=seen.name,
            parent=seen.parent.urn if seen.parent else "",
            custom=seen.resource_type.startswith("pulumi:providers:")
            or (seen.provider is not None and seen.resource_type != "eks:index:Cluster"),
            inputs=_as_given(seen, self._inputs.get(seen.urn, outputs)),
            outputs=outputs,
            dependencies=tuple(sorted(each.urn for each in seen.dependencies)),
            property_dependencies={
                name: tuple(each.urn for each in sources) for name, sources in seen.property_dependencies.items()
            },
            provider=seen.provider.urn if seen.provider else "",
            options=Options(
                protect=seen.opts.protect,
                ignore_changes=tuple(seen.opts.ignore_changes),
                additional_secret_outputs=tuple(seen.opts.additional_secret_outputs),
            ),
        )


class NotSeenError(Exception):
    """A rule that cannot be checked in this preview."""


def plain(value: Any) -> Any:
    """Return a value of the policy SDK as the recorder has it: whole numbers as int, unknowns as :data:`UNKNOWN`.

    The SDK's own containers raise when an unknown value is read, and give their content under ``__target``.
    """
    if isinstance(value, str):
        return UNKNOWN if value in _UNKNOWNS else value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping | Sequence) and not isinstance(value, dict | list | tuple):
        return plain(value["__target"])  # type: ignore[call-overload]
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, Sequence):
        return [plain(each) for each in value]
    return value


def _as_given(seen: SeenResource, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the inputs as the program gave them, without a name that the provider's Check made of the logical one.

    An analyzer sees the inputs after Check. A default that Check fills in describes the resource to be made, and stays;
    a name would read as the program's own choice.
    """
    row = registry.find(seen.resource_type)
    path = row.named_by[-1] if row is not None and row.named_by else ""
    name = value_at(inputs, path) if "." not in path else None
    if not isinstance(name, str) or not _MADE_UP.fullmatch(name.removeprefix(seen.name)):
        return inputs
    return {key: value for key, value in inputs.items() if key != path}


def _is_default_provider(resource: Resource) -> bool:
    """Return whether the engine added a provider for component packages; the library makes no resource with it."""
    return resource.type.startswith("pulumi:providers:") and resource.name.startswith("default")
