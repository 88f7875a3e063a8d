"""``trn doctor``: the alerts, their pages, and the alerts that fire now."""

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from trainium_eks.cli.environment.check import render_doctor
from trainium_eks.cli.environment.plan.render import show_sections
from trainium_eks.cli.shared import output
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, WRONG_USAGE, Failure, as_typed
from trainium_eks.model.alerts import AlertSettings
from trainium_eks.model.validation.problems import nearest
from trainium_eks.observe.alerts import alerts, runbook
from trainium_eks.observe.alerts.firing import Firing

SCHEMA_VERSION = 1
"""Version of the documents of ``--json``; changes when a field is removed or changes meaning."""


def run(cluster: ClusterOptions, alert: str | None) -> int:
    """Show one page, the firing alerts, or the list of alerts; return the exit code.

    Args:
        cluster: options of the stack to query; without a stack and outputs none is queried.
        alert: name of the alert to show.
    """
    if alert is not None:
        return _page(cluster, alert)
    return _firing(cluster) if cluster.stack or cluster.outputs else _list(cluster)


def _page(cluster: ClusterOptions, name: str) -> int:
    found = next((each for each in alerts.alerts(AlertSettings()) if each.name.lower() == name.lower()), None)
    if found is None:
        near = nearest(name, alerts.names())
        meant = f"did you mean {near}?" if near else "`trn doctor` lists them"
        raise Failure(WRONG_USAGE, f"there is no alert {name!r}: {meant}")
    text = runbook.page(found.name)
    text = text.replace("STACK", cluster.stack) if cluster.stack else text
    if cluster.as_json:
        page = {"name": found.name, "severity": found.severity, "text": text}
        output.write_json({"schemaVersion": SCHEMA_VERSION, "alert": page})
    else:
        output.write(as_typed(text))
    return 0


def _list(cluster: ClusterOptions) -> int:
    found = alerts.alerts(AlertSettings())
    if cluster.as_json:
        listed = [{"name": each.name, "severity": each.severity, "about": runbook.about(each.name)} for each in found]
        output.write_json({"schemaVersion": SCHEMA_VERSION, "alerts": listed})
    else:
        hint = as_typed("trn doctor ALERT prints a page, trn doctor --stack STACK says what fires now.")
        show_sections([render_doctor.listed(found), Text(hint)], no_color=cluster.no_color)
    return 0


def _firing(cluster: ClusterOptions) -> int:
    from trainium_eks.cli.environment.check import doctor_ask

    found = doctor_ask.firing(cluster)
    if cluster.as_json:
        output.write_json(_document(cluster, found))
    else:
        show_sections([render_doctor.firing(found)], no_color=cluster.no_color)
    return FAILED if any(each.state == "firing" for each in found) else 0


def _document(cluster: ClusterOptions, found: Sequence[Firing]) -> dict[str, Any]:
    return {"schemaVersion": SCHEMA_VERSION, "stack": cluster.stack, "alerts": [each.to_json() for each in found]}
