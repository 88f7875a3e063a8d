"""From the options of ``trn train`` to a submission, or to all reasons against it."""

import functools
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from trainium_eks.client import torchx, train_facts, whole_scaling
from trainium_eks.client.failure import CommandError, UsageError
from trainium_eks.client.notices import Say
from trainium_eks.client.session import Session
from trainium_eks.jobs.data.workspace import Workspace, pack
from trainium_eks.jobs.objects import capacity_block, forms
from trainium_eks.jobs.objects.job import Program
from trainium_eks.jobs.objects.options import Form, TrainOptions, words
from trainium_eks.jobs.submit import planning
from trainium_eks.jobs.submit.examples import EXAMPLES
from trainium_eks.jobs.submit.requests import JobRequest, Submission
from trainium_eks.jobs.submit.submission import submit, validate
from trainium_eks.kube.api import NoSuchKindError, ObjectReference
from trainium_eks.model.validation.problems import Problem, Severity, nearest

IMAGE_PREFIX = "image:"
"""Before a script's path: a file of the image, also where this machine has one of that path."""

_KINDS = {bool: "true or false", int: "a whole number", float: "a number", Path: "a path", str: "text"}
"""Type of a field to the value that it takes, for people."""


def read_options(options: TrainOptions) -> TrainOptions:
    """Return the options in the types of their fields, from values as people write them in Python: a path or a number
    as text, a number among arguments, one text for several arguments (read as a shell reads it), one value in place of
    several, a mapping of variables."""
    given = {each.name: _as_field(each.name, getattr(options, each.name)) for each in fields(options)}
    problems = [
        Problem(_option(name), "it holds a NUL, which no command line can", "leave the NUL out")
        for name, value in given.items()
        if any("\0" in str(part) for part in (value if isinstance(value, tuple) else (value,)))
    ]
    try:
        checked = _model()(**given)
    except ValidationError as error:
        problems += [_problem(str(each["loc"][0]), given, each["msg"]) for each in error.errors()]
    if problems:
        raise UsageError("the job was not submitted", problems, spell=str)
    return replace(options, **dict(checked))


@functools.cache
def _hints() -> dict[str, Any]:
    return get_type_hints(TrainOptions, include_extras=True)


@functools.cache
def _model() -> type[BaseModel]:
    shape: dict[str, Any] = {each.name: (_hints()[each.name], each.default) for each in fields(TrainOptions)}
    return create_model("Options", __config__=ConfigDict(coerce_numbers_to_str=True), **shape)


def _as_field(name: str, value: Any) -> Any:
    """Return a value as a tuple where the field holds several, and paths as texts."""
    if get_origin(get_args(_hints()[name])[0]) is not tuple:
        return str(value) if isinstance(value, Path) else value
    if isinstance(value, Mapping):
        return tuple(f"{key}={text}" for key, text in value.items())
    if name == "arguments" and isinstance(value, str):
        return tuple(_words(value))
    several = value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    return tuple(str(each) if isinstance(each, Path) else each for each in several)


def _option(name: str) -> str:
    return next(iter(get_args(_hints()[name])[1].names), name)


def _problem(name: str, given: Mapping[str, Any], wrong: str) -> Problem:
    hint = get_args(_hints()[name])[0]
    allowed, value = words(hint), given[name]
    reason = "it is not an allowed value" if allowed else wrong[:1].lower() + wrong[1:]
    fix = "" if allowed else f"give {next((text for kind, text in _KINDS.items() if kind in (hint, *get_args(hint))))}"
    shown = value if isinstance(value, str | int | float) else str(value)
    return Problem(_option(name), reason, fix, value=shown, allowed=allowed, good=nearest(str(value), allowed))


def local_example(options: TrainOptions) -> TrainOptions:
    """Return an example on a local stack, small where no arguments are given: this machine's CPU does the work."""
    example = EXAMPLES.get(options.example)
    if example is None or options.arguments or options.script_args:
        return options
    return replace(options, arguments=example.local_arguments)


def request_of(options: TrainOptions) -> tuple[JobRequest, Workspace | None, Problem | None]:
    """Return the request, the files that travel with it, and their problem."""
    program, workspace, wrong = _program(options)
    given = {each.name: getattr(options, each.name) for each in fields(options)}
    if options.bf16 is not None:
        given["precision"] = "bf16" if options.bf16 else "fp32"
    has_workspace = workspace is not None
    request = JobRequest(**given, program=program, variables=_variables(options.env), has_workspace=has_workspace)
    return request, workspace, wrong


def _program(options: TrainOptions) -> tuple[Program, Workspace | None, Problem | None]:
    """Return a script of this machine with the files that travel with it; or an absolute path, or a script for TorchX,
    without files, as a file of the image."""
    arguments = (*_words(options.script_args), *options.arguments)
    module = options.module or _example(options.example)
    script, is_images = options.script.removeprefix(IMAGE_PREFIX), options.script.startswith(IMAGE_PREFIX)
    if not script or is_images or options.torchx:
        return Program(script, module, arguments), None, _unused(options.workspace)
    if options.workspace is not None and Path(script).is_relative_to(options.workspace.absolute()):
        script = str(Path(script).relative_to(options.workspace.absolute()))
    if script.startswith("/"):
        return Program(script, module, arguments), None, _of_this_machine(Path(script), options.workspace)
    packed = pack(script, options.workspace)
    if isinstance(packed, Problem):
        return Program(script, module, arguments), None, packed
    return Program(packed.script, module, arguments), packed, None


def _unused(workspace: Path | None) -> Problem | None:
    """Return a problem for a directory that would stay behind."""
    if workspace is None:
        return None
    fix = "name the file in it: --script FILE; or leave it out, and build the code into the image"
    return Problem("--workspace", "it is used only with a script", fix, value=str(workspace))


def _of_this_machine(script: Path, workspace: Path | None) -> Problem | None:
    """Return a problem for an absolute path that is read as the image's but likely means this machine's file."""
    if not script.is_file() and workspace is None:
        return None
    reason = "an absolute path is a file of the image, and does not travel"
    fix = (
        f"let its directory travel: --workspace {script.parent} --script {script.name}; "
        f"if the image has this very path: --script {IMAGE_PREFIX}{script}"
    )
    return Problem("--script", reason, fix, value=str(script))


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--script-args cannot be read as words of a shell ({error}): {text}") from None


def _example(name: str) -> str:
    if name and name not in EXAMPLES:
        near = nearest(name, EXAMPLES)
        meant = f"; did you mean {near}?" if near else ""
        raise UsageError(f"--example {name}: there are {', '.join(EXAMPLES)}{meant}")
    return EXAMPLES[name].module if name else ""


def _variables(pairs: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--env {pair}: write it as NAME=VALUE")
        found[name] = value
    return found


def plan(options: TrainOptions, session: Session, say: Say) -> Submission:
    """Return the job of the options, with all that belongs to it. CommandError: refused, with all problems."""
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


def create(submission: Submission, session: Session, say: Say) -> ObjectReference:
    """Let the API server validate the job, scale its node group up, and create it, or let TorchX do so; return its
    object. CommandError: its kind is not served."""
    job, objects = submission.job, submission.objects
    try:
        validate(session.api, objects, say)
    except NoSuchKindError:
        raise CommandError(no_controller(job.form, session)) from None
    if job.options.scale:
        whole_scaling.for_gang(session, submission.group, job.nodes, say, job.options.all_or_nothing)
    reference = session.api.reference(objects[-1])
    if job.options.torchx:
        return replace(reference, name=torchx.submit(job, session))
    if job.capacity_block and not job.capacity_group:
        # What is known now is also true for the jobs that run in the block already.
        session.api.apply(capacity_block.config_map(job.namespace, job.capacity_block, job.capacity_ends))
    submit(session.api, job, objects, submission.workspace.archive if submission.workspace else "", say)
    return reference
