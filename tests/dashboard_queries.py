"""What the panels of dashboards ask."""

import re
from typing import NamedTuple

ALL = ".*"
"""What a variable is where everything is chosen."""


class Query(NamedTuple):
    """What a panel asks, with variables; its title stands behind that of its section."""

    dashboard: str
    panel: str
    legend: str
    expression: str

    def __str__(self):
        return f"{self.dashboard}: {self.panel}: {self.legend or self.expression}"


def queries(dashboard):
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
    return re.sub(r"\$\{?(\w+)(?::\w+)?\}?", lambda match: values[match[1]], query)
