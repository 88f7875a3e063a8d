"""The EFA device plugin: one release a cluster, whichever accelerators it has."""

from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as k8s

from trainium_eks.model import regions
from trainium_eks.model.instances import INSTANCE_TYPE_LABEL, Catalogue
from trainium_eks.model.problems import Problem, join
from trainium_eks.model.workloads import SYSTEM_NAMESPACE

from ._charts import chart, release, tolerations

CHART = "aws-efa-k8s-device-plugin"
RELEASE_NAME = "aws-efa-k8s-device-plugin"
"""The same wherever it is made, so that a second one in a cluster fails at once instead of fighting the first."""


def efa_types(given: Sequence[str] | None, instance_types: Sequence[str], catalogue: Catalogue) -> tuple[str, ...]:
    """The types whose nodes get the plugin, sorted.

    Args:
        given: the types to use, empty for no plugin here; None for those of ``instance_types`` that have EFA.
        instance_types: the types of the add-on's node groups.
        catalogue: where EFA is looked up.
    """
    if given is not None:
        return tuple(sorted(set(given)))
    return tuple(sorted({name for name in instance_types if catalogue.find(name).has_efa}))


def efa_problems(given: Sequence[str] | None, catalogue: Catalogue) -> list[Problem]:
    """What is wrong with the types given for the plugin: unknown, or without EFA."""
    found = []
    for index, name in enumerate(given or ()):
        path = join("efa_instance_types", index)
        try:
            instance = catalogue.find(name)
        except ValueError as error:
            found.append(Problem(path, str(error)))
            continue
        if not instance.has_efa:
            found.append(Problem(path, f"{name} has no EFA", "leave it out"))
    return found


def efa_plugin(
    logical_name: str, *, region: str, instance_types: Sequence[str], catalogue: Catalogue, parent: pulumi.Resource
) -> k8s.helm.v3.Release:
    """The plugin's release, for nodes of these types.

    It is the one device plugin that runs privileged, as its chart sets it (eks-charts#1245): it opens
    ``/dev/infiniband`` of a node before any pod asks for it.

    Args:
        logical_name: Pulumi's name of the release.
        region: whose registry the image comes from; the chart names us-west-2's.
        instance_types: types with EFA; the chart's own list lags behind EC2's.
        catalogue: where the taints are looked up.
        parent: the component that owns it.
    """
    return release(
        logical_name,
        chart(CHART),
        release_name=RELEASE_NAME,
        namespace=SYSTEM_NAMESPACE,
        values={
            # Its tag stays the chart's: plugin and chart are released together.
            "image": {"repository": f"{regions.eks_image_registry(region)}/eks/{CHART}"},
            # Each further key would be a term of its own, and only the last would leave out Auto Mode's nodes.
            "supportedInstanceLabels": {"keys": [INSTANCE_TYPE_LABEL], "values": sorted(instance_types)},
            "tolerations": tolerations(instance_types, catalogue),
            "resources": {
                "requests": {"cpu": "10m", "memory": "20Mi"},
                "limits": {"cpu": "100m", "memory": "128Mi"},
            },
            "fullnameOverride": RELEASE_NAME,
        },
        opts=pulumi.ResourceOptions(parent=parent),
        on_failure="keep",
    )
