"""The plan for people: resources, cost, duration, and failed rules."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from trainium_eks.cli.environment.plan import facts, render_autoscaling, render_changes, render_training
from trainium_eks.cli.environment.plan.report import Plan
from trainium_eks.cli.shared.console import show_sections
from trainium_eks.model.catalogue.prices import HOURS_PER_MONTH
from trainium_eks.model.config.waivers import PLACEHOLDER
from trainium_eks.model.validation.problems import config_set
from trainium_eks.plan.cost import ComponentCost, Cost
from trainium_eks.plan.graph import STACK_TYPE, Graph, Resource
from trainium_eks.plan.rules import Verdict
from trainium_eks.plan.rules._endpoint import Endpoint
from trainium_eks.plan.timeline import BAR, Timeline

if TYPE_CHECKING:
    from trainium_eks.operate.review.review import Review

NAME_WIDTH = 24
"""Columns that a component's name keeps in a table of five columns."""

NARROW = 72
"""Columns below which a table of five columns would lose some."""


def show(plan: Plan, *, no_color: bool = False) -> None:
    """Print the plan to stdout."""
    show_sections(sections(plan), no_color=no_color)


def sections(plan: Plan) -> Iterable[RenderableType]:
    """Yield the parts of the plan, in order. A comparison stands in the place of the tree, which would drown it."""
    yield header(plan.graph)
    if plan.review is None:
        yield resources(plan.graph)
        yield outputs(plan.graph)
    else:
        yield render_changes.changes(plan.review)
    if plan.endpoints:
        yield kubernetes_api(plan.endpoints)
    yield cost_table(plan.cost, _common_prefix(plan.graph))
    if plan.training is not None:
        yield render_training.training(plan.training)
    if plan.autoscaling is not None:
        yield render_autoscaling.autoscaling(plan.autoscaling)
    yield time_to_ready(plan.timeline, plan.graph.unjudged)
    yield rule_list(plan)
    yield verdict_line(plan)


def header(graph: Graph) -> RenderableType:
    """Return the environment's name, region and size, with a note that nothing in it is real."""
    region = str(graph.config.get("region", ""))
    count = sum(resource.custom for resource in graph.resources)
    kind = "production" if graph.production else ""
    title = Text(" · ".join(filter(None, (graph.project, graph.stack, region, kind, f"{count} resources"))), "bold")
    lines = [title]
    if graph.simulated:
        lines.append(
            Text(
                f"Simulated: nothing was contacted. The answers of {_and(graph.simulated)} are made up; "
                "ids that start with sim- and account 000000000000 do not exist.",
                "yellow",
            )
        )
    lines += [Text(f"Warning: {warning}", "yellow") for warning in graph.warnings]
    if graph.unjudged:
        lines.append(
            Text(
                f"Not simulated, so shown without parts, price, time and rules: {_and(graph.unjudged)}.",
                "yellow",
            )
        )
    if graph.placeholders:
        lines.append(Text("Answered by placeholders (give the real answers with --stub FILE):", "yellow"))
        lines += [Text(f"  {placeholder}", "yellow") for placeholder in graph.placeholders]
    return Group(*lines)


def resources(graph: Graph) -> RenderableType:
    """Return the tree of components with their resources: resources with facts by line, the others counted."""
    stack = next((resource for resource in graph.resources if resource.type == STACK_TYPE), None)
    tree = Tree(_heading("Resources"), guide_style="dim")
    for_stack = graph.children(stack.urn) if stack else graph.children("")
    _branch(graph, tree, for_stack, above="")
    return tree


def _branch(graph: Graph, tree: Tree, children: Sequence[Resource], above: str) -> None:
    """Add resources with single lines, then shared lines, then the counts of other types, then components."""
    counted: Counter[str] = Counter()
    joined: dict[str, list[str]] = {}
    leaves = [*_leaves(graph, children)]
    for resource in sorted(leaves, key=lambda each: (each.type, each.name)):
        label = facts.short_name(resource, above)
        known = facts.of(graph, resource)
        name = facts.joined_as(resource, label)
        if known is None:
            counted[facts.short_type(resource.type)] += 1
        elif name is not None:
            joined.setdefault(resource.type, []).append(" ".join((name, *known)))
        else:
            line = Text(facts.short_type(resource.type), "cyan").append(f"  {label}", "default")
            tree.add(line.append(f"  {', '.join(known)}" if known else "", "dim"))
    for type_, names in joined.items():
        line = Text(f"{facts.short_type(type_)} ×{len(names)}", "cyan")
        tree.add(line.append(f"  {', '.join(names)}", "dim"))
    if counted:
        tree.add(Text("and " + ", ".join(_times(kind, count) for kind, count in sorted(counted.items())), "dim"))
    for component in sorted(children, key=lambda each: (each.type, each.name)):
        if not component.custom:
            line = Text(facts.short_name(component, above), "bold")
            line.append(f"  {facts.short_type(component.type)}", "dim not bold")
            _branch(graph, tree.add(line), graph.children(component.urn), component.name)


def _leaves(graph: Graph, children: Sequence[Resource]) -> Iterator[Resource]:
    """Yield the resources among the children, and their child resources."""
    for resource in children:
        if resource.custom:
            yield resource
            yield from _leaves(graph, graph.children(resource.urn))


def outputs(graph: Graph) -> RenderableType:
    """Return the stack's outputs, long ones shortened."""
    table = _table("name", "value")
    for name, value in sorted(graph.outputs.items()):
        table.add_row(Text(name, "bold"), Text(_shown(value), overflow="ellipsis", no_wrap=True))
    return Group(_heading("Outputs"), _indented(table))


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


def _common_prefix(graph: Graph) -> str:
    """Return the prefix of all names when one component holds everything: it says nothing in a column of names."""
    top = [each for each in graph.resources if not each.custom and graph.component_of(each) is None]
    names = [each.name for each in top if each.type != STACK_TYPE]
    return f"{names[0]}-" if len(names) == 1 else ""


def cost_table(cost: Cost, prefix: str = "") -> RenderableType:
    """Return the cost of each component, dearest first, and notes on prices; names are shown without ``prefix``."""
    table = _ByWidth(_cost_rows(cost, prefix, narrow=False), NARROW, _cost_rows(cost, prefix, narrow=True))
    lines: list[Text] = []
    if cost.unknown:
        lines.append(Text(f"No price is known for {_and(cost.unknown)}; it is not in the total.", "yellow"))
    notes = dict.fromkeys((item.what, item.note) for item in cost.items if item.note)
    lines += [Text(f"{what}: {note}.", "dim") for what, note in notes]
    dates = "; ".join(f"{what} {date}" for what, date in cost.price_dates.items())
    lines.append(Text(f"List prices of {', '.join(cost.price_regions)} ({dates}).", "dim"))
    lines.append(Text(f"Billed by use and not counted: {', '.join(cost.not_counted)}.", "dim"))
    return Group(_heading("Cost"), _indented(table), *map(_indented, lines))


def _cost_rows(cost: Cost, prefix: str, *, narrow: bool) -> RenderableType:
    """Return the table. On a narrow screen a component's contents stand below its name, and every amount is shown."""
    left = ("component",) if narrow else ("component", "what")
    table = _table(*left, right=("$/hour", "$/month", "most $/hour"), header=True)
    names = [component.component.removeprefix(prefix) or "stack" for component in cost.by_component]
    table.columns[0].min_width = 1 if narrow else min(max(map(len, names), default=0), NAME_WIDTH)
    for name, component in zip(names, cost.by_component, strict=True):
        hourly = Text(_dollars(component.hourly_usd))
        if component.unknown:
            hourly.append(" + ?", "yellow")
        held = Text(_contents(component), "dim")
        table.add_row(
            *((Group(Text(name), held),) if narrow else (Text(name), held)),
            hourly,
            _dollars(component.hourly_usd * HOURS_PER_MONTH, whole=True),
            _dollars(component.maximum_hourly_usd),
        )
    table.add_section()
    total = (_dollars(cost.hourly_usd), _dollars(cost.monthly_usd, whole=True), _dollars(cost.maximum_hourly_usd))
    label = (Text("total", "bold"),) if narrow else (Text("total", "bold"), "")
    table.add_row(*label, *(Text(each, "bold") for each in total))
    return table


class _ByWidth:
    """Renderable with a wide and a narrow form; the screen's width chooses."""

    def __init__(self, wide: RenderableType, columns: int, narrow: RenderableType) -> None:
        self._wide, self._columns, self._narrow = wide, columns, narrow

    def __rich_console__(self, _console: object, options: ConsoleOptions) -> RenderResult:
        yield self._wide if options.max_width >= self._columns else self._narrow


def _contents(component: ComponentCost) -> str:
    """Return a component's priced items, ``2 to 4 × trn1.32xlarge, NAT gateway``: a count at first and at most, except
    1."""
    counts: dict[str, tuple[float, float]] = {}
    for item in component.items:
        now, most = counts.get(item.what, (0.0, 0.0))
        counts[item.what] = (now + item.line.quantity, most + item.line.maximum)
    shown = []
    for what, (now, most) in counts.items():
        amount = f"{now:g}" if now == most else f"{now:g} to {most:g}"
        shown.append(what if amount == "1" else f"{amount} × {what}")
    return ", ".join(shown)


def kubernetes_api(found: Sequence[Endpoint]) -> RenderableType:
    """Return the sources from which each cluster's API is reachable, and the source of the first update."""
    lines = []
    for each in found:
        lines.append(Text(f"public endpoint: {_and(each.public) if each.public else 'off'}"))
        inside = ("the cluster's own nodes", *each.private)
        lines.append(Text(f"private endpoint: {_and(inside)}, port 443"))
        nobody = Text("the first `up` reaches it from nowhere: it stops at the first Kubernetes object", "bold red")
        lines.append(Text(f"the first `up` reaches it from {each.first_up}", "dim") if each.first_up else nobody)
    return Group(_heading("Kubernetes API"), *map(_indented, lines))


def time_to_ready(timeline: Timeline, foreign: Sequence[str] = ()) -> RenderableType:
    """Return the modelled duration, its critical path, and the checks of the order; ``foreign`` are types that take an
    unknown time."""
    good = timeline.ratio <= BAR
    line = Text(f"{_minutes(timeline.seconds)} modelled", "bold")
    bound = ", ".join(f"{_CHAINS[name]} {_minutes(seconds)}" for name, seconds in timeline.chains.items())
    line.append(f", {timeline.ratio:.2f} × max({bound})", "green not bold" if good else "red not bold")
    line.append(f" (good: up to {BAR}); in series {_minutes(timeline.serial_seconds)}", "dim not bold")
    table = _table("after", "takes", "what decides", header=True)
    for step in timeline.critical_path:
        name = Text(step.name).append(f"  {facts.short_type(step.type)}", "dim")
        table.add_row(_minutes(step.start), _minutes(step.seconds), name)
    checked = [check for check in timeline.edges if check.applies]
    lines = [Text(f"Not simulated, and not in this time: {_and(foreign)}.", "yellow")] if foreign else []
    lines += [Text(f"Order: {sum(check.ok for check in checked)} of {len(checked)} rules hold.")]
    for check in checked:
        if not check.ok:
            lines.append(Text(f"✗ {check.title}", "bold red"))
            word = "waits for" if check.forbidden else "does not wait for"
            lines += [Text(f"  {_name(one)} {word} {_name(other)}", "red") for one, other in check.violations]
    return Group(_heading("Time to ready"), _indented(line), _indented(table), *map(_indented, lines))


def rule_list(plan: Plan) -> RenderableType:
    """Return failed rules with their faults, then waived rules, then rules that lack data, then the others by id."""
    table = _table("mark", "id", "rule")
    failed = _with_status(plan, "fail")
    for verdict in failed:
        title = Text(verdict.title, "bold").append(f"  {verdict.severity}", "red not bold")
        table.add_row(Text("✗", "bold red"), Text(verdict.id, "bold red"), Group(title, *_faults(verdict)))
    for verdict in _with_status(plan, "waived"):
        line = Text(verdict.title).append(f"  waived: {verdict.reason}", "dim")
        table.add_row(Text("~", "yellow"), Text(verdict.id, "yellow"), line)
    for verdict in _with_status(plan, "unseen"):
        why = "; ".join(dict.fromkeys(finding.message for finding in verdict.unseen))
        line = Text(verdict.title).append(f"  not judged: {why}", "dim")
        table.add_row(Text("?", "yellow"), Text(verdict.id, "yellow"), line)
    lines: list[RenderableType] = [table] if table.row_count else []
    if failed:
        waive = config_set(f"waivers.{failed[0].id}", PLACEHOLDER)
        lines.append(Text(f"To accept a rule that is broken on purpose: {waive}", "dim"))
    for status, word, color in (("pass", "pass", "green"), ("n/a", "do not apply", "dim")):
        if found := _with_status(plan, status):
            ids = " ".join(verdict.id for verdict in found)
            lines.append(Text(f"{len(found)} {word}: ", color).append(ids, "dim"))
    lines += [Text(f"✗ {line}", "red") for line in plan.stale_waivers]
    return Group(_heading("Rules"), *map(_indented, lines))


_SEVERITIES = {"high": 0, "medium": 1, "low": 2}
MOST_FAULTS = 5
"""Most faults shown for one rule, or one check of a verification; ``--json`` has all."""


def _with_status(plan: Plan, status: str) -> list[Verdict]:
    found = [verdict for verdict in plan.verdicts if verdict.status == status]
    return sorted(found, key=lambda verdict: (_SEVERITIES[verdict.severity], verdict.id)) if status == "fail" else found


def _faults(verdict: Verdict) -> Iterable[Text]:
    faults = verdict.failures
    shown = faults if len(faults) <= MOST_FAULTS else faults[: MOST_FAULTS - 1]
    for finding in shown:
        yield Text(f"{_name(finding.urn)}: {finding.message}")
    if len(shown) < len(faults):
        yield Text(f"and {len(faults) - len(shown)} more", "dim")


def verdict_line(plan: Plan) -> RenderableType:
    """Return the last line: whether this environment can be built."""
    failed = [verdict.id for verdict in plan.verdicts if verdict.status == "fail"]
    edges = len(plan.timeline.forbidden_edges) + len(plan.timeline.missing_edges)
    if not any(each.type != STACK_TYPE for each in plan.graph.resources):
        return Text(f"! {plan.graph.stack} registers no resources: there is nothing to judge.", "bold yellow")
    if plan.review is not None:
        return _reviewed(plan.review)
    if not plan.failed:
        if unknown := (*plan.graph.unjudged, *(["answers of look-ups"] if plan.graph.placeholders else [])):
            known = "no failed rule, no wrong edge in what is known"
            return Text(f"! {plan.graph.stack}: {known}; not simulated: {_and(unknown)}.", "bold yellow")
        return Text(f"✓ {plan.graph.stack} is sound: no failed rule, no wrong edge.", "bold green")
    parts = [f"failed {' '.join(failed)}"] if failed else []
    parts += [f"{edges} wrong edge{'' if edges == 1 else 's'}"] if edges else []
    stale = [line.partition(":")[0] for line in plan.stale_waivers]
    parts += [f"stale waiver{'' if len(stale) == 1 else 's'} {' '.join(stale)}"] if stale else []
    return Text(f"✗ {plan.graph.stack} is not sound: {'; '.join(parts)}", "bold red")


_VERDICTS = {"SAFE": ("✓", "green"), "REVIEW": ("!", "yellow"), "BLOCKED": ("✗", "red")}


def _reviewed(review: "Review") -> RenderableType:
    """Return the verdict on the change, which is a comment's."""
    mark, color = _VERDICTS[review.outcome]
    why = "; ".join(review.blockers or review.reservations) or "everything that changes is understood as harmless"
    return Text(f"{mark} {review.outcome}: {why}", f"bold {color}")


def _heading(text: str) -> Text:
    return Text(text, "bold underline")


def _indented(what: RenderableType) -> RenderableType:
    return Padding(what, (0, 0, 0, 2), expand=False)


def _table(*left: str, right: Sequence[str] = (), header: bool = False) -> Table:
    table = Table(box=None, show_header=header, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for name in left:
        table.add_column(name, overflow="fold")
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _name(urn: str) -> str:
    return urn.rsplit("::", 1)[-1]


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _times(kind: str, count: int) -> str:
    return kind if count == 1 else f"{count} {kind}"


def _dollars(amount: float, *, whole: bool = False) -> str:
    return f"${amount:,.0f}" if whole else f"${amount:,.2f}"


_CHAINS = {"cluster": "cluster", "fileSystem": "file system"}
"""The chains of the bound, A and B, as people call them."""


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
