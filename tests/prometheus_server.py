"""A Prometheus of a test's own, told what to scrape as the Prometheus Operator would tell it."""

import json
import subprocess
import urllib.parse
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass

from waiting import until

from trainium_eks.local.control_plane.ports import free_port

INTERVAL_SECONDS = 1
"""How often everything is asked and computed."""


@dataclass(frozen=True)
class Server:
    url: str
    """``http://localhost:9090``."""

    def ask(self, path, **parameters):
        """The ``data`` of an answer; raises urllib's ``HTTPError`` with Prometheus' words as its body."""
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters, doseq=True)}"
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(address, timeout=120) as answer:
            return json.load(answer)["data"]

    def now(self, query):
        """Series as they are now, each with ``metric`` and ``value``."""
        return self.ask("query", query=query)["result"]

    def selectors(self, query):
        """Each series in a query, and the labels that it is chosen by."""
        return list(_selectors(self.ask("parse_query", query=query)))


def _selectors(tree):
    if isinstance(tree, dict):
        if tree.get("type") in ("vectorSelector", "matrixSelector"):
            yield tree["name"], [each["name"] for each in tree["matchers"] if each["name"] != "__name__"]
        tree = list(tree.values())
    if isinstance(tree, list):
        for below in tree:
            yield from _selectors(below)


@contextmanager
def prometheus(program, folder, jobs, groups):
    """Runs it, with these ``scrape_configs`` and these groups of rules."""
    interval = f"{INTERVAL_SECONDS}s"
    often = {"scrape_interval": interval, "evaluation_interval": interval, "scrape_timeout": interval}
    config = {"global": often, "rule_files": ["rules.json"], "scrape_configs": [*jobs]}
    (folder / "prometheus.json").write_text(json.dumps(config))
    (folder / "rules.json").write_text(json.dumps({"groups": [{**group, "interval": interval} for group in groups]}))
    address = f"127.0.0.1:{free_port(set())}"
    command = [program, "--config.file=prometheus.json", "--storage.tsdb.path=data", f"--web.listen-address={address}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    server = Server(f"http://{address}")
    try:
        _await(server, process, folder / "prometheus.log")
        yield server
    finally:
        process.terminate()
        try:
            process.wait(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await(server, process, log):
    def answers():
        assert process.poll() is None, log.read_text()
        try:
            return server.now("vector(1)")
        except OSError:  # urllib's URLError, too
            return None

    until(answers, log.read_text)


def recorded(scrape, port, pods):
    """A job over the page of its name for each of these pods, relabelled as the operator does it for a PodMonitor
    (pkg/prometheus/promcfg.go). ``pods`` has each name with what service discovery says of it, without
    ``__meta_kubernetes_``."""
    targets = [
        {
            "targets": [f"127.0.0.1:{port}"],
            "labels": {
                "__metrics_path__": f"/{name}" if scrape.name == "training" else f"/{scrape.name}",
                "__meta_kubernetes_namespace": scrape.namespace or "training",
                "__meta_kubernetes_pod_name": name,
                "__meta_kubernetes_pod_container_name": "main",
                **{f"__meta_kubernetes_{label}": value for label, value in told.items()},
            },
        }
        for name, told in pods.items()
    ]
    own = {"namespace": "namespace", "container": "pod_container_name", "pod": "pod_name"}
    steps = [{"sourceLabels": [f"__meta_kubernetes_{source}"], "targetLabel": label} for label, source in own.items()]
    steps += [
        {"targetLabel": "endpoint", "replacement": scrape.port},
        {"targetLabel": "job", "replacement": scrape.name},
    ]
    return {
        "job_name": scrape.name,
        "static_configs": targets,
        "relabel_configs": [_step(each) for each in (*steps, *scrape.relabelings)],
        "metric_relabel_configs": [_step(each) for each in scrape.metric_relabelings],
    }


def plain(name, port, page, steps=(), **labels):
    """A job over a page, for what kube-prometheus-stack scrapes by itself."""
    target = {"targets": [f"127.0.0.1:{port}"], "labels": {"__metrics_path__": page, **labels}}
    return {"job_name": name, "static_configs": [target], "relabel_configs": [_step(each) for each in steps]}


def _step(step):
    words = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    return {words.get(key, key): value for key, value in step.items()}
