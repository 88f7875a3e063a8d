"""Whether file systems fill up, keep up, and reach S3."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from trainium_eks.observe.dashboards.source.parts import ANY, FULL, Steps, choice, lines, number, page, rows, section

_FSX = '{file_system=~"$file_system"}'
_CLAIM = '{namespace=~"$namespace"}'
_FREE = f"aws_fsx_free_data_storage_capacity_sum{_FSX}"
_YEAR = "31536000"
_TO_FULL = f"clamp_max({_FREE} / clamp_min(-deriv({_FREE}[6h]), 1), {_YEAR})"
"""Seconds, by the last six hours; a year at most, and where it does not fill at all."""
_CLAIM_FREE = f"kubelet_volume_stats_available_bytes{_CLAIM}"
_CLAIM_USED = f"1 - {_CLAIM_FREE} / kubelet_volume_stats_capacity_bytes{_CLAIM}"
_SOON: Steps = ((0, "red"), (86_400, "yellow"), (604_800, "green"))
_LAG: Steps = ((600, "yellow"), (3600, "red"))


def dashboard() -> Dashboard:
    """Return the dashboard Storage."""
    made = page(
        "trn-storage",
        "Storage",
        "FSx for Lustre as CloudWatch has it, each value of the last whole minute, and claims as kubelets see them.",
        [
            choice("file_system", "File system", "label_values(aws_fsx_free_data_storage_capacity_sum, file_system)"),
            choice("namespace", "Namespace", "label_values(kube_persistentvolumeclaim_info, namespace)"),
        ],
    )
    return _claims(_file_system(_now(made)))


def _now(made: Dashboard) -> Dashboard:
    lag = 'aws_fsx_age_of_oldest_queued_message_maximum{file_system=~"$file_system", dimension_Publisher="AutoExport"}'
    return (
        made.with_row(section("Now"))
        .with_panel(
            number(
                "Free",
                f"sum({_FREE})",
                "bytes",
                "On all storage targets. Raise `fileSystem.storageCapacityGib`.",
            )
        )
        .with_panel(
            number(
                "Full in",
                f"min({_TO_FULL})",
                "s",
                "If it goes on as in the last six hours. Remove old checkpoints, or raise "
                "`fileSystem.storageCapacityGib`, which takes hours.",
                _SOON,
            )
        )
        .with_panel(
            number(
                "Export to S3 lags",
                f"max({lag})",
                "s",
                "Age of the oldest change that S3 does not have. Do not delete the file system before it is 0.",
                _LAG,
            )
        )
        .with_panel(
            number("Clients", f"sum(aws_fsx_client_connections_sum{_FSX})", "short", "Nodes that have it mounted.")
        )
        .with_panel(
            number(
                "Fullest claim",
                f"max({_CLAIM_USED})",
                "percentunit",
                "Of those that kubelets measure: EBS, and file systems whose driver tells.",
                FULL,
            )
        )
        .with_panel(
            number(
                "Claims not bound",
                'sum(kube_persistentvolumeclaim_status_phase{phase!="Bound", namespace=~"$namespace"})',
                "short",
                "A pod that uses one does not start. `kubectl describe pvc` says why.",
                ANY,
            )
        )
    )


def _file_system(made: Dashboard) -> Dashboard:
    return (
        made.with_row(section("FSx for Lustre"))
        .with_panel(
            lines(
                "Free",
                {"{{file_system}}": _FREE},
                "bytes",
                "Falls with each checkpoint and rises when old ones are removed (`--keep`). Only falling: nothing is "
                "removed.",
            )
        )
        .with_panel(
            lines(
                "Throughput",
                {
                    "{{file_system}} read": f"aws_fsx_data_read_bytes_sum{_FSX} / 60",
                    "{{file_system}} written": f"aws_fsx_data_write_bytes_sum{_FSX} / 60",
                },
                "Bps",
                "By clients. Flat at what the file system is sized for (capacity in TiB times "
                "`fileSystem.throughputPerTib`): it holds the trainings up.",
            )
        )
        .with_panel(
            lines(
                "Metadata operations",
                {"{{file_system}}": f"aws_fsx_metadata_operations_sum{_FSX} / 60"},
                "ops",
                "Thousands a second come from many small files: pack the data set into shards.",
            )
        )
        .with_panel(
            lines(
                "Lag of S3",
                {"{{file_system}} {{dimension_Publisher}}": f"aws_fsx_age_of_oldest_queued_message_maximum{_FSX}"},
                "s",
                "Rising for hours: exports fail. Is the bucket's policy or its key as it was? FSx writes the reason to "
                "its log group.",
                _LAG,
            )
        )
        .with_panel(
            lines(
                "Time to full",
                {"{{file_system}}": _TO_FULL},
                "s",
                "By the six hours before; a year where it does not fill.",
            )
        )
        .with_panel(
            lines(
                "Clients",
                {"{{file_system}}": f"aws_fsx_client_connections_sum{_FSX}"},
                "short",
                "Nodes that have it mounted.",
            )
        )
    )


def _claims(made: Dashboard) -> Dashboard:
    claim = "{{namespace}}/{{persistentvolumeclaim}}"
    columns = {
        "namespace": "Namespace",
        "persistentvolumeclaim": "Claim",
        "storageclass": "Class",
        "volumename": "Volume",
        "Value": "Asked for",
    }
    asked = (
        "max by (namespace, persistentvolumeclaim)"
        f" (kube_persistentvolumeclaim_resource_requests_storage_bytes{_CLAIM})"
        " * on (namespace, persistentvolumeclaim) group_left (storageclass, volumename)"
        f" kube_persistentvolumeclaim_info{_CLAIM}"
    )
    return (
        made.with_row(section("Claims"))
        .with_panel(
            lines(
                "Used",
                {claim: _CLAIM_USED},
                "percentunit",
                "Prometheus' and Grafana's own volumes are among them.",
                FULL,
                top=1,
            )
        )
        .with_panel(rows("Claims", asked, columns, "bytes", "What was asked for, and the volume that it got."))
    )
