"""TorchTitan's own training, ``trn train --titan``: its arguments for a job, and the problems of a request for it.

TorchTitan 0.3 takes the name of a module and of a config function in it; further options override the
config's values. TorchTitan Neuron adds modules for Trainium2 and later.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from trainium_eks.jobs.objects.job import TITAN_MODULE, Program, TrainingJob
from trainium_eks.jobs.submit.requests import JobRequest
from trainium_eks.model.catalogue.backends import Backend, backend_of
from trainium_eks.model.validation.problems import Problem, Severity

FAMILIES = ("deepseek_v3", "gpt_oss", "llama3", "qwen3")
"""Models with a module in TorchTitan and in TorchTitan Neuron; the names of their configs begin with them."""

_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_CONFIG = re.compile(r"[A-Za-z_]\w*")


def config_of(titan: str) -> str:
    """Return the name of the config function in ``[MODULE:]CONFIG``."""
    return titan.rpartition(":")[2]


def module_of(titan: str, backend: Backend) -> str:
    """Return the module of the config: the given one, else by the config's name; empty where the name tells none."""
    module, _, config = titan.rpartition(":")
    if module:
        return module
    family = next((each for each in FAMILIES if config.startswith(f"{each}_")), "")
    return f"torchtitan_neuron.models.{family}" if family and backend == "neuron" else family


def with_arguments(job: TrainingJob) -> TrainingJob:
    """Return the job with TorchTitan's arguments before the researcher's, of which the last one given counts.

    TorchTitan keeps checkpoints in ``checkpoint`` below its dump folder, and a gang that starts again continues from
    the newest one there.
    """
    titan = job.options.titan
    ours = ["--module", module_of(titan, job.backend), "--config", config_of(titan)]
    if job.output:
        ours += ["--dump_folder", job.output, "--checkpoint.enable"]
    return replace(job, program=Program(module=TITAN_MODULE, arguments=(*ours, *job.program.arguments)))


def problems(request: JobRequest, job: TrainingJob) -> Iterator[Problem]:
    """Yield the problems of ``--titan`` and of the options that TorchTitan does not take."""
    if not request.titan:
        return
    yield from _name_problems(request, job)
    yield from _place_problems(job)
    yield from _option_problems(request, job)
    if not any(word.partition("=")[0].replace("-", "_") == "__hf_assets_path" for word in job.program.arguments):
        reason = "the config's own tokenizer is read from the image's working directory"
        fix = "name one on the volume: -- --hf_assets_path /data/<path>; `trn stage` brings it"
        yield Problem("--titan", reason, fix, value=request.titan, severity=Severity.WARN)


def _name_problems(request: JobRequest, job: TrainingJob) -> Iterator[Problem]:
    module, config = module_of(request.titan, job.backend), config_of(request.titan)
    if not module and _CONFIG.fullmatch(config):
        reason = f"the module of this config is not known: names of known ones begin with {', '.join(FAMILIES)}"
        yield Problem("--titan", reason, f"name it: --titan MODULE:{config}", value=request.titan)
    elif not (_PATH.fullmatch(module) and _CONFIG.fullmatch(config)):
        reason = "it must be the name of a config function, with its module and a colon before it or alone"
        yield Problem("--titan", reason, "give one such as qwen3_8b", value=request.titan)


def _place_problems(job: TrainingJob) -> Iterator[Problem]:
    instance = job.instance
    if job.backend == "cpu":
        reason = "TorchTitan runs on accelerators alone: without one it looks for CUDA, and ends"
        yield Problem("--titan", reason, "take a stack with Trainium2 or GPUs, and leave --backend out")
    elif "xla" in (job.backend, backend_of(instance)) and not instance.accelerator.startswith("Inferentia"):
        reason = f"TorchTitan needs TorchNeuron or CUDA, and {instance.name} has PyTorch/XLA alone"
        yield Problem("--titan", reason, "take a group of Trainium2 or GPUs; for Trn1 there is --example finetune")


def _option_problems(request: JobRequest, job: TrainingJob) -> Iterator[Problem]:
    """Yield the options that another program would take, each with TorchTitan's own."""
    beside = {"--script": request.script, "--module": request.module, "--example": request.example}
    for option, value in beside.items():
        if value:
            yield Problem(option, "--titan names what runs already", "leave one of them out", value=value)
    if job.kind == "compile" or request.cache_set:
        reason = "TorchNeuron compiles while TorchTitan trains, into a directory that all jobs of the team share"
        option = "--precompile" if job.kind == "compile" else "--cache-set"
        yield Problem(option, reason, "leave it out: trn train --titan")
    if request.precision != "bf16":
        reason = "TorchTitan takes precisions from its config"
        fix = "leave it out; in FP32: -- --training.mixed_precision_param float32"
        yield Problem("--precision", reason, fix, value=request.precision)
    intervals = {"--checkpoint-seconds": request.checkpoint_seconds, "--state-gb": request.state_gb}
    for option, number in intervals.items():
        if number is not None:
            reason = "TorchTitan counts steps between two checkpoints"
            yield Problem(option, reason, "leave it out: -- --checkpoint.interval STEPS", value=number)
