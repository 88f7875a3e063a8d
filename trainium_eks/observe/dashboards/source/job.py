"""Dashboard of one training: its speed, its loss, its checkpoints, its devices."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from trainium_eks.observe.dashboards.source.parts import IDLE, choice, lines, number, page, rows, section, to_node

_JOB = '{namespace=~"$namespace", job_name=~"$job_name"}'
_NODES = f"and on (node) trn:training:pods{_JOB}"
"""Condition for the nodes that the training's pods are on."""
_RATE = "[$__rate_interval]"
_NEARLY_FULL = ((0.95, "yellow"), (0.99, "red"))
"""Steps of memory, which trainings fill on purpose."""
_LATENCY = 'execution_latency_seconds{percentile=~"p50|p99"}'
_MEMORY = {
    "tensors": "tensors",
    "constants": "constants",
    "model_code": "program",
    "model_shared_scratchpad": "scratchpad",
    "runtime_memory": "runtime",
}
_EFA = {"sent": "tx_bytes", "received": "rx_bytes", "RDMA read": "rdma_read_bytes", "RDMA written": "rdma_write_bytes"}


def dashboard() -> Dashboard:
    """Return the dashboard Job."""
    made = page(
        "trn-job",
        "Job",
        "One training: its speed, loss and checkpoints as rank 0 tells them, and its nodes' devices, memory and EFA.",
        [
            choice("namespace", "Namespace", "label_values(trn_training_info, namespace)"),
            choice("job_name", "Job", 'label_values(trn_training_info{namespace=~"$namespace"}, job_name)'),
        ],
    )
    return _hosts(_devices(_progress(_now(made))))


def _now(made: Dashboard) -> Dashboard:
    checkpoint = f"min(trn_training_checkpoint_timestamp_seconds{_JOB} or trn_training_started_timestamp_seconds{_JOB})"
    return (
        made.with_row(section("Now"))
        .with_panel(
            number(
                "Step",
                f"max(trn_training_step{_JOB})",
                "locale",
                "The last finished update. `trn status` says of how many.",
            )
        )
        .with_panel(
            number(
                "Steps a minute",
                f"60 / max(trn_training_step_seconds{_JOB} > 0)",
                "short",
                "Without checkpoints. Slower than yesterday: compare cores busy and EFA below with an earlier run.",
                decimals=1,
            )
        )
        .with_panel(
            number(
                "Examples a second",
                f"sum(rate(trn_training_examples_total{_JOB}{_RATE}))",
                "short",
                "Over all ranks. It should not change from hour to hour.",
            )
        )
        .with_panel(
            number(
                "Loss",
                f"max(trn_training_loss{_JOB})",
                "short",
                "Of the last update. NaN: lower the learning rate.",
                decimals=4,
            )
        )
        .with_panel(
            number(
                "Checkpoint's age",
                f"time() - {checkpoint}",
                "s",
                "What is lost if a node fails now; counted from the start where there is no checkpoint yet. Too much: "
                "lower `--checkpoint-seconds`, and look whether the file system is full.",
                ((1800, "yellow"), (7200, "red")),
            )
        )
        .with_panel(
            number(
                "Goodput",
                f"min(trn:goodput:ratio{_JOB})",
                "percentunit",
                "Share of the time since it began in steps that were kept. The rest is starting, compiling, "
                "checkpoints, and steps that a restart made again.",
                IDLE,
            )
        )
    )


def _progress(made: Dashboard) -> Dashboard:
    behind = f"trn_training_step{_JOB} - trn_training_checkpoint_step{_JOB}"
    columns = {
        "namespace": "Namespace",
        "job_name": "Job",
        "backend": "Backend",
        "world_size": "Ranks",
        "node": "Node of rank 0",
    }
    return (
        made.with_row(section("Progress"))
        .with_panel(
            lines(
                "Loss",
                {"{{job_name}}": f"trn_training_loss{_JOB}"},
                "short",
                "Flat from the start: is the data shuffled, does the learning rate warm up? Rising: go back to an "
                "earlier checkpoint.",
            )
        )
        .with_panel(
            lines(
                "Time of a step",
                {"{{job_name}}": f"trn_training_step_seconds{_JOB}"},
                "s",
                "Peaks: the input pipeline waits for the file system (Storage), or a graph was compiled anew.",
            )
        )
        .with_panel(
            lines(
                "Throughput",
                {
                    "{{job_name}} examples a second": f"rate(trn_training_examples_total{_JOB}{_RATE})",
                    "{{job_name}} tokens a second": f"trn_training_tokens_per_second{_JOB}",
                },
                "short",
                "Over all ranks; tokens where the examples are text.",
            )
        )
        .with_panel(
            lines(
                "Steps since the last checkpoint",
                {"{{job_name}}": behind},
                "short",
                "A saw-tooth. When it goes on rising, checkpoints fail: read `trn logs`, and look at Storage.",
            )
        )
        .with_panel(
            lines(
                "Goodput",
                {"{{job_name}}": f"trn:goodput:ratio{_JOB}"},
                "percentunit",
                "Falls at each restart and rises again. It goes on falling: the training stands still.",
                top=1,
            )
        )
        .with_panel(
            rows("Trainings", f"trn_training_info{_JOB}", columns, "short", "What runs, and where its rank 0 is.")
        )
    )


def _devices(made: Dashboard) -> Dashboard:
    memory = {
        f"{{{{node}}}} {shown}": f"sum by (node) (neuroncore_memory_usage_{part} {_NODES})"
        for part, shown in _MEMORY.items()
    }
    gpu_memory = "DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE)"
    return (
        made.with_row(section("Devices of its nodes"))
        .with_panel(
            to_node(
                lines(
                    "Neuron cores",
                    {"{{node}} core {{neuroncore}}": f"neuroncore_utilization_ratio {_NODES}"},
                    "percentunit",
                    "neuron-monitor knows nodes, not pods: another training on the same node is counted in. One core "
                    "far above the others: ranks get unequal work.",
                    top=1,
                )
            )
        )
        .with_panel(
            to_node(
                lines(
                    "GPUs",
                    {
                        "{{node}} GPU {{gpu}}": f"DCGM_FI_DEV_GPU_UTIL / 100 {_NODES}",
                        "{{node}} GPU {{gpu}} tensor cores": f"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE {_NODES}",
                    },
                    "percentunit",
                    "Share of time with any kernel, and with the tensor cores at work. The first high and the second "
                    "low: small kernels; fuse or compile.",
                    top=1,
                )
            )
        )
        .with_panel(
            lines(
                "Neuron device memory",
                memory,
                "bytes",
                "By what holds it. Tensors grow with the batch, the scratchpad with the sequence.",
                stacked=True,
            )
        )
        .with_panel(
            lines(
                "GPU memory",
                {"{{node}} GPU {{gpu}}": f"{gpu_memory} {_NODES}"},
                "percentunit",
                "Share in use. At 1 the next allocation fails: a smaller batch, or activation checkpointing.",
                _NEARLY_FULL,
                top=1,
            )
        )
        .with_panel(
            lines(
                "Executions",
                {
                    "{{node}} {{status_type}}": (
                        f"sum by (node, status_type) (rate(execution_status_total{_RATE}) {_NODES})"
                    ),
                },
                "short",
                "Of Neuron programs. Anything but completed: `trn logs` has the runtime's words.",
            )
        )
        .with_panel(
            lines(
                "Time of an execution",
                {"{{node}} {{percentile}}": f"max by (node, percentile) ({_LATENCY} {_NODES})"},
                "s",
                "Median and slowest of a hundred. They drift apart: a rank waits for others in a collective.",
            )
        )
    )


def _hosts(made: Dashboard) -> Dashboard:
    efa = {
        f"{{{{node}}}} {shown}": f"sum by (node) (rate(node_amazonefa_{counter}{_RATE}) {_NODES})"
        for shown, counter in _EFA.items()
    }
    available = "node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes"
    return (
        made.with_row(section("Network and hosts"))
        .with_panel(
            lines(
                "EFA",
                efa,
                "Bps",
                "What the nodes exchange past the kernel. 0 while the training runs on several nodes: it fell back to "
                "TCP; look for `FI_PROVIDER` in `trn logs`, and at the pods' `vpc.amazonaws.com/efa`.",
                width=24,
            )
        )
        .with_panel(
            lines(
                "Host processors busy",
                {"{{node}}": f'1 - avg by (node) (rate(node_cpu_seconds_total{{mode="idle"}}{_RATE}) {_NODES})'},
                "percentunit",
                "Near 1: input pipelines starve the devices; give the loader fewer workers or cheaper work.",
                top=1,
            )
        )
        .with_panel(
            lines(
                "Host memory in use",
                {"{{node}}": f"1 - ({available}) {_NODES}"},
                "percentunit",
                "At 1 the kernel kills a rank, and with it the gang. Each worker of a loader holds a copy of the data.",
                _NEARLY_FULL,
                top=1,
            )
        )
    )
