"""VolcanoStack: the gang scheduler, its queues, and etcd for the ``etcd`` rendezvous."""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import pydantic

from trainium_eks.model import node_labels, volcano_config
from trainium_eks.model.catalogue import versions
from trainium_eks.model.catalogue.chart_workloads import ETCD_CHART, SYSTEM_NAMESPACE
from trainium_eks.model.config import namespaces
from trainium_eks.model.sizing import priorities
from trainium_eks.model.sizing import queues as queue_model
from trainium_eks.model.sizing.queues import QUEUE_API, QueueConfig, VolcanoConfig
from trainium_eks.model.validation.config_model import StrictBool, StrictInt
from trainium_eks.model.validation.problems import Problem, Severity

from ._args import outputs, validate_args, waivers_of
from ._charts import chart, close_namespace, local_chart, namespace, release, spread
from ._dicts import VolcanoStackArgsDict
from ._hypernodes import make_controller

CHART = "volcano"
RELEASE_NAME = "volcano"
NAMESPACE = namespaces.VOLCANO
NAMESPACE_REASON = "the chart's containers add DAC_OVERRIDE, which the restricted level forbids"
ADMISSION_PORT = 8443
METRICS_PORTS = (8080, 8081)
COMPONENTS: Mapping[str, str] = {
    "scheduler": "volcano-scheduler",
    "controller": "volcano-controller",
    "admission": "volcano-admission",
}
"""The chart's key of each component, and the ``app`` label of its pods."""

ETCD_NAMESPACE = namespaces.ETCD
ETCD_REASON = "etcd needs no privilege"
ETCD_ENDPOINT = f"etcd-server.{ETCD_NAMESPACE}.svc.cluster.local:2379"


class VolcanoStackArgs(VolcanoConfig):
    """Args of :class:`VolcanoStack`, the config section with its wiring."""

    queues: tuple[QueueConfig, ...] = (QueueConfig(name="test"),)
    """Queues to make, besides Volcano's own ``default`` and ``root``, which are left alone."""
    pool: dict[str, StrictInt] = pydantic.Field(default_factory=dict)
    """Resources of all the cluster's groups at their maximum (``{aws.amazon.com/neuron: 64}``): the most that queues
    may name, and the capability of a queue that names none."""
    rests_at_zero: StrictBool = False
    """Whether some accelerator group may have no node; decides ``scale_from_zero`` where that is unset."""
    topology_labels: tuple[str, ...] = node_labels.EC2_TOPOLOGY_LABELS
    """Node labels that name a node's switches, the widest layer first. A controller keeps a HyperNode for each switch;
    empty for no controller, and existing HyperNodes stay."""
    rendezvous_namespaces: tuple[str, ...] = ()
    """Namespaces with jobs that may reach etcd (it has no password); only with ``rendezvous: etcd``."""
    waivers: dict[str, str] = pydantic.Field(default_factory=dict)
    """Rules broken on purpose, each with its reason: ``R58`` for a single replica, ``R60`` for ``scale_from_zero``
    off although a group rests at zero."""


class VolcanoStack(pulumi.ComponentResource):
    """Volcano with its scheduler and controllers configured for accelerator gangs, the controller that keeps the
    HyperNodes by which it places close gangs, and the stack's queues.

    The Kubernetes provider comes by ``opts.providers``. Nothing here tolerates the accelerators' taints, so all of
    it runs on system or CPU nodes. Queues wait for the release, which is ready when its admission webhook answers.
    """

    namespace: pulumi.Output[str]
    """Namespace of Volcano's own pods."""
    queue_names: pulumi.Output[list[str]]
    """Queues that take jobs, once they exist: the queues without children, in the order given."""
    rendezvous_endpoint: pulumi.Output[str]
    """Host and port of etcd, valid in every namespace; empty for the ``c10d`` rendezvous."""

    def __init__(
        self, name: str, args: VolcanoStackArgs | VolcanoStackArgsDict, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        args = validate_args(
            VolcanoStackArgs, args, validate, f"VolcanoStack {name}", waivers=waivers_of(args), opts=opts
        )
        super().__init__("trainium-eks:index:VolcanoStack", name, {}, opts)
        self._args = args

        self._namespace = namespace(
            f"{name}-namespace", NAMESPACE, "baseline", NAMESPACE_REASON, pulumi.ResourceOptions(parent=self)
        )
        self._make_network_policy()
        self._make_disruption_budgets()
        self._release = self._make_release()
        if args.topology_labels:
            make_controller(name, args.topology_labels, home=self._namespace, volcano=self._release, parent=self)
        self._make_priority_classes()
        made = self._make_queues()
        etcd = self._make_etcd() if args.rendezvous == "etcd" else None

        leaves = list(queue_model.leaves(args.queues))
        self.namespace = self._namespace.metadata["name"]
        # The names are known, but a resource that uses this output waits for the queues.
        self.queue_names = pulumi.Output.all(*(queue.urn for queue in made)).apply(lambda _: leaves)
        self.rendezvous_endpoint = etcd.urn.apply(lambda _: ETCD_ENDPOINT) if etcd else pulumi.Output.from_input("")
        self.register_outputs(outputs(self, VolcanoStack))

    @property
    def admission(self) -> pulumi.Resource:
        """The release, which queues and jobs wait for: without Volcano's webhook the API server refuses both."""
        return self._release

    def _make_release(self) -> k8s.helm.v3.Release:
        return release(
            f"{self._name}-release",
            chart(CHART),
            release_name=RELEASE_NAME,
            namespace=NAMESPACE,
            values=volcano_values(self._args),
            opts=pulumi.ResourceOptions(parent=self, depends_on=[self._namespace]),
        )

    def _make_network_policy(self) -> None:
        """Admit only webhook calls, which come from the control plane's addresses, and scrapes."""
        ports = [
            k8s.networking.v1.NetworkPolicyPortArgs(port=port, protocol="TCP")
            for port in (ADMISSION_PORT, *METRICS_PORTS)
        ]
        opts = pulumi.ResourceOptions(parent=self, depends_on=[self._namespace])
        admitted = [k8s.networking.v1.NetworkPolicyIngressRuleArgs(ports=ports)]
        close_namespace(f"{self._name}-ingress", "volcano-ingress", NAMESPACE, opts, admitted)

    def _make_disruption_budgets(self) -> None:
        """Let a drain evict one copy of each component. With a single copy a budget would block every drain."""
        if self._args.replicas < 2:
            return
        for component, app in COMPONENTS.items():
            k8s.policy.v1.PodDisruptionBudget(
                f"{self._name}-{component}",
                metadata=k8s.meta.v1.ObjectMetaArgs(name=app, namespace=NAMESPACE),
                spec=k8s.policy.v1.PodDisruptionBudgetSpecArgs(
                    max_unavailable=1,
                    selector=k8s.meta.v1.LabelSelectorArgs(match_labels={"app": app}),
                ),
                opts=pulumi.ResourceOptions(parent=self, depends_on=[self._namespace]),
            )

    def _make_priority_classes(self) -> None:
        """Make the priority classes, so that a team orders its jobs without Kubernetes' own classes."""
        for level in priorities.LEVELS:
            k8s.scheduling.v1.PriorityClass(
                f"{self._name}-{level.name}",
                metadata=k8s.meta.v1.ObjectMetaArgs(name=level.name),
                value=level.value,
                preemption_policy="Never",
                global_default=False,
                description=level.description,
                opts=pulumi.ResourceOptions(parent=self),
            )

    def _make_queues(self) -> list[k8s.apiextensions.CustomResource]:
        """Make the queues, each after its parent, so that a destroy removes children first, which the webhook
        requires."""
        made: dict[str, k8s.apiextensions.CustomResource] = {}
        for queue in _parents_first(queue_model.resolve(self._args.queues, self._args.pool)):
            after: list[pulumi.Resource] = [self._release]
            if queue.parent in made:
                after.append(made[queue.parent])
            made[queue.name] = k8s.apiextensions.CustomResource(
                f"{self._name}-{queue.name}",
                api_version=QUEUE_API,
                kind="Queue",
                metadata=k8s.meta.v1.ObjectMetaArgs(name=queue.name),
                spec=queue_spec(queue),
                opts=pulumi.ResourceOptions(parent=self, depends_on=after),
            )
        return list(made.values())

    def _make_etcd(self) -> k8s.helm.v3.Release:
        home = namespace(
            f"{self._name}-etcd", ETCD_NAMESPACE, "restricted", ETCD_REASON, pulumi.ResourceOptions(parent=self)
        )
        return release(
            f"{self._name}-etcd",
            local_chart(ETCD_CHART),
            release_name=ETCD_CHART,
            namespace=ETCD_NAMESPACE,
            values={
                "image": versions.IMAGES["etcd"],
                "clientNamespaces": sorted(self._args.rendezvous_namespaces),
            },
            opts=pulumi.ResourceOptions(parent=self, depends_on=[home]),
        )


def volcano_values(args: VolcanoStackArgs) -> dict[str, Any]:
    """Return the values of the Volcano chart."""
    custom: dict[str, Any] = {
        "leader_elect_enable": args.replicas > 1,
        "go_memlimit_enable": True,
        **volcano_config.CONTROLLER_RATES,
        **volcano_config.SCHEDULER_RATES,
        **volcano_config.NODES_CONSIDERED,
        **volcano_config.LOG_LEVELS,
        # Webhooks fail closed: a Volcano that is down must never keep the cluster's own pods from starting.
        "webhooks_namespace_selector_expressions": [
            {
                "key": "kubernetes.io/metadata.name",
                "operator": "NotIn",
                "values": [SYSTEM_NAMESPACE, "kube-public", "kube-node-lease", NAMESPACE],
            }
        ],
        "scheduler_config_override": volcano_config.scheduler_yaml(
            args, queues=args.queues, rests_at_zero=args.rests_at_zero
        ),
        "scheduler_resources": _resources("250m", "512Mi", "2", "2Gi"),
        # One job's pods are counted by one thread, again for each pod that starts: a thousand need more than one core
        # (the garbage collector has its own) and a copy of the job in memory.
        "controller_resources": _resources("100m", "256Mi", "2", "2Gi"),
        "admission_resources": _resources("100m", "128Mi", "500m", "512Mi"),
    }
    for component, app in COMPONENTS.items():
        custom[f"{component}_replicas"] = args.replicas
        custom[f"{component}_affinity"] = spread({"app": app})
    return {
        "basic": {
            "image_registry": args.image_registry,
            "image_tag_version": f"v{chart(CHART).version.removeprefix('v')}",
            # The tag is pinned, so a node's copy is the registry's.
            "image_pull_policy": "IfNotPresent",
            "admission_port": ADMISSION_PORT,
        },
        "custom": custom,
    }


def queue_spec(queue: QueueConfig) -> dict[str, Any]:
    """Return the ``spec`` of a Queue object: the config's fields, which have Volcano's names. Unset fields and empty
    amounts are omitted, so that Volcano's defaults apply."""
    fields = queue.model_dump(mode="json", by_alias=True, exclude={"name"})
    spec = {key: value for key, value in fields.items() if value is not None and value != {}}
    return {**spec, "guarantee": {"resource": queue.guarantee}} if queue.guarantee else spec


def validate(args: VolcanoStackArgs) -> list[Problem]:
    """Return the problems of the args. Nothing is built while one of them is refused."""
    found = [
        *queue_model.volcano_problems(args, rests_at_zero=args.rests_at_zero),
        *(problem.under("queues") for problem in queue_model.validate(args.queues, pool=args.pool)),
    ]
    if args.rendezvous == "etcd" and not args.rendezvous_namespaces:
        found.append(
            Problem(
                "rendezvous_namespaces",
                f"the list is empty: etcd has no password, so only pods of the namespace {ETCD_NAMESPACE} may reach it",
                "name the namespaces whose jobs use it",
                severity=Severity.WARN,
            )
        )
    return found


def _resources(cpu: str, memory: str, cpu_limit: str, memory_limit: str) -> dict[str, dict[str, str]]:
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu_limit, "memory": memory_limit}}


def _parents_first(queues: Sequence[QueueConfig]) -> list[QueueConfig]:
    """Return the queues with every parent before its children, otherwise in the order given."""
    named = {queue.name: queue for queue in queues}
    placed: dict[str, QueueConfig] = {}

    def place(queue: QueueConfig) -> None:
        if queue.name in placed:
            return
        if queue.parent in named:
            place(named[queue.parent])
        placed[queue.name] = queue

    for queue in queues:
        place(queue)
    return list(placed.values())
