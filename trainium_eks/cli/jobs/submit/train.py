"""``trn train`` and ``trn compile``: from a command line to a gang that runs."""

import json
import math
import shlex
import sys
from dataclasses import replace
from typing import Any

import yaml

from trainium_eks.cli.jobs.submit.train_torchx import component, submit_by_torchx
from trainium_eks.cli.jobs.watch.live_logs import Printer, explain, follow
from trainium_eks.cli.shared.output import write, write_json
from trainium_eks.client import logs, reading, scaling, submitting
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, INTERRUPTED, as_typed
from trainium_eks.client.session import Session, open_session
from trainium_eks.jobs.explain.cluster_snapshot import FAILURES
from trainium_eks.jobs.objects import torchx_app, volcano_job
from trainium_eks.jobs.objects.job import TrainingJob
from trainium_eks.jobs.objects.options import TrainOptions
from trainium_eks.jobs.submit.saving import VARIABLE, interval_seconds
from trainium_eks.model.sizing.goodput import Goodput
from trainium_eks.model.validation.problems import describe
from trainium_eks.plan.graph import SCHEMA_VERSION


def run(asked: TrainOptions, cluster: ClusterOptions) -> int:
    """Run ``trn train`` or ``trn compile``; return the exit code, without ``--detach`` the job's."""
    if asked.on == "sagemaker":
        from trainium_eks.cli.jobs.submit import train_sagemaker

        return train_sagemaker.run(asked, cluster)
    with open_session(cluster) as session:
        prepared = submitting.prepare(asked, session, _say)
        _warn(prepared, session)
        if asked.dry_run:
            return _show(prepared, cluster)
        return _submit(prepared, asked, cluster, session)


def _warn(prepared: submitting.Prepared, session: Session) -> None:
    if prepared.warnings:
        _say(describe(prepared.warnings))
    if session.is_local:
        job = prepared.job
        _say(
            f"Local cloud: backend {job.backend}, {_size(job)}; devices are accounted for, "
            "this machine's CPU does the work."
        )


def _show(prepared: submitting.Prepared, cluster: ClusterOptions) -> int:
    job = prepared.job
    is_volcano = job.form == "volcano"
    command = torchx_app.run_command(job, component()) if is_volcano else None
    *before, itself = prepared.objects
    if cluster.as_json:
        document = {"schemaVersion": SCHEMA_VERSION, "job": itself, "torchx": command}
        write_json(document | ({"before": before} if before else {}))
        return 0
    lines = [f"# The same by TorchX: {shlex.join(command)}"] if command else []
    if prepared.workspace is not None:
        size = prepared.workspace.size_bytes / 1024
        lines.append(
            f"# {prepared.workspace.files} files ({size:.1f} KiB) travel in the ConfigMap {job.workspace_name};"
        )
        lines += ["# TorchX brings no files: there the image must hold the script."] if command else []
    if is_volcano and volcano_job.is_one_task(job):
        lines.append("# TorchX would make a task for each node: from some hundred nodes on more than etcd takes.")
    plain = json.loads(json.dumps(prepared.objects))  # nothing twice, which YAML would write as a reference
    write(yaml.safe_dump_all(plain, sort_keys=False, width=1000) + "".join(f"{line}\n" for line in lines))
    return 0


def _submit(prepared: submitting.Prepared, asked: TrainOptions, cluster: ClusterOptions, session: Session) -> int:
    job = prepared.job
    submitting.validate(prepared, session, _say)
    if asked.scale:
        scaling.for_gang(session, prepared.group, job.nodes, _say)
    if asked.torchx:
        job = replace(job, name=submit_by_torchx(job, session))
    else:
        submitting.submit(prepared, session, _say)
    follows = not (asked.detach or asked.wait or cluster.as_json)
    waits = asked.wait and not asked.detach
    if not cluster.as_json:
        # Here no node is lost, and nothing is as fast or as slow as the stack's file system.
        saving = None if session.is_local else prepared.saving
        _say(as_typed(_submitted(job, saving, waits=waits or follows)))
    if follows:
        return _follow(job.name, cluster, session)
    state = submitting.wait(submitting.reference_of(job), session) if waits else ""
    if cluster.as_json:
        write_json(_document(job, state))
    elif waits:
        _say(f"The job {job.name} is {state}.")
        if state in FAILURES:
            explain(session, reading.find(session, job.name), cluster)
    return 0 if state in ("", submitting.SUCCEEDED) else FAILED


def _follow(name: str, cluster: ClusterOptions, session: Session) -> int:
    """Print rank 0's log until the end, as `trn logs -f` does; return the exit code."""
    job = reading.find(session, name)
    wanted = logs.choose(job, logs.LogOptions(follow=True))
    code = follow(session, job, wanted, Printer(cluster, wanted))
    if code == INTERRUPTED:
        _say(as_typed(f"The job {name} goes on: trn logs {name} -f · trn cancel {name}"))
    return code


def _document(job: TrainingJob, state: str) -> dict[str, Any]:
    return {
        "schemaVersion": SCHEMA_VERSION,
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
        "checkpointSeconds": interval_seconds(job.env),
        "state": state or None,
    }


def _submitted(job: TrainingJob, saving: Goodput | None, *, waits: bool) -> str:
    lines = [f"Submitted {job.name}: {job.program} on {_size(job)} of {job.instance.name}, queue {job.queue}."]
    if job.output:
        lines.append(f"  Output: {job.output}")
    if saving is not None:
        lines.append(f"  Checkpoints: {_saving(saving)}")
    if job.cache is not None:
        lines.append(f"  Compile cache: {job.cache.directory}")
    if job.capacity_ends:
        lines.append(f"  The nodes' Capacity Block ends at {job.capacity_ends}; save before.")
    if not waits:
        lines.append(f"  Watch: trn status {job.name} · trn logs {job.name} -f")
    return "\n".join(lines)


def _saving(proposed: Goodput) -> str:
    from trainium_eks.cli.shared.durations import duration

    run = proposed.run
    mean = run.seconds_between_faults
    between = f", a fault every {duration(mean)}" if math.isfinite(mean) else ""
    takes = duration(run.checkpoint_seconds) if run.checkpoint_seconds >= 1 else "less than a second"
    return (
        f"every {duration(proposed.interval_seconds)} ({VARIABLE}); each takes {takes}{between}: "
        f"{100 * proposed.useful_fraction:.1f} % of the time is useful."
    )


def _size(job: TrainingJob) -> str:
    nodes = "1 node" if job.nodes == 1 else f"{job.nodes} nodes"
    ranks = "1 rank" if job.ranks_per_node == 1 else f"{job.ranks_per_node} ranks"
    return f"{nodes} with {ranks}" + (" each" if job.nodes > 1 else "")


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
