"""Alerts of volumes that fill, and of files that S3 does not get."""

from collections.abc import Sequence

from trainium_eks.model.alerts import AlertSettings
from trainium_eks.observe.alerts.alert import Alert

_PACE = "6h"
"""Window for the pace of filling."""

_FILE_SYSTEM = "aws fsx describe-file-systems --file-system-ids {{ $labels.file_system_id }}"
_ASSOCIATION = (
    "aws fsx describe-data-repository-associations --filters Name=file-system-id,Values={{ $labels.file_system_id }}"
)
_CLAIM = "kubectl describe pvc {{ $labels.persistentvolumeclaim }} --namespace {{ $labels.namespace }}"
_VOLUME = "The volume of {{ $labels.persistentvolumeclaim }} in {{ $labels.namespace }}"


def alerts(settings: AlertSettings) -> Sequence[Alert]:
    """Return the alerts of the shared file system by CloudWatch, and of claims by the kubelet."""
    soon = f"< {3600 * settings.filling_hours}"
    claim = "max by (namespace, persistentvolumeclaim) ({})".format
    available = "kubelet_volume_stats_available_bytes"
    free = f"{claim(available)} / ({claim('kubelet_volume_stats_capacity_bytes')} > 0)"
    return [
        Alert(
            "FileSystemFilling",
            "critical",
            f"{_seconds_to_full('trn:file_system:free_bytes')} {soon}",
            "The file system {{ $labels.file_system_id }} will be full in {{ $value | humanizeDuration }}",
            "So says its pace of the last six hours. When it is full, every training that saves fails.",
            _FILE_SYSTEM,
            15,
        ),
        Alert(
            "VolumeFilling",
            "warning",
            # A volume that is mostly empty is being filled on purpose.
            f"{claim(_seconds_to_full(available))} {soon} and {free} < 0.5",
            f"{_VOLUME} will be full in {{{{ $value | humanizeDuration }}}}",
            "So says its pace of the last six hours, and more than half of it is used.",
            _CLAIM,
            15,
        ),
        Alert(
            "VolumeNearlyFull",
            "critical",
            f"{free} < {settings.volume_free_percent / 100:g}",
            f"{_VOLUME} is nearly full",
            "{{ $value | humanizePercentage }} of it is free.",
            _CLAIM,
            5,
        ),
        Alert(
            "ExportLagging",
            "warning",
            f"trn:file_system:export_age_seconds > {60 * settings.export_minutes}",
            "Files of {{ $labels.file_system_id }} wait for their export to S3",
            "The oldest has waited for {{ $value | humanizeDuration }}. What S3 lacks is lost with the file system.",
            _ASSOCIATION,
            5,
        ),
    ]


def _seconds_to_full(free: str) -> str:
    """Return PromQL for the seconds until nothing is free, at the pace of :data:`_PACE`; only for series that
    shrink."""
    return f"{free} / (-deriv({free}[{_PACE}]) > 0)"
