"""Series of the cluster: its objects, Volcano, the file system, trainings, and Prometheus itself."""

from trainium_eks.observe.series.exporters import (
    API_SERVER,
    FSX,
    KUBELET,
    PROMETHEUS,
    STATE,
    TRAINING,
    VOLCANO,
    VOLCANO_CONTROLLERS,
    Metric,
)
from trainium_eks.observe.series.gangs import resource_label
from trainium_eks.observe.series.scraping import NODE_LABELS, POD_LABELS

_GANG = ("namespace", "podgroup", "job_name", "queue")
_REMOTE = ("remote_name", "url")
_QUEUE = ("queue_name",)
_QUEUE_RESOURCE = ("queue_name", "resource")
_POD = ("namespace", "pod", "uid")
_CONTAINER = (*_POD, "container")
_REQUEST = (*_CONTAINER, "node", "resource", "unit")
_CLAIM = ("namespace", "persistentvolumeclaim")
_CLOUDWATCH = ("name", "dimension_FileSystemId", "account_id", "region")
_POD_LABELS = tuple(f"label_{resource_label(label)}" for label in POD_LABELS)
_NODE_LABELS = tuple(f"label_{resource_label(label)}" for label in NODE_LABELS)

CLUSTER_METRICS = (
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
    Metric(
        "kubelet_certificate_manager_server_ttl_seconds",
        KUBELET,
        "gauge",
        "seconds",
        (),
        "how long its serving certificate still holds",
    ),
    # -- Gangs: Volcano's PodGroups by kube-state-metrics' custom resource state (gangs.py)
    Metric("trn_gang_phase", STATE, "gauge", "", (*_GANG, "phase"), "1 for the phase that it is in"),
    Metric("trn_gang_created_timestamp_seconds", STATE, "gauge", "timestamp", _GANG, "when it was made"),
    Metric("trn_gang_min_members", STATE, "gauge", "1", _GANG, "pods without which it does not run"),
    Metric("trn_gang_running_members", STATE, "gauge", "1", _GANG, "pods that run"),
    Metric("trn_gang_min_devices", STATE, "gauge", "1", (*_GANG, "resource"), "devices that its pods' requests name"),
    Metric(
        "trn_gang_capacity_block_ends_timestamp_seconds",
        STATE,
        "gauge",
        "timestamp",
        _GANG,
        "when the Capacity Block of its nodes ends",
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
    Metric("prometheus_remote_storage_samples_failed_total", PROMETHEUS, "counter", "1", _REMOTE, "refused for good"),
    *(
        Metric(
            f"prometheus_remote_storage_queue_highest_{state}_seconds", PROMETHEUS, "gauge", "timestamp", _REMOTE, about
        )
        for state, about in {"timestamp": "newest that waits", "sent_timestamp": "newest sent"}.items()
    ),
    Metric(
        "prometheus_rule_evaluation_failures_total", PROMETHEUS, "counter", "1", ("rule_group",), "rules that failed"
    ),
)
"""Metrics of everything that belongs to no node."""
