"""The parts of a comment above its details, each a list of lines; an empty part has no lines."""

from collections import Counter
from collections.abc import Iterator
from itertools import groupby

from trainium_eks.model.catalogue.prices import HOURS_PER_MONTH
from trainium_eks.model.finding import Status
from trainium_eks.model.validation.problems import config_path, plural, shown, spelled
from trainium_eks.operate.review.review import Comparison, Outcome, Review
from trainium_eks.operate.review.words import ALL, Words, called, minutes, money, name_of, short_type, table
from trainium_eks.plan import waivers
from trainium_eks.plan.differences.changes import ResourceChange
from trainium_eks.plan.differences.cost_difference import LEAST_USD, CostDifference
from trainium_eks.plan.graph import UNKNOWN, Resource
from trainium_eks.plan.rules import RuleResult

Lines = list[str]

SIGNS = {"create": "+", "delete": "-", "replace": "±", "update": "~"}

_MARKS = {Outcome.SAFE: "✅", Outcome.REVIEW: "🔎", Outcome.BLOCKED: "⛔"}


def heading(review: Review, words: Words) -> Lines:
    """Return the verdict and its reasons."""
    outcome = review.outcome
    changes = "" if review.comparison is None else f": {counts(review.comparison)}"
    lines = [f"### {_MARKS[outcome]} {words.code(review.stack)}{changes} – {outcome}", ""]
    why = review.blockers if outcome is Outcome.BLOCKED else review.reservations
    if why:
        said = "; ".join(why)
        lines += [f"{said[0].upper()}{said[1:]}.", ""]
    elif review.comparison is not None and not review.comparison.changes:
        lines += ["Nothing changes.", ""]
    if review.losses_accepted and review.comparison and any(r.weight == "loss" for r in review.comparison.risks):
        lines += ["What is lost has been accepted.", ""]
    return lines


def counts(compared: Comparison) -> str:
    """Return the number of changes of each kind."""
    real = Counter(change.kind for change in compared.changes.items if compared.real(change.resource.urn))
    seeming = len(compared.changes.items) - sum(real.values())
    listed = ", ".join(f"{real[kind]} {kind}" for kind in ("create", "update", "replace", "delete"))
    return f"{listed} (and {seeming} that only seem to)" if seeming else listed


def refusal(review: Review, words: Words, most: int) -> Lines:
    """Return the reasons for a missing plan."""
    refused = review.refusal
    if refused is None:
        return []
    lines = [words.sentence(refused.title), ""]
    rows = []
    for problem in refused.problems:
        value = words.code(shown(problem.value)) if problem.value is not None else ""
        allowed = f"one of {words.code(', '.join(problem.allowed))}" if problem.allowed else ""
        good = words.code(shown(problem.good)) if problem.good is not None else ""
        waived = f"or waive {words.code(problem.rule)} with a reason" if problem.rule else ""
        mend = "; ".join(
            each
            for each in (words.sentence(spelled(problem.fix, _key)) if problem.fix else "", good, allowed, waived)
            if each
        )
        rows.append((words.code(problem.path or "config"), value, words.sentence(spelled(problem.reason, _key)), mend))
    return lines + table(("Where", "Found", "What is wrong", "What is right"), rows, most, "more problems")


def _key(path: str) -> str:
    """Return a field that a message names, as the config spells it, in backticks."""
    return f"`{config_path(path)}`"


def risk_table(review: Review, words: Words, most: int = ALL) -> Lines:
    """Return the risks as a table; resources of one type to be reviewed for the same reason share a row.

    A new team brings some thirty admission policies: a row for each would push other risks below the last row shown. A
    lost or refused resource has a separate row.
    """
    if review.comparison is None or not review.comparison.risks:
        return []
    marks = {"refused": "⛔", "loss": "🔎" if review.losses_accepted else "⛔", "review": "🔎"}
    found: dict[tuple[str, ...], list[Resource]] = {}
    for risk in review.comparison.risks:
        note = words.sentence(risk.note, 240) if risk.note else ""
        why = "<br>".join(each for each in (words.why(risk.resource, risk.paths), note) if each)
        same = risk.resource.type if risk.weight == "review" else risk.resource.urn
        found.setdefault((marks[risk.weight], risk.what, why, same), []).append(risk.resource)
    rows = [
        (mark, f"{words.resource(first)}{f' and {len(others)} more of its type' if others else ''}", what, why)
        for (mark, what, why, _), (first, *others) in found.items()
    ]
    return ["**Risks**", "", *table(("", "Resource", "What happens", "Why"), rows, most, "more risks")]


# --- money and time -----------------------------------------------------------------------------------------------

MOST_STEPS = 5
"""Number of resources with listed costs."""


def cost_part(review: Review, words: Words) -> Lines:
    """Return the rise or fall of the cost."""
    compared = review.comparison
    if compared is None:
        return []
    if not compared.whole:
        return ["**Cost**: not judged; the preview was made without `--show-sames`", ""]
    found = compared.cost
    if not found:
        total = compared.after.cost
        of = f"{money(total.hourly_usd).lstrip('+')} an hour, {money(total.monthly_usd, 0).lstrip('+')} a month"
        unpriced = f", without {words.code(', '.join(total.unknown))}, whose price is unknown" if total.unknown else ""
        return [f"**Cost**: unchanged, {of}{unpriced}", ""]
    lines = [f"**Cost**: {_whole(found, words)}", ""]
    by_urn = {**compared.before.graph.by_urn, **compared.after.graph.by_urn}
    rows = [
        (
            words.resource(by_urn[step.urn]),
            words.code(step.what),
            _amount(step.hourly_usd),
            _amount(step.maximum_hourly_usd),
        )
        for step in found.steps
    ]
    lines += table(("Resource", "What", "An hour", "At most"), rows, MOST_STEPS, "smaller steps")
    total = compared.after.cost
    dates = ", ".join(f"{what} of {date}" for what, date in sorted(total.price_dates.items()))
    regions = ", ".join(total.price_regions)
    region = str(compared.after.graph.config.get("region", ""))
    elsewhere = f"; {words.code(region)} may differ" if region and region not in total.price_regions else ""
    lines += [f"<sub>List prices of {regions} ({dates}){elsewhere}. A month has {HOURS_PER_MONTH} hours.</sub>", ""]
    return lines


def _whole(found: CostDifference, words: Words) -> str:
    unpriced = f"no price is known for {words.code(', '.join(found.unknown))}"
    if found.hourly_usd is not None:
        month = money(found.hourly_usd * HOURS_PER_MONTH, 0)
        now = f"**{money(found.hourly_usd)} an hour, {month} a month**"
        if abs(found.hourly_usd) < LEAST_USD:
            now = "unchanged at the sizes it starts with"
        most = found.maximum_hourly_usd
        if most is None:
            return f"{now}; {unpriced}"
        return f"{now}; {f'**{money(most)} an hour at most**' if abs(most) >= LEAST_USD else 'unchanged at most'}"
    if found.at_least_hourly_usd is not None:
        month = money(found.at_least_hourly_usd * HOURS_PER_MONTH, 0)
        return f"**at least {money(found.at_least_hourly_usd)} an hour, {month} a month**; {unpriced}"
    return f"**not known**; {unpriced}"


def _amount(amount: float | None) -> str:
    if amount is None:
        return "not known"
    return money(amount) if abs(amount) >= LEAST_USD else "unchanged"


def time_part(review: Review, words: Words) -> Lines:
    """Return the duration of the `up`."""
    compared = review.comparison
    if compared is None or not compared.whole or not compared.changes:
        return []
    made = compared.time
    parts = []
    if made is not None and made.seconds:
        longest = max(made.critical_path, key=lambda step: step.seconds)
        decides = f"; {words.code(short_type(longest.type))} decides with {minutes(longest.seconds)}"
        parts.append(f"about {minutes(made.seconds)} for what is created or replaced{decides}")
    rolled = compared.changes.rolled
    if rolled:
        parts.append(f"the nodes of {plural(len(rolled), 'group')} are replaced in turn")
    before, after = compared.before.timeline.seconds, compared.after.timeline.seconds
    was = f"{minutes(before)} before" if any(each.custom for each in compared.before.graph.resources) else ""
    whole = f"the whole environment from nothing: {minutes(after)}"
    if minutes(before) != minutes(after) and was:
        whole += f", {was}"
    if apart := compared.after.graph.unjudged:
        whole += f", without {words.code(', '.join(apart))}, not simulated"
    return [f"**Time** (modelled): {'; '.join([*parts, whole])}", ""]


# --- policy and preflight -----------------------------------------------------------------------------------------


def policy(review: Review, words: Words, most: int) -> Lines:
    """Return the rules that are broken, and the waivers that this change brings."""
    compared = review.comparison
    if compared is None:
        return []
    if not compared.whole:
        return ["**Policy**: not judged; the preview was made without `--show-sames`", ""]
    rows = [row for verdict in compared.after.failed for row in _broken(compared, verdict, words)]
    for verdict in compared.after.verdicts:
        earlier = compared.before.by_id.get(verdict.id)
        if verdict.status == "waived" and (earlier is None or earlier.reason != verdict.reason):
            waiver = f"waived: {words.sentence(verdict.reason)}"
            rows.append((verdict.id, verdict.severity, "", verdict.title, f"{waiver}{_expiry(compared, verdict)}"))
    edges = [("wrong", pair) for pair in compared.after.timeline.forbidden_edges]
    edges += [("missing", pair) for pair in compared.after.timeline.missing_edges]
    for word, (urn, other) in edges:
        names = tuple(words.code(name_of(each)) for each in (urn, other))
        rows.append(("order", "high", names[0], f"a {word} dependency on {names[1]}", "**fails**"))
    stale = compared.after.stale_waivers
    lines = [f"**Policy**: {_tally(compared)}", ""]
    lines += table(("Rule", "Severity", "Resource", "What", "State"), rows, most, "more findings")
    lines += [f"- stale waiver: {words.sentence(each)}" for each in stale[:most]]
    return [*lines, ""] if stale else lines


def _broken(compared: Comparison, verdict: RuleResult, words: Words) -> Iterator[tuple[str, ...]]:
    earlier = compared.before.by_id.get(verdict.id)
    known = {finding.subject for finding in earlier.failures} if earlier else set()
    built = any(each.custom for each in compared.before.graph.resources)
    for finding in verdict.failures:
        word = "**fails**" if compared.certain else "fails, unless what `up` alone knows mends it"
        state = f"{word}, as before" if finding.subject in known else f"{word}, new" if built else word
        resource = compared.after.graph.by_urn.get(finding.subject)
        name = words.resource(resource) if resource else words.code(name_of(finding.subject))
        yield verdict.id, verdict.severity, name, f"{verdict.title}: {words.sentence(finding.text, 240)}", state


def _expiry(compared: Comparison, verdict: RuleResult) -> str:
    """Return the last day of a waiver; the library's own waivers have no last day."""
    waiver = waivers.of(compared.after.graph).get(verdict.id)
    return f" (until {waiver.last_day})" if waiver and waiver.last_day else ""


def _tally(compared: Comparison) -> str:
    counts = Counter(verdict.status for verdict in compared.after.verdicts)
    mended = [
        verdict.id
        for verdict in compared.after.verdicts
        if verdict.status == "pass" and (old := compared.before.by_id.get(verdict.id)) and old.status == "fail"
    ]
    text = f"{counts['fail']} broken, {counts['waived']} waived"
    return f"{text}; mended: {', '.join(mended)}" if mended else text


def preflight(review: Review, words: Words, most: int) -> Lines:
    """Return the results of the account's checks."""
    if review.checks is None:
        return ["**Preflight**: not run: no credentials", ""]
    tally = Counter(check.status for check in review.checks)
    told = (Status.PASS, Status.FAIL, Status.WARN, Status.NOT_CHECKED)
    rows = [
        (f"{_CHECK_MARKS.get(each.status, '')}{each.status}", *map(words.sentence, (each.subject, each.text, each.fix)))
        for each in review.checks
        if each.status in told[1:]
    ]
    return [
        f"**Preflight**: {', '.join(f'{tally[each]} {each}' for each in told if tally[each]) or 'no checks'}",
        "",
        *table(("", "Check", "What", "What mends it"), rows, most, "more checks"),
    ]


_CHECK_MARKS = {Status.FAIL: "⛔ ", Status.WARN: "🔎 "}


# --- changes ------------------------------------------------------------------------------------------------------


def changes_by_component(review: Review, words: Words, most: int = ALL) -> Lines:
    """Return one row for each component, and a line for each kind of folded change: tags, changes that follow from
    others, phantoms."""
    compared = review.comparison
    if compared is None or not compared.changes:
        return []
    shown = [change for change in compared.changes.items if not folded(compared, change)]
    rows = []
    ordered = sorted(shown, key=lambda each: (each.component, not each.stateful, _ORDER[each.kind], each.resource.urn))
    for component, group in groupby(ordered, key=lambda change: change.component):
        found = list(group)
        counts = Counter(change.kind for change in found)
        listed = [words.code(f"{SIGNS[each.kind]} {called(each.resource)}") for each in found[:_LISTED]]
        if len(found) > _LISTED:
            listed.append(f"and {len(found) - _LISTED} more")
        numbers = (str(counts[kind]) if counts[kind] else "" for kind in ("create", "update", "replace", "delete"))
        rows.append((words.code(component), *numbers, "<br>".join(listed)))
    head = ("Component", "Create", "Update", "Replace", "Delete", "What")
    lines = table(head, rows, most, "more components")
    lines += [f"- {line}" for line in _folded_lines(compared, words, most)]
    return ["**Changes**", "", *lines, ""] if lines else []


_LISTED = 5

_ORDER = {kind: place for place, kind in enumerate(("replace", "delete", "create", "update"))}


def folded(compared: Comparison, change: ResourceChange) -> bool:
    """Return whether a change shares a line with others: tags alone, changes that follow from a replacement,
    phantoms."""
    if not compared.real(change.resource.urn) or change.tags_only:
        return True
    if change.stateful or change.refused or change.rolls_nodes:
        return False
    if change.kind == "replace":
        return bool(change.follows)
    return change.kind == "update" and bool(change.paths) and all(path.cause for path in change.paths)


def _folded_lines(compared: Comparison, words: Words, most: int) -> Iterator[str]:
    items = compared.changes.items
    phantom = [change for change in items if not compared.real(change.resource.urn)]
    if phantom:
        providers = [each for each in phantom if each.resource.type.startswith("pulumi:providers:")]
        names = ", ".join(words.code(each.resource.name) for each in providers[:most])
        others = plural(len(phantom) - len(providers), "object")
        yield f"follows from provider unknown: {others} only seem to be replaced; `up` alone knows inputs of {names}"
    following = [
        each for each in items if compared.real(each.resource.urn) and not each.tags_only and folded(compared, each)
    ]
    for (kind, cause), group in sorted(_by_cause(following).items())[:most]:
        types = Counter(short_type(each.resource.type) for each in group)
        listed = ", ".join(
            name if count == 1 else f"{count} {name}" for name, count in sorted(types.items())[: _LISTED * 2]
        )
        because = "is replaced" if kind == "update" else "is"
        yield f"{kind}d because {words.code(name_of(cause))} {because}: {words.code(listed)}"
    tags = sum(change.tags_only and compared.real(change.resource.urn) for change in items)
    if tags:
        yield f"tags alone on {plural(tags, 'resource')}"
    options = [option for option in compared.changes.options if not option.weakens]
    for option in options[:most]:
        yield f"{words.code(option.name)}: option {words.code(option.option)} changes"


def _by_cause(following: list[ResourceChange]) -> dict[tuple[str, str], list[ResourceChange]]:
    found: dict[tuple[str, str], list[ResourceChange]] = {}
    for change in following:
        found.setdefault((change.kind, change.follows), []).append(change)
    return found


def unknowns(review: Review, words: Words, most: int) -> Lines:
    """Return the values unknown before the `up`."""
    compared = review.comparison
    if compared is None:
        return []
    rows = []
    for change in compared.changes.items:
        if not compared.real(change.resource.urn):
            continue
        for path in change.paths:
            if path.cause or path.after == UNKNOWN:
                source = words.code(name_of(path.cause)) if path.cause else "the account"
                rows.append((words.resource(change.resource), words.code(path.path), source))
    graph = compared.after.graph
    lines = table(("Resource", "Input", "Comes from"), rows, min(most, 10), "more inputs")
    lines += [f"- look-up answered by a placeholder: {words.sentence(each)}" for each in graph.placeholders[:most]]
    if graph.unjudged:
        lines.append(f"- not simulated, so neither priced, timed nor judged: {words.code(', '.join(graph.unjudged))}")
    return ["**Not known before `up`**", "", *lines, ""] if lines else []
