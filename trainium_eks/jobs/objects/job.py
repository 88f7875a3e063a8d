"""A training job: one frozen model of a gang, from which each form of it is made.

Needs the standard library and the catalogue alone, as do :mod:`.resources`, :mod:`.environment`, :mod:`.command`,
:mod:`.pod` and :mod:`.volcano_job`: the TorchX component runs where neither Pulumi nor pydantic is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from trainium_eks.jobs.objects.options import Form, RunKind, TopologyMode, TrainOptions
from trainium_eks.jobs.objects.resources import Resources
from trainium_eks.model import scraping
from trainium_eks.model.catalogue.backends import Backend
from trainium_eks.model.catalogue.instances import InstanceType

Precision = Literal["bf16", "fp32", "tf32", "fp16", "fp8"]
Launcher = Literal["torchrun", "gang"]
"""``gang`` is ``trainium_workloads.gang``, which needs no torch."""

PRECISIONS: Mapping[Backend, tuple[Precision, ...]] = MappingProxyType(
    {
        # neuronx-cc casts the products of a model in FP32 (`--auto-cast-type`); TorchNeuron casts nothing.
        "xla": ("bf16", "fp32", "tf32", "fp16", "fp8"),
        "neuron": ("bf16", "fp32"),
        "cuda": ("bf16", "fp32", "tf32", "fp16"),
        "cpu": ("bf16", "fp32"),
    }
)
"""Precisions that each backend can train in."""
C10D = "c10d"
"""Rendezvous by a store on node 0, without any service beside the job."""

DATA = "/data"
"""Mount path of the namespace's share of the file system."""
WORKSPACE = "/workspace"
"""Directory for the files that travel with a job; its working directory then."""
REFUSED = 78
"""Exit code of a container that found a fault which no restart can mend (``EX_CONFIG`` of sysexits.h): the job ends."""


@dataclass(frozen=True)
class Program:
    """The program of each rank: a file or a module, with its arguments."""

    script: str = ""
    """Path in the image, absolute or from the working directory."""
    module: str = ""
    """Module for ``python -m``, where there is no script."""
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.script or f"-m {self.module}"


@dataclass(frozen=True)
class CompileCache:
    """Compiled graphs that jobs share: written by one ``compile`` job, read by every ``train`` job after it."""

    key: str
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Options that the graphs depend on; a job with others would compile them again."""

    @property
    def directory(self) -> str:
        """Return the directory of the graphs."""
        return f"{DATA}/compile-cache/{self.key}"


@dataclass(frozen=True)
class Topology:
    """Distance between the nodes, as a demand or as a wish."""

    mode: TopologyMode
    """``hard``: the job waits until there are such nodes. ``soft``: as near as can be had."""
    tier: int
    """Highest of Volcano's tiers that the nodes may span, or each part of the gang."""
    together: int = 0
    """Nodes of each part, in one UltraServer (4) or one half (2); 0 where the gang has no parts."""


@dataclass(frozen=True)
class TrainingJob:
    """A gang: nodes that start, restart and end together."""

    name: str
    app: str
    """Name in TorchX: the job's name without its unique ending."""
    program: Program
    image: str
    instance: InstanceType
    """The type of its nodes; each pod has one of them for itself."""
    resources: Resources
    nodes: int
    ranks_per_node: int
    backend: Backend
    kind: RunKind = "train"
    form: Form = "volcano"
    launcher: Launcher = "torchrun"
    rendezvous: str = C10D
    """``c10d``, or the endpoint of an etcd."""
    precision: Precision = "bf16"
    cache: CompileCache | None = None
    claim: str = ""
    """Claim of the shared file system; empty for none."""
    options: TrainOptions = TrainOptions()  # noqa: RUF009 - frozen
    """What was asked for, for each value that the job takes as it was given; any other value is a field of the job."""
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Further variables, which override the backend's."""
    retries: int = 50
    """Which fault ends the job: Volcano restarts the gang after each one before."""
    metrics_port: int = scraping.PORT
    """Port on which rank 0 serves the training's own metrics; 0 for none."""

    # Settings that TorchX cannot express, or takes as its own options.
    submission: str = ""
    """Mark that distinguishes the job from an earlier one of the same name, if it continues from that one's output."""
    namespace: str = "default"
    queue: str = ""
    service_account: str = ""
    grace_seconds: int = 300
    """Time between SIGTERM and SIGKILL, for a checkpoint."""
    topology: Topology | None = None
    has_workspace: bool = False
    """Whether files travel with it, in the ConfigMap :attr:`workspace_name`."""
    user_id: int | None = None
    """User and group that its processes run as; None for the image's."""
    capacity_ends: str = ""
    """End of the nodes' Capacity Block, RFC 3339; empty for never."""
    capacity_block: str = ""
    """Its reservation (``cr-…``): an extended block keeps it, and has a later end; empty without an end."""
    capacity_group: str = ""
    """The node group, where the stack keeps the end of its block in a ConfigMap; empty where each job does."""

    @property
    def world_size(self) -> int:
        """Return the number of ranks."""
        return self.nodes * self.ranks_per_node

    @property
    def node_config(self) -> int:
        """Return the nodes that work as one by NeuronLink: 4, 2 or 1; 0 for nodes that are in no UltraServer."""
        if not self.instance.ultraserver_nodes:
            return 0
        return (self.topology.together if self.topology else 0) or 1

    @property
    def workspace_name(self) -> str:
        """Return the name of the ConfigMap of the files that travel with it."""
        return f"{self.name}-workspace"

    @property
    def output(self) -> str:
        """Return the directory of its checkpoints and logs; empty without a shared file system."""
        return f"{DATA}/output/{self.name}" if self.claim else ""
