"""Submission of a researcher's job: from options to an object of the cluster, and to its end."""

import shlex
import time
from dataclasses import replace

from trainium_eks.client import train_facts
from trainium_eks.client.failure import FAILED, WRONG_USAGE, CommandError
from trainium_eks.client.notices import Say
from trainium_eks.client.session import Session
from trainium_eks.client.train_request import local_example, read_options, request_of
from trainium_eks.jobs.objects import capacity_block, forms
from trainium_eks.jobs.objects.job import TrainingJob
from trainium_eks.jobs.objects.options import Form, TrainOptions
from trainium_eks.jobs.observed.watched import of as watched_job
from trainium_eks.jobs.submit import planning, submission
from trainium_eks.jobs.submit.requests import Submission
from trainium_eks.kube.api import ApiError, NoSuchKindError, ObjectReference
from trainium_eks.kube.errors import ClusterError
from trainium_eks.model.validation.problems import Severity

SUCCEEDED = "Completed"
"""State of a job after all its ranks have ended well."""

LOOK_SECONDS = 0.5


def plan(options: TrainOptions, session: Session, say: Say) -> Submission:
    """Return the job of the options, with all that belongs to it.

    Raises:
        CommandError: refused, with all problems.
    """
    options = read_options(options)
    if session.is_local:
        small = local_example(options)
        if small.arguments != options.arguments:
            say(f"A small one, for this machine: --example {options.example} -- {shlex.join(small.arguments)}")
        options = small
    request, workspace, wrong = request_of(options)
    facts = train_facts.gather(options, request.kind, session)
    planned = planning.plan(request, session.outputs, session.namespace, facts)
    found = planned if isinstance(planned, tuple) else planned.warnings
    # A script that is not there is said once, not as a missing script as well.
    problems = [*([wrong] if wrong else []), *(each for each in found if not (wrong and each.path == wrong.path))]
    if isinstance(planned, tuple) or wrong is not None:
        refused = [each for each in problems if each.severity is Severity.REFUSE]
        name = "the job" if isinstance(planned, tuple) else f"the job {planned.job.name}"
        raise CommandError(WRONG_USAGE, f"{name} was not submitted", refused, spell=str)
    return replace(planned, workspace=workspace)


def validate(submitted: Submission, session: Session, say: Say) -> None:
    """Let the API server validate the job without creating it."""
    try:
        submission.validate(session.api, submitted.objects, say)
    except NoSuchKindError:
        raise CommandError(FAILED, no_controller(submitted.job.form, session)) from None


def submit(submitted: Submission, session: Session, say: Say) -> None:
    """Create the job with the objects and files that belong to it."""
    archive = submitted.workspace.archive if submitted.workspace else ""
    if (job := submitted.job).capacity_block:
        # What is known now is also true for the jobs that run in the block already.
        session.api.apply(capacity_block.config_map(job.namespace, job.capacity_block, job.capacity_ends))
    submission.submit(session.api, submitted.job, submitted.objects, archive, say)


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
