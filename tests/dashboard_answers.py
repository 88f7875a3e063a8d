"""What a Prometheus answers to every panel, as JSON: for pictures, and for tests that no panel stays empty.

python -m dashboard_answers http://localhost:9090 answers.json [--minutes 60] [--step 15]
"""

import argparse
import json
import re
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainium_eks.observe.dashboards import dashboards
from trainium_eks.observe.queries import expand

ALL = ".*"
"""What a variable is where everything is chosen."""

_LABEL_VALUES = re.compile(r"label_values\((?P<selector>.*),\s*(?P<label>\w+)\)")


@dataclass(frozen=True)
class Server:
    """Prometheus' HTTP API."""

    url: str
    """``http://localhost:9090``."""

    def ask(self, path: str, **parameters: object) -> Any:
        """The ``data`` of an answer; raises urllib's ``HTTPError`` with Prometheus' words as its body."""
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters, doseq=True)}"
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(address, timeout=120) as answer:
            return json.load(answer)["data"]

    def now(self, query: str) -> list[dict[str, Any]]:
        """Series as they are now, each with ``metric`` and ``value``."""
        found: list[dict[str, Any]] = self.ask("query", query=query)["result"]
        return found

    def over(self, query: str, start: float, end: float, step: float) -> list[dict[str, Any]]:
        """Series between two times (seconds since 1970), each with ``metric`` and ``values``."""
        found: list[dict[str, Any]] = self.ask("query_range", query=query, start=start, end=end, step=step)["result"]
        return found


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
    is_instant: bool

    def __str__(self) -> str:
        return f"{self.dashboard}: {self.panel}: {self.legend or self.expression}"


def queries(dashboard: Mapping[str, Any]) -> Iterator[Query]:
    """Everything that a dashboard asks."""
    section = ""
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            section = panel["title"]
        for target in panel.get("targets", ()):
            title = f"{section}, {panel['title']}"
            instant = target.get("instant", False)
            yield Query(dashboard["uid"], title, target["legendFormat"], target["expr"], instant)


def choices(dashboard: Mapping[str, Any], server: Server) -> dict[str, list[str]]:
    """What may be chosen for each variable of a dashboard, everything being chosen for the others."""
    variables = dashboard["templating"]["list"]
    everything = {variable["name"]: ALL for variable in variables}
    found = {}
    for variable in variables:
        match = _LABEL_VALUES.fullmatch(variable["query"])
        assert match, f"{variable['query']}: only label_values(selector, label) is understood"
        selector = expand(match["selector"], everything)
        found[variable["name"]] = server.ask(f"label/{match['label']}/values", **{"match[]": selector})
    return found


def answers(server: Server, seconds: float, step: float) -> dict[str, Any]:
    """By file name of the dashboard: its variables' choices, and of each query what Prometheus answers.

    Args:
        server: asked.
        seconds: how far back.
        step: seconds between two points.
    """
    # One end for all: a panel's queries are drawn, and stacked, at the same times.
    end = time.time()
    found: dict[str, Any] = {}
    for name, text in dashboards().items():
        dashboard = json.loads(text)
        chosen = choices(dashboard, server)
        values = {**dict.fromkeys(chosen, ALL), "__rate_interval": f"{max(4 * step, 1):g}s"}
        asked = [(query, expand(query.expression, values)) for query in queries(dashboard)]
        found[name] = {
            "choices": chosen,
            "queries": [_answered(server, *each, end - seconds, end, step) for each in asked],
        }
    return found


def _answered(server: Server, query: Query, expression: str, start: float, end: float, step: float) -> dict[str, Any]:
    result = server.now(expression) if query.is_instant else server.over(expression, start, end, step)
    return {"panel": query.panel, "legend": query.legend, "expression": expression, "result": result}


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the file."""
    parser = argparse.ArgumentParser(prog="python -m dashboard_answers", description=__doc__.splitlines()[0])
    parser.add_argument("url", help="of Prometheus")
    parser.add_argument("file", type=Path)
    parser.add_argument("--minutes", type=float, default=60.0, help="how far back; default: %(default)g")
    parser.add_argument("--step", type=float, default=15.0, help="seconds between two points; default: %(default)g")
    asked = parser.parse_args(arguments)
    found = answers(Server(asked.url), asked.minutes * 60, asked.step)
    asked.file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
