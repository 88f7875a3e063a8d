"""``trn doctor``: the checks and faults of a stack or a job, the pages of faults and alerts, and the firing alerts."""

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from trainium_eks.cli.environment import doctor_alerts
from trainium_eks.cli.environment.doctor_alerts import SEVERITIES
from trainium_eks.cli.shared import examine, output
from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.console import answer, show_sections, table
from trainium_eks.cli.shared.report import counted, sections
from trainium_eks.cli.shared.with_cluster_options import with_cluster_options
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, UsageError, as_typed
from trainium_eks.client.notices import begin, notice
from trainium_eks.diagnose.diagnosis import UNREAD
from trainium_eks.model.finding import Report, Status
from trainium_eks.model.validation.problems import nearest, plural
from trainium_eks.observe import rules
from trainium_eks.observe.alerts import runbook
from trainium_eks.observe.faults import catalogue
from trainium_eks.operate.verify.verify import HEADINGS

app = App()


@app.command(example="trn doctor bert-tiny", begins="")
@with_cluster_options
def doctor(
    name: Annotated[
        str | None, typer.Argument(help="Name of a job, or of a fault or an alert to explain.", show_default=False)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Include checks that pass or do not apply.")] = False,
    wait: Annotated[
        float, typer.Option("--wait", min=0, metavar="SECONDS", help="Repeat until nothing fails, at most this long.")
    ] = 0,
    listing: Annotated[bool, typer.Option("--list", help="List all faults and alerts.")] = False,
    firing: Annotated[bool, typer.Option("--alerts", help="List the stack's alerts that fire now.")] = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Name each fault of the stack, or of one job, with its cause and remedy. The command changes nothing.

    Of a stack it checks nodes, devices, plugins, volumes and queues against its outputs, and objects against its state.
    With the name of a fault or an alert: print its page. Give --namespace for a job that has the name of an alert.

    Exit code: 0 when no fault is found; 1 when one is, or an alert fires; 2 for wrong usage.
    """
    if name is None and listing:
        _list(cluster)
    elif name is None and firing:
        raise typer.Exit(doctor_alerts.run(cluster))
    # A job that is called as a page is asked for with its namespace.
    elif name is None or cluster.namespace or not _page(cluster, name):
        report = _examined(cluster, name or "", wait, everything=everything)
        raise typer.Exit(FAILED if report.failed else 0)


def _examined(cluster: ClusterOptions, name: str, wait: float, *, everything: bool) -> Report:
    """Show the findings, after the last repetition."""
    begin(f"reading {name or cluster.stack or 'the stack'} and its cluster")
    report = examine.until_well(lambda: examine.diagnosis(cluster, name), wait, notice)
    if cluster.as_json:
        output.write_json(report.to_json())
    else:
        subject = name or cluster.stack or "the stack"
        show_sections([*_parts(report, everything=everything), summary(report, subject)], no_color=cluster.no_color)
    return report


def _parts(report: Report, *, everything: bool) -> Iterator[RenderableType]:
    if not everything:
        yield from sections(report.of(Status.FAIL), HEADINGS)
        return
    facts = report.facts
    where = "local cloud" if facts.get("local") else ""
    lines = [Text(" · ".join(filter(None, (facts["stack"], facts.get("cluster"), where))), "bold")]
    lines += [Text(facts["server"], "dim")] if "server" in facts else []
    if where:
        made_up = f", the answers of {', '.join(facts['simulated'])} made up" if facts["simulated"] else ""
        lines.append(Text(f"Kubernetes is real; nodes and the pods on them are simulated{made_up}.", "yellow"))
    yield Group(*lines)
    yield from sections(report.findings, HEADINGS)


def summary(report: Report, subject: str) -> RenderableType:
    """Return the numbers of faults, of other findings and of the examined objects, and what was not examined."""
    others = counted(report.summary, Status.PASS, Status.NOT_CHECKED, Status.NOT_APPLICABLE)
    rest = f"; {others}." if others else "."
    if looked := report.facts.get("lookedAt"):
        counts = (plural(count, kind) for kind, count in looked.items())
        rest += f" Looked at {', '.join(counts)}."
    fails = len(report.of(Status.FAIL))
    lines = [Text(f"✓ {subject}: no fault found{rest}", "bold green")]
    if fails:
        lines = [Text(f"✗ {subject}: {plural(fails, 'fault')}{rest}", "bold red")]
    unknown = report.of(Status.NOT_CHECKED)
    if unread := [each.subject for each in unknown if each.section == UNREAD]:
        lines.append(Text(f"Not looked at: {', '.join(unread)}, which your user may not list.", "dim"))
    if uncompared := [f"{each.subject} ({each.text})" for each in unknown if each.section == "objects"]:
        lines.append(Text(f"Not compared with the state of the stack: {'; '.join(uncompared)}.", "dim"))
    return Group(*lines)


def _page(cluster: ClusterOptions, name: str) -> bool:
    """Show the page of a fault or an alert; return whether there is one. CommandError: no job can have the name."""
    severities = rules.severities()
    alert = next((each for each in severities if each.lower() == name.lower()), "")
    fault = catalogue.BY_NAME.get(name)
    if not alert and fault is None:
        if not name.islower():
            near = nearest(name, [*severities, *catalogue.BY_NAME])
            meant = f"did you mean {near}?" if near else "`trn doctor --list` lists them"
            raise UsageError(f"there is no alert, fault or job {name!r}: {meant}")
        return False
    text = runbook.page(alert) if alert else f"# {name}\n\n{catalogue.BY_NAME[name].page()}"
    text = text.replace("STACK", cluster.stack) if cluster.stack else text
    page = {"name": alert or name, "severity": severities.get(alert, ""), "text": text}
    output.answer(cluster, {"alert" if alert else "fault": page}, as_typed(text).removesuffix("\n"))
    return True


def _list(cluster: ClusterOptions) -> None:
    found = [(name, severity, runbook.about(name)) for name, severity in rules.severities().items()]
    faults = [(each.name, each.symptom) for each in catalogue.FAULTS]
    listed = [{"name": name, "severity": severity, "about": about} for name, severity, about in found]
    named = [{"name": name, "about": symptom} for name, symptom in faults]
    of_faults = table("FAULT", "YOU SEE", folded=("YOU SEE",))
    for name, symptom in faults:
        of_faults.add_row(name, Text(symptom.replace("`", "")))
    of_alerts = table("ALERT", "SEVERITY", "MEANS", folded=("MEANS",))
    for name, severity, about in found:
        of_alerts.add_row(name, Text(severity, SEVERITIES.get(severity, "")), Text(about.replace("`", "")))
    hint = Text(as_typed("trn doctor NAME prints a page, trn doctor says what is wrong with the stack now."))
    answer(cluster, {"alerts": listed, "faults": named}, of_faults, of_alerts, hint)
