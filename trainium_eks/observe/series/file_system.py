"""CloudWatch metrics of the file system, and the configuration of their exporter (YACE).

YACE names a series ``aws_fsx_<metric>_<statistic>``: ``aws_fsx_free_data_storage_capacity_sum``. Each value is of the
last whole minute that CloudWatch has, so byte and operation counts are for a minute, not for a second.
"""

import json
from collections.abc import Mapping

PERIOD_SECONDS = 60
"""FSx writes once a minute."""
LOOK_BACK_SECONDS = 600
"""CloudWatch has a minute's values only minutes later."""

METRICS: Mapping[str, str] = {
    "FreeDataStorageCapacity": "Sum",
    "DataReadBytes": "Sum",
    "DataWriteBytes": "Sum",
    "DataReadOperations": "Sum",
    "DataWriteOperations": "Sum",
    "MetadataOperations": "Sum",
    "ClientConnections": "Sum",
}
"""Metric of a Lustre file system, by the one dimension ``FileSystemId``, to the statistic for the whole file system
(FSx user guide, metrics and dimensions)."""

EXPORT_METRICS: Mapping[str, str] = {"AgeOfOldestQueuedMessage": "Maximum"}
"""Metrics of the automatic export to S3, with the dimension ``Publisher`` besides: seconds that the oldest change has
waited; 0 when nothing waits."""


def exporter_config(region: str, file_system_id: str, *, exports: bool) -> str:
    """Return YACE's configuration for one file system, as JSON (which is YAML)."""
    identity = {"name": "FileSystemId", "value": file_system_id}
    jobs = [_job("fsx", region, [identity], METRICS)]
    if exports:
        publisher = {"name": "Publisher", "value": "AutoExport"}
        jobs.append(_job("fsx-export", region, [identity, publisher], EXPORT_METRICS))
    return json.dumps({"apiVersion": "v1alpha1", "sts-region": region, "static": jobs}, indent=1)


def _job(name: str, region: str, dimensions: list[dict[str, str]], metrics: Mapping[str, str]) -> dict[str, object]:
    return {
        "name": name,
        "namespace": "AWS/FSx",
        "regions": [region],
        "dimensions": dimensions,
        "metrics": [
            {"name": metric, "statistics": [statistic], "period": PERIOD_SECONDS, "length": LOOK_BACK_SECONDS}
            for metric, statistic in metrics.items()
        ],
    }
