"""Job request of the options of ``trn train``."""

import shlex
from dataclasses import fields, replace
from pathlib import Path
from typing import get_args, get_type_hints

from trainium_eks.client.failure import WRONG_USAGE, Failure
from trainium_eks.jobs.data.workspace import Workspace, pack
from trainium_eks.jobs.objects.job import TITAN_MODULE, Program
from trainium_eks.jobs.objects.options import TrainOptions, words
from trainium_eks.jobs.submit.examples import EXAMPLES
from trainium_eks.jobs.submit.requests import JobRequest
from trainium_eks.model.validation.problems import Problem, nearest

IMAGE_PREFIX = "image:"
"""Before a script's path: a file of the image, also where this machine has one of that path."""


def local_example(asked: TrainOptions) -> TrainOptions:
    """Return an example on a local stack, small where no arguments are given: this machine's CPU does the work."""
    example = EXAMPLES.get(asked.example)
    if example is None or asked.arguments or asked.script_args:
        return asked
    return replace(asked, arguments=example.local_arguments)


def request_of(asked: TrainOptions) -> tuple[JobRequest, Workspace | None, Problem | None]:
    """Return the request, the files that travel with it, and their problem.

    Raises:
        Failure: an option that cannot be read.
    """
    program, workspace, wrong = _program(asked)
    _check_words(asked)
    given = {each.name: getattr(asked, each.name) for each in fields(asked)}
    if asked.bf16 is not None:
        given["precision"] = "bf16" if asked.bf16 else "fp32"
    has_workspace = workspace is not None
    request = JobRequest(**given, program=program, variables=_variables(asked.env), has_workspace=has_workspace)
    return request, workspace, wrong


def _check_words(asked: TrainOptions) -> None:
    """Raise a :class:`Failure` for an option that is none of the words of its field's ``Literal`` type."""
    for name, hint in get_type_hints(TrainOptions, include_extras=True).items():
        kind, option = get_args(hint)
        allowed, word = words(kind), getattr(asked, name)
        if allowed and word not in (getattr(TrainOptions, name), *allowed):
            raise Failure(WRONG_USAGE, f"{option.names[0]} {word}: there are {', '.join(allowed)}")


def _program(asked: TrainOptions) -> tuple[Program, Workspace | None, Problem | None]:
    """Return a script of this machine with the files that travel with it; or an absolute path, or a script for TorchX,
    without files, as a file of the image."""
    arguments = (*_words(asked.script_args), *asked.arguments)
    if asked.titan:
        return Program(module=TITAN_MODULE, arguments=arguments), None, None
    module = asked.module or _example(asked.example)
    script, is_images = asked.script.removeprefix(IMAGE_PREFIX), asked.script.startswith(IMAGE_PREFIX)
    if not script or is_images or asked.torchx:
        return Program(script, module, arguments), None, None
    if asked.workspace is not None and Path(script).is_relative_to(asked.workspace.absolute()):
        script = str(Path(script).relative_to(asked.workspace.absolute()))
    if script.startswith("/"):
        return Program(script, module, arguments), None, _of_this_machine(Path(script), asked.workspace)
    packed = pack(script, asked.workspace)
    if isinstance(packed, Problem):
        return Program(script, module, arguments), None, packed
    return Program(packed.script, module, arguments), packed, None


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
        raise Failure(WRONG_USAGE, f"--script-args cannot be read as words of a shell ({error}): {text}") from None


def _example(name: str) -> str:
    if name and name not in EXAMPLES:
        near = nearest(name, EXAMPLES)
        meant = f"; did you mean {near}?" if near else ""
        raise Failure(WRONG_USAGE, f"--example {name}: there are {', '.join(EXAMPLES)}{meant}")
    return EXAMPLES[name].module if name else ""


def _variables(pairs: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise Failure(WRONG_USAGE, f"--env {pair}: write it as NAME=VALUE")
        found[name] = value
    return found
