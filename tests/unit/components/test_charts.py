"""The local charts: parsed, and rendered by the real Helm."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from components import _charts
from components._training_operator import OPERATOR_DIRECTORY, OPERATOR_WITH_VOLCANO_DIRECTORY, source
from components.neuron_addons import monitor_values
from trainium_eks.model.catalogue import versions
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.observe.dashboards import dashboards

CHARTS = _charts.CHARTS_DIRECTORY
HELM_CHARTS = ("efa-exporter", "grafana-dashboards", "neuron-monitor", "torchx-etcd")
VALUES = {
    "efa-exporter": {
        "image": versions.IMAGES["python"],
        "instanceTypes": ["trn1.32xlarge"],
        "tolerations": _charts.tolerations(["trn1.32xlarge"], CATALOGUE),
    },
    "grafana-dashboards": {"dashboards": dict(dashboards())},
    "neuron-monitor": monitor_values(CATALOGUE),
    "torchx-etcd": {"image": versions.IMAGES["etcd"], "clientNamespaces": ["training", "research"]},
}


def read(path):
    return yaml.safe_load(path.read_text())


@pytest.fixture
def programs(binaries, monkeypatch):
    monkeypatch.setenv("PATH", str(binaries["helm"].parent), prepend=os.pathsep)


needs_programs = pytest.mark.usefixtures("programs")


def templates(chart):
    return {path.name: path.read_text() for path in (CHARTS / chart / "templates").iterdir()}


def helm(chart, tmp_path, *command, **more):
    """Return what Helm prints for the chart with the component's values."""
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({**VALUES[chart], **more}))
    command = ["helm", *command, str(CHARTS / chart), "--values", str(values)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rendered(chart, tmp_path, **more):
    """Every object of the chart by kind and name, as Helm makes it of the component's values."""
    flags = ("--namespace", chart, "--kube-version", versions.KUBERNETES)
    objects = yaml.safe_load_all(helm(chart, tmp_path, "template", *flags, chart, **more))
    return {(each["kind"], each["metadata"]["name"]): each for each in objects if each}


@pytest.mark.parametrize("chart", [*HELM_CHARTS, "training-operator", "training-operator-volcano"])
def test_charts_are_pinned_and_their_values_are_all_used(chart):
    if chart in VALUES:
        used = {name for text in templates(chart).values() for name in re.findall(r"\.Values\.(\w+)", text)}
        assert used == set(read(CHARTS / chart / "values.yaml")) >= set(VALUES[chart])
    for path in (CHARTS / chart).rglob("*.*"):
        text = "\n".join(line for line in path.read_text().splitlines() if not line.lstrip().startswith("#"))
        assert not re.search(r"\b(latest|main|master)\b", text), path.name


@needs_programs
@pytest.mark.parametrize("chart", HELM_CHARTS)
def test_a_chart_passes_helms_lint_and_its_objects_are_valid_kubernetes(chart, tmp_path):
    helm(chart, tmp_path, "lint", "--strict")
    for manifest in rendered(chart, tmp_path).values():
        kubernetes_validate.validate(manifest, versions.KUBERNETES, strict=True)


@needs_programs
def test_the_monitor_runs_on_every_neuron_type_on_the_host_network(tmp_path):
    pod = rendered("neuron-monitor", tmp_path)["DaemonSet", "neuron-monitor"]["spec"]["template"]["spec"]
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    (expression,) = term["matchExpressions"]
    assert set(expression["values"]) == {name for name, kind in CATALOGUE.items() if kind.family == "neuron"}
    assert read(CHARTS / "neuron-monitor" / "values.yaml")["image"] == versions.IMAGES["neuron-monitor"]
    assert pod["hostNetwork"] is True
    assert pod["tolerations"] == [{"key": "aws.amazon.com/neuron", "operator": "Exists", "effect": "NoSchedule"}]
    (container,) = pod["containers"]
    assert container["securityContext"] == {"privileged": True}
    assert set(container["resources"]) == {"requests", "limits"}
    with pytest.raises(AssertionError, match="instanceTypes is empty"):
        rendered("neuron-monitor", tmp_path, instanceTypes=[])


@needs_programs
def test_efa_exporter_reads_node_counters_without_rights(tmp_path):
    objects = rendered("efa-exporter", tmp_path)
    program = objects["ConfigMap", "efa-exporter"]["data"]["exporter.py"]
    assert program == (CHARTS / "efa-exporter" / "files" / "exporter.py").read_text()
    pod = objects["DaemonSet", "efa-exporter"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    (container,) = pod["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    mounted = {each["mountPath"]: each for each in container["volumeMounts"]}
    assert mounted["/node/sys"]["readOnly"] is True
    assert container["command"][-2:] == ["/node/sys", "9601"]
    assert [port["name"] for port in container["ports"]] == ["metrics"]


@needs_programs
def test_etcd_is_reachable_for_named_namespaces_and_runs_restricted(tmp_path):
    objects = rendered("torchx-etcd", tmp_path)
    pod = objects["StatefulSet", "etcd-server"]["spec"]["template"]
    for name in ("etcd-client", "etcd-server"):
        service = objects["Service", name]["spec"]
        assert service["selector"].items() <= pod["metadata"]["labels"].items()
        assert [port["port"] for port in service["ports"]] == [2379]
    (container,) = pod["spec"]["containers"]
    context, own = pod["spec"]["securityContext"], container["securityContext"]
    assert (context["runAsNonRoot"], context["seccompProfile"]) == (True, {"type": "RuntimeDefault"})
    assert (own["allowPrivilegeEscalation"], own["capabilities"]) == (False, {"drop": ["ALL"]})
    assert {"startupProbe", "livenessProbe", "readinessProbe", "resources"} <= set(container)
    assert "--enable-v2=true" in container["args"], "3.6 removed it, and etcd would not even start (pytorch#158326)"
    # Helm prints a large number as 2.68435456e+08, which etcd refuses.
    assert "--quota-backend-bytes=268435456" in container["args"]
    policy = objects["NetworkPolicy", "etcd-server"]["spec"]
    assert (policy["policyTypes"], policy["egress"]) == (["Ingress", "Egress"], [])
    (rule,) = policy["ingress"]
    assert rule["ports"] == [{"port": 2379, "protocol": "TCP"}]
    own, named = rule["from"]
    assert own == {"podSelector": {}}
    (expression,) = named["namespaceSelector"]["matchExpressions"]
    assert (expression["key"], expression["values"]) == ("kubernetes.io/metadata.name", ["training", "research"])
    (rule,) = rendered("torchx-etcd", tmp_path, clientNamespaces=[])["NetworkPolicy", "etcd-server"]["spec"]["ingress"]
    assert rule["from"] == [{"podSelector": {}}]


def test_training_operator_is_pinned_restricted_and_schedules_gangs():
    """A patched list replaces upstream's, which has a command and no arguments."""
    kustomization = read(OPERATOR_DIRECTORY / "kustomization.yaml")
    assert kustomization["resources"] == ["../upstream/overlays/standalone"]
    head = (OPERATOR_DIRECTORY / "upstream.sha256").read_text().splitlines()[0]
    assert {versions.TRAINING_OPERATOR, versions.TRAINING_OPERATOR_COMMIT} <= {*re.split(r"[^\w.]+", head)}
    assert f"/{versions.TRAINING_OPERATOR_COMMIT}/" in source().url
    (image,) = kustomization["images"]
    assert f"{image['name']}:{image['newTag']}" == versions.IMAGES["training-operator"]
    assert [patch["path"] for patch in kustomization["patches"]] == ["namespace.yaml", "deployment.yaml", "secret.yaml"]
    namespace, below, secret = (
        read(OPERATOR_DIRECTORY / f"{name}.yaml") for name in ("namespace", "deployment", "secret")
    )
    assert secret["data"] is None, "a second `up` makes the operator's certificate anew"
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    pod = below["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    (patched,) = pod["containers"]
    assert set(patched["resources"]) == {"requests", "limits"}
    assert patched["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    kustomization = read(OPERATOR_WITH_VOLCANO_DIRECTORY / "kustomization.yaml")
    ((base,), (patch,)) = kustomization["resources"], kustomization["patches"]
    assert (OPERATOR_WITH_VOLCANO_DIRECTORY / base).resolve() == OPERATOR_DIRECTORY
    gangs = read(OPERATOR_WITH_VOLCANO_DIRECTORY / patch["path"])
    assert gangs["metadata"] == below["metadata"]
    (container,) = gangs["spec"]["template"]["spec"].pop("containers")
    assert gangs["spec"]["template"]["spec"] == {}
    assert container == {"name": "training-operator", "args": ["--gang-scheduler-name=volcano"]}


def test_a_local_chart_is_found_from_the_working_directory(tmp_path, monkeypatch):
    for directory in (tmp_path, CHARTS.parent, CHARTS.parent / "tests"):
        monkeypatch.chdir(directory)
        path = _charts.local_chart("torchx-etcd").path
        assert path.startswith("."), "without a dot Helm may take it for a repository's chart"
        assert (Path.cwd() / path).resolve() == CHARTS / "torchx-etcd"


def test_an_edited_template_changes_the_digest(tmp_path):
    """Helm releases made from a path see only changed values (pulumi-kubernetes#2672)."""
    copy = Path(shutil.copytree(CHARTS / "torchx-etcd", tmp_path / "copy"))
    before = _charts.digest(copy)
    assert before == _charts.digest(CHARTS / "torchx-etcd")
    services = copy / "templates" / "services.yaml"
    original = services.read_bytes()
    services.write_bytes(original.replace(b"2379", b"2380"))
    assert _charts.digest(copy) != before
    services.write_bytes(original.replace(b"\n", b"\r\n"))
    assert _charts.digest(copy) == before, "a Windows checkout is the same chart"
    services.write_bytes(original)
    (copy / "__pycache__").mkdir()
    for stray in (".DS_Store", "__pycache__/exporter.cpython-311.pyc"):
        (copy / stray).write_bytes(b"x")
    assert _charts.digest(copy) == before, "a script that was run is the same chart"
    services.rename(services.with_name("service.yaml"))
    assert _charts.digest(copy) != before
