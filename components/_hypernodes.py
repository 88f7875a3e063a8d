"""The controller of HyperNodes (:mod:`trainium_eks.topology.controller`) as a Deployment beside Volcano."""

from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as k8s

from trainium_eks.model.catalogue.chart_workloads import HYPERNODES
from trainium_eks.model.config import namespaces
from trainium_eks.model.policies.researchers import READ

from ._pods import Program, controller, grant

NAME = HYPERNODES.name
"""Of the Deployment, its service account and its ConfigMap."""

PROGRAM = Program(("topology.controller", "topology.tree", "topology.api"))

RULES = (
    ("", ("nodes",), READ),
    ("topology.volcano.sh", ("hypernodes",), ("list", "create", "patch", "delete")),
)
"""API group, resources and verbs of the controller in the whole cluster."""


def make_controller(
    stack: str,
    labels: Sequence[str],
    *,
    home: k8s.core.v1.Namespace,
    volcano: k8s.helm.v3.Release,
    parent: pulumi.Resource,
) -> None:
    """Make the controller and its rights. The namespace's network policy admits no traffic to the controller.
    ``labels`` of nodes stand with the widest layer first; Volcano's release defines HyperNodes, and no longer makes any
    itself."""
    name = f"{stack}-{NAME}"
    inside = pulumi.ResourceOptions(parent=parent, depends_on=[home], deleted_with=home)
    metadata = k8s.meta.v1.ObjectMetaArgs(name=NAME, namespace=namespaces.VOLCANO)
    account = k8s.core.v1.ServiceAccount(name, metadata=metadata, opts=inside)
    subject = k8s.rbac.v1.SubjectArgs(kind="ServiceAccount", name=NAME, namespace=namespaces.VOLCANO)
    rights = grant(name, f"trainium-eks-{NAME}", RULES, subject=subject, account=account, parent=parent)
    controller(
        name,
        PROGRAM,
        labels,
        name=NAME,
        namespace=namespaces.VOLCANO,
        home=home,
        after=[volcano, rights],
        parent=parent,
    )
