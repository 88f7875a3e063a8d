"""The plan as data: a recorded program and all results computed from it, in one versioned JSON model."""

import json
import stat
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainium_eks import whole_file
from trainium_eks.client.failure import UsageError
from trainium_eks.plan import autoscaling, blocks, cost, goodput, rules, timeline
from trainium_eks.plan.autoscaling import Autoscaling
from trainium_eks.plan.blocks import PlannedBlock
from trainium_eks.plan.cost import Cost
from trainium_eks.plan.goodput import Training
from trainium_eks.plan.graph import Graph
from trainium_eks.plan.rules import RuleResult
from trainium_eks.plan.rules._endpoint import Endpoint, endpoints
from trainium_eks.plan.timeline import Timeline

if TYPE_CHECKING:
    from trainium_eks.operate.review.review import Review


@dataclass(frozen=True)
class Plan:
    """Everything that `trn plan` shows."""

    graph: Graph
    cost: Cost
    timeline: Timeline
    verdicts: tuple[RuleResult, ...]
    training: Training | None = None
    """Expected goodput of gangs; None where it has no accelerator nodes, or nothing to save on."""
    autoscaling: Autoscaling | None = None
    """Pools that scale automatically; None without such a pool."""
    blocks: tuple[PlannedBlock, ...] = ()
    """Capacity Blocks with their times, by start."""
    endpoints: tuple[Endpoint, ...] = ()
    """From where the Kubernetes API is reached, by cluster."""
    review: "Review | None" = None
    """Changes since an earlier program, with the verdict of a comment; None without one."""

    @property
    def failed(self) -> bool:
        """Whether a rule or an edge is broken and not waived, a waiver is stale, or the review blocks the change."""
        broken = self.timeline.forbidden_edges or self.timeline.missing_edges
        return bool(broken or self.stale_waivers or (self.review and self.review.blockers)) or any(
            verdict.status == "fail" for verdict in self.verdicts
        )

    @cached_property
    def stale_waivers(self) -> tuple[str, ...]:
        """One line for each waiver that has expired or excuses nothing."""
        return rules.stale_waivers(self.graph, self.verdicts)

    def to_json(self) -> dict[str, Any]:
        """Return the versioned JSON form: the graph's form, with the plan's results."""
        data = self.graph.to_json()
        data["cost"] = self.cost.to_json()
        data["training"] = self.training.to_json() if self.training else None
        data["autoscaling"] = self.autoscaling.to_json() if self.autoscaling else None
        if self.blocks:
            data["capacityBlocks"] = [block.to_json() for block in self.blocks]
        data["kubernetesApi"] = [endpoint.to_json() for endpoint in self.endpoints]
        data["notSimulated"] = [resource.urn for resource in self.graph.not_simulated]
        data["timeToReady"] = _time_json(self.timeline)
        data["rules"] = [verdict.to_json() for verdict in self.verdicts]
        data["staleWaivers"] = list(self.stale_waivers)
        if self.review is not None and (compared := self.review.comparison) is not None:
            earlier = compared.before.cost
            data["against"] = {
                "since": self.review.since,
                "verdict": self.review.outcome,
                "why": list(self.review.blockers or self.review.reservations),
                "risks": [risk.to_json() for risk in compared.risks],
                **compared.changes.to_json(),
                "hourlyUsd": round(compared.billed.hourly_usd - earlier.hourly_usd, 4),
                "maximumHourlyUsd": round(compared.billed.maximum_hourly_usd - earlier.maximum_hourly_usd, 4),
            }
        return data


def make(graph: Graph) -> Plan:
    """Compute the plan of a recorded program."""
    verdicts = tuple(rules.judge(graph))
    return Plan(
        graph,
        cost.estimate(graph),
        timeline.model(graph),
        verdicts,
        goodput.expect(graph),
        autoscaling.read(graph),
        blocks=blocks.calendar(graph),
        endpoints=tuple(endpoints(graph)),
    )


def compare_with(plan: Plan, since: str, before: Graph, *, losses_accepted: bool = False) -> Plan:
    """Return the same plan with the changes since another program (a file, or a commit), and a comment's verdict."""
    # A plan without a comparison does without it.
    from trainium_eks.operate.review import review

    graph = plan.graph
    compared = review.of_plans(before, graph)
    judged = review.Review(graph.project, graph.stack, "offline", since, compared, losses_accepted=losses_accepted)
    return replace(plan, review=judged)


def text(plan: Plan) -> str:
    """Return the JSON form as text."""
    return json.dumps(plan.to_json(), indent=2, ensure_ascii=False) + "\n"


def save(plan: Plan, path: Path) -> None:
    """Write the JSON form. A regular file is whole or untouched and keeps its mode; a link is followed, and another
    kind of file (a device, a pipe) is written in place."""
    try:
        target = path.resolve()
        if target.exists() and not target.is_file():
            target.write_text(text(plan), encoding="utf-8")
            return
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o644
        # Replacing a file asks for rights on its folder alone, and root may write anything: so the file is asked.
        if not mode & 0o222:
            raise UsageError(f"cannot write {path}: it is read-only (mode {mode:04o}); name another file")
        whole_file.write(target, text(plan), mode)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


def _time_json(modelled: Timeline) -> dict[str, Any]:
    return {
        "seconds": modelled.seconds,
        "lowerBoundSeconds": modelled.lower_bound_seconds,
        "chains": dict(modelled.chains),
        "ratio": round(modelled.ratio, 4),
        "serialSeconds": modelled.serial_seconds,
        "criticalPath": [
            {"urn": step.urn, "name": step.name, "type": step.type, "startSeconds": step.start, "seconds": step.seconds}
            for step in modelled.critical_path
        ],
        "forbiddenEdges": [list(pair) for pair in modelled.forbidden_edges],
        "missingEdges": [list(pair) for pair in modelled.missing_edges],
        "edges": [
            {
                "id": check.id,
                "title": check.title,
                "forbidden": check.forbidden,
                "status": "fail" if not check.ok else "pass" if check.applies else "n/a",
            }
            for check in modelled.edges
        ],
    }
