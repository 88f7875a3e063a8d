"""Options of ``trn train``, each once: the command line, the job's request and the table of
docs/training-jobs.md follow from the fields of :class:`TrainOptions`.

Needs the standard library alone, as :mod:`.job` does.
"""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args, get_origin

from trainium_eks.model.catalogue.backends import Backend

RunKind = Literal["train", "compile"]
TopologyMode = Literal["hard", "soft"]
Service = Literal["eks", "sagemaker"]
"""Service that runs a job."""
Form = Literal["volcano", "pytorchjob", "trainjob"]
"""Kind of the job's object: Volcano's Job, the Training Operator's PyTorchJob, Trainer v2's TrainJob."""


class Option:
    """How a command line spells a field of an options class, in ``Annotated[<type>, Option(...)]``."""

    def __init__(self, names: str, about: str, metavar: str | None = None, panel: str | None = None) -> None:
        """Describe an option. The first of its names, separated by blanks, is ``--name``; no name makes a positional
        argument."""
        self.names = tuple(names.split())
        self.about, self.metavar, self.panel = about, metavar, panel


_what, _where, _how, _then = (functools.partial(Option, panel=panel) for panel in ("What runs", "Where", "How", "Then"))


def words(hint: object) -> tuple[str, ...]:
    """Return the words that a field of a ``Literal`` type allows; none for a field of another type."""
    if get_origin(hint) is Literal:
        return tuple(word for word in get_args(hint) if word)
    return tuple(word for part in get_args(hint) if get_origin(part) is Literal for word in words(part))


@dataclass(frozen=True)
class TrainOptions:
    """The options, in the order of the help; None or empty leaves a value to the stack.

    The command line checks fields of a ``Literal`` type before a job is planned. The text below a field is for the
    docs' table, after the help's line.
    """

    arguments: Annotated[tuple[str, ...], Option("", "Arguments for the script, after --.")] = ()

    script: Annotated[
        str, _what("--script", "Training script: a file that travels with the job; image:/PATH is the image's.")
    ] = ""
    """The path is one from here or from `--workspace`, relative to it or absolute. Any other absolute path is the
    image's; one that exists on this machine, too, is refused without `image:`."""
    module: Annotated[str, _what("--module -m", "Python module of the image to run.")] = ""
    example: Annotated[
        str,
        _what(
            "--example", "A training that comes with trn: gradient-sum, bert, finetune, text-classification.", "NAME"
        ),
    ] = ""
    script_args: Annotated[str, _what("--script-args", "Arguments for the script, as one text; or after --.")] = ""
    workspace: Annotated[
        Path | None, _what("--workspace -w", "Directory that travels with the script (700 KiB compressed).", "DIR")
    ] = None
    """`.git`, environments and caches stay behind. Without a workspace the script travels alone."""
    image: Annotated[
        str | None, _what("--image", "Container image; default: the one pushed last, on a local stack local/torch.")
    ] = None
    """The default is `local/python` where `local/torch` has not been made."""
    data: Annotated[tuple[str, ...], _what("--data", "Path on the shared volume that must exist.", "PATH")] = ()
    """The job ends at once where the volume lacks the path."""
    env: Annotated[tuple[str, ...], _what("--env -e", "Environment variable.", "NAME=VALUE")] = ()
    hf_secret: Annotated[
        str,
        _what("--hf-secret", "Secret with a token of the Hugging Face Hub, as HF_TOKEN; see trn secret.", "NAME[:KEY]"),
    ] = ""
    track_secret: Annotated[
        str, _what("--track-secret", "Secret with the variables of MLflow or Weights & Biases.", "NAME")
    ] = ""
    """[Trackers](trainings.md#trackers) lists the variables."""

    on: Annotated[Service, _where("--on", "Service that runs the job; docs/sagemaker.md.", "eks|sagemaker")] = "eks"
    """`sagemaker` needs `sageMaker` in the stack's config, and refuses options about groups, queues and volumes."""
    spot: Annotated[bool, _where("--spot", "SageMaker: Spot instances, with checkpoints in S3.")] = False
    keep_alive: Annotated[
        int, _where("--keep-alive", "SageMaker: keep the instances for the next job of this kind.", "SECONDS")
    ] = 0
    max_hours: Annotated[float, _where("--max-hours", "SageMaker: longest run, in hours.")] = 24.0
    channel: Annotated[
        tuple[str, ...],
        _where("--channel", "SageMaker: data, from s3:// or a path on the shared volume.", "NAME=SOURCE"),
    ] = ()
    """The script finds it in `SM_CHANNEL_<NAME>`, `/opt/ml/input/data/<name>`."""
    group: Annotated[str | None, _where("--group -g", "Node group; default: the stack's first.")] = None
    instance_type: Annotated[str | None, _where("--instance-type", "Instance type, in place of --group.")] = None
    nodes: Annotated[int | None, _where("--nodes -N", "Nodes of the gang; default: 2.")] = None
    """The default is 1 where the group has no more nodes, or its type no EFA."""
    ranks_per_node: Annotated[
        int | None,
        _where("--ranks-per-node", "Ranks per node; default: one per NeuronCore or GPU, 1 on a local stack."),
    ] = None
    """PyTorch/XLA on Trn1 takes 1, 2, 8 or 32."""
    queue: Annotated[str | None, _where("--queue -q", "Queue; default: the namespace's first.")] = None
    priority: Annotated[str, _where("--priority", "training-low, -normal or -high.", "CLASS")] = ""
    topology: Annotated[TopologyMode | None, _where("--topology", "Keep the nodes within --tier.", "hard|soft")] = None
    """`hard` waits for such nodes, `soft` prefers them."""
    tier: Annotated[
        str,
        _where(
            "--tier",
            "Span of the nodes: one switch, 2 or 3 layers of switches; or a half or whole UltraServers.",
            "1|2|3|half|ultraserver",
        ),
    ] = "1"
    """With `half` and `ultraserver` a larger gang takes several, each whole (docs/ultraservers.md)."""
    scale: Annotated[bool, _where("--scale/--no-scale", "Scale up the node group if it is smaller than the gang.")] = (
        True
    )
    all_or_nothing: Annotated[
        bool | None,
        _where("--all-or-nothing/--no-all-or-nothing", "Scale to all nodes or none; default: the group's."),
    ] = None
    """The command reserves all missing nodes, waits until they are Ready, and only then submits the job
    ([Scaling](autoscaling.md#all-nodes-or-none))."""

    precision: Annotated[
        str,
        _how(
            "--precision",
            "Value of TRN_PRECISION for scripts, as far as the backend has it.",
            "bf16|fp32|tf32|fp16|fp8",
        ),
    ] = "bf16"
    """In `bf16` Neuron rounds stochastically."""
    bf16: Annotated[bool | None, _how("--bf16/--no-bf16", "--precision bf16, or fp32.")] = None
    backend: Annotated[
        Backend | None,
        _how("--backend", "Backend; default: the instance type's, cpu on a local stack.", "xla|neuron|cuda|cpu"),
    ] = None
    """`xla` on Trn1, `neuron` (TorchNeuron) on Trn2 and later."""
    cache_set: Annotated[
        str, _how("--cache-set --model", "Compile cache to use: a name for the model and its settings.")
    ] = ""
    """With a cache, training begins only when the cache is whole."""
    compiler: Annotated[str, _how("--compiler", "Version of the compiler, if the image's tag does not have it.")] = ""
    precompile: Annotated[bool, _how("--precompile", "Only fill the compile cache, with a short run.")] = False
    """Give the script few steps; `trn train` with the same options then finds the cache whole."""
    retries: Annotated[
        int | None, _how("--retries", "Failures after which the job ends; default: 50 (3 while compiling).")
    ] = None
    failed_starts: Annotated[
        str,
        _how(
            "--failed-starts",
            "Failures in a row before the first step, with one exit code, after which the job ends; 0: no limit.",
            "N[:CODE,CODE]",
        ),
    ] = "3"
    """Exit codes below 128, or the listed ones. Lost nodes, evicted pods and killed processes do not count."""
    max_restarts: Annotated[int, _how("--max-restarts", "Restarts of processes within their pods.")] = 0
    grace: Annotated[
        int | None, _how("--grace", "Time for a checkpoint after SIGTERM; default: 300, local 30.", "SECONDS")
    ] = None
    checkpoint_seconds: Annotated[
        float | None,
        _how(
            "--checkpoint-seconds",
            "Time between checkpoints; default: the best for these nodes (docs/goodput.md).",
            "SECONDS",
        ),
    ] = None
    """0 for none by time."""
    state_gb: Annotated[
        float | None,
        _how("--state-gb", "Size of a checkpoint, for that time; default: the example's, else the stack's.", "GB"),
    ] = None
    """The stack's is `training.checkpointGigabytes` of its config."""
    rendezvous: Annotated[
        Literal["", "c10d", "etcd"], _how("--rendezvous", "How the nodes meet; default: c10d.", "c10d|etcd")
    ] = ""
    """`c10d` is a store on node 0; `etcd` uses the stack's etcd, if it has one."""
    metrics: Annotated[
        bool, _how("--metrics/--no-metrics", "Serve the training's own metrics on rank 0 (port 9600).")
    ] = True
    kind: Annotated[
        Form,
        _how(
            "--kind", "Kind of object: Volcano's Job, or one for a Kubeflow controller.", "volcano|pytorchjob|trainjob"
        ),
    ] = "volcano"

    name: Annotated[str, _then("--name", "Name of the job; default: a new one.")] = ""
    """A new name begins with the script's."""
    detach: Annotated[bool, _then("--detach -d", "Return once the job is submitted; default: follow rank 0's log.")] = (
        False
    )
    """With the log, the exit code is the job's."""
    wait: Annotated[bool, _then("--wait", "Wait until the job ends, without its log.")] = False
    dry_run: Annotated[bool, _then("--dry-run", "Print the job and the equal torchx command; submit nothing.")] = False
    torchx: Annotated[bool, _then("--torchx", "Submit by the torchx on PATH.")] = False

    @property
    def run_kind(self) -> RunKind:
        """Kind of the job: ``compile`` with ``--precompile``."""
        return "compile" if self.precompile else "train"
