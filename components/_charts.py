"""Helpers shared by the add-on components: Helm releases, local charts, namespaces, and placement of pods on
accelerator nodes."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pulumi
import pulumi_kubernetes as k8s
import yaml

from trainium_eks.model.catalogue.instances import INSTANCE_TYPE_LABEL, Catalogue, near
from trainium_eks.model.catalogue.versions import CHARTS, Chart
from trainium_eks.model.validation.problems import Problem, join

CHARTS_DIRECTORY = Path(__file__).resolve().parent.parent / "charts"
"""Our own charts: beside ``components`` both in the repository and in the installed package."""

TIMEOUT_SECONDS = 600
"""Helm's time limit for a release, in which pods pull large images onto nodes that have just joined."""

MAX_HISTORY = 5
"""Revisions Helm keeps: enough to go back, few enough that their Secrets do not pile up."""

PodSecurity = Literal["privileged", "baseline", "restricted"]
OnFailure = Literal["roll back", "keep"]

CRITICAL_ADDONS: Mapping[str, str] = {"key": "CriticalAddonsOnly", "operator": "Exists"}
"""The toleration that the charts' own lists begin with, and that a list of ours replaces."""


@dataclass(frozen=True)
class LocalChart:
    """A chart of this repository."""

    name: str
    version: str
    path: str
    """Relative to the working directory: an absolute path differs between machines, and the provider would
    see an upgrade where there is none (pulumi-kubernetes#2573)."""
    digest: str
    """SHA-256 of the chart's files, for the release's values."""


def local_chart(name: str, working_directory: Path | None = None) -> LocalChart:
    """Return a chart of the directory ``charts`` beside ``components``, in the repository or the installed package; the
    relative ``path`` starts at the working directory, of the process where none is given. FileNotFoundError: there is
    no Chart.yaml."""
    directory = CHARTS_DIRECTORY / name
    metadata = yaml.safe_load((directory / "Chart.yaml").read_text(encoding="utf-8"))
    return LocalChart(
        name=metadata["name"],
        version=metadata["version"],
        path=relative(directory, working_directory),
        digest=digest(directory),
    )


def relative(directory: Path, working_directory: Path | None = None) -> str:
    """Return a directory's path from the working directory, with ``./`` first, so that no tool takes it for a
    repository."""
    path = Path(os.path.relpath(directory, working_directory or Path.cwd())).as_posix()
    return path if path.startswith("../") else f"./{path}"


def digest(directory: Path) -> str:
    """Return the SHA-256 over the names and contents of a directory's files, the same on every operating system.

    Helm releases made from a path do not notice an edited template (pulumi-kubernetes#2672), but they do notice a
    changed value, such as this digest.
    """
    sha = hashlib.sha256()
    for file in sorted(directory.rglob("*"), key=lambda path: path.relative_to(directory).as_posix()):
        # Running a script of the chart writes bytecode beside it.
        if file.is_file() and not file.name.startswith(".") and file.parent.name != "__pycache__":
            content = file.read_bytes().replace(b"\r\n", b"\n")
            sha.update(f"{file.relative_to(directory).as_posix()}\0{len(content)}\0".encode())
            sha.update(content)
    return sha.hexdigest()


def release(
    logical_name: str,
    chart: Chart | LocalChart,
    *,
    release_name: str,
    namespace: str,
    values: Mapping[str, Any],
    opts: pulumi.ResourceOptions,
    timeout_seconds: int = TIMEOUT_SECONDS,
    on_failure: OnFailure = "roll back",
) -> k8s.helm.v3.Release:
    """Make a Helm release of a pinned chart, under a given name, from which charts build the names of their objects; a
    chart of this repository gets its digest as a value.

    ``helm.v3.Release`` and not ``helm.v4.Chart``, which drops hooks; Volcano's chart makes its webhook certificate in a
    hook. Values are plain data: with an Output among them a first preview cannot render the chart. Only values that AWS
    generates are Outputs: the cluster's name, an address, an id.

    ``on_failure`` is ``roll back`` for a chart that needs all its pods, for which Helm waits ``timeout_seconds``;
    ``keep`` for agents of nodes: two nodes with a broken driver would make Helm remove the agent from every node, so
    the release stays, nothing waits for its pods, and ``trn doctor`` names the nodes without the agent.
    """
    source: dict[str, Any] = {"chart": chart.path if isinstance(chart, LocalChart) else chart.chart}
    merged = dict(values)
    if isinstance(chart, LocalChart):
        merged["chartDigest"] = chart.digest
    else:
        source["version"] = chart.version
        if chart.repository:
            source["repository_opts"] = k8s.helm.v3.RepositoryOptsArgs(repo=chart.repository)
    return k8s.helm.v3.Release(
        logical_name,
        k8s.helm.v3.ReleaseArgs(
            name=release_name,
            namespace=namespace,
            values=merged,
            atomic=on_failure == "roll back",
            cleanup_on_fail=on_failure == "roll back",
            skip_await=on_failure == "keep",
            timeout=timeout_seconds,
            max_history=MAX_HISTORY,
            **source,
        ),
        opts=opts,
    )


def chart(name: str) -> Chart:
    """Return the pinned upstream chart of a name."""
    return CHARTS[name]


def namespace(
    logical_name: str, name: str, pod_security: PodSecurity, reason: str, opts: pulumi.ResourceOptions
) -> k8s.core.v1.Namespace:
    """Make a namespace that a destroy removes, with labels for Pod Security. ``reason`` says why the level is not
    stricter; written to an annotation for audits of the cluster."""
    return k8s.core.v1.Namespace(
        logical_name,
        metadata=k8s.meta.v1.ObjectMetaArgs(
            name=name,
            labels={
                "pod-security.kubernetes.io/enforce": pod_security,
                "pod-security.kubernetes.io/warn": pod_security,
            },
            annotations={"trainium-eks/pod-security-reason": reason},
        ),
        opts=opts,
    )


def close_namespace(
    logical_name: str,
    name: str,
    namespace: str,
    opts: pulumi.ResourceOptions,
    admitted: Sequence[k8s.networking.v1.NetworkPolicyIngressRuleArgs] = (),
    directions: Sequence[str] = ("Ingress",),
) -> None:
    """Make a network policy for every pod of a namespace: in these directions only ``admitted`` traffic
    passes. The kubelet's probes and forwarded ports come from the node and are not affected."""
    k8s.networking.v1.NetworkPolicy(
        logical_name,
        metadata=k8s.meta.v1.ObjectMetaArgs(name=name, namespace=namespace),
        spec=k8s.networking.v1.NetworkPolicySpecArgs(
            pod_selector=k8s.meta.v1.LabelSelectorArgs(),
            policy_types=list(directions),
            ingress=list(admitted) or None,
        ),
        opts=opts,
    )


def overlay(values: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``values`` with ``over`` merged into them as Helm does it: objects merge, other values are replaced."""
    merged = dict(values)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = overlay(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def at(values: Mapping[str, Any], *keys: str) -> Any:
    """Return the value under nested keys, or None when some step is missing or not an object."""
    found: Any = values
    for key in keys:
        if not isinstance(found, Mapping):
            return None
        found = found.get(key)
    return found


def tolerations(instance_types: Iterable[str], catalogue: Catalogue) -> list[dict[str, str]]:
    """Return tolerations for every taint of nodes of these types, once each."""
    taints = dict.fromkeys(
        (taint.key, taint.effect)
        for name in sorted(instance_types)
        for taint in (*catalogue.taints(name), *catalogue.startup_taints(name))
    )
    return [{"key": key, "operator": "Exists", "effect": effect} for key, effect in taints]


def on_instance_types(instance_types: Iterable[str]) -> dict[str, Any]:
    """Return a pod affinity for nodes of these types and no others."""
    expression = {"key": INSTANCE_TYPE_LABEL, "operator": "In", "values": sorted(instance_types)}
    terms = [{"matchExpressions": [expression]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def spread(labels: Mapping[str, str]) -> dict[str, Any]:
    """Return a pod anti-affinity for copies on different nodes; preferred, so that a cluster of one node still
    works."""
    term = {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": "kubernetes.io/hostname"}
    return {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]
        }
    }


def instance_type_problems(
    instance_types: Sequence[str], family: Literal["neuron", "nvidia"], catalogue: Catalogue
) -> list[Problem]:
    """Return the problems of an add-on's instance types: an empty list, an unknown type, or a type of another family.

    A device plugin starts no pod on nodes of a type that its list lacks, without an error (aws-do-eks#56), so the stack
    passes the pools' types and they are validated here.
    """
    if not instance_types:
        return [Problem("instance_types", "it is empty", f"name the {family} instance types of the node groups")]
    found = []
    for index, name in enumerate(instance_types):
        path = join("instance_types", index)
        instance = catalogue.get(name)
        if instance is None:
            found.append(unknown_type(path, name, catalogue))
        elif instance.family != family:
            found.append(Problem(path, f"{name} has no {family} devices (family {instance.family})", "leave it out"))
    return found


def unknown_type(path: str, name: str, catalogue: Catalogue) -> Problem:
    """Return the problem of a type that is missing in the catalogue, with the nearest type."""
    good = near(name, catalogue)
    fix = "" if good else "name a type of the catalogue, or give a catalogue that has it"
    return Problem(path, "it is not in the catalogue", fix, value=name, allowed=tuple(catalogue), good=good)


def plain_problems(values: object, path: str) -> Iterator[Problem]:
    """Yield a problem, with its path, for each chart value that is not plain data (an Output, a resource, a date)."""
    if isinstance(values, Mapping):
        for key, value in values.items():
            yield from plain_problems(value, join(path, str(key)))
    elif isinstance(values, list | tuple):
        for index, value in enumerate(values):
            yield from plain_problems(value, join(path, index))
    elif values is not None and not isinstance(values, str | int | float | bool):
        reason = f"it is a {type(values).__name__}; chart values are plain data, so that a preview can render the chart"
        yield Problem(path, reason, "give the value itself")
