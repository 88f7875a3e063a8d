"""Compatible and incompatible versions: kernels, drivers, runtimes, clients, charts, Kubernetes.

One table (:data:`PAIRS`) names every pair of parts that this project validates, and the source of each fact. A pair
that is known not to work is refused; an untested pair causes a warning at most. ``python -m
trainium_eks.model.catalogue.compatibility`` writes the table as a page.
"""

import datetime
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from trainium_eks.model.catalogue import training_images, versions
from trainium_eks.model.catalogue.instances import Catalogue
from trainium_eks.model.config.node_groups import version_of
from trainium_eks.model.validation.problems import Problem, join, join_key

if TYPE_CHECKING:  # StackConfig's module asks this one
    from trainium_eks.model.config.stack_config import StackConfig

Verdict = Literal["refused", "warned of", "by design"]
"""``by design``: no config can have the pair, because the library sets one side itself."""

Version = tuple[int, ...]


@dataclass(frozen=True)
class Pair:
    """Two parts and their known incompatibility."""

    id: str
    """Short name by which tests find its bad input."""
    parts: tuple[str, str]
    known: str
    """The combination that does not work, or was not tested."""
    verdict: Verdict
    source: str
    """Source of the fact."""


PAIRS: tuple[Pair, ...] = (
    Pair(
        "kubernetes-support",
        ("Kubernetes", "EKS"),
        "versions that EKS does not run; those in extended support cost six times as much and need a waiver of R05",
        "refused",
        "EKS user guide, Kubernetes versions; 1.35 and 1.36: endoflife.date",
    ),
    Pair(
        "kubernetes-ami",
        ("Kubernetes", "AMI release"),
        "a release for another minor version",
        "refused",
        "EKS API, UpdateNodegroupVersion: releaseVersion is one of the version's",
    ),
    Pair(
        "kubernetes-nodes",
        ("Kubernetes", "Kubernetes of the nodes"),
        "nodes that are newer than the control plane, or more than three minor versions older",
        "refused",
        "Kubernetes version skew policy; EKS user guide, Update a managed node group",
    ),
    Pair(
        "kubernetes-al2",
        ("Kubernetes", "AMI family"),
        "Amazon Linux 2: its AMIs end at Kubernetes 1.32, and Neuron's runtime left it with SDK 2.20",
        "refused",
        "EKS user guide, Amazon Linux 2 end of support; Neuron SDK 2.20 announcements",
    ),
    Pair(
        "kubernetes-kube-proxy",
        ("Kubernetes", "kube-proxy"),
        "a build for another minor version",
        "refused",
        "EKS user guide, kube-proxy: builds are released for each minor version",
    ),
    Pair(
        "kubernetes-addon",
        ("Kubernetes", "EKS add-ons"),
        "an add-on without a pinned build for the version: one must be named",
        "refused",
        "builds that public clusters ran (addon_records.py)",
    ),
    Pair(
        "kubernetes-volcano",
        ("Kubernetes", "Volcano"),
        "Volcano 1.15 is certified up to Kubernetes 1.35",
        "warned of",
        "Volcano's README, Kubernetes compatibility",
    ),
    Pair(
        "runtime-driver",
        ("Neuron runtime (training image)", "Neuron driver (AMI release)"),
        "images of SDK 2.30 and later (runtime 2.32) with driver 2.26 or earlier, which is all that an AMI made before "
        "2026-04-09 can have",
        "refused",
        "Neuron release notes: Containers 2.30; drivers of SDK 2.28 (2.26.5) and 2.29 (2.27.4)",
    ),
    Pair(
        "image-sdk",
        ("PyTorch training image", "Neuron SDK"),
        "`pytorch-training-neuronx` ends with SDK 2.30: no later tag was published",
        "refused",
        "Neuron SDK 2.31 release notes, Containers",
    ),
    Pair(
        "kernel-lustre-client",
        ("Kernel (AMI release)", "Lustre client"),
        "nodes of Kubernetes 1.36 run kernel 6.18; the client was seen to work on 6.12",
        "warned of",
        "amazon-eks-ami release notes v20260610; amazon-eks-ami#2696",
    ),
    Pair(
        "lustre-client-server",
        ("Lustre client", "Lustre server"),
        "AL2023's client does not mount a file system of version 2.10, the API's default; ours are of 2.15",
        "by design",
        "aws-fsx-csi-driver#437; FSx user guide, client compatibility",
    ),
    Pair(
        "cni-efa-only",
        ("VPC CNI", "efa-only interfaces"),
        f"a VPC CNI before {versions.MINIMUM_VPC_CNI_FOR_EFA_ONLY}: nodes stay NotReady",
        "refused",
        "amazon-vpc-cni-k8s release notes v1.18.5",
    ),
    Pair(
        "monitoring-settings",
        ("Node monitoring agent", "the stack's settings"),
        "an agent before 1.3.0, which does not know the setting that lets it onto GPU nodes",
        "refused",
        "eks-node-monitoring-agent, chart values; containers-roadmap#2567",
    ),
    Pair(
        "fsx-csi-identity",
        ("FSx CSI driver", "Pod Identity agent"),
        "the driver's role comes by Pod Identity, so the agent is installed first, on every cluster",
        "by design",
        "EKS user guide, AWS add-ons: FSx CSI driver",
    ),
    Pair(
        "neuron-chart-dra",
        ("Neuron Helm chart: device plugin", "Neuron Helm chart: DRA driver"),
        "both at once: they cannot share a node",
        "refused",
        "neuron-helm-chart 1.9, constraints; EKS user guide, device management",
    ),
    Pair(
        "neuron-chart-scheduler",
        ("Neuron Helm chart: scheduler extension", "Kubernetes"),
        "the chart's own kube-scheduler (1.31) is more than one minor version older than the API server",
        "warned of",
        "neuron-helm-chart 1.9, values; Kubernetes version skew policy",
    ),
    Pair(
        "nvidia-plugin-efa",
        ("NVIDIA device plugin", "EFA device plugin"),
        "`mofedEnabled` of the NVIDIA plugin, on by default since 0.19: every GPU pod gets the EFA devices",
        "refused",
        "EKS user guide, NVIDIA device plugin; aws-do-eks#63",
    ),
    Pair(
        "etcd-torchx",
        ("etcd", "TorchX rendezvous"),
        "etcd 3.6 has no v2 API, which TorchX's etcd backend speaks: 3.5 is installed",
        "by design",
        "etcd 3.6 release notes",
    ),
)
"""Every pair that is validated. Other pairs were not examined."""


@dataclass(frozen=True)
class NeuronRelease:
    """A Neuron SDK release and the host driver that came with it."""

    day: str
    """Day of release, ``2026-04-09``."""
    driver: Version


NEURON_RELEASES: Mapping[str, NeuronRelease] = MappingProxyType(
    {
        # The component tables of the releases' own pages; of 2.29 the package that public projects unpacked.
        "2.28": NeuronRelease("2026-02-26", (2, 26, 5)),
        "2.29": NeuronRelease("2026-04-09", (2, 27, 4)),
        "2.30": NeuronRelease("2026-05-21", (2, 28, 0)),
        "2.31": NeuronRelease("2026-07-07", (2, 29, 0)),
        "2.32": NeuronRelease("2026-08-17", (2, 30, 2)),
        "2.33": NeuronRelease("2026-10-19", (2, 31, 7)),
    }
)
"""By SDK, oldest first."""

FIRST_SDK_WITH_NEW_RUNTIME: Version = (2, 30)
"""Its images bring runtime 2.32, which does not work with the drivers up to :data:`LAST_DRIVER_OF_OLD_RUNTIMES`."""

LAST_DRIVER_OF_OLD_RUNTIMES: Version = (2, 26)

LAST_SDK_WITH_PYTORCH_XLA: Version = (2, 30)

_SDK = re.compile(r"sdk(?P<sdk>[0-9]+\.[0-9]+)(\.[0-9]+)?")
_AMI_DAY = re.compile(r"-(?P<day>[0-9]{8})$")
_BASE_IMAGES = "image_repository.base_images"


def numbers(text: str) -> Version:
    """Return the leading numbers of a version: (1, 18, 5) of ``v1.18.5-eksbuild.1``."""
    return tuple(int(number) for number in re.findall(r"[0-9]+", text.partition("-")[0]))


def sdk_of(image: str) -> Version:
    """Return the Neuron SDK that an image's tag names, (2, 30); empty where it names none."""
    found = _SDK.search(image.rpartition("/")[2])
    return numbers(found["sdk"]) if found else ()


def newest_driver(release: str) -> Version | None:
    """Return the newest Neuron driver, ``(2, 30, 2)``, that an AMI release (``1.35.8-20260930``) can have, since AMIs
    are built with the newest driver of their day; ``()`` when it is older than every driver of the table, None for a
    text that is no AMI release."""
    found = _AMI_DAY.search(release)
    try:
        day = datetime.datetime.strptime(found["day"], "%Y%m%d").date().isoformat() if found else None
    except ValueError:
        return None
    if day is None:
        return None
    return max((each.driver for each in NEURON_RELEASES.values() if each.day <= day), default=())


def validate(config: "StackConfig", catalogue: Catalogue) -> list[Problem]:
    """Return the problems of images, and of their pairs with drivers, that are known not to work. Paths start at the
    stack's root."""
    return [*_unpublished(config), *_old_drivers(config, catalogue)]


def _unpublished(config: "StackConfig") -> Iterator[Problem]:
    for target, image in _own_images(config).items():
        if "pytorch-training-neuronx:" in image and sdk_of(image) > LAST_SDK_WITH_PYTORCH_XLA:
            reason = "SDK 2.30 was the last with this container: no such tag was ever published"
            good = training_images.BASES["trn1"].image
            yield Problem(join_key(_BASE_IMAGES, target), reason, value=image, good=good)


def _old_drivers(config: "StackConfig", catalogue: Catalogue) -> Iterator[Problem]:
    for index, group in enumerate(config.node_groups):
        instance, release = catalogue.get(group.instance_type), group.release_version
        driver = newest_driver(release) if release is not None else None
        if instance is None or instance.family != "neuron" or driver is None:
            continue
        if driver[:2] > LAST_DRIVER_OF_OLD_RUNTIMES:
            continue
        target = training_images.target_of(group.instance_type)
        image = _own_images(config).get(target) or training_images.BASES[target].image or ""
        if sdk_of(image) >= FIRST_SDK_WITH_NEW_RUNTIME:
            reason = (
                f"its Neuron driver is 2.26 or earlier, and the training image for {target} ({_tag(image)}) has a "
                "runtime that does not work with it: no job would find a device"
            )
            fix = f"or name an image of SDK 2.29 or earlier in `{_BASE_IMAGES}.{target}`"
            good = versions.AMI_RELEASES.get(version_of(group, config.cluster.kubernetes_version))
            yield Problem(join(join("node_groups", index), "release_version"), reason, fix, value=release, good=good)


def _own_images(config: "StackConfig") -> Mapping[str, str]:
    return config.image_repository.base_images if config.image_repository is not None else {}


def _tag(image: str) -> str:
    return f"SDK {'.'.join(map(str, sdk_of(image)))}"


def page() -> str:
    """Return the table as a page of the documentation."""
    rows = "".join(f"| {' × '.join(each.parts)} | {each.known} | {each.verdict} | {each.source} |\n" for each in PAIRS)
    releases = "".join(
        f"| {sdk} | {each.day} | {'.'.join(map(str, each.driver))} |\n" for sdk, each in NEURON_RELEASES.items()
    )
    return (
        "# What goes together\n\n"
        "<!-- Generated: python -m trainium_eks.model.catalogue.compatibility > docs/compatibility.md -->\n\n"
        "What is known not to work is refused before anything is built. What nobody has tried is warned of at most. "
        "Nothing of\nthis was run on an AWS account by the authors; each row has its source.\n\n"
        "| parts | what does not go together | | source |\n|---|---|---|---|\n"
        f"{rows}\n"
        "An AMI is built with the newest Neuron driver of its day:\n\n"
        "| Neuron SDK | released | driver |\n|---|---|---|\n"
        f"{releases}\n"
        "[upgrading.md](upgrading.md) says how to go from one version to the next.\n"
    )


if __name__ == "__main__":
    sys.stdout.write(page())
