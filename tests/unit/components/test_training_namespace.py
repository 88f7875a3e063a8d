"""TrainingNamespace: a team gets all it needs and nothing of the others, and no pod goes past its queues."""

import itertools

import pulumi
from unit.components.parts import LEAST, of_kind, one

from components import TrainingNamespace
from trainium_eks.model.policies import admission, researchers
from trainium_eks.model.sizing import priorities

POLICY = "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy"
ROLE = "kubernetes:rbac.authorization.k8s.io/v1:Role"
KEY = "arn:aws:kms:us-west-2:000000000000:key/k"
MINIMAL = LEAST["TrainingNamespace"]
FULL = {
    **MINIMAL,
    "queues": ("test", "big"),
    "principals": ("arn:aws:iam::000000000000:role/teams/bert", "arn:aws:iam::111111111111:role/bert"),
    "queue_capability": {"aws.amazon.com/neuron": 64, "vpc.amazonaws.com/efa": 32},
    "room": {"cpu": "508", "memory": "1800Gi", "pods": "1000"},
    "volume_name": "volume-training",
    "volume_gib": 1200,
    "volume_class": "fsx-shared",
    "bucket_arn": "arn:aws:s3:::stack-bucket",
    "bucket_prefix": "lustre/",
    "data_bucket": "team-data",
    "kms_key_arn": KEY,
    "rendezvous": "etcd",
}

ALLOWED = admission.Limits(
    FULL["queues"],
    priorities.NAMES,
    pods=164,
    finished_pods=656,
    jobs=164,
    counted_requests=("cpu", "memory"),
    closed_storage_classes=("fsx",),
    researchers="trainium-eks:training:researchers",
    service_accounts=("default", "training"),
    reserved_names=("default-deny", "same-namespace", "dns", "https", "pod-identity", "metrics", "rendezvous"),
)
POLICIES = admission.policies(ALLOWED, researchers.writable_kinds())


def team(record, args=FULL, **changed):
    return record(lambda: TrainingNamespace("team", {**args, **changed}) and None, dry_run=False)


def named(graph, type_):
    return {each.inputs["metadata"]["name"]: each.inputs for each in of_kind(graph, type_)}


def triples(rules, *keys):
    """Return each combination of what rules name, as (group, resource, verb)."""
    return {each for rule in rules for each in itertools.product(*(rule[key] for key in keys))}


def test_researchers_train_without_admin_rights_or_secrets(record):
    graph = team(record)
    allowed = triples(one(graph, ROLE).inputs["rules"], "apiGroups", "resources", "verbs")
    jobs = (("batch.volcano.sh", "jobs"), ("kubeflow.org", "pytorchjobs"))
    wanted = {
        *((*job, verb) for job in jobs for verb in ("create", "delete", "get", "list", "watch")),
        *(("batch.volcano.sh", "jobs/status", "get"), ("apps", "deployments", "create"), ("", "events", "watch")),
        *(("", resource, "create") for resource in ("pods/portforward", "configmaps", "services")),
        *(("", "pods", "list"), ("", "pods/log", "get")),
    }
    assert wanted <= allowed
    assert not [each for each in allowed if "*" in each]
    assert "rbac.authorization.k8s.io" not in {group for group, _, _ in allowed}
    mine = {resource for _, resource, verb in allowed if verb in {"create", "update", "patch", "delete"}}
    # To write PodGroups, claims, quotas or pod bindings is to go around the queue or the quota.
    assert not mine & {"podgroups", "resourcequotas", "limitranges", "persistentvolumeclaims", "pods/binding"}
    # Nor are replica sets theirs, or endpoints, by which a service could lead anywhere.
    assert not mine & {"replicasets", "endpoints", "endpointslices"}
    assert {verb for _, resource, verb in allowed if resource == "secrets"} == {"create", "delete"}
    # Each of these gets past what was judged when the pod was made.
    assert {resource for resource in mine if "/" in resource} == {"pods/exec", "pods/portforward"}
    # Of the cluster they read queues and nodes, and write nothing there.
    role = one(graph, "ClusterRole").inputs
    read = itertools.product(("queues", "hypernodes", "nodes"), ("get", "list", "watch"))
    assert triples(role["rules"], "resources", "verbs") == set(read)
    assert one(graph, "ClusterRoleBinding").inputs["roleRef"]["name"] == role["metadata"]["name"]


def test_admission_carries_the_models_expressions(record):
    policies = named(team(record), POLICY)
    for name, policy in POLICIES.items():
        spec = policies[f"trainium-eks-training-{name}"]["spec"]
        variables = [(each["name"], each["expression"]) for each in spec.get("variables", [])]
        assert variables == [(each.name, each.expression) for each in policy.variables]
        validations = [(each["expression"], each["message"]) for each in spec["validations"]]
        assert validations == [(each.expression, each.message) for each in policy.validations]
    # One of the queues may have a name that was known late.
    assert named(team(record, queues=("test", pulumi.Output.from_input("big"))), POLICY) == policies


def test_admission_covers_every_kind_that_makes_pods(record):
    specs = [inputs["spec"] for inputs in named(team(record), POLICY).values()]
    rules = [rule for spec in specs for rule in spec["matchConstraints"]["resourceRules"]]
    matched = triples(rules, "apiGroups", "apiVersions", "resources", "operations")
    rows = [row for row in admission.table()["policies"].values() if "templates" in row]
    kinds = {
        ("", "v1", "services"),
        ("bus.volcano.sh", "v1alpha1", "commands"),
        ("scheduling.volcano.sh", "v1beta1", "podgroups"),
        ("flow.volcano.sh", "v1alpha1", "jobflows"),
        ("*", "*", "*/scale"),
        *(tuple(each.values()) for row in rows for each in row["matches"]),
        *((match.group, match.version, match.resource) for match in researchers.writable_kinds()),
    }
    assert kinds == {each[:3] for each in matched}
    assert {(*kind, operation) for kind in kinds for operation in ("CREATE", "UPDATE")} <= matched
    assert {each for each in matched if each[3] == "DELETE"} == {("", "v1", "pods", "DELETE")}
