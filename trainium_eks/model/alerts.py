"""From when on an alert fires: the thresholds of every alert of :mod:`trainium_eks.monitoring.alerts`."""

from trainium_eks.model import formats
from trainium_eks.model.problems import Problem
from trainium_eks.model.shape import Shape, Whole

HARDWARE_XIDS = (48, 63, 64, 74, 79, 94, 95, 119, 120, 121, 140)
"""XIDs that EKS' node monitoring agent takes for a broken GPU (its ``WellKnownXidCodes``), less 13 and 31, which are
nearly always a fault of the program."""

_MINUTES = 7 * 24 * 60
_HOURS = 30 * 24


class AlertSettings(Shape):
    """Thresholds of alerts. The defaults suit gangs of some nodes that train for hours."""

    gang_waits_minutes: Whole = 15
    """A gang that has waited so long while the idle nodes would hold it is stuck."""
    gang_partial_minutes: Whole = 10
    """How long a gang may run with pods missing."""
    stalled_minutes: Whole = 15
    """A training without a step for so long has stalled, unless ten times its own pace is longer."""
    first_step_minutes: Whole = 120
    """How long a training may take until its first step. Compiling for Neuron comes before it."""
    checkpoint_hours: Whole = 6
    """How old a running training's newest checkpoint may be. ``trn train`` proposes to save every four hours at the
    latest."""
    idle_minutes: Whole = 30
    """How long an accelerator node may have no pod that asks for a device."""
    held_idle_minutes: Whole = 60
    """How long pods may hold devices that hardly compute."""
    busy_percent: Whole = 2
    """Devices that are busy for a smaller share of the time hardly compute, %."""
    filling_hours: Whole = 24
    """A volume that will be full within so long, at the pace of the last six hours, is filling."""
    volume_free_percent: Whole = 5
    """A volume with a smaller share free is filling whatever its pace, %."""
    export_minutes: Whole = 60
    """How long a changed file may wait for its export to S3."""
    capacity_block_hours: Whole = 4
    """How long before the end of a Capacity Block its jobs are named."""
    certificate_days: Whole = 7
    """How long before a kubelet's serving certificate ends it should have been renewed."""
    failing_minutes: Whole = 10
    """How long webhooks, rules, exporters and remote write may fail."""
    node_repair_minutes: Whole = 45
    """How long a node may be not ready. EKS' node repair begins after 30 minutes."""
    hardware_repair_minutes: Whole = 25
    """How long a node may stay with broken accelerators. EKS' node repair begins after 10 minutes."""
    hardware_xids: tuple[Whole, ...] = HARDWARE_XIDS
    """NVIDIA's XIDs that mean a broken GPU."""
    runbook_url: str = ""
    """Where docs/alerts.md is read: each alert links to ``<runbook_url>#<its name in lower case>``. Empty: alerts name
    `trn doctor` only."""


def problems(settings: AlertSettings) -> list[Problem]:
    """What is wrong with the thresholds. Paths are relative to them."""
    found: list[Problem] = []
    for name in AlertSettings.model_fields:
        value = getattr(settings, name)
        if name.endswith("_minutes"):
            found += formats.between(name, value, 1, _MINUTES, "out of bounds, minutes")
        elif name.endswith("_hours"):
            found += formats.between(name, value, 1, _HOURS, "out of bounds, hours")
        elif name.endswith("_percent"):
            found += formats.between(name, value, 1, 99, "out of bounds, %")
    found += formats.between("certificate_days", settings.certificate_days, 1, 90, "out of bounds, days")
    if not settings.hardware_xids:
        reason = "empty: no XID would be taken for a broken GPU"
        found.append(Problem("hardware_xids", reason, "leave it out for the list of EKS' node monitoring agent"))
    if settings.runbook_url and not settings.runbook_url.startswith("https://"):
        reason = "not an https address"
        found.append(Problem("runbook_url", reason, value=settings.runbook_url, allowed=("https://…",)))
    return found
