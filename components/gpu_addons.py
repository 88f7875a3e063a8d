"""GpuAddons: device plugins and metrics of a cluster's NVIDIA nodes, and the operator for PyTorchJobs."""

from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from trainium_eks.fetched import FetchError
from trainium_eks.model.catalogue import versions
from trainium_eks.model.catalogue.chart_workloads import SYSTEM_NAMESPACE
from trainium_eks.model.config import namespaces
from trainium_eks.model.config.device_addons import GpuAddonsConfig
from trainium_eks.model.validation.problems import Problem

from ._args import outputs, validate_args
from ._charts import (
    CRITICAL_ADDONS,
    at,
    chart,
    instance_type_problems,
    namespace,
    on_instance_types,
    overlay,
    plain_problems,
    release,
    tolerations,
)
from ._dicts import GpuAddonsArgsDict
from ._efa_plugin import DevicePluginArgs, efa_problems, make_efa_plugin
from ._training_operator import MIRROR_VARIABLE, kustomization

PLUGIN_CHART = "nvidia-device-plugin"
EXPORTER_CHART = "dcgm-exporter"
EXPORTER_NAMESPACE = namespaces.DCGM_EXPORTER
EXPORTER_PORT = 9400
EXPORTER_REASON = "mounts the kubelet's pod-resources socket and needs SYS_ADMIN for profiling metrics"
TRAINER_CHART = "kubeflow-trainer"
TRAINER_REASON = "the chart's Job that installs the runtimes runs as root and does not restrict its privileges"


class GpuAddonsArgs(DevicePluginArgs, GpuAddonsConfig):
    """Args of :class:`GpuAddons`, the config section with its wiring."""

    instance_types: tuple[str, ...]
    """Types of the GPU node groups: the nodes that get device plugin and exporter. On nodes that no
    ``AcceleratorNodeGroup`` made, NVIDIA's runtime must accept device lists as volume mounts, or ``nvidia_values`` must
    name another ``deviceListStrategy``."""
    volcano: pulumi.Resource | None = None
    """The resource that installs Volcano (``VolcanoStack.admission``). With it the Training Operator starts jobs as
    gangs, in the queue that ``runPolicy.schedulingPolicy.queue`` names; None leaves their pods to Kubernetes' own
    scheduler."""


class GpuAddons(pulumi.ComponentResource):
    """NVIDIA device plugin, EFA device plugin, DCGM exporter, and Kubeflow's controllers for training jobs.

    The Kubernetes provider comes by ``opts.providers``. The Training Operator's manifests are fetched from GitHub once
    on each machine, checked by their hashes, and kept in the user's cache; ``TRN_TRAINING_OPERATOR_URL`` names a
    mirror.
    """

    release_versions: pulumi.Output[Mapping[str, str]]
    """Name of each Helm release to the version of its chart."""
    exporter_namespace: pulumi.Output[str]
    """Namespace of the DCGM exporter's Service, port 9400; empty when the exporter is off."""
    training_operator_version: pulumi.Output[str]
    """Git tag of the Training Operator's manifests (``v1.9.3``); empty without it."""

    def __init__(
        self, name: str, args: GpuAddonsArgs | GpuAddonsArgsDict, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        args = validate_args(GpuAddonsArgs, args, validate, f"GpuAddons {name}", opts=opts)
        super().__init__("trainium-eks:index:GpuAddons", name, {}, opts)
        self._args = args
        installed = {PLUGIN_CHART: chart(PLUGIN_CHART).version}

        self._device_plugin()
        installed |= make_efa_plugin(f"{name}-efa-device-plugin", args, self)
        if args.dcgm_exporter:
            self._exporter()
            installed[EXPORTER_CHART] = chart(EXPORTER_CHART).version
        if "v1" in args.trainers:
            self._training_operator()
        if "v2" in args.trainers:
            self._trainer()
            installed[TRAINER_CHART] = chart(TRAINER_CHART).version

        self.release_versions = pulumi.Output.from_input(installed)
        self.exporter_namespace = pulumi.Output.from_input(EXPORTER_NAMESPACE if args.dcgm_exporter else "")
        self.training_operator_version = pulumi.Output.from_input(
            versions.TRAINING_OPERATOR if "v1" in args.trainers else ""
        )
        self.register_outputs(outputs(self, GpuAddons))

    def _device_plugin(self) -> k8s.helm.v3.Release:
        return release(
            f"{self._name}-device-plugin",
            chart(PLUGIN_CHART),
            release_name=PLUGIN_CHART,
            namespace=SYSTEM_NAMESPACE,
            values=overlay(plugin_values(self._args), self._args.nvidia_values),
            opts=pulumi.ResourceOptions(parent=self),
            on_failure="keep",
        )

    def _exporter(self) -> k8s.helm.v3.Release:
        name, child = f"{self._name}-dcgm-exporter", pulumi.ResourceOptions(parent=self)
        home = namespace(name, EXPORTER_NAMESPACE, "privileged", EXPORTER_REASON, child)
        return release(
            name,
            chart(EXPORTER_CHART),
            release_name=EXPORTER_CHART,
            namespace=EXPORTER_NAMESPACE,
            values=exporter_values(self._args),
            opts=pulumi.ResourceOptions(parent=self, depends_on=[home]),
            on_failure="keep",
        )

    def _training_operator(self) -> k8s.kustomize.v2.Directory:
        """Install the Training Operator after Volcano: with gang scheduling the operator exits if PodGroups are not yet
        defined (v1.9.3, ``validateCRD``)."""
        volcano = self._args.volcano
        try:
            directory = kustomization(gangs=volcano is not None)
        except FetchError as error:
            raise pulumi.RunError(
                f"GpuAddons {self._name}: the Training Operator's manifests are not on this machine and could not be "
                f"fetched: {error}. Try again, name a mirror in {MIRROR_VARIABLE}, or leave v1 out of `trainers`"
            ) from None
        return k8s.kustomize.v2.Directory(
            f"{self._name}-training-operator",
            directory=str(directory),
            opts=pulumi.ResourceOptions(parent=self, depends_on=None if volcano is None else [volcano]),
        )

    def _trainer(self) -> k8s.helm.v3.Release:
        """Install Kubeflow Trainer after Volcano, because its controller watches PodGroups only if they are defined
        when it starts."""
        name, child = f"{self._name}-trainer", pulumi.ResourceOptions(parent=self)
        home = namespace(name, namespaces.TRAINER, "baseline", TRAINER_REASON, child)
        volcano = self._args.volcano
        return release(
            name,
            chart(TRAINER_CHART),
            release_name=TRAINER_CHART,
            namespace=namespaces.TRAINER,
            values=trainer_values(),
            opts=pulumi.ResourceOptions(parent=self, depends_on=[home, *([] if volcano is None else [volcano])]),
        )


def plugin_values(args: GpuAddonsArgs) -> dict[str, Any]:
    """Return the values of nvidia-device-plugin, before the user's are merged over them."""
    return {
        "fullnameOverride": PLUGIN_CHART,
        # With MOFED on, every GPU pod gets /dev/infiniband, and the EFA plugin's count means nothing (aws-do-eks#63).
        "mofedEnabled": False,
        # By mounts, which AcceleratorNodeGroup's user data has the nodes' runtime obey: an unprivileged container's
        # NVIDIA_VISIBLE_DEVICES counts for nothing there. With it the chart gives the plugin SYS_ADMIN, without which
        # its own variable would be ignored, too, and it would find no device (amazon-eks-ami#2706).
        "deviceListStrategy": "volume-mounts",
        # A node without a working driver should fail, not offer zero devices.
        "failOnInitError": True,
        # The chart's affinity requires labels of node-feature-discovery, which EKS does not have: no pod would start.
        "affinity": on_instance_types(args.instance_types),
        "tolerations": [dict(CRITICAL_ADDONS), *tolerations(args.instance_types, args.catalogue)],
        "resources": {
            "requests": {"cpu": "20m", "memory": "64Mi"},
            "limits": {"cpu": "200m", "memory": "256Mi"},
        },
    }


def trainer_values() -> dict[str, Any]:
    """Return the values of kubeflow-trainer: its runtimes, and the resources of its pods."""
    resources = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "500m", "memory": "512Mi"}}
    return {
        "runtimes": {"defaultEnabled": True, "installer": {"resources": resources}},
        "manager": {"resources": resources},
        "jobset": {"controller": {"resources": resources}},
    }


def exporter_values(args: GpuAddonsArgs) -> dict[str, Any]:
    """Return the values of dcgm-exporter."""
    return {
        "fullnameOverride": EXPORTER_CHART,
        # On by default, and without the Prometheus operator's definitions the release would fail.
        "serviceMonitor": {"enabled": False},
        "service": {
            "port": EXPORTER_PORT,
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": str(EXPORTER_PORT)},
        },
        "affinity": on_instance_types(args.instance_types),
        "tolerations": tolerations(args.instance_types, args.catalogue),
        # Eight GPUs with profiling metrics outgrow the chart's 512 MiB.
        "resources": {
            "requests": {"cpu": "100m", "memory": "256Mi"},
            "limits": {"cpu": "500m", "memory": "1Gi"},
        },
    }


def validate(args: GpuAddonsArgs) -> list[Problem]:
    """Return the problems of the args. Nothing is built while one of them is refused."""
    found = [
        *instance_type_problems(args.instance_types, "nvidia", args.catalogue),
        *efa_problems(args.efa_instance_types, args.catalogue),
        *plain_problems(args.nvidia_values, "nvidia_values"),
    ]
    if at(args.nvidia_values, "mofedEnabled"):
        found.append(
            Problem(
                "nvidia_values.mofedEnabled",
                "it hands /dev/infiniband to every GPU pod, past the EFA device plugin (aws-do-eks#63)",
                "leave it out; pods ask for vpc.amazonaws.com/efa",
            )
        )
    return found
