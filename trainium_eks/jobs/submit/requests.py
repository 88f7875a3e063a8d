"""A researcher's request, the facts gathered for it, and the submission that follows from both."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from trainium_eks.jobs.data.workspace import Workspace
from trainium_eks.jobs.objects import forms
from trainium_eks.jobs.objects.job import Program, TrainingJob
from trainium_eks.jobs.objects.options import TrainOptions
from trainium_eks.model import scraping
from trainium_eks.model.outputs import NodeGroupOutput
from trainium_eks.model.sizing.goodput import Goodput
from trainium_eks.model.validation.problems import Problem


@dataclass(frozen=True, kw_only=True)
class JobRequest(TrainOptions):
    """A researcher's request: the options, and the values that were read from them."""

    program: Program
    variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    has_workspace: bool = False


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
    services: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Service of the namespace to its owner, ``Deployment chat``."""
    compiling: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Compile cache to the unfinished job that fills it."""
    staging: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Path on the shared volume to the unfinished job that brings data there."""
    may_submit: bool = True
    """Whether the namespace lets the researcher create jobs of the form."""
    missing_secrets: frozenset[str] = frozenset()
    """Options whose Secrets the namespace does not have."""
    network_layers: int | None = None
    """Layers of the nodes' switches that Volcano has found; None where the request does not need them."""
    metrics_port: int = scraping.PORT
    """Port that no other process in the pods' network listens on."""
    capacity_ends: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Capacity Block (``cr-…``) to the time when it ends, RFC 3339."""


@dataclass(frozen=True)
class Submission:
    """A job that can be submitted, with all that belongs to it."""

    job: TrainingJob
    group: NodeGroupOutput
    warnings: tuple[Problem, ...] = ()
    """Their paths are the command's options."""
    saving: Goodput | None = None
    """Proposed interval of checkpoints, where none was requested, and its expected goodput."""
    workspace: Workspace | None = None
    """Files that travel with the job; None for none."""

    @property
    def objects(self) -> list[dict[str, Any]]:
        """The objects to submit; the job itself is the last."""
        return forms.objects(self.job)
