"""The work of ``trn train``: from options to a gang that runs, or to a training job of SageMaker."""

import json
import math
import shlex
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import typer
import yaml

from trainium_eks.cli.shared import output
from trainium_eks.cli.shared.durations import duration
from trainium_eks.cli.shared.log_lines import explain, follow_log
from trainium_eks.client import torchx
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, INTERRUPTED, as_typed
from trainium_eks.client.logs import LogOptions
from trainium_eks.client.notices import say
from trainium_eks.client.sagemaker import ManagedJob
from trainium_eks.client.sagemaker_target import SageMakerTarget
from trainium_eks.client.team import Job, Team, open_team
from trainium_eks.jobs.objects import volcano_job
from trainium_eks.jobs.objects.environment import CHECKPOINT_SECONDS, checkpoint_seconds
from trainium_eks.jobs.objects.job import TrainingJob
from trainium_eks.jobs.objects.options import TrainOptions
from trainium_eks.jobs.observed.job_snapshot import FAILURES, SUCCEEDED
from trainium_eks.jobs.sagemaker.job import SageMakerJob
from trainium_eks.jobs.sagemaker.request import launch_script, training_request
from trainium_eks.jobs.submit.requests import Submission
from trainium_eks.model.sizing.goodput import Goodput
from trainium_eks.model.validation.problems import describe


def train(options: TrainOptions, cluster: ClusterOptions) -> None:
    """Submit a job, or show it, and follow it as the options ask for."""
    if options.on == "sagemaker":
        target = SageMakerTarget(cluster)
        planned = target.plan(options)
        if options.dry_run:
            _show_request(planned.made, cluster)
            return
        managed = target.create(planned)
        _say_submitted(_managed_summary(planned.made), cluster)
        raise typer.Exit(_follow(managed, partial(_managed_document, planned.made), options, cluster))
    with open_team(cluster) as team:
        submission, is_local = team.plan(options, say), team.session.is_local
        job = submission.job
        if submission.warnings:
            say(describe(submission.warnings))
        if is_local:
            say(
                f"Local cloud: backend {job.backend}, {_size(job)}; devices are accounted for, this machine's CPU does "
                "the work."
            )
        if options.dry_run:
            _show(submission, cluster)
            return
        created = team.create(submission, say)
        # TorchX names its jobs itself.
        job = replace(job, name=created.name)
        # Here no node is lost, and nothing is as fast or as slow as the stack's file system.
        saving = None if is_local else submission.saving
        _say_submitted(_summary(job, saving, watched=not options.detach), cluster)
        raise typer.Exit(_follow(created, partial(_document, job), options, cluster, team))


def _say_submitted(summary: str, cluster: ClusterOptions) -> None:
    if not cluster.as_json:
        say(as_typed(summary))


def _follow(
    job: Job | ManagedJob,
    document: Callable[[str], dict[str, Any]],
    options: TrainOptions,
    cluster: ClusterOptions,
    team: Team | None = None,
) -> int:
    """Follow a job as the options ask for; return the exit code. ``team``: the job's, on EKS."""
    if not (options.detach or options.wait or cluster.as_json):
        code = follow_log(job.log(LogOptions(follow=True)), cluster, team)
        if code == INTERRUPTED:
            say(as_typed(f"The job {job.name} is still running: trn logs {job.name} -f · trn cancel {job.name}"))
        return code
    state = job.wait() if options.wait and not options.detach else ""
    if cluster.as_json:
        output.write_json(document(state))
    elif state:
        reason = job.state().reason if isinstance(job, ManagedJob) else ""
        say(f"The job {job.name} is {state}.{f' {reason}' if reason else ''}")
        if team is not None and state in FAILURES:
            explain(team, job.state(), cluster)
    return 0 if state in ("", SUCCEEDED) else FAILED


def _show(submission: Submission, cluster: ClusterOptions) -> None:
    job = submission.job
    is_volcano = job.form == "volcano"
    command = torchx.command(job) if is_volcano else None
    *before, itself = submission.objects
    if cluster.as_json:
        document = {"schemaVersion": output.SCHEMA_VERSION, "job": itself, "torchx": command}
        output.write_json(document | ({"before": before} if before else {}))
        return
    lines = [f"# The same by TorchX: {shlex.join(command)}"] if command else []
    if submission.workspace is not None:
        size = f"{submission.workspace.size_bytes / 1024:.1f} KiB"
        lines.append(f"# {submission.workspace.files} files ({size}) travel in the ConfigMap {job.workspace_name};")
        lines += ["# TorchX brings no files: there the image must hold the script."] if command else []
    if is_volcano and volcano_job.is_one_task(job):
        lines.append("# TorchX would make a task for each node: from some hundred nodes on more than etcd takes.")
    plain = json.loads(json.dumps(submission.objects))  # nothing twice, which YAML would write as a reference
    output.write(yaml.safe_dump_all(plain, sort_keys=False, width=1000) + "".join(f"{line}\n" for line in lines))


def _document(job: TrainingJob, state: str) -> dict[str, Any]:
    return {
        "schemaVersion": output.SCHEMA_VERSION,
        "job": job.name,
        "kind": job.kind,
        "form": job.form,
        "namespace": job.namespace,
        "queue": job.queue,
        "instanceType": job.instance.name,
        "nodes": job.nodes,
        "worldSize": job.world_size,
        "image": job.image,
        "backend": job.backend,
        "launcher": job.launcher,
        "output": job.output,
        "cacheKey": job.cache.key if job.cache else None,
        "checkpointSeconds": checkpoint_seconds(job.env),
        "state": state or None,
    }


def _summary(job: TrainingJob, saving: Goodput | None, *, watched: bool) -> str:
    lines = [f"Submitted {job.name}: {job.program} on {_size(job)} of {job.instance.name}, queue {job.queue}."]
    if job.output:
        lines.append(f"  Output: {job.output}")
    if saving is not None:
        lines.append(f"  Checkpoints: {_saving(saving)}")
    if job.cache is not None:
        lines.append(f"  Compile cache: {job.cache.directory}")
    if job.capacity_ends:
        lines.append(f"  The nodes' Capacity Block ends at {job.capacity_ends}; save before.")
    if not watched:
        lines.append(f"  Watch: trn status {job.name} · trn logs {job.name} -f")
    return "\n".join(lines)


def _saving(proposed: Goodput) -> str:
    run = proposed.run
    mean = run.seconds_between_faults
    between = f", a fault every {duration(mean)}" if math.isfinite(mean) else ""
    takes = duration(run.save_seconds) if run.save_seconds >= 1 else "less than a second"
    return (
        f"every {duration(proposed.interval_seconds)} ({CHECKPOINT_SECONDS}); each takes {takes}{between}: "
        f"{100 * proposed.useful_fraction:.1f} % of the time is useful."
    )


def _size(job: TrainingJob) -> str:
    nodes = "1 node" if job.nodes == 1 else f"{job.nodes} nodes"
    ranks = "1 rank" if job.ranks_per_node == 1 else f"{job.ranks_per_node} ranks"
    return f"{nodes} with {ranks}" + (" each" if job.nodes > 1 else "")


def _show_request(made: SageMakerJob, cluster: ClusterOptions) -> None:
    request, script = training_request(made), launch_script(made)
    shown = yaml.safe_dump(request, sort_keys=False, width=1000) + "# The script of its containers:\n" + script
    output.answer(cluster, {"request": request, "script": script}, shown.removesuffix("\n"))


def _managed_document(made: SageMakerJob, state: str) -> dict[str, Any]:
    job = made.job
    return {
        "schemaVersion": output.SCHEMA_VERSION,
        "job": job.name,
        "kind": "sagemaker",
        "namespace": job.namespace,
        "instanceType": made.instance_type,
        "nodes": job.nodes,
        "worldSize": job.world_size,
        "image": job.image,
        "backend": job.backend,
        "output": made.uri("output"),
        "checkpoints": made.uri("checkpoints"),
        "state": state or None,
    }


def _managed_summary(made: SageMakerJob) -> str:
    job, spot = made.job, " on Spot" if made.spot else ""
    return (
        f"Submitted {job.name}: {job.program} on {job.nodes} x {made.instance_type}{spot}, {job.ranks_per_node} ranks "
        f"each.\n  Model: {made.uri('output', job.name)}\n  Checkpoints: {made.uri('checkpoints')}\n"
        f"  Watch: trn jobs · trn logs {job.name} -f"
    )
