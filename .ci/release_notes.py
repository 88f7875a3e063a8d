"""Print the changelog's section of a tag. A tag that is not the version, or has no section or no kept plans, fails.

python .ci/release_notes.py v0.1.0
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def version() -> str:
    """Return the version of the tree."""
    text = (ROOT / "trainium_eks" / "__init__.py").read_text(encoding="utf-8")
    return re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)[0]


def sections() -> dict[str, str]:
    """Return the text below each heading of the changelog, newest first; a heading is a version or ``Unreleased``."""
    parts = re.split(r"^## (\S+).*\n", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def notes(tag: str) -> str:
    """Return the notes of a release.

    Raises:
        SystemExit: the tree is not ready for this tag; the text names the remedy.
    """
    wanted = tag.removeprefix("v")
    if tag != f"v{version()}":
        sys.exit(f"{tag} is not v{version()}: set __version__ in trainium_eks/__init__.py, or tag v{version()}")
    if next(iter(sections())) != wanted:
        sys.exit(f"the first section of CHANGELOG.md is not {wanted}: rename Unreleased to '{wanted} (date)'")
    if not (ROOT / "tests" / "released_plans" / wanted).is_dir():
        sys.exit(f"tests/released_plans has no {wanted}: PYTHONPATH=. .venv/bin/python tests/releases.py {wanted}")
    return sections()[wanted]


if __name__ == "__main__":
    sys.stdout.write(f"{notes(sys.argv[1])}\n")
