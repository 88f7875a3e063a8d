"""Planning of a researcher's job: from options to a submission, or to all reasons against it."""

import shlex
from dataclasses import replace

from trainium_eks.client import train_facts
from trainium_eks.client.failure import UsageError
from trainium_eks.client.notices import Say
from trainium_eks.client.session import Session
from trainium_eks.client.train_request import local_example, read_options, request_of
from trainium_eks.jobs.objects import forms
from trainium_eks.jobs.objects.options import Form, TrainOptions
from trainium_eks.jobs.submit import planning
from trainium_eks.jobs.submit.requests import Submission
from trainium_eks.model.validation.problems import Severity

SUCCEEDED = "Completed"
"""State of a job after all its ranks have ended well."""


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
    # A missing script file is reported once, not also as a missing option.
    problems = [*([wrong] if wrong else []), *(each for each in found if not (wrong and each.path == wrong.path))]
    if isinstance(planned, tuple) or wrong is not None:
        refused = [each for each in problems if each.severity is Severity.REFUSE]
        name = "the job" if isinstance(planned, tuple) else f"the job {planned.job.name}"
        raise UsageError(f"{name} was not submitted", refused, spell=str)
    return replace(planned, workspace=workspace)


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
