"""The admission expressions, evaluated: who gets past, and who does not. ``tests/local/test_teams.py`` asks a real API
server the same."""

import dataclasses
import functools
import json
import re
from typing import NamedTuple

import celpy
import pytest

from trainium_eks.model.catalogue.instances import CATALOGUE, EFA_RESOURCE, FABRIC_UNTESTED, INSTANCE_TYPE_LABEL
from trainium_eks.model.policies import admission, researchers
from trainium_eks.model.policies.admission import Limits
from trainium_eks.model.sizing import quotas
from trainium_eks.model.sizing.quantities import quantity

GROUP = "trainium-eks:team:researchers"
CONTROLLERS = ("system:serviceaccounts",)
LIMITS = Limits(
    ("test", "big"),
    ("training-low", "training-high"),
    pods=100,
    finished_pods=400,
    jobs=50,
    counted_requests=("cpu",),
    closed_storage_classes=("fsx",),
    researchers=GROUP,
    service_accounts=("default", "training"),
    reserved_names=("default-deny",),
)
NODES = {each: CATALOGUE.allocatable(each) for each in ("trn1.32xlarge", "trn1.2xlarge", "p5.48xlarge")}
POLICIES, WHOLE, PACKED = (
    admission.policies(dataclasses.replace(LIMITS, **more), researchers.writable_kinds())
    for more in ({}, {"nodes": NODES}, {"nodes": NODES, "partial_nodes": True})
)
KINDS = {name: row for name, row in admission.table()["policies"].items() if "templates" in row}
EVERY_WORKLOAD = pytest.mark.parametrize("name", [name for name in KINDS if name != "pods"])

CEL = celpy.celtypes
FUNCTIONS = {
    "quantity": lambda text: CEL.DoubleType(float(quantity(str(text)) or 0)),
    "isInteger": lambda one: CEL.BoolType(float(one).is_integer()),
    "asInteger": lambda one: CEL.IntType(int(one)),
    "isGreaterThan": lambda one, other: CEL.BoolType(one > other),
    "asApproximateFloat": lambda one: one,
    "format": lambda _, values: CEL.StringType(json.dumps(values, cls=celpy.CELJSONEncoder)),
    "sum": lambda numbers: (type(numbers[0]) if numbers else CEL.IntType)(sum(numbers)),
}
"""Of Kubernetes' own CEL library."""
ENVIRONMENT = celpy.Environment()
celpy.evaluation.Result = object
"""celpy hashes this union of thirty types at each visit, in a third of its time."""
LEVELS = {"expr", "conditionalor", "conditionaland", "relation", "addition", "multiplication", "unary", "member"}


@functools.cache
def program(expression):
    return ENVIRONMENT.program(shorten(ENVIRONMENT.compile(expression)), functions=FUNCTIONS)


def shorten(tree):
    """Take out the levels of the grammar that hand on their one child: celpy visits eight of them for a name."""
    tree.children = [shorten(each) if hasattr(each, "children") else each for each in tree.children]
    return tree.children[0] if tree.data in LEVELS and len(tree.children) == 1 else tree


def refusals(name, asked, old=None, groups=(GROUP,), about="", policies=POLICIES):
    """Return the messages of the validations of a policy that an object fails; only those with a text are evaluated."""
    policy = policies[name]
    operation = policy.operations[0] if old is None else "UPDATE"
    request = {"operation": operation, "userInfo": {"groups": list(groups)}, "options": asked.get("options", {})}
    known = CEL.MapType()
    context = {
        "object": celpy.json_to_cel({"metadata": {"name": "name"}, **asked}),
        "oldObject": None if old is None else celpy.json_to_cel({"metadata": {"name": "name"}, **old}),
        "request": celpy.json_to_cel(request),
        "variables": known,
    }
    defined = {each.name: each.expression for each in policy.variables}

    def value(expression):
        for variable in re.findall(r"variables\.(\w+)", expression):
            if variable not in known:
                known[CEL.StringType(variable)] = value(defined[variable])
        return program(expression).evaluate(context)

    if policy.condition and not value(policy.condition):
        return []
    return [
        str(value(each.details)) if each.details else each.message
        for each in policy.validations
        if about in each.message and not value(each.expression)
    ]


NEURON = {"resources": {"limits": {"aws.amazon.com/neuron": "16"}, "requests": {"aws.amazon.com/neuron": "16"}}}
PLAIN = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
C = {"name": "c"}
ON_TRAINIUM = {"key": "aws.amazon.com/neuron", "operator": "Exists", "effect": "NoSchedule"}
LOST = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
QUEUE = "scheduling.volcano.sh/queue-name"
IN_GROUP = {"scheduling.k8s.io/group-name": "podgroup-1"}
REQUIRED, PREFERRED = (f"{each}DuringSchedulingIgnoredDuringExecution" for each in ("required", "preferred"))


def spec(*containers, **more):
    return {"containers": list(containers) or [C], **more}


def noted(**annotations):
    return {"metadata": {"name": "name", "annotations": annotations}}


def pod(*containers, notes=None, **more):
    about = {} if notes is None else noted(**notes)
    return {**about, "spec": spec(*containers, **{"schedulerName": "volcano", **more})}


def free(*containers, **more):
    return pod(*containers, schedulerName="default-scheduler", **more)


def grouped(*containers, **more):
    return pod(*containers, notes=IN_GROUP, **more)


def vcjob(*specs, **more):
    tasks = [{"name": f"task-{index}", "template": {"spec": each}} for index, each in enumerate(specs)]
    return {"kind": "Job", "spec": {"tasks": tasks, "schedulerName": "volcano", "queue": "test", **more}}


def made_by(name, pods=2, template=None, **more):
    """Return an object of a kind that leads to so many pods, or one of its templates."""
    template = template or {"spec": spec(PLAIN)}
    tasks = [{"name": "a", "replicas": pods - 1, "template": template}, {"name": "b", "template": template}]
    runtime = {"replicatedJobs": [{"name": "node", "replicas": pods, "template": {"spec": {"template": template}}}]}
    roles = {"Master": {"template": template}, "Worker": {"replicas": pods - 1, "template": template}}
    specs = {
        "jobs": {"parallelism": pods, "template": template},
        "deployments": {"replicas": pods, "template": template},
        "volcano-jobs": {"queue": "test", "tasks": tasks},
        "pytorch-jobs": {"pytorchReplicaSpecs": roles, "runPolicy": {"schedulingPolicy": {"queue": "test"}}},
        "train-jobs": {"trainer": {"numNodes": pods}, "podTemplateOverrides": [template]},
        "job-sets": {"template": {"spec": runtime}},
    }
    return {"kind": "Job", "spec": {**specs[name], **more}}


def runtime(queue):
    made = made_by("job-sets", podGroupPolicy={"volcano": {}})
    made["spec"]["template"]["metadata"] = {"annotations": {QUEUE: queue}}
    return made


def cron(name, policy="Forbid", schedule="0 * * * *", **job):
    template = {"spec": job or made_by(name)["spec"]}
    return {"kind": "CronJob", "spec": {"concurrencyPolicy": policy, "schedule": schedule, "jobTemplate": template}}


def queued(queue, priority=""):
    return {"spec": {"priorityClassName": priority, **({} if queue is None else {"queue": queue})}}


def owned(*owners, kind="Pod", **labels):
    return {"kind": kind, "metadata": {"ownerReferences": list(owners), "labels": labels}}


class Row(NamedTuple):
    """A request, and a part of the one message that refuses it; empty where it gets past."""

    policy: str
    asked: dict
    said: str = ""
    old: dict | None = None
    groups: tuple = (GROUP,)


def controllers(policy, asked, said="", old=None):
    return Row(policy, asked, said, old, CONTROLLERS)


def volcano(said="", template=None, pods=2, **more):
    """Return a Volcano job, with the changes of its template's and its own spec."""
    job = made_by("volcano-jobs", pods, {"spec": {**spec(PLAIN), **(template or {})}}, **more)
    return Row("volcano-jobs", job, said)


def named(name, said="", task="task", pods=100, **more):
    job = vcjob(spec(PLAIN, **more.pop("template", {})), **more)
    job["spec"]["tasks"][0] |= {"name": task, "replicas": pods}
    return Row("volcano-jobs", {**job, "metadata": {"name": name}}, said)


def pytorch(said="", **policy):
    return Row("pytorch-jobs", made_by("pytorch-jobs", runPolicy={"schedulingPolicy": policy}), said)


NO_QUEUE = "spec.queue must be one of this namespace's queues: test, big"
NO_PRIORITY = "priorityClassName must be one of this namespace's: training-low, training-high"
NO_SCHEDULER = "a pod with accelerators must be scheduled by Volcano: schedulerName volcano"
STAY_OFF = "must not tolerate the taints of accelerator nodes"
OLD_POD, OLD_JOB = free(nodeName="node-1", tolerations=[{"operator": "Exists"}]), vcjob(spec(nodeName="node-1"))
OLD_DEPLOYMENT = made_by("deployments", 2, {"spec": spec(NEURON)})
FINISHED = {"metadata": {"finalizers": [], "labels": {"a": "b"}}}
HELD = {"karpenter.sh/do-not-disrupt": "true", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
PLUGIN_PORT = {"containers": [{**PLAIN, "ports": [{"name": "mpijob-port", "containerPort": 22}]}]}
MOUNTING = {"containers": [{**PLAIN, "volumeMounts": [{"name": "v", "mountPath": "/d"}]}]}
UNSTATED = {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}]}
TWO, FIVE, SIX = ({"containers": [{**PLAIN, "name": f"c{n}"} for n in range(count)]} for count in (2, 5, 6))
OWNER = {"kind": "ReplicaSet", "name": "r"}
TARGET = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "n"}
MANY = {
    "tolerations": [{"key": f"k{index}", "operator": "Exists"} for index in range(34)],
    "volumes": [{"name": f"v{index}", "emptyDir": {}} for index in range(34)],
}

JUDGED = {
    "jobs name a queue of the namespace": [
        *(Row("queues", queued(queue)) for queue in LIMITS.queues),
        *(Row("queues", queued(queue), NO_QUEUE) for queue in ("other", "default", "", None)),
        Row("queues", queued("other"), NO_QUEUE, queued("test")),
        Row("queues", queued("big"), old=queued("test")),
    ],
    "queues and priorities of Kubeflow's kinds and of cron jobs are the namespace's own": [
        *(row for queue, fails in (("test", False), ("other", True), ("", True))
          for row in (pytorch("schedulingPolicy.queue must be" * fails, queue=queue),
                      Row("job-sets", runtime(queue), "must name its queue" * fails),
                      Row("volcano-jobs", cron("", queue=queue), "the job's queue must be one of" * fails))),
        pytorch(queue="test", priorityClass="training-low"),
        pytorch("schedulingPolicy.priorityClass must be", queue="test", priorityClass="somebodys"),
        Row("volcano-jobs", cron("", queue="test", priorityClassName="somebodys"), "the job's " + NO_PRIORITY),
    ],
    "priorities are the namespace's own": [
        Row("queues", queued("test", "somebodys"), NO_PRIORITY),
        Row("queues", queued("test", "system-node-critical"), NO_PRIORITY, queued("test")),
        Row("queues", queued("test", "training-high"), old=queued("test")),
        Row("queues", {"spec": {"queue": "test"}}),
        Row("queues", queued("test", "training-low")),
        *(Row("pods", free(priorityClassName=name)) for name in ("", "training-low")),
    ],
    "what was made before the policy can be finished": [
        Row("queues", queued("gone"), old=queued("gone")),
        Row("queues", queued(None), old=queued("default")),
        Row("queues", {**queued("test", "gone"), **FINISHED}, old=queued("test", "gone")),
        Row("pods", {**OLD_POD, **FINISHED}, old=OLD_POD),
        Row("volcano-jobs", {**OLD_JOB, **FINISHED}, old=OLD_JOB),
        Row("volcano-jobs", vcjob(spec(priorityClassName="no")), NO_PRIORITY, OLD_JOB),
        Row("deployments", {**OLD_DEPLOYMENT, "status": {}}, old=OLD_DEPLOYMENT),
        Row("pods", grouped(NEURON, nodeName="n", tolerations=[LOST]), old=grouped(NEURON, nodeName="n")),
    ],
    "every scarce resource is seen": [
        Row("pods", free(**{place: [C, {"resources": {kind: {resource: "1"}}}]}), NO_SCHEDULER)
        for resource in ("aws.amazon.com/neuroncore", "nvidia.com/gpu", "nvidia.com/mig-1g", "vpc.amazonaws.com/efa")
        for place in ("containers", "initContainers")
        for kind in ("limits", "requests")
    ],
    "asking for no accelerator is no way onto its nodes": [
        row
        for amount in ("0", "0Ki", 0)
        for none in [{"resources": {"limits": {"aws.amazon.com/neuron": amount}}}]
        for row in (
            Row("volcano-jobs", vcjob(spec(NEURON), spec(none)), "must not ask for 0 accelerators"),
            Row("volcano-jobs", vcjob(spec(NEURON, none))),  # a launcher beside the workers in one pod
        )
    ],
    "pods without accelerators are free but stay off their nodes": [
        Row("pods", free({"resources": {"limits": {"cpu": "8"}}})),
        Row("pods", free(tolerations=[{**LOST, "tolerationSeconds": 300}, {"key": "dedicated", "value": "staging"}])),
        controllers("pods", grouped(NEURON, tolerations=[ON_TRAINIUM])),
        *(
            Row(policy, asked, STAY_OFF, old)
            for key in ("aws.amazon.com/neuron", "nvidia.com/gpu", "vpc.amazonaws.com/efa")
            for tolerations in [[{"key": key, "operator": "Exists", "effect": "NoSchedule"}]]
            for policy, asked, old in (
                ("pods", free(tolerations=tolerations), free()),  # nor is it added later
                ("volcano-jobs", vcjob(spec(NEURON, tolerations=[ON_TRAINIUM]), spec(tolerations=tolerations)), None),
            )
        ),
    ],
    "naming a node does not get past the schedulers": [
        *(controllers("pods", grouped(each, nodeName="n"), "a pod must not name its node") for each in (NEURON, C)),
        *(controllers("pods", grouped(each, nodeName="")) for each in (NEURON, C)),
    ],
    "a bare pod names a queue of the namespace": [
        Row("pods", pod(NEURON, notes={QUEUE: "big"})),
        Row("pods", pod(NEURON, notes={QUEUE: "other"}), "must be one of this namespace's queues"),
        *(Row("pods", pod(container, notes=notes), "must name its queue") for container in (NEURON, C)
          for notes in (None, {}, {"note": "x"})),
    ],
    "nobody chooses a pod's group": [
        Row("pods", grouped(), "is set by controllers"),
        Row("pods", grouped({"image": "b"}), old=grouped()),
        controllers("pods", pod(NEURON, notes={**IN_GROUP, QUEUE: "other"}), "must be one of this namespace's queues"),
        Row("metadata", pod(notes={**IN_GROUP, QUEUE: "other"}), "are read by schedulers", pod(notes=IN_GROUP)),
        *(row for name in KINDS if name != "pods"
          for joined in [made_by(name, 2, {"metadata": {"annotations": IN_GROUP}, "spec": spec(PLAIN)})]
          for row in (Row(name, joined, "is set by controllers"), controllers(name, joined))),
    ],
    "the scheduler of a task wins over the job's": [
        Row("volcano-jobs", vcjob(spec(NEURON, schedulerName=""))),
        Row("volcano-jobs", vcjob(spec(NEURON, schedulerName="default-scheduler")), NO_SCHEDULER),
        Row("volcano-jobs", vcjob(spec(NEURON), schedulerName="default-scheduler"), NO_SCHEDULER),
        Row("volcano-jobs", {"kind": "Job", "spec": {"tasks": [{"template": {"spec": spec(NEURON)}}]}}),
        Row("volcano-jobs", {"kind": "Job", "spec": {}}),
    ],
    "a deployment goes through the queue like a job": [
        Row("deployments", made_by("deployments", 2, pod(NEURON)), "must name its queue"),
        Row("deployments", made_by("deployments", 2, pod(NEURON, notes={QUEUE: "big"}))),
        Row("deployments", OLD_DEPLOYMENT, NO_SCHEDULER),
    ],
    "devices come by resources alone": [
        controllers("pods", grouped({**NEURON, "env": [{"name": "A", "value": "b"}, variable]}), said)
        for said, variable in (
            ("its devices come from resources", {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}),
            ("its devices come from resources", {"name": "AWS_NEURON_VISIBLE_DEVICES", "value": "ALL"}),
            ("its devices come from resources", {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {}}}),
            ("", {"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"}),
            ("", {"name": "NEURON_RT_VISIBLE_CORES", "value": "0-3"}),
        )
    ],
    "devices come by no key of an envFrom": [
        Row("pods", free({"name": "c", "envFrom": [{"configMapRef": {"name": "c"}}, {"prefix": "A_"}]})),
        Row("metadata", {"kind": "ConfigMap", "data": {"A": "b", "NVIDIA_VISIBLE_DEVICES": "all"}}, "must have no key"),
        Row("metadata", {"kind": "Secret", "data": {"AWS_NEURON_VISIBLE_DEVICES": "QUw="}}, "must have no key", None,
            ()),
        Row("metadata", {"kind": "ConfigMap", "data": {"A": "NVIDIA_VISIBLE_DEVICES"}}),
        Row("metadata", {"kind": "ConfigMap", "binaryData": {}}),
    ],
    "volumes are the team's own": [
        Row("pods", free(volumes=[{"name": "first", "secret": {"secretName": "s"}}, {"name": "v", **volume}]), said)
        for said, volume in (
            ("", {"persistentVolumeClaim": {"claimName": "fsx-claim"}}),
            ("", {"emptyDir": {"medium": "Memory"}}),
            ("", {"configMap": {"name": "c"}}),
            ("", {"ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "gp3"}}}}),
            ("", {"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}),
            ("ephemeral volume", {"ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "fsx"}}}}),
            ("ephemeral volume", {"ephemeral": {"volumeClaimTemplate": {"spec": {"volumeName": "theirs"}}}}),
            ("volumes must be of these kinds", {"awsElasticBlockStore": {"volumeID": "vol-1"}}),
            ("volumes must be of these kinds", {"nfs": {"server": "10.0.0.1", "path": "/"}}),
        )
    ],
    "the claims of a Volcano job are the team's own": [
        volcano(said, volumes=[{"mountPath": "/a", "volumeClaimName": "c"}, {"mountPath": "/b", "volumeClaim": claim}])
        for said, claim in (
            ("", {"storageClassName": "gp3"}),
            ("a job's volumeClaim", {"storageClassName": "fsx"}),
            ("a job's volumeClaim", {"volumeName": "theirs"}),
        )
    ],
    "commands are for jobs": [
        Row("commands", {"action": "CloseQueue"}, "target must be a Volcano Job"),
        Row("commands", {"target": TARGET}),
        Row("commands", {"target": {**TARGET, "kind": "Queue"}}, "target must be a Volcano Job"),
        Row("commands", {"target": {**TARGET, "apiVersion": "batch/v1"}}, "target must be a Volcano Job"),
    ],
    "a service takes no address of others": [
        Row("services", {"spec": {"type": "ClusterIP", "ports": [{"port": 80}]}}),
        Row("services", {"spec": {"clusterIP": "None", "externalIPs": []}}),
        Row("services", {"spec": {"externalIPs": ["10.0.0.1"]}}, "must not have externalIPs"),
    ],
    "a Volcano job leads to no pods that the API server refuses": [
        volcano(template={"serviceAccountName": "training"}),
        volcano("serviceAccountName", {"serviceAccountName": "other"}),
        volcano("runtimeClassName", {"runtimeClassName": "other"}),
        volcano(plugins={"pytorch": ["--master=a", "--port=23456"], "ray": ["--head=a", "-clientPort=59999"]}),
        volcano("of the form --name=value", plugins={"pytorch": ["--port=-1"]}),
        volcano("of the form --name=value", plugins={"ray": ["--clientPort=65536"]}),
        volcano("of the form --name=value", plugins={"pytorch": ["--port", "70000"]}),
        volcano("of the form --name=value", plugins={"pytorch": ["--wait-master-image="]}),
        volcano("of the form --name=value", plugins={"pytorch": ["--wait-master-image=\u3000x"]}),
        volcano(template=PLUGIN_PORT, plugins={"tensorflow": []}),
        volcano("must have no port called", PLUGIN_PORT, plugins={"tensorflow": ["--port=23"]}),
        volcano(template=MOUNTING, volumes=[{"mountPath": "/e"}]),
        volcano("must not mount anything", MOUNTING, volumes=[{"mountPath": "/d"}]),
        volcano("must not mount", MOUNTING, plugins={"ssh": ["--ssh-private-key=a", "--ssh-key-file-path=/d"]}),
    ],
    "volumes, hosts and policies can be called after a Volcano job": [
        named("a" * 50),
        named("a" * 51, "at most 50 letters"),
        named("a-1"),
        named("a.b", "no dot"),
        named("a" * 45, task="b" * 13),
        named("a" * 46, "with a task's name", task="b" * 13),
        named("j", plugins={"svc": []}),
        named("1j", "begin with a letter", plugins={"svc": []}),
        named("j", "called after the job", template={"volumes": [{"name": "j-svc", "emptyDir": {}}]}),
        named("j", "called after the job", template={"volumes": [{"name": "j-ssh", "emptyDir": {}}]}),
        named("j", "wait-for-master", template={"initContainers": [{"name": "wait-for-master"}]}, pods=2),
        named("default-deny", "another name than the namespace's network policies"),
    ],
    "pods do not keep those of other namespaces away": [
        *(Row("pods", free(affinity={kind: terms}), "this namespace alone")
          for kind in ("podAffinity", "podAntiAffinity")
          for term in ({"namespaceSelector": {}}, {"namespaces": ["other"]})
          for terms in ({REQUIRED: [term]}, {PREFERRED: [{"weight": 1, "podAffinityTerm": term}]})),
        Row("pods", free(affinity={"podAntiAffinity": {REQUIRED: [{"topologyKey": "kubernetes.io/hostname"}]}})),
    ],
    "a Volcano job asks for no pods that the scheduler has not counted": [
        volcano(pods=100, minAvailable=92),
        volcano("spec.minAvailable must be half", pods=100, minAvailable=91),
        volcano(minAvailable=4, tasks=[{"replicas": 8}]),
        volcano("spec.minAvailable must be half", minAvailable=3, tasks=[{"replicas": 8}]),
        volcano("at most 32 volumes", volumes=[{"mountPath": f"/{index}"} for index in range(33)]),
        volcano(pods=8, template=UNSTATED),
        volcano("quota counts: cpu", UNSTATED, pods=9),
        Row("volcano-jobs", made_by("volcano-jobs", 3), "must not grow", made_by("volcano-jobs", 2)),
        Row("volcano-jobs", made_by("volcano-jobs", 2), old=made_by("volcano-jobs", 3)),
    ],
    "amounts are those that Volcano's scheduler adds without a rest": [
        Row("pods", free({"resources": {kind: {name: amount}}}), said)
        for said, name, amount in (
            ("", "memory", "2Ti"),
            ("", "memory", "500001M"),
            ("amounts of resources", "memory", "33Ti"),
            ("amounts of resources", "ephemeral-storage", "8E"),
            ("amounts of resources", "ephemeral-storage", "999999999999"),
            ("amounts of resources", "example.com/x", "9223372036854775807"),
            ("", "example.com/x", 100_000_000),
            ("", "cpu", "1500m"),
        )
        for kind in ("limits", "requests")
    ],
    "no job multiplies the work of Volcano's controllers": [
        volcano(tasks=[*vcjob(TWO)["spec"]["tasks"], *[{"name": "empty"}] * 63]),
        volcano("tasks of a job times", tasks=[*vcjob(TWO)["spec"]["tasks"], *[{"name": "empty"}] * 64]),
        volcano(template=FIVE, pods=100, plugins={"tensorflow": []}),
        volcano("with the plugins tensorflow and mpi", SIX, pods=100, plugins={"tensorflow": []}),
        volcano("no timeout", policies=[{"event": "PodPending", "action": "RestartJob", "timeout": "1s"}]),
        volcano("the plugin ssh", plugins={"ssh": []}),
        volcano(plugins={"ssh": ["--ssh-private-key=a"]}),
        volcano("the plugin ssh", plugins={"ssh": ["--ssh-private-key=a", "--ssh-private-key="]}),
    ],
    "runs of a cron job do not add up": [
        row
        for name in ("jobs", "volcano-jobs")
        for row in (
            Row(name, cron(name)),
            Row(name, cron(name, "Allow"), "concurrencyPolicy must be"),
            Row(name, cron(name, "Replace", "@every 1s"), "schedule must not be an interval"),
        )
    ],
    "pods that a gang can do without may be moved": [
        row
        for key, value in HELD.items()
        for row in (
            Row("jobs", made_by("jobs", 2, {"metadata": {"annotations": {key: value}}, "spec": spec()}), key),
            Row("volcano-jobs", vcjob(spec(NEURON), spec()) | noted(**{key: value})),
            controllers("pods", free(notes={key: value, **IN_GROUP}), key),
            controllers("pods", pod(notes={key: value, **IN_GROUP})),
        )
    ],
    "researchers leave finalizers and owners to controllers": [
        row
        for field, good, bad in (
            ("finalizers", "orphan", "batch.kubernetes.io/job-tracking"),
            ("ownerReferences", {"kind": "Job", "name": "j"}, {"kind": "Queue", "name": "q"}),
        )
        for row in (
            Row("metadata", {"metadata": {field: [good]}}),
            Row("metadata", {"metadata": {field: [bad]}}, f"metadata.{field} must"),
            controllers("metadata", {"metadata": {field: [bad]}}),
            Row("metadata", {"metadata": {field: [bad, good]}}, old={"metadata": {field: [bad]}}),
            Row("metadata", {"metadata": {field: [bad]}}, f"metadata.{field} must", {"metadata": {}}),
        )
    ],
    "a pod keeps its controller and what the controller knows it by": [
        Row("metadata", owned(OWNER, app="a"), old=owned(OWNER, app="a")),
        *(row
          for after, said in ((owned(app="a"), "by its controller alone"),
                              (owned(OWNER, app="b"), "are read by schedulers"),
                              (owned(OWNER), "are read by schedulers"),
                              (owned(OWNER, app="a", x="y"), "are read by schedulers"))
          for row in (Row("metadata", after, said, owned(OWNER, app="a")),
                      controllers("metadata", after, old=owned(OWNER, app="a")))),
        Row("metadata", owned(OWNER), "by its controller alone"),
        Row("metadata", owned(app="b"), old=owned(app="a")),
        Row("metadata", owned(OWNER, kind="ConfigMap"), old=owned(kind="ConfigMap")),
    ],
    "the text of all tasks and of annotations is bounded": [
        volcano(plugins={"env": ["x" * 523_800]}),
        volcano("spec must have at most 524288", plugins={"env": ["x" * 524_300]}),
        Row("volcano-jobs", {**vcjob(spec(PLAIN)), **noted(a="x" * 70_000)}, "metadata.annotations"),
        # What controllers and plugins add to a template that was admitted is not refused: they would try for ever.
        controllers("pods", grouped({**PLAIN, "args": ["x"] * 9000})),
        controllers("pods", grouped(PLAIN, **MANY)),
        Row("pods", free(PLAIN, **MANY), "at most 16 containers, 32 volumes"),
    ],
    "the size of a pod group is bounded": [
        Row("deployments", made_by("deployments") | noted(**{"scheduling.volcano.sh/group-min-member": members}), said)
        for members, said in (("100", ""), ("101", "pods up to 100"), ("2000000000", "pods up to"), ("x", "a number"))
    ],
    "counts of another kind than pods are bounded by their own quota": [
        *(Row("jobs", made_by("jobs", completions=pods), said) for pods, said in ((400, ""), (401, "(count/pods)"))),
        Row("job-flows", {"spec": {"flows": [{"name": "f"}] * 50}}),
        Row("job-flows", {"spec": {"flows": [{"name": "f"}] * 51}}, "quota has 50 (count/jobs.batch.volcano.sh)"),
        Row("job-sets", made_by("job-sets", mlPolicy={"numNodes": 101}), "spec.mlPolicy.numNodes"),
        Row("pytorch-jobs", made_by("pytorch-jobs", elasticPolicy={"maxReplicas": 101}), "maxReplicas"),
    ],
    "a pod that is deleted ends within an hour": [
        Row("deletions", {"options": {"gracePeriodSeconds": 3600}}),
        Row("deletions", {"options": {"gracePeriodSeconds": 3601}}, "gracePeriodSeconds must be at most 3600"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=f"{what}-{n}") for what, rows in JUDGED.items() for n, row in enumerate(rows, 1)]
)
def test_request_is_admitted_or_refused_with_the_reason(row):
    told = refusals(row.policy, row.asked, row.old, row.groups)
    assert len(told) == bool(row.said), told
    assert all(row.said in each for each in told)


def templates(template):
    """Yield each policy with an object that leads to pods of a template, for each of its paths to one."""
    yield "pods", template
    yield from ((name, made_by(name, 2, template)) for name in KINDS if name != "pods")
    yield from ((name, cron(name, **made_by(name, 2, template)["spec"])) for name in ("jobs", "volcano-jobs"))
    yield "job-sets", {"spec": made_by("job-sets", 2, template)["spec"]["template"]["spec"]}
    if "metadata" not in template:
        yield "train-jobs", {"spec": {"podSpecOverrides": [template["spec"]]}}


def within(**security):
    return {"spec": spec({"name": "c", **security})}


def having(**fields):
    return {"spec": spec(**fields)}


def tolerating(**toleration):
    return having(tolerations=[toleration])


TAINTS = "must not tolerate all taints, nor those of nodes that start, fail or are drained"
LETTERS = "put large texts into a ConfigMap, and mount it"
AGAIN = "the API server would refuse the pods again and again"
RULES = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [3]}}]
SPREAD = {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["a", "a"]}
ZERO, DEVICES = "must not ask for 0 accelerators", "its devices come from resources"
ACCELERATORS = (NO_SCHEDULER, STAY_OFF, ZERO, DEVICES, "which queues do not count")
BUT = {
    **{said: {"train-jobs"} for said in ACCELERATORS},
    "Pod Security": {"pods"},
    "must not set overhead": {"pods"},
    "no finalizers": {"pods"},
    # Kubernetes' own controllers slow down, and validate these templates as pods.
    AGAIN: {"pods", "jobs", "deployments"},
}
"""Policies that leave it to others to refuse this."""
IN_TEMPLATES = [
    (NO_PRIORITY, having(priorityClassName="system-node-critical")),
    ("must not name its node", having(nodeName="n")),
    (NO_SCHEDULER, {"spec": spec(NEURON, schedulerName="default-scheduler")}),
    (STAY_OFF, tolerating(**ON_TRAINIUM)),
    (ZERO, within(resources={"limits": {"aws.amazon.com/neuron": "0"}})),
    (DEVICES, within(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}])),
    (DEVICES, within(envFrom=[{"prefix": "A_"}, {"prefix": "AWS_NEURON_", "configMapRef": {"name": "c"}}])),
    ("which queues do not count", having(resourceClaims=[{"name": "d", "resourceClaimTemplateName": "neuron"}])),
    (TAINTS, tolerating(key=FABRIC_UNTESTED.key)),
    (TAINTS, tolerating(key="node.kubernetes.io/unschedulable", operator="Exists")),
    (TAINTS, tolerating(key="karpenter.sh/disrupted", operator="Exists")),
    (TAINTS, tolerating(key="node.kubernetes.io/unreachable", operator="Exists")),
    (TAINTS, tolerating(operator="Exists")),
    (TAINTS, tolerating(key="", operator="Exists")),
    ("volumes must be of these kinds", having(volumes=[{"name": "v", "hostPath": {"path": "/"}}])),
    ("must be claimed", having(volumes=[{"name": "v", "csi": {"driver": "fsx.csi.aws.com"}}])),
    ("Pod Security", having(hostNetwork=True)),
    ("Pod Security", within(ports=[{"containerPort": 1, "hostPort": 1}])),
    ("Pod Security", within(securityContext={"privileged": True})),
    ("Pod Security", within(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}})),
    ("Pod Security", within(securityContext={"procMount": "Unmasked"})),
    ("Pod Security", within(securityContext={"seccompProfile": {"type": "Unconfined"}})),
    ("Pod Security", having(securityContext={"appArmorProfile": {"type": "Unconfined"}})),
    ("Pod Security", having(securityContext={"seLinuxOptions": {"type": "spc_t"}})),
    ("Pod Security", having(securityContext={"seLinuxOptions": {"user": "u"}})),
    ("Pod Security", having(securityContext={"windowsOptions": {"hostProcess": True}})),
    ("Pod Security", having(securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "1"}]})),
    ("Pod Security", within(livenessProbe={"httpGet": {"host": "h", "port": 1}})),
    ("Pod Security", within(lifecycle={"postStart": {"tcpSocket": {"host": "h", "port": 1}}})),
    ("Pod Security", pod(notes={"container.apparmor.security.beta.kubernetes.io/c": "unconfined"})),
    ("must not set overhead", having(overhead={"cpu": "1"})),
    ("must not set overhead", having(priority=1)),
    ("at most 3600", having(terminationGracePeriodSeconds=3601)),
    ("no finalizers", {"metadata": {"finalizers": ["a/b"]}, "spec": spec()}),
    ("must be one of this namespace's queues", pod(notes={QUEUE: "other"})),
    ("volcano.sh/preemptable", {"metadata": {"labels": {"volcano.sh/preemptable": "false"}}, "spec": spec()}),
    ("at most 16 containers", {"spec": spec(*({"name": f"c{index}"} for index in range(17)))}),
    (LETTERS, within(args=["x"] * 9000)),
    (LETTERS, having(hostAliases=[{"hostnames": ["x" * 60] * 600}])),
    (AGAIN, within(restartPolicyRules=RULES)),
    (AGAIN, having(initContainers=[{"name": "i", "restartPolicy": "Always", "restartPolicyRules": RULES}])),
    (AGAIN, within(image="image\u3000")),
    (AGAIN, within(env=[{"name": "A", "valueFrom": {"fileKeyRef": {"key": "k"}}}])),
    (AGAIN, having(volumes=[{"name": "v", "image": {"reference": ""}}])),
    (AGAIN, having(topologySpreadConstraints=[SPREAD])),
    (AGAIN, having(affinity={"podAffinity": {REQUIRED: [{"mismatchLabelKeys": ["a"]}]}})),
    (AGAIN, having(securityContext={"seLinuxChangePolicy": "MountOption"})),
    (AGAIN, having(resources={"limits": {"cpu": "50m"}})),
]


@pytest.mark.parametrize(("said", "template"), IN_TEMPLATES)
def test_templates_of_all_kinds_are_judged_like_pods(said, template):
    for policy, asked in templates(template):
        assert len(refusals(policy, asked, about=said)) == (policy not in BUT.get(said, ())), policy


def taking(count, *more, resource="aws.amazon.com/neuron", beside=None, **fields):
    """Return the template of a pod that takes devices, and amounts beside them."""
    limits = {resource: str(count), **(beside or {})}
    return {"spec": spec({"name": "c", "resources": {"limits": limits}}, *more, **fields)}


def on_nodes(**term):
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}}


HOST, GPU, HUGE, CORES = "kubernetes.io/hostname", "nvidia.com/gpu", "hugepages-2Mi", "aws.amazon.com/neuroncore"
SMALL, LARGE, OTHER, NONE = (
    {"nodeSelector": {INSTANCE_TYPE_LABEL: each}}
    for each in ("trn1.2xlarge", "trn1.32xlarge", "p5.48xlarge", "inf2.xlarge")
)
APART = {"affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": HOST}]}}}
BESIDE = {"affinity": {"podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": {"topologyKey": HOST}}]}}}
EVEN = {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": HOST, "whenUnsatisfiable": "ScheduleAnyway"}]}
STARTING = {"initContainers": [{"name": "i", "resources": {"limits": {"aws.amazon.com/neuron": "16"}}}]}
PARTS = [
    *(taking(1, **more) for more in ({}, APART, LARGE, NONE, {"beside": {"cpu": "120"}})),
    *(taking(1, resource=each) for each in (GPU, "nvidia.com/mig-1g.5gb", EFA_RESOURCE)),
    taking(32, resource=CORES),  # queues do not count them
    taking(15),
    taking(8, {**NEURON}),  # more than any node has
    taking(16, **OTHER),
    taking(
        1, **on_nodes(matchExpressions=[{"key": INSTANCE_TYPE_LABEL, "operator": "In", "values": ["trn1.2xlarge"]}])
    ),
    {"spec": spec(C, **STARTING)},
]
WHOLES = [
    taking(16, beside={EFA_RESOURCE: "8"}),
    taking(8, {"name": "d", "resources": {"limits": {"aws.amazon.com/neuron": 8}}}),
    taking(16, **LARGE, **APART),
    taking(1, **SMALL),
    taking(8, {"name": "helper", "resources": {"requests": {"cpu": "1"}}}, resource=GPU),
    free(),
]
CHOICE, SHARE = "must not choose which", "no more than their part of its CPU"
PACKINGS = [
    ("", taking(1, beside={"cpu": "7", "memory": "20Gi"}, **LARGE)),
    ("", taking(2, beside={EFA_RESOURCE: "1"}, nodeSelector={"karpenter.sh/nodepool": "a"})),
    ("", WHOLES[2]),
    *((CHOICE, taking(1, **more)) for more in (APART, BESIDE, EVEN, {"nodeSelector": {HOST: "a"}})),
    (CHOICE, taking(1, **on_nodes(matchFields=[{"key": "metadata.name", "operator": "In", "values": ["a"]}]))),
    (CHOICE, taking(1, **on_nodes(matchExpressions=[{"key": "k8s.aws/layer", "operator": "NotIn", "values": ["a"]}]))),
    *((SHARE, taking(1, beside=more)) for more in ({"cpu": "9"}, {"memory": "40Gi"}, {EFA_RESOURCE: "1"})),
    (SHARE, taking(1, beside={HUGE: "1Gi"}, resource=GPU)),
    *((SHARE, taking(1, resource=each)) for each in (EFA_RESOURCE, CORES)),
]


def about_parts(template, policies):
    """Yield what each policy that judges templates says about parts of nodes."""
    said = ("all devices of its", "part of a node must")
    for name, asked in templates(template):
        if name != "train-jobs":
            yield [told for each in said for told in refusals(name, asked, about=each, policies=policies)]


@pytest.mark.parametrize("template", PARTS)
def test_parts_of_shared_nodes_are_refused(template):
    assert {len(told) for told in about_parts(template, WHOLE)} == {1}
    assert not any(about_parts(template, POLICIES))


@pytest.mark.parametrize("template", WHOLES)
def test_whole_nodes_are_admitted(template):
    assert not any(about_parts(template, WHOLE))


@pytest.mark.parametrize(("said", "template"), PACKINGS)
def test_parts_of_nodes_are_admitted_with_packing(said, template):
    for told in about_parts(template, PACKED):
        assert [said in each for each in told] == [True] * bool(said)


CONFINED = {
    "seccompProfile": {"type": "RuntimeDefault"},
    "seLinuxOptions": {"type": "container_t", "level": "s0:c1"},
    "windowsOptions": {},
}
PROBED = {
    **PLAIN,
    "args": ["x" * 30_000],
    "securityContext": {**CONFINED, "procMount": "Default", "appArmorProfile": {"type": "RuntimeDefault"}},
    "livenessProbe": {"httpGet": {"port": 1, "host": ""}},
    "lifecycle": {"preStop": {"tcpSocket": {"port": 1}}},
}


@EVERY_WORKLOAD
def test_templates_within_the_baseline_and_size_limit_pass(name):
    context = {**CONFINED, "sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}]}
    template = {"metadata": {"annotations": {"a": "b"}}, "spec": spec(PROBED, securityContext=context)}
    assert refusals(name, made_by(name, 2, template)) == []


PODLESS = {("", "configmaps"), ("", "secrets"), ("", "services"), ("bus.volcano.sh", "commands")}


def test_every_writable_kind_is_limited_and_counted():
    judged = {(match.group, match.resource) for name in KINDS for match in POLICIES[name].matches}
    hard = quotas.hard({}, {}, {})
    for match in researchers.writable_kinds():
        kind = (match.group, match.resource)
        assert kind in judged | PODLESS, f"{kind}: no policy judges its templates and its number of pods"
        name = f"count/{match.resource}.{match.group}" if match.group else match.resource
        assert name in hard, f"{kind}: no quota counts its objects"
    assert {name for name, row in KINDS.items() if "counts" not in row} == {"pods"}
    # A namespace without priorities reports it.
    policy = admission.policies(dataclasses.replace(LIMITS, priority_classes=()), ())["queues"]
    assert [each.message for each in policy.validations][1] == "spec.priorityClassName must be unset in this namespace"


@EVERY_WORKLOAD
def test_object_creates_at_most_the_quotas_pods(name):
    assert refusals(name, made_by(name, 100)) == []
    (message, *_) = refusals(name, made_by(name, 101))
    assert re.search(r"101 is more than 100, .* quota has 100 \(pods\)", message)
    # Nor does an update make one of it, by the object itself or by its scale.
    assert refusals(name, made_by(name, 101), made_by(name, 1)) != []
    for pods in (100, 101):
        assert len(refusals("scale", {"spec": {"replicas": pods}}, {"spec": {"replicas": 1}})) == pods - 100


SET_ONCE = ("scheduling.k8s.io/group-name", "volcano.sh/task-spec", "karpenter.sh/do-not-disrupt", "kubernetes.io/x")
FREE = ("note", "app.kubernetes.io/version", "kubectl.kubernetes.io/restartedAt", "trainium-eks/image", "helm.sh/chart")


@pytest.mark.parametrize("field", ["annotations", "labels"])
@pytest.mark.parametrize("kind", ["Pod", "Job"])
def test_researchers_cannot_change_scheduler_fields(field, kind):
    def marked(**values):
        kept = {key: value for key, value in values.items() if value}
        return {"kind": kind, "metadata": {field: {"a": "b", **kept}}}

    told = functools.partial(refusals, "metadata", about="are read by schedulers")
    for key in SET_ONCE:
        for old, new in (("a", "b"), ("a", None), (None, "b")):
            before, after = marked(**{key: old}), marked(**{key: new})
            assert len(told(after, before)) == 1
            assert told(after, before, groups=CONTROLLERS) == told(before, before) == told(after) == []
    for key in FREE:
        assert told(marked(**{key: "c"}), marked(**{key: "b"})) == told(marked(), marked(**{key: "b"})) == []
