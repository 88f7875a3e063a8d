"""Options that all trainings share."""

import argparse
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

from trainium_workloads.training.refusal import RefusalError

# ruff: noqa: RUF009 - the calls make fields

BackendName = Literal["cpu", "cuda", "xla", "neuron"]
TrackerName = Literal["none", "mlflow", "wandb", "both"]
Precision = Literal["fp32", "tf32", "bf16", "fp16", "fp8"]

ONLY_COMPILES = "NEURON_EXTRACT_GRAPHS_ONLY"
"""Set by ``neuron_parallel_compile``: graphs are traced and compiled, and their results are made up."""

PRECISIONS: Mapping[str, tuple[Precision, ...]] = {
    "cpu": ("fp32", "bf16"),
    "cuda": ("fp32", "tf32", "bf16", "fp16"),
    # By casts of the compiler (neuronx-cc's --auto-cast-type), but for bf16.
    "xla": ("fp32", "tf32", "bf16", "fp16", "fp8"),
    "neuron": ("fp32", "bf16"),
}
"""Precisions of each backend."""


NEEDS: Sequence[tuple[str, object, str, object]] = (
    ("patience", 0, "eval_every", None),
    ("eager", False, "backend", "xla"),
)
"""Options that do nothing without another one: see :func:`alone`."""

_METAVARS: Mapping[Any, str] = {int: "N", float: "X", str: "NAME", Path: "PATH"}


def _option(default: Any, help: str = "", least: float | None = None) -> Any:
    """Return a field with its text for ``--help``, and the least number that is allowed."""
    return field(default=default, metadata={"help": help, "least": least})


@dataclass(frozen=True)
class Options:
    """Options of a training. Each is an option of the command line."""

    steps: int = _option(1000, "updates of the whole training: the length of the schedule", 1)
    steps_this_run: int = _option(0, "end well after so many updates; 0 or -1: all", -1)
    batch_size: int = _option(8, "examples of a micro-batch, in each rank", 1)
    accumulate: int = _option(1, "micro-batches of an update", 1)
    learning_rate: float = _option(1e-4, "at the end of the warm-up")
    warmup_steps: int = _option(0, "updates in which the rate rises from 0", 0)
    schedule: Literal["linear", "cosine", "constant"] = _option("linear", "how the rate falls to 0 afterwards")
    optimizer: Literal["adamw", "lamb"] = _option("adamw")
    weight_decay: float = _option(0.01, "not of biases and norms", 0)
    clip: float = _option(1.0, "greatest norm of all gradients together; 0: no limit", 0)
    seed: int = _option(42, "of initial weights, order and dropout", 0)
    precision: Precision = _option("bf16", "number format of the computation")
    stochastic_rounding: bool = _option(False, "parameters in BF16, each update rounded up or down by chance")
    backend: BackendName = _option("cpu", "kind of device")
    eager: bool = _option(False, "PyTorch/XLA's eager debug mode: operations run one by one")
    compile: bool = _option(False, "torch.compile the model; not on xla, which traces by itself")
    output: Path = _option(Path("output"), "directory of checkpoints and curves, the same for all ranks")
    checkpoint_every: int = _option(0, "updates between two checkpoints; 0: by time alone", 0)
    checkpoint_seconds: float = _option(600.0, "time between two checkpoints; 0: by updates alone", 0)
    async_checkpoint: bool = _option(True, "copy the state to the host's memory, and write it beside the next steps")
    keep: int = _option(3, "complete checkpoints that stay", 1)
    resume: bool = _option(True, "resume from the newest complete checkpoint of the output")
    eval_fraction: float = _option(0.0, "share of the examples that is evaluated instead of trained on", 0)
    eval_every: int = _option(0, "updates between two evaluations; 0: after the last alone", 0)
    patience: int = _option(0, "evaluations without a better loss that end the training; 0: none do", 0)
    export_from: Literal["best", "last"] = _option(
        "best", "step whose weights are exported; without evaluation the last"
    )
    log_every: int = _option(1, "updates between two step lines: each waits for the device", 1)
    track: TrackerName = _option("none", "where the curves go besides TensorBoard")
    workers: int = _option(0, "processes that read examples, for each rank; 0: the rank itself", 0)

    @property
    def trackers(self) -> list[str]:
        """The packages of ``track``."""
        return [each for each in ("mlflow", "wandb") if self.track in (each, "both")]


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
    for each in fields(Options):
        name, kind, choices = each.name, each.type, get_args(each.type)
        default = environment.get(name, getattr(defaults, name))
        names = dict.fromkeys([_spelling(name), f"--{name}", (aliases or {}).get(name, f"--{name}")])
        settings: dict[str, Any] = {"dest": name, "default": default}
        if kind is bool:
            settings["action"] = argparse.BooleanOptionalAction
        elif choices:
            settings["choices"] = choices
        else:
            settings |= {"type": kind, "metavar": _METAVARS[kind]}
        group.add_argument(*names, help=f"{each.metadata['help']} (default: %(default)s)", **settings)


def options_of(arguments: argparse.Namespace) -> Options:
    """Return the options that were given.

    Raises:
        RefusalError: with all invalid values.
    """
    options = Options(**{each.name: getattr(arguments, each.name) for each in fields(Options)})
    least = {each.name: each.metadata["least"] for each in fields(Options)}
    wrong = too_small(options, {name: bound for name, bound in least.items() if bound is not None})
    wrong += alone(options, NEEDS)
    if not (math.isfinite(options.learning_rate) and options.learning_rate > 0):
        wrong.append(f"--learning-rate must be greater than 0, not {options.learning_rate}")
    allowed = PRECISIONS[options.backend]
    if options.precision not in allowed:
        wrong.append(f"backend {options.backend} has no --precision {options.precision}: use {', '.join(allowed)}")
    if options.stochastic_rounding and options.precision != "bf16" and options.backend in ("cpu", "cuda"):
        wrong.append(f"--stochastic-rounding is for --precision bf16, not {options.precision}")
    if options.eval_fraction >= 1:
        wrong.append(f"--eval-fraction must be less than 1, not {options.eval_fraction}")
    if options.compile and options.backend == "xla":
        wrong.append("--compile is not for backend xla, which traces and compiles by itself")
    for tracker in options.trackers:
        # A directory of the name, such as wandb's own, is no package.
        if getattr(find_spec(tracker), "origin", None) is None:
            wrong.append(f"--track {tracker} needs the package {tracker}, which the image lacks (docs/trainings.md)")
    if wrong:
        raise RefusalError("; ".join(wrong))
    return options


def add_option(parser: Any, name: str, kind: Any, text: str, *more: str) -> None:
    """Add an option of a script's own, which also takes underscores for its hyphens.

    Args:
        parser: or a group of one.
        name: ``batch-size``.
        kind: ``int``, ``float``, ``str`` or ``Path``; or the option's default.
        text: for ``--help``.
        more: further names, with their hyphens.
    """
    kind, default = (kind, None) if isinstance(kind, type) else (type(kind), kind)
    names = dict.fromkeys([f"--{name}", *more, f"--{name.replace('-', '_')}"])
    shown = "" if default is None else " (default: %(default)s)"
    parser.add_argument(*names, type=kind, default=default, metavar=_METAVARS[kind], help=text + shown)


def alone(values: object, needs: Sequence[tuple[str, object, str, object]]) -> list[str]:
    """Return a sentence for each option that does nothing without another one. A row has the option and its value
    without effect, then the other option and the value that it must have; None: any."""
    return [
        f"{_spelling(name)} is for {_spelling(other)}{'' if wanted is None else f' {wanted}'}"
        for name, off, other, wanted in needs
        if getattr(values, name) != off
        and (not getattr(values, other) if wanted is None else getattr(values, other) != wanted)
    ]


def too_small(values: object, least: Mapping[str, float]) -> list[str]:
    """Return a sentence for each option that is less than its least value; options without a value are left out."""
    return [
        f"{_spelling(name)} must be {bound} or more, not {value}"
        for name, bound in least.items()
        # "not >=": a float that is no number is wrong, too.
        if (value := getattr(values, name)) is not None and not value >= bound
    ]


def _environment() -> dict[str, Any]:
    """Return the launcher's settings, by field."""
    found: dict[str, Any] = {}
    if os.environ.get("NEURON_RT_STOCHASTIC_ROUNDING_EN") == "1":
        found["stochastic_rounding"] = True
    for name, variable, kind, form in (
        ("output", "TRN_OUTPUT_DIR", Path, "a path"),
        ("backend", "TRN_BACKEND", _one_of(BackendName), f"one of {', '.join(get_args(BackendName))}"),
        ("precision", "TRN_PRECISION", _one_of(Precision), f"one of {', '.join(get_args(Precision))}"),
        ("checkpoint_seconds", "TRN_CHECKPOINT_SECONDS", float, "a number of seconds"),
    ):
        if text := os.environ.get(variable):
            try:
                found[name] = kind(text)
            except ValueError:
                raise RefusalError(f"{variable} must be {form}, not {text!r}") from None
    return found


def _one_of(kind: Any) -> Callable[[str], str]:
    choices = get_args(kind)
    return lambda text: choices[choices.index(text)]


def _spelling(name: str) -> str:
    """Return an option's name; options are also taken with underscores, as older scripts have them."""
    return f"--{name.replace('_', '-')}"
