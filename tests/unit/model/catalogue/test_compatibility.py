"""docs/compatibility.md: every pair that it lists as refused is refused, with a bad input for each."""

import re
from pathlib import Path

import pytest
from unit.model.config.test_bad_inputs import SOUND, judged, laid_over, problems_of_cases

from components import gpu_addons, neuron_addons
from trainium_eks.model.catalogue import training_images, versions
from trainium_eks.model.catalogue.compatibility import NEURON_RELEASES, newest_driver, sdk_of
from trainium_eks.model.config.storage import FileSystemConfig
from trainium_eks.model.validation.problems import Severity

PAGE = (Path(__file__).parents[4] / "docs" / "compatibility.md").read_text(encoding="utf-8")
PAIRS = dict(re.findall(r"^\| ([^|]+ × [^|]+) \| [^|]+ \| (refused|warned of|by design) \| [^|]+ \|$", PAGE, re.M))
NEURON = {"region": "us-west-2", "instance_types": ("trn1.32xlarge",)}
GROUP = {"name": "train", "instanceType": "trn1.32xlarge"}


OF_CONFIGS = {
    "Kubernetes × EKS": "this release has no pins for it",
    "Kubernetes × AMI release": "a release for Kubernetes",
    "Kubernetes × Kubernetes of the nodes": "or one at most 3 minor versions before it",
    "Kubernetes × AMI family": "AL2_x86_64_GPU",
    "Kubernetes × kube-proxy": "is not for Kubernetes 1.35",
    "Kubernetes × EKS add-ons": "no version of coredns is pinned for Kubernetes 1.33",
    "Kubernetes × Volcano": "the last one that the pinned Volcano certifies",
    "Neuron runtime (training image) × Neuron driver (AMI release)": "its Neuron driver is 2.26 or earlier",
    "PyTorch training image × Neuron SDK": "no such tag was ever published",
    "Kernel (AMI release) × Lustre client": "the Lustre client has not been tested",
    "VPC CNI × efa-only interfaces": "its nodes would stay NotReady",
    "Node monitoring agent × the stack's settings": "need 1.3.0 or later",
}
"""What a case of the bad inputs is told."""


def of_charts():
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


@pytest.mark.parametrize("pair", [pair for pair, verdict in PAIRS.items() if verdict != "by design"])
def test_pair_is_judged_by_the_table(pair):
    of_cases = [problem for found in problems_of_cases().values() for problem in found]
    found, words = (of_cases, OF_CONFIGS[pair]) if pair in OF_CONFIGS else of_charts()[pair]
    severities = {problem.severity for problem in found if words in problem.reason}
    assert severities == {Severity.REFUSE if PAIRS[pair] == "refused" else Severity.WARN}


def test_pairs_by_design_hold_and_the_page_lists_checked_versions():
    assert {pair for pair, verdict in PAIRS.items() if verdict == "by design"} == {
        "Lustre client × Lustre server",
        "FSx CSI driver × Pod Identity agent",
        "etcd × TorchX rendezvous",
    }
    assert versions.numbers(versions.LUSTRE) > (2, 10)
    assert not any("version" in field for field in FileSystemConfig.model_fields)
    assert {
        (sdk, day): driver for sdk, day, driver in re.findall(r"^\| ([\d.]+) \| ([\d-]+) \| ([\d.]+) \|$", PAGE, re.M)
    } == {(sdk, each.day): ".".join(map(str, each.driver)) for sdk, each in NEURON_RELEASES.items()}
    assert f"a VPC CNI before {versions.MINIMUM_VPC_CNI_FOR_EFA_ONLY}:" in PAGE


def test_ami_driver_is_not_newer_than_its_day_and_image_tag_has_its_sdk():
    drivers = {
        "1.35.1-20260408": (2, 26, 5),
        "1.35.1-20260409": (2, 27, 4),
        "1.35.8-20260930": (2, 30, 2),
        "1.31.0-20250101": (),
        "1.35.6-20261301": None,
        "latest": None,
    }
    assert {release: newest_driver(release) for release in drivers} == drivers
    base = training_images.BASES["trn1"].image
    sdks = {base: (2, 30), "a.io/neuron-sdk2.30.0/own:1.0": (), "a.io/own@sha256:" + "0" * 64: ()}
    assert {image: sdk_of(image) for image in sdks} == sdks


def trained(image="", **group):
    images = {"imageRepository": {"baseImages": {"trn1": image}}} if image else {}
    return {"nodeGroups": [{**GROUP, **group}], **images}


@pytest.mark.parametrize(
    "config",
    [
        # Not known: an image that names no SDK, an older one, a day with a newer driver, no release.
        trained("a.io/own:1.0", releaseVersion="1.35.1-20260312"),
        trained("a.io/pytorch-training-neuronx:2.9.0-sdk2.29.0", releaseVersion="1.35.1-20260312"),
        trained(releaseVersion="1.35.1-20260409"),
        trained(),
        trained(instanceType="p4d.24xlarge", releaseVersion="1.35.1-20260312"),
        trained(instanceType="trn2.48xlarge", releaseVersion="1.35.1-20260312"),
    ],
)
def test_an_unverified_pair_of_image_and_driver_is_not_refused(config):
    assert not [problem for problem in judged(laid_over(SOUND, config)) if "driver" in problem.reason]
