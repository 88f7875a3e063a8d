"""TrainingNamespace: a team gets all it needs and nothing of the others, and no pod goes past its queues."""

import json
from collections.abc import Mapping
from typing import Any

import pulumi
from unit.components.parts import IAM_ROLE, Record, of_kind, one

from components import TrainingNamespace
from trainium_eks.model.policies import admission, researchers
from trainium_eks.model.sizing import priorities, quotas
from trainium_eks.plan.graph import Graph

POLICY = "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy"
ROLE = "kubernetes:rbac.authorization.k8s.io/v1:Role"
KEY = "arn:aws:kms:us-west-2:000000000000:key/k"
MINIMAL: dict[str, Any] = {
    "name": "training",
    "queues": ("test",),
    "region": "us-west-2",
    "cluster_name": "cluster",
}
FULL: dict[str, Any] = {
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

HARD = quotas.hard(FULL["queue_capability"], FULL["room"], {}, claimed_gib=FULL["volume_gib"])
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
POLICIES = admission.policies(ALLOWED, researchers.written())


def team(record: Record, args: Mapping[str, Any] = FULL, *, dry_run: bool = False, **changed: Any) -> Graph:
    return record(lambda: TrainingNamespace("team", {**args, **changed}) and None, dry_run=dry_run)


def named(graph: Graph, type_: str) -> dict[str, Mapping[str, Any]]:
    """Inputs of the objects of a type, by name."""
    return {each.inputs["metadata"]["name"]: each.inputs for each in of_kind(graph, type_)}


def test_namespace_is_held_to_baseline_and_says_why_not_to_more(record: Record) -> None:
    graph = team(record)
    metadata = one(graph, "Namespace").inputs["metadata"]
    assert metadata["name"] == "training"
    assert metadata["labels"]["pod-security.kubernetes.io/enforce"] == "baseline"
    assert "restricted" in metadata["annotations"]["trainium-eks/pod-security-reason"]
    # Training code has no token for the Kubernetes API.
    assert one(graph, "ServiceAccount").inputs["automountServiceAccountToken"] is False


def test_quota_given_is_laid_over_the_default(record: Record) -> None:
    quota = one(team(record), "ResourceQuota").inputs
    assert quota["metadata"] == {"name": "team", "namespace": "training"}
    assert quota["spec"] == {"hard": HARD}
    given = {"requests.aws.amazon.com/neuron": "16", "fsx.storageclass.storage.k8s.io/persistentvolumeclaims": "2"}
    hard = one(team(record, resource_quota=given), "ResourceQuota").inputs["spec"]["hard"]
    assert hard == {**HARD, **given}


def test_a_storage_class_is_closed_to_jobs_as_long_as_its_quota_is_zero(record: Record) -> None:
    def said(**args: Any) -> str:
        return json.dumps(
            named(team(record, **args), "ValidatingAdmissionPolicy")["trainium-eks-training-volcano-jobs"]["spec"]
        )

    assert "storage class fsx" in said()
    opened = said(resource_quota={"fsx.storageclass.storage.k8s.io/persistentvolumeclaims": "2"})
    assert "storage class" not in opened


def test_containers_that_say_nothing_get_requests_but_no_limit_to_be_killed_at(record: Record) -> None:
    (limit,) = one(team(record), "LimitRange").inputs["spec"]["limits"]
    assert limit["type"] == "Container"
    assert limit["defaultRequest"].keys() == {"cpu", "memory"}
    assert "default" not in limit


def test_researchers_train_but_neither_rule_nor_read_secrets(record: Record) -> None:
    rules = one(team(record), ROLE).inputs["rules"]
    allowed = {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    verbs = ("create", "delete", "get", "list", "watch")
    wanted = {
        *(("batch.volcano.sh", "jobs", verb) for verb in verbs),
        *(("kubeflow.org", "pytorchjobs", verb) for verb in verbs),
        ("batch.volcano.sh", "jobs/status", "get"),
        ("", "pods", "list"),
        ("", "pods/log", "get"),
        ("", "pods/portforward", "create"),
        ("", "configmaps", "create"),
        ("", "events", "watch"),
        ("apps", "deployments", "create"),
        ("", "services", "create"),
    }
    assert wanted <= allowed
    assert not [each for each in allowed if "*" in each]
    groups = {group for group, _, _ in allowed}
    assert "rbac.authorization.k8s.io" not in groups
    written = {"create", "update", "patch", "delete"}
    mine = {(group, resource) for group, resource, verb in allowed if verb in written}
    # To write PodGroups, claims, quotas or pod bindings is to go around the queue or the quota.
    # Nor are replica sets theirs, or endpoints, by which a service could lead anywhere.
    for resource in ("replicasets", "endpoints", "endpointslices"):
        assert resource not in {name for _, name in mine}
    for resource in ("podgroups", "resourcequotas", "limitranges", "persistentvolumeclaims", "pods/binding"):
        assert resource not in {name for _, name in mine}
    assert {verb for _, resource, verb in allowed if resource == "secrets"} == {"create", "delete"}
    # Each of these gets past what was judged when the pod was made.
    below = {resource for _, resource in mine if "/" in resource}
    assert below == {"pods/exec", "pods/portforward"}


def test_researchers_read_queues_and_nodes_of_the_cluster_and_write_nothing_there(record: Record) -> None:
    graph = team(record)
    rules = one(graph, "ClusterRole").inputs["rules"]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list", "watch"}
    assert {resource for rule in rules for resource in rule["resources"]} == {"queues", "hypernodes", "nodes"}
    binding = one(graph, "ClusterRoleBinding").inputs
    assert binding["roleRef"]["name"] == one(graph, "ClusterRole").inputs["metadata"]["name"]


def test_each_principal_gets_in_by_the_group_that_the_role_is_bound_to(record: Record) -> None:
    arns = [
        "arn:aws:iam::000000000000:role/bert",
        "arn:aws:iam::111111111111:role/bert",
        "arn:aws:iam::111111111111:role/teams/bert",
        "arn:aws:iam::111111111111:role/teams-bert",
        "arn:aws:iam::111111111111:user/bert",
    ]
    graph = team(record, principals=arns)
    group = "trainium-eks:training:researchers"
    entries = of_kind(graph, "AccessEntry")
    assert sorted(each.inputs["principalArn"] for each in entries) == sorted(arns)
    for each in entries:
        assert (each.inputs["kubernetesGroups"], each.inputs["type"]) == ([group], "STANDARD")
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        (subject,) = one(graph, kind).inputs["subjects"]
        assert (subject["kind"], subject["name"]) == ("Group", group)


def test_nobody_gets_in_before_the_admission_policies_stand(record: Record) -> None:
    graph = team(record)
    bindings = {each.urn for each in of_kind(graph, "ValidatingAdmissionPolicyBinding")}
    assert len(bindings) == len(POLICIES)
    assert bindings <= set(one(graph, "RoleBinding").dependencies)


def test_jobs_read_and_write_below_their_own_prefixes_alone(record: Record) -> None:
    graph = team(record)
    statements = json.loads(one(graph, "RolePolicy").inputs["policy"])["Statement"]
    objects = [each["Resource"] for each in statements if "s3:GetObject" in each["Action"]]
    assert objects == ["arn:aws:s3:::stack-bucket/lustre/training/*", "arn:aws:s3:::team-data/training/*"]
    lists = {each["Resource"]: each["Condition"] for each in statements if each["Action"] == "s3:ListBucket"}
    assert lists == {
        "arn:aws:s3:::stack-bucket": {"StringLike": {"s3:prefix": ["lustre/training/*", "lustre/training"]}},
        "arn:aws:s3:::team-data": {"StringLike": {"s3:prefix": ["training/*", "training"]}},
    }
    (key,) = [each for each in statements if "kms:Decrypt" in each["Action"]]
    assert key["Resource"] == KEY
    assert key["Condition"] == {"StringEquals": {"kms:ViaService": "s3.us-west-2.amazonaws.com"}}


def test_without_a_bucket_there_is_no_role(record: Record) -> None:
    graph = team(record, MINIMAL)
    assert of_kind(graph, IAM_ROLE, "RolePolicy", "PodIdentityAssociation") == ()
    outputs = one(graph, "TrainingNamespace").outputs
    assert outputs == {
        "namespace": "training",
        "service_account": "training",
        "role_arn": "",
        "claim_name": "",
        "queue_names": ["test"],
    }


def test_claim_is_for_the_namespaces_own_volume(record: Record) -> None:
    claim = one(team(record), "PersistentVolumeClaim")
    assert claim.inputs["metadata"] == {"name": "fsx-claim", "namespace": "training"}
    assert claim.inputs["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "fsx-shared",
        "volumeName": "volume-training",
        "resources": {"requests": {"storage": "1200Gi"}},
    }
    # Kubernetes refuses a new size of a static claim, and the volume would not bind a claim made anew.
    assert claim.options.ignore_changes == ("spec.resources",)
    assert claim.options.custom_timeouts == {"delete": "5m"}, "a claim that pods hold fails within minutes"
    plain = one(team(record, volume_class=""), "PersistentVolumeClaim").inputs
    assert plain["spec"]["storageClassName"] == "", "a volume without a class is claimed without one"
    assert of_kind(team(record, MINIMAL), "PersistentVolumeClaim") == ()


def test_network_is_closed_but_for_what_training_needs(record: Record) -> None:
    policies = {name: inputs["spec"] for name, inputs in named(team(record), "NetworkPolicy").items()}
    assert policies["default-deny"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    scraped = policies.pop("metrics")
    assert all(spec["podSelector"] == {} for spec in policies.values())
    ingress = [rule for spec in policies.values() for rule in spec.get("ingress", [])]
    assert ingress == [{"from": [{"podSelector": {}}]}]
    # From outside the namespace: monitoring alone, to one port of the pods that say they serve metrics.
    monitoring = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    assert scraped == {
        "podSelector": {"matchLabels": {"trainium-eks/metrics": "true"}},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [monitoring], "ports": [{"protocol": "TCP", "port": 9600}]}],
    }
    reached = {
        (port["protocol"], port["port"])
        for spec in policies.values()
        for rule in spec.get("egress", [])
        for port in rule.get("ports", [])
    }
    assert reached == {("UDP", 53), ("TCP", 53), ("TCP", 443), ("TCP", 80), ("TCP", 2379)}


def test_no_pod_reaches_the_nodes_metadata(record: Record) -> None:
    policies = named(team(record), "NetworkPolicy")
    (rule,) = policies["https"]["spec"]["egress"]
    (peer,) = rule["to"]
    assert peer["ipBlock"] == {"cidr": "0.0.0.0/0", "except": ["169.254.169.254/32"]}
    (identity,) = policies["pod-identity"]["spec"]["egress"]
    assert identity["to"] == [{"ipBlock": {"cidr": "169.254.170.23/32"}}]
    # Etcd is reached only where it is the rendezvous.
    assert policies.keys() - named(team(record, rendezvous="c10d"), "NetworkPolicy").keys() == {"rendezvous"}


def test_admission_is_held_to_this_namespace_and_refuses_when_in_doubt(record: Record) -> None:
    graph = team(record)
    policies = named(graph, "ValidatingAdmissionPolicy")
    assert set(policies) == {f"trainium-eks-training-{name}" for name in POLICIES}
    assert {inputs["spec"]["failurePolicy"] for inputs in policies.values()} == {"Fail"}
    for name, inputs in named(graph, "ValidatingAdmissionPolicyBinding").items():
        assert inputs["spec"] == {
            "policyName": name,
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "training"}}},
        }


def test_admission_policies_carry_the_models_expressions(record: Record) -> None:
    policies = named(team(record), "ValidatingAdmissionPolicy")
    for name, policy in POLICIES.items():
        spec = policies[f"trainium-eks-training-{name}"]["spec"]
        assert [(each["name"], each["expression"]) for each in spec.get("variables", [])] == [
            (each.name, each.expression) for each in policy.variables
        ]
        assert [(each["expression"], each["message"]) for each in spec["validations"]] == [
            (each.expression, each.message) for each in policy.validations
        ]
        assert spec["matchConstraints"]["resourceRules"] == [
            {
                "apiGroups": [match.group],
                "apiVersions": [match.version],
                "resources": [match.resource],
                "operations": [*policy.operations],
                "scope": "Namespaced",
            }
            for match in policy.matches
        ]
        conditions = [each["expression"] for each in spec.get("matchConditions", [])]
        assert conditions == ([policy.condition] if policy.condition else [])


def test_jobs_may_use_a_queue_whose_name_was_known_late_beside_one_that_was_not(record: Record) -> None:
    late = team(record, queues=("test", pulumi.Output.from_input("big")))
    assert named(late, "ValidatingAdmissionPolicy") == named(
        team(record, queues=("test", "big")), "ValidatingAdmissionPolicy"
    )


def test_admission_sees_all_that_makes_pods_claims_or_commands(record: Record) -> None:
    matched = {
        (group, version, resource, operation)
        for inputs in named(team(record), POLICY).values()
        for rule in inputs["spec"]["matchConstraints"]["resourceRules"]
        for group in rule["apiGroups"]
        for version in rule["apiVersions"]
        for resource in rule["resources"]
        for operation in rule["operations"]
    }
    kinds = {
        ("", "v1", "pods"),
        ("", "v1", "services"),
        ("apps", "v1", "deployments"),
        ("batch", "v1", "jobs"),
        ("batch.volcano.sh", "v1alpha1", "jobs"),
        ("bus.volcano.sh", "v1alpha1", "commands"),
        ("scheduling.volcano.sh", "v1beta1", "podgroups"),
        ("flow.volcano.sh", "v1alpha1", "jobflows"),
        ("*", "*", "*/scale"),
        *(
            tuple(each.values())
            for row in admission.table()["policies"].values()
            if "templates" in row
            for each in row["matches"]
        ),
        *((match.group, match.version, match.resource) for match in researchers.written()),
    }
    assert kinds == {each[:3] for each in matched}
    assert {(*kind, operation) for kind in kinds for operation in ("CREATE", "UPDATE")} <= matched
    assert {each for each in matched if each[3] == "DELETE"} == {("", "v1", "pods", "DELETE")}
