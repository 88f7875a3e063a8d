"""Platforms of pull requests: the limits of a comment, its marker, and its folding."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
"""A project's or a stack's name, as Pulumi takes it."""


@dataclass(frozen=True)
class Platform:
    """One platform."""

    name: str
    most_characters: int
    """Most characters of a comment, well below the platform's limit."""
    folds: bool
    """Whether ``<details>`` folds; if not, it would be shown as text."""
    hidden: str
    """A line that is kept and not shown; ``{}`` stands for its text."""
    colors: bool
    """Whether a code block of ``diff`` is coloured by its lines' first characters."""


PLATFORMS: Mapping[str, Platform] = {
    each.name: each
    for each in (
        # GitHub refuses 65,536 characters, GitLab a million, Bitbucket 32,768.
        Platform("github", 60_000, folds=True, hidden="<!-- {} -->", colors=True),
        Platform("gitlab", 60_000, folds=True, hidden="<!-- {} -->", colors=True),
        Platform("bitbucket", 30_000, folds=False, hidden="[//]: # ({})", colors=True),
    )
}
"""Platforms by name. Bitbucket's Markdown shows HTML as it is, so its marker is a link's definition, which shows as
nothing."""


def marker(platform: Platform, project: str, stack: str) -> str:
    """Return the first line of a comment, by which a later run finds it: one for each stack."""
    return platform.hidden.format(f"trn-preview:{project}/{stack}")
