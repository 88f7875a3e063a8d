"""Validations of additions by Volcano's controllers to a job's pods that make the API server refuse the pods.

Volcano's webhook validates the templates without these additions. :mod:`trainium_eks.model.policies.admission_baseline`
describes the harm of refused pods to other teams. Facts: Volcano 1.15, ``createJobPod`` and
``pkg/controllers/job/plugins``.
"""

import json
from collections.abc import Iterator

from trainium_eks.model.policies.admission_baseline import CONTAINERS
from trainium_eks.model.policies.admission_terms import Limits, Validation, names, text

MOST_NAME = 50
"""Most letters of a job's name: a volume of the job is named after it, with a dash and 12 letters, and has at most
63."""

MOST_HOST_NAME = 63
"""Most letters of the name of a job's pod, which is its host name with the plugin ``svc``."""

PORT_PLUGINS = ("mpi", "pytorch", "ray", "tensorflow")
"""Plugins that add ports to containers, by numbers in their arguments."""

PORTS = {"client-server": 10001, "dashboard": 8265, "gcs": 6379, "mpijob-port": 22, "pytorchjob-port": 23456}
"""Ports that the plugins add, by name, each unless the container has one of that number."""

WAITING_CONTAINER = "wait-for-master"
"""Init container that the plugin ``pytorch`` adds."""

SVC_PATH = "/etc/volcano"
SSH_PATH = "/root/.ssh"
"""Where the plugins of these names mount the names and the keys of a job's pods."""


def validations(limits: Limits) -> Iterator[Validation]:
    """Yield the validations of Volcano jobs and of their templates."""
    yield _names()
    yield _arguments()
    yield _ports()
    yield _mounts()
    added = ", ".join(f"object.metadata.name + '-{plugin}'" for plugin in ("svc", "ssh"))
    yield Validation(
        f"variables.specs.all(spec, (!has(spec.volumes) || !spec.volumes.exists(one, one.name in [{added}])) && "
        f"!{CONTAINERS}.exists(container, {text('container', 'name')} == '{WAITING_CONTAINER}'))",
        f"a template must have no volume called after the job with -svc or -ssh, and no container {WAITING_CONTAINER}: "
        "the plugins add these, and a name may be there once",
    )
    known = names(limits.service_accounts)
    yield Validation(
        "variables.specs.all(spec, (!has(spec.runtimeClassName) || spec.runtimeClassName == '') && "
        "(!has(spec.serviceAccountName) || spec.serviceAccountName == '' || "
        f"spec.serviceAccountName in {known}))",
        "a Volcano job must have no runtimeClassName and be of the serviceAccountName "
        f"{' or '.join(limits.service_accounts)}: where another is missing, every pod of the job is refused",
    )


def _names() -> Validation:
    """Return the validation of names. An existing job keeps its name, and templates and cron jobs are exempt, because
    the names of their jobs are validated with the job."""
    service = 'object.metadata.name.matches("^[a-z]") || !has(object.spec.plugins) || !("svc" in object.spec.plugins)'
    longest = "variables.tasks.all(task, !has(task.name) || size(object.metadata.name) + size(task.name) + 2 + "
    digits = f"size(string(has(task.replicas) ? int(task.replicas) : 1)) <= {MOST_HOST_NAME})"
    return Validation(
        'object.kind != "Job" || !has(object.metadata.name) || (!object.metadata.name.contains(".") && '
        f"size(object.metadata.name) <= {MOST_NAME} && {longest}{digits} && ({service}))",
        f"a job's name must have no dot and at most {MOST_NAME} letters, and with a task's name, two dashes and a "
        f"number {MOST_HOST_NAME}, and begin with a letter beside the plugin svc: volumes, hosts and the service of "
        "the job are called after it",
    )


def _arguments() -> Validation:
    """Return the validation of plugins' arguments: the form ``--name=value``, and valid port numbers."""
    valid = (
        'one.matches("^--?[A-Za-z-]+=[!-~]+$") && '
        '(!one.matches("^--?[A-Za-z]*[pP]ort=") || one.matches("^[^=]*=([1-9][0-9]{0,3}|[1-5][0-9]{4})$"))'
    )
    given = " && ".join(
        f'(!("{plugin}" in variables.job.plugins) || variables.job.plugins["{plugin}"].all(one, {valid}))'
        for plugin in PORT_PLUGINS
    )
    return Validation(
        f"!has(variables.job.plugins) || ({given})",
        f"arguments of the plugins {', '.join(PORT_PLUGINS)} must be of the form --name=value, and ports from 1 to "
        "59999",
    )


def _ports() -> Validation:
    """Return the validation of ports with the plugins' names, which the plugins would add a second time."""
    numbers = f"{json.dumps(PORTS)}[port.name]"
    moved = "variables.job.plugins[plugin].exists(one, one.matches('[pP]ort='))"
    return Validation(
        f"!has(variables.job.plugins) || !variables.job.plugins.exists(plugin, plugin in {names(PORT_PLUGINS)}) || "
        f"variables.specs.all(spec, {CONTAINERS}.all(container, !has(container.ports) || container.ports.all(port, "
        f"!has(port.name) || !(port.name in {names(PORTS)}) || (port.containerPort == {numbers} && "
        f"!variables.job.plugins.exists(plugin, plugin in {names(PORT_PLUGINS)} && {moved})))))",
        f"a container must have no port called {', '.join(PORTS)} but that of the plugin's default number: the plugin "
        "adds its own, and a name may be there once",
    )


def _mounts() -> Validation:
    """Return the validation of mount paths that the job's volumes and the plugins already use."""
    mount = "mount.mountPath"
    plugins = "variables.job.plugins"
    keys = f"{plugins}['ssh'].exists(one, one.endsWith('=' + {mount}))"
    taken = " || ".join(
        (
            f"(has(variables.job.volumes) && variables.job.volumes.exists(one, one.mountPath == {mount}))",
            f"(has({plugins}) && 'svc' in {plugins} && {mount} == '{SVC_PATH}')",
            f"(has({plugins}) && 'ssh' in {plugins} && ({mount} == '{SSH_PATH}' || {keys}))",
        )
    )
    return Validation(
        f"variables.specs.all(spec, {CONTAINERS}.all(container, !has(container.volumeMounts) || "
        f"!container.volumeMounts.exists(mount, {taken})))",
        f"a container must not mount anything where the job's volumes, the plugin svc ({SVC_PATH}) or the plugin ssh "
        f"({SSH_PATH}) are mounted: a path may be there once",
    )
