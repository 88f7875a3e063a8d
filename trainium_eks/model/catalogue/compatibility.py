"""Versions of images and drivers that are known not to work together. docs/compatibility.md lists these and all other
pairs of parts that this project validates, with the source of each fact."""

import datetime
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from trainium_eks.model.catalogue import training_images, versions
from trainium_eks.model.catalogue.instances import Catalogue
from trainium_eks.model.config.node_groups import version_of
from trainium_eks.model.validation.problems import Problem, join, join_key

if TYPE_CHECKING:  # StackConfig's module asks this one
    from trainium_eks.model.config.stack_config import StackConfig

Version = tuple[int, ...]


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


def sdk_of(image: str) -> Version:
    """Return the Neuron SDK that an image's tag names, (2, 30); empty where it names none."""
    found = _SDK.search(image.rpartition("/")[2])
    return versions.numbers(found["sdk"]) if found else ()


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
