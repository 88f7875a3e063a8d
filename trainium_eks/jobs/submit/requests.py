"""What a researcher asks for, what was found out for it, and what comes of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from trainium_eks.jobs.objects.job import Program, TrainingJob
from trainium_eks.jobs.objects.options import TrainOptions
from trainium_eks.model import scraping
from trainium_eks.model.outputs import NodeGroupOutput
from trainium_eks.model.sizing.goodput import Goodput
from trainium_eks.model.validation.problems import Problem


@dataclass(frozen=True, kw_only=True)
class JobRequest(TrainOptions):
    """What a researcher asks for: the options, and what was read from them."""

    program: Program
    variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The variables of ``--env``."""
    has_workspace: bool = False


@dataclass(frozen=True)
class Facts:
    """What was found out beside the stack's outputs."""

    is_local: bool
    image: str
    """The image, a default or the one asked for; empty when there is none."""
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
    """Whether the namespace has the Secret that is asked for."""
    has_topology: bool = True
    """Whether Volcano has found layers in the network of the nodes."""
    metrics_port: int = scraping.PORT
    """Where nobody else listens who shares the pods' network."""
    capacity_ends: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Capacity Block (``cr-…``) to the time when it ends, RFC 3339."""


@dataclass(frozen=True)
class Plan:
    """What comes of a request."""

    job: TrainingJob | None
    """None when something must be mended first."""
    group: NodeGroupOutput | None
    problems: tuple[Problem, ...]
    """Everything that is wrong; beside a job, warnings alone. Paths are the command's options."""
    saving: Goodput | None = None
    """How often it is to save, where that was not asked for, and what comes of it."""
