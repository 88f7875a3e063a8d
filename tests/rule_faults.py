"""What breaks each rule: one change to the whole environment, the rule that must fail, and a word of its message."""

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rule_programs import DROP, POD_TRUST, Program, allow, kubeconfig, node_group, policy, release, trust, user_data
from tables import first_of_each

from trainium_eks.plan.rules.isolation import BOUNDED, POD_FIELDS
from trainium_eks.plan.rules.load import COUNTED

Change = Callable[[Program], Any]


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
    network = {"subnetIds": ["subnet-private-az4", "subnet-private-az1"], "endpointPrivateAccess": True}
    return put("cluster", "vpcConfig", {**network, "endpointPublicAccess": True, "publicAccessCidrs": list(ranges)})


private_endpoint = both(
    put("cluster", "vpcConfig.endpointPublicAccess", False), put("cluster", "vpcConfig.publicAccessCidrs", DROP)
)


def without_lnet(program: Program) -> None:
    for name in ("base-template", "block-template"):
        program.put(name, "userData", user_data("LimitMEMLOCK=infinity"))


def unseen_gpus(program: Program) -> None:
    node_group(program, "gpu", "p5.48xlarge", ami="AL2023_x86_64_NVIDIA", efa=32)
    program.put("eks-node-monitoring-agent", "configurationValues", DROP)


def ssh(program: Program) -> None:
    inputs = {"securityGroupId": "sg-efa", "cidrIpv4": "10.0.0.0/8", "ipProtocol": "tcp", "fromPort": 22, "toPort": 22}
    type_ = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
    program.add("ssh", type_, {**inputs, "description": "from the office"})


def inline_policy(name: str, role: str, *actions: str) -> Change:
    statement = {"Effect": "Allow", "Action": list(actions), "Resource": "*"}
    return lambda program: program.add(
        name, "aws:iam/rolePolicy:RolePolicy", {"role": role, "policy": policy(statement)}
    )


def privileged(program: Program) -> None:
    program.put("setup", "spec.template.spec.containers.0.securityContext", {"privileged": True})


def image(name: str) -> Change:
    return put("setup", "spec.template.spec.containers.0.image", name)


def second_of(first: str, second: str, **change: Any) -> Change:
    def add(program: Program) -> None:
        original = program[first]
        program.add(second, original.type, {**original.inputs, **change})

    return add


def p5_without_plugin(program: Program) -> None:
    node_group(program, "gpu", "p5.48xlarge", ami="AL2023_x86_64_NVIDIA", efa=32)


def p5_whose_runtime_takes_no_mounts(program: Program) -> None:
    p5_without_plugin(program)
    amounts = program["aws-efa-k8s-device-plugin"].inputs["values"]["resources"]
    given = {"deviceListStrategy": "volume-mounts", "resources": amounts}
    release(program, "nvidia-device-plugin", "kube-system", given, "0.19.3")


def values(chart: str, path: str, value: Any) -> Change:
    return put(chart, f"values.{path}", value)


def lustre_port(way: str, end: str, port: int) -> Change:
    """Another range, without EFA's rule that lets everything through."""
    return both(put(f"lustre-sg-lustre-{way}-1018", end, port), drop(f"lustre-efa-{way}"))


def mounts(directory: str) -> Change:
    return put("volume", "spec.csi.volumeAttributes.mountname", directory)


def default_provider(program: Program) -> None:
    program["bucket"].provider = "urn:pulumi:test::trainium-eks::pulumi:providers:aws::default_7_0_0"


def late_rules(program: Program) -> None:
    program["file-system"].dependencies = []


def strange_origin(program: Program) -> None:
    program["k8s"].property_dependencies = {"kubeconfig": (program["base"].urn,)}


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


AUTOSCALER_TAGS = "k8s.io/cluster-autoscaler/enabled"


def pool_type(pool: str, type_: str) -> Change:
    return put(f"pool-{pool}", "spec.template.spec.requirements.0.values", [type_])


def serves_the_system_nodes(program: Program) -> None:
    """Cluster Autoscaler finds the CPU group `system`, too; its size is left alone."""
    program["system"].options["ignore_changes"] = ("scalingConfig.desiredSize",)
    tag = {"key": "served", "value": "trn-1", "propagateAtLaunch": False}
    program.add(
        "tag-system",
        "aws:autoscaling/tag:Tag",
        {"autoscalingGroupName": "eks-system-0123", "tag": tag},
        property_dependencies={"autoscalingGroupName": (program["system"].urn,)},
    )


def scaling_policy(**change: Any) -> Change:
    """A change of the only statement of Cluster Autoscaler's policy."""

    def changed(program: Program) -> None:
        [statement] = json.loads(program["autoscaler-policy"].inputs["policy"])["Statement"]
        found = {key: value for key, value in {**statement, **change}.items() if value is not DROP}
        program.edit("autoscaler-policy", "policy", {"Statement": [found]})

    return changed


LOG_TYPES = ("api", "audit", "authenticator", "controllerManager", "scheduler")
SWITCHES = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
EVENTS = ("NEW", "CHANGED", "DELETED")
TAGS = ("Owner", "CostCenter", "Environment")


def all_but(every: tuple[str, ...], one: str) -> list[str]:
    return [each for each in every if each != one]


def tags_without(one: str) -> str:
    return json.dumps({"tags": dict.fromkeys(all_but(TAGS, one), "x")})


OPEN_POLICY = policy(allow("*", "s3:GetObject"))
OFF = {"enabled": False}

CLUSTER = [
    *(
        fault("R01", f"no {each} log", each, put("cluster", "enabledClusterLogTypes", all_but(LOG_TYPES, each)))
        for each in LOG_TYPES
    ),
    fault("R02", "every address reaches the endpoint", "0.0.0.0/0", open_endpoint("0.0.0.0/0"), "R03"),
    fault("R02", "every IPv6 address does", "::/0", open_endpoint("203.0.113.0/24", "::/0"), "R03"),
    fault("R02", "the endpoint is public and unlimited", "publicAccessCidrs", open_endpoint(), "R03"),
    fault(
        "R91",
        "a VPC of its own and no public endpoint",
        "made by this program",
        private_endpoint,
    ),
    fault("R91", "nobody is let in", "opens port 443", private_endpoint),
    fault(
        "R03", "the private endpoint is off", "PrivateAccess", put("cluster", "vpcConfig.endpointPrivateAccess", False)
    ),
    fault(
        "R04",
        "secrets have no key",
        "a KMS key",
        both(put("cluster", "encryptionConfig", DROP), put("eks", "encryptionConfigKeyArn", DROP)),
    ),
    fault("R04", "the key is for nothing", "resources", put("cluster", "encryptionConfig.resources", [])),
    fault("R05", "support ended", "1.33", put("cluster", "version", "1.33")),
    fault("R05", "the version is unknown", "0.99", put("cluster", "version", "0.99")),
    fault(
        "R06",
        "EKS does not protect it",
        "deletionProtection",
        both(put("cluster", "deletionProtection", False), put("eks", "deletionProtection", False)),
    ),
    fault("R06", "Pulumi does not protect it", "options.protect", option("eks", protect=False)),
    fault("R08", "the log group comes after", "does not depend", lambda program: program["eks"].dependencies.clear()),
    fault("R08", "EKS makes the log group", "wanted one", put("cluster-logs", "name", "/aws/eks/other/cluster")),
    fault("R08", "logs go after a month", "retentionInDays", put("cluster-logs", "retentionInDays", 30)),
    fault("R08", "logs have no key", "kmsKeyId", put("flow-logs", "kmsKeyId", DROP)),
    fault(
        "R09",
        "the support policy is left to AWS",
        "supportType",
        both(put("cluster", "upgradePolicy", DROP), put("eks", "upgradePolicy", DROP)),
    ),
    fault("R10", "one zone", "two zones", put("cluster", "vpcConfig.subnetIds", ["subnet-private-az4"])),
    fault(
        "R10",
        "a subnet nobody knows",
        "subnet-x",
        put("cluster", "vpcConfig.subnetIds", ["subnet-private-az4", "subnet-x"]),
    ),
    fault(
        "R10",
        "a public subnet",
        "internet",
        put("cluster", "vpcConfig.subnetIds", ["subnet-private-az4", "subnet-public-az1"]),
    ),
    fault("R10", "a tiny subnet", "/28", put("private-az1", "cidrBlock", "10.0.64.0/28"), "R37"),
    fault("R10", "public subnets besides", "publicSubnetIds", put("eks", "publicSubnetIds", ["subnet-public-az1"])),
    fault("R11", "the key does not rotate", "enableKeyRotation", put("key", "enableKeyRotation", False)),
    fault("R11", "the key goes at once", "deletionWindowInDays", put("key", "deletionWindowInDays", 1)),
    fault("R11", "the key has no policy", "policy is unset", drop("key-policy")),
    fault(
        "R11", "everybody may use it", "Principal", put("key-policy", "policy", policy(allow({"AWS": "*"}, "kms:*")))
    ),
    fault("R11", "the policy is no policy", "names its users", put("key-policy", "policy", "{")),
    fault("R11", "the key is off", "isEnabled", put("key", "isEnabled", False)),
]

NODES = [
    fault("R12", "IMDSv1 works", "httpTokens", put("base-template", "metadataOptions.httpTokens", "optional")),
    fault("R13", "two hops", "HopLimit", put("base-template", "metadataOptions.httpPutResponseHopLimit", 2)),
    fault("R14", "a key pair", "keyName", put("base-template", "keyName", "laptop")),
    fault("R14", "remote access", "remoteAccess", put("system", "remoteAccess", {"ec2SshKey": "laptop"})),
    fault("R14", "port 22", "22", ssh),
    fault(
        "R15",
        "a public address",
        "associatePublicIpAddress",
        put("base-template", "networkInterfaces.0.associatePublicIpAddress", "true"),
    ),
    fault(
        "R15", "a private subnet gives public addresses", "mapPublicIp", put("private-az4", "mapPublicIpOnLaunch", True)
    ),
    fault(
        "R15",
        "a private subnet without nodes does",
        "mapPublicIp",
        both(put("private-az1", "mapPublicIpOnLaunch", True), put("system", "subnetIds", ["subnet-private-az4"])),
    ),
    fault(
        "R15",
        "a public subnet of nodes gives public addresses",
        "mapPublicIp",
        both(put("public-az4", "mapPublicIpOnLaunch", True), put("system", "subnetIds", ["subnet-public-az4"])),
        "R36",
        "R37",
        "R41",
    ),
    fault(
        "R16", "a plain root volume", "encrypted", put("base-template", "blockDeviceMappings.0.ebs.encrypted", "false")
    ),
    fault("R16", "gp2", "volumeType", put("base-template", "blockDeviceMappings.0.ebs.volumeType", "gp2")),
    fault("R16", "no own key", "kmsKeyId", put("base-template", "blockDeviceMappings.0.ebs.kmsKeyId", DROP)),
    fault("R16", "the AMI's volume", "blockDeviceMappings", put("base-template", "blockDeviceMappings", DROP)),
    fault("R16", "plain EBS claims", "parameters.encrypted", put("gp3", "parameters.encrypted", "false")),
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
    fault("R17", "a secret", "secret", put("base-template", "userData", "[secret]"), "R69"),
    fault(
        "R18",
        "nodes may do anything",
        "AdministratorAccess",
        put("AmazonEKSWorkerNodePolicy", "policyArn", "arn:aws:iam::aws:policy/AdministratorAccess"),
        "R73",
    ),
    fault("R18", "nodes cannot pull", "wanted", drop("AmazonEC2ContainerRegistryPullOnly")),
    fault("R18", "an inline policy", "inline", inline_policy("extra", "node", "s3:GetObject")),
    fault("R18", "a policy of every action", "Action", inline_policy("extra", "team", "*"), "R73", "R79"),
    fault("R18", "a role from elsewhere", "unseen", put("system", "nodeRoleArn", "arn:elsewhere")),
    fault("R18", "the CNI has no policy", "AmazonEKS_CNI_Policy", drop("cni-policy")),
    fault("R19", "no repair", "nodeRepairConfig", put("system", "nodeRepairConfig", DROP)),
    fault("R19", "no agent", "eks-node-monitoring-agent", drop("eks-node-monitoring-agent")),
    fault(
        "R19",
        "an agent that cannot see GPUs",
        "dcgmAgent.tolerations for nvidia.com/gpu:NO_SCHEDULE",
        unseen_gpus,
        "R62",
    ),
    fault("R69", "no script", "LimitMEMLOCK", put("base-template", "userData", DROP)),
    fault("R69", "another limit", "LimitMEMLOCK", put("base-template", "userData", user_data("LimitMEMLOCK=64K"))),
    fault("R20", "EKS' own update", "maxUnavailable", put("system", "updateConfig", DROP)),
    fault("R20", "everything at once", "101", put("system", "updateConfig", {"maxUnavailable": 101})),
    fault("R20", "a block that surges", "MINIMAL", put("block", "updateConfig", {"maxUnavailable": 1})),
    fault("R21", "an up sets the size back", "ignoreChanges", option("base", ignore_changes=())),
    fault(
        "R21",
        "Cluster Autoscaler looks for EKS' own tags, which every group has",
        "ignoreChanges",
        both(option("base", ignore_changes=()), values("cluster-autoscaler", "autoDiscovery.tags", [AUTOSCALER_TAGS])),
        "R80",
        "R81",
    ),
    fault("R22", "no taint", "taints", put("base", "taints", []), "R94"),
    fault("R22", "another effect", "NO_SCHEDULE", put("base", "taints.0.effect", "PREFER_NO_SCHEDULE")),
    fault("R22", "no label", "labels", put("base", "labels", {"trainium-eks/pool": "base"})),
    fault("R23", "the standard AMI", "AL2023_x86_64_NEURON", put("base", "amiType", "AL2023_x86_64_STANDARD")),
    fault("R23", "AL2", "AL2_x86_64", put("system", "amiType", "AL2_x86_64")),
    fault("R23", "a type nobody knows", "trn9", put("system", "instanceTypes", ["trn9.large"]), "R37", "R72"),
    fault("R30", "the latest version", "$Latest", put("base", "launchTemplate.version", "$Latest")),
    fault("R30", "no version", "unset", put("base", "launchTemplate.version", DROP)),
    fault("R30", "a fixed name", "nodeGroupName", put("base", "nodeGroupName", "base")),
]

EFA = [
    fault(
        "R24",
        "four interfaces",
        "has 4",
        lambda program: program.put(
            "base-template", "networkInterfaces", program["base-template"].inputs["networkInterfaces"][:4]
        ),
    ),
    fault(
        "R24", "efa-only comes first", "efa-only", put("base-template", "networkInterfaces.0.interfaceType", "efa-only")
    ),
    fault("R24", "two on a card", "one a card", put("base-template", "networkInterfaces.2.networkCardIndex", 1)),
    fault(
        "R24", "a card that is not there", "card 11", put("base-template", "networkInterfaces.7.networkCardIndex", 11)
    ),
    fault("R24", "no first interface", "deviceIndex 0", put("base-template", "networkInterfaces.0.deviceIndex", 1)),
    fault("R25", "no way out to itself", "outbound", drop("efa-egress")),
    fault("R25", "no way in from itself", "inbound", drop("efa-ingress")),
    fault("R25", "a rule for whom", "description", put("efa-egress", "description", DROP)),
    fault(
        "R25",
        "everybody comes in",
        "0.0.0.0/0",
        second_of("efa-ingress", "open", cidrIpv4="0.0.0.0/0", referencedSecurityGroupId=None),
    ),
    fault(
        "R25",
        "no group at all",
        "securityGroups",
        lambda program: [each.pop("securityGroups") for each in program["base-template"].inputs["networkInterfaces"]],
    ),
    fault(
        "R26",
        "two zones",
        "one subnet",
        put("base", "subnetIds", ["subnet-private-az4", "subnet-private-az1"]),
        "R27",
        "R92",
    ),
    fault(
        "R27", "a block in our group", "placement", put("block-template", "placement", {"groupName": "sim-placement"})
    ),
    fault("R27", "Spot in a group", "placement", put("base", "capacityType", "SPOT"), "R29"),
    fault(
        "R27",
        "a reservation in our group",
        "reservation",
        both(
            put(
                "base-template",
                "capacityReservationSpecification",
                {"capacityReservationTarget": {"capacityReservationId": "cr-1"}},
            ),
            put("base", "updateConfig.updateStrategy", "MINIMAL"),
        ),
    ),
    fault("R28", "no market type", "marketType", put("block-template", "instanceMarketOptions", DROP)),
    fault("R28", "no capacity type", "CAPACITY_BLOCK", put("block", "capacityType", "ON_DEMAND")),
    fault(
        "R28",
        "no reservation",
        "capacityReservationId",
        put("block-template", "capacityReservationSpecification", DROP),
    ),
    fault("R28", "the type in the wrong place", "instanceTypes", put("block", "instanceTypes", ["trn1.32xlarge"])),
    fault("R28", "another zone", "usw2-az1", put("block", "subnetIds", ["subnet-private-az1"])),
    fault(
        "R29",
        "a gang on Spot",
        "SPOT",
        both(put("base", "capacityType", "SPOT"), put("base-template", "placement", DROP)),
    ),
]

NETWORK = [
    fault("R31", "no flow logs", "FlowLog", drop("flow-log")),
    fault("R32", "the default group is left", "DefaultSecurityGroup", drop("default-group")),
    fault("R32", "the default group lets out", "egress", put("default-group", "egress", [{"protocol": "-1"}])),
    fault("R32", "the default group lets in", "ingress", put("default-group", "ingress", [{"protocol": "-1"}])),
    fault("R33", "no host names", "enableDnsHostnames", put("vpc", "enableDnsHostnames", DROP)),
    fault("R33", "no DNS", "enableDnsSupport", put("vpc", "enableDnsSupport", False)),
    fault("R34", "one NAT", "usw2-az1", drop("nat-az1")),
    fault("R35", "no S3 endpoint", "Gateway", drop("s3-endpoint")),
    fault("R35", "an interface endpoint", "Gateway", put("s3-endpoint", "vpcEndpointType", "Interface")),
    fault("R35", "an endpoint nobody routes to", "routeTableIds", put("s3-endpoint", "routeTableIds", [])),
    fault("R36", "a private subnet without role", "internal-elb", put("private-az4", "tags", {})),
    fault(
        "R36",
        "Karpenter on a public subnet",
        "karpenter",
        put("public-az4", "tags", {"kubernetes.io/role/elb": "1", "karpenter.sh/discovery": "trn"}),
    ),
    fault(
        "R37",
        "services overlap the VPC",
        "service range",
        put("cluster", "kubernetesNetworkConfig.serviceIpv4Cidr", "10.0.128.0/18"),
    ),
    fault(
        "R37",
        "a peer overlaps",
        "peer",
        lambda program: program.config["network"].update(peerCidrBlocks=["10.0.0.0/8"]),
    ),
    fault("R37", "subnets overlap", "overlaps", put("public-az4", "cidrBlock", "10.0.0.0/20")),
    fault("R37", "a subnet outside", "outside", put("public-az4", "cidrBlock", "10.1.0.0/20")),
    fault("R37", "Karpenter's nodes take them", "pool-small", put("pool-small", "spec.limits.cpu", "16000"), "R72"),
    fault("R37", "more nodes than addresses", "addresses", put("base", "scalingConfig.maxSize", 2000), "R72", "R80"),
]

STORAGE = [
    fault("R38", "no key", "kmsKeyId", put("file-system", "kmsKeyId", DROP)),
    fault(
        "R39",
        "deletions are not exported",
        "DELETED",
        put("link", "s3.autoExportPolicy", {"events": ["NEW", "CHANGED"]}),
    ),
    *(
        fault("R39", f"{each} is not in {policy}", each, put("link", f"s3.{policy}", {"events": all_but(EVENTS, each)}))
        for policy in ("autoImportPolicy", "autoExportPolicy")
        for each in EVENTS
    ),
    fault("R39", "nothing is imported", "autoImportPolicy", put("link", "s3.autoImportPolicy", DROP)),
    fault(
        "R39",
        "backups and a link",
        "automaticBackupRetentionDays",
        put("file-system", "automaticBackupRetentionDays", 7),
    ),
    fault("R39", "neither backups nor a link", "automaticBackupRetentionDays", drop("link")),
    fault(
        "R39",
        "no last backup",
        "skipFinalBackup",
        both(drop("link"), put("file-system", "automaticBackupRetentionDays", 7)),
    ),
    fault(
        "R39",
        "a last backup is not mentioned",
        "skipFinalBackup",
        both(
            drop("link"),
            put("file-system", "automaticBackupRetentionDays", 7),
            put("file-system", "skipFinalBackup", DROP),
        ),
    ),
    fault("R39", "production may delete it", "protect", option("file-system", protect=False)),
    fault(
        "R39",
        "the bucket goes with the stack",
        "bucket",
        option("bucket", protect=False, retain_on_delete=False),
        "R50",
        beyond_pack=True,
    ),
    fault(
        "R39", "scratch in production", "PERSISTENT_2", put("file-system", "deploymentType", "SCRATCH_2"), "R40", "R43"
    ),
    fault("R40", "an odd size", "storageCapacity", put("file-system", "storageCapacity", 1300)),
    fault("R40", "a step too small for EFA", "9600", put("file-system", "storageCapacity", 4800)),
    fault("R40", "an odd throughput", "200", put("file-system", "perUnitStorageThroughput", 200), "R72"),
    fault("R40", "odd metadata IOPS", "iops", put("file-system", "metadataConfiguration.iops", 5000)),
    fault("R41", "the other zone", "usw2-az1", put("file-system", "subnetIds", "subnet-private-az1")),
    fault("R42", "988 alone", "1018", drop("lustre-sg-lustre-ingress-1018", "lustre-efa-ingress"), "R43"),
    fault("R42", "the last port", "1023", lustre_port("ingress", "toPort", 1022), "R43"),
    fault("R42", "the first of the others", "1018", lustre_port("egress", "fromPort", 1019), "R43"),
    fault("R42", "no way back to clients", "sg-cluster", drop("lustre-sg-cluster-egress-988")),
    fault("R42", "the rules come after", "does not depend", late_rules),
    fault("R42", "no group", "securityGroupIds", put("file-system", "securityGroupIds", []), "R43"),
    fault(
        "R42",
        "no client comes in",
        "nodes",
        drop(*(f"lustre-sg-cluster-{way}-{port}" for way in ("ingress", "egress") for port in (988, 1018))),
    ),
    fault(
        "R43", "no metadata configuration", "metadataConfiguration", put("file-system", "metadataConfiguration", DROP)
    ),
    fault("R43", "no node that uses it", "lnetctl net add --net efa", without_lnet),
    fault("R43", "no EFA within the group", "EFA", drop("lustre-efa-egress")),
    fault("R44", "no logs", "logConfiguration", put("file-system", "logConfiguration", DROP)),
    fault(
        "R45", "the volume goes with its claim", "Retain", put("volume", "spec.persistentVolumeReclaimPolicy", "Delete")
    ),
    fault("R68", "the whole file system", "is the whole file system", mounts("abcde")),
    fault("R68", "a part of another team's", "is within what volume-vision mounts too", mounts("abcde/vision/in")),
    fault("R68", "another team's", "is within what volume-vision mounts too", mounts("abcde/vision")),
    fault(
        "R68",
        "one user for two teams",
        "user 1000 is also that of vision",
        lambda program: program.config.update(namespaces=[{"name": "training"}, {"name": "vision"}]),
    ),
    fault("R46", "no block", "BucketPublicAccessBlock", drop("access-block")),
    *(fault("R46", f"{each} is off", each, put("access-block", each, False)) for each in SWITCHES),
    fault(
        "R47",
        "S3's own key",
        "sseAlgorithm",
        put("encryption", "rules.0.applyServerSideEncryptionByDefault.sseAlgorithm", "AES256"),
    ),
    fault("R47", "no bucket key", "bucketKeyEnabled", put("encryption", "rules.0.bucketKeyEnabled", DROP)),
    fault("R47", "no encryption", "SSE-KMS", drop("encryption")),
    fault("R48", "no versions", "Suspended", put("versioning", "versioningConfiguration.status", "Suspended")),
    fault("R48", "no lifecycle", "BucketLifecycleConfiguration", drop("lifecycle")),
    fault("R48", "a lifecycle that is off", "enabled", put("lifecycle", "rules.0.status", "Disabled")),
    fault("R49", "plain HTTP", "SecureTransport", drop("bucket-policy")),
    fault(
        "R49",
        "plain HTTP is denied to one role alone",
        "for everybody",
        put(
            "bucket-policy",
            "policy",
            policy(
                {
                    "Effect": "Deny",
                    "Principal": {"AWS": "arn:aws:iam::123456789012:role/one"},
                    "Action": "s3:*",
                    "Resource": "arn:aws:s3:::sim-data/*",
                    "Condition": {"Bool": {"aws:SecureTransport": "false"}},
                }
            ),
        ),
    ),
    fault("R49", "everybody reads", "Principal", put("bucket-policy", "policy", OPEN_POLICY)),
    fault("R50", "destroy empties it", "forceDestroy", put("bucket", "forceDestroy", True)),
    fault("R50", "production may delete it", "protect", option("bucket", protect=False)),
]

KUBERNETES = [
    fault("R51", "no label", "enforce", put("namespace-training", "metadata.labels", DROP)),
    fault("R51", "Helm makes the namespace", "createNamespace", put("volcano", "createNamespace", True)),
    fault("R52", "a privileged job", "privileged", privileged),
    fault("R52", "the host's processes", "hostPID", put("setup", "spec.template.spec.hostPID", True), "R76"),
    fault(
        "R52",
        "all capabilities",
        "SYS_ADMIN",
        put("setup", "spec.template.spec.containers.0.securityContext", {"capabilities": {"add": ["SYS_ADMIN"]}}),
    ),
    fault(
        "R52", "a chart that asks for it", "privileged", values("volcano", "custom.scheduler_sc", {"privileged": True})
    ),
    fault("R53", "latest", "latest", image("busybox:latest")),
    fault("R53", "no tag", "busybox", image("registry:5000/busybox")),
    fault("R53", "a tag in production", "digest", image("busybox:1.37.0")),
    fault("R53", "a range of charts", "version", put("volcano", "version", "^1.15")),
    fault("R53", "Volcano's own tag", "image_tag_version", values("volcano", "basic", {})),
    fault("R53", "a floating tag in values", "latest", values("torchx-etcd", "image", "quay.io/coreos/etcd:latest")),
    fault("R53", "any add-on version", "addonVersion", put("coredns", "addonVersion", DROP)),
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
    fault(
        "R54",
        "no limit",
        "limits.memory",
        put("setup", "spec.template.spec.containers.0.resources", {"requests": {"cpu": 1, "memory": "1Gi"}}),
    ),
    fault("R54", "a chart without any", "resources", values("aws-efa-k8s-device-plugin", "resources", DROP)),
    fault(
        "R54",
        "a chart without a limit",
        "limits.memory",
        values("volcano", "custom.scheduler_resources", {"requests": {"cpu": 1, "memory": "1Gi"}}),
    ),
    fault("R55", "every verb", "verbs", put("researchers", "rules.0.verbs", ["*"])),
    fault("R55", "cluster-admin", "cluster-admin", put("researchers-binding", "roleRef.name", "cluster-admin")),
    fault(
        "R55",
        "everybody",
        "system:authenticated",
        put("researchers-binding", "subjects", [{"kind": "Group", "name": "system:authenticated"}]),
    ),
    fault("R55", "an account with a token", "automount", put("account", "automountServiceAccountToken", DROP)),
    fault(
        "R55", "a pod with a token", "automount", put("setup", "spec.template.spec.automountServiceAccountToken", DROP)
    ),
    fault("R56", "nothing denied", "default deny", drop("deny", "within")),
    fault(
        "R56",
        "egress is open",
        "Egress",
        both(put("deny", "spec.policyTypes", ["Ingress"]), put("within", "spec.policyTypes", ["Ingress"])),
    ),
    fault("R56", "workers cannot meet", "own pods", drop("within")),
    fault(
        "R56",
        "everything allowed",
        "everything",
        put("within", "spec.ingress", [{}, {"from": [{"podSelector": {}}]}]),
        "R76",
    ),
    fault(
        "R56",
        "not enforced",
        "enableNetworkPolicy",
        document("vpc-cni", "configurationValues", enableNetworkPolicy="false"),
    ),
    fault("R56", "another team's namespace", "lustre-setup", tenant_by_quota, "R71", "R78"),
    fault(
        "R57",
        "trusts EC2 too",
        "trusts",
        put("team-role", "assumeRolePolicy", trust("ec2.amazonaws.com", "sts:AssumeRole", "sts:TagSession")),
    ),
    fault(
        "R57", "no session tags", "TagSession", put("team-role", "assumeRolePolicy", trust("pods.eks.amazonaws.com"))
    ),
    fault("R57", "everybody", '"*"', put("node-role", "assumeRolePolicy", policy(allow("*", "sts:AssumeRole"))), "R73"),
    fault(
        "R57",
        "the FSx driver has the node's role",
        "podIdentityAssociations",
        put("aws-fsx-csi-driver", "podIdentityAssociations", DROP),
    ),
    fault(
        "R57", "a role by OIDC", "serviceAccountRoleArn", put("aws-fsx-csi-driver", "serviceAccountRoleArn", "arn:irsa")
    ),
    fault("R57", "a shared role", "role each", second_of("team-identity", "other-identity", serviceAccount="other")),
    fault("R57", "a role from elsewhere", "unseen", put("team-identity", "roleArn", "arn:elsewhere")),
    fault("R57", "too many", "1000", many_identities),
]

SCHEDULING = [
    fault("R58", "one scheduler", "scheduler_replicas", values("volcano", "custom.scheduler_replicas", 1)),
    fault("R58", "no leader", "leader_elect", values("volcano", "custom.leader_elect_enable", False)),
    fault("R58", "no budget", "volcano-admission", drop("pdb-admission")),
    fault("R59", "more than the pool", "144", put("queue-a", "spec.capability", {"aws.amazon.com/neuron": 256})),
    fault("R59", "a device nobody has", "nvidia.com/gpu", put("queue-a", "spec.capability", {"nvidia.com/gpu": 8})),
    fault(
        "R59", "deserves more than it may", "deserved", put("queue-a", "spec.deserved", {"aws.amazon.com/neuron": 129})
    ),
    fault(
        "R59",
        "guarantees above deserved",
        "guarantee",
        put("queue-a", "spec.guarantee.resource", {"aws.amazon.com/neuron": 65}),
    ),
    fault(
        "R59",
        "guarantees above the pool",
        "all queues",
        lambda program: [
            program.put(f"queue-{name}", "spec.guarantee.resource", {"aws.amazon.com/neuron": "128"})
            or program.put(f"queue-{name}", "spec.deserved", {})
            for name in "ab"
        ],
    ),
    fault("R59", "Volcano's own queue", "default", put("queue-a", "metadata.name", "default")),
    fault("R59", "no amount", "amount", put("queue-a", "spec.capability", {"cpu": "many"})),
    fault(
        "R60",
        "enqueue",
        "enqueue",
        values(
            "volcano",
            "custom.scheduler_config_override",
            "actions: enqueue, allocate\ntiers: [{plugins: [{name: overcommit}, {name: resourcequota}]}]",
        ),
    ),
    fault(
        "R60",
        "the chart's own configuration",
        "unset",
        values("volcano", "custom.scheduler_config_override", DROP),
        "R89",
    ),
    fault(
        "R93",
        "discovery by label",
        "networkTopologyDiscovery",
        values(
            "volcano",
            "custom.controller_config_override",
            {"networkTopologyDiscovery": [{"source": "label", "enabled": True}]},
        ),
    ),
    fault(
        "R93",
        "discovery by label, as text",
        "networkTopologyDiscovery",
        values("volcano", "custom.controller_config_override", "networkTopologyDiscovery:\n- source: label\n"),
    ),
    fault("R94", "no gate", "no gate knows", drop("gate")),
    fault("R94", "a gate of other pools", "no gate knows", put("gate", "spec.template.spec.containers", [])),
    fault("R94", "a pool that joins open", "lacks", put("pool-trn1n", "spec.template.spec.startupTaints", [])),
    fault(
        "R94",
        "a lasting taint of Karpenter's",
        "startupTaints",
        put(
            "pool-trn1n",
            "spec.template.spec.taints",
            [{"key": key, "effect": "NoSchedule"} for key in ("aws.amazon.com/neuron", "trainium-eks/fabric-untested")],
        ),
    ),
    fault("R61", "outside the cluster", "LoadBalancer", values("torchx-etcd", "service", {"type": "LoadBalancer"})),
    fault("R61", "no policy", "networkPolicy", values("torchx-etcd", "networkPolicy", OFF)),
    fault("R61", "a bare etcd", "NodePort", tokens),
    fault(
        "R62", "a type is missing", "trn1.32xlarge", values("neuron-helm-chart", "neuronInstances", ["trn1n.32xlarge"])
    ),
    fault(
        "R62",
        "the type of Karpenter's pool is missing",
        "trn1n.32xlarge",
        values("neuron-helm-chart", "neuronInstances", ["trn1.32xlarge"]),
    ),
    fault(
        "R62",
        "the EFA list is the chart's",
        "trn1.32xlarge",
        values("aws-efa-k8s-device-plugin", "supportedInstanceLabels", DROP),
    ),
    fault(
        "R62",
        "the taint is not tolerated",
        "aws.amazon.com/neuron",
        values("aws-efa-k8s-device-plugin", "tolerations", []),
    ),
    fault("R62", "no plugin at all", "neuron-helm-chart", drop("neuron-helm-chart")),
    fault("R62", "a GPU group without a plugin", "nvidia-device-plugin", p5_without_plugin),
    fault("R62", "a runtime that takes no mounts", "volume-mounts", p5_whose_runtime_takes_no_mounts),
    fault("R63", "two hands", "nodeRecovery", values("neuron-helm-chart", "npd", {"nodeRecovery": {"enabled": True}})),
    fault("R63", "no hand", "no node recovery", put("base", "nodeRepairConfig.enabled", False), "R19"),
]

FSX_CLASS = {"metadata": {"name": "fsx"}, "provisioner": "fsx.csi.aws.com"}


def on_creation_alone(program: Program) -> None:
    rules = program["guard-pods"].inputs["spec"]["matchConstraints"]["resourceRules"]
    rules[0]["operations"] = ["CREATE"]


def two_of_one_kind(program: Program) -> None:
    metadata = {"metadata": {"name": "team", "namespace": "training"}}
    for name in ("mine", "theirs"):
        program.add(name, "kubernetes:core/v1:ConfigMap", copy.deepcopy(metadata))


NOBODY = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "nobody"}}}


def asked_when(expression: str) -> Change:
    """A condition of the policy of pods."""
    return put("guard-pods", "spec.matchConditions", [{"name": "judged", "expression": expression}])


BOUNDS = {"requests.cpu": "500", "requests.memory": "1Ti", "requests.storage": "1Ti"}

ISOLATION = [
    fault("R70", "two config maps of one name", "ConfigMap training/team is mine", two_of_one_kind),
    fault("R70", "two releases of one name", "Release", second_of("volcano", "again", name="volcano")),
    fault("R71", "no policy of pods", "CREATE and UPDATE of pods", drop("guard-pods")),
    fault("R71", "no binding of commands", "commands.bus.volcano.sh", drop("bound-commands")),
    fault("R71", "a policy that warns", "volumeClaim of jobs", put("bound-jobs", "spec.validationActions", ["Warn"])),
    fault("R71", "a policy that fails open", "podgroups", put("guard-groups", "spec.failurePolicy", "Ignore")),
    fault("R71", "new pods alone", "UPDATE of pods", on_creation_alone),
    fault(
        "R71",
        "another namespace's policy",
        "UPDATE of pods",
        put("bound-pods", "spec.matchResources.namespaceSelector.matchLabels", {"kubernetes.io/metadata.name": "x"}),
    ),
    fault(
        "R71",
        "some pods alone",
        "UPDATE of pods",
        put("bound-pods", "spec.matchResources.objectSelector", {"matchLabels": {"a": "b"}}),
    ),
    *(
        fault(
            "R71",
            f"{field} is not judged",
            field,
            put(
                "guard-pods",
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
        lambda each: each["researchers-binding"].dependencies.clear(),
    ),
    fault("R71", "no quota", "requests.memory", drop("quota")),
    fault("R71", "the quota of another cluster", "requests.memory", of_another_cluster("quota")),
    *(
        fault(
            "R71",
            f"{name} has no bound",
            name,
            put("quota", "spec.hard", {each: "1" for each in (*BOUNDED, COUNTED) if each != name}),
        )
        for name in BOUNDED
    ),
    fault(
        "R71",
        "file systems without a bound",
        "fsx.storageclass",
        lambda each: each.add("fsx-class", "kubernetes:storage.k8s.io/v1:StorageClass", FSX_CLASS),
        "R45",
    ),
    fault(
        "R71",
        "a role that makes claims",
        "persistentvolumeclaims",
        put(
            "researchers",
            "rules",
            [{"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["get", "create"]}],
        ),
        "R78",
    ),
    fault("R71", "a class that preempts", "preemptionPolicy", put("high", "preemptionPolicy", DROP)),
    fault("R71", "a class for all", "globalDefault", put("high", "globalDefault", True)),
    fault("R78", "no policy of jobs", "CREATE and UPDATE of jobs.batch", drop("guard-batch")),
    fault("R78", "no binding of deployments", "deployments.apps", drop("bound-deployments")),
    fault("R78", "a policy of services that warns", "of services", put("bound-services", "spec.validationActions", [])),
    fault("R78", "a policy of jobs that fails open", "jobs.batch", put("guard-batch", "spec.failurePolicy", "Ignore")),
    fault(
        "R78",
        "services of any address",
        "externalIPs of services",
        put("guard-services", "spec.validations", [{"expression": "has(object.spec)"}]),
    ),
    fault(
        "R78", "a policy for no namespace", "deployments.apps", put("bound-deployments", "spec.matchResources", NOBODY)
    ),
    *(
        fault("R78", f"no policy of {name}", f"CREATE and UPDATE of {resource}", drop(f"guard-{name}"))
        for name, resource in (
            ("cron", "cronjobs.batch"),
            ("volcano-cron", "cronjobs.batch.volcano.sh"),
            ("flows", "jobflows.flow.volcano.sh"),
            ("pytorch", "pytorchjobs.kubeflow.org"),
            ("train-jobs", "trainjobs.trainer.kubeflow.org"),
            ("runtimes", "trainingruntimes.trainer.kubeflow.org"),
            ("scale", "*/scale"),
        )
    ),
    fault("R78", "no policy of metadata", "annotations, labels of jobs", drop("guard-metadata")),
    fault(
        "R78",
        "a kind that a role writes, with any metadata",
        "CREATE and UPDATE of configmaps",
        put("researchers", "rules", [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]}]),
    ),
    fault("R78", "pods that stay for long", "denies DELETE of pods", drop("guard-deletions")),
    fault("R78", "a condition that is never met", 'is "false"', asked_when("false")),
    fault("R78", "creations that pass", "every creation", asked_when('request.operation == "UPDATE"')),
    fault(
        "R78",
        "some creations that pass",
        "every creation",
        asked_when('request.operation == "CREATE" && object.metadata.name != "x"'),
    ),
    fault(
        "R78",
        "a policy that allows all",
        "guard-services: spec.validations refuses nothing",
        put("guard-services", "spec.validations", [{"expression": "true"}]),
    ),
    fault(
        "R89",
        "pods for all that wait",
        "the action enqueue",
        values("volcano", "custom.scheduler_config_override", "actions: allocate\ntiers: []"),
    ),
    fault("R89", "uncounted jobs", "count/jobs.batch.volcano.sh", put("quota", "spec.hard", {"pods": "500", **BOUNDS})),
]

HYGIENE = [
    fault(
        "R65",
        "the kubeconfig is plain",
        "plain text",
        lambda program: program.outputs.update(kubeconfig=kubeconfig()),
        beyond_pack=True,
    ),
    fault("R65", "a token inside", "token", put("k8s", "kubeconfig", kubeconfig(token="abc"))),
    fault("R65", "no exec", "exec.command", put("k8s", "kubeconfig", kubeconfig(name="x"))),
    fault("R65", "an ambient kubeconfig", "ambient", put("k8s", "kubeconfig", DROP)),
    fault("R65", "it waits for nodes", "base", strange_origin),
    *(fault("R66", f"no {each}", each, put("aws", "defaultTags", tags_without(each))) for each in TAGS),
    fault("R66", "nobody owns it", "Owner", put("aws", "defaultTags", '{"tags": {"CostCenter": "x", "env": "y"}}')),
    fault(
        "R66",
        "untagged volumes",
        "volume",
        put(
            "base-template",
            "tagSpecifications",
            [{"resourceType": "instance", "tags": {"owner": "x", "cost-center": "y", "env": "z"}}],
        ),
    ),
    fault("R67", "any account", "allowedAccountIds", put("aws", "allowedAccountIds", DROP)),
    fault("R67", "an ambient region", "region", put("aws", "region", DROP)),
    fault("R67", "the default provider", "explicit provider", default_provider),
]


def budget(key: str, value: float) -> Change:
    return lambda program: program.config["budget"].update({key: value})


def unpriced(program: Program) -> None:
    program.config["instanceTypes"] = {"m9.xlarge": {"like": "m6i.xlarge"}}
    program.put("system", "instanceTypes", ["m9.xlarge"])


BUDGET = [
    fault("R72", "dearer than the budget", "pulumi config set --path budget.hourlyUsd", budget("hourlyUsd", 12.5)),
    fault("R72", "more nodes than the budget", "the groups grow to", budget("nodes", 3)),
    fault("R72", "no price", "no price is known for m9.xlarge", unpriced),
]


def attached(policy_name: str) -> Change:
    return put("cni-policy", "policyArn", f"arn:aws:iam::aws:policy/{policy_name}")


def team_policy(**statement: Any) -> Change:
    granted = {"Effect": "Allow", "Resource": "*", **statement}
    return put("team-policy", "policy", policy(granted))


def team_trusts(principal: Any) -> Change:
    return put("team-role", "assumeRolePolicy", policy(allow(principal, "sts:AssumeRole")))


def team_rule(resource: str, *verbs: str) -> Change:
    return put("researchers", "rules", [{"apiGroups": [""], "resources": [resource], "verbs": list(verbs)}])


def reads_all_secrets(program: Program) -> None:
    granted = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}]
    program.add("reader", "kubernetes:rbac.authorization.k8s.io/v1:ClusterRole", {"rules": granted})


def setup_pod(path: str, value: Any) -> Change:
    return put("setup", f"spec.template.spec.{path}", value)


def level(home: str, enforce: str) -> Change:
    return put(f"namespace-{home}", "metadata.labels", {"pod-security.kubernetes.io/enforce": enforce})


REACH = [
    fault("R73", "a power user", "PowerUserAccess", attached("PowerUserAccess"), "R18"),
    fault("R73", "a whole service", "AmazonS3FullAccess", attached("AmazonS3FullAccess"), "R18"),
    fault("R73", "all but one action", "NotAction", team_policy(NotAction="iam:DeleteUser")),
    fault("R73", "all of a service", "s3:*", team_policy(Action="s3:*")),
    fault("R73", "every role", "iam:PassRole on every resource", team_policy(Action="iam:PassRole")),
    fault("R73", "every parameter", "ssm:Get* on every resource", team_policy(Action=["ssm:Get*"])),
    fault("R73", "another account", "999988887777", team_trusts({"AWS": "arn:aws:iam::999988887777:root"}), "R57"),
    fault("R73", "everybody", "trusts *", team_trusts("*"), "R57"),
    fault("R74", "another's identity", "impersonate", team_rule("users", "impersonate"), "R71"),
    fault("R74", "tokens", "serviceaccounts/token", team_rule("serviceaccounts/token", "create"), "R71"),
    fault(
        "R74", "any directory of a node", "create on persistentvolumes", team_rule("persistentvolumes", "create"), "R78"
    ),
    fault("R74", "the kubelets", "nodes/proxy", team_rule("nodes/proxy", "get")),
    fault(
        "R74",
        "no more checks",
        "validatingwebhookconfigurations",
        team_rule("validatingwebhookconfigurations", "delete"),
    ),
    fault("R74", "every secret", "secrets of the whole cluster", reads_all_secrets),
    fault("R75", "tags that move", "imageTagMutability", put("images", "imageTagMutability", "MUTABLE")),
    fault("R75", "no scan", "scanOnPush", put("images", "imageScanningConfiguration", DROP)),
    fault("R75", "AWS' key", "customer key", put("images", "encryptionConfigurations", DROP)),
    fault("R75", "they go with it", "forceDelete", put("images", "forceDelete", True)),
    fault("R76", "the host's network", "hostNetwork", setup_pod("hostNetwork", True)),
    fault("R76", "the host's files", "hostPath", setup_pod("volumes", [{"name": "x", "hostPath": {"path": "/"}}])),
    fault(
        "R76",
        "more privileges",
        "allowPrivilegeEscalation",
        setup_pod("containers.0.securityContext", {"allowPrivilegeEscalation": True}),
    ),
    fault("R76", "open to all", "no NetworkPolicy denies traffic in lustre-setup", drop("closed")),
    fault("R76", "lets in everybody", "lets in everybody", put("closed", "spec.ingress", [{}])),
    fault("R76", "a privileged team", "it is a team's", level("training", "privileged"), "R51"),
    fault("R76", "privileged for nothing", "no chart or pod", level("lustre-setup", "privileged"), "R51"),
    fault(
        "R76",
        "privileged for a chart that needs nothing of its host",
        "no chart or pod",
        both(level("lustre-setup", "privileged"), put("volcano", "namespace", "lustre-setup")),
        "R51",
        "R58",
    ),
    fault(
        "R77", "aws-auth", "API_AND_CONFIG_MAP", put("cluster", "accessConfig.authenticationMode", "API_AND_CONFIG_MAP")
    ),
    fault("R77", "masters", "system:masters", put("entry", "kubernetesGroups", ["system:masters"])),
    fault("R77", "everybody", "wanted one principal", put("entry", "principalArn", "*")),
    fault("R31", "refusals are not logged", "trafficType", put("flow-log", "trafficType", "ACCEPT")),
    fault("R46", "a public ACL", "acl is", put("bucket", "acl", "public-read")),
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
    fault("R80", "devices untold", "resources/aws.amazon.com/neuron is unset", drop("tag-neuron")),
    fault("R80", "too many devices", 'wanted "16"', put("tag-neuron", "tag.value", "32")),
    fault("R80", "EFA untold", "vpc.amazonaws.com/efa is unset", drop("tag-efa")),
    fault("R80", "a taint untold", "taint/aws.amazon.com/neuron", drop("tag-taint")),
    fault(
        "R80",
        "ends nodes in use",
        "scaledownutilizationthreshold",
        put("tag-scaledownutilizationthreshold", "tag.value", "0.5"),
    ),
    fault("R80", "DaemonSets count", "ignoredaemonsetsutilization", drop("tag-ignoredaemonsetsutilization")),
    fault("R80", "larger than any gang", "wanted at most 8", put("base", "scalingConfig.maxSize", 9)),
    fault("R80", "no region", "awsRegion", values("cluster-autoscaler", "awsRegion", DROP)),
    fault(
        "R80",
        "moves jobs",
        "jobs of Volcano would be moved",
        values("cluster-autoscaler", "extraArgs", {"skip-nodes-with-custom-controller-pods": "false"}),
    ),
    fault("R81", "a type that a group has", "trn1.32xlarge", pool_type("trn1n", "trn1.32xlarge")),
    fault("R81", "two for CPU pods", "Cluster Autoscaler serves system", serves_the_system_nodes),
    fault("R82", "no limit", "spec.limits", put("pool-small", "spec.limits", DROP)),
    fault("R82", "no taint", "lacks aws.amazon.com/neuron", put("pool-trn1n", "spec.template.spec.taints", DROP)),
    fault(
        "R82",
        "ends nodes in use",
        "WhenEmpty",
        put("pool-trn1n", "spec.disruption.consolidationPolicy", "WhenEmptyOrUnderutilized"),
    ),
    fault("R82", "old nodes go", "expireAfter", put("pool-trn1n", "spec.template.spec.expireAfter", "720h")),
    fault("R82", "a class of others", "nodeClassRef", put("pool-trn1n", "spec.template.spec.nodeClassRef.name", "x")),
    fault(
        "R82", "metadata for pods", "HopLimit", put("class-trn1n", "spec.metadataOptions.httpPutResponseHopLimit", 2)
    ),
    fault(
        "R82", "metadata by no token", "httpTokens", put("class-trn1n", "spec.metadataOptions.httpTokens", "optional")
    ),
    fault(
        "R82", "a drifted node goes", "drifted", put("pool-trn1n", "spec.template.spec.terminationGracePeriod", "1h")
    ),
    fault("R82", "open disks", "encrypted", put("class-trn1n", "spec.blockDeviceMappings.0.ebs.encrypted", False)),
    fault("R82", "AWS' key", "kmsKeyID", put("class-trn1n", "spec.blockDeviceMappings.0.ebs.kmsKeyID", DROP)),
    fault("R82", "the image's own disks", "kmsKeyID", put("class-trn1n", "spec.blockDeviceMappings", DROP)),
    fault(
        "R82",
        "no devices",
        "trn2u",
        put("pool-trn1n", "spec.template.spec.requirements.0.values", ["trn2u.48xlarge"]),
        "R62",  # no plugin's list has the type
    ),
    fault("R82", "any image", "latest", put("class-trn1n", "spec.amiSelectorTerms", [{"alias": "al2023@latest"}])),
    fault("R82", "a public address", "associatePublicIP", put("class-trn1n", "spec.associatePublicIPAddress", DROP)),
    fault("R82", "deaf to interruptions", "interruptionQueue", values("karpenter", "settings", {})),
    fault("R90", "no tag for the EBS driver", "ebs.csi.aws.com/cluster-name", put("class-small", "spec.tags", DROP)),
    fault(
        "R90",
        "another cluster's tag",
        'wanted "trn-1"',
        put("class-small", "spec.tags", {"ebs.csi.aws.com/cluster-name": "trn-2"}),
    ),
]

PROMETHEUS = "kube-prometheus-stack"
SPEC = "values.prometheus.prometheusSpec"
WAYS_IN = "spec.ingress"


def resource_of(name: str, resource: str) -> Change:
    """A policy's one statement on another resource."""
    return lambda program: program.put(
        name, "policy", policy({**json.loads(program[name].inputs["policy"])["Statement"][0], "Resource": resource})
    )


OBSERVABILITY = [
    fault("R83", "AWS' key for metrics", "kmsKeyArn is unset", put("workspace", "kmsKeyArn", DROP)),
    fault("R83", "metrics on a node's disk", "wanted a claim", put(PROMETHEUS, f"{SPEC}.storageSpec", {})),
    fault("R92", "Prometheus in any zone", "nodeSelector is unset", put(PROMETHEUS, f"{SPEC}.nodeSelector", {})),
    fault(
        "R92",
        "nodes of two zones",
        "wanted one zone",
        put(PROMETHEUS, f"{SPEC}.nodeSelector", {"trainium-eks/pool": "system"}),
    ),
    fault(
        "R92",
        "nodes of no group",
        "no managed node group",
        put(PROMETHEUS, f"{SPEC}.nodeSelector", {"trainium-eks/pool": "x"}),
    ),
    fault(
        "R92",
        "Grafana in any zone",
        "values.grafana.nodeSelector",
        values(PROMETHEUS, "grafana", {"persistence": {"enabled": True}, "service": {"type": "ClusterIP"}}),
    ),
    fault("R84", "logs for a week", "30 or more", put("container-logs", "retentionInDays", 7)),
    fault("R84", "logs for an unknown time", "unset", put("container-logs", "retentionInDays", DROP)),
    fault("R84", "AWS' key for logs", "kmsKeyId is unset", put("container-logs", "kmsKeyId", DROP)),
    fault(
        "R84",
        "the shipper first",
        "wanted the group first",
        lambda program: setattr(program["fluent-bit"], "dependencies", []),
    ),
    fault(
        "R84",
        "a group of the shipper's own",
        "auto_create_group on",
        put("fluent-bit", "values.config.outputs", "[OUTPUT]\n  auto_create_group On\n"),
    ),
    fault("R85", "no policy", "wanted one", drop("monitoring-ingress")),
    fault(
        "R85",
        "for some pods",
        "selects all pods",
        put("monitoring-ingress", "spec.podSelector", {"matchLabels": {"a": "b"}}),
    ),
    fault(
        "R85",
        "a port for all",
        "every address on [9090]",
        put("monitoring-ingress", WAYS_IN, [{"ports": [{"port": 9090}]}]),
    ),
    fault(
        "R85",
        "all namespaces",
        "wanted pods of the namespace",
        put("monitoring-ingress", WAYS_IN, [{"from": [{"namespaceSelector": {}}]}]),
    ),
    fault(
        "R85",
        "the VPC",
        "ipBlock",
        put("monitoring-ingress", WAYS_IN, [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]),
    ),
    fault("R86", "a balancer before Grafana", "ClusterIP", values(PROMETHEUS, "grafana.service.type", "LoadBalancer")),
    fault("R86", "an ingress", "wanted no way in", values(PROMETHEUS, "grafana.ingress.enabled", True)),
    fault("R86", "a route", "wanted no way in", values(PROMETHEUS, "prometheus.route", {"main": {"enabled": True}})),
    fault(
        "R86",
        "no login",
        "wanted a login",
        lambda program: (
            program[PROMETHEUS].inputs["values"]["grafana"]["grafana.ini"].update({"auth.anonymous": {"enabled": True}})
        ),
    ),
    fault(
        "R86",
        "a password in the state",
        "adminPassword is set",
        values(PROMETHEUS, "grafana.adminPassword", "prom-operator"),
    ),
    fault("R86", "anybody in AWS", "AWS_SSO or SAML", put("dashboards", "authenticationProviders", [])),
    fault("R87", "rules of teams", "ruleNamespaceSelector", put(PROMETHEUS, f"{SPEC}.ruleNamespaceSelector", {})),
    fault("R87", "monitors of teams", "podMonitor", put(PROMETHEUS, f"{SPEC}.podMonitorNamespaceSelector", DROP)),
    fault("R88", "every workspace", "aps:RemoteWrite", resource_of("prometheus-policy", "*")),
    fault("R88", "every log", "logs:PutLogEvents", resource_of("shipper-policy", "*")),
]

FAULTS = (
    *CLUSTER,
    *NODES,
    *EFA,
    *NETWORK,
    *STORAGE,
    *KUBERNETES,
    *SCHEDULING,
    *ISOLATION,
    *HYGIENE,
    *BUDGET,
    *REACH,
    *AUTOSCALING,
    *OBSERVABILITY,
)

ONE_A_RULE = first_of_each(FAULTS, lambda fault: fault.rule, lambda fault: f"{fault.rule} {fault.label}")
"""The faults as parameters of a test; all but the first of each rule are slow."""
