"""The EFA device plugin: one release a cluster, for Neuron and NVIDIA nodes alike."""

from collections.abc import Sequence

import pulumi
import pydantic

from trainium_eks.model.catalogue import regions
from trainium_eks.model.catalogue.chart_workloads import SYSTEM_NAMESPACE
from trainium_eks.model.catalogue.instances import CATALOGUE, INSTANCE_TYPE_LABEL, Catalogue
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.config_model import ConfigModel
from trainium_eks.model.validation.problems import Problem, join

from ._charts import chart, release, tolerations, unknown_type

CHART = "aws-efa-k8s-device-plugin"
RELEASE_NAME = "aws-efa-k8s-device-plugin"
"""The same wherever it is made, so that a second one in a cluster fails at once instead of fighting the first."""


class DevicePluginArgs(ConfigModel):
    """The wiring of device plugins, the EFA plugin among them."""

    region: formats.Region
    """AWS region; decides which registry the EFA plugin's image comes from."""
    instance_types: tuple[str, ...]
    """Types of the nodes that get a device plugin."""
    catalogue: Catalogue = pydantic.Field(default_factory=lambda: CATALOGUE)
    """Facts about the instance types."""
    efa_instance_types: tuple[str, ...] | None = None
    """Types that get the EFA plugin. Unset: the types in ``instance_types`` with EFA. Empty: no plugin here, because
    another component of the cluster installs it; a cluster has exactly one."""


def efa_problems(given: Sequence[str] | None, catalogue: Catalogue) -> list[Problem]:
    """Return the problems of the types given for the plugin: unknown, or without EFA."""
    found = []
    for index, name in enumerate(given or ()):
        path = join("efa_instance_types", index)
        instance = catalogue.get(name)
        if instance is None:
            found.append(unknown_type(path, name, catalogue))
        elif not instance.has_efa:
            found.append(Problem(path, f"{name} has no EFA", "leave it out"))
    return found


def make_efa_plugin(logical_name: str, args: DevicePluginArgs, parent: pulumi.Resource) -> dict[str, str]:
    """Make the plugin's release, if there are nodes with EFA; return the release's name to the version of its chart.

    No other device plugin runs privileged, but this chart requires it (eks-charts#1245): the plugin opens
    ``/dev/infiniband`` of a node before any pod requests it.
    """
    types = _types(args)
    if not types:
        return {}
    release(
        logical_name,
        chart(CHART),
        release_name=RELEASE_NAME,
        namespace=SYSTEM_NAMESPACE,
        values={
            # Its tag stays the chart's: plugin and chart are released together.
            "image": {"repository": f"{regions.eks_image_registry(args.region)}/eks/{CHART}"},
            # Each further key would be a separate term, and only the last would leave out Auto Mode's nodes.
            "supportedInstanceLabels": {"keys": [INSTANCE_TYPE_LABEL], "values": list(types)},
            "tolerations": tolerations(types, args.catalogue),
            "resources": {
                "requests": {"cpu": "10m", "memory": "20Mi"},
                "limits": {"cpu": "100m", "memory": "128Mi"},
            },
            "fullnameOverride": RELEASE_NAME,
        },
        opts=pulumi.ResourceOptions(parent=parent),
        on_failure="keep",
    )
    return {RELEASE_NAME: chart(CHART).version}


def _types(args: DevicePluginArgs) -> tuple[str, ...]:
    """Return the instance types that get the plugin, sorted. The chart's own list lags behind EC2's."""
    if args.efa_instance_types is not None:
        return tuple(sorted(set(args.efa_instance_types)))
    return tuple(sorted({name for name in args.instance_types if args.catalogue.find(name).has_efa}))
