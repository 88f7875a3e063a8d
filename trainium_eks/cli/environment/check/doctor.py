"""``trn doctor``: the faults of a stack or a job, the pages of faults and alerts, and the alerts that fire now."""

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from trainium_eks.cli.environment.check import render_doctor
from trainium_eks.cli.shared import output
from trainium_eks.cli.shared.console import show_sections
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, WRONG_USAGE, Failure, as_typed
from trainium_eks.model.alerts import AlertSettings
from trainium_eks.model.validation.problems import nearest
from trainium_eks.observe.alerts import alerts, runbook
from trainium_eks.observe.alerts.firing import Firing
from trainium_eks.observe.faults import catalogue

SCHEMA_VERSION = 1
"""Version of the documents of ``--json``; changes when a field is removed or changes meaning."""


def run(cluster: ClusterOptions, name: str | None, *, listing: bool = False, firing: bool = False) -> int:
    """Show the faults, one page, the firing alerts, or the list of pages; return the exit code.

    Args:
        cluster: options of the stack.
        name: of a job, or of a fault or an alert for its page.
        listing: whether to list all faults and alerts.
        firing: whether to ask Prometheus for firing alerts.
    """
    if name is None and listing:
        return _list(cluster)
    if name is None and firing:
        return _firing(cluster)
    # A job that is called as a page is asked for with its namespace.
    return _diagnosis(cluster, name) if name is None or cluster.namespace or not _page(cluster, name) else 0


def _page(cluster: ClusterOptions, name: str) -> bool:
    """Show the page of a fault or an alert; return whether there is one.

    Raises:
        Failure: there is none, and no job can be called so.
    """
    alert = next((each for each in alerts.alerts(AlertSettings()) if each.name.lower() == name.lower()), None)
    fault = catalogue.BY_NAME.get(name)
    if alert is None and fault is None:
        if not name.islower():
            near = nearest(name, [*alerts.names(), *catalogue.BY_NAME])
            meant = f"did you mean {near}?" if near else "`trn doctor --list` lists them"
            raise Failure(WRONG_USAGE, f"there is no alert, fault or job {name!r}: {meant}")
        return False
    text = runbook.page(alert.name) if alert is not None else f"# {name}\n\n{catalogue.BY_NAME[name].page()}"
    text = text.replace("STACK", cluster.stack) if cluster.stack else text
    if cluster.as_json:
        page = {"name": alert.name if alert else name, "severity": alert.severity if alert else "", "text": text}
        output.write_json({"schemaVersion": SCHEMA_VERSION, "alert" if alert else "fault": page})
    else:
        output.write(as_typed(text))
    return True


def _list(cluster: ClusterOptions) -> int:
    found = alerts.alerts(AlertSettings())
    if cluster.as_json:
        listed = [{"name": each.name, "severity": each.severity, "about": runbook.about(each.name)} for each in found]
        faults = [{"name": each.name, "about": each.symptom} for each in catalogue.FAULTS]
        output.write_json({"schemaVersion": SCHEMA_VERSION, "alerts": listed, "faults": faults})
    else:
        hint = as_typed("trn doctor NAME prints a page, trn doctor says what is wrong with the stack now.")
        parts = [render_doctor.faults(catalogue.FAULTS), render_doctor.listed(found), Text(hint)]
        show_sections(parts, no_color=cluster.no_color)
    return 0


def _diagnosis(cluster: ClusterOptions, name: str | None) -> int:
    from trainium_eks.cli.environment.check import examine

    found = examine.diagnosis(cluster, name or "")
    if cluster.as_json:
        output.write_json(found.to_json())
    else:
        subject = name or cluster.stack or "the stack"
        show_sections([render_doctor.diagnosis(found, subject)], no_color=cluster.no_color)
    return FAILED if found.findings else 0


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
