"""A stack's components for its nodes: device plugins, autoscalers, and the guard of idle nodes."""

from trainium_eks.model.catalogue import node_templates
from trainium_eks.model.config import autoscaling, idle, karpenter
from trainium_eks.model.config import stack_config as model
from trainium_eks.model.config.karpenter import KarpenterConfig
from trainium_eks.model.config.node_groups import POOL_LABEL, NodeGroupConfig
from trainium_eks.model.validation.config_model import mark_validated

from ._args import merge_args
from ._fabric_gate import make_gate
from ._foundation import Foundation
from .cluster_autoscaler import AutoscaledGroup, ClusterAutoscaler, ClusterAutoscalerArgs
from .gpu_addons import GpuAddons, GpuAddonsArgs
from .idle_guard import GuardedGroup, IdleGuard, IdleGuardArgs
from .karpenter import Karpenter, KarpenterArgs
from .neuron_addons import NeuronAddons, NeuronAddonsArgs
from .volcano_stack import VolcanoStack


def accelerator_types(base: Foundation) -> tuple[str, ...]:
    """Return the instance types of accelerator nodes, in node groups and in Karpenter's pools; each once."""
    groups = (*base.config.node_groups, *karpenter.as_groups(base.config))
    return tuple(dict.fromkeys(group.instance_type for group in groups))


def types_with_efa(base: Foundation) -> tuple[str, ...]:
    """Return the accelerator types with EFA."""
    return tuple(each for each in accelerator_types(base) if base.catalogue.find(each).has_efa)


def make_device_addons(base: Foundation, volcano: VolcanoStack) -> None:
    """Make the device plugins for the families in use; the EFA plugin is installed once, even for both families."""
    config, types = base.config, accelerator_types(base)
    neuron = tuple(each for each in types if base.catalogue.find(each).family == "neuron")
    gpu = tuple(each for each in types if base.catalogue.find(each).family == "nvidia")
    efa = types_with_efa(base)
    common = {"region": config.region, "catalogue": base.catalogue}
    if neuron:
        args = merge_args(
            NeuronAddonsArgs, config.neuron_addons, instance_types=neuron, efa_instance_types=efa, **common
        )
        NeuronAddons(f"{base.name}-neuron", args, base.in_cluster())
    if gpu:
        gpu_args = merge_args(
            GpuAddonsArgs,
            config.gpu_addons,
            instance_types=gpu,
            efa_instance_types=() if neuron else efa,
            volcano=volcano.admission,
            **common,
        )
        GpuAddons(f"{base.name}-gpu", gpu_args, base.in_cluster())


def make_autoscaling(base: Foundation) -> None:
    """Make Karpenter and Cluster Autoscaler, if the config has them; they run on the system nodes, which neither
    removes."""
    config = base.config
    if config.autoscaling.karpenter is not None:
        _make_karpenter(base, config.autoscaling.karpenter)
    if config.autoscaling.cluster_autoscaler is None:
        return
    args = merge_args(
        ClusterAutoscalerArgs,
        config.autoscaling.cluster_autoscaler,
        groups=_autoscaled_groups(base),
        kubernetes_version=config.cluster.kubernetes_version,
        node_selector={POOL_LABEL: "system"},
        catalogue=base.catalogue,
        **base.for_aws_callers,
    )
    ClusterAutoscaler(f"{base.name}-autoscaler", mark_validated(args), base.in_cluster())


def _make_karpenter(base: Foundation, section: KarpenterConfig) -> None:
    network = base.network
    args = merge_args(
        KarpenterArgs,
        section,
        cluster_security_group_id=base.cluster.cluster_security_group_id,
        vpc_id=network.vpc_id,
        subnet_ids_by_zone={zone: network.private_subnet_id(zone) for zone in network.zone_ids},
        kms_key_arn=base.key.key_arn,
        kubernetes_version=base.config.cluster.kubernetes_version,
        lustre_network=model.lustre_network(base.config),
        node_selector={POOL_LABEL: "system"},
        catalogue=base.catalogue,
        **base.for_aws_callers,
    )
    Karpenter(f"{base.name}-karpenter", args, base.in_cluster())


def _autoscaled_groups(base: Foundation) -> tuple[AutoscaledGroup, ...]:
    """Return the CPU pool and the accelerator groups of Cluster Autoscaler, with labels and resources of an empty
    group."""
    config, cluster = base.config, base.cluster
    cpu = config.cluster.cpu_nodes
    pool = AutoscaledGroup(
        name="cpu",
        instance_type=cpu.instance_type,
        autoscaling_group=cluster.autoscaling_group("cpu"),
        labels={POOL_LABEL: "cpu"},
        resources=node_templates.of_cpu_nodes(cpu),
    )
    accelerated = (
        AutoscaledGroup(
            name=group.name,
            instance_type=group.instance_type,
            autoscaling_group=cluster.autoscaling_group(group.name),
            labels=cluster.groups[group.name].labels,
            resources=node_templates.of_group(group, base.catalogue),
        )
        for group in autoscaling.served_groups(config)
    )
    return (pool, *accelerated)


def make_fabric_gate(base: Foundation) -> None:
    """Make the gate of accelerator nodes, if the config has it and such nodes."""
    groups = (*base.config.node_groups, *karpenter.as_groups(base.config))
    if base.config.fabric_gate is not None and groups:
        pools = {group.name: group.instance_type for group in groups}
        make_gate(base.name, base.config.fabric_gate, pools, base.catalogue, base.in_cluster())


def make_idle_guard(base: Foundation) -> None:
    """Make the idle guard, if the config has it and a group that it guards."""
    guarded = idle.guarded(base.config)
    if base.config.idle_guard is None or not guarded:
        return
    groups = {group.name: _guarded(base, group) for group in guarded}
    args = merge_args(IdleGuardArgs, base.config.idle_guard, groups=groups, **base.for_aws_callers)
    IdleGuard(f"{base.name}-idle", mark_validated(args), base.in_cluster())


def _guarded(base: Foundation, group: NodeGroupConfig) -> GuardedGroup:
    return GuardedGroup(
        eks_name=base.cluster.groups[group.name].node_group_name,
        devices=tuple(base.catalogue.device_resources(group.instance_type)),
        minimum=group.min_size,
        removes=idle.removes_from(group),
    )
