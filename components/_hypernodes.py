"""The controller of HyperNodes (:mod:`trainium_eks.topology.controller`) as a Deployment beside Volcano."""

import hashlib
import json
from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as k8s

from trainium_eks.model.catalogue.chart_workloads import HYPERNODES
from trainium_eks.model.config import namespaces
from trainium_eks.model.policies.researchers import READ

from ._pods import Program, grant, unprivileged

NAME = HYPERNODES.name
"""Of the Deployment, its service account and its ConfigMap."""

PROGRAM = Program("topology", ("tree", "controller"))

RULES = (
    ("", ("nodes",), READ),
    ("topology.volcano.sh", ("hypernodes",), ("list", "create", "patch", "delete")),
)
"""API group, resources and verbs of the controller in the whole cluster."""

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where Kubernetes mounts a service account's token."""

READY = "/ready/file"
"""File that the controller writes once the HyperNodes match the nodes."""


def make_controller(
    stack: str,
    labels: Sequence[str],
    *,
    home: k8s.core.v1.Namespace,
    volcano: k8s.helm.v3.Release,
    parent: pulumi.Resource,
) -> None:
    """Make the controller and its rights. The namespace's network policy admits no traffic to the controller.

    Args:
        stack: logical name of the component.
        labels: node labels, the widest layer first; at least one.
        home: Volcano's namespace.
        volcano: Volcano's release, which defines HyperNodes, and no longer makes any itself.
        parent: of all resources.
    """
    name = f"{stack}-{NAME}"
    inside = pulumi.ResourceOptions(parent=parent, depends_on=[home], deleted_with=home)
    metadata = k8s.meta.v1.ObjectMetaArgs(name=NAME, namespace=namespaces.VOLCANO)
    account = k8s.core.v1.ServiceAccount(name, metadata=metadata, opts=inside)
    subject = k8s.rbac.v1.SubjectArgs(kind="ServiceAccount", name=NAME, namespace=namespaces.VOLCANO)
    rights = grant(name, f"trainium-eks-{NAME}", RULES, subject=subject, account=account, parent=parent)
    sources = PROGRAM.sources()
    code = k8s.core.v1.ConfigMap(name, metadata=metadata, data=sources, opts=inside)
    digest = hashlib.sha256(json.dumps(sources, sort_keys=True).encode()).hexdigest()
    selected = {"app": NAME}
    k8s.apps.v1.Deployment(
        name,
        metadata=metadata,
        spec=k8s.apps.v1.DeploymentSpecArgs(
            replicas=1,
            # Of two releases of this library at once, one would take away what the other makes.
            strategy=k8s.apps.v1.DeploymentStrategyArgs(type="Recreate"),
            selector=k8s.meta.v1.LabelSelectorArgs(match_labels=selected),
            template=k8s.core.v1.PodTemplateSpecArgs(
                # A pod does not start anew when its ConfigMap changes.
                metadata=k8s.meta.v1.ObjectMetaArgs(labels=selected, annotations={"trainium-eks/code": digest}),
                spec=_pod(labels),
            ),
        ),
        opts=pulumi.ResourceOptions(parent=parent, depends_on=[home, volcano, rights, code], deleted_with=home),
    )


def _pod(labels: Sequence[str]) -> k8s.core.v1.PodSpecArgs:
    asked = k8s.core.v1.ExecActionArgs(command=["test", "-f", READY])
    return k8s.core.v1.PodSpecArgs(
        service_account_name=NAME,
        enable_service_links=False,
        security_context=unprivileged(),
        containers=[
            PROGRAM.container(
                "controller",
                # Paths are arguments: on a local cloud without namespaces these alone are rewritten.
                ["controller", "--account", ACCOUNT, "--ready", READY, *labels],
                mounts=[k8s.core.v1.VolumeMountArgs(name="ready", mount_path=READY.rpartition("/")[0])],
                readiness=k8s.core.v1.ProbeArgs(exec_=asked, period_seconds=2),
            )
        ],
        volumes=[
            PROGRAM.volume(NAME),
            k8s.core.v1.VolumeArgs(name="ready", empty_dir=k8s.core.v1.EmptyDirVolumeSourceArgs(size_limit="1Mi")),
        ],
    )
