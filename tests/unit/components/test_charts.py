"""The local charts: parsed, and rendered by the real Helm."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pulumi
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
VALUES: Mapping[str, Mapping[str, Any]] = {
    "efa-exporter": {
        "image": versions.IMAGES["python"],
        "instanceTypes": ["trn1.32xlarge"],
        "tolerations": _charts.tolerations(["trn1.32xlarge"], CATALOGUE),
    },
    "grafana-dashboards": {"dashboards": dict(dashboards())},
    "neuron-monitor": monitor_values(CATALOGUE),
    "torchx-etcd": {"image": versions.IMAGES["etcd"], "clientNamespaces": ["training", "research"]},
}


@pytest.fixture
def programs(binaries: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Helm of the local cloud on PATH."""
    monkeypatch.setenv("PATH", str(binaries["helm"].parent), prepend=os.pathsep)


needs_programs = pytest.mark.usefixtures("programs")


def values_of(chart: str) -> dict[str, Any]:
    return yaml.safe_load((CHARTS / chart / "values.yaml").read_text())


def templates(chart: str) -> Iterator[tuple[str, str]]:
    for path in sorted((CHARTS / chart / "templates").iterdir()):
        yield path.name, path.read_text()


def helm(chart: str, tmp_path: Path, *command: str, **more: Any) -> str:
    """What Helm prints for the chart with the component's values."""
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({**VALUES[chart], **more}))
    done = subprocess.run(
        ["helm", *command, str(CHARTS / chart), "--values", str(values)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rendered(chart: str, tmp_path: Path, **more: Any) -> dict[tuple[str, str], dict[str, Any]]:
    """Every object of the chart by kind and name, as Helm makes it of the component's values."""
    flags = ("--namespace", chart, "--kube-version", versions.KUBERNETES)
    objects = yaml.safe_load_all(helm(chart, tmp_path, "template", *flags, chart, **more))
    return {(each["kind"], each["metadata"]["name"]): each for each in objects if each}


@pytest.mark.parametrize("chart", HELM_CHARTS)
def test_a_chart_has_the_values_that_its_templates_use_and_those_that_the_component_sets(chart: str) -> None:
    used = {name for _, text in templates(chart) for name in re.findall(r"\.Values\.(\w+)", text)}
    assert used == set(values_of(chart)) >= set(VALUES[chart])


@pytest.mark.parametrize("chart", [*HELM_CHARTS, "training-operator", "training-operator-volcano"])
def test_nothing_floats(chart: str) -> None:
    for path in (CHARTS / chart).rglob("*.*"):
        text = "\n".join(line for line in path.read_text().splitlines() if not line.lstrip().startswith("#"))
        assert not re.search(r"\b(latest|main|master)\b", text), path.name


def test_etcd_has_the_v2_api_and_a_version_that_still_has_it() -> None:
    """3.6 removed it, and etcd would not even start (pytorch#158326)."""
    assert re.search(r":v3\.5\.\d+$", versions.IMAGES["etcd"])
    assert "--enable-v2=true" in dict(templates("torchx-etcd"))["statefulset.yaml"]
    assert values_of("neuron-monitor")["image"] == versions.IMAGES["neuron-monitor"]


@needs_programs
@pytest.mark.parametrize("chart", HELM_CHARTS)
def test_a_chart_passes_helms_lint_and_its_objects_are_valid_kubernetes(chart: str, tmp_path: Path) -> None:
    helm(chart, tmp_path, "lint", "--strict")
    for manifest in rendered(chart, tmp_path).values():
        kubernetes_validate.validate(manifest, versions.KUBERNETES, strict=True)


@needs_programs
def test_the_monitor_runs_on_every_neuron_type_on_the_host_network(tmp_path: Path) -> None:
    pod = rendered("neuron-monitor", tmp_path)["DaemonSet", "neuron-monitor"]["spec"]["template"]["spec"]
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    (expression,) = term["matchExpressions"]
    neuron = {name for name, instance in CATALOGUE.items() if instance.family == "neuron"}
    assert set(expression["values"]) == neuron
    assert pod["hostNetwork"] is True
    assert pod["tolerations"] == [{"key": "aws.amazon.com/neuron", "operator": "Exists", "effect": "NoSchedule"}]
    (container,) = pod["containers"]
    assert container["securityContext"] == {"privileged": True}
    assert set(container["resources"]) == {"requests", "limits"}
    with pytest.raises(AssertionError, match="instanceTypes is empty"):
        rendered("neuron-monitor", tmp_path, instanceTypes=[])


@needs_programs
def test_the_efa_exporter_sees_its_nodes_counters_and_may_nothing(tmp_path: Path) -> None:
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
def test_etcd_is_reached_under_torchxs_names_and_meets_the_restricted_level(tmp_path: Path) -> None:
    objects = rendered("torchx-etcd", tmp_path)
    pod = objects["StatefulSet", "etcd-server"]["spec"]["template"]
    for name in ("etcd-client", "etcd-server"):
        service = objects["Service", name]["spec"]
        assert service["selector"].items() <= pod["metadata"]["labels"].items()
        assert [port["port"] for port in service["ports"]] == [2379]
    (container,) = pod["spec"]["containers"]
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert {"startupProbe", "livenessProbe", "readinessProbe", "resources"} <= set(container)
    # Helm prints a large number as 2.68435456e+08, which etcd refuses.
    assert "--quota-backend-bytes=268435456" in container["args"]


@needs_programs
def test_etcd_is_open_to_its_own_and_the_named_namespaces_alone(tmp_path: Path) -> None:
    policy = rendered("torchx-etcd", tmp_path)["NetworkPolicy", "etcd-server"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["egress"] == []
    (rule,) = policy["ingress"]
    assert rule["ports"] == [{"port": 2379, "protocol": "TCP"}]
    own, named = rule["from"]
    assert own == {"podSelector": {}}
    (expression,) = named["namespaceSelector"]["matchExpressions"]
    assert (expression["key"], expression["values"]) == ("kubernetes.io/metadata.name", ["training", "research"])

    (rule,) = rendered("torchx-etcd", tmp_path, clientNamespaces=[])["NetworkPolicy", "etcd-server"]["spec"]["ingress"]
    assert rule["from"] == [{"podSelector": {}}]


def test_the_training_operator_is_pinned_as_the_versions_table_says() -> None:
    kustomization = yaml.safe_load((OPERATOR_DIRECTORY / "kustomization.yaml").read_text())
    assert kustomization["resources"] == ["../upstream/overlays/standalone"]
    assert versions.TRAINING_OPERATOR in (OPERATOR_DIRECTORY / "upstream.sha256").read_text().splitlines()[0]
    assert versions.TRAINING_OPERATOR_COMMIT in (OPERATOR_DIRECTORY / "upstream.sha256").read_text().splitlines()[0]
    assert f"/{versions.TRAINING_OPERATOR_COMMIT}/" in source().url
    (image,) = kustomization["images"]
    assert f"{image['name']}:{image['newTag']}" == versions.IMAGES["training-operator"]
    assert [patch["path"] for patch in kustomization["patches"]] == ["namespace.yaml", "deployment.yaml", "secret.yaml"]


def test_the_operator_that_starts_gangs_is_the_same_with_one_flag_more() -> None:
    """A patched list replaces upstream's, which has a command and no arguments."""
    kustomization = yaml.safe_load((OPERATOR_WITH_VOLCANO_DIRECTORY / "kustomization.yaml").read_text())
    (base,) = kustomization["resources"]
    assert (OPERATOR_WITH_VOLCANO_DIRECTORY / base).resolve() == OPERATOR_DIRECTORY
    (patch,) = kustomization["patches"]
    deployment = yaml.safe_load((OPERATOR_WITH_VOLCANO_DIRECTORY / patch["path"]).read_text())
    below = yaml.safe_load((OPERATOR_DIRECTORY / "deployment.yaml").read_text())
    assert deployment["metadata"] == below["metadata"]
    assert deployment["spec"]["template"]["spec"] == {
        "containers": [{"name": "training-operator", "args": ["--gang-scheduler-name=volcano"]}]
    }


def test_the_operators_patches_restrict_its_namespace_and_its_pod() -> None:
    namespace, deployment, secret = (
        yaml.safe_load((OPERATOR_DIRECTORY / f"{name}.yaml").read_text())
        for name in ("namespace", "deployment", "secret")
    )
    assert secret["data"] is None, "a second `up` makes the operator's certificate anew"
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    (patched,) = pod["containers"]
    assert set(patched["resources"]) == {"requests", "limits"}
    assert patched["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_a_local_chart_is_found_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for directory in (tmp_path, CHARTS.parent, CHARTS.parent / "tests"):
        monkeypatch.chdir(directory)
        path = _charts.local_chart("torchx-etcd").path
        assert path.startswith("."), "without a dot Helm may take it for a repository's chart"
        assert (Path.cwd() / path).resolve() == CHARTS / "torchx-etcd"


def test_an_edited_template_changes_the_digest(tmp_path: Path) -> None:
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
    (copy / ".DS_Store").write_bytes(b"x")
    assert _charts.digest(copy) == before
    (copy / "__pycache__").mkdir()
    (copy / "__pycache__" / "exporter.cpython-311.pyc").write_bytes(b"x")
    assert _charts.digest(copy) == before, "a script that was run is the same chart"
    services.rename(services.with_name("service.yaml"))
    assert _charts.digest(copy) != before


def test_outputs_among_chart_values_are_named_with_their_place() -> None:
    values = {"a": {"list": [1, pulumi.Output.from_input("late")]}, "plain": None, "flag": True}
    found = list(_charts.plain_problems(values, "neuron_values"))
    assert [problem.path for problem in found] == ["neuron_values.a.list[1]"]
    assert "Output" in found[0].reason
