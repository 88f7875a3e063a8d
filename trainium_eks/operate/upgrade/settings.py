"""Changes of a stack's config by an upgrade, and the upgrades there are."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from trainium_eks.model.catalogue import addon_records, training_images, versions
from trainium_eks.model.config.node_groups import version_of
from trainium_eks.model.config.stack_config import StackConfig
from trainium_eks.model.validation.formats import warn
from trainium_eks.model.validation.problems import Problem, join, join_key, nearest

VERSION = "cluster.kubernetes_version"
_IMAGES = "image_repository.base_images"

ONE_MINOR_AT_A_TIME = ("vpc-cni", "eks-pod-identity-agent")
"""Add-ons that the EKS user guide asks to update one minor version at a time."""


@dataclass(frozen=True)
class UpgradeTargets:
    """The new versions."""

    kubernetes: str = ""
    """Minor version, ``1.36``; empty to keep it."""
    ami: str = ""
    """AMI release of every accelerator group, ``1.35.8-20260930``."""
    addons: Mapping[str, str] = field(default_factory=dict)
    """EKS add-on to its build."""
    images: Mapping[str, str] = field(default_factory=dict)
    """Training target (``trn1``) to the image that its training images are built on: the Neuron SDK."""
    keep_nodes: bool = False
    """Whether accelerator nodes keep their version, and the jobs on them run on."""

    def __bool__(self) -> bool:
        return bool(self.kubernetes or self.ami or self.addons or self.images)


@dataclass(frozen=True)
class Setting:
    """One value of the config."""

    path: str
    """As Python spells it: ``cluster.kubernetes_version``."""
    value: str


def settings(config: StackConfig, asked: UpgradeTargets) -> tuple[Setting, ...]:
    """Return the values that change, with those that must follow a new Kubernetes version; unchanged values are left
    out."""
    wanted = {each.path: each for each in (*_with_version(config, asked), *_named(config, asked))}
    there = _there(config)
    return tuple(each for each in wanted.values() if there.get(each.path) != each.value)


def _there(config: StackConfig) -> dict[str, str | None]:
    """Return the config's values at the paths that an upgrade sets."""
    images = config.image_repository.base_images if config.image_repository is not None else {}
    return {
        VERSION: config.cluster.kubernetes_version,
        **{_release_path(index): group.release_version for index, group in enumerate(config.node_groups)},
        **{_version_path(index): group.kubernetes_version for index, group in enumerate(config.node_groups)},
        **{_addon_path(name): addon.version for name, addon in config.cluster.addons.items()},
        **{join_key(_IMAGES, target): image for target, image in images.items()},
    }


def _release_path(index: int) -> str:
    return f"{join('node_groups', index)}.release_version"


def _version_path(index: int) -> str:
    return f"{join('node_groups', index)}.kubernetes_version"


def _addon_path(name: str) -> str:
    return f"{join_key('cluster.addons', name)}.version"


def problems(config: StackConfig, asked: UpgradeTargets) -> list[Problem]:
    """Return the problems of the targets, before the program is recorded; the config's own validators find the rest."""
    found = list(_version_problems(config.cluster.kubernetes_version, asked.kubernetes)) if asked.kubernetes else []
    for name, build in asked.addons.items():
        found += _addon_problems(config, name, build)
    for target in asked.images:
        if target not in training_images.BASES:
            good = nearest(target, training_images.BASES)
            path = join_key(_IMAGES, target)
            reason = "it is not what a training image is for"
            fix = f"did you mean {good}?" if good else ""
            found.append(Problem(path, reason, fix, allowed=tuple(training_images.BASES)))
    return found


def next_version(version: str) -> str:
    """Return the minor version after this one, where this release knows its support; empty where it does not."""
    later = f"1.{versions.minor(version) + 1}"
    return later if later in versions.KUBERNETES_STANDARD_SUPPORT else ""


def _with_version(config: StackConfig, asked: UpgradeTargets) -> Iterator[Setting]:
    to = asked.kubernetes
    if not to:
        return
    yield Setting(VERSION, to)
    release = versions.AMI_RELEASES.get(to)
    for index, group in enumerate(config.node_groups):
        if asked.keep_nodes:
            yield Setting(_version_path(index), version_of(group, config.cluster.kubernetes_version))
            continue
        if group.kubernetes_version is not None:
            yield Setting(_version_path(index), to)
        if group.release_version is not None and release and not group.release_version.startswith(f"{to}."):
            yield Setting(_release_path(index), release)
    proxy = config.cluster.addons.get("kube-proxy")
    build = addon_records.KUBE_PROXY.version(to)
    if proxy is not None and proxy.version and build and not proxy.version.startswith(f"v{to}."):
        yield Setting(_addon_path("kube-proxy"), build)


def _named(config: StackConfig, asked: UpgradeTargets) -> Iterator[Setting]:
    for index in range(len(config.node_groups) if asked.ami else 0):
        yield Setting(_release_path(index), asked.ami)
    for name, build in asked.addons.items():
        yield Setting(_addon_path(name), build)
    for target, image in asked.images.items():
        yield Setting(join_key(_IMAGES, target), image)


def _version_problems(now: str, to: str) -> Iterator[Problem]:
    known = versions.KUBERNETES_STANDARD_SUPPORT
    if to not in known or now not in known:
        return  # the config's own validator names the versions there are
    steps = versions.minor(to) - versions.minor(now)
    if steps > 1:
        between = f"1.{versions.minor(now) + 1}"
        reason = f"EKS goes one minor version at a time: {now} to {between} comes first"
        yield Problem(VERSION, reason, f"trn upgrade --to {between}", value=to)
    elif steps < 0:
        reason = f"EKS never goes back from Kubernetes {now} to {to}"
        yield Problem(VERSION, reason, f"keep {now}, or make a new environment", value=to)


def _addon_problems(config: StackConfig, name: str, build: str) -> Iterator[Problem]:
    path = _addon_path(name)
    given = config.cluster.addons.get(name)
    now = (given and given.version) or (
        addon_records.ADDONS[name].version(config.cluster.kubernetes_version) if name in addon_records.ADDONS else ""
    )
    if not now:
        good = nearest(name, addon_records.ADDONS)
        fix = f"did you mean {good}? " if good else ""
        yield Problem(path, "this environment has no such add-on", f"{fix}or add it to `cluster.addons` first")
        return
    before, after = versions.numbers(now)[:2], versions.numbers(build)[:2]
    if name in ONE_MINOR_AT_A_TIME and before and after > (before[0], before[1] + 1):
        reason = f"EKS asks to update {name} one minor version at a time, and this goes from {now} to {build}"
        yield warn(path, reason, f"take v{before[0]}.{before[1] + 1} first")
