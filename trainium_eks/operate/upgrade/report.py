"""The effects of an upgrade, as data."""

from dataclasses import dataclass
from typing import Any

from trainium_eks.model.catalogue import versions
from trainium_eks.model.config.stack_config import StackConfig
from trainium_eks.model.validation.problems import Problem, config_path
from trainium_eks.operate.upgrade.settings import Setting, UpgradeTargets, next_version
from trainium_eks.operate.upgrade.steps import UpgradeStep, disturbance, total_seconds
from trainium_eks.plan.differences.changes import Changes
from trainium_eks.plan.graph import SCHEMA_VERSION


@dataclass(frozen=True)
class Upgrade:
    """Result of ``trn upgrade``: the settings, steps and warnings of an upgrade."""

    stack: str
    config: StackConfig
    asked: UpgradeTargets
    settings: tuple[Setting, ...]
    lines: tuple[str, ...]
    """The same as lines of the stack's file."""
    changes: Changes
    steps: tuple[UpgradeStep, ...]
    warnings: tuple[str, ...]
    """Warnings of the new config that the old config has not."""
    advice: tuple[Problem, ...]
    """Warnings about the way itself."""
    hourly_usd: float
    """Additional cost an hour; negative for a saving."""
    written: str = ""
    """Name of the file that was changed; empty when nothing was."""

    @property
    def refused(self) -> bool:
        """Whether AWS would refuse a change."""
        return any(change.refused for change in self.changes.items)

    def to_json(self) -> dict[str, Any]:
        """Return the versioned JSON form."""
        quick, most = total_seconds(self.steps)
        return {
            "schemaVersion": SCHEMA_VERSION,
            "stack": self.stack,
            "kubernetes": [_support_json(version) for version in _versions(self)],
            "settings": [
                {"path": config_path(each.path), "value": each.value, "line": line}
                for each, line in zip(self.settings, self.lines, strict=True)
            ],
            "steps": [{**step.to_json(), "disturbs": list(disturbance(step))} for step in self.steps],
            "seconds": quick,
            "mostSeconds": most,
            "warnings": [*self.warnings, *(problem.reason for problem in self.advice)],
            "hourlyUsd": round(self.hourly_usd, 4),
            "refused": self.refused,
            "written": self.written,
        }


def _versions(made: Upgrade) -> tuple[str, ...]:
    now = made.config.cluster.kubernetes_version
    to = made.asked.kubernetes or next_version(now)
    return tuple(version for version in dict.fromkeys((now, to)) if version in versions.KUBERNETES_STANDARD_SUPPORT)


def _support_json(version: str) -> dict[str, str]:
    support = versions.KUBERNETES_STANDARD_SUPPORT[version]
    return {"version": version, "standardEnd": support.standard_end, "extendedEnd": support.extended_end}


def support_lines(made: Upgrade) -> list[str]:
    """Return a line for each version with the ends of its support by EKS."""
    lines = []
    for version in _versions(made):
        support = versions.KUBERNETES_STANDARD_SUPPORT[version]
        state = "" if support.is_standard else " (over: the control plane costs six times as much)"
        lines.append(
            f"Kubernetes {version}: standard support until {support.standard_end}{state}, extended until "
            f"{support.extended_end}"
        )
    return lines
