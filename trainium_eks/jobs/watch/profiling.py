"""Profiling: a copy of an existing gang, run for a few steps under the Neuron runtime's profiler. Pure functions.

The runtime reads whether to profile when a process starts, and no tool attaches to one that runs: ``neuron-profile
capture`` executes a graph itself, on cores that must be free (AWS Neuron documentation, Neuron Explorer, "Environment
variables" and "Capture profiles"). So the job is run a second time, beside its first run or after it.
"""

import copy
import shlex
from collections.abc import Mapping
from typing import Any

from trainium_eks.jobs.objects.identity import JOB_API, KIND_LABEL
from trainium_eks.jobs.observed.free_capacity import requests
from trainium_eks.kube.cluster import Object, name_of
from trainium_eks.model.catalogue.instances import NEURON_RESOURCE
from trainium_eks.model.validation.problems import Problem

ROOT = "/data/profiles"
"""Directory of the profiles, each job's in a directory of its name."""

SUFFIX = "-profile"

OUTPUT = "TRN_OUTPUT_DIR"
"""Variable with a job's output directory."""

OF_ANNOTATION = "trainium-eks/profile-of"

_KEPT_ANNOTATIONS = "trainium-eks/"
_TASK_INDEX = "VC_TASK_INDEX"
_NAME_VARIABLES = ("TRN_JOB", "TORCHX_JOB_ID")
_INSTANCE_LABEL = "app.kubernetes.io/instance"


def problems(job: Object, claim: str, *, is_running: bool) -> list[Problem]:
    """Return the reasons why a job cannot be profiled."""
    found = []
    specs = [task["template"]["spec"] for task in job["spec"].get("tasks") or ()]
    if not any(resource.startswith(NEURON_RESOURCE) for spec in specs for resource in requests(spec)):
        fix = "on a GPU, profile from within the script (torch.profiler); on a CPU, by py-spy"
        found.append(Problem("JOB", f"{name_of(job)} asks for no Neuron device, and this is Neuron's profiler", fix))
    if not claim or not any(_mounts_data(spec) for spec in specs):
        reason = f"{name_of(job)} has no shared volume at /data to write profiles to"
        found.append(Problem("JOB", reason, "give the stack a `fileSystem`, and mount the namespace's claim at /data"))
    if is_running and not output_of(job):
        reason = f"{name_of(job)} runs, and does not say by {OUTPUT} where it writes: a second run could overwrite it"
        found.append(Problem("JOB", reason, f"wait for its end, or end it: trn cancel {name_of(job)}"))
    return found


def output_of(job: Object) -> str:
    """Return a job's output directory, as :data:`OUTPUT` says; empty without that variable."""
    for task in job["spec"].get("tasks") or ():
        for container in task["template"]["spec"].get("containers") or ():
            for variable in container.get("env") or ():
                if variable.get("name") == OUTPUT:
                    return str(variable.get("value") or "")
    return ""


def profiled(job: Object, node: int, steps: int) -> dict[str, Any]:
    """Return the same gang, profiled on one of its nodes. Its output goes beside its profile, not into the first run's
    directory. Half of the steps are left to warm up."""
    name = name_of(job) + SUFFIX
    directory = f"{ROOT}/{name_of(job)}"
    spec = copy.deepcopy(dict(job["spec"]))
    spec["maxRetry"] = 1
    before, after = output_of(job), f"{directory}/output"
    tasks = spec["tasks"]
    for number, task in enumerate(tasks):
        template = task["template"]
        labels = (template.get("metadata") or {}).get("labels") or {}
        if _INSTANCE_LABEL in labels:
            labels[_INSTANCE_LABEL] = name
        for container in template["spec"]["containers"]:
            _redirect(container, before, after)
            for variable in container.get("env") or ():
                if variable.get("name") in _NAME_VARIABLES:
                    variable["value"] = str(variable.get("value", "")).replace(name_of(job), name)
            inspect = _inspect(directory, steps)
            if len(tasks) == 1 and task.get("replicas", 1) > 1:
                _inspect_one(container, node, inspect)
            elif number == node or len(tasks) == 1:
                _set(container, inspect)
    noted = job["metadata"].get("annotations") or {}
    annotations = {key: value for key, value in noted.items() if key.startswith(_KEPT_ANNOTATIONS)}
    metadata = {
        "name": name,
        "namespace": job["metadata"]["namespace"],
        "labels": {**(job["metadata"].get("labels") or {}), KIND_LABEL: "profile"},
        "annotations": {**annotations, OF_ANNOTATION: name_of(job)},
    }
    if _INSTANCE_LABEL in metadata["labels"]:
        metadata["labels"][_INSTANCE_LABEL] = name
    return {"apiVersion": JOB_API, "kind": "Job", "metadata": metadata, "spec": spec}


def _inspect(directory: str, steps: int) -> dict[str, str]:
    """Return variables that turn the profiler on: the runtime's calls, and one execution of each graph on the
    devices."""
    return {
        "NEURON_RT_INSPECT_ENABLE": "1",
        "NEURON_RT_INSPECT_DEVICE_PROFILE": "1",
        "NEURON_RT_INSPECT_DEVICE_PROFILE_NUM_WARMUP": str(steps // 2),
        "NEURON_RT_INSPECT_OUTPUT_DIR": directory,
    }


def _set(container: dict[str, Any], variables: Mapping[str, str]) -> None:
    kept = [each for each in container.get("env") or () if each.get("name") not in variables]
    container["env"] = [*kept, *({"name": name, "value": value} for name, value in variables.items())]


def _inspect_one(container: dict[str, Any], node: int, variables: Mapping[str, str]) -> None:
    """Set the variables on one node: in one task all pods are alike, so the container itself compares its number. A
    container that runs its image's own entry point is profiled on every node."""
    if not container.get("command"):
        _set(container, variables)
        return
    exports = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    script = f'if [ "${_TASK_INDEX}" = {node} ]; then export {exports}; fi; exec "$@"'
    container["command"] = ["/bin/sh", "-c", script, "trn-profile", *container["command"]]


def _redirect(container: dict[str, Any], before: str, after: str) -> None:
    """Replace the old directory by the new one everywhere."""
    if not before:
        return
    for field in ("command", "args"):
        if container.get(field):
            container[field] = [part.replace(before, after) for part in container[field]]
    for variable in container.get("env") or ():
        if "value" in variable:
            variable["value"] = str(variable["value"]).replace(before, after)


def _mounts_data(spec: Object) -> bool:
    return any(
        mount.get("mountPath") == "/data"
        for container in spec.get("containers") or ()
        for mount in container.get("volumeMounts") or ()
    )
