"""Volcano's processes, as the chart describes them, and Kubeflow's Training Operator."""

from pathlib import Path

import pytest
import yaml

from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.control_plane.ports import Settings
from trainium_eks.local.control_plane.processes import Running
from trainium_eks.local.paths import Paths
from trainium_eks.local.releases import volcano
from trainium_eks.local.releases.training_operator import OperatorSource
from trainium_eks.local.releases.volcano import Programs, Volcano, described
from trainium_eks.plan.graph import Graph, Resource

DIRECTORY = Path("/state/volcano")


def deployment(name, args=(), **container):
    sources = {"conf": {"configMap": {"name": "vol-conf"}}, "certs": {"secret": {"secretName": "vol-secret"}}}
    volumes = [{"name": volume, **source} for volume, source in sources.items()]
    mounts = [{"name": volume, "mountPath": f"/{volume}"} for volume in sources]
    pod = {"containers": [{"name": "c", "args": [*args], "volumeMounts": mounts, **container}], "volumes": volumes}
    body = {"metadata": {"name": name}, "spec": {"template": {"spec": pod}}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", **body}


def processes(*deployments, **files):
    data = {name.replace("_", "."): text for name, text in files.items()}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "vol-conf"}, "data": data}
    return described("vol", yaml.safe_dump_all([config_map, *deployments]), DIRECTORY)


def test_process_gets_its_containers_settings_except_local_ones():
    ours = ["--leader-elect=true", "--port=8443", "--tls-cert-file=/certs/tls.crt", "--enable-healthz=true", "2>&1"]
    env = [
        {"name": "KUBE_POD_NAMESPACE", "value": "volcano-system"},
        {"name": "GOMEMLIMIT", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory"}}},
    ]
    body = deployment("vol-scheduler", ["--kube-api-qps=2000", "-v=3", "--logtostderr", *ours], env=env)
    process = processes(body)["vc-scheduler"]
    assert process.arguments == ("--kube-api-qps=2000", "-v=3", "--logtostderr")
    assert process.environment == {"KUBE_POD_NAMESPACE": "volcano-system"}


def test_process_has_its_service_account_and_mounted_files():
    for field in ("serviceAccountName", "serviceAccount"):
        body = deployment("vol-controllers")
        body["metadata"]["namespace"] = "elsewhere"
        body["spec"]["template"]["spec"][field] = "vol-controllers"
        assert processes(body)["vc-controller-manager"].account == ("elsewhere", "vol-controllers")
    body = deployment("vol-scheduler", ["--scheduler-conf=/conf/s.conf"])
    process = processes(body, s_conf="actions: allocate\n")["vc-scheduler"]
    assert process.arguments == ("--scheduler-conf=/state/volcano/vc-scheduler/s.conf",)
    assert process.files == {DIRECTORY / "vc-scheduler" / "s.conf": "actions: allocate\n"}
    with pytest.raises(ClusterError, match=r"vc-scheduler: the ConfigMap vol-conf .* has no s\.conf"):
        processes(body, other_conf="")


@pytest.mark.parametrize(("server_started", "restarted"), [(5, []), (20, ["vc-controller-manager"])])
def test_controllers_restart_after_api_server(tmp_path, monkeypatch, server_started, restarted):
    """They miss what is let into a queue before they watch again (volcano#5325)."""
    running = [Running(name, 1, 10) for name in volcano.DEPLOYMENTS] + [Running("kube-apiserver", 1, server_started)]
    stopped = []
    monkeypatch.setattr(volcano.processes, "running", lambda _: running)
    monkeypatch.setattr(volcano.processes, "stop", lambda _, names=None: stopped.extend(names))
    monkeypatch.setattr(volcano.processes, "restart", lambda *_: None)
    monkeypatch.setattr(volcano, "await_answers", lambda *_: None)
    monkeypatch.setattr(Volcano, "_started", lambda _, process, before, __: before or Running(process.name, 2, 30))
    Settings().with_ports(lambda _: False).save(Paths(tmp_path))
    here = Volcano(Paths(tmp_path), None, Programs(dict.fromkeys(volcano.DEPLOYMENTS, tmp_path)), lambda _: None)
    manifest = yaml.safe_dump_all(deployment(f"vol-{suffix}") for suffix in volcano.DEPLOYMENTS.values())
    [note] = here.run("vol", manifest)
    assert stopped == restarted
    assert all(f"(started {name})" in note for name in restarted)


def test_missing_programs_are_reported_in_one_sentence_with_the_fix(tmp_path):
    environment = {"PATH": "", "TRN_OFFLINE": "1", "TRN_CACHE": str(tmp_path / "cache")}
    found = Programs.provided(lambda _: None, environment)
    assert found.paths == {}
    assert found.missing == (
        "vc-webhook-manager, vc-scheduler, vc-controller-manager could not be found, downloaded or built "
        "(build: go is not on PATH); `python -m trainium_eks.local.toolchain` says what would help"
    )
    assert Programs.provided(lambda _: None, {**environment, "TRN_VOLCANO": "off"}).missing == "TRN_VOLCANO is off"


def test_the_training_operator_can_be_left_out():
    def provided(*resources):
        graph = Graph(project="p", stack="s", resources=resources, outputs={})
        found = OperatorSource.of(graph, lambda _: None, {"TRN_TRAINING_OPERATOR": "off", "PATH": ""})
        assert found.program is None
        return found.missing

    assert provided() == ""
    type_ = "kubernetes:kustomize/v2:Directory"
    urn = f"urn:pulumi:s::p::{type_}::x-training-operator"
    installed = Resource(urn=urn, type=type_, name="x-training-operator", custom=False, inputs={})
    assert provided(installed) == "TRN_TRAINING_OPERATOR is off"
