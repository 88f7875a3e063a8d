"""The rules: requirements of a good environment, checked in the recorded program.

Standard library and the plain model only, so that a plan, a test and any holder of a graph can run them. Each rule is a
function over the graph that returns a finding for every resource it met; a rule that met none does not apply.

Rules read the registrations of any program, with objects made by hand beside a component. A rule that repeats a check
of the config by the model's ``validate()`` names the module in its docstring: it guards access, data or money, which a
program without this config can lose, too. Facts (sizes, ports, ranges, versions) are the model's own.
"""

import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Literal

from trainium_eks.model.finding import Finding, Status
from trainium_eks.plan import waivers
from trainium_eks.plan.graph import UNKNOWN, Graph
from trainium_eks.plan.reading import leaves, show
from trainium_eks.plan.rules._rule import Rule, Severity

__all__ = [
    "CONFIG_ALONE",
    "NOT_JUDGED",
    "RULES",
    "STANDING_WAIVERS",
    "Rule",
    "RuleResult",
    "RuleStatus",
    "Severity",
    "judge",
    "may_be_unseen",
    "stale_waivers",
]

RuleStatus = Literal["pass", "fail", "waived", "n/a", "unseen"]
"""Result of a rule; ``unseen``: no fault was found, and a part that could be one cannot be seen here."""

_MODULES = (
    import_module(each.name) for each in pkgutil.iter_modules(__path__, f"{__name__}.") if "._" not in each.name
)

_FOUND = {each for module in _MODULES for each in vars(module).values() if isinstance(each, Rule)}

RULES: tuple[Rule, ...] = tuple(sorted(_FOUND, key=lambda rule: rule.id))

NOT_JUDGED: Mapping[str, str] = {
    "R64": "Resource names stay the same from release to release. One plan cannot show it: the tests compare each"
    " environment's URNs with the last release's list, and `trn plan --against` compares two plans.",
}
"""Rules that need more than one recorded program, each with the place of its check."""

CONFIG_ALONE: Mapping[str, str] = {
    "R24": "Give each EFA type all its interfaces: an entry of `instanceTypes` differs from EC2 in their number.",
    "R43": "Use EFA on Lustre only where nodes can: `fileSystem.efaEnabled` costs larger size steps.",
    "R58": "Run Volcano twice: with `volcano.replicas` 1 a lost scheduler or webhook stops every new job.",
    "R60": "Let jobs create pods while a pool has no nodes: `volcano.scaleFromZero` is off, and a pool rests at zero.",
    "R80": "Let Cluster Autoscaler buy no more than a queue may use: a group's `maxSize` is above that.",
    "R91": "Let the first update reach a private endpoint: it needs an existing network with a machine in it.",
}
"""Ids that a waiver names and that the config's own checks alone ask for: no resource of a plan is judged by them."""

STANDING_WAIVERS: Mapping[str, str] = {
    "R07": "pulumi-eks always makes the cluster's creator an administrator (pulumi-eks#2373); apart from that,"
    " access entries are the only way in.",
}
"""Waivers of the library itself, in force everywhere, each with its reason."""


@dataclass(frozen=True)
class RuleResult:
    """Result of one rule for a program."""

    id: str
    title: str
    severity: Severity
    source: str
    status: RuleStatus
    reason: str
    """Reason of the waiver, or a note that the waiver is stale; empty without a waiver."""
    findings: tuple[Finding, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the verdict with its findings: the URN, whether it keeps the rule (null where that is not seen)."""
        kept = {Status.PASS: True, Status.FAIL: False}
        findings = [{"urn": each.subject, "ok": kept.get(each.status), "message": each.text} for each in self.findings]
        return {**vars(self), "findings": findings}

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The failed findings; a waived rule keeps them."""
        return tuple(finding for finding in self.findings if finding.status is Status.FAIL)

    @property
    def unseen(self) -> tuple[Finding, ...]:
        """The findings beyond the graph of this graph."""
        return tuple(finding for finding in self.findings if finding.status is Status.NOT_CHECKED)


def judge(graph: Graph, accepted: Mapping[str, str] | None = None) -> tuple[RuleResult, ...]:
    """Return every rule's verdict on a program, by id. In a program recorded with ``dry_run`` ids are unknown, and
    rules that follow them fail, or are unseen. ``accepted`` (rule id to reason) replaces the environment's currently
    valid waivers; the library's :data:`STANDING_WAIVERS` always apply."""
    given = waivers.of(graph)
    own = {id_: each.reason for id_, each in given.items() if each.holds} if accepted is None else dict(accepted)
    return tuple(_verdict(rule, tuple(_seen(rule, graph, rule.check(graph))), own) for rule in RULES)


def may_be_unseen(rule: Rule, finding: Finding, graph: Graph) -> bool:
    """Return whether a fault may exist only because a value is not known."""
    if rule.follows_ids and any(value == UNKNOWN for each in graph.resources for _, value in leaves(each.inputs)):
        return True
    return show(UNKNOWN) in finding.text or UNKNOWN in finding.text


def _seen(rule: Rule, graph: Graph, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings. In a foreign program a fault may be one of the plan alone: its value is not known, or the
    missing part is in a component without its parts."""
    alone = {each.urn for each in graph.not_simulated}
    for each in findings:
        apart = each.subject in alone and " is missing" in each.text
        unknown = apart or ((alone or graph.placeholders) and may_be_unseen(rule, each, graph))
        yield replace(each, status=Status.NOT_CHECKED) if each.status is Status.FAIL and unknown else each


def stale_waivers(graph: Graph, verdicts: Iterable[RuleResult]) -> tuple[str, ...]:
    """Return one line for each waiver of the environment's config that fails the plan: it has expired, ends too late,
    or excuses nothing (its rule passes, does not apply, is not checked in a plan, or does not exist)."""
    return waivers.stale(graph, {verdict.id: verdict.status for verdict in verdicts}, NOT_JUDGED)


def _verdict(rule: Rule, findings: tuple[Finding, ...], own: Mapping[str, str]) -> RuleResult:
    waiver = own.get(rule.id) or STANDING_WAIVERS.get(rule.id, "")
    status: RuleStatus
    if not findings:
        status, reason = "n/a", ""
    elif all(finding.status is not Status.FAIL for finding in findings):
        status, reason = ("pass" if all(finding.status is Status.PASS for finding in findings) else "unseen"), ""
    else:
        status, reason = ("waived", waiver) if waiver else ("fail", "")
    if status in ("n/a", "pass") and rule.id in own:
        reason = f"stale waiver: {own[rule.id]}"
    return RuleResult(rule.id, rule.title, rule.severity, rule.source, status, reason, findings)
