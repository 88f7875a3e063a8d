"""The rights of a team's researchers in the cluster, by the verbs of Kubernetes' RBAC."""

from trainium_eks.model.policies.admission import Match

READ = ("get", "list", "watch")
WRITE = (*READ, "create", "update", "patch", "delete")

Rules = tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]
"""API group, resources and verbs, as in a Role."""

RESEARCHER_RULES: Rules = (
    ("batch.volcano.sh", ("jobs", "cronjobs"), WRITE),
    # TorchX reads the status alone.
    ("batch.volcano.sh", ("jobs/status",), ("get",)),
    # `vcctl` suspends and resumes a job by a command.
    ("bus.volcano.sh", ("commands",), (*READ, "create", "delete")),
    ("scheduling.volcano.sh", ("podgroups",), READ),
    ("kubeflow.org", ("pytorchjobs",), WRITE),
    # A runtime names the gang scheduler and queue of a TrainJob; the chart's runtimes name none.
    ("trainer.kubeflow.org", ("trainjobs", "trainingruntimes"), WRITE),
    # Staging and other work without accelerators.
    ("batch", ("jobs",), WRITE),
    # They serve trained models. Their pods are validated like all others.
    ("apps", ("deployments",), WRITE),
    ("apps", ("replicasets",), READ),
    ("", ("services",), WRITE),
    ("", ("pods",), WRITE),
    ("", ("pods/log",), ("get",)),
    ("", ("pods/exec", "pods/portforward"), ("get", "create")),
    ("", ("configmaps",), WRITE),
    # A model's access token is put in and taken away, not read back by a person.
    ("", ("secrets",), ("create", "delete")),
    ("", ("events",), READ),
    ("events.k8s.io", ("events",), READ),
    ("", ("persistentvolumeclaims", "serviceaccounts", "resourcequotas", "limitranges"), READ),
)
"""Rights of researchers in their own namespace."""

VIEWER_RULES: Rules = (
    ("scheduling.volcano.sh", ("queues",), READ),
    ("topology.volcano.sh", ("hypernodes",), READ),
    ("", ("nodes",), READ),
)
"""Rights of researchers to read in the whole cluster: queues and nodes show why a gang is pending."""


def writable_kinds() -> tuple[Match, ...]:
    """Return the kinds of objects that researchers create or change."""
    verbs = {"create", "update", "patch"}
    return tuple(
        Match(group, "*", resource)
        for group, resources, allowed in RESEARCHER_RULES
        if verbs & set(allowed)
        for resource in resources
        if "/" not in resource
    )
