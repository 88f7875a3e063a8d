"""Options that all trainings share."""

import argparse
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from trainium_workloads.training.refusal import Refusal

BackendName = Literal["cpu", "cuda", "xla", "neuron"]
Precision = Literal["fp32", "tf32", "bf16", "fp16", "fp8"]
Schedule = Literal["linear", "cosine", "constant"]
OptimizerName = Literal["adamw", "lamb"]

PRECISIONS: Mapping[str, tuple[Precision, ...]] = {
    "cpu": ("fp32", "bf16"),
    "cuda": ("fp32", "tf32", "bf16", "fp16"),
    # By casts of the compiler (neuronx-cc's --auto-cast-type), but for bf16.
    "xla": ("fp32", "tf32", "bf16", "fp16", "fp8"),
    "neuron": ("fp32", "bf16"),
}
"""Precisions of each backend."""


@dataclass(frozen=True)
class Options:
    """Options of a training."""

    steps: int = 1000
    """Updates of the whole training: the length of the schedule."""
    steps_this_run: int = 0
    """Updates after which this run ends well; 0 or -1 for all. A compilation needs few."""
    batch_size: int = 8
    """Examples of a micro-batch, in each rank."""
    accumulate: int = 1
    """Micro-batches of an update."""
    learning_rate: float = 1e-4
    warmup_steps: int = 0
    """In which the rate rises from 0."""
    schedule: Schedule = "linear"
    """How it falls to 0 afterwards; ``constant`` does not."""
    optimizer: OptimizerName = "adamw"
    weight_decay: float = 0.01
    """Not of biases and norms."""
    clip: float = 1.0
    """Greatest norm of all gradients together; 0 for no limit."""
    seed: int = 42
    precision: Precision = "bf16"
    stochastic_rounding: bool = False
    """Parameters in BF16, each update rounded up or down by chance: by the hardware on Trainium, by us elsewhere."""
    backend: BackendName = "cpu"
    eager: bool = False
    """PyTorch/XLA's eager debug mode: operations run one by one."""
    compile: bool = False
    """``torch.compile`` the model; not on ``xla``, which traces by itself."""
    output: Path = Path("output")
    """Directory of checkpoints and logs, the same for all ranks."""
    checkpoint_every: int = 0
    """Updates between two checkpoints; 0 for no such rule. The last update is always saved."""
    checkpoint_seconds: float = 600.0
    """Time between two checkpoints; 0 for no such rule."""
    keep: int = 3
    """Complete checkpoints that stay."""
    resume: bool = True
    """Whether to go on from the newest complete checkpoint of ``output``."""
    log_every: int = 1
    """Updates between two step lines: each fetches the loss from the device."""
    workers: int = 0
    """Processes that read examples, for each rank; 0: the rank itself."""


_HELP: Mapping[str, str] = {
    "steps": "updates of the whole training",
    "steps_this_run": "end well after so many; 0 or -1: all",
    "batch_size": "examples of a micro-batch, in each rank",
    "accumulate": "micro-batches of an update",
    "learning_rate": "at the end of the warm-up",
    "warmup_steps": "updates in which the rate rises from 0",
    "schedule": "how the rate falls to 0 afterwards",
    "weight_decay": "not of biases and norms",
    "clip": "greatest norm of all gradients together; 0: no limit",
    "checkpoint_every": "updates between two checkpoints; 0: by time alone",
    "checkpoint_seconds": "time between two checkpoints; 0: by updates alone",
    "keep": "complete checkpoints that stay",
    "log_every": "updates between two step lines",
    "workers": "processes that read examples, for each rank",
    "output": "directory of checkpoints and logs; default: TRN_OUTPUT_DIR, else ./output",
    "seed": "of initial weights, order and dropout",
    "optimizer": "",
}
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "schedule": ("linear", "cosine", "constant"),
    "optimizer": ("adamw", "lamb"),
    "precision": ("fp32", "tf32", "bf16", "fp16", "fp8"),
    "backend": ("cpu", "cuda", "xla", "neuron"),
}


def add_options(parser: argparse.ArgumentParser, defaults: Options, aliases: Mapping[str, str] | None = None) -> None:
    """Add the shared options to a script's own.

    Args:
        parser: of the script.
        defaults: of this training; variables of the environment (``TRN_OUTPUT_DIR``, ``TRN_BACKEND``,
            ``TRN_PRECISION``, ``TRN_CHECKPOINT_SECONDS``, ``NEURON_RT_STOCHASTIC_ROUNDING_EN``) come before them.
        aliases: further names, by the field of :class:`Options`: ``{"accumulate": "--grad_accum_usteps"}``.
    """
    group = parser.add_argument_group("training")
    environment = _environment()
    for field in fields(Options):
        default = environment.get(field.name, getattr(defaults, field.name))
        names = [*_spellings(field.name), *filter(None, [(aliases or {}).get(field.name)])]
        settings: dict[str, Any] = {"dest": field.name, "default": default}
        if isinstance(default, bool):
            settings["action"] = argparse.BooleanOptionalAction
        else:
            settings |= {"type": field.type if field.type in (int, float, Path) else str}
            settings |= {"choices": _CHOICES[field.name]} if field.name in _CHOICES else {"metavar": _metavar(default)}
        group.add_argument(*names, help=f"{_HELP.get(field.name, '')} (default: %(default)s)".strip(), **settings)


def options_of(arguments: argparse.Namespace) -> Options:
    """Return the options that were given.

    Raises:
        Refusal: with all invalid values.
    """
    options = Options(**{field.name: getattr(arguments, field.name) for field in fields(Options)})
    wrong = _problems(options)
    if wrong:
        raise Refusal("; ".join(wrong))
    return options


def _problems(options: Options) -> list[str]:
    wrong = [
        f"{_spellings(name)[0]} must be {least} or more, not {getattr(options, name)}"
        for name, least in (
            *(("steps", 1), ("batch_size", 1), ("accumulate", 1), ("keep", 1), ("log_every", 1), ("seed", 0)),
            *(("steps_this_run", -1), ("warmup_steps", 0), ("weight_decay", 0), ("clip", 0), ("workers", 0)),
            *(("checkpoint_every", 0), ("checkpoint_seconds", 0)),
        )
        if not getattr(options, name) >= least  # of a float that is no number, too
    ]
    if not (math.isfinite(options.learning_rate) and options.learning_rate > 0):
        wrong.append(f"--learning-rate must be greater than 0, not {options.learning_rate}")
    allowed = PRECISIONS[options.backend]
    if options.precision not in allowed:
        wrong.append(f"backend {options.backend} has no --precision {options.precision}: use {', '.join(allowed)}")
    if options.stochastic_rounding and options.precision != "bf16" and options.backend in ("cpu", "cuda"):
        wrong.append(f"--stochastic-rounding is for --precision bf16, not {options.precision}")
    if options.eager and options.backend != "xla":
        wrong.append(f"--eager is for backend xla: {options.backend} runs each operation by itself anyway")
    if options.compile and options.backend == "xla":
        wrong.append("--compile is not for backend xla, which traces and compiles by itself")
    return wrong


def _environment() -> dict[str, Any]:
    """Return the launcher's settings, by field."""
    found: dict[str, Any] = {}
    for name, variable, kind in (
        ("output", "TRN_OUTPUT_DIR", Path),
        ("backend", "TRN_BACKEND", str),
        ("precision", "TRN_PRECISION", str),
        ("checkpoint_seconds", "TRN_CHECKPOINT_SECONDS", float),
    ):
        if text := os.environ.get(variable):
            try:
                found[name] = kind(text)
            except ValueError:
                raise Refusal(f"{variable} must be a number of seconds, not {text!r}") from None
            if name in _CHOICES and text not in _CHOICES[name]:
                raise Refusal(f"{variable} must be one of {', '.join(_CHOICES[name])}, not {text!r}")
    if os.environ.get("NEURON_RT_STOCHASTIC_ROUNDING_EN") == "1":
        found["stochastic_rounding"] = True
    return found


def _spellings(name: str) -> list[str]:
    """Return both spellings: ``--batch-size``, and ``--batch_size`` as older scripts have it."""
    return list(dict.fromkeys([f"--{name.replace('_', '-')}", f"--{name}"]))


def _metavar(default: object) -> str:
    return {int: "N", float: "X"}.get(type(default), "DIR")
