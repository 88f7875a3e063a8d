"""The gate of accelerator nodes (:mod:`trainium_eks.topology.gate`) as a Deployment, with the pods of its tests."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from trainium_eks.model.catalogue import fabric_floors, training_images
from trainium_eks.model.catalogue.backends import backend_of, device_environment
from trainium_eks.model.catalogue.instances import EFA_RESOURCE, FABRIC_UNTESTED, Catalogue
from trainium_eks.model.config import namespaces
from trainium_eks.model.config.fabric_gate import LOCAL_IMAGE, FabricGateConfig
from trainium_eks.model.node_labels import POOL_LABEL
from trainium_eks.model.policies.researchers import READ

from ._charts import close_namespace, namespace
from ._pods import NOBODY, Program, controller, grant

NAME = namespaces.FABRIC_GATE
"""Of the namespace, the Deployment, its service account and its ConfigMap."""
SERVICE = "fabric-test"
"""Headless Service of the tests' pods, by which they find each other."""
PORT = 29500
SETTLE_SECONDS = 20
"""Rest of a pool's nodes before a test begins: nodes that join together are tested together."""
PROGRAM = Program(("topology.gate", "topology.controller", "topology.tree", "topology.api"))

CLUSTER_RULES = (
    ("", ("nodes",), (*READ, "patch")),
    ("", ("nodes/status",), ("patch",)),
    ("", ("pods",), READ),
)
"""API group, resources and verbs of the gate in the whole cluster."""
OWN_RULES = (("batch", ("jobs",), ("list", "create", "delete")), ("", ("pods/log",), ("get",)))
"""Rights in its own namespace."""
EVENT_RULES = (("", ("events",), ("create",)),)
"""Rights in the namespace ``default``, which holds the events of nodes."""

_SECURITY: Mapping[str, Any] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def settings(gate: FabricGateConfig, pools: Mapping[str, str], catalogue: Catalogue) -> dict[str, Any]:
    """Return the settings of the controller; ``pools`` map each node group or Karpenter pool to its instance type."""
    return {
        "namespace": NAME,
        "service": SERVICE,
        "taint": asdict(FABRIC_UNTESTED),
        "poolLabel": POOL_LABEL,
        "settleSeconds": SETTLE_SECONDS,
        "pools": {pool: _tested(gate, pool, type_, catalogue) for pool, type_ in pools.items()},
    }


def _tested(gate: FabricGateConfig, pool: str, type_: str, catalogue: Catalogue) -> dict[str, Any]:
    """Return the devices of a pool's nodes, and the template of a test's pods: all devices of a node, no volume."""
    instance, devices = catalogue.find(type_), catalogue.device_resources(type_)
    image = gate.images[training_images.target_of(type_)]
    is_local = image.startswith(LOCAL_IMAGE)
    backend = "cpu" if is_local else backend_of(instance)
    ranks = 1 if is_local else instance.logical_neuron_cores or instance.accelerators
    expected = fabric_floors.expected_node(instance, devices.get(EFA_RESOURCE, 0), is_local=is_local)
    arguments = ["--expect", json.dumps(expected, separators=(",", ":")), "--label", pool]
    arguments += ["--reports", "/tmp/fabric-reports", *(fabric_floors.LOCAL_ARGUMENTS if is_local else ())]
    amounts = {name: str(amount) for name, amount in devices.items()}
    container = {
        "name": "test",
        "image": image,
        # The rank with the rendezvous gets a setting, because a pod does not always know itself by its host name.
        "command": [
            "bash",
            "-c",
            '[ "$JOB_COMPLETION_INDEX" != 0 ] || GATE_HOST=localhost\n'
            f'exec torchrun --rdzv_backend c10d --rdzv_endpoint "$GATE_HOST:{PORT}" --rdzv_id "$TRN_JOB" '
            '--rdzv_conf join_timeout=1800,read_timeout=1800 --nnodes "$GATE_NODES" '
            f"--nproc_per_node {ranks} --max_restarts 0 --tee 3 --role '' -m trainium_workloads.fabric "
            + " ".join(map(shlex.quote, arguments)),
        ],
        "env": [
            {"name": name, "value": value}
            for name, value in {
                **device_environment(backend, instance),
                "TRN_BACKEND": backend,
            }.items()
        ],
        "resources": {"requests": {"cpu": "1", "memory": "3Gi", **amounts}, "limits": amounts},
        "securityContext": dict(_SECURITY),
        "volumeMounts": [{"mountPath": "/dev/shm", "name": "dshm"}],
    }
    return {
        "devices": amounts,
        "template": {
            "metadata": {"labels": {"app": SERVICE}},
            "spec": {
                "containers": [container],
                "subdomain": SERVICE,
                "restartPolicy": "Never",
                "automountServiceAccountToken": False,
                "securityContext": {
                    "runAsNonRoot": True,
                    "runAsUser": NOBODY,
                    "runAsGroup": NOBODY,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "tolerations": [
                    {"key": taint.key, "operator": "Exists", "effect": taint.effect}
                    for taint in (FABRIC_UNTESTED, *catalogue.taints(type_))
                ],
                "volumes": [{"name": "dshm", "emptyDir": {"medium": "Memory"}}],
            },
        },
    }


def make_gate(
    stack: str,
    gate: FabricGateConfig,
    pools: Mapping[str, str],
    catalogue: Catalogue,
    opts: pulumi.ResourceOptions,
) -> None:
    """Make the controller, its namespace and its rights; for ``pools`` see :func:`settings`."""
    name = f"{stack}-fabric"
    parent = pulumi.ComponentResource("trainium-eks:index:FabricGate", name, {}, opts)

    def options(*after: pulumi.Resource, inside: pulumi.Resource | None = None) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=parent, depends_on=[*after], deleted_with=inside)

    home = namespace(f"{name}-namespace", NAME, "restricted", "the gate and its tests need no privilege", options())
    inside = options(home, inside=home)

    def metadata(object_name: str = NAME) -> k8s.meta.v1.ObjectMetaArgs:
        return k8s.meta.v1.ObjectMetaArgs(name=object_name, namespace=NAME)

    _make_network(name, metadata, inside)
    account = k8s.core.v1.ServiceAccount(name, metadata=metadata(), opts=inside)
    subject = k8s.rbac.v1.SubjectArgs(kind="ServiceAccount", name=NAME, namespace=NAME)
    places = ((name, CLUSTER_RULES, None), (f"{name}-in-{NAME}", OWN_RULES, NAME))
    rights = [
        grant(
            key,
            f"trainium-eks-{NAME}",
            rules,
            subject=subject,
            account=account,
            parent=parent,
            namespace=place,
            after=[home] if place else [],
        )
        for key, rules, place in (*places, (f"{name}-in-default", EVENT_RULES, "default"))
    ]
    told = json.dumps(settings(gate, pools, catalogue), sort_keys=True)
    controller(
        name,
        PROGRAM,
        [],
        name=NAME,
        namespace=NAME,
        env=[k8s.core.v1.EnvVarArgs(name="SETTINGS", value=told)],
        # Without it a rebooted node is closed late.
        priority="system-cluster-critical",
        home=home,
        after=rights,
        parent=parent,
    )


def _make_network(name: str, metadata: Any, inside: pulumi.ResourceOptions) -> None:
    """Make the tests' Service, and the policy that admits pods of this namespace alone."""
    k8s.core.v1.Service(
        f"{name}-test",
        metadata=metadata(SERVICE),
        spec=k8s.core.v1.ServiceSpecArgs(
            cluster_ip="None", selector={"app": SERVICE}, publish_not_ready_addresses=True
        ),
        opts=inside,
    )
    own = k8s.networking.v1.NetworkPolicyPeerArgs(pod_selector=k8s.meta.v1.LabelSelectorArgs())
    admitted = [k8s.networking.v1.NetworkPolicyIngressRuleArgs(from_=[own])]
    close_namespace(f"{name}-network", "own-pods", NAME, inside, admitted)
