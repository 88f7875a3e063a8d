"""Every series that dashboards, recording rules and alerts may use, by the names that its exporter gives it.

A test holds all queries to this catalogue, so that none asks for a series that nobody serves. ``labels`` are those that
a series has in Prometheus: the exporter's own, and those that :mod:`trainium_eks.monitoring.scraping` adds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from trainium_eks.monitoring.exporters import (
    API_SERVER,
    DCGM,
    EFA,
    FSX,
    KUBELET,
    NEURON,
    NODE,
    PROMETHEUS,
    STATE,
    TRAINING,
    VOLCANO,
    VOLCANO_CONTROLLERS,
    Exporter,
)

Kind = Literal["gauge", "counter"]
Unit = Literal["", "1", "bytes", "MiB", "seconds", "ms", "timestamp", "%", "°C", "W", "core", "milli"]
"""What a value counts: nothing ("" for what is always 1), things ("1"), or a unit; ``timestamp`` is Unix seconds, and
``milli`` a thousandth of what the label ``resource`` names."""


@dataclass(frozen=True)
class Metric:
    """A series."""

    name: str
    exporter: Exporter
    kind: Kind
    unit: Unit
    own_labels: tuple[str, ...]
    """Those that the exporter gives it."""
    about: str
    """What a value means, where the name does not say it."""

    @property
    def labels(self) -> frozenset[str]:
        """Labels in Prometheus, but for ``job`` and ``instance``, which each series has."""
        return frozenset({*self.own_labels, *self.exporter.scraped})


_EC2 = ("instance_id", "instance_name", "instance_type", "availability_zone", "region", "subnet_id")
_RUNTIME = (*_EC2, "runtime_tag")
_REMOTE_WRITE: tuple[tuple[str, Kind, Unit, str], ...] = (
    ("samples_failed_total", "counter", "1", "refused for good"),
    ("queue_highest_timestamp_seconds", "gauge", "timestamp", "of the newest sample to be sent"),
    ("queue_highest_sent_timestamp_seconds", "gauge", "timestamp", "of the newest sample that was sent"),
)
_GPU = ("gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "namespace", "pod", "container")
_PORT = ("device", "port")
_QUEUE = ("queue_name",)
_QUEUE_RESOURCE = ("queue_name", "resource")
_POD = ("namespace", "pod", "uid")
_GANG = ("namespace", "podgroup", "job_name", "queue")
_CONTAINER = (*_POD, "container")
_REQUEST = (*_CONTAINER, "node", "resource", "unit")
_CLAIM = ("namespace", "persistentvolumeclaim")
_CLOUDWATCH = ("name", "dimension_FileSystemId", "account_id", "region")
_FILES = ("device", "fstype", "mountpoint")
_POD_LABELS = (
    "label_volcano_sh_job_name",
    "label_volcano_sh_queue_name",
    "label_training_kubeflow_org_job_name",
    "label_jobset_sigs_k8s_io_jobset_name",
)
"""Labels of pods that kube-state-metrics is allowed to show (``--metric-labels-allowlist``)."""
_NODE_LABELS = (
    "label_trainium_eks_pool",
    "label_node_kubernetes_io_instance_type",
    "label_topology_kubernetes_io_zone",
    "label_eks_amazonaws_com_nodegroup",
)
"""The same of nodes."""

_ALL = (
    # -- Neuron devices
    Metric("neuroncore_utilization_ratio", NEURON, "gauge", "1", (*_RUNTIME, "neuroncore"), "0 to 1, of a core in use"),
    *(
        Metric(
            f"neuroncore_memory_usage_{part}",
            NEURON,
            "gauge",
            "bytes",
            (*_RUNTIME, "neuroncore", "memory_location"),
            about,
        )
        for part, about in {
            "constants": "device memory of a core with constants of the graph, such as weights",
            "model_code": "with the compiled program",
            "model_shared_scratchpad": "with what programs share while they compute",
            "runtime_memory": "with what the runtime needs itself",
            "tensors": "with tensors: activations, gradients, optimizer",
        }.items()
    ),
    Metric(
        "neuron_runtime_memory_used_bytes",
        NEURON,
        "gauge",
        "bytes",
        (*_RUNTIME, "memory_location"),
        "of a process: memory_location is host or neuron_device",
    ),
    Metric(
        "execution_errors_total",
        NEURON,
        "counter",
        "1",
        (*_RUNTIME, "error_type"),
        "error_type: generic, numerical, transient, model, runtime, hardware",
    ),
    Metric(
        "execution_status_total",
        NEURON,
        "counter",
        "1",
        (*_RUNTIME, "status_type"),
        "status_type: completed, timed_out, failed_to_queue and other failures",
    ),
    Metric(
        "execution_latency_seconds", NEURON, "gauge", "seconds", (*_RUNTIME, "percentile"), "percentile: p0 to p100"
    ),
    Metric(
        "hardware_ecc_events_total",
        NEURON,
        "counter",
        "1",
        (*_EC2, "event_type", "neuron_device_index"),
        "event_type: mem_ecc_corrected, mem_ecc_uncorrected, sram_ecc_corrected, sram_ecc_uncorrected",
    ),
    Metric(
        "neuron_hardware_info",
        NEURON,
        "gauge",
        "",
        (*_EC2, "neuron_device_count", "neuroncore_per_device_count"),
        "what a node has, in labels",
    ),
    # -- GPUs
    Metric("DCGM_FI_DEV_GPU_UTIL", DCGM, "gauge", "%", _GPU, "share of time in which some kernel ran"),
    Metric("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", DCGM, "gauge", "1", _GPU, "0 to 1, of the tensor cores"),
    Metric("DCGM_FI_DEV_FB_USED", DCGM, "gauge", "MiB", _GPU, "device memory in use"),
    Metric("DCGM_FI_DEV_FB_FREE", DCGM, "gauge", "MiB", _GPU, "device memory that is free"),
    Metric("DCGM_FI_DEV_GPU_TEMP", DCGM, "gauge", "°C", _GPU, "temperature of the chip"),
    Metric("DCGM_FI_DEV_POWER_USAGE", DCGM, "gauge", "W", _GPU, "power drawn"),
    Metric(
        "DCGM_FI_DEV_XID_ERRORS", DCGM, "gauge", "", (*_GPU, "err_code", "err_msg"), "number of the last XID; 0: none"
    ),
    Metric(
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        DCGM,
        "counter",
        "1",
        _GPU,
        "rows of memory remapped for double-bit errors",
    ),
    Metric("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", DCGM, "counter", "1", _GPU, "rows remapped for single-bit errors"),
    Metric("DCGM_FI_DEV_ROW_REMAP_FAILURE", DCGM, "gauge", "", _GPU, "1: no spare rows are left, replace the GPU"),
    # -- Nodes
    Metric(
        "node_cpu_seconds_total", NODE, "counter", "seconds", ("cpu", "mode"), "mode: idle, user, system, iowait, ..."
    ),
    Metric(
        "node_memory_MemAvailable_bytes", NODE, "gauge", "bytes", (), "what programs can still have without swapping"
    ),
    Metric("node_memory_MemTotal_bytes", NODE, "gauge", "bytes", (), "memory of the host"),
    Metric("node_filesystem_avail_bytes", NODE, "gauge", "bytes", _FILES, "free for programs that are not root"),
    Metric("node_filesystem_size_bytes", NODE, "gauge", "bytes", _FILES, "of a mounted file system"),
    Metric(
        "node_network_receive_bytes_total", NODE, "counter", "bytes", ("device",), "of an interface; EFA bypasses it"
    ),
    Metric(
        "node_network_transmit_bytes_total", NODE, "counter", "bytes", ("device",), "of an interface; EFA bypasses it"
    ),
    Metric("node_vmstat_oom_kill", NODE, "counter", "1", (), "processes that the kernel killed for memory"),
    Metric("node_boot_time_seconds", NODE, "gauge", "timestamp", (), "when the host started"),
    *(
        Metric(f"node_amazonefa_{counter}", EFA, "counter", "bytes", _PORT, about)
        for counter, about in {
            "tx_bytes": "sent, by whichever operation",
            "rx_bytes": "received",
            "rdma_read_bytes": "read from others' memory",
            "rdma_write_bytes": "written to others' memory",
            "retrans_bytes": "sent again; Nitro v4 and newer",
        }.items()
    ),
    *(
        Metric(f"node_amazonefa_{counter}", EFA, "counter", "1", _PORT, about)
        for counter, about in {
            "rx_drops": "packets dropped for want of buffers",
            "rdma_read_wr_err": "reads that failed",
            "rdma_write_wr_err": "writes that failed",
            "retrans_timeout_events": "waits for an answer that ran out; Nitro v4 and newer",
            "unresponsive_remote_events": "peers that stopped answering; Nitro v4 and newer",
        }.items()
    ),
    # -- Kubernetes
    Metric("kube_node_info", STATE, "gauge", "", ("node", "internal_ip", "provider_id", "kubelet_version"), "a node"),
    Metric("kube_node_labels", STATE, "gauge", "", ("node", *_NODE_LABELS), "labels that are allowed"),
    Metric("kube_node_created", STATE, "gauge", "timestamp", ("node",), "when it joined"),
    Metric("kube_node_spec_unschedulable", STATE, "gauge", "", ("node",), "1: cordoned"),
    Metric("kube_node_spec_taint", STATE, "gauge", "", ("node", "key", "value", "effect"), "a taint"),
    Metric(
        "kube_node_status_allocatable",
        STATE,
        "gauge",
        "1",
        ("node", "resource", "unit"),
        "resource: aws_amazon_com_neuron",
    ),
    Metric(
        "kube_node_status_capacity", STATE, "gauge", "1", ("node", "resource", "unit"), "before what the host keeps"
    ),
    Metric(
        "kube_node_status_condition",
        STATE,
        "gauge",
        "",
        ("node", "condition", "status"),
        "1 for the status that holds; EKS' node monitoring agent adds AcceleratedHardwareReady and others",
    ),
    Metric("kube_pod_info", STATE, "gauge", "", (*_POD, "node", "host_ip", "pod_ip", "created_by_name"), "a pod"),
    Metric("kube_pod_labels", STATE, "gauge", "", (*_POD, *_POD_LABELS), "labels that are allowed"),
    Metric("kube_pod_created", STATE, "gauge", "timestamp", _POD, "when it was made"),
    Metric("kube_pod_status_phase", STATE, "gauge", "", (*_POD, "phase"), "1 for the phase that it is in"),
    Metric("kube_pod_status_scheduled_time", STATE, "gauge", "timestamp", _POD, "when it got a node"),
    Metric("kube_pod_container_resource_requests", STATE, "gauge", "1", _REQUEST, "resource: aws_amazon_com_neuron"),
    Metric("kube_pod_container_status_restarts_total", STATE, "counter", "1", _CONTAINER, "of a container"),
    Metric(
        "kube_pod_container_status_waiting_reason", STATE, "gauge", "", (*_CONTAINER, "reason"), "ImagePullBackOff, ..."
    ),
    Metric(
        "kube_pod_container_status_terminated_reason",
        STATE,
        "gauge",
        "",
        (*_CONTAINER, "reason"),
        "OOMKilled, Error, ...",
    ),
    Metric(
        "kube_daemonset_status_desired_number_scheduled",
        STATE,
        "gauge",
        "1",
        ("namespace", "daemonset"),
        "pods it should have",
    ),
    Metric(
        "kube_daemonset_status_number_unavailable",
        STATE,
        "gauge",
        "1",
        ("namespace", "daemonset"),
        "of them, not ready",
    ),
    Metric("kube_persistentvolumeclaim_info", STATE, "gauge", "", (*_CLAIM, "storageclass", "volumename"), "a claim"),
    Metric(
        "kube_persistentvolumeclaim_status_phase", STATE, "gauge", "", (*_CLAIM, "phase"), "phase: Bound, Pending, Lost"
    ),
    Metric("kube_persistentvolumeclaim_resource_requests_storage_bytes", STATE, "gauge", "bytes", _CLAIM, "asked for"),
    Metric("kubelet_volume_stats_available_bytes", KUBELET, "gauge", "bytes", _CLAIM, "free in a mounted claim"),
    Metric("kubelet_volume_stats_capacity_bytes", KUBELET, "gauge", "bytes", _CLAIM, "size of a mounted claim"),
    Metric("kubelet_certificate_manager_server_ttl_seconds", KUBELET, "gauge", "seconds", (), "until its own ends"),
    Metric(
        "apiserver_admission_webhook_rejection_count",
        API_SERVER,
        "counter",
        "1",
        ("name", "type", "operation", "error_type", "rejection_code"),
        "error_type: calling_webhook_error, apiserver_internal_error, no_error",
    ),
    Metric(
        "apiserver_admission_webhook_fail_open_count",
        API_SERVER,
        "counter",
        "1",
        ("name", "type"),
        "let through unjudged",
    ),
    # -- gangs, as trainium_eks/monitoring/gangs.py has kube-state-metrics show PodGroups
    Metric("trn_gang_phase", STATE, "gauge", "", (*_GANG, "phase"), "1 for the phase that it is in"),
    Metric("trn_gang_created_timestamp_seconds", STATE, "gauge", "timestamp", _GANG, "when it was made"),
    Metric("trn_gang_min_members", STATE, "gauge", "1", _GANG, "pods without which it does not run"),
    Metric("trn_gang_running_members", STATE, "gauge", "1", _GANG, "pods that run"),
    Metric("trn_gang_min_devices", STATE, "gauge", "1", (*_GANG, "resource"), "resource: aws_amazon_com_neuron"),
    Metric(
        "trn_gang_capacity_block_ends_timestamp_seconds", STATE, "gauge", "timestamp", _GANG, "of its nodes' capacity"
    ),
    # -- Volcano
    *(
        Metric(f"volcano_queue_{state}_scalar_resources", VOLCANO, "gauge", "milli", _QUEUE_RESOURCE, about)
        for state, about in {
            "allocated": "what a queue's pods have; resource: aws.amazon.com/neuron",
            "request": "what its pods ask for, waiting ones included",
            "deserved": "what it may have when all want something; only with the plugin capacity",
            "capacity": "its limit, where it has one",
        }.items()
    ),
    Metric("volcano_queue_share", VOLCANO, "gauge", "1", _QUEUE, "allocated over deserved, of the scarcest resource"),
    Metric("volcano_queue_overused", VOLCANO, "gauge", "", _QUEUE, "1: more allocated than deserved"),
    Metric(
        "volcano_e2e_job_scheduling_duration",
        VOLCANO,
        "gauge",
        "ms",
        ("job_name", "queue", "job_namespace"),
        "from its creation to its last pod's node; job_name is of the PodGroup",
    ),
    Metric(
        "volcano_unschedule_job_count", VOLCANO, "gauge", "1", (), "gangs that did not fit when they were last tried"
    ),
    Metric("volcano_unschedule_task_count", VOLCANO, "gauge", "1", ("job_id",), "pods of a gang that did not fit"),
    Metric(
        "volcano_schedule_attempts_total",
        VOLCANO,
        "counter",
        "1",
        ("result",),
        "result: scheduled, unschedulable, error",
    ),
    Metric(
        "volcano_pod_preemption_victims", VOLCANO, "gauge", "1", (), "pods chosen to make room, at the last attempt"
    ),
    Metric(
        "volcano_e2e_scheduling_latency_milliseconds_sum", VOLCANO, "counter", "ms", (), "time in scheduling cycles"
    ),
    Metric("volcano_e2e_scheduling_latency_milliseconds_count", VOLCANO, "counter", "1", (), "scheduling cycles"),
    *(
        Metric(
            f"volcano_queue_pod_group_{state}_count",
            VOLCANO_CONTROLLERS,
            "gauge",
            "1",
            _QUEUE,
            f"gangs that are {state}",
        )
        for state in ("pending", "inqueue", "running", "unknown", "completed")
    ),
    Metric(
        "volcano_job_failed_phase_count",
        VOLCANO_CONTROLLERS,
        "counter",
        "1",
        ("job_name", "queue_name"),
        "times it failed",
    ),
    Metric(
        "volcano_job_completed_phase_count",
        VOLCANO_CONTROLLERS,
        "counter",
        "1",
        ("job_name", "queue_name"),
        "times it completed",
    ),
    # -- FSx for Lustre
    Metric("aws_fsx_free_data_storage_capacity_sum", FSX, "gauge", "bytes", _CLOUDWATCH, "free on all storage targets"),
    Metric("aws_fsx_storage_capacity_utilization_average", FSX, "gauge", "%", _CLOUDWATCH, "of all storage targets"),
    Metric(
        "aws_fsx_storage_capacity_utilization_maximum",
        FSX,
        "gauge",
        "%",
        _CLOUDWATCH,
        "of the fullest target: writes to it fail first",
    ),
    Metric("aws_fsx_data_read_bytes_sum", FSX, "gauge", "bytes", _CLOUDWATCH, "in the last minute"),
    Metric("aws_fsx_data_write_bytes_sum", FSX, "gauge", "bytes", _CLOUDWATCH, "in the last minute"),
    Metric("aws_fsx_metadata_operations_sum", FSX, "gauge", "1", _CLOUDWATCH, "in the last minute"),
    Metric("aws_fsx_client_connections_sum", FSX, "gauge", "1", _CLOUDWATCH, "clients that have it mounted"),
    Metric(
        "aws_fsx_age_of_oldest_queued_message_maximum",
        FSX,
        "gauge",
        "seconds",
        (*_CLOUDWATCH, "dimension_Publisher"),
        "how far S3 lags; dimension_Publisher: AutoExport, AutoImport",
    ),
    # -- Trainings
    Metric("trn_training_info", TRAINING, "gauge", "", ("backend", "world_size", "examples"), "what runs, in labels"),
    Metric("trn_training_step", TRAINING, "gauge", "1", (), "the last finished update"),
    Metric("trn_training_loss", TRAINING, "gauge", "1", (), "of the last update"),
    Metric("trn_training_step_seconds", TRAINING, "gauge", "seconds", (), "a step took, checkpoints left out"),
    Metric("trn_training_tokens_per_second", TRAINING, "gauge", "1", (), "over all ranks"),
    Metric("trn_training_examples_total", TRAINING, "counter", "1", (), "examples seen, over all ranks"),
    Metric("trn_training_checkpoint_step", TRAINING, "gauge", "1", (), "step of the last complete checkpoint"),
    Metric("trn_training_checkpoint_timestamp_seconds", TRAINING, "gauge", "timestamp", (), "when it was complete"),
    Metric("trn_training_started_timestamp_seconds", TRAINING, "gauge", "timestamp", (), "when this process started"),
    Metric(
        "trn_training_productive_seconds_total", TRAINING, "counter", "seconds", (), "spent in steps that were kept"
    ),
    # -- Prometheus itself
    Metric(
        "up",
        PROMETHEUS,
        "gauge",
        "",
        ("node", "namespace", "pod", "job_name", "queue"),
        "1: the last scrape of a target succeeded",
    ),
    *(
        Metric(f"prometheus_remote_storage_{name}", PROMETHEUS, kind, unit, ("remote_name", "url"), about)
        for name, kind, unit, about in _REMOTE_WRITE
    ),
    Metric("prometheus_rule_evaluation_failures_total", PROMETHEUS, "counter", "1", ("rule_group",), "not computed"),
)

METRICS: Mapping[str, Metric] = MappingProxyType({metric.name: metric for metric in _ALL})
"""By name."""
