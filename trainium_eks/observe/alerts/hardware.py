"""Alerts of broken devices and nodes, and of repairs that do not come."""

from collections.abc import Sequence

from trainium_eks.model.alerts import AlertSettings
from trainium_eks.observe.alerts.alert import NODE, Alert


def alerts(settings: AlertSettings) -> Sequence[Alert]:
    """Return the alerts of Neuron, of NVIDIA, and of EKS' node conditions."""
    return [*_neuron(), *_nvidia(settings), *_nodes(settings)]


def _neuron() -> list[Alert]:
    return [
        # Not `increase`: neuron-monitor's exporter drops its counters whenever no process holds a core, so that a
        # counter may begin with the error, and a device that had one is to be replaced anyway.
        Alert(
            "NeuronUncorrectableError",
            "critical",
            'sum by (node, neuron_device_index, event_type) (hardware_ecc_events_total{event_type=~".*_uncorrected"})'
            " > 0",
            "Neuron device {{ $labels.neuron_device_index }} of {{ $labels.node }} has uncorrectable memory errors",
            "{{ $value }} events of {{ $labels.event_type }}. What it computed since may be wrong, and its gang will"
            " fail on it again.",
            NODE,
        ),
        Alert(
            "NeuronHardwareExecutionError",
            "critical",
            'sum by (node) (increase(execution_errors_total{error_type="hardware"}[15m])) > 0',
            "Executions fail on {{ $labels.node }} with hardware errors",
            "About {{ $value | humanize }} in 15 minutes, as the Neuron runtime counts them.",
            NODE,
        ),
    ]


def _nvidia(settings: AlertSettings) -> list[Alert]:
    # The value is the code of the last XID, and stays until the driver is loaded anew.
    xids = " or ".join(f"DCGM_FI_DEV_XID_ERRORS == {code}" for code in settings.hardware_xids)
    return [
        Alert(
            "GpuXidError",
            "critical",
            f"max by (node, gpu) ({xids})",
            "GPU {{ $labels.gpu }} of {{ $labels.node }} reported XID {{ $value }}",
            "NVIDIA's driver counts XID {{ $value }} among faults of the hardware, its memory or its links.",
            NODE,
        ),
        Alert(
            "GpuUncorrectableError",
            "critical",
            """
            max by (node, gpu) (
              DCGM_FI_DEV_ROW_REMAP_FAILURE > 0
              or increase(DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS[1h]) > 0
            )
            """,
            "GPU {{ $labels.gpu }} of {{ $labels.node }} has uncorrectable memory errors",
            "Rows were remapped for double-bit errors within the hour, or there are none left to remap to:"
            " {{ $value | humanize }}.",
            NODE,
        ),
    ]


def _nodes(settings: AlertSettings) -> list[Alert]:
    broken = """
        max by (node, condition) (
          kube_node_status_condition{condition="AcceleratedHardwareReady", status="false"} == 1
          or kube_node_status_condition{condition="NeuronHealth", status="true"} == 1
        )
        """
    unready = 'max by (node) (kube_node_status_condition{condition="Ready", status="true"} == 0)'
    cost = "{{ with printf \"trn:node:usd_per_hour{node='%s'}\" $labels.node | query }} It costs"
    cost += ' {{ . | first | value | printf "%.2f" }} USD an hour meanwhile.{{ end }}'
    return [
        Alert(
            "AcceleratorUnhealthy",
            "warning",
            broken,
            "{{ $labels.node }} reports broken accelerators",
            "Its condition {{ $labels.condition }} says so. EKS' node repair replaces or restarts it after 10 minutes,"
            " unless too many nodes are broken at a time.",
            NODE,
        ),
        Alert(
            "AcceleratorNotRepaired",
            "critical",
            broken,
            f"{{{{ $labels.node }}}} has had broken accelerators for {settings.hardware_repair_minutes} minutes",
            "EKS' node repair should have acted after 10." + cost,
            NODE,
            settings.hardware_repair_minutes,
        ),
        Alert(
            "NodeNotRepaired",
            "critical",
            unready,
            f"{{{{ $labels.node }}}} has not been ready for {settings.node_repair_minutes} minutes",
            "EKS' node repair should have replaced it after 30." + cost,
            NODE,
            settings.node_repair_minutes,
        ),
    ]
