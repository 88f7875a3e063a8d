"""The list of what runs in a cluster is whole, and says of each thing where it is and what to do."""

from itertools import chain

import pytest

from components import _efa_plugin, gpu_addons, neuron_addons, volcano_stack
from components._charts import CHARTS_DIRECTORY
from trainium_eks.model.catalogue import addon_records, chart_workloads, versions
from trainium_eks.model.catalogue.chart_workloads import Workload

OF_ADDONS = tuple(workload for addon in addon_records.installed() for workload in addon.workloads)
EVERYTHING = (*OF_ADDONS, *chain(*chart_workloads.CHARTS.values()))


def of_chart(chart: str) -> Workload:
    (workload,) = chart_workloads.CHARTS[chart]
    return workload


def test_every_add_on_and_every_chart_is_in_it() -> None:
    assert all(addon.workloads for addon in addon_records.installed())
    ours = {directory.name.removesuffix("-volcano") for directory in CHARTS_DIRECTORY.iterdir() if directory.is_dir()}
    assert set(chart_workloads.CHARTS) == set(versions.CHARTS) | ours


def test_nothing_is_in_it_twice() -> None:
    names = [(workload.kind, workload.namespace, workload.name) for workload in EVERYTHING]
    assert len(names) == len(set(names))


def test_namespaces_and_names_are_those_that_the_components_install() -> None:
    assert {workload.namespace for workload in OF_ADDONS} == {chart_workloads.SYSTEM_NAMESPACE}
    assert {workload.namespace for workload in chart_workloads.CHARTS["volcano"]} == {volcano_stack.NAMESPACE}
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
