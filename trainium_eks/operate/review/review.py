"""Review: all content of a comment, evaluated to a verdict with its reasons."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Literal

from trainium_eks.model.finding import Finding, Status
from trainium_eks.model.validation.problems import Problem
from trainium_eks.operate.review.preview import Preview
from trainium_eks.operate.review.risks import Risk, risks
from trainium_eks.plan import cost, rules, timeline
from trainium_eks.plan.cost import Cost
from trainium_eks.plan.differences import cost_difference, diff
from trainium_eks.plan.differences.changes import Changes
from trainium_eks.plan.differences.cost_difference import CostDifference
from trainium_eks.plan.differences.kept import with_kept_inputs
from trainium_eks.plan.graph import UNKNOWN, Graph
from trainium_eks.plan.rules import RuleResult
from trainium_eks.plan.timeline import Timeline

Lane = Literal["offline", "preview"]
"""Two plans without credentials, or the engine's own preview of an account."""


class Outcome(StrEnum):
    """The verdict."""

    SAFE = "SAFE"
    """Every change was understood, and none needs a look."""
    REVIEW = "REVIEW"
    """It can be deployed after a person has looked at it."""
    BLOCKED = "BLOCKED"
    """It cannot be deployed, or it loses data or running work without an approval."""


@dataclass(frozen=True)
class Side:
    """One of the two programs, evaluated on first use."""

    graph: Graph
    ruled: Graph | None
    """The program that rules are applied to: the plan where values of the first are unknown; None for none."""

    @cached_property
    def cost(self) -> Cost:
        """Return the cost of the program."""
        return cost.estimate(self.graph)

    @cached_property
    def timeline(self) -> Timeline:
        """Return the modelled time of a build from nothing."""
        return timeline.model(self.graph)

    @cached_property
    def verdicts(self) -> tuple[RuleResult, ...]:
        """Return the verdicts of the rules; none where rules are not applied."""
        return tuple(rules.judge(self.ruled)) if self.ruled is not None else ()

    @cached_property
    def failed(self) -> tuple[RuleResult, ...]:
        """Return the verdicts of rules that are broken and not waived."""
        return tuple(verdict for verdict in self.verdicts if verdict.status == "fail")

    @cached_property
    def stale_waivers(self) -> tuple[str, ...]:
        """Return one line for each waiver that has expired or excuses nothing; none where no rule was judged."""
        return rules.stale_waivers(self.graph, self.verdicts) if self.verdicts else ()

    @cached_property
    def by_id(self) -> Mapping[str, RuleResult]:
        """Return the verdicts by their rules' ids."""
        return {verdict.id: verdict for verdict in self.verdicts}


@dataclass(frozen=True)
class Refusal:
    """The reason for a missing program: its config is invalid, or it fails."""

    title: str
    problems: tuple[Problem, ...] = ()
    """Problems, with paths as the config spells them."""
    detail: str = ""
    """The program's traceback."""


@dataclass(frozen=True)
class Comparison:
    """The two programs and the changes between them."""

    before: Side
    after: Side
    changes: Changes
    phantom: frozenset[str] = frozenset()
    """URNs of replacements that will not happen."""
    whole: bool = True
    """Whether both programs are complete; if not, cost, time and rules cannot be judged."""
    certain: bool = True
    """Whether a broken rule is held against the change: rules about values which ``pulumi up`` alone knows fail for
    want of these values."""

    @cached_property
    def cost(self) -> CostDifference:
        """Return the difference of the costs."""
        return cost_difference.difference(self.before.cost, self.billed)

    @cached_property
    def billed(self) -> Cost:
        """Return the cost after the change: of the later program, and of the resources that AWS keeps after their
        removal."""
        graph = with_kept_inputs(self.after.graph, self.changes)
        return self.after.cost if graph is self.after.graph else cost.estimate(graph)

    @cached_property
    def risks(self) -> tuple[Risk, ...]:
        """Return the risks that a reviewer must see first."""
        return risks(self.before.graph, self.after.graph, self.changes, self.phantom)

    @cached_property
    def time(self) -> Timeline | None:
        """Return the modelled time of the created and replaced resources; None without any."""
        made = {
            change.resource.urn for change in self.changes.of("create", "replace") if self.real(change.resource.urn)
        }
        kept = tuple(each for each in self.after.graph.resources if not each.custom or each.urn in made)
        return timeline.model(replace(self.after.graph, resources=kept)) if made else None

    def real(self, urn: str) -> bool:
        """Return whether a change will happen, rather than only seem to."""
        return urn not in self.phantom


@dataclass(frozen=True)
class Review:
    """One environment of one pull request."""

    project: str
    stack: str
    lane: Lane
    since: str
    """The compared base: a commit, a file, the account."""
    comparison: Comparison | None = None
    refusal: Refusal | None = None
    """Refusal in place of a comparison, or beside it when the preview failed."""
    base_failed: str = ""
    """Reason why the base cannot be planned; empty when it can."""
    checks: tuple[Finding, ...] | None = None
    """The preflight's; None when it did not run."""
    losses_accepted: bool = False
    commit: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def outcome(self) -> Outcome:
        """Return the verdict."""
        if self.blockers:
            return Outcome.BLOCKED
        return Outcome.REVIEW if self.reservations else Outcome.SAFE

    @cached_property
    def blockers(self) -> tuple[str, ...]:
        """Return the reasons that block the change, in our words."""
        found = []
        if self.refusal:
            found.append("the program cannot be planned" if self.comparison is None else "the preview failed")
        if self.comparison:
            risky = self.comparison.risks
            found += _counted(sum(risk.weight == "refused" for risk in risky), "change", "cannot be deployed")
            if not self.losses_accepted:
                found += _counted(
                    _losses(risky),
                    "resource",
                    "with data or running work is lost",
                    "with data or running work are lost",
                )
            after = self.comparison.after
            if self.comparison.certain:
                found += _counted(len(after.failed), "rule", "is broken", "are broken")
                found += _counted(len(after.stale_waivers), "waiver", "is stale", "are stale")
            edges = len(after.timeline.forbidden_edges) + len(after.timeline.missing_edges)
            found += _counted(edges, "dependency", "is wrong", "are wrong", "dependencies")
        failed = sum(check.status is Status.FAIL for check in self.checks or ())
        return (*found, *_counted(failed, "preflight check", "fails", "fail"))

    @cached_property
    def reservations(self) -> tuple[str, ...]:
        """Return the reasons for a review by a person, in our words."""
        found: list[str] = []
        if self.base_failed:
            found.append("the base cannot be planned, so everything is shown as new")
        if self.comparison:
            compared = self.comparison
            found += _counted(len(compared.risks), "risk", "")
            going = compared.changes.of("replace", "delete")
            gone = [change for change in going if compared.real(change.resource.urn) and not change.harmless]
            if len(gone) > _losses(compared.risks):
                found += _counted(len(gone), "resource", "is replaced or deleted", "are replaced or deleted")
            if not compared.certain:
                found += _counted(len(compared.after.failed), "rule", "may be broken")
            if compared.cost.unknown:
                found.append("the cost is not known")
            elif _dearer(compared):
                found.append("it costs notably more")
            if not compared.whole:
                found.append("cost and rules are not judged")
            unjudged = len(compared.after.graph.unjudged)
            found += _counted(unjudged, "resource type", "is not simulated", "are not simulated")
        warned = sum(check.status is Status.WARN for check in self.checks or ())
        return (*found, *_counted(warned, "preflight check", "warns", "warn"))


def of_plans(before: Graph, after: Graph) -> Comparison:
    """Return the offline lane's comparison."""
    return Comparison(Side(before, before), Side(after, after), diff.compare(before, after))


def of_preview(preview: Preview, plan: Graph | None = None) -> Comparison:
    """Return the engine's comparison. Rules are judged on the plan where one is given: the same program as the offline
    lane records it, where every value is made up and none unknown."""
    # Rules are about whole environments: in a part they would miss the resources left out.
    before = Side(preview.before, preview.before if preview.whole else None)
    after = Side(preview.after, plan or (preview.after if preview.whole else None))
    certain = plan is not None or not any(UNKNOWN in json.dumps(each.inputs) for each in preview.after.resources)
    return Comparison(before, after, preview.changes, preview.phantom, preview.whole, certain)


DEARER_USD, DEARER_SHARE = 1.0, 0.1
"""Dollars an hour, and the share of the whole, from which a rise of the cost wants a look."""


def _dearer(compared: Comparison) -> bool:
    before = compared.before.cost
    steps = (
        (compared.cost.hourly_usd, before.hourly_usd),
        (compared.cost.maximum_hourly_usd, before.maximum_hourly_usd),
    )
    return any(rise is not None and rise >= max(DEARER_USD, DEARER_SHARE * whole) for rise, whole in steps)


def _losses(found: Iterable[Risk]) -> int:
    return sum(risk.weight == "loss" for risk in found)


def _counted(count: int, what: str, one: str, many: str = "", plural: str = "") -> list[str]:
    """Return ``2 rules are broken`` as a list of one line; empty for a count of 0."""
    if not count:
        return []
    words = f"{count} {what} {one}" if count == 1 else f"{count} {plural or what + 's'} {many or one}"
    return [words.strip()]


_WORST_FIRST = (Status.FAIL, Status.WARN, Status.NOT_CHECKED, Status.PASS, Status.NOT_APPLICABLE)


def findings(document: object) -> tuple[Finding, ...]:
    """Return the findings that ``trn check --json`` printed, the worst first: one, ``not checked``, of a run that
    failed before its first question, and of an unknown status. ValueError for a document with neither."""
    if not isinstance(document, Mapping):
        document = {}
    found, problems = document.get("findings"), document.get("problems")
    if not isinstance(found, list) and isinstance(problems, list):
        reasons = "; ".join(str(each.get("reason", "")) for each in problems if isinstance(each, Mapping))
        return (Finding(Status.NOT_CHECKED, "the preflight", reasons, id="preflight"),)
    if not isinstance(found, list):
        raise ValueError("it has no list `findings`")
    read = [_finding(each) for each in found if isinstance(each, Mapping)]
    return tuple(sorted(read, key=lambda each: (_WORST_FIRST.index(each.status), each.id)))


def _finding(data: Mapping[str, object]) -> Finding:
    id_, status, subject, text, fix = (str(data.get(key) or "") for key in ("id", "status", "subject", "text", "fix"))
    known = Status(status) if status in set(Status) else Status.NOT_CHECKED
    return Finding(known, subject or id_, text, fix, id_)
