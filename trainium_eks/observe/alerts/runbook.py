"""Pages of the alerts, sections of docs/alerts.md: the meaning, places to look at, the remedy, the cost of waiting.

In commands, names in capitals stand for one's own: ``JOB``, ``TEAM`` (a namespace), ``STACK``, ``NODE``, ``INSTANCE``.
"""

import re
from functools import cache
from pathlib import Path

from trainium_eks.observe.faults import catalogue


def page(name: str) -> str:
    """Return the page of an alert, as Markdown: its section, and the faults of the catalogue that name the alert.

    Raises:
        KeyError: there is no such alert.
    """
    text = f"# {name}\n\n{sections()[name]}\n"
    entries = [f"- **{fault.name}**: {fault.symptom} Remedy: {fault.mend()}" for fault in catalogue.of_alert(name)]
    return "\n".join([text, "## Faults that `trn doctor` names", "", *entries, ""]) if entries else text


def about(name: str) -> str:
    """Return the first sentence of a page, on one line.

    Raises:
        KeyError: there is no such alert.
    """
    paragraph = sections()[name].split("\n\n")[0].replace("\n", " ")
    return paragraph.partition(". ")[0].removesuffix(".") + "."


@cache
def sections() -> dict[str, str]:
    """Return the text below each alert's heading in docs/alerts.md."""
    text = document("alerts.md").read_text(encoding="utf-8")
    _, *parts = re.split(r"^## (\w+)$|^## .*$", text, flags=re.MULTILINE)
    return {name: text.strip("\n") for name, text in zip(parts[::2], parts[1::2], strict=True) if name}


def document(name: str) -> Path:
    """Return the file of a document that commands read or name: the wheel has it inside the package."""
    package = Path(__file__).parents[2]
    inside = package / "docs" / name
    return inside if inside.is_file() else package.parent / "docs" / name
