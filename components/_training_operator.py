"""Kubeflow's Training Operator v1: upstream's manifests, fetched once, under a kustomization of our own."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from trainium_eks import fetched
from trainium_eks.fetched import ProjectFiles
from trainium_eks.model.catalogue import versions

from ._charts import CHARTS_DIRECTORY, digest

OPERATOR_DIRECTORY = CHARTS_DIRECTORY / "training-operator"
"""Our kustomization, and the hashes of upstream's files."""

OPERATOR_WITH_VOLCANO_DIRECTORY = CHARTS_DIRECTORY / "training-operator-volcano"
"""The same, with gang scheduling."""

MIRROR_VARIABLE = "TRN_TRAINING_OPERATOR_URL"
"""Environment variable: a mirror of upstream's ``manifests`` directory, for machines that do not reach GitHub."""

_RAW = "https://raw.githubusercontent.com/kubeflow/trainer"


def source() -> ProjectFiles:
    """Return upstream's files at the pinned commit."""
    lines = (OPERATOR_DIRECTORY / "upstream.sha256").read_text(encoding="utf-8").splitlines()
    pairs = (line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    return ProjectFiles(
        name=f"training-operator-{versions.TRAINING_OPERATOR}",
        url=f"{_RAW}/{versions.TRAINING_OPERATOR_COMMIT}/manifests",
        sha256={path: sha for sha, path in pairs},
    )


def kustomization(
    *, gangs: bool, pinned: ProjectFiles | None = None, environment: Mapping[str, str] = os.environ
) -> Path:
    """Return the directory for kustomize, with upstream's files beside it, pinned or of :func:`source`; ``gangs``:
    Volcano schedules every job as a gang. ``environment`` has variables for the cache's directory and a mirror.
    FetchError: upstream's files are not in the cache and cannot be downloaded."""
    pinned = pinned or source()
    ours = (OPERATOR_DIRECTORY, OPERATOR_WITH_VOLCANO_DIRECTORY)
    wanted = ours[1] if gangs else ours[0]
    cache = fetched.cache(environment) / "manifests"
    state = "".join(digest(directory)[:8] for directory in ours)
    home = cache / f"{fetched.place(pinned, cache).name}-{state}"
    # In a plan, a name that is the same on every machine: nothing is read, and plans are compared.
    if fetched.PLANNING.get():
        return Path("<cache>") / home.name / wanted.name
    upstream = fetched.fetch(pinned, cache, environment.get(MIRROR_VARIABLE, "").rstrip("/"))
    if not home.exists():
        _assemble(home, upstream, ours)
    return home / wanted.name


def _assemble(home: Path, upstream: Path, ours: tuple[Path, ...]) -> None:
    """Copy all into one directory, renamed into place when complete: kustomize refers to a base by a relative path."""
    try:
        scratch = Path(tempfile.mkdtemp(dir=home.parent, prefix=fetched.SCRATCH))
        try:
            shutil.copytree(upstream, scratch / "upstream")
            for directory in ours:
                shutil.copytree(directory, scratch / directory.name)
            if not home.exists():
                scratch.rename(home)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        # Another process may have made the directory meanwhile.
        if not home.exists():
            raise fetched.FetchError(f"{home.parent} cannot be written: {error.strerror or error}") from error
