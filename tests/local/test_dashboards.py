"""A real Prometheus scrapes pages as a stack's Prometheus would, and every panel of each dashboard finds its data.

The pages (tests/exporter_pages) are of a local cloud on which one gang trains on each kind of device and one waits, and
of exporters of what no local cloud has: devices, EFA, hosts, FSx, kubelets. What trainings say is made by their code.
"""

import functools
import json
import re
import time

import exporters
import prometheus_server
import pytest
from dashboard_queries import ALL, expand, queries, variables
from served_series import EXPORTERS
from trainium_workloads.scraped import SeriesServer
from waiting import until

from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.observe import rules
from trainium_eks.observe.dashboards import dashboards
from trainium_eks.observe.series import scraping

pytestmark = pytest.mark.slow

WINDOW = f"{30 * prometheus_server.INTERVAL_SECONDS}s"
"""What ``$__rate_interval`` is: on a busy machine, some answers come too late."""

_OF_SOME = (
    "trn-job: Progress, Throughput: {{job_name}} tokens a second",
    "trn-nodes: Nodes, Hardware and repair: {{node}} {{condition}}",
    'trn-nodes: Nodes, Taints: kube_node_spec_taint{node=~"$node"}',
)
"""Tokens are of language; only accelerator nodes have taints and are watched by EKS' agent."""

DASHBOARDS = {name: json.loads(text) for name, text in dashboards().items()}
_ANYTHING = {"__rate_interval": WINDOW} | {
    variable["name"]: ALL for dashboard in DASHBOARDS.values() for variable in dashboard["templating"]["list"]
}
QUERIES = [query for dashboard in DASHBOARDS.values() for query in queries(dashboard)]

TRN1, P4D = "trn1.32xlarge", "p4d.24xlarge"
NODES = dict(
    re.findall(
        r'kube_node_labels\{node="([^"]+)".*label_node_kubernetes_io_instance_type="([^"]+)"',
        (exporters.FOLDER / "kube-state-metrics.prom").read_text(),
    )
)
"""Each node's type."""
RECORDED = sorted(path.stem for path in exporters.FOLDER.glob("*.prom"))


@pytest.fixture(scope="module")
def server(prometheus, tmp_path_factory):
    """Prometheus, which has seen everything, with the recording rules."""
    told = {"real": _training("neuron", "rows"), "told": _training("cuda", "synthetic")}
    pages = {f"/{name}": page for name, page in told.items()}
    pages |= {f"/{name}": exporters.recorded(name) for name in RECORDED}
    groups = rules.recording({name: CATALOGUE[name].hourly_usd or 0 for name in (TRN1, P4D)})
    folder = tmp_path_factory.mktemp("prometheus")
    with (
        exporters.served(pages) as port,
        prometheus_server.prometheus(prometheus["prometheus"], folder, [*_jobs(port)], groups) as server,
    ):
        yield server


def _training(backend, examples):
    """What a training says that takes four seconds a step: by what trainings say it with."""
    begun = time.time()
    scraped = SeriesServer({"backend": backend, "world_size": 8, "examples": examples}, 0, 64, begun - 3600)

    def page():
        step = 900 + int((time.time() - begun) / 4)
        scraped.step(step, 2 + 100 / step, 4.0, 131_072.0 if backend == "cuda" else None)
        scraped.saved(step // 100 * 100, begun - 30)
        return scraped.text()

    return page


def _nodes(*types):
    return [node for node, kind in NODES.items() if kind in types]


def _jobs(port):
    for scrape, nodes in (
        (scraping.NEURON_MONITOR, _nodes(TRN1)),
        (scraping.DCGM_EXPORTER, _nodes(P4D)),
        (scraping.EFA_EXPORTER, _nodes(TRN1, P4D)),
        (scraping.FSX_EXPORTER, [*NODES][:1]),
    ):
        pods = {f"{scrape.name}-{node}": {"pod_node_name": node} for node in nodes}
        yield prometheus_server.recorded(scrape, port, pods)
    of_queue = {"pod_label_volcano_sh_queue_name": "test"}
    trainings = {
        name: {"pod_label_volcano_sh_job_name": name, "pod_node_name": _nodes(kind)[0], **of_queue}
        for name, kind in (("real", TRN1), ("told", P4D))
    }
    yield prometheus_server.recorded(scraping.TRAININGS, port, trainings)
    for node in NODES:
        told = {"__meta_kubernetes_pod_node_name": node, "job": "node-exporter"}
        yield prometheus_server.plain(f"node-exporter-{node}", port, "/node-exporter", (scraping.NODE,), **told)
    yield prometheus_server.plain("kubelet", port, "/kubelet", node=next(iter(NODES)))
    for name in ("kube-state-metrics", "apiserver", "volcano-scheduler", "volcano-controller"):
        yield prometheus_server.plain(name, port, f"/{name}")


def _without_data(server, **chosen):
    """Queries without a sample where everything is chosen, but for what is given."""
    values = {**_ANYTHING, **chosen}
    return [query for query in QUERIES if not server.now(expand(query.expression, values))]


def test_every_query_finds_data(server):
    until(lambda: not _without_data(server), lambda: f"data for {_without_data(server)}")


def test_every_dashboard_variable_finds_data(server):
    for dashboard in DASHBOARDS.values():
        offered = functools.partial(_choices, server, dashboard)
        until(lambda asked=offered: all(asked().values()), lambda asked=offered: f"something to choose: {asked()}")
        for variable, values in offered().items():
            for value in values:
                empty = functools.partial(_empty_panels, server, dashboard["uid"], {variable: value})
                # On a busy machine a scrape may come too late, and its series are gone until the next.
                until(lambda asked=empty: not asked(), lambda asked=empty: f"data for {asked()}")


def _choices(server, dashboard):
    """What may be chosen for each variable of a dashboard."""
    return {
        name: server.ask(f"label/{label}/values", **{"match[]": selector})
        for name, selector, label in variables(dashboard)
    }


def _empty_panels(server, uid, chosen):
    lacking = _without_data(server, **chosen)
    return [f"{query} with {chosen}" for query in lacking if query.dashboard == uid and _is_for_all(server, query)]


def _is_for_all(server, query):
    """Whether it asks nothing that only some nodes, trainings or claims have."""
    asked = {EXPORTERS.get(name) for name, _ in server.selectors(expand(query.expression, _ANYTHING))}
    return not asked & {"neuron-monitor", "dcgm-exporter", "efa-exporter", "kubelet"} and str(query) not in _OF_SOME
