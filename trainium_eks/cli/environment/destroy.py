"""Steps before ``pulumi destroy``: the fate of data, the lasting costs, the jobs that end, and the export to S3."""

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import typer

from trainium_eks.aws import sessions
from trainium_eks.cli.shared import stack_state
from trainium_eks.client.cluster_access import open_stack
from trainium_eks.client.failure import CommandError, UsageError
from trainium_eks.jobs.objects.forms import KINDS
from trainium_eks.jobs.observed.watched import watched
from trainium_eks.kube.api import Api, NoSuchKindError
from trainium_eks.model.catalogue import prices
from trainium_eks.model.validation.problems import plural
from trainium_eks.operate.cleanup import exporting, monitoring_volumes
from trainium_eks.operate.cleanup.state import StackState, StateError
from trainium_eks.plan.graph import Graph
from trainium_eks.plan.resource_types import registry

NO_EXPORT = "--no-export"
"""Leaves out the export of linked file systems. Ours, not pulumi's."""

EXPORT_MINUTES = "--export-minutes="
"""How long an export may take. Ours, not pulumi's."""

DEFAULT_MINUTES = 120.0

CONFIRMED = ("--yes", "-y")
PREVIEW_ONLY = "--preview-only"
"""Of pulumi: destroys nothing."""
SKIP_PREVIEW = ("--skip-preview", "-f")

_SHOWN = 20
"""Jobs that are named; the others are counted."""

LUSTRE = "aws:fsx/lustreFileSystem:LustreFileSystem"
CLUSTER = "aws:eks/cluster:Cluster"


def prepare(graph: Graph, project: Path, arguments: Sequence[str]) -> list[str]:
    """Run the steps before a stack is destroyed; return the arguments for pulumi."""
    minutes = export_minutes(arguments)
    others = [each for each in arguments if each != NO_EXPORT and not each.startswith(EXPORT_MINUTES)]
    if lines := data_lines(graph):
        typer.echo("\n".join(["What holds data:", *lines]))
    refuse_protected(graph, arguments)
    if lines := list(remaining_costs(graph)):
        typer.echo("\n".join(["Remaining costs afterwards:", *lines]))
    if PREVIEW_ONLY in arguments:
        return others
    try:
        state = StackState.ask(graph.stack, project)
    except StateError as error:
        if minutes and any(each.type.startswith("aws:fsx/dataRepositoryAssociation:") for each in graph.resources):
            raise CommandError(
                f"which file systems have to be exported cannot be read: {error}\n"
                f"  To destroy it without an export: {NO_EXPORT}. What S3 lacks is lost then.",
            ) from None
        return others
    has_cluster, confirmed = any(state.of_type(CLUSTER)), any(each in CONFIRMED for each in arguments)
    if has_cluster:
        confirm_job_end(running_jobs(graph.stack, project), confirmed=confirmed)
    export(state, graph.stack, project, minutes)
    if has_cluster and confirmed:  # pulumi has not asked yet otherwise
        delete_claims(graph.stack, project)
    return others


def export_minutes(arguments: Sequence[str]) -> float:
    """Return the minutes that an export may take; 0 for no export."""
    minutes = DEFAULT_MINUTES
    for each in arguments:
        if each.startswith(EXPORT_MINUTES):
            try:
                minutes = float(each.removeprefix(EXPORT_MINUTES))
            except ValueError:
                minutes = 0.0
            if not 0 < minutes <= 10_080:
                raise UsageError(f"{each}: a number of minutes, more than 0 and at most 10080 (a week)")
    return 0.0 if NO_EXPORT in arguments else minutes


def data_lines(graph: Graph) -> list[str]:
    """Return a line for each resource with data and its fate at a destroy: protected, kept, backed up or lost."""
    holding = []
    for resource in graph.resources:
        holds = registry.of(resource).holds if resource.custom else None
        if holds is None or holds.when_deleted is None:
            continue
        if resource.options.protect:
            fate = "protected: kept until `production` (or `protect`) is lifted and applied"
        elif resource.options.retain_on_delete or resource.inputs.get("skipDestroy"):
            fate = "kept in the account, no longer managed"
        else:
            fate = holds.when_deleted(resource)
        holding.append((holds.worth, resource.urn, f"  {resource.name}: {fate}"))
    return [line for _, _, line in sorted(holding)]


def refuse_protected(graph: Graph, arguments: Sequence[str]) -> None:
    """Refuse to destroy a stack that protects something.

    Without a preview Pulumi deletes all unprotected resources before it comes to the protected ones: of a production
    stack it would leave the file system and nothing to use it with (seen on a real engine).
    """
    kept = [resource.name for resource in graph.resources if resource.options.protect and resource.custom]
    if not kept:
        return
    skipped = next((argument for argument in arguments if argument in SKIP_PREVIEW), None)
    flag = f" {skipped} would also bypass Pulumi's protection check." if skipped else ""
    raise CommandError(
        f"{graph.stack} protects {plural(len(kept), 'resource')} ({', '.join(kept[:3])}, …), so it is not destroyed."
        f"{flag}\n"
        "  To destroy it anyway: set `production: false` (and `fileSystem.protect: false` where it is set) in "
        f"Pulumi.{graph.stack}.yaml, run `make up STACK={graph.stack}`, then destroy.",
    )


def remaining_costs(graph: Graph) -> Iterator[str]:
    """Yield a line for each resource that outlives the stack, with its list price in us-east-1."""
    for each in graph.resources:
        kept = each.options.retain_on_delete or each.options.protect
        if kept and each.type == "aws:kms/key:Key":
            yield (
                f"  {each.name}: ${prices.KMS_KEY_MONTH:.2f} a month; without it nothing that it encrypted can be read"
            )
        elif kept and each.type == "aws:s3/bucket:Bucket":
            yield f"  {each.name}: ${prices.S3_STANDARD_GIB_MONTH:.3f} a month for each GiB, of old versions too"
        elif each.type == LUSTRE and not each.options.protect and each.inputs.get("skipFinalBackup") is False:
            yield (
                f"  the last backup of {each.name}: ${prices.FSX_BACKUP_GIB_MONTH:.2f} a month for each GiB, until it "
                "is deleted; automatic backups are deleted with the file system"
            )


def running_jobs(stack: str, project: Path) -> list[str] | None:
    """Return the jobs of all teams that have not ended, ``namespace/name``; None when the cluster cannot be asked."""

    def listed(api: Api) -> list[str]:
        found = []
        for kind in KINDS.values():
            try:
                found.append(api.list(kind.api_version, kind.kind))
            except NoSuchKindError:
                found.append([])
        volcano, pytorch, trainer = found
        jobs = watched(volcano, (), pytorch, trainer)
        return sorted(f"{each.source['metadata']['namespace']}/{each.name}" for each in jobs if each.ended is None)

    return _in_cluster(stack, project, listed, "ask the cluster which jobs run")


def delete_claims(stack: str, project: Path) -> None:
    """Delete the claims of the monitoring while their CSI driver runs; name the volumes that are left."""
    if left := _in_cluster(
        stack, project, monitoring_volumes.delete_claims, "delete the claims of the monitoring first"
    ):
        typer.echo(f"Volumes that outlive their claims: {', '.join(left)} (trn orphans shows them)", err=True)


def _in_cluster(stack: str, project: Path, act: Callable[[Api], list[str]], what: str) -> list[str] | None:
    """Return the result of a function of the cluster; None, with a line on standard error, where it cannot be asked."""
    try:
        with open_stack(stack, project) as api:
            return act(api)
    except CommandError as error:
        typer.echo(f"Cannot {what}: {error.title}", err=True)
        return None


def confirm_job_end(jobs: Sequence[str] | None, *, confirmed: bool) -> None:
    """Return when no jobs run, or when the caller agrees that they end."""
    if not jobs:
        return
    more = f" and {len(jobs) - _SHOWN} more" if len(jobs) > _SHOWN else ""
    count = f"{len(jobs)} job{'s have' if len(jobs) > 1 else ' has'} not ended"
    typer.echo(f"{count}: {', '.join(jobs[:_SHOWN])}{more}")
    if confirmed:
        typer.echo("  They end with the cluster; what they write during an export may be lost.")
        return
    if sys.stdin.isatty() and sys.stdout.isatty() and typer.confirm("End them and continue?"):
        return
    raise CommandError(
        "Nothing was destroyed. Let the jobs end, end them (trn cancel NAME --namespace TEAM), or destroy all the same "
        "with --yes.",
    )


def export(state: StackState, stack: str, project: Path, minutes: float) -> None:
    """Export the file systems that are linked to a bucket, or name the data that is lost without an export."""
    file_systems = exporting.linked(state)
    names = ", ".join(file_systems)
    if file_systems and not minutes:
        typer.echo(f"{NO_EXPORT}: what S3 lacks of {names} is lost.")
    if not file_systems or not minutes:
        return
    region = stack_state.region(state, None, project, stack)
    patience = exporting.Patience(minutes * 60)
    typer.echo(
        f"Exporting {names} to S3 before anything is destroyed (at most {minutes:g} minutes; {NO_EXPORT} leaves it "
        "out)."
    )
    try:
        for each in file_systems:
            begun = exporting.Export(sessions.client("fsx", region), region, each, typer.echo, patience)
            begun.run()
            if off := begun.resume():
                typer.echo(f"  If you do not destroy the stack now:\n{off}")
    except (exporting.NotExportedError, sessions.AwsError) as error:
        raise CommandError(str(error)) from None
