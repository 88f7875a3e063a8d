"""What the panels of dashboards ask."""

import re
from dataclasses import dataclass

ALL = ".*"
"""What a variable is where everything is chosen."""


@dataclass(frozen=True)
class Query:
    """What a panel asks."""

    dashboard: str
    """Its uid."""
    panel: str
    """Its title, behind that of its section."""
    legend: str
    expression: str
    """With variables."""

    def __str__(self):
        return f"{self.dashboard}: {self.panel}: {self.legend or self.expression}"


def queries(dashboard):
    """Everything that a dashboard asks."""
    section = ""
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            section = panel["title"]
        for target in panel.get("targets", ()):
            yield Query(dashboard["uid"], f"{section}, {panel['title']}", target["legendFormat"], target["expr"])


def variables(dashboard):
    """Each variable, and the selector and the label whose values may be chosen for it, everything else being chosen."""
    listed = dashboard["templating"]["list"]
    everything = {variable["name"]: ALL for variable in listed}
    for variable in listed:
        match = re.fullmatch(r"label_values\((.*),\s*(\w+)\)", variable["query"])
        assert match, f"{variable['query']}: only label_values(selector, label) is understood"
        yield variable["name"], expand(match[1], everything), match[2]


def expand(query, values):
    """A dashboard's query with values for its variables (``$name`` and ``${name}``)."""
    return re.sub(r"\$\{?(\w+)(?::\w+)?\}?", lambda match: values[match[1]], query)
