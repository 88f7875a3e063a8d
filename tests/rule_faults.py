"""What breaks each rule: one change to the whole environment, the rule that must fail, and a word of its message."""

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rule_programs import DROP, POD_TRUST, Program, allow, kubeconfig, node_group, policy, release, trust, user_data
from tables import first_of_each

from trainium_eks.plan.rules.isolation import BOUNDED, POD_FIELDS
from trainium_eks.plan.rules.load import COUNTED

Change = Callable[[Program], Any]

GUARD = "ValidatingAdmissionPolicy training-admission-"


@dataclass(frozen=True)
class Fault:
    """A change to the environment and what it breaks."""

    rule: str
    label: str
    change: Change
    says: str
    """A part of the failing finding's message."""
    also: frozenset[str] = frozenset()
    """Other rules that the same change breaks."""
    beyond_pack: bool = False
    """Whether a policy pack cannot see it."""


def fault(rule: str, label: str, says: str, change: Change, *also: str, beyond_pack: bool = False) -> Fault:
    return Fault(rule, label, change, says, frozenset(also), beyond_pack)


def put(name: str, path: str, value: Any) -> Change:
    return lambda program: program.put(name, path, value)


def drop(*names: str) -> Change:
    return lambda program: program.drop(*names)


def option(name: str, **options: Any) -> Change:
    return lambda program: program[name].options.update(options)


def _of_row(row: Mapping[str, Any]) -> Change:
    """The change that a row of rule_faults.yaml describes."""

    def change(program: Program) -> None:
        program.drop(*row.get("drop", ()))
        for name, options in row.get("options", {}).items():
            program[name].options.update(options)
        for name, inputs in row.get("put", {}).items():
            for path, value in inputs.items():
                program.put(name, path, copy.deepcopy(value))
        for name, paths in row.get("unset", {}).items():
            for path in paths:
                program.put(name, path, DROP)

    return change


def of_another_cluster(*names: str) -> Change:
    def change(program: Program) -> None:
        for name in names:
            program[name].provider = program.urn("pulumi:providers:kubernetes", "other")

    return change


def both(*changes: Change) -> Change:
    def change(program: Program) -> None:
        for each in changes:
            each(program)

    return change


def document(name: str, path: str, **change: Any) -> Change:
    return lambda program: program.edit(name, path, change)


def open_endpoint(*ranges: str) -> Change:
    network = {
        "subnetIds": ["subnet-private-usw2-az4", "subnet-private-usw2-az1"],
        "endpointPrivateAccess": True,
    }
    return put(
        "eks-eksCluster", "vpcConfig", {**network, "endpointPublicAccess": True, "publicAccessCidrs": list(ranges)}
    )


def without_lnet(program: Program) -> None:
    for name in ("base-template", "block-template"):
        program.put(name, "userData", user_data("LimitMEMLOCK=infinity"))
    program.put("karpenter-trn1n-class", "spec.userData", "LimitMEMLOCK=infinity")


def unseen_gpus(program: Program) -> None:
    node_group(program, "gpu", "p5.48xlarge", ami="AL2023_x86_64_NVIDIA", efa=32)
    program.put("eks-node-monitoring-agent", "configurationValues", DROP)


def ssh(program: Program) -> None:
    inputs = {
        "securityGroupId": "sg-base-efa",
        "cidrIpv4": "10.0.0.0/8",
        "ipProtocol": "tcp",
        "fromPort": 22,
        "toPort": 22,
    }
    type_ = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
    program.add("ssh", type_, {**inputs, "description": "from the office"})


def inline_policy(name: str, role: str, *actions: str) -> Change:
    statement = {"Effect": "Allow", "Action": list(actions), "Resource": "*"}
    return lambda program: program.add(
        name, "aws:iam/rolePolicy:RolePolicy", {"role": role, "policy": policy(statement)}
    )


def privileged(program: Program) -> None:
    program.put("volumes-directories", "spec.template.spec.containers.0.securityContext", {"privileged": True})


def image(name: str) -> Change:
    return put("volumes-directories", "spec.template.spec.containers.0.image", name)


def second_of(first: str, second: str, **change: Any) -> Change:
    def add(program: Program) -> None:
        original = program[first]
        program.add(second, original.type, {**original.inputs, **change})

    return add


def p5_without_plugin(program: Program) -> None:
    node_group(program, "gpu", "p5.48xlarge", ami="AL2023_x86_64_NVIDIA", efa=32)


def p5_whose_runtime_takes_no_mounts(program: Program) -> None:
    p5_without_plugin(program)
    amounts = program["neuron-efa-device-plugin"].inputs["values"]["resources"]
    given = {"deviceListStrategy": "volume-mounts", "resources": amounts}
    release(program, "nvidia-device-plugin", "kube-system", given, "0.19.3")


def values(chart: str, path: str, value: Any) -> Change:
    return put(chart, f"values.{path}", value)


def mounts(directory: str) -> Change:
    return put("volumes-training", "spec.csi.volumeAttributes.mountname", directory)


def default_provider(program: Program) -> None:
    program["fsx-data-bucket"].provider = "urn:pulumi:test::trainium-eks::pulumi:providers:aws::default_7_0_0"


def late_rules(program: Program) -> None:
    program["fsx-file-system"].dependencies = []


def strange_origin(program: Program) -> None:
    program["kubernetes"].property_dependencies = {"kubeconfig": (program["base-nodes"].urn,)}


def tokens(program: Program) -> None:
    program.add("etcd", "kubernetes:core/v1:Service", {"spec": {"ports": [{"port": 2379}], "type": "NodePort"}})


def tenant_by_quota(program: Program) -> None:
    metadata = {"metadata": {"name": "quota", "namespace": "lustre-setup"}}
    program.add("quota", "kubernetes:core/v1:ResourceQuota", metadata)


def many_identities(program: Program) -> None:
    for index in range(1001):
        role = f"role-{index}"
        program.add(role, "aws:iam/role:Role", {"assumeRolePolicy": POD_TRUST}, outputs={"arn": f"arn:{role}"})
        inputs = {"namespace": "x", "serviceAccount": role, "roleArn": f"arn:{role}"}
        program.add(f"identity-{index}", "aws:eks/podIdentityAssociation:PodIdentityAssociation", inputs)


def serves_the_system_nodes(program: Program) -> None:
    """Cluster Autoscaler finds the CPU group `system`, too; its size is left alone."""
    program["system-nodes"].options["ignore_changes"] = ("scalingConfig.desiredSize",)
    program.add(
        "tag-system",
        "aws:autoscaling/tag:Tag",
        program["autoscaler-base-trainium-eks/cluster-autoscaler"].inputs,
        property_dependencies={"autoscalingGroupName": (program["system-nodes"].urn,)},
    )


def scaling_policy(**change: Any) -> Change:
    """A change of the statement by which Cluster Autoscaler scales."""

    def changed(program: Program) -> None:
        *others, statement = json.loads(program["RolePolicy autoscaler"].inputs["policy"])["Statement"]
        found = {key: value for key, value in {**statement, **change}.items() if value is not DROP}
        program.edit("RolePolicy autoscaler", "policy", {"Statement": [*others, found]})

    return changed


LOG_TYPES = ("api", "audit", "authenticator", "controllerManager", "scheduler")
SWITCHES = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
EVENTS = ("NEW", "CHANGED", "DELETED")
TAGS = ("Owner", "CostCenter", "Environment")


def of_each_policy_of_the_network(path: str, value: Any) -> Change:
    return lambda program: [
        program.put(name, path, value) for name in program.entries if name.startswith("training-network-")
    ]


def all_but(every: tuple[str, ...], one: str) -> list[str]:
    return [each for each in every if each != one]


def tags_without(one: str) -> str:
    return json.dumps({"tags": dict.fromkeys(all_but(TAGS, one), "x")})


CLUSTER = [
    *(
        fault("R01", f"no {each} log", each, put("eks-eksCluster", "enabledClusterLogTypes", all_but(LOG_TYPES, each)))
        for each in LOG_TYPES
    ),
    fault(
        "R06",
        "Pulumi does not protect it",
        "options.protect",
        both(*(option(each, protect=False) for each in ("Cluster eks", "eks-eksCluster"))),
    ),
    fault(
        "R08",
        "the log group comes after",
        "does not depend",
        lambda program: program["Cluster eks"].dependencies.clear(),
    ),
    fault(
        "R11", "everybody may use it", "Principal", put("key-policy", "policy", policy(allow({"AWS": "*"}, "kms:*")))
    ),
    fault("R14", "port 22", "22", ssh),
    fault(
        "R17",
        "an access key",
        "access key",
        put("base-template", "userData", user_data("export K=AKIAIOSFODNN7EXAMPLE")),
        "R69",
    ),
    fault(
        "R17",
        "a password",
        "password",
        put("base-template", "userData", user_data("DB_PASSWORD=hunter2hunter2")),
        "R69",
    ),
    fault(
        "R17",
        "a private key",
        "private key",
        put("base-template", "userData", user_data("-----BEGIN RSA PRIVATE KEY-----")),
        "R69",
    ),
    fault("R18", "an inline policy", "inline", inline_policy("extra", "trn-test-cluster-node", "s3:GetObject")),
    fault(
        "R18", "a policy of every action", "Action", inline_policy("extra", "trn-test-training-role", "*"), "R73", "R79"
    ),
    fault(
        "R19",
        "an agent that cannot see GPUs",
        "dcgmAgent.tolerations for nvidia.com/gpu:NO_SCHEDULE",
        unseen_gpus,
        "R62",
    ),
    fault("R69", "another limit", "LimitMEMLOCK", put("base-template", "userData", user_data("LimitMEMLOCK=64K"))),
    fault(
        "R24",
        "four interfaces",
        "has 4",
        lambda program: program.put(
            "base-template", "networkInterfaces", program["base-template"].inputs["networkInterfaces"][:4]
        ),
    ),
    fault(
        "R25",
        "everybody comes in",
        "0.0.0.0/0",
        second_of("base-efa-in", "open", cidrIpv4="0.0.0.0/0", referencedSecurityGroupId=None),
    ),
    fault(
        "R25",
        "no group at all",
        "securityGroups",
        lambda program: [each.pop("securityGroups") for each in program["base-template"].inputs["networkInterfaces"]],
    ),
    fault(
        "R37",
        "a peer overlaps",
        "peer",
        lambda program: program.config["network"].update(peerCidrBlocks=["10.0.0.0/8"]),
    ),
    *(
        fault(
            "R39",
            f"{each} is not in {policy}",
            each,
            put("fsx-link", f"s3.{policy}", {"events": all_but(EVENTS, each)}),
        )
        for policy in ("autoImportPolicy", "autoExportPolicy")
        for each in EVENTS
    ),
    fault(
        "R39",
        "the bucket goes with the stack",
        "bucket",
        option("fsx-data-bucket", protect=False, retain_on_delete=False),
        "R50",
        beyond_pack=True,
    ),
    fault("R42", "the rules come after", "does not depend", late_rules),
    fault(
        "R42",
        "no client comes in",
        "nodes",
        drop(*(f"fsx-from-cluster-{way}-{port}" for way in ("in", "out") for port in (988, 1018, "all"))),
    ),
    fault("R43", "no node that uses it", "lnetctl net add --net efa", without_lnet),
    fault(
        "R68",
        "one user for two teams",
        "user 1000 is also that of vision",
        lambda program: program.config.update(namespaces=[{"name": "training"}, {"name": "vision"}]),
    ),
    *(fault("R46", f"{each} is off", each, put("fsx-data-access-block", each, False)) for each in SWITCHES),
    fault(
        "R49",
        "plain HTTP is denied to one role alone",
        "for everybody",
        put(
            "fsx-data-policy",
            "policy",
            policy(
                {
                    "Effect": "Deny",
                    "Principal": {"AWS": "arn:aws:iam::123456789012:role/one"},
                    "Action": "s3:*",
                    "Resource": "arn:aws:s3:::trn-test-fsx-data-bucket/*",
                    "Condition": {"Bool": {"aws:SecureTransport": "false"}},
                }
            ),
        ),
    ),
    fault("R52", "a privileged job", "privileged", privileged),
    fault(
        "R53",
        "a branch",
        "tag or commit",
        lambda program: program.add(
            "operator",
            "kubernetes:kustomize/v2:Directory",
            {"directory": "https://github.com/kubeflow/training-operator//manifests/overlays/standalone?ref=master"},
        ),
    ),
    fault("R56", "egress is open", "Egress", of_each_policy_of_the_network("spec.policyTypes", ["Ingress"])),
    fault(
        "R56",
        "not enforced",
        "enableNetworkPolicy",
        document("Addon vpc-cni", "configurationValues", enableNetworkPolicy="false"),
    ),
    fault("R56", "another team's namespace", "lustre-setup", tenant_by_quota, "R71", "R78"),
    fault(
        "R57",
        "trusts EC2 too",
        "trusts",
        put("training-role", "assumeRolePolicy", trust("ec2.amazonaws.com", "sts:AssumeRole", "sts:TagSession")),
    ),
    fault(
        "R57",
        "no session tags",
        "TagSession",
        put("training-role", "assumeRolePolicy", trust("pods.eks.amazonaws.com")),
    ),
    fault("R57", "everybody", '"*"', put("node", "assumeRolePolicy", policy(allow("*", "sts:AssumeRole"))), "R73"),
    fault(
        "R57", "a shared role", "role each", second_of("training-identity", "other-identity", serviceAccount="other")
    ),
    fault("R57", "too many", "1000", many_identities),
]

SCHEDULING = [
    fault(
        "R59",
        "guarantees above the pool",
        "all queues",
        lambda program: [
            program.put(f"volcano-{name}", "spec.guarantee.resource", {"aws.amazon.com/neuron": "128"})
            or program.put(f"volcano-{name}", "spec.deserved", {})
            for name in "ab"
        ],
    ),
    fault(
        "R94",
        "a lasting taint of Karpenter's",
        "startupTaints",
        put(
            "karpenter-trn1n",
            "spec.template.spec.taints",
            [{"key": key, "effect": "NoSchedule"} for key in ("aws.amazon.com/neuron", "trainium-eks/fabric-untested")],
        ),
    ),
    fault("R61", "a bare etcd", "NodePort", tokens),
    fault("R62", "a GPU group without a plugin", "nvidia-device-plugin", p5_without_plugin),
    fault("R62", "a runtime that takes no mounts", "volume-mounts", p5_whose_runtime_takes_no_mounts),
]

FSX_CLASS = {"metadata": {"name": "other"}, "provisioner": "fsx.csi.aws.com"}


def on_creation_alone(program: Program) -> None:
    rules = program[f"{GUARD}pods"].inputs["spec"]["matchConstraints"]["resourceRules"]
    rules[0]["operations"] = ["CREATE"]


def two_of_one_kind(program: Program) -> None:
    metadata = {"metadata": {"name": "team", "namespace": "training"}}
    for name in ("mine", "theirs"):
        program.add(name, "kubernetes:core/v1:ConfigMap", copy.deepcopy(metadata))


def unmatched(policy_name: str, resource: str) -> Change:
    """A policy that does not look at one of its resources."""

    def change(program: Program) -> None:
        constraints = program[f"{GUARD}{policy_name}"].inputs["spec"]["matchConstraints"]
        constraints["resourceRules"] = [
            each for each in constraints["resourceRules"] if resource not in each["resources"]
        ]

    return change


ISOLATION = [
    fault("R70", "two config maps of one name", "ConfigMap training/team is mine", two_of_one_kind),
    fault("R70", "two releases of one name", "Release", second_of("volcano-release", "again", name="volcano")),
    fault("R71", "new pods alone", "ephemeral of pods", on_creation_alone),
    *(
        fault(
            "R71",
            f"{field} is not judged",
            field,
            put(
                f"{GUARD}pods",
                "spec.validations",
                [{"expression": " ".join(each for each in POD_FIELDS if each != field)}],
            ),
        )
        for field in POD_FIELDS
    ),
    fault(
        "R71",
        "in before the policies",
        "does not wait for",
        lambda each: each["RoleBinding training-researcher"].dependencies.clear(),
    ),
    fault("R71", "the quota of another cluster", "requests.memory", of_another_cluster("training-quota")),
    *(
        fault(
            "R71",
            f"{name} has no bound",
            name,
            put("training-quota", "spec.hard", {each: "1" for each in (*BOUNDED, COUNTED) if each != name}),
        )
        for name in BOUNDED
    ),
    fault(
        "R71",
        "file systems without a bound",
        "other.storageclass",
        lambda each: each.add("fsx-class", "kubernetes:storage.k8s.io/v1:StorageClass", FSX_CLASS),
    ),
    *(
        fault("R78", f"{policy_name} without {resource}", f"of {resource}", unmatched(policy_name, resource))
        for policy_name, resource in (
            ("volcano-jobs", "cronjobs"),
            ("jobs", "cronjobs"),
            ("job-flows", "jobflows"),
            ("pytorch-jobs", "pytorchjobs"),
            ("train-jobs", "trainjobs"),
            ("job-sets", "trainingruntimes"),
            ("scale", "*/scale"),
        )
    ),
    fault(
        "R65",
        "the kubeconfig is plain",
        "plain text",
        lambda program: program.outputs.update(kubeconfig=kubeconfig()),
        beyond_pack=True,
    ),
    fault("R65", "a token inside", "token", put("kubernetes", "kubeconfig", kubeconfig(token="abc"))),
    fault("R65", "no exec", "exec.command", put("kubernetes", "kubeconfig", kubeconfig(name="x"))),
    fault("R65", "it waits for nodes", "base", strange_origin),
    *(fault("R66", f"no {each}", each, put("aws", "defaultTags", tags_without(each))) for each in TAGS),
    fault("R67", "the default provider", "explicit provider", default_provider),
]


def budget(key: str, value: float) -> Change:
    return lambda program: program.config["budget"].update({key: value})


def unpriced(program: Program) -> None:
    program.config["instanceTypes"] = {"m9.xlarge": {"like": "m6i.xlarge"}}
    program.put("system-nodes", "instanceTypes", ["m9.xlarge"])


BUDGET = [
    fault("R72", "dearer than the budget", "pulumi config set --path budget.hourlyUsd", budget("hourlyUsd", 12.5)),
    fault("R72", "more nodes than the budget", "the groups grow to", budget("nodes", 3)),
    fault("R72", "no price", "no price is known for m9.xlarge", unpriced),
]


def team_policy(**statement: Any) -> Change:
    granted = {"Effect": "Allow", "Resource": "*", **statement}
    return put("training-data", "policy", policy(granted))


def team_trusts(principal: Any) -> Change:
    return put("training-role", "assumeRolePolicy", policy(allow(principal, "sts:AssumeRole")))


def reads_all_secrets(program: Program) -> None:
    granted = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}]
    program.add("reader", "kubernetes:rbac.authorization.k8s.io/v1:ClusterRole", {"rules": granted})


REACH = [
    fault("R73", "all but one action", "NotAction", team_policy(NotAction="iam:DeleteUser")),
    fault("R73", "all of a service", "s3:*", team_policy(Action="s3:*")),
    fault("R73", "every role", "iam:PassRole on every resource", team_policy(Action="iam:PassRole")),
    fault("R73", "every parameter", "ssm:Get* on every resource", team_policy(Action=["ssm:Get*"])),
    fault("R73", "another account", "999988887777", team_trusts({"AWS": "arn:aws:iam::999988887777:root"}), "R57"),
    fault("R73", "everybody", "trusts *", team_trusts("*"), "R57"),
    fault("R74", "every secret", "secrets of the whole cluster", reads_all_secrets),
]

AUTOSCALING = [
    fault("R79", "groups of every cluster", "wanted a Condition on a tag", scaling_policy(Condition=DROP)),
    fault(
        "R79",
        "a condition on something else",
        "SetDesiredCapacity",
        scaling_policy(Condition={"StringEquals": {"aws:RequestedRegion": "us-west-2"}}),
    ),
    fault(
        "R79",
        "any instance",
        "allows ec2:Run*",
        scaling_policy(Action="ec2:Run*", Resource=["arn:aws:ec2:*:*:instance/*"], Condition=DROP),
    ),
    fault(
        "R81", "two for CPU pods", "Cluster Autoscaler serves trn-test-cluster-system-nodes", serves_the_system_nodes
    ),
]


def everybody_sees_grafana(program: Program) -> None:
    settings = program["metrics-release"].inputs["values"]["grafana"]["grafana.ini"]
    settings["auth.anonymous"] = {"enabled": True}


def resource_of(name: str, resource: str) -> Change:
    """A policy's one statement on another resource."""
    return lambda program: program.put(
        name, "policy", policy({**json.loads(program[name].inputs["policy"])["Statement"][0], "Resource": resource})
    )


OBSERVABILITY = [
    fault(
        "R84",
        "the shipper first",
        "wanted the group first",
        lambda program: vars(program["Release logs-fluent-bit"]).update(dependencies=[], property_dependencies={}),
    ),
    fault(
        "R86",
        "no login",
        "wanted a login",
        everybody_sees_grafana,
    ),
    fault("R88", "every workspace", "aps:RemoteWrite", resource_of("RolePolicy metrics-prometheus", "*")),
    fault("R88", "every log", "logs:PutLogEvents", resource_of("RolePolicy logs-fluent-bit", "*")),
]

FAULTS = (
    *(
        Fault(rule, row["what"], _of_row(row), row["says"], frozenset(row.get("also", ())))
        for rule, rows in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text()).items()
        for row in rows
    ),
    *CLUSTER,
    *SCHEDULING,
    *ISOLATION,
    *BUDGET,
    *REACH,
    *AUTOSCALING,
    *OBSERVABILITY,
)

ONE_A_RULE = first_of_each(FAULTS, lambda fault: fault.rule, lambda fault: f"{fault.rule} {fault.label}")
"""The faults as parameters of a test; all but the first of each rule are slow."""
