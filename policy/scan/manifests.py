"""Kubernetes manifests of a recorded program: its own objects, and the objects of the project's charts."""

import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from trainium_eks.local import paths
from trainium_eks.local.toolchain import Pins, Platform, find
from trainium_eks.model.catalogue.versions import KUBERNETES
from trainium_eks.plan.graph import Graph, Resource

PREFIX = "kubernetes:"
NOT_OBJECTS = ("kubernetes:helm.sh/v3:Release", "kubernetes:kustomize/v2:Directory")
"""Types that Helm and the engine expand to objects; only the project's own charts are rendered here."""

_RELEASE = NOT_OBJECTS[0]
_RENDER_SECONDS = 60


class CannotRender(Exception):  # noqa: N818 (an event)
    """Helm's refusal of a chart; the message is the release and Helm's own text."""


@dataclass(frozen=True)
class Manifests:
    """The Kubernetes objects of an environment."""

    objects: tuple[Mapping[str, Any], ...]
    charts: tuple[str, ...]
    """Releases of the project's own charts; their objects are included."""
    left_out: Mapping[str, str]
    """Release to the reason why its objects are not included."""


def manifests(graph: Graph, project: Path, helm: Path | None) -> Manifests:
    """Return every object that is known without a cluster.

    Args:
        graph: the recorded program.
        project: the project's directory, base of relative paths of charts.
        helm: the program; None leaves the project's own charts out, too.

    Raises:
        CannotRender: when Helm refuses a chart of the project.
    """
    objects: list[Mapping[str, Any]] = [
        each.inputs
        for each in graph.resources
        if each.custom and each.type.startswith(PREFIX) and each.type not in NOT_OBJECTS
    ]
    charts, left_out = [], {}
    for release in graph.of_type(*NOT_OBJECTS):
        chart = project / str(release.inputs.get("chart"))
        if release.type != _RELEASE or not (chart / "Chart.yaml").is_file():
            left_out[release.name] = "it is another project's"
        elif helm is None:
            left_out[release.name] = "helm is not on PATH, nor in the local cloud's cache"
        else:
            objects += _rendered(release, chart, helm)
            charts.append(release.name)
    return Manifests(tuple(objects), tuple(charts), left_out)


def find_helm(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the path of Helm, on PATH or in the local cloud's cache; nothing is downloaded or built."""
    pins = Pins(KUBERNETES, Platform.here())
    directory = paths.cache(environment) / "bin"
    there, _ = find.installed(("helm",), pins, environment, find.Answers(directory / "versions.json"))
    there |= find.cached(("helm",), pins, directory / pins.key) if not there else {}
    return there["helm"].path if there else None


def _rendered(release: Resource, chart: Path, helm: Path) -> list[Mapping[str, Any]]:
    name, namespace = str(release.inputs.get("name")), str(release.inputs.get("namespace"))
    command = [str(helm), "template", name, str(chart), "--namespace", namespace, "--values", "-"]
    with tempfile.TemporaryDirectory(prefix="trn-helm-") as home:
        done = subprocess.run(
            [*command, "--kube-version", KUBERNETES],
            input=yaml.safe_dump(release.inputs.get("values") or {}),
            env={"PATH": os.environ.get("PATH", ""), "HOME": home},
            capture_output=True,
            text=True,
            timeout=_RENDER_SECONDS,
            check=False,
        )
    if done.returncode:
        raise CannotRender(f"{release.name}: {done.stderr.strip()}")
    return [each for each in yaml.safe_load_all(done.stdout) if each]
