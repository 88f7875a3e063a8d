"""A local cloud that is monitored: a training that runs, one that is said to, one that waits, and a Prometheus.

What no local cloud has (devices, EFA, hosts, FSx, kubelets) comes from pages that its exporters gave, by the
relabelling that a stack asks the operator for; Volcano, the API server and the training are asked themselves.
"""

import functools
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import exporters
import kube_state
import prometheus_server
import pytest
import yaml
from local_project import LocalProject
from prometheus_server import Config, Server
from trainium_workloads.scraped import SeriesServer

from trainium_eks.jobs.objects.identity import JOB_API
from trainium_eks.kube.api import Api, ApiError
from trainium_eks.local.control_plane import pki
from trainium_eks.local.paths import Paths
from trainium_eks.model.catalogue.instances import CATALOGUE, INSTANCE_TYPE_LABEL
from trainium_eks.observe import rules
from trainium_eks.observe.series import scraping

TRN1, P4D = "trn1.32xlarge", "p4d.24xlarge"
GROUPS = [
    {"name": "trn1", "instanceType": TRN1, "minSize": 0, "maxSize": 4, "desiredSize": 3},
    {"name": "p4d", "instanceType": P4D, "minSize": 0, "maxSize": 4, "desiredSize": 1},
]
SUM = ("train", "--example", "gradient-sum", "--image", "local/python", "--no-scale")


@contextmanager
def stack(folder: Path) -> Iterator[LocalProject]:
    """A stack with its jobs; Volcano must be on this machine."""
    # On the machine's network: in one of their own, pods are out of reach of a Prometheus that is none.
    project = LocalProject.of_the_repository(folder)
    project = LocalProject(project.path, {"TRN_POD_ISOLATION": "ns", "TRN_VOLCANO": os.environ.get("TRN_VOLCANO", "")})
    project.configure("local", nodeGroups=GROUPS, queues=[{"name": "test", "deserved": {"aws.amazon.com/neuron": 16}}])
    try:
        up = project.trn("local", "up")
        assert up.returncode == 0, up.stderr[-3000:]
        assert "vc-scheduler" in project.processes("local"), up.stdout + up.stderr
        _submit(project, "real", "trn1", 2, "--detach", script=("--steps", "100000", "--step-seconds", "0.5"))
        _simulate(project, "told", "p4d")
        _submit(project, "waits", "trn1", 4, "--detach")
        yield project
    finally:
        project.trn("local", "down")


@contextmanager
def watched(project: LocalProject, program: Path, folder: Path) -> Iterator[Server]:
    """A Prometheus of the stack, with the recording rules.

    Args:
        project: with the stack.
        program: of Prometheus.
        folder: for its files.
    """
    api = Api.connect(Paths.of(project.path, "local").kubeconfig)
    _report_healthy_hardware(api)
    _be_refused(api)
    groups = rules.recording({name: CATALOGUE[name].hourly_usd or 0 for name in (TRN1, P4D)})
    with exporters.served(_pages(api)) as port:
        jobs = [*_found(project), *_recorded(port, api)]
        with prometheus_server.prometheus(program, folder, jobs, groups) as server:
            yield server


def _submit(project: LocalProject, name: str, group: str, nodes: int, *options: str, script: Sequence[str] = ()) -> str:
    asked = ("--name", name, "--group", group, "--nodes", str(nodes), *options)
    shown = project.trn(*SUM, *asked, *(("--", *script) if script else ()))
    assert shown.returncode == 0, shown.stderr
    return str(shown.stdout)


def _simulate(project: LocalProject, name: str, group: str) -> None:
    """A job of one node whose pod nobody runs: `trn train` refuses such an image on a local cloud."""
    job = yaml.safe_load(
        _submit(project, name, group, 1, "--no-metrics", "--dry-run").replace("local/python", "example.com/none")
    )
    Api.connect(Paths.of(project.path, "local").kubeconfig).create(job)


def _nodes(api: Api, *instance_types: str) -> list[str]:
    """Names of the nodes of these types; without any, of all."""
    types = f"{INSTANCE_TYPE_LABEL} in ({','.join(instance_types)})" if instance_types else ""
    found = api.list("v1", "Node", labels=types)
    return [node["metadata"]["name"] for node in found]


def _report_healthy_hardware(api: Api) -> None:
    """As EKS' node monitoring agent does on real nodes."""
    condition = {"type": "AcceleratedHardwareReady", "status": "True", "reason": "NeuronAcceleratedHardwareIsReady"}
    for name in _nodes(api, TRN1, P4D):
        api.request("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"conditions": [condition]}}, **_MERGE)


_MERGE: dict[str, Any] = {"content_type": "application/strategic-merge-patch+json"}


def _be_refused(api: Api) -> None:
    """By Volcano's webhook: a gang of more pods than the job has."""
    template = {"spec": {"containers": [{"name": "main", "image": "example.com/none"}], "restartPolicy": "Never"}}
    spec = {"queue": "default", "minAvailable": 2, "tasks": [{"name": "one", "replicas": 1, "template": template}]}
    job = {"apiVersion": JOB_API, "kind": "Job", "metadata": {"name": "none", "namespace": "default"}, "spec": spec}
    with pytest.raises(ApiError, match="admission webhook"):
        api.create(job)


def _pages(api: Api) -> dict[str, exporters.Page]:
    names = ("neuron-monitor", "dcgm-exporter", "efa-exporter", "fsx-exporter", "node-exporter", "kubelet")
    return {
        **{f"/{name}": exporters.recorded(name) for name in names},
        "/kube-state-metrics": functools.partial(kube_state.page, api.list),
        "/told": _told(),
    }


def _told() -> exporters.Page:
    """What a training of language says that takes four seconds a step: by what trainings say it with."""
    begun = time.time()
    scraped = SeriesServer({"backend": "cuda", "world_size": 8, "examples": "synthetic"}, 0, 64, begun - 3600)

    def page() -> str:
        step = 900 + int((time.time() - begun) / 4)
        scraped.step(step, 2 + 100 / step, 4.0, 131_072.0)
        scraped.saved(step // 100 * 100, begun - 30)
        return scraped.text()

    return page


def _found(project: LocalProject) -> list[Config]:
    """What really runs: trainings, the API server, Volcano."""
    paths = Paths.of(project.path, "local")
    ports = json.loads((paths.volcano / "ports.json").read_text())
    settings = json.loads(paths.settings.read_text())["ports"]
    tls = {
        "ca_file": str(pki.certificate(paths, "ca")),
        "cert_file": str(pki.certificate(paths, "admin")),
        "key_file": str(pki.key(paths, "admin")),
    }
    volcano = {"vc-scheduler": scraping.VOLCANO_SCHEDULER, "vc-controller-manager": scraping.VOLCANO_CONTROLLER}
    api_server = prometheus_server.plain("apiserver", [(f"127.0.0.1:{settings['kube-apiserver']}", "/metrics")])
    return [
        prometheus_server.discovered(scraping.TRAININGS, paths.kubeconfig, "127.0.0.1:$1"),
        {**api_server, "scheme": "https", "tls_config": tls},
        *(
            prometheus_server.plain(scrape.name, [(f"127.0.0.1:{ports[f'{name}.metrics']}", "/metrics")])
            for name, scrape in volcano.items()
        ),
    ]


def _recorded(port: int, api: Api) -> list[Config]:
    agents = (
        (scraping.NEURON_MONITOR, _nodes(api, TRN1)),
        (scraping.DCGM_EXPORTER, _nodes(api, P4D)),
        (scraping.EFA_EXPORTER, _nodes(api, TRN1, P4D)),
        (scraping.FSX_EXPORTER, _nodes(api)[:1]),
    )
    here = f"127.0.0.1:{port}"
    told = {"pod_label_volcano_sh_job_name": "told", "pod_label_volcano_sh_queue_name": "test"}
    told |= {"pod_node_name": _nodes(api, P4D)[0]}
    hosts = [
        prometheus_server.plain(
            f"node-exporter-{node}",
            [(here, "/node-exporter")],
            (scraping.NODE,),
            __meta_kubernetes_pod_node_name=node,
            job="node-exporter",
        )
        for node in _nodes(api)
    ]
    return [
        *(
            prometheus_server.recorded(
                scrape, port, f"/{scrape.name}", {f"{scrape.name}-{node}": {"pod_node_name": node} for node in those}
            )
            for scrape, those in agents
        ),
        prometheus_server.recorded(scraping.TRAININGS, port, "/told", {"told-trainer-0-0": told}),
        *hosts,
        prometheus_server.plain("kubelet", [(here, "/kubelet")], node=_nodes(api)[0]),
        prometheus_server.plain("kube-state-metrics", [(here, "/kube-state-metrics")]),
    ]
