"""Inputs of Pulumi's ``kubernetes:helm.sh/v3:Release`` in Helm's terms."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainium_eks.local.changes import LocalCloudError

DEFAULT_TIMEOUT_SECONDS = 300
"""Default of Pulumi and of Helm."""

FLAGS: Mapping[str, str] = {
    "atomic": "--atomic",
    "cleanupOnFail": "--cleanup-on-fail",
    "createNamespace": "--create-namespace",
    "dependencyUpdate": "--dependency-update",
    "disableOpenapiValidation": "--disable-openapi-validation",
    "disableWebhooks": "--no-hooks",
    "forceUpdate": "--force",
    "renderSubchartNotes": "--render-subchart-notes",
    "resetValues": "--reset-values",
    "reuseValues": "--reuse-values",
    "skipCrds": "--skip-crds",
    "takeOwnership": "--take-ownership",
    "waitForJobs": "--wait-for-jobs",
}
"""Inputs that are a flag of ``helm upgrade``. Pulumi's name for leaving hooks out is ``disableWebhooks``."""

REPOSITORY_FLAGS: Mapping[str, str] = {
    "repo": "--repo",
    "caFile": "--ca-file",
    "certFile": "--cert-file",
    "keyFile": "--key-file",
    "username": "--username",
    "password": "--password",
}
"""Keys of ``repositoryOpts``, each a flag of ``helm pull``."""

_OTHERS = frozenset(
    {
        "allowNullValues",
        "chart",
        "description",
        "devel",
        "maxHistory",
        "name",
        "namespace",
        "repositoryOpts",
        "skipAwait",
        "timeout",
        "values",
        "version",
    }
)
# A mark of the SDK, and the provider's answers.
_WITHOUT_MEANING = frozenset({"compat", "status", "resourceNames", "manifest"})


@dataclass(frozen=True)
class ReleaseInputs:
    """The inputs of a release."""

    name: str
    namespace: str
    chart: str
    """Path of a directory, name in the repository, or ``oci://`` reference."""
    version: str
    """Version of the chart; empty when the program names none."""
    repository: Mapping[str, str]
    """``repositoryOpts``: ``repo`` and the options to read it."""
    devel: bool
    values: Mapping[str, Any]
    description: str
    flags: tuple[str, ...]
    timeout_seconds: float
    """Limit for each of Helm's waits."""

    @property
    def key(self) -> str:
        """Return the key that sets a release apart from every other release of a cluster; good as a label's value."""
        return f"{self.namespace}.{self.name}"


def wanted(inputs: Mapping[str, Any], *, timeout_seconds: float) -> ReleaseInputs:
    """Parse a release's inputs.

    Helm never waits longer than ``timeout_seconds``, even with a longer ``timeout``.
    """
    given = {key: value for key, value in inputs.items() if value is not None and key not in _WITHOUT_MEANING}
    name, namespace = str(given.get("name", "")), str(given.get("namespace") or "default")
    repository = given.get("repositoryOpts") or {}
    unknown = [
        *sorted(set(given) - _OTHERS - set(FLAGS)),
        *(f"repositoryOpts.{key}" for key in sorted(set(repository) - set(REPOSITORY_FLAGS))),
    ]
    if unknown:
        raise LocalCloudError(
            f"Helm release {namespace}/{name}: the local cloud does not support {', '.join(unknown)}; leave "
            f"{'it' if len(unknown) == 1 else 'them'} out, or add {'it' if len(unknown) == 1 else 'them'} to "
            "trainium_eks/local/releases/release_inputs.py"
        )
    missing = [key for key in ("name", "chart") if not given.get(key)]
    if missing:
        raise LocalCloudError(f"Helm release {namespace}/{name} has no {' and no '.join(missing)}")
    flags = [flag for key, flag in FLAGS.items() if given.get(key)]
    if not given.get("skipAwait"):
        flags.append("--wait")
    # Helm's default is 10; Pulumi's is 0, which is no limit.
    flags.append(f"--history-max={int(given.get('maxHistory') or 0)}")
    return ReleaseInputs(
        name=name,
        namespace=namespace,
        chart=str(given["chart"]),
        version=str(given.get("version") or ""),
        repository={key: str(value) for key, value in repository.items() if value is not None},
        devel=bool(given.get("devel")),
        values=plain(given.get("values") or {}, keep_null=bool(given.get("allowNullValues"))),
        description=str(given.get("description") or ""),
        flags=tuple(flags),
        timeout_seconds=min(float(given.get("timeout") or DEFAULT_TIMEOUT_SECONDS), timeout_seconds),
    )


def plain(value: Any, *, keep_null: bool) -> Any:
    """Return values as Pulumi hands them to Helm: without nulls unless ``keep_null`` is set, and whole numbers as such.

    The engine's protocol has only floating-point numbers, and a chart would print a port as ``8080.0``.
    """
    if isinstance(value, Mapping):
        return {key: plain(each, keep_null=keep_null) for key, each in value.items() if each is not None or keep_null}
    if isinstance(value, list | tuple):
        return [plain(each, keep_null=keep_null) for each in value if each is not None or keep_null]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
