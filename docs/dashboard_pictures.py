"""Draws the dashboards from answers that were kept: docs/dashboard-*.png.

    PYTHONPATH=.:tests:workloads python -m monitored_cloud /tmp/monitored answers.json --minutes 10
    npm ci --prefix docs/panels && npm run build --prefix docs/panels
    PYTHONPATH=. .venv/bin/python docs/dashboard_pictures.py answers.json docs/panels/build

The second command needs npm, the third Chromium (or Chrome) on PATH. ``docs/panels/draw.tsx`` is what draws.
"""

import base64
import itertools
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainium_eks.observe.dashboards import dashboards

PLACE = Path(__file__).parent
WIDTH = 1320
HEADING, CELL, GAP = 48, 30, 8
"""Pixels, as in draw.tsx: the title; a unit of Grafana's grid; between two panels."""

KINDS = ("row", "stat", "table", "timeseries", "state-timeline")
"""Panels that draw.tsx knows."""
TRANSFORMATIONS = ("filterFieldsByName", "organize", "renameByRegex")


class NotDrawnError(ValueError):
    """A dashboard that cannot be drawn as Grafana would, or not from these answers."""


def drawing(dashboard: Mapping[str, Any], answers: Mapping[str, Any]) -> dict[str, Any]:
    """What draw.tsx is given of a dashboard.

    Args:
        dashboard: Grafana's JSON.
        answers: what ``python -m dashboard_answers`` kept of it.

    Returns:
        Its title, its variables' choices as text, its panels with the answers of each, the range of the answers and
        the time between two of them in seconds, and the width in pixels.

    Raises:
        NotDrawnError: it has what draw.tsx does not know, or the answers are of another edition of it.
    """
    kept = iter(answers["queries"])
    panels = [_panel(panel, kept) for panel in dashboard["panels"]]
    if left := [each["panel"] for each in kept]:
        raise NotDrawnError(f"{dashboard['title']}: answers without a panel: {', '.join(left)}; ask again")
    lines = [line for panel in panels for line in _lines(panel["answers"])]
    if not lines:
        raise NotDrawnError(f"{dashboard['title']}: no answer has two points in time")
    return {
        "title": dashboard["title"],
        "variables": [f"{each['label']}: All" for each in dashboard["templating"]["list"]],
        "panels": panels,
        "from": min(line[0] for line in lines),
        "to": max(line[-1] for line in lines),
        "step": min(later - earlier for line in lines for earlier, later in itertools.pairwise(line)),
        "width": WIDTH,
    }


def _panel(panel: Mapping[str, Any], kept: Iterator[Mapping[str, Any]]) -> dict[str, Any]:
    _check(panel)
    answers = []
    for target in panel.get("targets", ()):
        answer = next(kept, {"panel": ", nothing", "legend": ""})
        if not answer["panel"].endswith(f", {panel['title']}") or answer["legend"] != target["legendFormat"]:
            raise NotDrawnError(f"{panel['title']}: the answers go on with {answer['panel']}; ask again")
        answers.append({"legend": answer["legend"], "result": answer["result"]})
    return {**panel, "answers": answers}


def _check(panel: Mapping[str, Any]) -> None:
    unknown = [] if panel["type"] in KINDS else [f"type {panel['type']}"]
    for override in panel.get("fieldConfig", {}).get("overrides", ()):
        what = [override["matcher"]["id"], *(each["id"] for each in override["properties"])]
        unknown += [] if what == ["byName", "custom.width"] else [f"an override of {', '.join(what)}"]
    unknown += [each["id"] for each in panel.get("transformations", ()) if each["id"] not in TRANSFORMATIONS]
    if unknown:
        raise NotDrawnError(f"{panel['title']}: docs/panels/draw.tsx does not know {', '.join(unknown)}")


def _lines(answers: Sequence[Mapping[str, Any]]) -> Iterator[list[float]]:
    """Times of each series that has more than one."""
    for answer in answers:
        for series in answer["result"]:
            if len(times := [time for time, _ in series.get("values", ())]) > 1:
                yield times


def height(dashboard: Mapping[str, Any]) -> int:
    """Of its picture, in pixels."""
    places = [panel["gridPos"] for panel in dashboard["panels"]]
    rows: int = max(place["y"] + place["h"] for place in places)
    return HEADING + rows * (CELL + GAP)


def page(drawn: Mapping[str, Any], program: Path) -> str:
    """HTML that draws itself.

    Args:
        drawn: of ``drawing``.
        program: folder with draw.tsx' bundle.
    """
    data = json.dumps(drawn).replace("<", "\\u003c")
    # In the page itself: of another file it would not be told which error a script met.
    script = (program / "draw.js").read_text(encoding="utf-8").replace("</script", "<\\/script")
    style = (program / "draw.css").read_text(encoding="utf-8")
    return (
        f'<!doctype html><meta charset="utf-8"><style>{style} body {{ background: #f4f5f5 }}</style>'
        f'<div id="dashboard"></div><script>window.dashboard = {data}; window.errors = [];'
        f"onerror = (...said) => errors.push(String(said[4]?.stack ?? said[0]));</script><script>{script}</script>"
    )


def main(answers: Path, program: Path) -> None:
    """Writes all pictures."""
    from chromium import browser, until  # of the optional packages, as Chromium is

    kept = json.loads(answers.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder, browser() as tab:
        for name, text in dashboards().items():
            dashboard = json.loads(text)
            file = Path(folder) / "page.html"
            file.write_text(page(drawing(dashboard, kept[name]), program.resolve()), encoding="utf-8")
            tab.open(file.as_uri(), WIDTH, height(dashboard))
            until(lambda: tab.value("window.drawn || errors.length"), f"{name} is not drawn")
            if errors := tab.value("errors"):
                sys.exit(f"{name}: {errors}")
            smaller = tab.value(f"smaller('{tab.picture()}')")
            (PLACE / f"dashboard-{Path(name).stem}.png").write_bytes(base64.b64decode(smaller))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
