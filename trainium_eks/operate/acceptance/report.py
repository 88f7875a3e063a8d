"""The report of an acceptance run, for people and tools of other accounts: without account ids, ARNs, addresses and
names of machines."""

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from trainium_eks.operate.acceptance.run import SCHEMA_VERSION, Outcome, Run, Step, StepResult
from trainium_eks.operate.review.scrubbing import Scrubber

_MARKS = {Outcome.PASSED: "✓", Outcome.FAILED: "✗", Outcome.NOT_REACHED: "–"}

_PRIVATE = tuple(
    (re.compile(pattern, re.IGNORECASE), shown)
    for pattern, shown in (
        (r"arn:aws[\w-]*:[^\s\"'`,)]+", "[arn]"),
        (r"\bip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3}[\w.-]*", "[node]"),
        (r"\bi-[0-9a-f]{8,17}\b", "[instance]"),
        (r"\b(?:vpc|subnet|sg|eni|fs|vol|lt|rtb|nat|cr|eipalloc)-[0-9a-f]{8,17}\b", "[id]"),
        (r"\b[\w-]+(?:\.[\w-]+)*\.amazonaws\.com(?:\.cn)?", "[host]"),
        (r"\bs3://[^\s\"'`,)]+", "[bucket]"),
        (r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])", "[address]"),
        (r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+", "[mail]"),
        (r"(?<!\d)\d{12}(?!\d)", "[account]"),
        (r"(?<![\w.])/(?:home|root|Users|tmp|work|var|private)/[^\s\"'`,:)]*", "[path]"),
    )
)


_IPV6 = re.compile(r"(?<![\w:.])[0-9a-f]{0,4}:[0-9a-f:]{1,38}(?![\w:])", re.IGNORECASE)


def public(text: str) -> str:
    """Return a text without account ids, ARNs, addresses, hosts, ids of AWS' resources, paths of this machine and
    likely credentials."""
    for pattern, shown in _PRIVATE:
        text = pattern.sub(shown, text)
    text = _IPV6.sub(lambda found: "[address]" if _is_address(found[0]) else found[0], text)
    return Scrubber().text(text)


def _is_address(text: str) -> bool:
    """Return whether it is an address of IPv6, and no time of day."""
    try:
        return bool(ipaddress.IPv6Address(text))
    except ValueError:
        return False


def document(run: Run, steps: Sequence[Step], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``acceptance.json``: the facts (plain data), the limits and a result for each step."""
    state = run.state
    found = {
        "schemaVersion": SCHEMA_VERSION,
        "stack": state.stack,
        "local": state.local,
        **facts,
        "began": _time(state.began),
        "ended": _time(state.ended) if state.ended else None,
        "usd": round(run.usd, 2),
        "maxUsd": run.limits.max_usd,
        "passed": passed(run, steps),
        "steps": [_row(run, step) for step in steps],
    }
    return {key: _public(value) for key, value in found.items()}


def passed(run: Run, steps: Sequence[Step]) -> bool:
    """Return whether no step failed, and each was reached that can be tried here; a kept environment is not closed."""
    results = [(step, run.state.result(step.name)) for step in steps]
    return all(
        step.closes if found is None else found.outcome is Outcome.PASSED or bool(step.unless)
        for step, found in results
    )


def markdown(found: Mapping[str, Any]) -> str:
    """Return ``acceptance.md`` for a document."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    where = "the local cloud" if found["local"] else f"AWS, {found['region']}"
    cost = "" if found["local"] else f", about {found['usd']:.2f} of at most {found['maxUsd']:.2f} USD at list prices"
    counts = [sum(each["outcome"] == outcome for each in found["steps"]) for outcome in Outcome]
    yield f"# Acceptance of {found['stack']}: {'passed' if found['passed'] else 'NOT passed'}"
    yield ""
    yield f"On {where}, from {found['began']} to {found['ended'] or '(not ended)'}{cost}."
    yield f"{found['nodes']}; Kubernetes {found['kubernetes']}; trainium-eks {found['version']}."
    yield f"{counts[0]} steps passed, {counts[1]} failed, {counts[2]} were not reached."
    yield ""
    yield "| | step | claim | planned | measured | seen |"
    yield "|---|---|---|---|---|---|"
    for each in found["steps"]:
        mark = _MARKS[Outcome(each["outcome"])]
        measured = _span(each["seconds"]) if each["outcome"] != Outcome.NOT_REACHED else each["outcome"]
        cells = (mark, each["name"], each["claim"], _span(each["plannedSeconds"]), measured, each["text"])
        yield f"| {' | '.join(_cell(cell) for cell in cells)} |"
    if found["denied"]:
        yield from ("", "## Calls that AWS denied", "")
    for each in found["denied"]:
        action = each["action"] or "a call that nothing names"
        yield f"- `{action}` in `{each['command']}`, by the {each['policy']}: {_cell(each['remedy'])}"
    for each in found["steps"]:
        if each["findings"]:
            yield from ("", f"## Findings after `{each['name']}`", "")
        for one in each["findings"]:
            remedy = f" → {_cell(one['fix'])}" if one["fix"] else ""
            yield f"- **{_cell(one['subject'])}**: {_cell(one['text'])}{remedy}"


def _row(run: Run, step: Step) -> dict[str, Any]:
    kept = "the environment is kept, and the run open" if step.closes else ""
    found = run.state.result(step.name) or StepResult(step.name, Outcome.NOT_REACHED, 0, kept)
    keys = ("id", "subject", "text", "fix", "fault")
    return {
        "name": step.name,
        "claim": step.claim,
        "outcome": found.outcome.value,
        "plannedSeconds": round(step.planned_seconds),
        "seconds": round(found.seconds, 1),
        "text": found.text,
        "findings": [{key: each.get(key) for key in keys} for each in found.findings],
    }


def _public(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _public(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_public(inner) for inner in value]
    return public(value) if isinstance(value, str) else value


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _span(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole} s" if whole < 120 else f"{whole // 60}:{whole % 60:02} min"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
