"""What a comment may be on each platform: how long, how it is found again, and what folds."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Platform:
    """One."""

    name: str
    most_characters: int
    """Well below what the platform refuses."""
    folds: bool
    """Whether ``<details>`` folds; otherwise it would be shown as text."""
    hidden: str
    """A line that is kept and not shown; ``{}`` is what it says."""
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
"""By name. Bitbucket's Markdown shows HTML as it is, so its marker is a link's definition, which shows as nothing."""


def marker(platform: Platform, project: str, stack: str) -> str:
    """The first line of a comment, by which a later run finds it: one for each stack."""
    return platform.hidden.format(f"trn-preview:{project}/{stack}")
