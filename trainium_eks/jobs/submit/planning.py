"""Planning of a job from a researcher's request, the stack's outputs and facts of the cluster, or all problems of it.

Pure: facts of the cluster, the registry and the disk come in :class:`~.requests.Facts`.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from trainium_eks.jobs.objects import resources
from trainium_eks.jobs.objects.job import C10D, CompileCache, Precision, Topology, TrainingJob
from trainium_eks.jobs.submit import refusals, saving
from trainium_eks.jobs.submit.examples import example_of
from trainium_eks.jobs.submit.requests import Facts, JobRequest, Submission
from trainium_eks.model import node_labels
from trainium_eks.model.catalogue.backends import backend_of
from trainium_eks.model.catalogue.instances import InstanceType, near
from trainium_eks.model.outputs import NamespaceOutput, NodeGroupOutput, StackOutputs
from trainium_eks.model.validation.problems import Problem, Severity, nearest

NODES = 2
"""Default number of a job's nodes, where its group has as many."""

RETRIES = 50
"""Default for a training of weeks: each fault of a node counts once."""
COMPILE_RETRIES = 3
GRACE_SECONDS = 300
LOCAL_GRACE_SECONDS = 30


_NOT_OF_THE_GRAPHS = frozenset(
    (
        *("checkpoint", "checkpoints", "ckpt", "dir", "directory", "epochs", "file", "log", "logging", "logs"),
        *("minutes", "name", "output", "path", "resume", "run", "save", "seconds", "steps"),
    )
)
"""Words in the names of a script's options by which its graphs do not change: a trial of a few steps compiles the
graphs of the whole training."""


def topology_labels(outputs: StackOutputs) -> tuple[str, ...]:
    """Return the node labels that become HyperNodes in a stack, the widest first."""
    types = (group.instance_type for group in outputs.node_groups)
    return node_labels.topology_labels(types, outputs.catalogue)


def find_group(
    outputs: StackOutputs, name: str | None, instance_type: str | None = None
) -> NodeGroupOutput | tuple[Problem, ...]:
    """Return a node group: by name, by type, or the stack's first."""
    groups = outputs.node_groups
    if not groups:
        return (Problem("", "the stack has no node group", "add one under `nodeGroups` of its config"),)
    named = [each for each in groups if name in (None, each.name)]
    if name is not None and not named:
        names = tuple(each.name for each in groups)
        return (
            Problem("--group", "no node group has this name", value=name, allowed=names, good=nearest(name, names)),
        )
    found = next((each for each in named if instance_type in (None, each.instance_type)), None)
    if found is not None:
        return found
    assert instance_type is not None, "without a type the first group is found"
    types = tuple(dict.fromkeys(each.instance_type for each in named))
    if name is not None:
        reason = f"the nodes of {name} are {types[0]}"
        return (Problem("--instance-type", reason, value=instance_type, good=types[0]),)
    good, reason = near(instance_type, types), "no node group has this type"
    return (Problem("--instance-type", reason, value=instance_type, allowed=types, good=good),)


def plan(
    request: JobRequest, outputs: StackOutputs, namespace: NamespaceOutput, facts: Facts
) -> Submission | tuple[Problem, ...]:
    """Return the job, or all problems at once: refusals with the warnings beside them."""
    group = find_group(outputs, request.group, request.instance_type)
    if not isinstance(group, NodeGroupOutput):
        return group
    instance = outputs.catalogue[group.instance_type]
    job = _job(request, outputs, namespace, facts, group, instance)
    found = refusals.problems(request, job, group, outputs, namespace, facts)
    refused = any(problem.severity is Severity.REFUSE for problem in found)
    if refused:
        return found
    proposed = saving.propose(request, outputs, namespace, instance, job.nodes)
    job = replace(job, env={**saving.variables(request, proposed), **job.env})
    return Submission(job, group, found, proposed)


def _job(
    request: JobRequest,
    outputs: StackOutputs,
    namespace: NamespaceOutput,
    facts: Facts,
    group: NodeGroupOutput,
    instance: InstanceType,
) -> TrainingJob:
    app = request.name or app_name(request)
    backend = request.backend or ("cpu" if facts.is_local else backend_of(instance))
    whole = not facts.is_local
    nodes = request.nodes
    if nodes is None:
        has_fabric = instance.has_efa or not resources.needs_fabric(instance)
        nodes = max(min(NODES, group.max_size), 1) if has_fabric else 1
    ranks = request.ranks_per_node
    if ranks is None:
        ranks = resources.allowed_ranks(instance)[-1] if whole else 1
    grace = request.grace
    if grace is None:
        grace = GRACE_SECONDS if whole else LOCAL_GRACE_SECONDS
    retries = request.retries
    if retries is None:
        retries = COMPILE_RETRIES if request.run_kind == "compile" else RETRIES
    return TrainingJob(
        name=request.name or f"{app}-{facts.unique}",
        app=app,
        program=request.program,
        image=facts.image,
        instance=instance,
        resources=resources.whole_node(instance) if whole else resources.local_share(instance),
        nodes=nodes,
        ranks_per_node=ranks,
        backend=backend,
        kind=request.run_kind,
        form=request.kind,
        launcher="torchrun" if facts.image_has_torch else "gang",
        # C10d needs no service that could be down.
        rendezvous=outputs.rendezvous if request.rendezvous == "etcd" else C10D,
        precision=cast("Precision", request.precision),  # another one is refused
        cache=_cache(request, facts.image, nodes * ranks),
        claim=namespace.claim,
        options=request,
        env=request.variables,
        retries=retries,
        # Compilations have none.
        metrics_port=facts.metrics_port if request.metrics and request.run_kind == "train" else 0,
        submission=facts.unique,
        namespace=namespace.name,
        queue=request.queue if request.queue is not None else namespace.queues[0],
        service_account=namespace.service_account,
        grace_seconds=grace,
        topology=_topology(request, outputs),
        has_workspace=request.has_workspace,
        user_id=namespace.training_user_id,
        capacity_ends=facts.capacity_ends.get(group.reservation, ""),
        capacity_block=group.reservation if facts.capacity_ends.get(group.reservation) else "",
        capacity_group=group.name if group.ends else "",
    )


def _topology(request: JobRequest, outputs: StackOutputs) -> Topology | None:
    """Return the demand in Volcano's tiers: UltraServers, if the stack has any, are the tiers below the layers of
    switches."""
    if not request.topology:
        return None
    within = node_labels.WITHIN_ULTRASERVER
    if request.tier in within:
        return Topology(request.topology, [*within].index(request.tier) + 1, within[request.tier])
    switches = int(request.tier) if request.tier.isdecimal() else 0  # another word is refused
    below = len(topology_labels(outputs)) - len(node_labels.EC2_TOPOLOGY_LABELS)
    return Topology(request.topology, below + switches)


def app_name(request: JobRequest) -> str:
    """Return a name for the program: an example's name; else ``train`` for ``src/Train.py``, and
    ``pretrain`` for ``team.models.pretrain``."""
    program = request.program
    if example := example_of(program.module):
        return example.name
    stem = program.script.rpartition("/")[2].removesuffix(".py") or program.module.rpartition(".")[2]
    name = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:32].strip("-")
    return name if refusals.NAME.fullmatch(name) else "train"


def _cache(request: JobRequest, image: str, world_size: int) -> CompileCache | None:
    if not request.cache_set:
        return None
    compiler = request.compiler or compiler_of(image)
    options = graph_options(request.program.arguments)
    return CompileCache(cache_key(request.cache_set, world_size, request.precision, compiler), options)


def cache_key(model: str, world_size: int, precision: str, compiler: str) -> str:
    """Return the name of a compile cache: by all that compiled graphs depend on, beside the script's own options."""
    parts = (model, f"{world_size}x", precision, compiler)
    return "-".join(re.sub(r"[^A-Za-z0-9._]+", "-", part).strip("-.") for part in parts if part)


def compiler_of(image: str) -> str:
    """Return the version of the compiler in an image: the Neuron SDK's where the tag names it (``…-sdk2.30.0-…``), else
    the tag itself, so that no other image reads these graphs."""
    tag = image.rpartition("/")[2].partition(":")[2].partition("@")[0]
    sdk = re.search(r"sdk(\d+(?:\.\d+)+)", tag)
    return f"sdk{sdk[1]}" if sdk else tag or "latest"


def graph_options(arguments: Sequence[str]) -> dict[str, str]:
    """Return the options among a script's arguments that its graphs may depend on: ``--batch_size 16`` does,
    ``--max_steps`` does not. An argument without a name counts by its place."""
    found: dict[str, str] = {}
    name = ""
    for place, word in enumerate(arguments):
        if word.startswith("--"):
            name, _, value = word.removeprefix("--").replace("-", "_").partition("=")
            found[name] = value
        elif name:
            found[name] = f"{found[name]} {word}".strip()
        else:
            found[str(place)] = word
    return {option: value for option, value in found.items() if not _NOT_OF_THE_GRAPHS & set(option.split("_"))}
