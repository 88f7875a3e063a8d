"""Reason for waiting: a cause, a sentence and a remedy."""

from dataclasses import dataclass
from enum import StrEnum

from trainium_eks.observe.faults.catalogue import BY_NAME

_LONGEST = 300


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
    fault: str = ""
    """Name of the fault in the catalogue; empty where nothing is wrong, or only Volcano's own words are known."""

    def to_json(self) -> dict[str, str]:
        """Return JSON for tools."""
        return {"cause": self.cause.value, "sentence": self.sentence, "fix": self.fix, "fault": self.fault}


def shortened(sentence: str) -> str:
    """Return at most 300 characters of a sentence with others' words: its beginning, and its end, where Go's wrapped
    errors have their cause."""
    return sentence if len(sentence) <= _LONGEST else f"{sentence[:100]} ... {sentence[105 - _LONGEST :]}"


def fault_reason(cause: Cause, fault: str, sentence: str, **names: object) -> Reason:
    """Return the reason that a fault of the catalogue is, with the fault's remedy."""
    return Reason(cause, sentence, BY_NAME[fault].mend(**names), fault)
