"""Reason for waiting: a cause, a sentence and a remedy."""

from dataclasses import dataclass
from enum import StrEnum


class Cause(StrEnum):
    """The cause that holds a job."""

    QUEUE = "queue"
    """Its queue has no room, or does not exist."""
    CLOSED = "closed"
    """Its queue takes no jobs."""
    CAPACITY = "capacity"
    """There are too few nodes, or too few that are free."""
    TOPOLOGY = "topology"
    """Nodes are there, but not as close together as the job demands."""
    TAINT = "taint"
    """Nodes keep its pods away."""
    NODE = "node"
    """A node is not ready."""
    IMAGE = "image"
    """A container's image cannot be had."""
    VOLUME = "volume"
    """A claim is missing or not bound, or does not mount."""
    CONFIG = "config"
    """A ConfigMap or a Secret is missing, or the container cannot be made."""
    QUOTA = "quota"
    """The namespace's quota is used up."""
    REFUSED = "refused"
    """The API server refuses its pods."""
    VOLCANO = "volcano"
    """Volcano does not run, or hangs."""
    ENDING = "ending"
    """Earlier pods are being ended."""
    STARTING = "starting"
    """Nothing is wrong: it is under way."""
    UNKNOWN = "unknown"
    """Only Volcano's own words are known."""


@dataclass(frozen=True)
class Reason:
    """The reason why a job waits."""

    cause: Cause
    sentence: str
    """Without a capital and a full stop: it follows ``pending: ``."""
    fix: str
    """Remedy; empty where waiting is enough."""

    def to_json(self) -> dict[str, str]:
        """Return JSON for tools."""
        return {"cause": self.cause.value, "sentence": self.sentence, "fix": self.fix}
