"""Team namespaces, each with its roles, quota, volume, queue and S3 access."""

from collections.abc import Collection, Sequence
from typing import Annotated

import pydantic

from trainium_eks.model import scraping
from trainium_eks.model.catalogue.lustre import DEFAULT_USER_ID
from trainium_eks.model.sizing import priorities, quotas
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.config_model import ConfigModel, LooseStr, OutputText, StrictBool, StrictInt
from trainium_eks.model.validation.limits import Bounds
from trainium_eks.model.validation.problems import Problem, join, nearest, under

VOLCANO = "volcano-system"
ETCD = "torchx-etcd"
LUSTRE_SETUP = "lustre-setup"
NEURON_MONITOR = "neuron-monitor"
DCGM_EXPORTER = "dcgm-exporter"
CLUSTER_AUTOSCALER = "cluster-autoscaler"
KARPENTER = "karpenter"
TRAINING_OPERATOR = "kubeflow"
TRAINER = "kubeflow-system"
MONITORING = scraping.NAMESPACE
IDLE_GUARD = "idle-guard"
LOG_SHIPPING = "log-shipping"
FABRIC_GATE = "fabric-gate"
STACK = (
    VOLCANO,
    ETCD,
    LUSTRE_SETUP,
    NEURON_MONITOR,
    DCGM_EXPORTER,
    CLUSTER_AUTOSCALER,
    KARPENTER,
    TRAINING_OPERATOR,
    TRAINER,
    MONITORING,
    LOG_SHIPPING,
    IDLE_GUARD,
    FABRIC_GATE,
)
"""Namespaces of the stack's own parts, whether it has these parts or not: it may get them."""

UserId = Annotated[StrictInt, Bounds(1, 2**31 - 1, why="root (0) would own every team's directories")]
"""A user that jobs may run as (Kubernetes' ``runAsUser``)."""

TAKEN = ("default", "amazon-cloudwatch", *STACK)
"""Namespaces that no team may have; nor any ``kube-…``. EKS' observability add-on makes ``amazon-cloudwatch``."""


class NamespaceConfig(ConfigModel):
    """One team's namespace."""

    name: str
    """Name of the namespace."""
    queues: tuple[OutputText, ...]
    """Queues its jobs may use; the first is its own and the default of launchers."""
    principals: tuple[str, ...] = ()
    """IAM role ARNs of its researchers; each gets an access entry in the namespace's Kubernetes group."""
    resource_quota: dict[str, LooseStr] = pydantic.Field(default_factory=dict)
    """ResourceQuota ``hard`` values (``{requests.aws.amazon.com/neuron: "64", pods: "200"}``), merged over the default:
    ten times what the queues may run and the nodes have (because waiting jobs count too), the pods that the nodes hold,
    1 TiB of EBS volumes, and no file systems made for claims."""
    priority_classes: tuple[str, ...] = priorities.NAMES
    """PriorityClasses that its jobs may name. Kubernetes' own (``system-…``) are refused: they end other teams'
    jobs."""
    data_bucket: OutputText | None = None
    """Name of an S3 bucket, besides the stack's, in which its jobs may read and write below the prefix
    ``<namespace>/``."""
    data_bucket_key_arn: OutputText | None = None
    """ARN of the KMS key that encrypts that bucket. Unset: the bucket uses no KMS key."""
    training_user_id: UserId = DEFAULT_USER_ID
    """UID and GID that own its directories on the file system and that its jobs run as; each team has its own."""
    partial_nodes: StrictBool | None = None
    """Whether its pods may take a part of a node's devices. Unset: only where no other team is, for one device of each
    node keeps other teams' gangs out, whatever their queues are guaranteed. Where it is true beside other teams, such
    pods have no say in which node."""


def validate(
    namespaces: Sequence[NamespaceConfig],
    *,
    queue_names: Collection[str] | None,
    parent_queue_names: Collection[str] = (),
) -> list[Problem]:
    """Return the problems of the namespaces. Paths are relative to the list (``[0].queues[1]``). ``queue_names`` are
    queues that take jobs, None if they are unknown; parent queues take none."""
    found = formats.duplicates("", [namespace.name for namespace in namespaces], "name")
    for index, namespace in enumerate(namespaces):
        here = _own_problems(namespace) + _queue_problems(namespace, queue_names, parent_queue_names)
        found += under(join("", index), here)
    found += _shared_principals(namespaces)
    return found


def shared_users(namespaces: Sequence[NamespaceConfig]) -> list[Problem]:
    """Return the problems of teams that run as the same user of one file system. Each mounts only its own directory; if
    a directory were ever mounted elsewhere, file modes would not keep the teams apart."""
    taken = {namespace.training_user_id for namespace in namespaces}
    first: dict[int, str] = {}
    found = []
    for index, namespace in enumerate(namespaces):
        user = namespace.training_user_id
        if user in first:
            free = next(number for number in range(user + 1, user + len(namespaces) + 1) if number not in taken)
            taken.add(free)
            reason = f"it is also the user of {first[user]}, so file modes cannot keep the two teams apart"
            found.append(Problem(f"[{index}].training_user_id", reason, rule="R68", value=user, good=free))
        first.setdefault(user, namespace.name)
    return found


def _own_problems(namespace: NamespaceConfig) -> list[Problem]:
    found = formats.derived_name("name", namespace.name)
    if namespace.name in TAKEN or namespace.name.startswith("kube-"):
        reason = "it belongs to Kubernetes or to a part of this stack"
        found.append(Problem("name", reason, "choose another name", value=namespace.name))
    for index, arn in enumerate(namespace.principals):
        found += formats.principal(join("principals", index), arn)
    found += quotas.validate(namespace.resource_quota, "resource_quota")
    found += _priority_problems(namespace.priority_classes)
    if isinstance(namespace.data_bucket, str):
        found += formats.bucket("data_bucket", namespace.data_bucket)
    found += formats.bucket_key(
        "data_bucket_key_arn", namespace.data_bucket_key_arn, "data_bucket", namespace.data_bucket
    )
    return found


def _priority_problems(names: Sequence[str]) -> list[Problem]:
    found = []
    for index, name in enumerate(names):
        path = join("priority_classes", index)
        if name.startswith(priorities.RESERVED_PREFIX):
            reason = "it is Kubernetes' own: a pod of this class ends jobs of every team to make room for itself"
            found.append(Problem(path, reason, "remove it", value=name, allowed=priorities.NAMES))
        else:
            found += formats.dns_subdomain(path, name)
    return found


def _queue_problems(
    namespace: NamespaceConfig, queue_names: Collection[str] | None, parent_queue_names: Collection[str]
) -> list[Problem]:
    if not namespace.queues:
        reason = "without a queue its jobs have nowhere to go"
        names = tuple(queue_names or ())
        return [Problem("queues", reason, allowed=names, good=names[:1] or ("<queue>",))]
    found = []
    for index, name in enumerate(namespace.queues):
        path = join("queues", index)
        if queue_names is None:
            continue
        if not isinstance(name, str):
            found.append(
                Problem(path, "it is an Output, but a queue's name must be known at once", "give the queue's name")
            )
        elif name not in queue_names:
            parent = name in parent_queue_names
            reason = "a queue with child queues takes no jobs" if parent else "no queue has this name"
            allowed, good = tuple(queue_names), nearest(name, queue_names)
            fix = "" if good else "add the queue, or leave it out"
            found.append(Problem(path, reason, fix, value=name, allowed=allowed, good=good))
    return found


def _shared_principals(namespaces: Sequence[NamespaceConfig]) -> list[Problem]:
    """Return the problems of principals of two namespaces: EKS takes one access entry for a principal in a cluster, and
    a second fails as a duplicate (pulumi-eks#2373)."""
    first: dict[str, str] = {}
    found = []
    for index, namespace in enumerate(namespaces):
        for at, arn in enumerate(namespace.principals):
            if first.get(arn, namespace.name) != namespace.name:
                reason = f"it is also a principal of {first[arn]}, and EKS takes one access entry for each in a cluster"
                fix = "give each namespace a role of its own"
                found.append(Problem(f"[{index}].principals[{at}]", reason, fix, value=arn))
            first.setdefault(arn, namespace.name)
    return found
