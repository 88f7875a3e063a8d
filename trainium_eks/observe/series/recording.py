"""Recorded series about a fleet and its trainings, computed by Prometheus from exporters' series.

Names begin with ``trn:``; docs/alerts.md lists them. Pure functions: no Pulumi, no cluster.
"""

from collections.abc import Mapping, Sequence

from trainium_eks.model.catalogue.instances import (
    INSTANCE_TYPE_LABEL,
    NEURON_CORE_RESOURCE,
    NEURON_RESOURCE,
    NVIDIA_RESOURCE,
    Catalogue,
)
from trainium_eks.model.config.node_groups import POOL_LABEL
from trainium_eks.observe.rule_file import Group, Rule, group, lines
from trainium_eks.observe.series.gangs import resource_label

WINDOW = "1d"
"""Window of goodput, and the longest time that a training's last step is looked for."""

_WINDOW_SECONDS = 86_400

_NODE_LABELS: Mapping[str, Sequence[str]] = {
    "node_group": ("eks.amazonaws.com/nodegroup", "karpenter.sh/nodepool", POOL_LABEL),
    "instance_type": (INSTANCE_TYPE_LABEL,),
    "zone": ("topology.kubernetes.io/zone", "topology.k8s.aws/zone-id"),
}
"""Label of ``trn:node_info`` to the node labels that it is taken from: the last that a node has wins."""

_JOB_LABELS = (
    "volcano.sh/job-name",
    "training.kubeflow.org/job-name",
    "jobset.sigs.k8s.io/jobset-name",
    "batch.kubernetes.io/job-name",
)
"""Pod labels that a training's name is taken from: the first that a pod has."""

_QUEUE_LABEL = "volcano.sh/queue-name"
"""Pod label with its queue."""

DEVICES = f"{resource_label(NEURON_RESOURCE)}|{resource_label(NVIDIA_RESOURCE)}"
"""The device resources as kube-state-metrics writes them, for ``resource=~``."""


ABOUT: Mapping[str, str] = {
    "trn:node_info": "1 for each node, with its `node_group`, `instance_type` and `zone`",
    "trn:instance_usd_per_hour": "price of an instance type: the catalogue's On-Demand list price, or the config's own",
    "trn:node:usd_per_hour": "price of a node",
    "trn:usd_per_hour": "price of a node group's nodes",
    "trn:node:devices_total": "devices of a node",
    "trn:pod:devices_requested": "devices that a pod asks for, on its node, until it has ended",
    "trn:node:devices_requested": "devices of a node that pods ask for",
    "trn:devices:total": "devices of a node group",
    "trn:devices:requested": "devices of a node group that pods ask for",
    "trn:devices:free": "devices on nodes that are ready, take pods, and have none that asks for a device",
    "trn:cores:busy_ratio": "how busy a node's cores or GPUs are, 0 to 1; only while its exporter answers",
    "trn:devices:busy_ratio": "the same of a node group",
    "trn:node:idle_usd_per_hour": "price of the devices of a node that no pod asks for",
    "trn:idle_usd_per_hour": "the same of a node group",
    "trn:gang:waits": "1 for each gang that waits",
    "trn:gang_wait_seconds": "how long a gang has waited, since it was made or last ran; only while it waits",
    "trn:gang:devices": "devices that a gang asks for",
    "trn:training:pods": "1 for each pod of a training, with its `job_name`, `queue` and `node`",
    "trn:training:step": "last step of a training",
    "trn:training:step_seconds": "how long a step takes",
    "trn:training:steps_per_minute": "steps made in the last minute",
    "trn:training:stepped_timestamp_seconds": "when the last step was made, to the minute",
    "trn:training:kept_ratio": "steps that count, of those that were made: restarts make some again",
    "trn:training:productive_ratio": "time in steps, of all the time since the training first began",
    "trn:goodput:ratio": "time in steps that count, of all the time since the training first began, within a day",
    "trn:file_system:free_bytes": "free space of the shared file system",
    "trn:file_system:export_age_seconds": "how long the oldest changed file has waited for its export to S3",
}
"""Recorded name to its meaning."""


def groups(hourly_usd: Mapping[str, float]) -> list[Group]:
    """Return all recording rules, as ``groups`` of a rule file.

    Args:
        hourly_usd: instance type to its price an hour; a type without one costs nothing here, and no panel says so.
    """
    return [
        group("trn-fleet", [*_nodes(hourly_usd), *_devices(), *_idle()]),
        group("trn-gangs", [*_gangs()]),
        group("trn-trainings", [*_trainings(), *_goodput()]),
        group("trn-file-systems", [*_file_systems()]),
    ]


def prices(catalogue: Catalogue, instance_types: Sequence[str]) -> dict[str, float]:
    """Return the known prices of the given types, USD an hour: On-Demand list prices, or the config's own."""
    found = {name: catalogue.price(name) for name in dict.fromkeys(instance_types)}
    return {name: price.hourly_usd for name, price in found.items() if price is not None}


# --- the fleet ------------------------------------------------------------------------------------------------------


def _nodes(hourly_usd: Mapping[str, float]) -> list[Rule]:
    """Return the rules of nodes with their group, type and zone, and their cost."""
    labelled = "kube_node_labels"
    for label, sources in _NODE_LABELS.items():
        for source in sources:
            labelled = f'label_replace({labelled}, "{label}", "$1", "label_{resource_label(source)}", "(.+)")'
    return [
        _rule("trn:node_info", f"max by (node, node_group, instance_type, zone) ({labelled})"),
        *(
            {
                "record": "trn:instance_usd_per_hour",
                "expr": f"vector({price:g})",
                "labels": {"instance_type": name},
            }
            for name, price in sorted(hourly_usd.items())
        ),
        _rule(
            "trn:node:usd_per_hour",
            "trn:node_info * on (instance_type) group_left () trn:instance_usd_per_hour",
        ),
        _rule("trn:usd_per_hour", "sum by (node_group) (trn:node:usd_per_hour)"),
    ]


def _devices() -> list[Rule]:
    """Return the rules of devices with their number, the number requested by pods, and their load."""
    resource = f'resource=~"{DEVICES}"'
    cores = f'kube_node_status_capacity{{resource="{resource_label(NEURON_CORE_RESOURCE)}"}}'
    return [
        _rule(
            "trn:node:devices_total",
            f"""
            max by (node, resource) (kube_node_status_capacity{{{resource}}})
              * on (node) group_left (node_group, instance_type) trn:node_info
            """,
        ),
        # A pod that has ended keeps its requests as long as it is listed, but not its devices.
        _rule(
            "trn:pod:devices_requested",
            f"""
            sum by (namespace, pod, node, resource) (
              max by (namespace, pod, container, node, resource) (
                kube_pod_container_resource_requests{{{resource}, node!=""}}
              )
            )
            and on (namespace, pod) max by (namespace, pod) (kube_pod_status_phase{{phase=~"Pending|Running"}} == 1)
            """,
        ),
        _rule(
            "trn:node:devices_requested",
            """
            trn:node:devices_total * 0
              + on (node, resource) group_left () sum by (node, resource) (trn:pod:devices_requested)
            or trn:node:devices_total * 0
            """,
        ),
        _rule("trn:devices:total", "sum by (node_group, instance_type) (trn:node:devices_total)"),
        _rule("trn:devices:requested", "sum by (node_group, instance_type) (trn:node:devices_requested)"),
        # Gangs take whole nodes: a node counts when it is ready, takes pods, and no pod asks for a device of it.
        _rule(
            "trn:devices:free",
            """
            sum by (resource) (
              trn:node:devices_total
              and (trn:node:devices_requested == 0)
              and on (node) (kube_node_status_condition{condition="Ready", status="true"} == 1)
              and on (node) (kube_node_spec_unschedulable == 0)
            )
            """,
        ),
        # neuron-monitor shows only cores that some process holds; DCGM shows every GPU.
        _rule(
            "trn:cores:busy_ratio",
            f"""
            clamp_max(
              sum by (node) (max by (node, neuroncore) (neuroncore_utilization_ratio))
                / on (node) max by (node) ({cores} > 0),
              1
            )
            or on (node) max by (node) (neuron_hardware_info) * 0
            or on (node) avg by (node) (max by (node, gpu) (DCGM_FI_DEV_GPU_UTIL)) / 100
            """,
        ),
        _rule(
            "trn:devices:busy_ratio",
            """
            sum by (node_group, instance_type) (
              trn:node:devices_total * on (node) group_left () trn:cores:busy_ratio
            )
            / (
              sum by (node_group, instance_type) (trn:node:devices_total and on (node) trn:cores:busy_ratio) > 0
            )
            """,
        ),
    ]


def _idle() -> list[Rule]:
    """Return the rules of the cost of devices that no pod asks for."""
    return [
        _rule(
            "trn:node:idle_usd_per_hour",
            """
            trn:node:usd_per_hour * on (node) group_left () (
              1 - sum by (node) (trn:node:devices_requested) / (sum by (node) (trn:node:devices_total) > 0)
            )
            or trn:node:usd_per_hour and on (node) (sum by (node) (trn:node:devices_total) == 0)
            """,
        ),
        _rule("trn:idle_usd_per_hour", "sum by (node_group) (trn:node:idle_usd_per_hour)"),
    ]


# --- gangs and trainings --------------------------------------------------------------------------------------------


def _gangs() -> list[Rule]:
    """Return the rules of waiting gangs with their waiting times and devices."""
    waits = 'max by (namespace, job_name, queue) (trn_gang_phase{phase=~"Pending|Inqueue"} == 1)'
    ran = 'timestamp(trn_gang_phase{phase=~"Running|Unknown"} == 1)'
    requests = f'kube_pod_container_resource_requests{{resource=~"{DEVICES}"}}'
    return [
        _rule("trn:gang:waits", waits),
        # Since it was made, or since it last ran: a restart makes a gang wait again.
        _rule(
            "trn:gang_wait_seconds",
            f"""
            time() - max by (namespace, job_name, queue) (
              trn_gang_created_timestamp_seconds or max_over_time({ran}[{WINDOW}:1m])
            )
            and trn:gang:waits
            """,
        ),
        # Volcano sums up the requests of a job's template. Plain TorchX names Neuron devices as limits alone, which
        # become requests in the pods.
        _rule(
            "trn:gang:devices",
            f"""
            max by (namespace, job_name, queue, resource) (trn_gang_min_devices)
            or sum by (namespace, job_name, queue, resource) (
              sum by (namespace, pod, resource) (
                max by (namespace, pod, container, resource) ({requests})
              )
              * on (namespace, pod) group_left (job_name, queue) {_jobs_of_pods()}
            )
            """,
        ),
    ]


def _trainings() -> list[Rule]:
    """Return the rules of each training's progress. Rank 0 alone reports it, from a new pod after each restart."""
    return [
        _rule("trn:training:pods", _pods()),
        _rule("trn:training:step", "max by (namespace, job_name) (trn_training_step)"),
        _rule("trn:training:step_seconds", "max by (namespace, job_name) (trn_training_step_seconds)"),
        # A restart goes back to the last checkpoint: no step was made then, and the steps since it are made again.
        _rule(
            "trn:training:steps_per_minute",
            "clamp_min(trn:training:step - (trn:training:step offset 1m), 0)",
        ),
        _rule(
            "trn:training:stepped_timestamp_seconds",
            f"max_over_time(timestamp(trn:training:steps_per_minute > 0)[{WINDOW}:1m]) and trn:training:step",
        ),
    ]


def _pods() -> str:
    """Return PromQL for the nodes of each training's pods: series of devices and hosts carry the node alone."""
    return f"""
        max by (namespace, pod, node) (kube_pod_info{{node!=""}})
          * on (namespace, pod) group_left (job_name, queue) {_jobs_of_pods()}
    """


def _jobs_of_pods() -> str:
    """Return PromQL with 1 for each pod of a training, with its job and queue; whether it has a node or not."""
    jobs = [
        f'label_replace(kube_pod_labels{{{label}!=""}}, "job_name", "$1", "{label}", "(.+)")'
        for label in (f"label_{resource_label(each)}" for each in _JOB_LABELS)
    ]
    queue = f"label_{resource_label(_QUEUE_LABEL)}"
    return f"""
        max by (namespace, pod, job_name, queue) (
          label_replace({" or on (namespace, pod) ".join(jobs)}, "queue", "$1", "{queue}", "(.+)")
        )
    """


def _goodput() -> list[Rule]:
    """Return the rules of useful time by all the time since the training first began, within the window: see
    docs/goodput.md.

    Useful is the time in steps, less the share of steps that a restart made again.
    """
    job = "namespace, job_name"
    made = f"sum_over_time(trn:training:steps_per_minute[{WINDOW}:1m])"
    kept = f"(max_over_time(trn:training:step[{WINDOW}]) - min_over_time(trn:training:step[{WINDOW}]))"
    began = f"min by ({job}) (min_over_time(trn_training_started_timestamp_seconds[{WINDOW}]))"
    unfinished = f'max by ({job}) (trn_gang_phase{{phase!="Completed"}} == 1)'
    return [
        _rule("trn:training:kept_ratio", f"clamp_max({kept} / ({made} > 0), 1)"),
        _rule(
            "trn:training:productive_ratio",
            f"""
            clamp_max(
              sum by ({job}) (increase(trn_training_productive_seconds_total[{WINDOW}]))
                / clamp(time() - {began}, 1, {_WINDOW_SECONDS}),
              1
            )
            and on ({job}) (trn:training:step or {unfinished})
            """,
        ),
        _rule(
            "trn:goodput:ratio",
            """
            trn:training:productive_ratio * on (namespace, job_name) trn:training:kept_ratio
            or trn:training:productive_ratio
            """,
        ),
    ]


# --- file systems ---------------------------------------------------------------------------------------------------


def _file_systems() -> list[Rule]:
    """Return the rules of FSx' own metrics in CloudWatch, as the exporter YACE names them:
    ``aws_<namespace>_<metric>_<statistic>``."""
    by_id = 'label_replace({}, "file_system_id", "$1", "dimension_FileSystemId", "(.+)")'
    free = by_id.format("aws_fsx_free_data_storage_capacity_sum")
    oldest = by_id.format("aws_fsx_age_of_oldest_queued_message_maximum")
    return [
        _rule("trn:file_system:free_bytes", f"max by (file_system_id) ({free})"),
        _rule("trn:file_system:export_age_seconds", f"max by (file_system_id) ({oldest})"),
    ]


def _rule(name: str, expression: str) -> Rule:
    return {"record": name, "expr": lines(expression)}
