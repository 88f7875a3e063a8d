"""Whether nodes and devices are sound, and whether broken ones are repaired."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from trainium_eks.observe.dashboards.source.parts import (
    ANY,
    FULL,
    Steps,
    choice,
    lines,
    number,
    page,
    rows,
    section,
    states,
    to_node,
)

_NODE = 'node=~"$node"'
_RATE = "[$__rate_interval]"
_GROUP = '(node) trn:node_info{node_group=~"$node_group"}'
_ERRORS = f"execution_errors_total{{{_NODE}}}{_RATE}"
_ECC = f'hardware_ecc_events_total{{{_NODE}, event_type=~".*_uncorrected"}}'
_READY = f'kube_node_status_condition{{{_NODE}, condition="Ready", status="true"}}'
_BAD: Steps = ((0, "red"), (1, "green"))
_HOT: Steps = ((80, "yellow"), (90, "red"))


def dashboard() -> Dashboard:
    """Return the dashboard Nodes and health."""
    made = page(
        "trn-nodes",
        "Nodes and health",
        "Broken devices and nodes, repairs, and what hosts, daemons and webhooks do.",
        [
            choice("node_group", "Node group", "label_values(trn:node_info, node_group)"),
            choice("node", "Node", 'label_values(trn:node_info{node_group=~"$node_group"}, node)'),
        ],
    )
    return _platform(_hosts(_devices(_nodes(_now(made)))))


def _now(made: Dashboard) -> Dashboard:
    return (
        made.with_row(section("Now"))
        .with_panel(
            number(
                "Nodes not ready",
                f"sum(({_READY} == bool 0) and on {_GROUP})",
                "short",
                "EKS replaces one after 30 minutes. It does not: `trn doctor NodeNotRepaired`.",
                ANY,
            )
        )
        .with_panel(
            number(
                "Cordoned",
                f"sum(kube_node_spec_unschedulable{{{_NODE}}} and on {_GROUP})",
                "short",
                "Somebody or something took them out of service; they cost as before.",
                ANY,
            )
        )
        .with_panel(
            number(
                "Uncorrectable errors",
                f"sum({_ECC} and on {_GROUP})",
                "short",
                "Of Neuron devices' memory, since the exporter started. What they computed since may be wrong: replace "
                "the node (`trn doctor NeuronUncorrectableError`).",
                ANY,
            )
        )
        .with_panel(
            number(
                "GPUs with an XID",
                f"sum((DCGM_FI_DEV_XID_ERRORS{{{_NODE}}} > bool 0) and on {_GROUP})",
                "short",
                "GPUs whose driver reported an error since it was loaded. `trn doctor GpuXidError`.",
                ANY,
            )
        )
        .with_panel(
            number(
                "Executions that failed",
                f'sum(increase(execution_errors_total{{{_NODE}, error_type=~"hardware|runtime"}}[1h]) and on {_GROUP})',
                "short",
                "In an hour, for faults of hardware or runtime. Other errors are the program's.",
                ANY,
                decimals=0,
            )
        )
        .with_panel(
            number(
                "Restarts",
                "sum(increase(kube_pod_container_status_restarts_total[1h]))",
                "short",
                "Of containers, in an hour, everywhere.",
                ((5, "yellow"), (20, "red")),
                decimals=0,
            )
        )
    )


def _nodes(made: Dashboard) -> Dashboard:
    condition = f'kube_node_status_condition{{{_NODE}, status="true", condition!~".*Pressure|Ready"}}'
    columns = {"node": "Node", "key": "Taint", "value": "Value", "effect": "Effect"}
    return (
        made.with_row(section("Nodes"))
        .with_panel(
            to_node(
                states(
                    "Ready",
                    f"{_READY} and on {_GROUP}",
                    "{{node}}",
                    "Green: ready. Red for longer than 30 minutes: the repair failed.",
                    _BAD,
                )
            )
        )
        .with_panel(
            to_node(
                states(
                    "Hardware and repair",
                    f"{condition} and on {_GROUP}",
                    "{{node}} {{condition}}",
                    "What EKS' node monitoring agent says of accelerators, kernel, network and storage. Red: it found "
                    "a fault, and EKS restarts or replaces the node after 10 minutes.",
                    _BAD,
                )
            )
        )
        .with_panel(
            to_node(
                lines(
                    "Age",
                    {"{{node}}": f"(time() - kube_node_created{{{_NODE}}}) and on {_GROUP}"},
                    "s",
                    "A node that begins anew was replaced.",
                )
            )
        )
        .with_panel(
            rows("Taints", f"kube_node_spec_taint{{{_NODE}}}", columns, "short", "What keeps pods off the nodes.")
        )
    )


def _devices(made: Dashboard) -> Dashboard:
    rows_remapped = f"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{{{_NODE}}}"
    return (
        made.with_row(section("Devices"))
        .with_panel(
            to_node(
                lines(
                    "Memory errors of Neuron devices",
                    {
                        "{{node}} device {{neuron_device_index}} {{event_type}}": (
                            f"hardware_ecc_events_total{{{_NODE}}} and on {_GROUP}"
                        )
                    },
                    "short",
                    "Corrected ones are harmless, but many of one device announce the others.",
                )
            )
        )
        .with_panel(
            to_node(
                lines(
                    "Execution errors",
                    {"{{node}} {{error_type}}": (f"sum by (node, error_type) (rate({_ERRORS})) and on {_GROUP}")},
                    "ops",
                    "Numerical: the model diverges. Transient: it was tried again. Hardware: replace the node.",
                )
            )
        )
        .with_panel(
            to_node(
                lines(
                    "Last XID of each GPU",
                    {"{{node}} GPU {{gpu}}": f"DCGM_FI_DEV_XID_ERRORS{{{_NODE}}} and on {_GROUP}"},
                    "short",
                    "48, 63, 64, 94, 95: memory. 79: the GPU fell off the bus. 74: NVLink. 13, 31, 43, 45: mostly the "
                    "program's own fault.",
                )
            )
        )
        .with_panel(
            to_node(
                lines(
                    "Memory rows remapped on GPUs",
                    {
                        "{{node}} GPU {{gpu}} uncorrectable": f"{rows_remapped} and on {_GROUP}",
                        "{{node}} GPU {{gpu}} failed": f"DCGM_FI_DEV_ROW_REMAP_FAILURE{{{_NODE}}} and on {_GROUP}",
                    },
                    "short",
                    "Spare rows take the place of broken ones after a reset. Failed: none are left, replace the node.",
                )
            )
        )
        .with_panel(
            to_node(
                lines(
                    "Temperature of GPUs",
                    {"{{node}} GPU {{gpu}}": f"DCGM_FI_DEV_GPU_TEMP{{{_NODE}}} and on {_GROUP}"},
                    "celsius",
                    "Above 90 they slow down. It is AWS' to cool them: replace the node.",
                    _HOT,
                )
            )
        )
        .with_panel(
            to_node(
                lines(
                    "Errors of EFA",
                    {
                        f"{{{{node}}}} {word}": (
                            f"sum by (node) (rate(node_amazonefa_{name}{{{_NODE}}}{_RATE})) and on {_GROUP}"
                        )
                        for word, name in {
                            "drops": "rx_drops",
                            "reads failed": "rdma_read_wr_err",
                            "writes failed": "rdma_write_wr_err",
                            "timeouts": "retrans_timeout_events",
                            "silent peers": "unresponsive_remote_events",
                        }.items()
                    },
                    "ops",
                    "Silent peers on one node: the others lost it. On all nodes: is the security group open to itself?",
                )
            )
        )
    )


def _hosts(made: Dashboard) -> Dashboard:
    disk = f'{{{_NODE}, mountpoint="/"}}'
    memory = f"node_memory_MemAvailable_bytes{{{_NODE}}} / node_memory_MemTotal_bytes{{{_NODE}}}"
    return (
        made.with_row(section("Hosts"))
        .with_panel(
            to_node(
                lines(
                    "Processors busy",
                    {"{{node}}": f'1 - avg by (node) (rate(node_cpu_seconds_total{{{_NODE}, mode="idle"}}{_RATE}))'},
                    "percentunit",
                    "Of the host.",
                    top=1,
                    width=8,
                )
            )
        )
        .with_panel(
            to_node(
                lines(
                    "Memory in use", {"{{node}}": f"1 - {memory}"}, "percentunit", "Of the host.", FULL, top=1, width=8
                )
            )
        )
        .with_panel(
            to_node(
                lines(
                    "Root volume in use",
                    {"{{node}}": f"1 - node_filesystem_avail_bytes{disk} / node_filesystem_size_bytes{disk}"},
                    "percentunit",
                    "Images and container logs. At 0.85 the kubelet evicts pods: raise the group's `rootVolumeGib`.",
                    FULL,
                    top=1,
                    width=8,
                )
            )
        )
        .with_panel(
            to_node(
                lines(
                    "Processes killed for memory",
                    {"{{node}}": f"increase(node_vmstat_oom_kill{{{_NODE}}}{_RATE})"},
                    "short",
                    "A rank among them ends its gang.",
                )
            )
        )
        .with_panel(
            to_node(
                lines(
                    "Network",
                    {
                        "{{node}} in": f"sum by (node) (rate(node_network_receive_bytes_total{{{_NODE}}}{_RATE}))",
                        "{{node}} out": f"sum by (node) (rate(node_network_transmit_bytes_total{{{_NODE}}}{_RATE}))",
                    },
                    "Bps",
                    "Through the kernel: images, S3, FSx without EFA. What gangs exchange by EFA is not in it.",
                )
            )
        )
    )


def _platform(made: Dashboard) -> Dashboard:
    return (
        made.with_row(section("Daemons and webhooks"))
        .with_panel(
            lines(
                "Daemons' pods that are not ready",
                {"{{namespace}}/{{daemonset}}": "kube_daemonset_status_number_unavailable"},
                "short",
                "A device plugin among them: its node has no devices for pods.",
            )
        )
        .with_panel(
            lines(
                "Webhooks' refusals and failures",
                {
                    "{{name}} {{error_type}}": (
                        f"sum by (name, error_type) (rate(apiserver_admission_webhook_rejection_count{_RATE}))"
                    )
                },
                "ops",
                "no_error: it refused, as it should. calling_webhook_error: it does not answer, and jobs cannot be "
                "submitted; `trn doctor` helps.",
            )
        )
    )
