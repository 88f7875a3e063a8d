"""TrainingNamespace: a team gets all it needs and nothing of the others, and no pod goes past its queues."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import pytest
from kubernetes_schemas import schema_faults

from components import ArgumentError, TrainingNamespace
from components.training_namespace import data_policy
from trainium_eks.model.policies import admission, researchers
from trainium_eks.model.sizing import priorities, quotas
from trainium_eks.plan.graph import Graph, Resource

NAMESPACE = "kubernetes:core/v1:Namespace"
QUOTA = "kubernetes:core/v1:ResourceQuota"
LIMITS = "kubernetes:core/v1:LimitRange"
ROLE = "kubernetes:rbac.authorization.k8s.io/v1:Role"
ROLE_BINDING = "kubernetes:rbac.authorization.k8s.io/v1:RoleBinding"
CLUSTER_ROLE = "kubernetes:rbac.authorization.k8s.io/v1:ClusterRole"
CLUSTER_ROLE_BINDING = "kubernetes:rbac.authorization.k8s.io/v1:ClusterRoleBinding"
ACCOUNT = "kubernetes:core/v1:ServiceAccount"
CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"
NETWORK = "kubernetes:networking.k8s.io/v1:NetworkPolicy"
POLICY = "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy"
BINDING = "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicyBinding"
ENTRY = "aws:eks/accessEntry:AccessEntry"
IAM_ROLE = "aws:iam/role:Role"
IAM_POLICY = "aws:iam/rolePolicy:RolePolicy"
ASSOCIATION = "aws:eks/podIdentityAssociation:PodIdentityAssociation"

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

Record = Callable[..., Graph]


def team(record: Record, args: Mapping[str, Any] = FULL, *, dry_run: bool = False, **changed: Any) -> Graph:
    return record(lambda: TrainingNamespace("team", {**args, **changed}) and None, dry_run=dry_run)


def one(graph: Graph, type_: str) -> Resource:
    (found,) = graph.of_type(type_)
    return found


def named(graph: Graph, type_: str) -> dict[str, Mapping[str, Any]]:
    """Inputs of the objects of a type, by name."""
    return {each.inputs["metadata"]["name"]: each.inputs for each in graph.of_type(type_)}


def test_namespace_is_held_to_baseline_and_says_why_not_to_more(record: Record) -> None:
    metadata = one(team(record), NAMESPACE).inputs["metadata"]
    assert metadata["name"] == "training"
    assert metadata["labels"]["pod-security.kubernetes.io/enforce"] == "baseline"
    assert "restricted" in metadata["annotations"]["trainium-eks/pod-security-reason"]


def test_quota_given_is_laid_over_the_default(record: Record) -> None:
    quota = one(team(record), QUOTA).inputs
    assert quota["metadata"] == {"name": "team", "namespace": "training"}
    assert quota["spec"] == {"hard": HARD}
    given = {"requests.aws.amazon.com/neuron": "16", "fsx.storageclass.storage.k8s.io/persistentvolumeclaims": "2"}
    hard = one(team(record, resource_quota=given), QUOTA).inputs["spec"]["hard"]
    assert hard == {**HARD, **given}


def test_a_storage_class_is_closed_to_jobs_as_long_as_its_quota_is_zero(record: Record) -> None:
    def said(**args: Any) -> str:
        return json.dumps(named(team(record, **args), POLICY)["trainium-eks-training-volcano-jobs"]["spec"])

    assert "storage class fsx" in said()
    opened = said(resource_quota={"fsx.storageclass.storage.k8s.io/persistentvolumeclaims": "2"})
    assert "storage class" not in opened


def test_containers_that_say_nothing_get_requests_but_no_limit_to_be_killed_at(record: Record) -> None:
    (limit,) = one(team(record), LIMITS).inputs["spec"]["limits"]
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
    wanted = {
        ("batch.volcano.sh", "jobs", "create"),
        ("batch.volcano.sh", "jobs", "delete"),
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


def test_researchers_may_do_all_that_torchx_does(record: Record) -> None:
    """What torchx 0.7.0 calls (schedulers/kubernetes_scheduler.py): run, cancel, status and describe, list, log."""
    rules = one(team(record), ROLE).inputs["rules"]
    for group, resource, verb in (
        ("batch.volcano.sh", "jobs", "create"),
        ("batch.volcano.sh", "jobs", "delete"),
        ("batch.volcano.sh", "jobs/status", "get"),
        ("batch.volcano.sh", "jobs", "list"),
        ("", "pods/log", "get"),
    ):
        assert any(
            group in rule["apiGroups"] and resource in rule["resources"] and verb in rule["verbs"] for rule in rules
        ), (group, resource, verb)


@pytest.mark.parametrize(("group", "kind"), [("batch.volcano.sh", "jobs"), ("kubeflow.org", "pytorchjobs")])
def test_researchers_start_and_stop_jobs_of_either_kind(record: Record, group: str, kind: str) -> None:
    rules = one(team(record), ROLE).inputs["rules"]
    (verbs,) = (each["verbs"] for each in rules if each["apiGroups"] == [group] and kind in each["resources"])
    assert {"create", "delete", "get", "list", "watch"} <= set(verbs)


def test_researchers_read_queues_and_nodes_of_the_cluster_and_write_nothing_there(record: Record) -> None:
    graph = team(record)
    rules = one(graph, CLUSTER_ROLE).inputs["rules"]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list", "watch"}
    assert {resource for rule in rules for resource in rule["resources"]} == {"queues", "hypernodes", "nodes"}
    binding = one(graph, CLUSTER_ROLE_BINDING).inputs
    assert binding["roleRef"]["name"] == one(graph, CLUSTER_ROLE).inputs["metadata"]["name"]


def test_each_principal_gets_in_by_the_group_that_the_role_is_bound_to(record: Record) -> None:
    graph = team(record)
    group = "trainium-eks:training:researchers"
    entries = graph.of_type(ENTRY)
    assert {each.inputs["principalArn"] for each in entries} == set(FULL["principals"])
    for each in entries:
        assert each.inputs["kubernetesGroups"] == [group]
        assert each.inputs["type"] == "STANDARD"
        assert each.inputs["clusterName"] == "cluster"
    for type_ in (ROLE_BINDING, CLUSTER_ROLE_BINDING):
        (subject,) = one(graph, type_).inputs["subjects"]
        assert (subject["kind"], subject["name"]) == ("Group", group)
    assert one(graph, ROLE_BINDING).inputs["roleRef"]["name"] == one(graph, ROLE).inputs["metadata"]["name"]


def test_principals_of_two_accounts_paths_and_kinds_have_an_entry_each(record: Record) -> None:
    arns = [
        "arn:aws:iam::000000000000:role/bert",
        "arn:aws:iam::111111111111:role/bert",
        "arn:aws:iam::111111111111:role/teams/bert",
        "arn:aws:iam::111111111111:role/teams-bert",
        "arn:aws:iam::111111111111:user/bert",
    ]
    entries = team(record, principals=arns, principal_arns={}).of_type("aws:eks/accessEntry:AccessEntry")
    assert sorted(each.inputs["principalArn"] for each in entries) == sorted(arns)


def test_nobody_gets_in_before_the_admission_policies_stand(record: Record) -> None:
    graph = team(record)
    bindings = {each.urn for each in graph.of_type(BINDING)}
    assert len(bindings) == len(POLICIES)
    assert bindings <= set(one(graph, ROLE_BINDING).dependencies)


def test_jobs_read_and_write_below_their_own_prefixes_alone(record: Record) -> None:
    graph = team(record)
    statements = json.loads(one(graph, IAM_POLICY).inputs["policy"])["Statement"]
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


def test_data_policy_names_the_regions_own_partition() -> None:
    statements = json.loads(data_policy("cn-north-1", [("arn:aws-cn:s3:::data", "training")], [KEY]))["Statement"]
    assert statements[-1]["Condition"] == {"StringEquals": {"kms:ViaService": "s3.cn-north-1.amazonaws.com.cn"}}


def test_pods_take_the_role_only_once_it_has_its_policy(record: Record) -> None:
    graph = team(record)
    association = one(graph, ASSOCIATION)
    assert association.inputs["namespace"] == "training"
    assert association.inputs["serviceAccount"] == one(graph, ACCOUNT).inputs["metadata"]["name"]
    assert association.inputs["roleArn"] == one(graph, IAM_ROLE).outputs["arn"]
    assert one(graph, IAM_POLICY).urn in association.dependencies
    (trust,) = json.loads(one(graph, IAM_ROLE).inputs["assumeRolePolicy"])["Statement"]
    assert trust["Principal"] == {"Service": "pods.eks.amazonaws.com"}


def test_service_account_has_no_kubernetes_token(record: Record) -> None:
    assert one(team(record), ACCOUNT).inputs["automountServiceAccountToken"] is False


def test_without_a_bucket_there_is_no_role(record: Record) -> None:
    graph = team(record, MINIMAL)
    assert graph.of_type(IAM_ROLE, IAM_POLICY, ASSOCIATION) == ()
    outputs = one(graph, "trainium-eks:index:TrainingNamespace").outputs
    assert outputs == {
        "namespace": "training",
        "service_account": "training",
        "role_arn": "",
        "claim_name": "",
        "queue_names": ["test"],
    }


def test_claim_is_for_the_namespaces_own_volume(record: Record) -> None:
    claim = one(team(record), CLAIM)
    assert claim.inputs["metadata"] == {"name": "fsx-claim", "namespace": "training"}
    assert claim.inputs["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "fsx-shared",
        "volumeName": "volume-training",
        "resources": {"requests": {"storage": "1200Gi"}},
    }
    # Kubernetes refuses a new size of a static claim, and the volume would not bind a claim made anew.
    assert claim.options.ignore_changes == ("spec.resources",)
    assert team(record, MINIMAL).of_type(CLAIM) == ()


def test_every_object_in_the_namespace_waits_for_it(record: Record) -> None:
    graph = team(record)
    home = one(graph, NAMESPACE).urn
    inside = [
        each for each in graph.resources if isinstance(each.inputs.get("metadata"), dict) and each.type != NAMESPACE
    ]
    inside = [each for each in inside if each.inputs["metadata"].get("namespace") == "training"]
    assert len(inside) >= 10
    assert [each.name for each in inside if home not in each.dependencies] == []
    # Deleted before it, a claim would wait for pods that only the namespace's end ends; and while they end, the network
    # policies still hold.
    assert [each.name for each in inside if each.options.deleted_with != home] == []


def test_the_namespace_goes_before_its_volume_and_is_not_replaced_with_it(record: Record) -> None:
    def program() -> None:
        spec = {"csi": {"driver": "fsx.csi.aws.com", "volume_handle": "fs-1"}}
        volume = k8s.core.v1.PersistentVolume("volume", spec=spec)
        TrainingNamespace("team", {**FULL, "volume_name": volume.metadata["name"]})

    for dry_run in (False, True):
        graph = record(program, dry_run=dry_run)
        home, volume = one(graph, NAMESPACE), one(graph, "kubernetes:core/v1:PersistentVolume")
        assert volume.urn in home.dependencies
        assert volume.urn not in {urn for urns in home.property_dependencies.values() for urn in urns}


def test_a_claim_that_pods_hold_fails_within_minutes(record: Record) -> None:
    assert one(team(record), CLAIM).options.custom_timeouts == {"delete": "5m"}


def test_a_volume_without_a_class_is_claimed_without_one(record: Record) -> None:
    assert one(team(record, volume_class=""), CLAIM).inputs["spec"]["storageClassName"] == ""


def test_network_is_closed_but_for_what_training_needs(record: Record) -> None:
    policies = {name: inputs["spec"] for name, inputs in named(team(record), NETWORK).items()}
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
    policies = named(team(record), NETWORK)
    (rule,) = policies["https"]["spec"]["egress"]
    (peer,) = rule["to"]
    assert peer["ipBlock"] == {"cidr": "0.0.0.0/0", "except": ["169.254.169.254/32"]}
    (identity,) = policies["pod-identity"]["spec"]["egress"]
    assert identity["to"] == [{"ipBlock": {"cidr": "169.254.170.23/32"}}]


def test_etcd_is_reached_only_where_it_is_the_rendezvous(record: Record) -> None:
    assert "rendezvous" in named(team(record), NETWORK)
    assert "rendezvous" not in named(team(record, rendezvous="c10d"), NETWORK)


def test_admission_is_held_to_this_namespace_and_refuses_when_in_doubt(record: Record) -> None:
    graph = team(record)
    policies = named(graph, POLICY)
    assert set(policies) == {f"trainium-eks-training-{name}" for name in POLICIES}
    assert {inputs["spec"]["failurePolicy"] for inputs in policies.values()} == {"Fail"}
    for name, inputs in named(graph, BINDING).items():
        assert inputs["spec"] == {
            "policyName": name,
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "training"}}},
        }


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


def test_admission_policies_carry_the_models_expressions(record: Record) -> None:
    policies = named(team(record), POLICY)
    for name, policy in POLICIES.items():
        spec = policies[f"trainium-eks-training-{name}"]["spec"]
        assert [(each["name"], each["expression"]) for each in spec.get("variables", [])] == [
            (each.name, each.expression) for each in policy.variables
        ]
        assert [(each["expression"], each["message"]) for each in spec["validations"]] == [
            (each.expression, each.message) for each in policy.validations
        ]
        conditions = [each["expression"] for each in spec.get("matchConditions", [])]
        assert conditions == ([policy.condition] if policy.condition else [])


def test_every_object_fits_its_schema(record: Record) -> None:
    assert schema_faults(team(record)) == []
    assert schema_faults(team(record, MINIMAL)) == []
    assert schema_faults(team(record, dry_run=True)) == []


def test_preview_plans_the_same_resources(record: Record) -> None:
    assert [(each.urn, each.options) for each in team(record, dry_run=True).resources] == [
        (each.urn, each.options) for each in team(record).resources
    ]


def test_values_may_come_from_other_resources(record: Record) -> None:
    arn = pulumi.Output.from_input("arn:aws:s3:::later")
    graph = team(record, bucket_arn=arn, volume_name=pulumi.Output.from_input("volume-later"))
    assert "arn:aws:s3:::later/lustre/training/*" in one(graph, IAM_POLICY).inputs["policy"]
    assert one(graph, CLAIM).inputs["spec"]["volumeName"] == "volume-later"


def test_jobs_may_use_a_queue_whose_name_was_known_late_beside_one_that_was_not(record: Record) -> None:
    late = team(record, queues=("test", pulumi.Output.from_input("big")))
    assert named(late, POLICY) == named(team(record, queues=("test", "big")), POLICY)


@pytest.mark.parametrize(
    ("args", "path"),
    [
        ({"name": "Team A"}, "name"),
        ({"name": "kube-system"}, "name"),
        ({"name": "neuron-monitor"}, "name"),
        ({"name": "torchx-etcd"}, "name"),
        ({"name": "dcgm-exporter"}, "name"),
        ({"name": "volcano-system"}, "name"),
        ({"name": "lustre-setup"}, "name"),
        ({"queues": ()}, "queues"),
        ({"principals": ("bert",)}, "principals[0]"),
        ({"resource_quota": {"aws.amazon.com/neuron": "16"}}, 'resource_quota["aws.amazon.com/neuron"]'),
        ({"priority_classes": ("system-node-critical",)}, "priority_classes[0]"),
        ({"data_bucket": "Not A Bucket"}, "data_bucket"),
        ({"volume_gib": 0}, "volume_gib"),
        ({"rendezvous": "zookeeper"}, "rendezvous"),
        ({"queue": ("test",)}, "queue"),
    ],
)
def test_bad_args_are_refused_by_name(args: dict[str, Any], path: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        TrainingNamespace("team", {**FULL, **args})
    assert [problem.path for problem in caught.value.problems] == [path]
