"""Versions are exact, well-formed, and of services' own enums where those exist."""

import datetime
import re
from itertools import chain

import botocore.loaders

from components import _efa_plugin, gpu_addons, neuron_addons, volcano_stack
from components._charts import CHARTS_DIRECTORY
from trainium_eks.model.catalogue import addon_records, chart_workloads, versions
from trainium_eks.model.config import namespaces
from trainium_eks.model.config.storage import FileSystemConfig

SUPPORTED = versions.KUBERNETES_STANDARD_SUPPORT


def test_support_ends_in_order_and_extended_support_a_year_later():
    ends = [datetime.date.fromisoformat(SUPPORTED[version].standard_end) for version in sorted(SUPPORTED)]
    assert ends == sorted(ends)
    for standard, version in zip(ends, sorted(SUPPORTED), strict=True):
        assert SUPPORTED[version].extended_end == standard.replace(year=standard.year + 1).isoformat()


def test_add_on_versions_and_node_images_are_exact_for_their_kubernetes():
    assert versions.KUBERNETES in versions.AMI_RELEASES
    for kubernetes, release in versions.AMI_RELEASES.items():
        assert kubernetes in SUPPORTED
        assert re.fullmatch(rf"{re.escape(kubernetes)}\.\d+-20\d{{6}}", release)
        pinned = addon_records.pinned(kubernetes)
        for name, version in pinned.items():
            assert re.fullmatch(r"v\d+\.\d+\.\d+-eksbuild\.\d+", version), name
        assert versions.numbers(pinned["kube-proxy"])[:2] == versions.numbers(kubernetes)
    default, unknown = addon_records.pinned(versions.KUBERNETES), addon_records.pinned("1.20")
    assert default.keys() - unknown.keys() == {"kube-proxy", "coredns"}
    least = versions.numbers(versions.MINIMUM_VPC_CNI_FOR_EFA_ONLY)
    assert versions.numbers(default["vpc-cni"]) >= least, "the pinned CNI leaves efa-only interfaces alone"


def test_chart_versions_and_images_are_exact():
    ours = {directory.name.removesuffix("-volcano") for directory in CHARTS_DIRECTORY.iterdir() if directory.is_dir()}
    assert set(chart_workloads.charts()) == set(versions.CHARTS) | ours
    for name, chart in versions.CHARTS.items():
        assert re.fullmatch(r"v?\d+\.\d+\.\d+", chart.version), name
        if chart.repository:
            assert chart.repository.startswith("https://")
            assert chart.chart == name
        else:
            assert re.fullmatch(rf"oci://.+/{name}", chart.chart)
    for name, image in versions.IMAGES.items():
        registry, _, tag = image.rpartition(":")
        assert "." in registry.split("/")[0], f"{name}: names its registry"
        assert re.search(r"\d", tag), name
        assert tag not in {"latest", "main", "master", "stable"}
    assert re.search(r":v3\.5\.\d+$", versions.IMAGES["etcd"]), "the line with the v2 API"
    # FSx takes the version of Lustre, and the config promises it.
    shapes = botocore.loaders.Loader().load_service_model("fsx", "service-2")["shapes"]
    assert re.fullmatch(shapes["FileSystemTypeVersion"]["pattern"], versions.LUSTRE)
    assert versions.LUSTRE in (FileSystemConfig.__doc__ or "")


def test_listed_workloads_equal_the_components_and_have_a_remedy():
    charts, installed = chart_workloads.charts(), addon_records.installed()
    of_addons = [workload for addon in installed for workload in addon.workloads]
    every = [*of_addons, *chain(*charts.values())]
    assert all(addon.workloads for addon in installed)
    names = [(workload.kind, workload.namespace, workload.name) for workload in every]
    assert len(names) == len(set(names))
    assert {workload.namespace for workload in every} <= {chart_workloads.SYSTEM_NAMESPACE, *namespaces.STACK}
    assert {workload.namespace for workload in of_addons} == {chart_workloads.SYSTEM_NAMESPACE}
    assert {workload.namespace for workload in charts["volcano"]} == {volcano_stack.NAMESPACE}
    for workload in every:
        assert 20 < len(workload.remedy) < 160, workload
        assert "\n" not in workload.remedy, workload
        assert workload.kind == "DaemonSet" or workload.nodes == "none", workload
    first = {name: each[0] for name, each in charts.items() if each}
    assert first["torchx-etcd"].namespace == volcano_stack.ETCD_NAMESPACE
    assert volcano_stack.ETCD_ENDPOINT.startswith(f"{first['torchx-etcd'].name}.")
    assert first["neuron-monitor"].namespace == neuron_addons.MONITOR_NAMESPACE
    exporter = first["dcgm-exporter"]
    assert (exporter.namespace, exporter.name) == (gpu_addons.EXPORTER_NAMESPACE, gpu_addons.EXPORTER_CHART)
    plugins = [first[name].name for name in ("nvidia-device-plugin", "aws-efa-k8s-device-plugin")]
    assert plugins == [gpu_addons.PLUGIN_CHART, _efa_plugin.RELEASE_NAME]
