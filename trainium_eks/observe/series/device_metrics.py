"""Series of nodes: their accelerators, EFA and hosts."""

from trainium_eks.observe.series.exporters import DCGM, EFA, NEURON, NODE, Metric

_EC2 = ("instance_id", "instance_name", "instance_type", "availability_zone", "region", "subnet_id")
_RUNTIME = (*_EC2, "runtime_tag")
_GPU = ("gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "namespace", "pod", "container")
_PORT = ("device", "port")
_FILES = ("device", "fstype", "mountpoint")

DEVICE_METRICS = (
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
)
"""Metrics of neuron-monitor, dcgm-exporter, node-exporter and the EFA exporter."""
