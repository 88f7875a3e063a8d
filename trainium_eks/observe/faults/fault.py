"""The parts of a fault."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

_PLACEHOLDER = re.compile(r"\{(\w+)(?:\|([^}]*))?\}")

_MERELY_TELLS = re.compile(
    r"^(?!.*\b(NCCL|CCOM)\b(?! INFO (?!NET/OFI))).*("
    r"\b(DEBUG|INFO|WARN(ING)?)\b|\[[DIW]\d{4} |^(\[\w+\]:)?[DIW]\d{4} |\w+Warning: |"
    r"\b[Rr]etrying\b|\b[Rr]etry (\d+|in)\b|[Tt]rying again|\b[Ii]gnor(ed|ing)\b|falling back)"
)
"""Line of a log that informs or warns and ends nothing. NCCL's and CCOM's own errors are written as warnings, those of
the plugin NET/OFI as INFO, too."""


class Speaker(StrEnum):
    """Who writes a text: the same words mean another fault in another's mouth. Each is a key of an entry, with the
    regular expression that finds the fault in its texts."""

    API = "api"  # the API server, or the way to it, in errors of this library's own requests
    ADMISSION = "admission"  # the API server, which refuses pods to a controller
    SCHEDULER = "scheduler"  # a scheduler, or Cluster Autoscaler
    EC2 = "ec2"  # EC2, in conditions of Karpenter's node claims
    REGISTRY = "registry"  # containerd, which pulls and unpacks an image
    VOLUME = "volume"  # the kubelet and CSI drivers, which attach and mount
    RUNTIME = "runtime"  # the kubelet and containerd, which make and start a container and its network
    KUBELET = "kubelet"  # the kubelet, in the status of a pod that it has refused or ended as a whole
    PROGRAM = "program"  # a program in a container, in its log and its last message


@dataclass(frozen=True)
class Fault:
    """One fault. A finding fills the placeholders in ``remedy``. In a page ``{node}`` becomes ``NODE``, and
    ``{plugin|device plugin}`` becomes the words after the bar."""

    name: str
    """Name in findings, pages and ``trn doctor NAME``: lower-case words and dashes."""
    symptom: str
    """One line: the effect that a person sees."""
    cause: str
    """One or two sentences."""
    remedy: str
    """Remedy with the command to type; in findings, ``trn`` commands appear as they can be typed here."""
    source: str
    """Where the fault is described: a document of its maker, or the code that reports it."""
    alert: str = ""
    """Name of the alert whose page includes this entry; empty where no alert is about it."""
    waits: bool = False
    """Whether waiting mends it: then it is a reason of one job, and nothing is wrong with the stack."""
    says: Mapping[Speaker, str] = field(default_factory=dict)
    """Speaker to the regular expression that finds the fault in its texts."""

    def mend(self, **names: object) -> str:
        """Return the remedy with these names in it."""

        def filled(found: re.Match[str]) -> str:
            return str(names.get(found[1]) or found[2] or found[1].upper())

        return _PLACEHOLDER.sub(filled, self.remedy)

    def page(self) -> str:
        """Return the entry as Markdown, without a heading."""
        alert = f" Alert: [{self.alert}](alerts.md#{self.alert.lower()})." if self.alert else ""
        cause = f"**Cause.** {self.cause} Source: {self.source}.{alert}"
        return f"{self.symptom}\n\n{cause}\n\n**Remedy:** {self.mend()}\n"


def first_in(faults: Iterable[Fault], speaker: Speaker, texts: Iterable[str]) -> tuple[Fault, str] | None:
    """Return the first fault in the catalogue's order with an expression that finds a text (a line of a log, or a
    message), and the text; None without. The more specific faults come first."""
    known = [text for text in texts if speaker is not Speaker.PROGRAM or not _MERELY_TELLS.search(text)]
    for fault in faults:
        if pattern := fault.says.get(speaker):
            found = next((text for text in known if re.search(pattern, text, re.IGNORECASE)), None)
            if found is not None:
                return fault, found
    return None
