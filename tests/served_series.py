"""The series that exporters serve, as far as queries use them."""

from collections.abc import Mapping

from trainium_workloads import scraped

from trainium_eks.observe import rules
from trainium_eks.observe.series.gangs import resource_label
from trainium_eks.observe.series.scraping import NODE_LABELS, POD_LABELS

_TABLE = """
# neuron-monitor-prometheus.py of aws-neuronx-tools, and its guide in the AWS Neuron documentation
neuron-monitor: node instance_id instance_name instance_type availability_zone region subnet_id
  neuroncore_utilization_ratio runtime_tag neuroncore
  neuroncore_memory_usage_constants runtime_tag neuroncore memory_location
  neuroncore_memory_usage_model_code runtime_tag neuroncore memory_location
  neuroncore_memory_usage_model_shared_scratchpad runtime_tag neuroncore memory_location
  neuroncore_memory_usage_runtime_memory runtime_tag neuroncore memory_location
  neuroncore_memory_usage_tensors runtime_tag neuroncore memory_location
  execution_errors_total runtime_tag error_type
  execution_status_total runtime_tag status_type
  execution_latency_seconds runtime_tag percentile
  hardware_ecc_events_total event_type neuron_device_index
  neuron_hardware_info neuron_device_count neuroncore_per_device_count
# NVIDIA/dcgm-exporter: etc/default-counters.csv, internal/pkg/rendermetrics
dcgm-exporter: node gpu UUID pci_bus_id device modelName Hostname namespace pod container
  DCGM_FI_DEV_GPU_UTIL
  DCGM_FI_PROF_PIPE_TENSOR_ACTIVE
  DCGM_FI_DEV_FB_USED
  DCGM_FI_DEV_FB_FREE
  DCGM_FI_DEV_GPU_TEMP
  DCGM_FI_DEV_XID_ERRORS err_code err_msg
  DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS
  DCGM_FI_DEV_ROW_REMAP_FAILURE
# prometheus/node_exporter: README and collector/
node-exporter: node
  node_cpu_seconds_total cpu mode
  node_memory_MemAvailable_bytes
  node_memory_MemTotal_bytes
  node_filesystem_avail_bytes device fstype mountpoint
  node_filesystem_size_bytes device fstype mountpoint
  node_network_receive_bytes_total device
  node_network_transmit_bytes_total device
  node_vmstat_oom_kill
# /sys/class/infiniband/*/ports/*/hw_counters (EFA's driver), by the names of awslabs' EFA node exporter
# (awsome-distributed-ai, 4.validation_and_observability/3.efa-node-exporter)
efa-exporter: node device port
  node_amazonefa_tx_bytes
  node_amazonefa_rx_bytes
  node_amazonefa_rdma_read_bytes
  node_amazonefa_rdma_write_bytes
  node_amazonefa_rx_drops
  node_amazonefa_rdma_read_wr_err
  node_amazonefa_rdma_write_wr_err
  node_amazonefa_retrans_timeout_events
  node_amazonefa_unresponsive_remote_events
# kubernetes/kube-state-metrics: docs/metrics; gangs by its custom resource state (observe/series/gangs.py)
kube-state-metrics:
  kube_node_labels node NODE_LABELS
  kube_node_created node
  kube_node_spec_unschedulable node
  kube_node_spec_taint node key value effect
  kube_node_status_capacity node resource unit
  kube_node_status_condition node condition status
  kube_pod_info namespace pod uid node host_ip pod_ip created_by_name
  kube_pod_labels namespace pod uid POD_LABELS
  kube_pod_status_phase namespace pod uid phase
  kube_pod_container_resource_requests namespace pod uid container node resource unit
  kube_pod_container_status_restarts_total namespace pod uid container
  kube_daemonset_status_number_unavailable namespace daemonset
  kube_persistentvolumeclaim_info namespace persistentvolumeclaim storageclass volumename
  kube_persistentvolumeclaim_status_phase namespace persistentvolumeclaim phase
  kube_persistentvolumeclaim_resource_requests_storage_bytes namespace persistentvolumeclaim
  trn_gang_phase namespace podgroup job_name queue phase
  trn_gang_created_timestamp_seconds namespace podgroup job_name queue
  trn_gang_min_devices namespace podgroup job_name queue resource
  trn_gang_capacity_block_ends_timestamp_seconds namespace podgroup job_name queue
# kubernetes/kubernetes: pkg/kubelet/metrics/collectors/volume_stats.go
kubelet: node
  kubelet_volume_stats_available_bytes namespace persistentvolumeclaim
  kubelet_volume_stats_capacity_bytes namespace persistentvolumeclaim
  kubelet_certificate_manager_server_ttl_seconds
# kubernetes/kubernetes: staging/src/k8s.io/apiserver/pkg/admission/metrics
apiserver: name type
  apiserver_admission_webhook_rejection_count operation error_type rejection_code
  apiserver_admission_webhook_fail_open_count
# volcano-sh/volcano v1.15.0: pkg/scheduler/metrics. A resource is spelt aws.amazon.com/neuron, and in thousandths.
volcano-scheduler:
  volcano_queue_allocated_scalar_resources queue_name resource
  volcano_queue_request_scalar_resources queue_name resource
  volcano_queue_deserved_scalar_resources queue_name resource
  volcano_queue_share queue_name
  volcano_queue_overused queue_name
  volcano_e2e_job_scheduling_duration job_name queue job_namespace
  volcano_unschedule_job_count
  volcano_unschedule_task_count job_id
  volcano_e2e_scheduling_latency_milliseconds_sum
  volcano_e2e_scheduling_latency_milliseconds_count
# volcano-sh/volcano v1.15.0: pkg/controllers/metrics, job/state
volcano-controller: queue_name
  volcano_queue_pod_group_pending_count
  volcano_queue_pod_group_inqueue_count
  volcano_queue_pod_group_running_count
  volcano_queue_pod_group_unknown_count
# FSx for Lustre User Guide, metrics and dimensions (AWS/FSx), by the names that
# prometheus-community/yet-another-cloudwatch-exporter makes of them (pkg/promutil)
fsx-exporter: file_system name dimension_FileSystemId account_id region
  aws_fsx_free_data_storage_capacity_sum
  aws_fsx_data_read_bytes_sum
  aws_fsx_data_write_bytes_sum
  aws_fsx_metadata_operations_sum
  aws_fsx_client_connections_sum
  aws_fsx_age_of_oldest_queued_message_maximum dimension_Publisher
# prometheus/prometheus: documentation of jobs and instances
prometheus:
  up node namespace pod job_name queue
  prometheus_remote_storage_samples_failed_total remote_name url
  prometheus_remote_storage_queue_highest_timestamp_seconds remote_name url
  prometheus_remote_storage_queue_highest_sent_timestamp_seconds remote_name url
  prometheus_rule_evaluation_failures_total rule_group
# trainium_workloads/scraped.py: global rank 0 serves them on port 9600
training: namespace pod job_name queue node backend world_size examples
"""


def _read():
    """Yield each series with its exporter and its labels."""
    exporter, common = "", set[str]()
    for line in _TABLE.strip().splitlines():
        words = line.split()
        if line.startswith(" "):
            yield words[0], exporter, frozenset({*common, *words[1:]})
        elif not line.startswith("#"):
            exporter, common = words[0].removesuffix(":"), {"job", "instance", *words[1:]}
    yield from ((series.name, exporter, frozenset(common)) for series in scraped.SERIES)


_ALLOWED = {"NODE_LABELS": NODE_LABELS, "POD_LABELS": POD_LABELS}
EXPORTERS = {name: exporter for name, exporter, _ in _read()}
"""Series to its exporter, the label ``job`` of its target."""
LABELS: Mapping[str, frozenset[str]] = {
    name: labels | {f"label_{resource_label(each)}" for key in labels & _ALLOWED.keys() for each in _ALLOWED[key]}
    for name, _, labels in _read()
}
"""Series to its labels in Prometheus: its exporter's own, and those that scraping adds."""


def unknown(server, query):
    """What a query asks for and nobody serves or records; the labels of recorded series are not looked at."""
    found = []
    for name, labels in server.selectors(query):
        if name in LABELS:
            found += [f"{name} has no label {label}" for label in labels if label not in LABELS[name]]
        elif name not in rules.meanings():
            found.append(f"{name}: no series of tests/served_series.py, and not recorded")
    return found
