"""Problems of a job before its submission, each with its remedy. Paths are the command's options."""

import re
from collections.abc import Iterator

from trainium_eks.jobs.objects import resources, runnable
from trainium_eks.jobs.objects import token_reference as secrets
from trainium_eks.jobs.objects.forms import KINDS
from trainium_eks.jobs.objects.job import C10D, PRECISIONS, TrainingJob
from trainium_eks.jobs.submit import saving
from trainium_eks.jobs.submit.examples import EXAMPLES, example_of
from trainium_eks.jobs.submit.requests import Facts, JobRequest
from trainium_eks.model.node_labels import EC2_TOPOLOGY_LABELS, WITHIN_ULTRASERVER
from trainium_eks.model.outputs import NamespaceOutput, NodeGroupOutput, StackOutputs
from trainium_eks.model.validation.problems import Problem, Severity, nearest, nearest_number, plural

MOST_CPU_RANKS = 1024
"""Ranks on a node without accelerators: far more than its processors."""

LONGEST_NAME = 49
"""Characters of a job's name: with ``-trainer-255-0`` it is the name of a host, which has at most 63 characters."""

NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
NAME_FORM = "it must be lower-case letters, digits and dashes, beginning with a letter, {} at most"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEY = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


def problems(
    request: JobRequest,
    job: TrainingJob,
    group: NodeGroupOutput,
    outputs: StackOutputs,
    namespace: NamespaceOutput,
    facts: Facts,
) -> tuple[Problem, ...]:
    """Return all problems of a request."""
    return (
        *_right_problems(request, namespace, facts),
        *_form_problems(request, job),
        *_name_problems(request, job, facts),
        *_size_problems(request, job, group, outputs, facts),
        *_queue_problems(job, outputs, namespace),
        *_program_problems(request, job, facts),
        *_setting_problems(request, job, outputs, namespace, facts),
        *saving.problems(request),
        *_cache_problems(request, job, facts),
        *_data_problems(request, job, facts),
        *_token_problems(request, facts),
    )


def _right_problems(request: JobRequest, namespace: NamespaceOutput, facts: Facts) -> Iterator[Problem]:
    if not facts.may_submit:
        what = "Volcano jobs" if request.kind == "volcano" else f"{KINDS[request.kind].kind}s"
        reason = f"you may not submit {what} in the namespace {namespace.name}"
        fix = (
            f"ask an administrator to add your IAM role to `principals` of {namespace.name}, or give --namespace yours"
        )
        yield Problem("", reason, fix)


def _form_problems(request: JobRequest, job: TrainingJob) -> Iterator[Problem]:
    """Yield the problems of settings that the object of another form cannot express."""
    if request.kind != "volcano" and job.kind == "compile":
        reason = "a compile cache is filled by a Volcano job, which holds the cache while its gang is whole"
        yield Problem("--kind", reason, value=request.kind, good="volcano")
    if request.kind == "pytorchjob" and request.topology is not None:
        reason = "the Training Operator makes the PodGroup, and gives it no topology"
        yield Problem("--topology", reason, "leave it out, or take --kind volcano", value=request.topology)
    if request.kind == "pytorchjob" and request.rendezvous == "etcd":
        reason = "etcd remembers a rendezvous that ended, and the Training Operator restarts pods one by one"
        yield Problem("--rendezvous", reason, value="etcd", good=C10D)


def _name_problems(request: JobRequest, job: TrainingJob, facts: Facts) -> Iterator[Problem]:
    if not NAME.fullmatch(job.name) or len(job.name) > LONGEST_NAME:
        good = re.sub(r"[^a-z0-9-]+", "-", job.name.lower())[:LONGEST_NAME].strip("-")
        good = good if NAME.fullmatch(good) else "train"
        yield Problem("--name", NAME_FORM.format(LONGEST_NAME), value=job.name, good=good)
        return
    unique = f"{request.name}-{facts.unique}"[:LONGEST_NAME]
    if job.name in facts.jobs:
        reason = f"there is a job of this name ({facts.jobs[job.name]})"
        fix = f"or take that one away: trn cancel {job.name}; without --name each job gets a unique name"
        yield Problem("--name", reason, fix, value=job.name, good=unique)
        return
    # Controllers take a Service of the name for the job's own: its nodes would not find each other.
    ends = ("-master-0", "-worker-0") if request.kind == "pytorchjob" else ("",)
    own = [f"{kind} {job.name}" for kind in ("Job", "PyTorchJob", "TrainJob", "JobSet")]
    for name in (f"{job.name}{end}" for end in ends):
        holder = facts.services.get(name, own[0])
        if holder not in own:
            reason = f"the Service {name} of another object ({holder}) is in the place of the job's own"
            fix = f"or end that one: trn serve --stop {name}" if holder == f"Deployment {name}" else ""
            yield Problem("--name", reason, fix, value=job.name, good=unique)
            return


def _size_problems(
    request: JobRequest, job: TrainingJob, group: NodeGroupOutput, outputs: StackOutputs, facts: Facts
) -> Iterator[Problem]:
    instance = job.instance
    # A block may be one UltraServer, and a group has one block: a gang of several takes the nodes of several groups.
    alike = [each.max_size for each in outputs.node_groups if each.instance_type == instance.name]
    most = sum(alike) if instance.ultraserver_nodes else group.max_size
    if job.nodes < 1:
        yield Problem("--nodes", "it must be 1 or more", value=job.nodes, good=1)
    # Ranks on the CPU meet over TCP.
    elif job.nodes > 1 and request.backend != "cpu" and not instance.has_efa and resources.needs_fabric(instance):
        reason = f"{instance.name} has no EFA, without which its nodes cannot train together"
        types = ", ".join(sorted({"trn1.32xlarge", "trn1n.32xlarge", "trn2.48xlarge"}))
        yield Problem("--nodes", reason, f"or choose a group of another type: {types}", value=job.nodes, good=1)
    elif job.nodes > most:
        reason = f"{group.name} has at most {plural(group.max_size, 'node')}"
        fix = f"or raise `maxSize` of {group.name} in the stack's config"
        yield Problem("--nodes", reason, fix, value=job.nodes, good=most or None)
    if request.all_or_nothing and (group.capacity != "on-demand" or not request.scale):
        capacity = f"it reserves On-Demand capacity alone, and that of {group.name} is {group.capacity}"
        yield Problem("--all-or-nothing", capacity if request.scale else "--no-scale scales nothing", "leave one out")
    yield from _rank_problems(job)
    if instance.accelerator.startswith("Inferentia"):
        reason = f"{instance.name} is for inference; PyTorch on Neuron trains on Trainium alone"
        yield Problem("--group", reason, "choose a group of Trainium nodes", value=group.name)
    if facts.is_local and request.backend not in (None, "cpu"):
        reason = "the local cloud has no accelerators; pods run on this machine's CPU"
        yield Problem("--backend", reason, value=request.backend, good="cpu")


def _rank_problems(job: TrainingJob) -> Iterator[Problem]:
    """Yield the problem of the ranks; nothing ties them to the cores of a CPU."""
    allowed = resources.allowed_ranks(job.instance)
    ranks = job.ranks_per_node
    if ranks < 1:
        yield Problem("--ranks-per-node", "it must be 1 or more", value=ranks, good=1)
    elif job.backend == "cpu":
        if ranks > MOST_CPU_RANKS:
            reason = f"a node runs at most {MOST_CPU_RANKS:,} processes of a training"
            yield Problem("--ranks-per-node", reason, value=ranks, good=1)
    elif ranks not in allowed:
        what = {"neuron": "NeuronCores", "nvidia": "GPUs"}[job.instance.family]
        shown = tuple(map(str, allowed)) if len(allowed) < 9 else (f"1 to {allowed[-1]}",)
        reason = f"a {job.instance.name} has {allowed[-1]} {what}, and takes one rank for each"
        if ranks < allowed[-1]:
            reason = f"PyTorch/XLA does not run this many ranks on a {job.instance.name}"
        good = nearest_number(ranks, allowed)
        yield Problem("--ranks-per-node", reason, value=ranks, allowed=shown, good=good)
    elif job.nodes > 1 and ranks != allowed[-1] and job.instance.family == "neuron":
        reason = f"collectives between nodes want every NeuronCore of each: {allowed[-1]} on {job.instance.name}"
        yield Problem("--ranks-per-node", reason, value=ranks, good=allowed[-1], severity=Severity.WARN)


def _queue_problems(job: TrainingJob, outputs: StackOutputs, namespace: NamespaceOutput) -> Iterator[Problem]:
    if job.queue not in namespace.queues:
        reason = "no queue has this name"
        if job.queue in outputs.queues:
            reason = f"the namespace {namespace.name} may not use this queue"
        good = nearest(job.queue, namespace.queues) or namespace.queues[0]
        yield Problem("--queue", reason, value=job.queue, allowed=namespace.queues, good=good)
        return
    for resource, most in outputs.queues.get(job.queue, {}).items():
        each = job.resources.devices.get(resource, 0)
        if each and each * job.nodes > most:
            fits = most // each
            reason = (
                f"queue {job.queue} may use {most} {resource}, and {job.nodes} nodes of {job.instance.name} have "
                f"{each * job.nodes}: the job would wait for ever"
            )
            wider = [name for name in namespace.queues if outputs.queues.get(name, {}).get(resource, 0) > most]
            fix = f"or take a queue that holds more: {', '.join(wider)}" if wider else "or raise its `capability`"
            yield Problem("--nodes", reason, fix, value=job.nodes, good=fits or None)
            return


def _program_problems(request: JobRequest, job: TrainingJob, facts: Facts) -> Iterator[Problem]:
    if bool(request.program.script) == bool(request.program.module):
        fix = f"name what to run: --script FILE, --module MODULE or --example {'|'.join(EXAMPLES)}"
        yield Problem("--script", "a job runs one script or module", fix)
    yield from program_problems(request)
    if facts.image_missing is not None:
        yield facts.image_missing
    example = example_of(request.program.module)
    if example and example.needs_torch and not facts.image_has_torch:
        reason = f"there is no torch in it, which the example {example.name} needs"
        fix = "make an image with torch, the default from then on: trn local images make torch"
        yield Problem("--image", reason, fix, value=facts.image)
    if job.kind == "compile" and job.backend == "cuda":
        yield Problem(
            "--precompile", "there is nothing to compile ahead for CUDA", "submit the training itself: trn train"
        )


def program_problems(request: JobRequest) -> Iterator[Problem]:
    """Yield the problem of a program that the ranks cannot run, as far as its name tells it."""
    program = request.program
    option, value = ("--script", program.script) if program.script else ("--module", program.module)
    if fault := runnable.fault_of(program):
        yield Problem(option, *fault, value=value)


def _setting_problems(
    request: JobRequest, job: TrainingJob, outputs: StackOutputs, namespace: NamespaceOutput, facts: Facts
) -> Iterator[Problem]:
    precisions = PRECISIONS[job.backend]
    if request.precision not in precisions:
        known = any(request.precision in each for each in PRECISIONS.values())
        reason = f"the backend {job.backend} does not train in it" if known else "there is no such precision"
        good = "bf16" if known else nearest(request.precision, precisions) or "bf16"
        yield Problem("--precision", reason, value=request.precision, allowed=precisions, good=good)
    classes = namespace.priority_classes
    if request.priority and request.priority not in classes:
        near = nearest(request.priority, classes)
        reason = f"the namespace {namespace.name} may not use this priority class"
        fix = "" if near else "leave `--priority` out"
        yield Problem("--priority", reason, fix, value=request.priority, allowed=classes, good=near)
    if request.rendezvous == "etcd" and outputs.rendezvous == C10D:
        fix = "or give the stack an etcd: `volcano.rendezvous` etcd in its config"
        yield Problem("--rendezvous", "the stack has no etcd", fix, value="etcd", good=C10D)
    if request.rendezvous == "etcd" and job.launcher == "gang":
        reason = f"{job.image} has no torch, whose launcher alone speaks to etcd"
        yield Problem("--rendezvous", reason, value="etcd", good=C10D)
    yield from _number_problems(request, job)
    yield from _tier_problems(request, job, facts)
    if job.topology is not None and facts.network_layers == 0:
        reason = "Volcano knows no layers of this cluster's network yet; a hard topology waits until it does"
        fix = "`kubectl get hypernodes` shows them: EC2 tells the layers of nodes that run"
        yield Problem("--topology", reason, fix, value=job.topology.mode, severity=Severity.WARN)
    for name in request.variables:
        if not _VARIABLE.fullmatch(name):
            reason = "it is not the name of a variable: letters, digits and underscores, no digit first"
            yield Problem("--env", reason, "write it as --env NAME=VALUE", value=name)


def _number_problems(request: JobRequest, job: TrainingJob) -> Iterator[Problem]:
    limits = (
        ("--retries", job.retries, 1),
        ("--max-restarts", request.max_restarts, 0),
        ("--grace", job.grace_seconds, 1),
    )
    for option, value, least in limits:
        if value < least:
            yield Problem(option, f"it must be {least} or more", value=value, good=least)
    if not re.fullmatch(r"\d{1,4}(:\d{1,3}(,\d{1,3})*)?", request.failed_starts):
        reason = "it must be a number, and after a colon the exit codes that count"
        yield Problem("--failed-starts", reason, value=request.failed_starts, good="3:1,2")


def _tier_problems(request: JobRequest, job: TrainingJob, facts: Facts) -> Iterator[Problem]:
    """Yield the problems of a tier that the nodes do not have, or of a gang that would break an UltraServer up."""
    tier, size = request.tier, WITHIN_ULTRASERVER.get(request.tier, 0)
    if request.topology is None and not size:
        return
    switches = map(str, range(1, (facts.network_layers or len(EC2_TOPOLOGY_LABELS)) + 1))
    allowed = (*(WITHIN_ULTRASERVER if job.instance.ultraserver_nodes else ()), *switches)
    if tier not in allowed:
        reason = f"the network of {job.instance.name} has no such tier"
        good = allowed[-1] if tier.isdecimal() and int(tier) else nearest(tier, allowed) or "1"
        yield Problem("--tier", reason, value=tier, allowed=allowed, good=good)
        return
    if size and request.topology != "hard":
        reason = f"--tier {tier} demands that the nodes are one NeuronLink domain, which a wish cannot"
        yield Problem("--topology", reason, value=request.topology, good="hard")
    if size and job.nodes % size:
        part = "half of an UltraServer" if size == 2 else "UltraServer"
        reason = f"a gang takes each {part} whole, with {size} nodes"
        good = -(-job.nodes // size) * size
        yield Problem("--nodes", reason, "or choose another --tier", value=job.nodes, good=good)
    if size and request.kind != "volcano":
        reason = "the launcher of Volcano jobs alone tells Neuron's runtime the nodes' numbers in the UltraServer"
        yield Problem("--kind", reason, value=request.kind, good="volcano")
    if size and request.rendezvous == "etcd":
        reason = "ranks follow the nodes' places in the UltraServer, and etcd gives them by chance"
        yield Problem("--rendezvous", reason, value="etcd", good=C10D)


def _cache_problems(request: JobRequest, job: TrainingJob, facts: Facts) -> Iterator[Problem]:
    if job.cache is None:
        return
    if not _KEY.fullmatch(request.cache_set):
        reason = "it must be letters, digits, dots, dashes and underscores: it names a directory"
        good = re.sub(r"[^A-Za-z0-9._-]+", "-", request.cache_set).strip("-._") or "model"
        yield Problem("--cache-set", reason, value=request.cache_set, good=good)
    if not job.claim:
        reason = f"the namespace {job.namespace} has no shared file system for a compile cache"
        yield Problem("--cache-set", reason, "leave it out, or add `fileSystem` to the stack's config")
    if job.cache.key in facts.compiling:
        writer = facts.compiling[job.cache.key]
        reason = f"the job {writer} is filling the compile cache {job.cache.key}"
        fix = f"wait for it: trn status {writer}" + f"; or end it: trn cancel {writer}" * (job.kind == "compile")
        yield Problem("--cache-set", reason, fix, value=request.cache_set)


def _token_problems(request: JobRequest, facts: Facts) -> Iterator[Problem]:
    """Yield the problems of tokens, which belong into a Secret: readers of jobs also read their variables."""
    reason = "others could read it in the job's object"
    for name in request.variables:
        fix = ""
        if name in secrets.TOKEN_VARIABLES:
            fix = f"trn secret {secrets.DEFAULT_SECRET}; then --hf-secret {secrets.DEFAULT_SECRET}"
        elif name in secrets.TRACKING_TOKENS:
            fix = f"trn secret {secrets.TRACKING_SECRET} --track; then --track-secret {secrets.TRACKING_SECRET}"
        if fix:
            yield Problem("--env", reason, f"put it into a Secret: {fix}", value=name)
    for option, reference in ((secrets.HUB_OPTION, request.hf_secret), (secrets.TRACK_OPTION, request.track_secret)):
        wrong = secrets.reference_problem(reference, option) if reference else None
        if wrong is not None:
            yield wrong
        elif option in facts.missing_secrets:
            yield secrets.missing_secret(reference, option)


def _data_problems(request: JobRequest, job: TrainingJob, facts: Facts) -> Iterator[Problem]:
    """Yield the problems of data paths, without a test of existence: that shows on the volume alone, where the job
    itself looks before it starts."""
    if request.data and not job.claim:
        reason = f"the namespace {job.namespace} has no shared file system"
        yield Problem("--data", reason, "leave it out, or add `fileSystem` to the stack's config")
        return
    for path in request.data:
        if path.startswith("/") or ".." in path.split("/"):
            reason = "it must be a path below the shared volume, without .. and a leading slash"
            below = path.removeprefix("/data").strip("/")
            good = below if below and ".." not in below.split("/") else None
            fix = "" if good else "`trn stage` brings files there, and names their path"
            yield Problem("--data", reason, fix, value=path, good=good)
        elif path in facts.staging:
            stager = facts.staging[path]
            fix = f"wait for it: kubectl wait job/{stager} --for=complete"
            yield Problem("--data", f"{stager} is still bringing it", fix, value=path)
