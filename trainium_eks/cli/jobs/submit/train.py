"""``trn train`` and ``trn compile``: from a command line to a gang that runs."""

import json
import math
import shlex
import sys
import time
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from trainium_eks.cli.jobs.submit import scale, train_facts
from trainium_eks.cli.jobs.submit.train_options import local_example, request_of
from trainium_eks.cli.jobs.submit.train_torchx import component, submit_by_torchx
from trainium_eks.cli.shared.cluster_options import ClusterOptions
from trainium_eks.cli.shared.failure import FAILED, INTERRUPTED, WRONG_USAGE, Failure, as_typed
from trainium_eks.cli.shared.output import write, write_json
from trainium_eks.cli.shared.session import Session, open_session
from trainium_eks.jobs.data.workspace import Workspace
from trainium_eks.jobs.explain.watched import of as watched_job
from trainium_eks.jobs.objects import forms, torchx_app, volcano_job
from trainium_eks.jobs.objects.job import TrainingJob
from trainium_eks.jobs.objects.options import Form, TrainOptions
from trainium_eks.jobs.submit import planning, submission
from trainium_eks.jobs.submit.requests import Plan
from trainium_eks.jobs.submit.saving import VARIABLE, interval_seconds
from trainium_eks.kube.api import NoSuchKind, ObjectReference
from trainium_eks.model.outputs import NodeGroupOutput
from trainium_eks.model.sizing.goodput import Goodput
from trainium_eks.model.validation.problems import Problem, Severity, describe
from trainium_eks.plan.graph import SCHEMA_VERSION

SUCCEEDED = "Completed"
"""State of a job after all its ranks have ended well."""

LOOK_SECONDS = 0.5
"""Seconds between two reads of an awaited job."""


@dataclass(frozen=True)
class Prepared:
    """A job that can be submitted."""

    job: TrainingJob
    group: NodeGroupOutput
    objects: list[dict[str, Any]]
    """Objects to submit; the job itself is the last."""
    workspace: Workspace | None
    warnings: tuple[Problem, ...] = field(default=())
    saving: Goodput | None = None
    """Proposed interval of checkpoints; None where the caller chose it."""


def run(asked: TrainOptions, cluster: ClusterOptions) -> int:
    """Run ``trn train`` or ``trn compile``; return the exit code, without ``--detach`` the job's."""
    if asked.on == "sagemaker":
        from trainium_eks.cli.jobs.submit import train_sagemaker

        return train_sagemaker.run(asked, cluster)
    with open_session(cluster) as session:
        prepared = prepare(asked, session)
        _warn(prepared, session)
        if asked.dry_run:
            return _show(prepared, cluster)
        return _submit(prepared, asked, cluster, session)


def prepare(asked: TrainOptions, session: Session) -> Prepared:
    """Return the requested job, validated.

    Raises:
        Failure: with all problems.
        ClusterError: the cluster or AWS does not answer.
    """
    if session.is_local:
        small = local_example(asked)
        if small.arguments != asked.arguments:
            _say(f"A small one, for this machine: --example {asked.example} -- {shlex.join(small.arguments)}")
        asked = small
    request, workspace, wrong = request_of(asked)
    facts = train_facts.gather(asked, request.form, session)
    plan = planning.plan(request, session.outputs, session.namespace, facts)
    # A script that is not there is said once, not as a missing script as well.
    others = [each for each in plan.problems if not (wrong and each.path == wrong.path)]
    problems = [*([wrong] if wrong else []), *others]
    if plan.job is None or plan.group is None or wrong is not None:
        refused = [each for each in problems if each.severity is Severity.REFUSE]
        raise Failure(WRONG_USAGE, f"{_what(plan)} was not submitted", refused, spell=str)
    return Prepared(plan.job, plan.group, forms.objects(plan.job), workspace, tuple(problems), plan.saving)


def _what(plan: Plan) -> str:
    return f"the job {plan.job.name}" if plan.job else "the job"


def _warn(prepared: Prepared, session: Session) -> None:
    if prepared.warnings:
        _say(describe(prepared.warnings))
    if session.is_local:
        job = prepared.job
        _say(
            f"Local cloud: backend {job.backend}, {_size(job)}; devices are accounted for, "
            "this machine's CPU does the work."
        )


def _show(prepared: Prepared, cluster: ClusterOptions) -> int:
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


def _submit(prepared: Prepared, asked: TrainOptions, cluster: ClusterOptions, session: Session) -> int:
    job = prepared.job
    try:
        submission.validate(session.api, prepared.objects, _say)
    except NoSuchKind:
        raise Failure(FAILED, no_controller(job.form, session)) from None
    if asked.scale:
        scale.for_gang(session, prepared.group, job.nodes, _say)
    if asked.torchx:
        job = replace(job, name=submit_by_torchx(job, session))
    else:
        archive = prepared.workspace.archive if prepared.workspace else ""
        submission.submit(session.api, job, prepared.objects, archive, _say)
    follows = not (asked.detach or asked.wait or cluster.as_json)
    waits = asked.wait and not asked.detach
    if not cluster.as_json:
        _say(as_typed(_submitted(job, prepared.saving, waits=waits or follows)))
    if follows:
        return _follow(job.name, cluster, session)
    state = _wait(job, session) if waits else ""
    if cluster.as_json:
        write_json(_document(job, state))
    elif waits:
        _say(f"The job {job.name} is {state}.")
    return 0 if state in ("", SUCCEEDED) else FAILED


def _follow(name: str, cluster: ClusterOptions, session: Session) -> int:
    """Print rank 0's log until the end, as `trn logs -f` does; return the exit code."""
    from trainium_eks.cli.jobs.watch import follow, live_logs, reading

    job = reading.find(session, name)
    wanted = live_logs.choose(job, live_logs.LogOptions(follow=True))
    code = follow.follow(session, job, wanted, live_logs.Printer(cluster, wanted))
    if code == INTERRUPTED:
        _say(as_typed(f"The job {name} goes on: trn logs {name} -f · trn cancel {name}"))
    return code


def _wait(job: TrainingJob, session: Session) -> str:
    """Wait until the job has ended; return its state."""
    kind = forms.KINDS[job.form]
    reference = ObjectReference(kind.api_version, kind.kind, job.namespace, job.name)
    while True:
        found = session.api.get(reference)
        if found is None:
            raise Failure(FAILED, f"the job {job.name} was deleted")
        seen = watched_job(found)
        if seen.ended is not None:
            return seen.state
        time.sleep(LOOK_SECONDS)


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


def no_controller(form: Form, session: Session) -> str:
    """Return the message for a cluster without the controller that runs this kind of job."""
    if form == "volcano":
        return _no_volcano(session)
    kind = forms.KINDS[form]
    title = f"there is no {kind.runner} in this cluster, which runs {kind.kind}s"
    fix = f"`{kind.config}` in the stack's config brings it, or submit without --kind"
    missing = session.source.local.missing(kind.part) if session.source.local else ""
    return f"{title}{f' ({missing})' if missing else ''}; {fix}"


def _no_volcano(session: Session) -> str:
    title = "there is no Volcano in this cluster, which starts gangs"
    if not session.is_local:
        return f"{title}; `trn verify` says what else is missing"
    missing = session.source.local.missing("volcano") if session.source.local else ""
    return f"{title}{f': {missing}' if missing else ''}; `trn local status` says what runs"


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
