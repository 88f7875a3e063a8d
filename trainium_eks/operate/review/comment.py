"""The comment: its parts in reading order, within the platform's limit of characters."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainium_eks.model.validation.problems import plural
from trainium_eks.operate.review import sections
from trainium_eks.operate.review.review import Comparison, Review
from trainium_eks.operate.review.safe_text import NAME, cut
from trainium_eks.operate.review.scrubbing import Scrubber
from trainium_eks.operate.review.words import Words, called, name_of
from trainium_eks.plan.differences.changes import ResourceChange
from trainium_eks.plan.differences.diff import provider_versions


@dataclass(frozen=True)
class Platform:
    """A platform of pull requests."""

    most_characters: int
    """Most characters of a comment, well below the platform's limit."""
    folds: bool
    """Whether ``<details>`` folds; if not, it would be shown as text."""
    hidden: str
    """A line that is kept and not shown; ``{}`` stands for its text."""


PLATFORMS = {
    # GitHub refuses 65,536 characters, GitLab a million, Bitbucket 32,768.
    "github": Platform(60_000, folds=True, hidden="<!-- {} -->"),
    "gitlab": Platform(60_000, folds=True, hidden="<!-- {} -->"),
    "bitbucket": Platform(30_000, folds=False, hidden="[//]: # ({})"),
}
"""Platforms by name. Bitbucket's Markdown shows HTML as it is, so its marker is a link's definition, which shows as
nothing."""

_ROWS = (40, 20, 10, 5, 2, 1)
"""Rows of each table, fewer until everything above the details fits."""

_FOR_DETAILS = 4000
"""Characters reserved for the details."""

_LINE_LENGTH = 400


def render(review: Review, platform: Platform, scrubber: Scrubber, link: str = "") -> str:
    """Return the whole comment. Its first line is a marker, by which a later run finds it: one for each stack; ``link``
    is the address of the run with the whole plan."""
    for name in (review.project, review.stack):
        # Pulumi takes no other names, and the marker would not be found.
        if not NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a project or a stack")
    words = Words(scrubber)
    first = [platform.hidden.format(f"trn-preview:{review.project}/{review.stack}"), ""]
    footer = _footer(review, words, link)
    room = platform.most_characters - _length(first) - _length(footer)
    for rows in _ROWS:
        parts = _parts(review, words, rows)
        if _length(parts) <= room - _FOR_DETAILS:
            break
    if not platform.folds:
        parts, footer = [_plain(line) for line in parts], [_plain(line) for line in footer]
    listed = details(review, words, room - _length(parts))
    if listed and platform.folds:
        title, *block = listed
        listed = ["<details>", f"<summary>{title.strip('*')}</summary>", *block, "", "</details>"]
    return "\n".join([*first, *parts, *listed, *footer]).rstrip() + "\n"


def _length(lines: list[str]) -> int:
    return sum(len(line) + 1 for line in lines)


def _parts(review: Review, words: Words, rows: int) -> list[str]:
    found = [
        *sections.heading(review, words),
        *sections.refusal(review, words, rows),
        *sections.risk_table(review, words, rows),
        *sections.cost_part(review, words),
        *sections.time_part(review, words),
        *sections.policy(review, words, rows),
        *sections.preflight(review, words, rows),
        *sections.changes_by_component(review, words, rows),
        *sections.unknowns(review, words, rows),
    ]
    return [line for before, line in zip(["", *found], found, strict=False) if before or line]


def _plain(line: str) -> str:
    """Return the line without the HTML of this module's own parts."""
    return re.sub(r"</?(?:sub|br)>", lambda found: "; " if found[0] == "<br>" else "", line)


def _footer(review: Review, words: Words, link: str) -> list[str]:
    lane = "two plans, without credentials" if review.lane == "offline" else "`pulumi preview` of the account"
    facts = [f"since {words.code(review.since)}", lane]
    if review.commit:
        facts.insert(0, f"commit {words.code(review.commit[:12])}")
    graph = review.comparison.after.graph if review.comparison else None
    versions = {**review.versions, **(provider_versions(graph) if graph else {})}
    facts += [f"{words.sentence(name)} {words.sentence(version)}" for name, version in sorted(versions.items())]
    if link:
        facts.append(f"[the whole plan]({link})")
    return ["", f"<sub>{' · '.join(facts)}</sub>"]


# --- the details --------------------------------------------------------------------------------------------------


def details(review: Review, words: Words, room: int = 60_000) -> list[str]:
    """Return every change with its values below a title, cut in the middle: the beginning and the end say most."""
    compared = review.comparison
    entries: list[Entry]
    if compared is None or not compared.changes:
        title, entries = "What the program said", list((review.refusal.detail if review.refusal else "").splitlines())
    else:
        count = len(compared.changes.items)
        title, entries = f"All {count} changes" if count > 1 else "The change", list(_entries(compared))
    return [f"**{title}**", "", "```diff", *_fitted(entries, words, room), "```"] if entries else []


_FOLD = 160
"""Characters of the markup around the block."""

Entry = str | tuple[ResourceChange, int]
"""A line, or the place of a changed input in its change: it is written only when it is shown."""


def _entries(compared: Comparison) -> Iterator[Entry]:
    """Yield the changes component by component; resources with changed tags alone come last, one line each."""
    component = None
    real = [change for change in compared.changes.items if compared.real(change.resource.urn)]
    ordered = sorted(real, key=lambda change: (change.tags_only, change.component, change.resource.urn))
    for change in ordered:
        above = "tags alone" if change.tags_only else change.component
        if above != component:
            component = above
            yield f"@@ {component} @@"
        yield f"{_SIGNS[change.kind]} {called(change.resource)}"
        if change.kind in ("update", "replace") and not change.tags_only:
            for place in range(len(change.paths)):
                yield change, place
            if change.follows and change.kind == "replace":
                yield f"      follows from {name_of(change.follows)}"
    for option in compared.changes.options:
        yield f"! option {option.option} of {option.name}: {option.before} → {option.after}"


_SIGNS = {"create": "+ create", "delete": "- delete", "replace": "! replace", "update": "  update"}


def _written(entry: Entry, words: Words) -> str:
    if isinstance(entry, str):
        return cut(words.in_block(entry), _LINE_LENGTH)
    change, place = entry
    path = change.paths[place]
    sign, why = ("!", "  (replaces it)") if path.replaces else (" ", "")
    return cut(f"{sign}     {words.in_block(words.path(change.resource, path))}{why}", _LINE_LENGTH)


def _fitted(entries: Sequence[Entry], words: Words, room: int) -> list[str]:
    """Return as many lines as fit, from both ends inwards, with a line in the middle that counts the others."""
    left = room - _FOLD
    head: list[str] = []
    tail: list[str] = []
    first, last = 0, len(entries) - 1
    while first <= last:
        front = len(head) <= len(tail)
        line = _written(entries[first if front else last], words)
        if len(line) + 1 > left:
            break
        left -= len(line) + 1
        if front:
            head.append(line)
            first += 1
        else:
            tail.append(line)
            last -= 1
    missing = last - first + 1
    middle = [f"# … {plural(missing, 'line')} left out …"] if missing > 0 else []
    return [*head, *middle, *reversed(tail)]
