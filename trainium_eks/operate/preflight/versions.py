"""Checks of versions that EKS offers in the region: Kubernetes, add-ons, AMI releases; and of upgrades to them."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from trainium_eks.model.catalogue.versions import AMI_RELEASES, OLDEST_NODES_BEHIND, minor
from trainium_eks.model.finding import Finding
from trainium_eks.model.validation.problems import config_set, join, join_key, nearest
from trainium_eks.operate.preflight.existing_resources import AccountState
from trainium_eks.operate.preflight.question import Checks, Question, failed, passed, warned

AMI_PATHS = {
    "AL2023_x86_64_STANDARD": "x86_64/standard",
    "AL2023_x86_64_NEURON": "x86_64/neuron",
    "AL2023_x86_64_NVIDIA": "x86_64/nvidia",
    "AL2023_ARM_64_STANDARD": "arm64/standard",
    "AL2023_ARM_64_NVIDIA": "arm64/nvidia",
}
"""EKS' AMI type to its place under ``/aws/service/eks/optimized-ami/<minor>/amazon-linux-2023`` (EKS user guide)."""


def questions(present: AccountState) -> Iterator[Question]:
    """Yield a question for the control plane, its upgrade, each add-on and each AMI release."""
    needs, checks = present.needs, _VersionChecks(present)
    if not needs.kubernetes:
        return
    yield Question("versions/kubernetes", f"Kubernetes {needs.kubernetes}", checks.kubernetes)
    yield Question("versions/upgrade", "the running control plane", checks.upgrade)
    for name, version in sorted(needs.addons.items()):
        yield Question(f"versions/{name}", f"{name} {version}".rstrip(), partial(checks.addon, name, version))
    for type_, release in sorted({(group.ami_type, group.release) for group in needs.groups if group.release}):
        if type_ in AMI_PATHS:
            yield Question(f"versions/{type_}/{release}", f"{type_} {release}", partial(checks.ami, type_, release))


class _VersionChecks(Checks):
    """Checks of the versions that EKS offers."""

    def kubernetes(self) -> Finding:
        """Check that EKS runs the version here, and give its price."""
        wanted = self._needs.kubernetes
        every = self._account.pages("eks", "describe_cluster_versions", "clusterVersions", includeAll=True)
        found = next((each for each in every if each["clusterVersion"] == wanted), None)
        status = _status(found) if found else ""
        if found is None or status == "UNSUPPORTED":
            good = [each["clusterVersion"] for each in every if _status(each) == "STANDARD_SUPPORT"]
            newest = max([each for each in good if each in AMI_RELEASES] or good, key=minor, default="")
            detail = f"EKS has no {wanted} in {self._account.region}; it has {', '.join(good) or 'none'}"
            return failed(detail, config_set("cluster.kubernetes_version", newest) if newest else "take another region")
        if status == "EXTENDED_SUPPORT":
            ends = found.get("endOfExtendedSupportDate")
            until = f" until {ends:%Y-%m-%d}" if ends else ""
            return warned(
                f"in extended support{until}: 0.60 USD an hour instead of 0.10", "move to a version in standard support"
            )
        ends = found.get("endOfStandardSupportDate")
        return passed(f"in standard support until {ends:%Y-%m-%d}" if ends else "in standard support")

    def upgrade(self) -> Finding:
        """Check that the running control plane can go to the version: one minor version at a time, and never back."""
        running = self._present.cluster()
        if running is None:
            return passed("none yet: a new one is made")
        has, wanted = running["version"], self._needs.kubernetes
        step = minor(wanted) - minor(has)
        if step < 0:
            return failed(
                f"{running['name']} runs {has}, and EKS does not go back to {wanted}",
                config_set("cluster.kubernetes_version", has),
            )
        if step > 1:
            between = f"1.{minor(has) + 1}"
            return failed(
                f"{running['name']} runs {has}: upgrade one minor version at a time, {has} to {between} first",
                config_set("cluster.kubernetes_version", between),
            )
        old = self._old_nodes(running["name"], wanted)
        if old:
            return failed(
                f"nodes of {', '.join(old)} are more than three minor versions behind {wanted}",
                "upgrade the node groups first (aws eks update-nodegroup-version)",
            )
        state = running.get("status", "ACTIVE")
        if state != "ACTIVE":
            return warned(f"{running['name']} is {state}", "wait until it is ACTIVE: EKS refuses changes before")
        return passed(f"{running['name']} runs {has}" + (f", one step from {wanted}" if step else ""))

    def _old_nodes(self, cluster: str, wanted: str) -> list[str]:
        """Return the node groups with kubelets too old for the new control plane by Kubernetes' version skew policy."""
        names = self._account.pages("eks", "list_nodegroups", "nodegroups", clusterName=cluster)
        groups = [
            self._account.call("eks", "describe_nodegroup", clusterName=cluster, nodegroupName=name)["nodegroup"]
            for name in names
        ]
        return [
            f"{each['nodegroupName']} ({each['version']})"
            for each in groups
            if each.get("version") and minor(wanted) - minor(each["version"]) > OLDEST_NODES_BEHIND
        ]

    def addon(self, name: str, version: str) -> Finding:
        """Check that EKS has this add-on at this version for the Kubernetes version, here."""
        kubernetes = self._needs.kubernetes
        found = self._account.pages(
            "eks", "describe_addon_versions", "addons", addonName=name, kubernetesVersion=kubernetes
        )
        has = [each["addonVersion"] for addon in found for each in addon.get("addonVersions", ())]
        if not has:
            return failed(
                f"EKS has no {name} for {kubernetes} in {self._account.region}", "remove it, or take another version"
            )
        if not version or version in has:
            return passed(f"EKS has it for {kubernetes}")
        close = _default(found) or nearest(version, has) or has[0]
        remedy = config_set(join(join_key("cluster.addons", name), "version"), close)
        return failed(f"EKS has no {version} for {kubernetes} here; its default is {close}", remedy)

    def ami(self, type_: str, release: str) -> Finding:
        """Check that the AMI of this release is published here."""
        kubernetes = release.rpartition(".")[0]  # the nodes' own, which may be older than the cluster's
        path = AMI_PATHS[type_]
        root = f"/aws/service/eks/optimized-ami/{kubernetes}/amazon-linux-2023/{path}"
        arch, variant = path.split("/")
        date = release.rpartition("-")[2]
        image = f"amazon-eks-node-al2023-{arch}-{variant}-{kubernetes}-v{date}"
        exact, newest = f"{root}/{image}/image_id", f"{root}/recommended/release_version"
        answer = self._account.call("ssm", "get_parameters", Names=[exact, newest])
        values = {each["Name"]: each["Value"] for each in answer["Parameters"]}
        recommended = values.get(newest, "")
        if recommended == release:
            return passed("published here, the newest")
        # The parameter of an exact release may be missing; the image itself says more.
        if exact in values or self._has_image(image):
            return passed(f"published here, newest {recommended}" if recommended else "published here")
        if not recommended:
            return failed(
                f"EKS publishes no {type_} for Kubernetes {kubernetes} in {self._account.region}",
                "take another Kubernetes version or region",
            )
        group = next(each for each in self._needs.groups if (each.ami_type, each.release) == (type_, release))
        remedy = "take the newest release of this library"
        if group.path.startswith("node_groups"):
            remedy = config_set(f"{group.path}.release_version", recommended)
        return failed(f"not published here; the newest is {recommended}", remedy)

    def _has_image(self, name: str) -> bool:
        """Return whether Amazon's image of this name is in the region, deprecated or not."""
        by_name = [{"Name": "name", "Values": [name]}]
        found = self._account.call(
            "ec2", "describe_images", Owners=["amazon"], Filters=by_name, IncludeDeprecated=True
        )["Images"]
        return bool(found)


def _status(version: Mapping[str, Any]) -> str:
    """Return a version's support status: of two fields with the same meaning ``versionStatus`` is the newer; ``status``
    writes it in lower case."""
    return str(version.get("versionStatus") or version.get("status", "")).upper().replace("-", "_")


def _default(addons: list[Mapping[str, Any]]) -> str:
    for addon in addons:
        for version in addon.get("addonVersions", ()):
            if any(each.get("defaultVersion") for each in version.get("compatibilities", ())):
                return str(version["addonVersion"])
    return ""
