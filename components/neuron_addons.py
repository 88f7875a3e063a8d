"""NeuronAddons: device plugins and metrics of a cluster's Trainium and Inferentia nodes."""

from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from trainium_eks.model.catalogue import versions
from trainium_eks.model.catalogue.chart_workloads import SYSTEM_NAMESPACE
from trainium_eks.model.catalogue.instances import Catalogue
from trainium_eks.model.config import namespaces
from trainium_eks.model.config.device_addons import NeuronAddonsConfig
from trainium_eks.model.validation.problems import Problem, Severity

from ._args import validate_args
from ._charts import (
    CRITICAL_ADDONS,
    at,
    chart,
    instance_type_problems,
    local_chart,
    namespace,
    overlay,
    plain_problems,
    release,
    tolerations,
)
from ._dicts import NeuronAddonsArgsDict
from ._efa_plugin import DevicePluginArgs, efa_problems, make_efa_plugin

NEURON_CHART = "neuron-helm-chart"
NEURON_RELEASE = "neuron"
MONITOR_CHART = "neuron-monitor"
MONITOR_NAMESPACE = namespaces.NEURON_MONITOR
MONITOR_REASON = "reads every /dev/neuron* of its node, on the host network"


class NeuronAddonsArgs(DevicePluginArgs, NeuronAddonsConfig):
    """Args of :class:`NeuronAddons`, the config section with its wiring."""

    instance_types: tuple[str, ...]
    """Types of the Neuron node groups: the nodes that get the device plugin."""


class NeuronAddons(pulumi.ComponentResource):
    """Neuron device plugin, EFA device plugin and neuron-monitor on a cluster's Neuron nodes.

    The Kubernetes provider comes by ``opts.providers``. The chart's node-problem detector stays off: EKS node repair
    replaces broken nodes, and two controllers that act on the same fault would fight (rule R63).
    """

    release_versions: pulumi.Output[Mapping[str, str]]
    """Name of each Helm release to the version of its chart."""
    monitor_namespace: pulumi.Output[str]
    """Namespace of neuron-monitor's Service, port 8000; empty when the monitor is off."""

    def __init__(
        self,
        name: str,
        args: NeuronAddonsArgs | NeuronAddonsArgsDict,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        args = validate_args(NeuronAddonsArgs, args, validate, f"NeuronAddons {name}", opts=opts)
        super().__init__("trainium-eks:index:NeuronAddons", name, {}, opts)
        self._args = args
        installed = {NEURON_RELEASE: chart(NEURON_CHART).version}

        self._device_plugin()
        installed |= make_efa_plugin(f"{name}-efa-device-plugin", args, self)
        if args.monitor:
            installed[MONITOR_CHART] = self._monitor()

        self.release_versions = pulumi.Output.from_input(installed)
        self.monitor_namespace = pulumi.Output.from_input(MONITOR_NAMESPACE if args.monitor else "")
        self.register_outputs({"release_versions": self.release_versions, "monitor_namespace": self.monitor_namespace})

    def _device_plugin(self) -> k8s.helm.v3.Release:
        return release(
            f"{self._name}-device-plugin",
            chart(NEURON_CHART),
            release_name=NEURON_RELEASE,
            # The chart puts the plugin into kube-system whatever the release's namespace is.
            namespace=SYSTEM_NAMESPACE,
            values=overlay(neuron_values(self._args), self._args.neuron_values),
            opts=pulumi.ResourceOptions(parent=self),
            on_failure="keep",
        )

    def _monitor(self) -> str:
        local = local_chart(MONITOR_CHART)
        name, child = f"{self._name}-monitor", pulumi.ResourceOptions(parent=self)
        home = namespace(name, MONITOR_NAMESPACE, "privileged", MONITOR_REASON, child)
        release(
            name,
            local,
            release_name=MONITOR_CHART,
            namespace=MONITOR_NAMESPACE,
            values=monitor_values(self._args.catalogue),
            opts=pulumi.ResourceOptions(parent=self, depends_on=[home]),
            on_failure="keep",
        )
        return local.version


def neuron_values(args: NeuronAddonsArgs) -> dict[str, Any]:
    """Return the values of neuron-helm-chart, before the user's are merged over them."""
    return {
        "neuronInstances": sorted(set(args.instance_types)),
        "devicePlugin": {
            "tolerations": [dict(CRITICAL_ADDONS), *tolerations(args.instance_types, args.catalogue)],
            "resources": {
                "requests": {"cpu": "20m", "memory": "64Mi"},
                "limits": {"cpu": "200m", "memory": "256Mi"},
            },
        },
        # Its custom scheduler serves pods that name it; Volcano's and whole-node pods have no use for it.
        "scheduler": {"enabled": args.scheduler_extension},
        # Off; where a user turns the detector on by ``neuron_values``, it needs a namespace that exists.
        "npd": {"enabled": False, "nodeRecovery": {"enabled": False}, "namespaceOverride": SYSTEM_NAMESPACE},
    }


def monitor_values(catalogue: Catalogue) -> dict[str, Any]:
    """Return the values of the neuron-monitor chart, for every Neuron type of the catalogue, so that a new group is
    monitored at once."""
    types = sorted(name for name, instance in catalogue.items() if instance.family == "neuron")
    return {
        "image": versions.IMAGES["neuron-monitor"],
        "instanceTypes": types,
        "tolerations": tolerations(types, catalogue),
    }


def validate(args: NeuronAddonsArgs) -> list[Problem]:
    """Return the problems of the args. Nothing is built while one of them is refused."""
    return [
        *instance_type_problems(args.instance_types, "neuron", args.catalogue),
        *efa_problems(args.efa_instance_types, args.catalogue),
        *plain_problems(args.neuron_values, "neuron_values"),
        *_neuron_value_problems(args),
    ]


def _neuron_value_problems(args: NeuronAddonsArgs) -> list[Problem]:
    """Return the combinations that the chart refuses, or that conflict with the rest of the stack."""
    values = args.neuron_values
    found = []
    if at(values, "npd", "nodeRecovery", "enabled"):
        found.append(
            Problem(
                "neuron_values.npd.nodeRecovery.enabled",
                "EKS node repair is on, and two recoveries of one node fight each other (rule R63)",
                "leave it out, and let EKS node repair act",
            )
        )
    if at(values, "draDriver", "enabled") and at(values, "devicePlugin", "enabled") is not False:
        found.append(
            Problem(
                "neuron_values.draDriver.enabled",
                "the DRA driver and the device plugin cannot share a node, and jobs here ask the plugin's resources",
                "leave it out",
            )
        )
    if args.scheduler_extension and at(values, "devicePlugin", "enabled") is False:
        found.append(
            Problem("scheduler_extension", "it places pods by what the device plugin says, which is off", "turn it off")
        )
    if at(values, "scheduler", "enabled") is not None:
        found.append(
            Problem("neuron_values.scheduler.enabled", "there is an argument for this", "use `scheduler_extension`")
        )
    if args.scheduler_extension and not at(values, "scheduler", "customScheduler", "image", "tag"):
        found.append(
            Problem(
                "scheduler_extension",
                f"the chart pins a kube-scheduler older than Kubernetes {versions.KUBERNETES}",
                "set neuron_values.scheduler.customScheduler.image.tag to EKS Distro's build of your version",
                severity=Severity.WARN,
            )
        )
    return found
