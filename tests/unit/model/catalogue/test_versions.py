"""Versions are exact, well-formed, and of services' own enums where those exist."""

import datetime
import re

import botocore.loaders
import pytest

from trainium_eks.model.catalogue import addon_records, versions
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
