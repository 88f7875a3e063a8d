"""Series of a small fleet, as the exporters give them."""

ALWAYS = "x2000"
"""Half a minute each: nearly 17 hours."""


def constant(value):
    return f"{value:g}{ALWAYS}"


def between(first, last, value=1, before=None):
    """A value from one minute to another, both included; before it nothing, or another value."""
    lead = f"_x{2 * first}" if before is None else f"{before:g}x{2 * first - 1}"
    return f"{lead if first else ''} {value:g}x{2 * (last - first)}"


def node(name, *, group="ng1", kind="trn1.32xlarge", ready=None, since=0):
    """A Trainium node of 16 devices and 32 cores, or a GPU node of 8."""
    there = between(since, 900)
    neuron = kind.startswith("trn")
    resource, devices = ("aws_amazon_com_neuron", 16) if neuron else ("nvidia_com_gpu", 8)
    labels = (
        f'node="{name}",label_eks_amazonaws_com_nodegroup="{group}-1a2b3c",label_trainium_eks_pool="{group}",'
        f'label_node_kubernetes_io_instance_type="{kind}",label_topology_kubernetes_io_zone="us-west-2d",'
        'label_topology_k8s_aws_zone_id="usw2-az4"'
    )
    found = {
        f"kube_node_labels{{{labels}}}": there,
        f'kube_node_status_capacity{{node="{name}",resource="{resource}",unit="integer"}}': between(
            since, 900, devices
        ),
        f'kube_node_status_condition{{node="{name}",condition="Ready",status="true"}}': ready or there,
        f'kube_node_spec_unschedulable{{node="{name}"}}': between(since, 900, 0),
    }
    if neuron:
        cores = f'kube_node_status_capacity{{node="{name}",resource="aws_amazon_com_neuroncore",unit="integer"}}'
        found |= {cores: between(since, 900, 32), f'neuron_hardware_info{{node="{name}"}}': there}
    return found


def pod(name, node, *, devices=16, phase=None):
    """A pod of the team's that asks for devices of a node. ``phase``: values of its phase Running."""
    labels, asked = f'namespace="research",pod="{name}"', 'resource="aws_amazon_com_neuron"'
    return {
        f'kube_pod_container_resource_requests{{{labels},container="main",node="{node}",{asked}}}': constant(devices),
        f'kube_pod_status_phase{{{labels},phase="Running"}}': phase or constant(1),
    }


def cores(node, values, count=1):
    """Cores of a Trainium node that a process holds, from 0 on, with the same values."""
    return {
        f'neuroncore_utilization_ratio{{node="{node}",neuroncore="{core}",runtime_tag="12"}}': values
        for core in range(count)
    }


def gang(name, phases, *, devices=32, created=0):
    """A PodGroup of the team's: its phases with their values, and since which minute it is there."""
    labels = f'namespace="research",podgroup="{name}-0d1e",job_name="{name}",queue="test"'
    return {
        **{f'trn_gang_phase{{{labels},phase="{phase}"}}': values for phase, values in phases.items()},
        f"trn_gang_created_timestamp_seconds{{{labels}}}": between(created, 900, 60 * created),
        f'trn_gang_min_devices{{{labels},resource="aws_amazon_com_neuron"}}': between(created, 900, devices),
    }


def training(name, *, pod="0", **series):
    """What rank 0 of a training says; ``step="0+1x20"`` is ``trn_training_step``."""
    labels = f'namespace="research",job_name="{name}",queue="test",pod="{name}-{pod}",node="n1"'
    return {f"trn_training_{key}{{{labels}}}": values for key, values in series.items()}


MAKERS = {each.__name__: each for each in (node, pod, cores, gang, training)}


def of_row(row):
    """Return the series of a row of alert_cases.yaml: of the things of its fleet, and its own."""
    found = {}
    for thing in row.get("fleet", ()):
        (maker, name), *more = thing.items()
        found |= MAKERS[maker](name, **dict(more))
    return found | row.get("series", {})
