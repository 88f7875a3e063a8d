"""docs/compatibility.md: every pair that it calls refused is refused, on a bad input of its own."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from unit.model.config.test_bad_inputs import SOUND, judged, laid_over

from components import gpu_addons, neuron_addons
from trainium_eks.model.catalogue import training_images, versions
from trainium_eks.model.catalogue.compatibility import NEURON_RELEASES, newest_driver, sdk_of
from trainium_eks.model.config.storage import FileSystemConfig
from trainium_eks.model.validation.problems import Problem, Severity

PAGE = (Path(__file__).parents[4] / "docs" / "compatibility.md").read_text(encoding="utf-8")
PAIRS = dict(re.findall(r"^\| ([^|]+ × [^|]+) \| [^|]+ \| (refused|warned of|by design) \| [^|]+ \|$", PAGE, re.M))
NEURON = {"region": "us-west-2", "instance_types": ("trn1.32xlarge",)}
GROUP: Mapping[str, Any] = {"name": "train", "instanceType": "trn1.32xlarge"}


def addon(name: str, version: str) -> dict[str, Any]:
    return {"cluster": {"addons": {name: {"version": version}}}}


CONFIGS: Mapping[str, tuple[dict[str, Any], str]] = {
    "Kubernetes × EKS": ({"cluster": {"kubernetesVersion": "1.25"}}, "not a version that EKS runs"),
    "Kubernetes × AMI release": (
        {"nodeGroups": [{**GROUP, "releaseVersion": "1.34.11-20260930"}]},
        "a release for Kubernetes",
    ),
    "Kubernetes × Kubernetes of the nodes": (
        {"nodeGroups": [{**GROUP, "kubernetesVersion": "1.36"}]},
        "nodes run the cluster's version, 1.35, or one at most 3 minor versions before it",
    ),
    "Kubernetes × AMI family": (
        {"instanceTypes": {"trn1.64xlarge": {"like": "trn1.32xlarge", "amiType": "AL2_x86_64_GPU"}}},
        "AL2_x86_64_GPU",
    ),
    "Kubernetes × kube-proxy": (addon("kube-proxy", "v1.34.6-eksbuild.13"), "is not for Kubernetes 1.35"),
    "Kubernetes × EKS add-ons": (
        {"cluster": {"kubernetesVersion": "1.33", "addons": {"kube-proxy": {"version": "v1.33.9-eksbuild.1"}}}},
        "no version of coredns is pinned for Kubernetes 1.33",
    ),
    "Kubernetes × Volcano": (
        {"cluster": {"kubernetesVersion": "1.36", "addons": {}}},
        "the last one that the pinned Volcano certifies",
    ),
    "Neuron runtime (training image) × Neuron driver (AMI release)": (
        {"nodeGroups": [{**GROUP, "releaseVersion": "1.35.1-20260312"}]},
        "its Neuron driver is 2.26 or earlier",
    ),
    "PyTorch training image × Neuron SDK": (
        {"imageRepository": {"baseImages": {"trn2": "a.io/pytorch-training-neuronx:2.9.1-neuronx-sdk2.33.0"}}},
        "no such tag was ever published",
    ),
    "Kernel (AMI release) × Lustre client": (
        {"cluster": {"kubernetesVersion": "1.36"}},
        "the Lustre client has not been tested",
    ),
    "VPC CNI × efa-only interfaces": (
        {**addon("vpc-cni", "v1.18.4-eksbuild.1"), "nodeGroups": [GROUP]},
        "its nodes would stay NotReady",
    ),
    "Node monitoring agent × the stack's settings": (
        addon("eks-node-monitoring-agent", "v1.2.0-eksbuild.1"),
        "need 1.3.0 or later",
    ),
}
"""What a config says, and what it is told."""


def of_charts() -> Mapping[str, tuple[list[Problem], str]]:
    neuron, gpu = neuron_addons.NeuronAddonsArgs, gpu_addons.GpuAddonsArgs
    dra = neuron.model_validate({**NEURON, "neuron_values": {"draDriver": {"enabled": True}}})
    scheduler = neuron.model_validate({**NEURON, "scheduler_extension": True})
    mofed = gpu.model_validate(
        {"region": "us-west-2", "instance_types": ("p4d.24xlarge",), "nvidia_values": {"mofedEnabled": True}}
    )
    return {
        "Neuron Helm chart: device plugin × Neuron Helm chart: DRA driver": (
            neuron_addons.validate(dra),
            "cannot share a node",
        ),
        "Neuron Helm chart: scheduler extension × Kubernetes": (
            neuron_addons.validate(scheduler),
            "a kube-scheduler older than Kubernetes",
        ),
        "NVIDIA device plugin × EFA device plugin": (gpu_addons.validate(mofed), "past the EFA device plugin"),
    }


def said(pair: str) -> tuple[list[Problem], str]:
    if pair in CONFIGS:
        data, words = CONFIGS[pair]
        return list(judged(laid_over(SOUND, data))), words
    return of_charts()[pair]


@pytest.mark.parametrize("pair", [pair for pair, verdict in PAIRS.items() if verdict != "by design"])
def test_a_pair_is_treated_as_the_table_says(pair: str) -> None:
    found, words = said(pair)
    severities = {problem.severity for problem in found if words in problem.reason}
    assert severities == {Severity.REFUSE if PAIRS[pair] == "refused" else Severity.WARN}, found


def test_what_holds_by_design_does() -> None:
    assert {pair for pair, verdict in PAIRS.items() if verdict == "by design"} == {
        "Lustre client × Lustre server",
        "FSx CSI driver × Pod Identity agent",
        "etcd × TorchX rendezvous",
    }
    assert versions.numbers(versions.LUSTRE) > (2, 10)
    assert not any("version" in field for field in FileSystemConfig.model_fields)


def test_the_page_names_the_versions_that_are_checked() -> None:
    assert {
        (sdk, day): driver for sdk, day, driver in re.findall(r"^\| ([\d.]+) \| ([\d-]+) \| ([\d.]+) \|$", PAGE, re.M)
    } == {(sdk, each.day): ".".join(map(str, each.driver)) for sdk, each in NEURON_RELEASES.items()}
    assert f"a VPC CNI before {versions.MINIMUM_VPC_CNI_FOR_EFA_ONLY}:" in PAGE


@pytest.mark.parametrize(
    ("release", "driver"),
    [
        ("1.35.1-20260408", (2, 26, 5)),
        ("1.35.1-20260409", (2, 27, 4)),
        ("1.35.8-20260930", (2, 30, 2)),
        ("1.31.0-20250101", ()),
        ("1.35.6-20261301", None),
        ("latest", None),
    ],
)
def test_an_ami_has_no_newer_driver_than_its_day(release: str, driver: tuple[int, ...] | None) -> None:
    assert newest_driver(release) == driver


@pytest.mark.parametrize(
    ("image", "sdk"),
    [
        (training_images.BASES["trn1"].image, (2, 30)),
        ("a.io/neuron-sdk2.30.0/own:1.0", ()),
        ("a.io/own@sha256:" + "0" * 64, ()),
    ],
)
def test_the_sdk_is_read_from_the_tag(image: str, sdk: tuple[int, ...]) -> None:
    assert sdk_of(image) == sdk


OLD = {"nodeGroups": [{**GROUP, "releaseVersion": "1.35.1-20260312"}]}


@pytest.mark.parametrize(
    "more",
    [
        # Not known, so not refused: an image that names no SDK, an older one, a day with a newer driver, no release.
        {**OLD, "imageRepository": {"baseImages": {"trn1": "a.io/own:1.0"}}},
        {**OLD, "imageRepository": {"baseImages": {"trn1": "a.io/pytorch-training-neuronx:2.9.0-sdk2.29.0"}}},
        {"nodeGroups": [{**GROUP, "releaseVersion": "1.35.1-20260409"}]},
        {"nodeGroups": [GROUP]},
        {"nodeGroups": [{"name": "train", "instanceType": "p4d.24xlarge", "releaseVersion": "1.35.1-20260312"}]},
        {"nodeGroups": [{"name": "train", "instanceType": "trn2.48xlarge", "releaseVersion": "1.35.1-20260312"}]},
    ],
)
def test_an_unverified_pair_of_image_and_driver_is_not_refused(more: dict[str, Any]) -> None:
    assert not [problem for problem in judged(laid_over(SOUND, more)) if "driver" in problem.reason]
