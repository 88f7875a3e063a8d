"""A real Prometheus scrapes a local cloud with a real Volcano and a real training, and every panel finds its data.

What is real of it, and what is not: tests/monitored_cloud.py.
"""

import functools
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import monitored_cloud
import prometheus_server
import pytest
from dashboard_queries import ALL, Query, expand, queries, variables
from prometheus_server import Server
from served_series import EXPORTERS
from waiting import until

from trainium_eks.local import toolchain
from trainium_eks.observe.dashboards import dashboards

pytestmark = pytest.mark.slow

WINDOW = f"{15 * prometheus_server.INTERVAL_SECONDS}s"
"""What ``$__rate_interval`` is: on a busy machine, some answers come too late."""

_OF_SOME = (
    "trn-job: Progress, Throughput: {{job_name}} tokens a second",
    "trn-nodes: Nodes, Hardware and repair: {{node}} {{condition}}",
    'trn-nodes: Nodes, Taints: kube_node_spec_taint{node=~"$node"}',
)
"""Tokens are of language; only accelerator nodes have taints and are watched by EKS' agent."""

DASHBOARDS: Mapping[str, dict[str, Any]] = {name: json.loads(text) for name, text in dashboards().items()}
_ANYTHING = {"__rate_interval": WINDOW} | {
    variable["name"]: ALL for dashboard in DASHBOARDS.values() for variable in dashboard["templating"]["list"]
}
QUERIES = [query for dashboard in DASHBOARDS.values() for query in queries(dashboard)]


@pytest.fixture(scope="module")
def server(
    binaries: Mapping[str, Path], prometheus: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Prometheus, which has seen everything."""
    assert binaries
    _, missing = toolchain.find(toolchain.VOLCANO)
    if missing or os.environ.get("TRN_VOLCANO") == "off":
        pytest.skip("no Volcano here: `python -m trainium_eks.local.toolchain` provides it where it can")
    place = tmp_path_factory.mktemp("monitored")
    (place / "prometheus").mkdir()
    with (
        monitored_cloud.stack(place / "project") as project,
        monitored_cloud.watched(project, prometheus["prometheus"], place / "prometheus") as server,
    ):
        yield server


def _without_data(server: Server, **chosen: str) -> list[Query]:
    """Queries without a sample where everything is chosen, but for what is given."""
    values = {**_ANYTHING, **chosen}
    return [query for query in QUERIES if not server.now(expand(query.expression, values))]


def test_every_query_finds_data(server: Server) -> None:
    until(lambda: not _without_data(server), lambda: f"data for {_without_data(server)}")


def test_so_does_each_choice(server: Server) -> None:
    for dashboard in DASHBOARDS.values():
        offered = functools.partial(_choices, server, dashboard)
        until(lambda asked=offered: all(asked().values()), lambda asked=offered: f"something to choose: {asked()}")
        for variable, values in offered().items():
            for value in values:
                empty = functools.partial(_empty_panels, server, dashboard["uid"], {variable: value})
                # On a busy machine a scrape may come too late, and its series are gone until the next.
                until(lambda asked=empty: not asked(), lambda asked=empty: f"data for {asked()}")


def _choices(server: Server, dashboard: Mapping[str, Any]) -> dict[str, list[str]]:
    """What may be chosen for each variable of a dashboard."""
    return {
        name: server.ask(f"label/{label}/values", **{"match[]": selector})
        for name, selector, label in variables(dashboard)
    }


def _empty_panels(server: Server, uid: str, chosen: Mapping[str, str]) -> list[str]:
    lacking = _without_data(server, **chosen)
    return [f"{query} with {chosen}" for query in lacking if query.dashboard == uid and _is_for_all(server, query)]


def _is_for_all(server: Server, query: Query) -> bool:
    """Whether it asks nothing that only some nodes, trainings or claims have."""
    asked = {EXPORTERS.get(name) for name, _ in server.selectors(expand(query.expression, _ANYTHING))}
    return not asked & {"neuron-monitor", "dcgm-exporter", "efa-exporter", "kubelet"} and str(query) not in _OF_SOME
