"""The plan for people, as Markdown in the words of a comment: resources, cost, duration, and failed rules."""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainium_eks.cli.shared.console import show_sections
from trainium_eks.cli.shared.durations import duration
from trainium_eks.cli.shared.markdown import Markdown
from trainium_eks.cli.shared.plan_report import Plan
from trainium_eks.model.catalogue import versions
from trainium_eks.model.catalogue.prices import HOURS_PER_MONTH
from trainium_eks.model.config.waivers import PLACEHOLDER
from trainium_eks.model.validation.problems import config_set, plural
from trainium_eks.operate.review.scrubbing import WINDOW, Scrubber
from trainium_eks.operate.review.words import Words, short_type, table
from trainium_eks.plan.blocks import PlannedBlock
from trainium_eks.plan.cost import ComponentCost, Cost
from trainium_eks.plan.goodput import Gang, Training
from trainium_eks.plan.graph import STACK_TYPE, Graph, Resource
from trainium_eks.plan.resource_types import registry
from trainium_eks.plan.rules import RuleResult
from trainium_eks.plan.timeline import BAR

if TYPE_CHECKING:
    from trainium_eks.operate.review.review import Review

Lines = Iterator[str]


class _OwnPlanScrubber(Scrubber):
    """Scrubber of a reader's own plan: hides only the values of Secrets and of keys named like credentials."""

    def text(self, text: str) -> str:
        return text[:WINDOW]


WORDS = Words(_OwnPlanScrubber())
MOST_FAULTS = 5
"""Most faults shown for one rule; ``--json`` has all."""
_OUTPUT_LENGTH = 72


def show(plan: Plan, *, no_color: bool = False) -> None:
    """Print the plan to standard output."""
    show_sections([Markdown(page(plan))], no_color=no_color)


def page(plan: Plan) -> str:
    """Return the plan, part by part. A comparison replaces the tree, which is much longer."""
    parts = [_header(plan.graph)]
    parts += [_resources(plan.graph), outputs(plan.graph)] if plan.review is None else [_changes(plan.review)]
    parts += [_kubernetes_api(plan), _cost(plan), _training(plan.training), _autoscaling(plan)]
    parts += [_blocks(plan.blocks)] if plan.blocks else []
    parts += [_time_to_ready(plan)]
    parts += [_rules(plan), _verdict(plan)]
    return "\n".join(line for part in parts for line in (*part, ""))


def _header(graph: Graph) -> Lines:
    count = sum(resource.custom for resource in graph.resources)
    region, kind = str(graph.config.get("region", "")), "production" if graph.production else ""
    title = filter(None, (graph.project, graph.stack, region, kind, f"{count} resources"))
    yield f"**{' · '.join(map(WORDS.sentence, title))}**"
    if graph.simulated:
        yield f"\nSimulated: nothing was contacted. The answers of {_and(graph.simulated)} are made up;"
        yield "ids that start with sim- and account 000000000000 do not exist."
    for warning in graph.warnings:
        yield f"\n! Warning: {WORDS.sentence(warning)}"
    if graph.unjudged:
        yield f"\n! Not simulated, so shown without parts, price, time and rules: {_and(graph.unjudged)}."
    if graph.placeholders:
        yield "\n! Answered by placeholders (give the real answers with --stub FILE):\n"
        yield from (f"- {WORDS.sentence(placeholder)}" for placeholder in graph.placeholders)


# --- resources ----------------------------------------------------------------------------------------------------


def _resources(graph: Graph) -> Lines:
    """Yield the components with their resources: resources with facts by line, the others counted."""
    yield "**Resources**\n"
    stack = next((resource for resource in graph.resources if resource.type == STACK_TYPE), None)
    yield from _inside(graph, graph.children(stack.urn if stack else ""), "", "- ")


def _inside(graph: Graph, children: Sequence[Resource], above: str, bullet: str) -> Lines:
    """Yield resources with single lines, then shared lines, then the counts of other types, then components."""
    counted: Counter[str] = Counter()
    joined: dict[str, list[str]] = {}
    for resource in sorted(_leaves(graph, children), key=lambda each: (each.type, each.name)):
        type_, name, shown = short_type(resource.type), _short_name(resource, above), registry.of(resource).shown
        if shown is None:
            counted[type_] += 1
            continue
        facts = [WORDS.sentence(fact) for fact in shown.facts(graph, resource) if fact]
        if shown.joined_as:
            name = shown.joined_as(resource) or name
            joined.setdefault(type_, []).append(" ".join([WORDS.sentence(name), *facts]))
        else:
            yield f"{bullet}{type_} {WORDS.code(name)}{': ' if facts else ''}{', '.join(facts)}"
    for type_, names in joined.items():
        yield f"{bullet}{type_} ×{len(names)}: {', '.join(names)}"
    if counted:
        yield f"{bullet}and {', '.join(type_ if n == 1 else f'{n} {type_}' for type_, n in sorted(counted.items()))}"
    for component in sorted(children, key=lambda each: (each.type, each.name)):
        if not component.custom:
            yield f"{bullet}**{WORDS.code(_short_name(component, above))}** {short_type(component.type)}"
            yield from _inside(graph, graph.children(component.urn), component.name, f"    {bullet}")


def _leaves(graph: Graph, children: Sequence[Resource]) -> Iterator[Resource]:
    """Yield the resources among the children, and their child resources."""
    for resource in children:
        if resource.custom:
            yield resource
            yield from _leaves(graph, graph.children(resource.urn))


def _short_name(resource: Resource, above: str) -> str:
    """Return a resource's name without its component's name: the component's line is above it."""
    return resource.name.removeprefix(f"{above}-") if above else resource.name


def outputs(graph: Graph) -> Lines:
    """Yield the stack's outputs, long ones shortened."""
    yield "**Outputs**\n"
    rows = [(WORDS.sentence(name), WORDS.code(_shown(value), _OUTPUT_LENGTH)) for name, value in graph.outputs.items()]
    yield from table(("", ""), sorted(rows))


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value or '""'
    if isinstance(value, list):
        named = [each["name"] if isinstance(each, Mapping) and "name" in each else each for each in value]
        return ", ".join(each if isinstance(each, str) else _compact(each) for each in named) or "[]"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_shown(inner)}" for key, inner in value.items()) or "{}"
    return _compact(value)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# --- changes ------------------------------------------------------------------------------------------------------


def _changes(review: "Review") -> Lines:
    """Yield the parts of a comment about the changes: risks first, then the rest by component, then the money."""
    from trainium_eks.operate.review import comment, sections

    compared = review.comparison
    assert compared is not None
    counts = sections.counts(compared) if compared.changes else "none"
    yield f"**Changes since {WORDS.sentence(review.since)}**: {counts}\n"
    yield from sections.risk_table(review, WORDS)
    yield from sections.changes_by_component(review, WORDS)
    yield from sections.cost_part(review, WORDS)
    yield from sections.time_part(review, WORDS)
    yield from comment.details(review, WORDS)


# --- cost and time ------------------------------------------------------------------------------------------------


def _kubernetes_api(plan: Plan) -> Lines:
    """Yield the sources from which each cluster's API is reachable, and the source of the first update."""
    if plan.endpoints:
        yield "**Kubernetes API**\n"
    for each in plan.endpoints:
        yield f"- public endpoint: {_and(each.public) if each.public else 'off'}"
        inside = ("the cluster's own nodes", *each.private)
        yield f"- private endpoint: {_and(inside)}, port 443"
        if each.first_up:
            yield f"- the first `up` reaches it from {WORDS.sentence(each.first_up)}"
        else:
            yield "- ✗ the first `up` reaches it from nowhere: it stops at the first Kubernetes object"


def _cost(plan: Plan) -> Lines:
    """Yield the cost of each component, dearest first, and notes on prices."""
    cost, prefix = plan.cost, _common_prefix(plan.graph)
    rows: list[tuple[str, ...]] = [
        (
            WORDS.sentence(component.component.removeprefix(prefix) or "stack"),
            _contents(component),
            f"${component.hourly_usd:,.2f}{' + ?' if component.unknown else ''}",
            f"${component.hourly_usd * HOURS_PER_MONTH:,.0f}",
            f"${component.maximum_hourly_usd:,.2f}",
        )
        for component in cost.by_component
    ]
    total = (f"${cost.hourly_usd:,.2f}", f"${cost.monthly_usd:,.0f}", f"${cost.maximum_hourly_usd:,.2f}")
    rows.append(("**total**", "", *(f"**{each}**" for each in total)))
    yield "**Cost**\n"
    yield from table(("component", "what", "$/hour", "$/month", "most $/hour"), rows, right=3)
    yield from _price_notes(cost)


def _price_notes(cost: Cost) -> Lines:
    if cost.unknown:
        yield f"! No price is known for {_and(cost.unknown)}; it is not in the total.\n"
    for what, note in dict.fromkeys((line.what, line.note) for line in cost.lines if line.note):
        yield f"{WORDS.sentence(what)}: {note}.\n"
    dates = "; ".join(f"{what} {date}" for what, date in cost.price_dates.items())
    yield f"List prices of {', '.join(cost.price_regions)} ({dates})."
    yield f"Billed by use and not counted: {', '.join(cost.not_counted)}."


def _common_prefix(graph: Graph) -> str:
    """Return the prefix of all names when one component holds everything: it says nothing in a column of names."""
    top = [each for each in graph.resources if not each.custom and graph.component_of(each) is None]
    names = [each.name for each in top if each.type != STACK_TYPE]
    return f"{names[0]}-" if len(names) == 1 else ""


def _contents(component: ComponentCost) -> str:
    """Return a component's priced items, ``2 to 4 × trn1.32xlarge, NAT gateway``: a count at first and at most, except
    1."""
    counts: dict[str, tuple[float, float]] = {}
    for item in component.lines:
        now, most = counts.get(item.what, (0.0, 0.0))
        counts[item.what] = (now + item.quantity, most + item.maximum)
    shown = []
    for what, (now, most) in counts.items():
        amount = f"{now:g}" if now == most else f"{now:g} to {most:g}"
        shown.append(WORDS.sentence(what if amount == "1" else f"{amount} × {what}"))
    return ", ".join(shown)


def _training(found: Training | None) -> Lines:
    """Yield the useful share of each gang's time and the price of a useful hour, then the assumptions."""
    if found is None:
        return
    yield "**Training**\n"
    rows = dict.fromkeys(tuple(_gang(gang)) for gang in found.gangs)  # groups of the same size say the same
    yield from table(
        ("all nodes at once", "a fault every", "save every", "takes", "useful", "$/useful hour"), rows, right=5
    )
    state = f"{found.state_gigabytes:g} GB (training.checkpointGigabytes)"
    yield f"Checkpoints of {state} at {found.megabytes_per_second:,.0f} MB/s, which the file system writes."
    for rate in dict.fromkeys(gang.rate for gang in found.gangs):
        where = f"as {rate.source} says" if rate.is_configured else f"as in {rate.source}"
        assumed = "; none is published for these" if rate.is_assumed else ""
        yield f"A node fails {rate.per_node_year:.2g} times a year, {where}{assumed}."
    if any(gang.is_spot and not gang.rate.is_configured for gang in found.gangs):
        yield "Spot interruptions come on top: training.failuresPerNodeYear."
    if unknown := dict.fromkeys(gang.instance_type for gang in found.gangs if gang.hourly_usd is None):
        yield f"No price is known for {WORDS.sentence(', '.join(unknown))}."


def _gang(gang: Gang) -> Iterator[str]:
    expected, dollars = gang.expected, gang.usd_per_useful_hour
    between = expected.run.seconds_between_faults
    yield WORDS.sentence(f"{gang.nodes} × {gang.instance_type}")
    yield duration(between) if math.isfinite(between) else "never"
    yield duration(expected.interval_seconds)
    yield duration(expected.run.save_seconds)
    yield f"{100 * expected.useful_fraction:.1f} %"
    yield "?" if dollars is None else f"${dollars:,.2f}" if math.isfinite(dollars) else "never"


def _autoscaling(plan: Plan) -> Lines:
    """Yield one line for each pool that scales automatically, then the limits for gangs."""
    if plan.autoscaling is None:
        return
    yield "**Autoscaling**\n"
    for pool in plan.autoscaling.pools:
        size = f"{pool.minimum} to {pool.maximum} × {pool.instance_type}"
        yield f"- {WORDS.sentence(pool.pool)}: {WORDS.sentence(size)}, by {pool.by}"
    yield from (f"- {limit}" for limit in plan.autoscaling.limits)


def _blocks(blocks: Sequence[PlannedBlock]) -> Lines:
    """Yield the calendar of Capacity Blocks, and the command for each block that has begun."""
    rows = []
    for each in blocks:
        times = each.times
        moments = (f"{moment:%Y-%m-%d %H:%M}" for moment in (times.starts, times.drains, times.ends))
        nodes = WORDS.sentence(f"{times.nodes} × {each.instance_type}")
        rows.append((WORDS.sentence(each.group), nodes, *moments, "?" if each.usd is None else f"${each.usd:,.0f}"))
    yield "**Capacity Blocks** (UTC)\n"
    yield from table(("group", "nodes", "starts", "drained", "ends", "price"), rows, right=1)
    for each in blocks:
        if each.has_begun and each.times.drains > versions.now():
            scale = WORDS.code(f"trn scale {each.group} {each.times.nodes}")
            group = WORDS.sentence(each.group)
            yield f"The block of {group} has begun: a new group starts with its nodes, an empty one by {scale}."


_CHAINS = {"cluster": "cluster", "fileSystem": "file system"}
"""The chains of the bound, A and B, as people call them."""


def _time_to_ready(plan: Plan) -> Lines:
    """Yield the modelled duration, its critical path, and the checks of the order."""
    timeline = plan.timeline
    bound = ", ".join(f"{_CHAINS[name]} {_minutes(seconds)}" for name, seconds in timeline.chains.items())
    mark = "✓" if timeline.ratio <= BAR else "✗"
    yield "**Time to ready**\n"
    yield f"{mark} **{_minutes(timeline.seconds)} modelled**, {timeline.ratio:.2f} × max({bound})"
    yield f"(good: up to {BAR}); in series {_minutes(timeline.serial_seconds)}\n"
    rows = [
        (_minutes(step.start), _minutes(step.seconds), f"{WORDS.code(step.name)} {short_type(step.type)}")
        for step in timeline.critical_path
    ]
    yield from table(("after", "takes", "what decides"), rows)
    if plan.graph.unjudged:
        yield f"! Not simulated, and not in this time: {_and(plan.graph.unjudged)}.\n"
    checked = [check for check in timeline.edges if check.applies]
    yield f"Order: {sum(check.ok for check in checked)} of {len(checked)} rules hold."
    for check in checked:
        if not check.ok:
            yield f"\n✗ {check.title}\n"
            word = "waits for" if check.forbidden else "does not wait for"
            yield from (f"- {_name(one)} {word} {_name(other)}" for one, other in check.violations)


# --- rules --------------------------------------------------------------------------------------------------------

_SEVERITIES = {"high": 0, "medium": 1, "low": 2}


def _rules(plan: Plan) -> Lines:
    """Yield failed rules with their faults, then waived rules, then rules that lack data, then the others by id."""

    def having(status: str) -> list[RuleResult]:
        return [verdict for verdict in plan.verdicts if verdict.status == status]

    failed = sorted(having("fail"), key=lambda verdict: (_SEVERITIES[verdict.severity], verdict.id))
    rows = [("✗", each.id, "<br>".join([f"**{each.title}** ({each.severity})", *_faults(each)])) for each in failed]
    rows += [("~", each.id, f"{each.title}: waived: {WORDS.sentence(each.reason)}") for each in having("waived")]
    for verdict in having("unseen"):
        why = "; ".join(dict.fromkeys(finding.text for finding in verdict.unseen))
        rows.append(("?", verdict.id, f"{verdict.title}: not judged: {WORDS.sentence(why)}"))
    yield "**Rules**\n"
    yield from table(("", "", ""), rows)
    if failed:
        waive = config_set(f"waivers.{failed[0].id}", PLACEHOLDER)
        yield f"To accept a rule that is broken on purpose: {WORDS.code(waive, 400)}\n"
    for status, word in (("pass", "pass"), ("n/a", "do not apply")):
        if found := having(status):
            yield f"{len(found)} {word}: {' '.join(verdict.id for verdict in found)}\n"
    yield from (f"✗ {WORDS.sentence(line)}\n" for line in plan.stale_waivers)


def _faults(verdict: RuleResult) -> Lines:
    faults = verdict.failures
    shown = faults if len(faults) <= MOST_FAULTS else faults[: MOST_FAULTS - 1]
    yield from (f"{_name(finding.subject)}: {WORDS.sentence(finding.text)}" for finding in shown)
    if len(shown) < len(faults):
        yield f"and {len(faults) - len(shown)} more"


def _verdict(plan: Plan) -> Lines:
    """Yield the last line: whether this environment can be built, or the comment's verdict on a change."""
    stack = WORDS.sentence(plan.graph.stack)
    edges = len(plan.timeline.forbidden_edges) + len(plan.timeline.missing_edges)
    failed = [verdict.id for verdict in plan.verdicts if verdict.status == "fail"]
    stale = [line.partition(":")[0] for line in plan.stale_waivers]
    unknown = (*plan.graph.unjudged, *(["answers of look-ups"] if plan.graph.placeholders else []))
    if not any(each.type != STACK_TYPE for each in plan.graph.resources):
        yield f"**! {stack} registers no resources: there is nothing to judge.**"
    elif plan.review is not None:
        mark = {"SAFE": "✓", "REVIEW": "!", "BLOCKED": "✗"}[plan.review.outcome]
        why = plan.review.blockers or plan.review.reservations or ("everything that changes is understood as harmless",)
        yield f"**{mark} {plan.review.outcome}: {'; '.join(why)}**"
    elif plan.failed:
        parts = [f"failed {' '.join(failed)}"] if failed else []
        parts += [plural(edges, "wrong edge")] if edges else []
        parts += [f"stale waiver{'' if len(stale) == 1 else 's'} {' '.join(stale)}"] if stale else []
        yield f"**✗ {stack} is not sound: {'; '.join(parts)}**"
    elif unknown:
        yield f"**! {stack}: no failed rule, no wrong edge in what is known; not simulated: {_and(unknown)}.**"
    else:
        yield f"**✓ {stack} is sound: no failed rule, no wrong edge.**"


def _name(urn: str) -> str:
    return WORDS.sentence(urn.rsplit("::", 1)[-1])


def _and(names: Sequence[str]) -> str:
    said = [WORDS.sentence(name) for name in names]
    return " and ".join(filter(None, (", ".join(said[:-1]), said[-1])))


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
