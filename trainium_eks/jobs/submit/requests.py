"""A researcher's request, the facts gathered for it, and the plan."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from trainium_eks.jobs.objects.job import Backend, Form, Kind, Program, Topology, TrainingJob
from trainium_eks.model import scraping
from trainium_eks.model.outputs import NodeGroupOutput
from trainium_eks.model.sizing.goodput import Goodput
from trainium_eks.model.validation.problems import Problem


@dataclass(frozen=True)
class JobRequest:
    """A researcher's request; a field that is None or empty comes from the stack."""

    program: Program
    kind: Kind = "train"
    form: Form = "volcano"
    name: str = ""
    group: str | None = None
    instance_type: str | None = None
    nodes: int | None = None
    ranks_per_node: int | None = None
    precision: str = "bf16"
    backend: Backend | None = None
    cache_set: str = ""
    """Subject of the compiled graphs: a model and its settings."""
    compiler: str = ""
    """The compiler's version, where the image's tag does not tell it."""
    queue: str | None = None
    priority: str = ""
    retries: int | None = None
    restarts_in_place: int = 0
    grace_seconds: int | None = None
    topology: Topology | None = None
    rendezvous: str = ""
    """``c10d``, ``etcd``, or empty for the stack's."""
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    data: tuple[str, ...] = ()
    hf_secret: str = ""
    has_workspace: bool = False
    checkpoint_seconds: float | None = None
    """Training between two checkpoints; None for the best interval, 0 for none by time."""
    state_gigabytes: float | None = None
    """Size of a checkpoint, GB; None for the example's, or the stack's default."""
    has_metrics: bool = True
    """Whether it may be scraped."""


@dataclass(frozen=True)
class Facts:
    """The facts gathered beside the stack's outputs."""

    is_local: bool
    image: str
    """The image, a default or the requested one; empty when there is none."""
    unique: str
    """Some letters and digits that make a name unique."""
    image_missing: Problem | None = None
    image_has_torch: bool = True
    jobs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Jobs of the namespace, and their states."""
    compiling: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Compile cache to the unfinished job that fills it."""
    staging: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Path on the shared volume to the unfinished job that brings data there."""
    may_submit: bool = True
    """Whether the namespace lets the researcher create jobs of the form."""
    has_secret: bool = True
    """Whether the namespace has the requested Secret."""
    has_topology: bool = True
    """Whether Volcano has found layers in the network of the nodes."""
    metrics_port: int = scraping.PORT
    """Port that no other process in the pods' network listens on."""
    capacity_ends: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Capacity Block (``cr-…``) to the time when it ends, RFC 3339."""


@dataclass(frozen=True)
class Plan:
    """The plan for a request."""

    job: TrainingJob | None
    """None when a problem must be mended first."""
    group: NodeGroupOutput | None
    problems: tuple[Problem, ...]
    """All problems; beside a job, warnings alone. Paths are the command's options."""
    saving: Goodput | None = None
    """Proposed interval of checkpoints, where none was requested, and its expected goodput."""
