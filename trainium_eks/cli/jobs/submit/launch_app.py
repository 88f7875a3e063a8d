"""Commands that submit and their options: train, compile, scale, kubeconfig."""

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainium_eks.cli.shared.cluster_options import ClusterOptions
from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.with_cluster_options import (
    Directory,
    Json,
    Namespace,
    Outputs,
    Stack,
    with_cluster_options,
)

if TYPE_CHECKING:
    from trainium_eks.jobs.objects.job import Kind

app = App()

_WHAT, _WHERE, _HOW, _THEN = "What runs", "Where", "How", "Then"

Script = Annotated[
    str,
    typer.Option(
        "--script",
        help="Training script: a file that travels with the job; image:/PATH is the image's.",
        rich_help_panel=_WHAT,
    ),
]
Module = Annotated[
    str, typer.Option("--module", "-m", help="Python module of the image to run.", rich_help_panel=_WHAT)
]
Example = Annotated[
    str,
    typer.Option(
        "--example",
        metavar="NAME",
        help="A training that comes with trn: gradient-sum, bert, finetune, polarity.",
        rich_help_panel=_WHAT,
    ),
]
ScriptArgs = Annotated[
    str,
    typer.Option("--script-args", help="Arguments for the script, as one text; or after --.", rich_help_panel=_WHAT),
]
Arguments = Annotated[list[str] | None, typer.Argument(help="Arguments for the script, after --.", show_default=False)]
Workspace = Annotated[
    Path | None,
    typer.Option(
        "--workspace",
        "-w",
        metavar="DIR",
        help="Directory that travels with the script (700 KiB compressed).",
        rich_help_panel=_WHAT,
    ),
]
Image = Annotated[
    str | None,
    typer.Option("--image", help="Default: the one pushed last; on a local stack local/torch.", rich_help_panel=_WHAT),
]
Data = Annotated[
    list[str] | None,
    typer.Option("--data", metavar="PATH", help="Path on the shared volume that must be there.", rich_help_panel=_WHAT),
]
Env = Annotated[
    list[str] | None,
    typer.Option("--env", "-e", metavar="NAME=VALUE", help="Environment variable.", rich_help_panel=_WHAT),
]
HfSecret = Annotated[
    str,
    typer.Option(
        "--hf-secret",
        metavar="NAME[:KEY]",
        help="Secret with a token of the Hugging Face Hub, as HF_TOKEN; see trn secret.",
        rich_help_panel=_WHAT,
    ),
]

Group = Annotated[
    str | None, typer.Option("--group", "-g", help="Node group; default: the stack's first.", rich_help_panel=_WHERE)
]
InstanceType = Annotated[
    str | None, typer.Option("--instance-type", help="Type of its nodes, in place of --group.", rich_help_panel=_WHERE)
]
Nodes = Annotated[
    int | None, typer.Option("--nodes", "-N", help="Nodes of the gang; default: 2.", rich_help_panel=_WHERE)
]
Ranks = Annotated[
    int | None,
    typer.Option(
        "--ranks-per-node", help="Default: one for each NeuronCore or GPU; 1 on a local stack.", rich_help_panel=_WHERE
    ),
]
Queue = Annotated[
    str | None, typer.Option("--queue", "-q", help="Default: the namespace's first.", rich_help_panel=_WHERE)
]
Priority = Annotated[
    str, typer.Option("--priority", metavar="CLASS", help="training-low, -normal or -high.", rich_help_panel=_WHERE)
]
Topology = Annotated[
    str | None,
    typer.Option("--topology", metavar="hard|soft", help="Keep the nodes within --tier.", rich_help_panel=_WHERE),
]
Tier = Annotated[
    int,
    typer.Option(
        "--tier", help="Layers of the network that the nodes may span; 1: one switch.", rich_help_panel=_WHERE
    ),
]
Scale = Annotated[
    bool,
    typer.Option("--scale/--no-scale", help="Scale the group to the gang, if it is smaller.", rich_help_panel=_WHERE),
]

Precision = Annotated[
    str,
    typer.Option(
        "--precision",
        metavar="bf16|fp32|tf32|fp16|fp8",
        help="What scripts read as TRN_PRECISION, as far as the backend has it.",
        rich_help_panel=_HOW,
    ),
]
Bf16 = Annotated[bool | None, typer.Option("--bf16/--no-bf16", help="--precision bf16, or fp32.", rich_help_panel=_HOW)]
Backend = Annotated[
    str | None,
    typer.Option(
        "--backend",
        metavar="xla|neuron|cuda|cpu",
        help="Default: the instance type's; cpu on a local stack.",
        rich_help_panel=_HOW,
    ),
]
CacheSet = Annotated[
    str,
    typer.Option(
        "--cache-set",
        "--model",
        help="Compile cache to use: a name for the model and its settings.",
        rich_help_panel=_HOW,
    ),
]
Compiler = Annotated[
    str, typer.Option("--compiler", help="Its version, where the image's tag does not tell.", rich_help_panel=_HOW)
]
Retries = Annotated[
    int | None, typer.Option("--retries", help="Fault that ends the job; default: 50, compile 3.", rich_help_panel=_HOW)
]
MaxRestarts = Annotated[
    int, typer.Option("--max-restarts", help="Restarts of processes within their pods.", rich_help_panel=_HOW)
]
Grace = Annotated[
    int | None,
    typer.Option(
        "--grace",
        metavar="SECONDS",
        help="Time for a checkpoint after SIGTERM; default: 300, local 30.",
        rich_help_panel=_HOW,
    ),
]
CheckpointSeconds = Annotated[
    float | None,
    typer.Option(
        "--checkpoint-seconds",
        metavar="SECONDS",
        help="Training between two checkpoints; default: what is best for these nodes (docs/goodput.md).",
        rich_help_panel=_HOW,
    ),
]
StateGb = Annotated[
    float | None,
    typer.Option(
        "--state-gb",
        metavar="GB",
        help="Size of a checkpoint, from which that follows; default: the example's, else the stack's.",
        rich_help_panel=_HOW,
    ),
]
Metrics = Annotated[
    bool,
    typer.Option(
        "--metrics/--no-metrics", help="Serve the training's own metrics on rank 0 (port 9600).", rich_help_panel=_HOW
    ),
]
Rendezvous = Annotated[
    str,
    typer.Option("--rendezvous", metavar="c10d|etcd", help="How the nodes meet; default: c10d.", rich_help_panel=_HOW),
]

Name = Annotated[str, typer.Option("--name", help="Of the job; default: a new one.", rich_help_panel=_THEN)]
Detach = Annotated[
    bool,
    typer.Option("--detach", "-d", help="Return once it is submitted; otherwise rank 0's log.", rich_help_panel=_THEN),
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait for the end without the log.", rich_help_panel=_THEN)]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Print the job and the equal torchx command; submit nothing.", rich_help_panel=_THEN
    ),
]
FormOption = Annotated[
    str,
    typer.Option(
        "--kind",
        metavar="volcano|pytorchjob|trainjob",
        help="The object: Volcano's Job, or one for a Kubeflow controller.",
        rich_help_panel=_HOW,
    ),
]
Torchx = Annotated[bool, typer.Option("--torchx", help="Submit by the torchx on PATH.", rich_help_panel=_THEN)]


@app.command(example="trn train --example gradient-sum --nodes 2")
@with_cluster_options
def train(
    arguments: Arguments = None,
    script: Script = "",
    module: Module = "",
    example: Example = "",
    script_args: ScriptArgs = "",
    workspace: Workspace = None,
    image: Image = None,
    data: Data = None,
    env: Env = None,
    hf_secret: HfSecret = "",
    group: Group = None,
    instance_type: InstanceType = None,
    nodes: Nodes = None,
    ranks_per_node: Ranks = None,
    queue: Queue = None,
    priority: Priority = "",
    topology: Topology = None,
    tier: Tier = 1,
    scale: Scale = True,
    precision: Precision = "bf16",
    bf16: Bf16 = None,
    backend: Backend = None,
    cache_set: CacheSet = "",
    compiler: Compiler = "",
    precompile: Annotated[
        bool, typer.Option("--precompile", help="Compile only, as `trn compile`.", rich_help_panel=_HOW)
    ] = False,
    retries: Retries = None,
    max_restarts: MaxRestarts = 0,
    grace: Grace = None,
    checkpoint_seconds: CheckpointSeconds = None,
    state_gb: StateGb = None,
    rendezvous: Rendezvous = "",
    metrics: Metrics = True,
    form: FormOption = "volcano",
    name: Name = "",
    detach: Detach = False,
    wait: Wait = False,
    dry_run: DryRun = False,
    torchx: Torchx = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Train on a gang of whole nodes: all start together, restart together, end together.

    Prints rank 0's log until the job ends. Ctrl-C leaves the job running, as --detach does.

    Exit code: 0; 1 when it was refused or did not end well; 2 for a job that cannot run.
    """
    _submit("compile" if precompile else "train", dict(locals()))


def _compile(**given: Any) -> None:
    """Fill a compile cache by a short run of the training (give the script few steps); `trn train` then finds it whole.

    Exit code: as of `trn train`.
    """
    _submit("compile", given)


_options = inspect.signature(inspect.unwrap(train)).parameters.values()
_compile.__signature__ = inspect.Signature([each for each in _options if each.name != "precompile"])  # type: ignore[attr-defined]
app.command("compile", example="trn compile --example bert --nodes 2")(with_cluster_options(_compile))


@app.command(example="trn scale trn1-32xl-ng1 4")
@with_cluster_options
def scale(
    group: Annotated[str, typer.Argument(help="Node group, by its name in the stack.")],
    nodes: Annotated[int, typer.Argument(min=0, help="Nodes that it is to have.")],
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until they are Ready.")] = True,
    *,
    cluster: ClusterOptions,
) -> None:
    """Give a node group another number of nodes, within its limits, and show the change's cost an hour.

    Exit code: 0; 1 when nodes are not Ready in time; 2 for a number that the group cannot have.
    """
    from trainium_eks.cli.jobs.submit import scale as command

    raise typer.Exit(command.run(group, nodes, wait=wait, cluster=cluster))


@app.command(example="trn kubeconfig --namespace training > kubeconfig.yaml")
def kubeconfig(
    stack: Stack = "",
    namespace: Namespace = None,
    outputs: Outputs = None,
    as_json: Json = False,
    directory: Directory = None,
) -> None:
    """Print a kubeconfig with your namespace in its context: trn kubeconfig > kubeconfig.yaml."""
    from trainium_eks.cli.jobs.submit import kubeconfig as command

    raise typer.Exit(command.run(ClusterOptions(stack, namespace, outputs, None, directory, as_json=as_json)))


def _submit(kind: "Kind", given: dict[str, Any]) -> None:
    """Run the command and raise typer.Exit with its exit code.

    Args:
        kind: of the job.
        given: the command's arguments: the cluster options, and others by the names of
            :class:`~.train_options.TrainOptions`.
    """
    from trainium_eks.cli.jobs.submit import train as command
    from trainium_eks.cli.jobs.submit.train_options import TrainOptions

    bf16 = given.pop("bf16")
    if bf16 is not None:
        given["precision"] = "bf16" if bf16 else "fp32"
    lists = {name: tuple(given[name] or ()) for name in ("arguments", "data", "env")}
    names = TrainOptions.__dataclass_fields__.keys() - {"kind"}
    asked = TrainOptions(kind=kind, **{name: value for name, value in {**given, **lists}.items() if name in names})
    raise typer.Exit(command.run(asked, given["cluster"]))
