"""The dashboards that ship: of served series, and each panel with a description of what to do."""

import json
import re

import pytest
from dashboard_queries import expand, queries, variables
from served_series import unknown

from trainium_eks.observe.dashboards import dashboards

SHIPPED = {name: json.loads(text) for name, text in dashboards().items()}
NAMES = sorted(SHIPPED)


def _panels(dashboard):
    yield from (panel for panel in dashboard["panels"] if panel["type"] != "row")


def _values(dashboard):
    return {variable["name"]: ".*" for variable in dashboard["templating"]["list"]} | {"__rate_interval": "2m"}


@pytest.mark.parametrize("name", NAMES)
def test_dashboard_queries_only_served_or_recorded_series(name, server):
    dashboard = SHIPPED[name]
    asked = [expand(query.expression, _values(dashboard)) for query in queries(dashboard)]
    asked += [selector for _, selector, _ in variables(dashboard)]
    assert [wrong for query in asked for wrong in unknown(server, query)] == []


@pytest.mark.parametrize("name", NAMES)
def test_each_panel_has_a_description_and_a_unit(name):
    dashboard = SHIPPED[name]
    assert dashboard["description"]
    assert dashboard["tags"] == ["trainium-eks"]
    panels = list(_panels(dashboard))
    assert len(panels) > 5
    for panel in panels:
        assert panel["description"].endswith((".", "?")), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
        assert all(source == {"type": "prometheus", "uid": "prometheus"} for source in sources)
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_links_lead_to_dashboards_and_fill_their_variables():
    assert len({dashboard["uid"] for dashboard in SHIPPED.values()}) == len(SHIPPED)
    known = {each["uid"]: {one["name"] for one in each["templating"]["list"]} for each in SHIPPED.values()}
    fields = [panel["fieldConfig"]["defaults"] for dashboard in SHIPPED.values() for panel in _panels(dashboard)]
    urls = [link["url"] for field in fields for link in field.get("links", ())]
    assert len(urls) > 10
    for url in urls:
        link = re.fullmatch(r"/d/(?P<uid>[a-z-]+)\?(?P<variables>\S*)", url)
        assert link
        assert set(re.findall(r"var-(\w+)=", link["variables"])) <= known[link["uid"]]
