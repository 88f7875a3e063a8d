"""EKS add-ons in the config: another version or other settings of the stack's add-ons, and further add-ons of the
user."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pydantic

from trainium_eks.model.catalogue import versions
from trainium_eks.model.catalogue.addon_records import ADDONS, Addon, installed
from trainium_eks.model.sizing.addresses import PODS, PodAddresses
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.config_model import ConfigModel, OutputText
from trainium_eks.model.validation.problems import Problem, Severity, join_key, nearest, under

VERSION = re.compile(r"v?[0-9]+\.[0-9]+\.[0-9]+-eksbuild\.[0-9]+")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_EXAMPLE = "<vX.Y.Z-eksbuild.N>"
_HELD = ("WARM_IP_TARGET", "MINIMUM_IP_TARGET")
"""Settings of the VPC CNI by which the address budget counts."""

_DEFAULTS = dict(zip(_HELD, (PODS.warm, PODS.minimum), strict=True))

_UNCOUNTED = ("WARM_ENI_TARGET", "ENABLE_PREFIX_DELEGATION")
"""Settings of the VPC CNI that change how many addresses a node takes, and that the budget does not know."""

LEAST_SCALING_DNS = "1.11.1"
"""First CoreDNS of which EKS sets the replicas on the Kubernetes versions of this release (EKS user guide, CoreDNS
autoscaling)."""

OF_AWS = (
    "adot",
    "aws-efs-csi-driver",
    "aws-guardduty-agent",
    "aws-mountpoint-s3-csi-driver",
    "aws-network-flow-monitoring-agent",
    "snapshot-controller",
)
"""Further add-ons of EKS (EKS user guide, AWS add-ons), so that none of their names is taken for a typo."""


_NODE_PARTS = {
    "aws-ebs-csi-driver": True,
    "aws-fsx-csi-driver": True,
    "aws-mountpoint-s3-csi-driver": False,
}
"""CSI driver to whether the pods that mount on each node tolerate every taint unless ``settings.node`` says otherwise
(values of their charts: 1.46, 1.10, 2.0)."""


class AddonIdentityConfig(ConfigModel):
    """The rights of an add-on's controller in AWS, by Pod Identity."""

    service_account: str
    """Service account that the add-on's pods run as."""
    namespace: str = "kube-system"
    """Namespace of that service account."""
    policies: dict[str, OutputText]
    """IAM policies that its role gets: a name of your choosing to the policy's ARN."""


class AddonConfig(ConfigModel):
    """One EKS add-on."""

    version: str | None = None
    """Its build, ``v1.21.1-eksbuild.1``. Unset: the pinned one, where there is one."""
    settings: dict[str, Any] = pydantic.Field(default_factory=dict)
    """Configuration values, merged over the stack's. EKS refuses keys that the add-on's schema does not list (``aws eks
    describe-addon-configuration``), and keeps settings that are left out later: ``settings: {}`` takes them back."""
    identity: AddonIdentityConfig | None = None
    """The role of an add-on of your own. Add-ons that the stack knows have theirs."""


def pod_addresses(section: Mapping[str, AddonConfig]) -> PodAddresses:
    """Return the addresses that the VPC CNI holds for pods on each node, by its settings or the stack's."""
    env = section["vpc-cni"].settings.get("env") or {} if "vpc-cni" in section else {}
    warm, least = (int(given) if (given := str(env.get(key))).isdigit() else own for key, own in _DEFAULTS.items())
    return PodAddresses(warm, least)


def addon_record(name: str) -> Addon:
    """Return the record of an add-on; for an unknown add-on, a record with its name alone.

    An unknown add-on is installed after the nodes, because its pods may need a node to be ACTIVE.
    """
    return ADDONS.get(name) or Addon(name=name, phase="on request")


def version(section: Mapping[str, AddonConfig], name: str, kubernetes_version: str) -> str:
    """Return the build of an add-on, the config's, else the pinned build; empty without either, which :func:`validate`
    refuses."""
    given = section.get(name)
    return (given and given.version) or addon_record(name).version(kubernetes_version)


def requested(section: Mapping[str, AddonConfig]) -> tuple[Addon, ...]:
    """Return the add-ons that are installed because the config names them, sorted by name."""
    return tuple(each for name in sorted(section) if (each := addon_record(name)).phase == "on request")


def validate(section: Mapping[str, AddonConfig], kubernetes_version: str) -> list[Problem]:
    """Return the problems of the add-ons of a cluster. Paths are relative to the section."""
    found = [*_pin_problems(section, kubernetes_version), *_kube_proxy_problems(section, kubernetes_version)]
    for name, addon in section.items():
        found += under(join_key("", name), _addon_problems(name, addon))
    return found


def _addon_problems(name: str, addon: AddonConfig) -> Iterator[Problem]:
    if not _NAME.fullmatch(name):
        allowed = ("letters, digits, - and _, a letter or digit first",)
        yield Problem("", "it is not the name of an EKS add-on", "rename it", allowed=allowed)
        return
    if addon.version is not None and not VERSION.fullmatch(addon.version):
        allowed = ("vX.Y.Z-eksbuild.N, as `aws eks describe-addon-versions` lists them",)
        fix = "name one of these, or leave it out for the pinned one"
        yield Problem("version", "it is not the build of an EKS add-on", fix, value=addon.version, allowed=allowed)
    elif addon.version is not None and versions.numbers(addon.version) < addon_record(name).least_version:
        least = ".".join(map(str, addon_record(name).least_version))
        reason = f"the stack's settings and role for it need {least} or later"
        yield Problem("version", reason, "raise it, or leave it out for the pinned one", value=addon.version)
    guess = nearest(name, ADDONS)
    if name not in ADDONS and name not in OF_AWS:
        reason = "this release knows neither the add-on nor whether its pods tolerate the nodes' taints"
        look = f"see tolerations: aws eks describe-addon-configuration --addon-name {name} --addon-version VERSION"
        yield formats.warn("", reason, f"did you mean {guess}?" if guess else look)
    node = addon.settings.get("node") or {}
    every = node.get("tolerateAllTaints", _NODE_PARTS.get(name, True) and "tolerations" not in node)
    if name in _NODE_PARTS and not every and {"operator": "Exists"} not in (node.get("tolerations") or ()):
        reason = "its pods do not tolerate the accelerator nodes' taint: no volume of it mounts there"
        good = {**addon.settings, "node": {**node, "tolerateAllTaints": True}}
        yield Problem("settings", reason, severity=Severity.WARN, value=addon.settings, good=good)
    yield from under("settings", _SETTINGS.get(name, lambda _: ())(addon))
    if addon.identity is not None:
        yield from under("identity", _identity_problems(name, addon.identity))


def _cni_problems(addon: AddonConfig) -> Iterator[Problem]:
    env = addon.settings.get("env") or {}
    for key in _HELD:
        if key in env and not str(env[key]).isdigit():
            yield Problem(f"env.{key}", "it is not a whole number", value=env[key], good=_DEFAULTS[key])
    if counted := [key for key in _UNCOUNTED if key in env]:
        reason = f"{formats.listed(counted)} decide how many addresses a node takes; the budget assumes the stack's"
        yield formats.warn("env", reason, "leave room in the subnets")


def _dns_problems(addon: AddonConfig) -> Iterator[Problem]:
    scaling = addon.settings.get("autoScaling") or {}
    least, most = scaling.get("minReplicas", 2), scaling.get("maxReplicas", math.inf)
    if not (isinstance(least, int) and isinstance(most, int | float) and 1 <= least <= most):
        reason = "`minReplicas` and `maxReplicas` are numbers of replicas, the first one no more than the second"
        yield Problem("autoScaling", reason, value=scaling, good={**scaling, "minReplicas": 2, "maxReplicas": 20})
    if (
        scaling.get("enabled")
        and addon.version
        and versions.numbers(addon.version) < versions.numbers(LEAST_SCALING_DNS)
    ):
        reason = f"EKS sets no replicas of CoreDNS {addon.version}: that needs v{LEAST_SCALING_DNS} or later"
        yield Problem("autoScaling", reason, "raise `version`, or leave it out for the pinned one")


_SETTINGS = {"vpc-cni": _cni_problems, "coredns": _dns_problems}
"""Add-on to the check of its settings. Paths are relative to them."""


def _identity_problems(name: str, identity: AddonIdentityConfig) -> Iterator[Problem]:
    if addon_record(name).identity is not None:
        yield Problem("", f"the stack gives {name} a role of its own", "remove it")
        return
    yield from formats.dns_subdomain("service_account", identity.service_account)
    yield from formats.dns_label("namespace", identity.namespace)
    if not identity.policies:
        yield Problem("policies", "it is empty: the role could do nothing", "name its policies, or remove `identity`")
    for key, arn in identity.policies.items():
        if isinstance(arn, str):
            yield from formats.policy_arn(join_key("policies", key), arn)


def _pin_problems(section: Mapping[str, AddonConfig], kubernetes_version: str) -> Iterator[Problem]:
    """Yield a problem for each add-on without a build in the config or in this release."""
    for name in dict.fromkeys([each.name for each in installed()] + list(section)):
        if version(section, name, kubernetes_version) or not _NAME.fullmatch(name):
            continue
        what = "is pinned" if name in ADDONS else "is known here"
        guess = None if name in ADDONS or name in OF_AWS else nearest(name, ADDONS)
        lists = f"aws eks describe-addon-versions --addon-name {name} --kubernetes-version {kubernetes_version}"
        yield Problem(
            f"{join_key('', name)}.version",
            f"no version of {name} {what} for Kubernetes {kubernetes_version}",
            f"{f'did you mean {guess}? ' if guess else ''}{lists} lists them",
            good=_EXAMPLE,
        )


def _kube_proxy_problems(section: Mapping[str, AddonConfig], kubernetes_version: str) -> Iterator[Problem]:
    """Yield the problem of a kube-proxy build for another Kubernetes version, which EKS refuses."""
    found = version(section, "kube-proxy", kubernetes_version)
    if not VERSION.fullmatch(found) or found.removeprefix("v").startswith(f"{kubernetes_version}."):
        return
    lists = f"aws eks describe-addon-versions --addon-name kube-proxy --kubernetes-version {kubernetes_version}"
    path = f"{join_key('', 'kube-proxy')}.version"
    reason = f"{found} is not for Kubernetes {kubernetes_version}"
    yield Problem(path, reason, f"{lists} lists those that are", good=_EXAMPLE)
