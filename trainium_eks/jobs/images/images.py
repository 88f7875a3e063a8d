"""Training images: the input of a build, and the tag derived from it. Builds nothing."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from trainium_eks.jobs.data.tree import archive, files_below
from trainium_eks.model.catalogue import lustre, training_images
from trainium_eks.model.catalogue.training_images import BASES
from trainium_eks.model.outputs import StackOutputs
from trainium_eks.model.validation.problems import Problem, nearest

PLATFORM = "linux/amd64"

DOCKERFILE = "Dockerfile"
REQUIREMENTS = "requirements.txt"
PACKAGE = "trainium_workloads"

_IGNORED = frozenset({".git", ".venv", "venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".local"})
"""Directories that no build needs and that would change the tag."""
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
"""OCI distribution spec, and ECR's ImageTag."""
_DIGITS = 12


@dataclass(frozen=True)
class ImageRequest:
    """A request for an image."""

    target: str
    """A key of :data:`trainium_eks.model.catalogue.training_images.BASES`."""
    base: str
    user_id: int = lustre.DEFAULT_USER_ID
    """User id of its processes unless a job sets another."""


@dataclass(frozen=True)
class Context:
    """The input of a build: files, and arguments of the Dockerfile."""

    files: Mapping[str, bytes]
    arguments: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def digest(self) -> str:
        """Return the SHA-256 over all of it: the same on every machine for the same files."""
        described = {
            "arguments": dict(self.arguments),
            "files": {path: hashlib.sha256(content).hexdigest() for path, content in self.files.items()},
        }
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()

    def write(self, directory: Path) -> None:
        """Write the files into an empty directory."""
        for path, content in self.files.items():
            file = directory / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)

    def archive(self) -> bytes:
        """Return the files as a ``tar.gz``."""
        return archive((path, content, 0o644) for path, content in sorted(self.files.items()))


def request_for(outputs: StackOutputs, target: str | None, base: str | None) -> ImageRequest | Problem:
    """Return the request for a stack's image, or the problem that prevents one.

    Without a target it is for the first node group's kind of training; a base comes before the config's and the
    table's.
    """
    groups = outputs.node_groups
    chosen = target or (training_images.target_of(groups[0].instance_type) if groups else "cpu")
    if chosen not in BASES:
        near = nearest(chosen, BASES)
        fix = f"did you mean {near}?" if near else ""
        return Problem("--for", "it is not what a training image is for", fix, value=chosen, allowed=tuple(BASES))
    image = base or outputs.base_images.get(chosen) or BASES[chosen].image
    if image is None:
        reason = f"no public image is known for {BASES[chosen].about}"
        fix = f"name one: --base IMAGE, or for all of the stack `imageRepository.baseImages.{chosen}`"
        return Problem("--base", reason, fix)
    found = training_images.reference_problems(image, "--base")
    if found:
        return found[0]
    users = [each.training_user_id for each in outputs.namespaces if each.training_user_id]
    return ImageRequest(chosen, image, users[0] if users else lustre.DEFAULT_USER_ID)


def context(
    request: ImageRequest,
    workloads: Path,
    *,
    requirements: str | None = None,
    dockerfile: str | None = None,
    own_files: Path | None = None,
) -> Context:
    """Return all files and arguments that the image is made of.

    A given requirements file or Dockerfile replaces ours, and a directory adds files.
    """
    base = BASES[request.target]
    files = dict(_files(own_files)) if own_files is not None else {}
    files |= {f"{PACKAGE}/{path}": content for path, content in _files(workloads / PACKAGE)}
    chosen = (
        (workloads / "image-requirements.txt").read_text(encoding="utf-8") if requirements is None else requirements
    )
    files[REQUIREMENTS] = chosen.encode()
    files[DOCKERFILE] = dockerfile.encode() if dockerfile is not None else (workloads / DOCKERFILE).read_bytes()
    arguments = {
        "BASE": request.base,
        "USER_ID": str(request.user_id),
        "PACKAGES": " ".join(base.packages),
        "INDEX": base.index,
    }
    return Context(MappingProxyType(dict(sorted(files.items()))), MappingProxyType(arguments))


def tag(request: ImageRequest, made_of: Context) -> str:
    """Return the image's tag, derived from all that it is made of: ``trn1-0123456789ab``."""
    return f"{request.target}-{made_of.digest[:_DIGITS]}"


def tag_problem(text: str) -> Problem | None:
    """Return the reason why a user's text cannot be a tag."""
    if _TAG.fullmatch(text):
        return None
    reason = "it is not a tag, which is 1 to 128 letters, digits, and _ . - not at the beginning"
    good = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip(".-")[:128] or None
    return Problem("--tag", reason, value=text, good=good)


def _files(root: Path) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of the files below a directory."""
    for path, place in files_below(root, _IGNORED):
        if not path.endswith(".pyc"):
            yield path, place.read_bytes()
