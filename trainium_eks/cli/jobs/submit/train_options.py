"""Options of ``trn train``, and their job request."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from trainium_eks.cli.shared.failure import WRONG_USAGE, Failure
from trainium_eks.jobs.data.workspace import Workspace, pack
from trainium_eks.jobs.objects.job import BACKENDS, FORMS, Backend, Form, Kind, Program, Topology, TopologyMode
from trainium_eks.jobs.submit.examples import EXAMPLES
from trainium_eks.jobs.submit.requests import JobRequest
from trainium_eks.model.validation.problems import Problem, nearest

IMAGE_PREFIX = "image:"
"""Before a script's path: a file of the image, also where this machine has one of that path."""


@dataclass(frozen=True)
class TrainOptions:
    """The options of one call."""

    kind: Kind = "train"
    form: str = "volcano"
    script: str = ""
    module: str = ""
    example: str = ""
    script_args: str = ""
    arguments: tuple[str, ...] = ()
    """After ``--``."""
    workspace: Path | None = None
    group: str | None = None
    instance_type: str | None = None
    nodes: int | None = None
    ranks_per_node: int | None = None
    image: str | None = None
    precision: str = "bf16"
    backend: str | None = None
    cache_set: str = ""
    compiler: str = ""
    queue: str | None = None
    priority: str = ""
    name: str = ""
    retries: int | None = None
    max_restarts: int = 0
    grace: int | None = None
    checkpoint_seconds: float | None = None
    state_gb: float | None = None
    topology: str | None = None
    tier: int = 1
    rendezvous: str = ""
    env: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    hf_secret: str = ""
    detach: bool = False
    wait: bool = False
    dry_run: bool = False
    torchx: bool = False
    metrics: bool = True
    scale: bool = True


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
    request = JobRequest(
        program=program,
        kind=asked.kind,
        form=cast("Form", _one_of("--kind", asked.form, FORMS)),
        name=asked.name,
        group=asked.group,
        instance_type=asked.instance_type,
        nodes=asked.nodes,
        ranks_per_node=asked.ranks_per_node,
        precision=asked.precision,
        backend=cast("Backend | None", _one_of("--backend", asked.backend, BACKENDS)),
        cache_set=asked.cache_set,
        compiler=asked.compiler,
        queue=asked.queue,
        priority=asked.priority,
        retries=asked.retries,
        restarts_in_place=asked.max_restarts,
        grace_seconds=asked.grace,
        topology=_topology(asked),
        rendezvous=_one_of("--rendezvous", asked.rendezvous or None, ("c10d", "etcd")) or "",
        env=_variables(asked.env),
        data=asked.data,
        hf_secret=asked.hf_secret,
        has_workspace=workspace is not None,
        checkpoint_seconds=asked.checkpoint_seconds,
        state_gigabytes=asked.state_gb,
        has_metrics=asked.metrics,
    )
    return request, workspace, wrong


def _program(asked: TrainOptions) -> tuple[Program, Workspace | None, Problem | None]:
    """Return a script of this machine with the files that travel with it; or an absolute path, or a script for TorchX,
    without files, as a file of the image."""
    arguments = (*_words(asked.script_args), *asked.arguments)
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


def _topology(asked: TrainOptions) -> Topology | None:
    mode = _one_of("--topology", asked.topology, ("hard", "soft"))
    return Topology(cast("TopologyMode", mode), asked.tier) if mode else None


def _one_of(option: str, word: str | None, words: Sequence[str]) -> str | None:
    if word is not None and word not in words:
        raise Failure(WRONG_USAGE, f"{option} {word}: there are {', '.join(words)}")
    return word


def _variables(pairs: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise Failure(WRONG_USAGE, f"--env {pair}: write it as NAME=VALUE")
        found[name] = value
    return found
