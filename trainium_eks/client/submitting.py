"""Submission of a researcher's job: from options to an object of the cluster, and to its end."""

import shlex
import time
from dataclasses import dataclass, field
from typing import Any

from trainium_eks.client import train_facts
from trainium_eks.client.failure import FAILED, WRONG_USAGE, CommandError
from trainium_eks.client.notices import Say
from trainium_eks.client.session import Session
from trainium_eks.client.train_request import local_example, request_of, taken
from trainium_eks.jobs.data.workspace import Workspace
from trainium_eks.jobs.objects import capacity_block, forms
from trainium_eks.jobs.objects.job import TrainingJob
from trainium_eks.jobs.objects.options import Form, TrainOptions
from trainium_eks.jobs.observed.watched import of as watched_job
from trainium_eks.jobs.submit import planning, submission
from trainium_eks.jobs.submit.requests import Plan
from trainium_eks.kube.api import ApiError, NoSuchKindError, ObjectReference
from trainium_eks.kube.errors import ClusterError
from trainium_eks.model.outputs import NodeGroupOutput
from trainium_eks.model.sizing.goodput import Goodput
from trainium_eks.model.validation.problems import Problem, Severity

SUCCEEDED = "Completed"
"""State of a job after all its ranks have ended well."""

LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class PreparedJob:
    """A job that can be submitted."""

    job: TrainingJob
    group: NodeGroupOutput
    objects: list[dict[str, Any]]
    """Objects to submit; the job itself is the last."""
    workspace: Workspace | None
    warnings: tuple[Problem, ...] = field(default=())
    saving: Goodput | None = None
    """Proposed interval of checkpoints; None where the caller chose it."""


def prepare(asked: TrainOptions, session: Session, say: Say) -> PreparedJob:
    """Return the requested job, validated."""
    asked = taken(asked)
    if session.is_local:
        small = local_example(asked)
        if small.arguments != asked.arguments:
            say(f"A small one, for this machine: --example {asked.example} -- {shlex.join(small.arguments)}")
        asked = small
    request, workspace, wrong = request_of(asked)
    facts = train_facts.gather(asked, request.kind, session)
    plan = planning.plan(request, session.outputs, session.namespace, facts)
    # A script that is not there is said once, not as a missing script as well.
    others = [each for each in plan.problems if not (wrong and each.path == wrong.path)]
    problems = [*([wrong] if wrong else []), *others]
    if plan.job is None or plan.group is None or wrong is not None:
        refused = [each for each in problems if each.severity is Severity.REFUSE]
        raise CommandError(WRONG_USAGE, f"{_name_job(plan)} was not submitted", refused, spell=str)
    return PreparedJob(plan.job, plan.group, forms.objects(plan.job), workspace, tuple(problems), plan.saving)


def _name_job(plan: Plan) -> str:
    return f"the job {plan.job.name}" if plan.job else "the job"


def validate(prepared: PreparedJob, session: Session, say: Say) -> None:
    """Let the API server validate the job without creating it."""
    try:
        submission.validate(session.api, prepared.objects, say)
    except NoSuchKindError:
        raise CommandError(FAILED, no_controller(prepared.job.form, session)) from None


def submit(prepared: PreparedJob, session: Session, say: Say) -> None:
    """Create the job with the objects and files that belong to it."""
    archive = prepared.workspace.archive if prepared.workspace else ""
    if (job := prepared.job).capacity_block:
        # What is known now is also true for the jobs that run in the block already.
        session.api.apply(capacity_block.config_map(job.namespace, job.capacity_block, job.capacity_ends))
    submission.submit(session.api, prepared.job, prepared.objects, archive, say)


def reference_of(job: TrainingJob) -> ObjectReference:
    """Return the reference of a job's object in the cluster."""
    kind = forms.KINDS[job.form]
    return ObjectReference(kind.api_version, kind.kind, job.namespace, job.name)


def wait(
    job: ObjectReference, session: Session, *, timeout_seconds: float | None = None, away_seconds: float = 0.0
) -> str:
    """Wait until the job has ended; return its state. Raise a TimeoutError when it goes on after that time; outlive an
    API server that is away for so long."""
    begun = answered = time.monotonic()
    while True:
        try:
            found = session.api.get(job)
        except ApiError:
            raise
        except ClusterError:
            if time.monotonic() - answered >= away_seconds:
                raise
        else:
            answered = time.monotonic()
            if found is None:
                raise CommandError(FAILED, f"the job {job.name} was deleted")
            seen = watched_job(found)
            if seen.ended is not None:
                return seen.state
        if timeout_seconds is not None and time.monotonic() - begun >= timeout_seconds:
            raise TimeoutError(f"{job.name} has not ended after {timeout_seconds:g} s")
        time.sleep(LOOK_SECONDS)


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
        return f"{title}; `trn doctor` says what else is missing"
    missing = session.source.local.missing("volcano") if session.source.local else ""
    return f"{title}{f': {missing}' if missing else ''}; `trn doctor` says what runs"
