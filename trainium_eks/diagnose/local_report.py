"""LocalReport: the parts that the local cloud did not install, or only simulates."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trainium_eks.model.validation.parsing import MISSHAPEN, parse_json


class ReportError(Exception):
    """The report is there and cannot be used; the message gives the reason."""


@dataclass(frozen=True)
class LocalReport:
    """The part of the local cloud's report that verification needs."""

    not_installed: Mapping[str, str] = field(default_factory=dict)
    """Name of a release or kustomization to why this machine cannot have it."""
    simulated: tuple[str, ...] = ()
    """Packages with invented answers (``aws``)."""
    real_volcano: bool = False
    """Whether Volcano's own processes were started on this machine."""
    processes: frozenset[str] = frozenset()
    """The stack's processes at the end of its last ``up``."""
    running: frozenset[str] = frozenset()
    """The stack's processes that run on this machine now (``vc-scheduler``)."""

    def missing(self, *names: str) -> str:
        """Return the reason why something is not on this machine, by its chart, its release, or the end of its
        kustomization's name in the program; empty when it is."""
        for known, reason in self.not_installed.items():
            if any(known == name or known.endswith(f"-{name}") for name in names):
                return reason
        return ""

    @property
    def unscheduled(self) -> str:
        """Return why jobs are not scheduled on this machine; empty where Volcano runs."""
        return "" if self.real_volcano else self.missing("volcano") or "vc-scheduler is not on PATH"

    @staticmethod
    def load(path: Path, running: Collection[str] = ()) -> "LocalReport":
        """Return the report in a file, with the stack's processes that run now. ReportError: it cannot be used."""
        try:
            report = LocalReport.parse(parse_json(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise ReportError(f"cannot read {path}: {error.strerror}") from None
        except MISSHAPEN as error:
            raise ReportError(f"{path} is not the report of a local cloud: {error!r}") from None
        return replace(report, running=frozenset(running))

    @staticmethod
    def parse(data: Mapping[str, Any]) -> "LocalReport":
        """Return the report from plain data."""
        if data["schemaVersion"] != 1 or data["local"] is not True:
            raise ValueError(f"schemaVersion {data['schemaVersion']!r}, local {data['local']!r}")
        return LocalReport(
            not_installed={str(each["name"]): str(each["reason"]) for each in data["notInstalled"]},
            simulated=tuple(str(each) for each in data["simulated"]),
            real_volcano=bool(data["realVolcano"]),
            processes=frozenset(data.get("processes") or ()),
        )
