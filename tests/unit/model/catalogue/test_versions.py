"""Versions are exact, well-formed, and of services' own enums where those exist."""

import datetime
import re
from itertools import chain

import botocore.loaders
import pytest

from components import _efa_plugin, gpu_addons, neuron_addons, volcano_stack
from components._charts import CHARTS_DIRECTORY
from trainium_eks.model.catalogue import addon_records, chart_workloads, versions
from trainium_eks.model.catalogue.chart_workloads import Workload
from trainium_eks.model.config import namespaces
from trainium_eks.model.config.storage import FileSystemConfig

SUPPORTED = versions.KUBERNETES_STANDARD_SUPPORT


def minor(version: str) -> tuple[int, int]:
    major, second = re.match(r"v?(\d+)\.(\d+)", version).groups()  # type: ignore[union-attr]
    return int(major), int(second)


def test_a_plan_warns_of_no_default() -> None:
    assert SUPPORTED[versions.KUBERNETES].days_left >= versions.SUPPORT_DAYS
    assert versions.ami_age_days(versions.AMI_RELEASES[versions.KUBERNETES]) <= versions.AMI_DAYS


def test_support_ends_in_order_and_extended_support_a_year_later() -> None:
    ends = [datetime.date.fromisoformat(SUPPORTED[version].standard_end) for version in sorted(SUPPORTED)]
    assert ends == sorted(ends)
    for support in SUPPORTED.values():
        standard, extended = (datetime.date.fromisoformat(day) for day in (support.standard_end, support.extended_end))
        assert extended == standard.replace(year=standard.year + 1)


@pytest.mark.parametrize("kubernetes", sorted(versions.AMI_RELEASES))
def test_add_on_versions_are_exact_builds_of_eks(kubernetes: str) -> None:
    for name, version in addon_records.pinned(kubernetes).items():
        assert re.fullmatch(r"v\d+\.\d+\.\d+-eksbuild\.\d+", version), name
    assert minor(addon_records.pinned(kubernetes)["kube-proxy"]) == minor(kubernetes)


def test_an_unknown_kubernetes_version_has_only_the_add_ons_of_every_version() -> None:
    default, unknown = addon_records.pinned(versions.KUBERNETES), addon_records.pinned("1.20")
    assert default.keys() - unknown.keys() == {"kube-proxy", "coredns"}


def test_the_pinned_cni_leaves_efa_only_interfaces_alone() -> None:
    pinned, least = (
        tuple(int(part) for part in re.findall(r"\d+", version)[:3])
        for version in (addon_records.VPC_CNI.version(versions.KUBERNETES), versions.MINIMUM_VPC_CNI_FOR_EFA_ONLY)
    )
    assert pinned >= least


def test_an_ami_release_is_of_its_kubernetes_version() -> None:
    assert versions.KUBERNETES in versions.AMI_RELEASES
    for kubernetes, release in versions.AMI_RELEASES.items():
        assert kubernetes in SUPPORTED
        assert re.fullmatch(rf"{re.escape(kubernetes)}\.\d+-20\d{{6}}", release)


def test_charts_are_exact_and_come_from_a_repository_or_a_registry() -> None:
    devices = {"neuron-helm-chart", "aws-efa-k8s-device-plugin", "nvidia-device-plugin", "dcgm-exporter"}
    scaling = {"cluster-autoscaler", "karpenter", "karpenter-crd"}
    monitoring = {"kube-prometheus-stack", "fluent-bit", "prometheus-yet-another-cloudwatch-exporter"}
    assert set(versions.CHARTS) == {"volcano", "kubeflow-trainer", *devices, *scaling, *monitoring}
    for name, chart in versions.CHARTS.items():
        assert re.fullmatch(r"v?\d+\.\d+\.\d+", chart.version), name
        if chart.repository:
            assert chart.repository.startswith("https://")
            assert chart.chart == name
        else:
            assert chart.chart.startswith("oci://")
            assert chart.chart.endswith(f"/{name}")


def test_images_are_pinned_by_tag_and_never_float() -> None:
    for name, image in versions.IMAGES.items():
        registry, _, tag = image.rpartition(":")
        assert "." in registry.split("/")[0], f"{name}: names its registry"
        assert re.search(r"\d", tag), name
        assert tag not in {"latest", "main", "master", "stable"}


def test_etcd_is_of_the_line_with_the_v2_api() -> None:
    assert re.search(r":v3\.5\.\d+$", versions.IMAGES["etcd"])


def test_the_lustre_version_is_one_that_fsx_takes_and_the_config_promises() -> None:
    shapes = botocore.loaders.Loader().load_service_model("fsx", "service-2")["shapes"]
    assert re.fullmatch(shapes["FileSystemTypeVersion"]["pattern"], versions.LUSTRE)
    assert versions.LUSTRE in (FileSystemConfig.__doc__ or "")


OF_ADDONS = tuple(workload for addon in addon_records.installed() for workload in addon.workloads)
EVERYTHING = (*OF_ADDONS, *chain(*chart_workloads.charts().values()))


def of_chart(chart: str) -> Workload:
    (workload,) = chart_workloads.charts()[chart]
    return workload


def test_every_add_on_and_every_chart_is_in_it() -> None:
    assert all(addon.workloads for addon in addon_records.installed())
    ours = {directory.name.removesuffix("-volcano") for directory in CHARTS_DIRECTORY.iterdir() if directory.is_dir()}
    assert set(chart_workloads.charts()) == set(versions.CHARTS) | ours


def test_nothing_is_in_it_twice() -> None:
    names = [(workload.kind, workload.namespace, workload.name) for workload in EVERYTHING]
    assert len(names) == len(set(names))


def test_namespaces_and_names_are_those_that_the_components_install() -> None:
    assert {workload.namespace for workload in EVERYTHING} <= {chart_workloads.SYSTEM_NAMESPACE, *namespaces.STACK}
    assert {workload.namespace for workload in OF_ADDONS} == {chart_workloads.SYSTEM_NAMESPACE}
    assert {workload.namespace for workload in chart_workloads.charts()["volcano"]} == {volcano_stack.NAMESPACE}
    assert of_chart("torchx-etcd").namespace == volcano_stack.ETCD_NAMESPACE
    assert volcano_stack.ETCD_ENDPOINT.startswith(f"{of_chart('torchx-etcd').name}.")
    assert of_chart("neuron-monitor").namespace == neuron_addons.MONITOR_NAMESPACE
    assert of_chart("dcgm-exporter").namespace == gpu_addons.EXPORTER_NAMESPACE
    assert of_chart("dcgm-exporter").name == gpu_addons.EXPORTER_CHART
    assert of_chart("nvidia-device-plugin").name == gpu_addons.PLUGIN_CHART
    assert of_chart("aws-efa-k8s-device-plugin").name == _efa_plugin.RELEASE_NAME


@pytest.mark.parametrize("workload", EVERYTHING, ids=lambda workload: workload.name)
def test_each_says_what_to_do_in_one_line(workload: Workload) -> None:
    assert 20 < len(workload.remedy) < 160
    assert "\n" not in workload.remedy


@pytest.mark.parametrize("workload", EVERYTHING, ids=lambda workload: workload.name)
def test_only_daemon_sets_go_by_nodes(workload: Workload) -> None:
    assert workload.kind == "DaemonSet" or workload.nodes == "none"
