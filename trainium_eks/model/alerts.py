"""Thresholds of the alerts in ``trainium_eks/observe/rules/alerts.yaml``."""

from typing import Annotated

from trainium_eks.model.validation import formats
from trainium_eks.model.validation.config_model import ConfigModel, StrictInt
from trainium_eks.model.validation.limits import Bounds, Entries
from trainium_eks.model.validation.problems import Problem

HARDWARE_XIDS = (48, 63, 64, 74, 79, 94, 95, 119, 120, 121, 140)
"""XIDs that EKS' node monitoring agent takes for a broken GPU (its ``WellKnownXidCodes``), less 13 and 31, which are
nearly always a fault of the program."""

Minutes = Annotated[StrictInt, Bounds(1, 7 * 24 * 60, "minutes")]
Hours = Annotated[StrictInt, Bounds(1, 30 * 24, "hours")]
Percent = Annotated[StrictInt, Bounds(1, 99, "%")]
Xid = Annotated[StrictInt, Bounds(1, 999, why="NVIDIA's XIDs are small positive numbers")]
_SOME_XIDS = Entries(
    1, 100, "without any, no GPU would be taken for broken", "leave it out for the list of EKS' node monitoring agent"
)


class AlertSettings(ConfigModel):
    """Thresholds of alerts. The defaults suit gangs of some nodes that train for hours."""

    gang_waits_minutes: Minutes = 15
    """A gang that has waited so long while the idle nodes would hold it is stuck."""
    gang_partial_minutes: Minutes = 10
    """How long a gang may run with pods missing."""
    stalled_minutes: Minutes = 15
    """A training without a step for so long has stalled, unless ten times its own pace is longer."""
    first_step_minutes: Minutes = 120
    """How long a training may take until its first step. Compiling for Neuron comes before it."""
    checkpoint_hours: Hours = 6
    """How old a running training's newest checkpoint may be. ``trn train`` proposes to save every four hours at the
    latest."""
    idle_minutes: Minutes = 30
    """How long an accelerator node may have no pod that asks for a device."""
    held_idle_minutes: Minutes = 60
    """How long pods may hold devices that hardly compute."""
    busy_percent: Percent = 2
    """Devices that are busy for a smaller share of the time hardly compute, %."""
    filling_hours: Hours = 24
    """A volume that will be full within so long, at the pace of the last six hours, is filling."""
    volume_free_percent: Percent = 5
    """A volume with a smaller share free is filling whatever its pace, %."""
    export_minutes: Minutes = 60
    """How long a changed file may wait for its export to S3."""
    capacity_block_hours: Hours = 4
    """How long before the end of a Capacity Block its jobs are named."""
    certificate_days: Annotated[StrictInt, Bounds(1, 90, "days")] = 7
    """How long before a kubelet's serving certificate ends it should have been renewed."""
    failing_minutes: Minutes = 10
    """How long webhooks, rules, exporters and remote write may fail."""
    node_repair_minutes: Minutes = 45
    """How long a node may be not ready. EKS' node repair begins after 30 minutes."""
    hardware_repair_minutes: Minutes = 25
    """How long a node may stay with broken accelerators. EKS' node repair begins after 10 minutes."""
    hardware_xids: Annotated[tuple[Xid, ...], _SOME_XIDS] = HARDWARE_XIDS
    """NVIDIA's XIDs that mean a broken GPU."""
    runbook_url: str = ""
    """Where docs/alerts.md is read: each alert links to ``<runbook_url>#<its name in lower case>``. Empty: alerts name
    `trn doctor` only."""


def validate(settings: AlertSettings) -> list[Problem]:
    """Return the problems of the thresholds beyond their declared limits. Paths are relative to them."""
    url = settings.runbook_url
    if not url:
        return []
    found = formats.https_address("runbook_url", url)
    if not found and "#" in url:
        reason = "it has a fragment of its own, and each alert's name is put behind a #"
        found.append(Problem("runbook_url", reason, value=url, good=url.partition("#")[0]))
    return found
