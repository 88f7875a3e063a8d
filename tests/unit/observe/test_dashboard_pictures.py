"""What the pictures of dashboards are drawn from; drawing them needs npm and Chromium, which no test asks for."""

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from dashboard_answers import queries

from trainium_eks.observe.dashboards import dashboards

ROOT = Path(__file__).resolve().parents[3]
FLEET: dict[str, Any] = json.loads(dashboards()["fleet.json"])


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    spec = importlib.util.spec_from_file_location("dashboard_pictures", ROOT / "docs" / "dashboard_pictures.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("dashboard_pictures", None)


def _kept(dashboard: dict[str, Any]) -> dict[str, Any]:
    """Answers as tests/dashboard_answers.py keeps them."""
    at_once = [{"metric": {"node": "a"}, "value": [130.0, "1"]}]
    over_time = [{"metric": {"node": "a"}, "values": [[100.0, "1"], [115.0, "2"], [130.0, "3"]]}]
    return {
        "choices": {},
        "queries": [
            {"panel": each.panel, "legend": each.legend, "result": at_once if each.is_instant else over_time}
            for each in queries(dashboard)
        ],
    }


@pytest.mark.parametrize("name", sorted(dashboards()))
def test_every_dashboard_can_be_drawn(pictures: ModuleType, name: str) -> None:
    dashboard = json.loads(dashboards()[name])
    drawn = pictures.drawing(dashboard, _kept(dashboard))
    assert [panel["title"] for panel in drawn["panels"]] == [panel["title"] for panel in dashboard["panels"]]
    assert all(len(panel["answers"]) == len(panel.get("targets", ())) for panel in drawn["panels"])
    assert (drawn["from"], drawn["to"], drawn["step"]) == (100, 130, 15)
    assert (ROOT / "docs" / f"dashboard-{Path(name).stem}.png").exists(), "docs/dashboard_pictures.py draws it"


def test_a_picture_is_as_high_as_its_panels(pictures: ModuleType) -> None:
    # 31 rows: 30 pixels each, and 8 below.
    assert pictures.height(FLEET) == 48 + 31 * 38


def test_answers_of_another_edition_are_refused(pictures: ModuleType) -> None:
    for spoil in (lambda kept: kept.pop(), lambda kept: kept.reverse(), lambda kept: kept.append(kept[0])):
        kept = _kept(FLEET)
        spoil(kept["queries"])
        with pytest.raises(pictures.NotDrawnError, match="ask again"):
            pictures.drawing(FLEET, kept)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"type": "heatmap"}, "type heatmap"),
        (
            {"fieldConfig": {"overrides": [{"matcher": {"id": "byName"}, "properties": [{"id": "unit"}]}]}},
            "an override of byName, unit",
        ),
        ({"transformations": [{"id": "merge"}]}, "merge"),
    ],
)
def test_nothing_is_left_out_silently(pictures: ModuleType, changed: dict[str, Any], said: str) -> None:
    panel = {**FLEET["panels"][1], **changed}
    with pytest.raises(pictures.NotDrawnError, match=f"Accelerators: .* does not know {said}"):
        pictures.drawing({**FLEET, "panels": [panel]}, _kept(FLEET))


def test_answers_are_drawn_over_time_or_not_at_all(pictures: ModuleType) -> None:
    kept = _kept(FLEET)
    for each in kept["queries"]:
        each["result"] = []
    with pytest.raises(pictures.NotDrawnError, match="no answer has two points"):
        pictures.drawing(FLEET, kept)


def test_a_label_cannot_end_the_script(pictures: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "draw.js").write_text("const end = '</script>';")
    (tmp_path / "draw.css").write_text("h1 {}")
    page = pictures.page({"title": "</script><b>"}, tmp_path)
    assert page.count("</script>") == 2
    assert "h1 {}" in page


def test_all_panels_colour_by_their_thresholds() -> None:
    """A state timeline does not by itself, whatever its thresholds are."""
    panels = [panel for text in dashboards().values() for panel in json.loads(text)["panels"]]
    modes = [panel["fieldConfig"]["defaults"].get("color") for panel in panels if panel["type"] == "state-timeline"]
    assert modes == [{"mode": "thresholds"}] * 2
