"""The kinds that lead to pods: the paths of their pod templates, and the number of pods of an object."""

from dataclasses import dataclass

from trainium_eks.model.policies.admission_terms import Match, Variable, listed, number

SCHEDULER = "volcano"
"""Name of Volcano's scheduler."""

DEFAULT_SCHEDULER = "default-scheduler"
"""Name of Kubernetes' own scheduler, which takes a pod that names none."""


@dataclass(frozen=True)
class Count:
    """A number of pods that an object leads to at one time."""

    expression: str
    field: str
    """Field that sets the number, for a message."""


@dataclass(frozen=True)
class Workload:
    """Kinds of objects with their pod templates at the same path. One policy validates them."""

    name: str
    """Name of the policy."""
    matches: tuple[Match, ...]
    templates: str
    """Expression for the list of pod templates, each with its ``metadata`` and ``spec``."""
    counts: tuple[Count, ...] = ()
    variables: tuple[Variable, ...] = ()
    """Variables that ``templates`` and ``counts`` use."""
    scheduler: str = f'"{DEFAULT_SCHEDULER}"'
    """Expression for the scheduler of a pod that names none."""
    groups_pods: bool = False
    """Whether a controller puts the pods into a PodGroup; the object names its queue elsewhere."""
    is_partial: bool = False
    """Whether the templates are merged over others, which may set the fields that they lack."""


PODS = Workload("pods", (Match("", "v1", "pods"),), "[object]")

JOBS = Workload(
    "jobs",
    (Match("batch", "v1", "jobs"), Match("batch", "v1", "cronjobs")),
    "[variables.job.template]",
    (Count(number("variables.job", "parallelism", 1), "spec.parallelism"),),
    (Variable("job", "has(object.spec.jobTemplate) ? object.spec.jobTemplate.spec : object.spec"),),
)
"""Kubernetes' own."""

DEPLOYMENTS = Workload(
    "deployments",
    (
        Match("apps", "v1", "deployments"),
        Match("apps", "v1", "replicasets"),
        Match("apps", "v1", "statefulsets"),
        Match("", "v1", "replicationcontrollers"),
    ),
    "[object.spec.template]",
    (Count(number("object.spec", "replicas", 1), "spec.replicas"),),
)

VOLCANO_JOBS = Workload(
    "volcano-jobs",
    (
        Match("batch.volcano.sh", "v1alpha1", "jobs"),
        Match("batch.volcano.sh", "v1alpha1", "cronjobs"),
        Match("flow.volcano.sh", "v1alpha1", "jobtemplates"),
    ),
    "variables.tasks.filter(task, has(task.template)).map(task, task.template)",
    (Count("variables.replicas.filter(count, count > 0).sum()", "replicas of all tasks"),),
    (
        Variable("job", "has(object.spec.jobTemplate) ? object.spec.jobTemplate.spec : object.spec"),
        Variable("tasks", listed("variables.job", "tasks")),
        Variable("replicas", f"variables.tasks.map(task, {number('task', 'replicas', 1)})"),
    ),
    'has(variables.job.schedulerName) && variables.job.schedulerName != "" '
    f'? variables.job.schedulerName : "{SCHEDULER}"',
    groups_pods=True,
)
"""Volcano makes jobs of the templates of cron jobs and job flows."""

PYTORCH_JOBS = Workload(
    "pytorch-jobs",
    (Match("kubeflow.org", "v1", "pytorchjobs"),),
    "variables.roles.filter(role, has(role.template)).map(role, role.template)",
    (
        Count(
            f"variables.roles.map(role, {number('role', 'replicas', 1)}).filter(count, count > 0).sum()",
            "replicas of all roles",
        ),
        Count(
            f"has(object.spec.elasticPolicy) ? {number('object.spec.elasticPolicy', 'maxReplicas', 0)} : 0",
            "spec.elasticPolicy.maxReplicas",
        ),
    ),
    (
        Variable(
            "roles",
            "has(object.spec.pytorchReplicaSpecs) "
            "? object.spec.pytorchReplicaSpecs.map(role, object.spec.pytorchReplicaSpecs[role]) : []",
        ),
    ),
    # The Training Operator sets it where it starts gangs.
    f'"{SCHEDULER}"',
    groups_pods=True,
)

TRAIN_JOBS = Workload(
    "train-jobs",
    (Match("trainer.kubeflow.org", "v1alpha1", "trainjobs"),),
    "variables.patches",
    (Count(f"has(object.spec.trainer) ? {number('object.spec.trainer', 'numNodes', 1)} : 1", "spec.trainer.numNodes"),),
    (
        Variable(
            "patches",
            f"{listed('object.spec', 'podTemplateOverrides')} + {listed('object.spec', 'podSpecOverrides')}"
            ".map(override, {'spec': override})",
        ),
    ),
    groups_pods=True,
    is_partial=True,
)
"""Overrides of a TrainJob, merged over the templates of its runtime."""

JOB_SETS = Workload(
    "job-sets",
    (Match("trainer.kubeflow.org", "v1alpha1", "trainingruntimes"), Match("jobset.x-k8s.io", "v1alpha2", "jobsets")),
    "variables.jobs.map(job, job.template.spec.template)",
    (
        Count(
            "variables.jobs.map(job, "
            f"{number('job', 'replicas', 1)} * {number('job.template.spec', 'parallelism', 1)})"
            ".filter(count, count > 0).sum()",
            "replicas and parallelism of all replicatedJobs",
        ),
        Count(
            f"has(object.spec.mlPolicy) ? {number('object.spec.mlPolicy', 'numNodes', 1)} : 1",
            "spec.mlPolicy.numNodes",
        ),
    ),
    (
        Variable("set", "has(object.spec.template) ? object.spec.template.spec : object.spec"),
        Variable("jobs", listed("variables.set", "replicatedJobs")),
    ),
    groups_pods=True,
)
"""Runtimes of Kubeflow Trainer, and the JobSets that it makes of them."""

WORKLOADS = (JOBS, DEPLOYMENTS, VOLCANO_JOBS, PYTORCH_JOBS, TRAIN_JOBS, JOB_SETS)
"""All kinds with pods made by a controller."""
