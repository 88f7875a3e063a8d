"""ClusterAutoscaler: node groups that grow for pods that wait, and shrink when their nodes are idle."""

from collections.abc import Iterator
from typing import Any

import pulumi
import pulumi_aws as aws
import pydantic

from trainium_eks.model.catalogue import node_templates, versions
from trainium_eks.model.catalogue.instances import FABRIC_UNTESTED
from trainium_eks.model.config import autoscaling, namespaces
from trainium_eks.model.config.autoscaling import ClusterAutoscalerConfig
from trainium_eks.model.policies.autoscaling_policies import DISCOVERY_TAG, cluster_autoscaler_statements
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.config_model import ConfigModel, LooseStr, OutputText
from trainium_eks.model.validation.problems import Problem, join

from . import _pod_identity
from ._args import AutoscalerArgs, child_of, text, validate_args
from ._charts import chart, namespace, release, spread, unknown_type
from ._dicts import ClusterAutoscalerArgsDict
from .node_group import name_problems

CHART = "cluster-autoscaler"
NAMESPACE = namespaces.CLUSTER_AUTOSCALER
NAMESPACE_REASON = "the autoscaler needs no privilege"

LONGEST_NAME = 56
"""IAM takes 64 characters for a role's name; Pulumi's suffix is the rest."""

USER_ID = 65534
"""User id in the project's own manifests (cluster-autoscaler/cloudprovider/aws/examples)."""


class AutoscaledGroup(ConfigModel):
    """One node group that Cluster Autoscaler serves."""

    name: str
    """Its name in the program; the tags are named after it."""
    instance_type: str
    """EC2 type of its nodes."""
    autoscaling_group: OutputText
    """Name of its Auto Scaling group (``eks-…``)."""
    labels: dict[str, LooseStr] = pydantic.Field(default_factory=dict)
    """Labels of its nodes, in addition to the labels of Kubernetes and EKS."""
    resources: dict[str, LooseStr] = pydantic.Field(default_factory=dict)
    """Resources of a node beside CPU and memory (``{ephemeral-storage: 85Gi}``), over its type's resources: devices,
    EFA, huge pages. An empty group never grows for a pod that requests any other resource."""


class ClusterAutoscalerArgs(AutoscalerArgs, ClusterAutoscalerConfig):
    """Args of :class:`ClusterAutoscaler`, the config section with its wiring."""

    groups: tuple[AutoscaledGroup, ...]
    """The groups that it serves."""
    kubernetes_version: str = versions.KUBERNETES
    """Minor version of the cluster: an autoscaler of the same version is run."""


class ClusterAutoscaler(pulumi.ComponentResource):
    """Cluster Autoscaler for the groups in its args, and no others of the cluster.

    EKS tags every group for Cluster Autoscaler; this autoscaler looks for another tag, and its role may change no group
    without that tag. On accelerator groups only empty nodes are removed. The Kubernetes provider comes by
    ``opts.providers``.
    """

    service_account: pulumi.Output[str]
    """Namespace and name of the service account that has the role: ``cluster-autoscaler/cluster-autoscaler``."""
    role_arn: pulumi.Output[str]
    """Role that it takes by Pod Identity."""

    def __init__(
        self,
        name: str,
        args: ClusterAutoscalerArgs | ClusterAutoscalerArgsDict,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        args = validate_args(
            ClusterAutoscalerArgs,
            args,
            validate,
            f"ClusterAutoscaler {name}",
            naming=lambda _: name_problems(name, LONGEST_NAME),
            opts=opts,
        )
        super().__init__("trainium-eks:index:ClusterAutoscaler", name, {}, opts)
        self._args = args

        identity = self._make_identity()
        tags = [tag for group in args.groups for tag in self._tag(group)]
        home = namespace(f"{name}-namespace", NAMESPACE, "restricted", NAMESPACE_REASON, child_of(self))
        release(
            f"{name}-release",
            chart(CHART),
            release_name=CHART,
            namespace=NAMESPACE,
            values=autoscaler_values(args),
            # A pod that starts before its association has no credentials until it starts again.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[home, *identity.ready, *tags]),
        )
        self.service_account = pulumi.Output.from_input(f"{NAMESPACE}/{CHART}")
        self.role_arn = identity.role.arn
        self.register_outputs({"service_account": self.service_account, "role_arn": self.role_arn})

    def _make_identity(self) -> _pod_identity.PodRole:
        """Make the role of the service account."""
        args = self._args
        statements = pulumi.Output.from_input(args.cluster_name).apply(
            lambda cluster: cluster_autoscaler_statements(cluster, args.region)
        )
        return _pod_identity.make_role(
            self._name, args, NAMESPACE, CHART, statements, role_name=self._name, parent=self
        )

    def _tag(self, group: AutoscaledGroup) -> Iterator[aws.autoscaling.Tag]:
        """Yield the tags of the Auto Scaling group; EKS does not copy a node group's tags to it."""
        found = {DISCOVERY_TAG: self._args.cluster_name, **group_tags(group, self._args)}
        for key, value in found.items():
            yield aws.autoscaling.Tag(
                f"{self._name}-{group.name}-{key.removeprefix(node_templates.TEMPLATE).strip('/')}",
                autoscaling_group_name=text(group.autoscaling_group),
                tag=aws.autoscaling.TagTagArgs(key=key, value=value, propagate_at_launch=False),
                opts=child_of(self),
            )


def group_tags(group: AutoscaledGroup, args: ClusterAutoscalerArgs) -> dict[str, str]:
    """Return the tags that describe the nodes of an empty Auto Scaling group, and when an idle node is removed."""
    tags = {
        **node_templates.label_tags({**args.catalogue.node_labels(group.instance_type), **group.labels}),
        **node_templates.taint_tags(group.instance_type, args.catalogue),
        **node_templates.resource_tags(
            {**node_templates.of_type(group.instance_type, args.catalogue), **group.resources}
        ),
    }
    if args.catalogue.find(group.instance_type).family != "cpu":
        tags |= node_templates.empty_nodes_only(args.accelerator_scale_down_minutes)
    return tags


def autoscaler_values(args: ClusterAutoscalerArgs) -> dict[str, Any]:
    """Return the values of the cluster-autoscaler chart.

    The cluster's name may be an Output, because the release's provider is known no earlier.
    """
    # With this flag new nodes count as room for pods that they do not take yet.
    startup = {"startup-taint": FABRIC_UNTESTED.key}
    return {
        "fullnameOverride": CHART,
        "cloudProvider": "aws",
        # By value: the instance metadata is one hop too far for a pod.
        "awsRegion": args.region,
        "autoDiscovery": {
            "clusterName": args.cluster_name,
            "tags": [f"{DISCOVERY_TAG}={{{{ .Values.autoDiscovery.clusterName }}}}"],
        },
        "image": {"tag": f"v{versions.CLUSTER_AUTOSCALER[args.kubernetes_version]}"},
        "replicaCount": args.replicas,
        "rbac": {"serviceAccount": {"name": CHART}},
        "extraArgs": flags(args) | (startup if args.catalogue.is_gated else {}),
        "nodeSelector": dict(args.node_selector),
        "affinity": spread({"app.kubernetes.io/instance": CHART}),
        "resources": {"requests": {"cpu": "100m", "memory": "300Mi"}, "limits": {"memory": "600Mi"}},
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containerSecurityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def flags(args: ClusterAutoscalerConfig) -> dict[str, str]:
    """Return the command-line flags without dashes (kubernetes/autoscaler, cluster-autoscaler/FAQ.md and config/flags,
    1.35).

    A default that gangs depend on is written out.
    """
    return {
        "logtostderr": "true",
        "stderrthreshold": "info",
        "v": "2",
        "expander": args.expander,
        "balance-similar-node-groups": "false",
        "max-node-provision-time": f"{args.max_node_provision_minutes}m",
        "scale-down-unneeded-time": f"{args.scale_down_minutes}m",
        "scale-down-delay-after-add": f"{args.scale_down_minutes}m",
        "skip-nodes-with-local-storage": "false" if args.evict_local_storage else "true",
        "skip-nodes-with-system-pods": "true",
        # Volcano's jobs, PyTorchJobs and TrainJobs are custom controllers: their pods are never moved.
        "skip-nodes-with-custom-controller-pods": "true",
    }


def validate(args: ClusterAutoscalerArgs) -> list[Problem]:
    """Return the problems of the args. Nothing is built while one of them is refused."""
    found = formats.duplicates("groups", [group.name for group in args.groups], "name")
    found += formats.tags("tags", args.tags)
    if not args.groups:
        found.append(Problem("groups", "it is empty: Cluster Autoscaler would have nothing to scale", "name a group"))
    found += autoscaling.version_problems("kubernetes_version", args.kubernetes_version)
    for index, group in enumerate(args.groups):
        found += _group_problems(group, join("groups", index), args)
    return found


def _group_problems(group: AutoscaledGroup, path: str, args: ClusterAutoscalerArgs) -> Iterator[Problem]:
    yield from formats.derived_name(join(path, "name"), group.name)
    instance = args.catalogue.get(group.instance_type)
    if instance is None:
        yield unknown_type(join(path, "instance_type"), group.instance_type, args.catalogue)
        return
    yield from formats.tags(join(path, "labels"), group_tags(group, args))
