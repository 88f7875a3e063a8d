"""What an attacker, or a tired colleague, would change: security-relevant mutations of a recorded program.

Each kind of mutation looks for the resources it can be applied to; :func:`mutations` gives every kind at every place,
and :func:`sample` a seeded choice of them that has every kind.
"""

import copy
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from trainium_eks.plan.graph import Graph, Resource

Inputs = dict[str, Any]
Edit = Callable[[Inputs], None]

WORLD = "0.0.0.0/0"
GONE = object()
"""In the place of a value: the key is removed."""


@dataclass(frozen=True)
class Mutation:
    """One change to one resource."""

    kind: str
    urn: str
    graph: Graph
    """The program with the change."""

    @property
    def title(self) -> str:
        """``open ingress: trn-dev-fsx-from-cluster-in-988``."""
        return f"{self.kind}: {self.urn.rpartition('::')[2]}"


def changed(graph: Graph, urn: str, edit: Edit) -> Graph:
    """The program with one resource's inputs edited. Its answers follow where they repeat an input."""

    def one(resource: Resource) -> Resource:
        inputs = copy.deepcopy(dict(resource.inputs))
        edit(inputs)
        repeated = {key: inputs[key] for key in resource.outputs if key in inputs and key in resource.inputs}
        return replace(resource, inputs=inputs, outputs={**resource.outputs, **repeated})

    return replace(graph, resources=tuple(one(each) if each.urn == urn else each for each in graph.resources))


def without(graph: Graph, urn: str) -> Graph:
    """The program without one resource."""
    return replace(graph, resources=tuple(each for each in graph.resources if each.urn != urn))


def beside(graph: Graph, like: Resource, name: str, type_: str, inputs: Inputs) -> tuple[str, Graph]:
    """The program with one resource more, made with the provider of another one."""
    urn = f"{like.urn.rpartition('::')[0].rpartition('$')[0] or like.urn.rpartition('::')[0]}${type_}::{name}"
    added = Resource(urn=urn, type=type_, name=name, parent=like.parent, inputs=inputs, provider=like.provider)
    return urn, replace(graph, resources=(*graph.resources, added))


def set_at(path: str, value: Any) -> Edit:
    """Sets or removes an input at a dotted path; numbers are list indices. Missing steps are made."""

    def edit(inputs: Inputs) -> None:
        *steps, last = (int(step) if step.isdigit() else step for step in path.split("."))
        at: Any = inputs
        for step in steps:
            at = at[step] if isinstance(step, int) else at.setdefault(step, {})
        if value is not GONE:
            at[last] = value
        elif isinstance(at, list) or last in at:
            del at[last]

    return edit


def statement(path: str, **more: Any) -> Edit:
    """Adds a statement to a policy held as text."""

    def edit(inputs: Inputs) -> None:
        document = json.loads(inputs[path])
        document["Statement"].append({"Effect": "Allow", **more})
        inputs[path] = json.dumps(document)

    return edit


def first_statement(path: str, **change: Any) -> Edit:
    """Changes the first statement of a policy held as text."""

    def edit(inputs: Inputs) -> None:
        document = json.loads(inputs[path])
        document["Statement"][0].update(change)
        inputs[path] = json.dumps(document)

    return edit


def in_values(path: str, **change: Any) -> Edit:
    """Changes keys of a JSON object held as text."""

    def edit(inputs: Inputs) -> None:
        inputs[path] = json.dumps({**json.loads(inputs.get(path) or "{}"), **change})

    return edit


@dataclass(frozen=True)
class Kind:
    """One kind of mutation: an edit of every resource of a type that a condition picks, or its removal."""

    name: str
    type: str
    edit: Edit | None
    """None removes the resource."""
    when: Callable[[Resource], bool] = lambda _: True

    def places(self, graph: Graph) -> Iterator[str]:
        """URNs of the resources that it can be applied to."""
        return (each.urn for each in graph.of_type(self.type) if self.when(each))

    def at(self, graph: Graph, urn: str) -> Mutation:
        """The mutation of one of them."""
        made = without(graph, urn) if self.edit is None else changed(graph, urn, self.edit)
        return Mutation(self.name, urn, made)


def has(path: str) -> Callable[[Resource], bool]:
    """Whether a resource has an input at a dotted path."""

    def check(resource: Resource) -> bool:
        at: Any = resource.inputs
        for step in path.split("."):
            if isinstance(at, list):
                at = at[int(step)] if step.isdigit() and int(step) < len(at) else None
            else:
                at = at.get(step) if isinstance(at, dict) else None
        return at is not None

    return check


def called(*parts: str) -> Callable[[Resource], bool]:
    """Whether a resource's name has one of these parts."""
    return lambda resource: any(part in resource.name for part in parts)


def trusts(service: str) -> Callable[[Resource], bool]:
    """Whether a role trusts a service."""
    return lambda resource: service in str(resource.inputs.get("assumeRolePolicy"))


CLUSTER = "aws:eks/cluster:Cluster"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
GROUP = "aws:eks/nodeGroup:NodeGroup"
ROLE = "aws:iam/role:Role"
ROLE_POLICY = "aws:iam/rolePolicy:RolePolicy"
ATTACHMENT = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
KEY = "aws:kms/key:Key"
KEY_POLICY = "aws:kms/keyPolicy:KeyPolicy"
LOGS = "aws:cloudwatch/logGroup:LogGroup"
INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
SUBNET = "aws:ec2/subnet:Subnet"
LUSTRE = "aws:fsx/lustreFileSystem:LustreFileSystem"
BUCKET = "aws:s3/bucket:Bucket"
BLOCK = "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock"
REPOSITORY = "aws:ecr/repository:Repository"
NAMESPACE = "kubernetes:core/v1:Namespace"
JOB = "kubernetes:batch/v1:Job"
NETWORK_POLICY = "kubernetes:networking.k8s.io/v1:NetworkPolicy"
RBAC = "kubernetes:rbac.authorization.k8s.io/v1:"
ADMISSION = "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy"
RELEASE = "kubernetes:helm.sh/v3:Release"
ADDON = "aws:eks/addon:Addon"
VOLUME = "kubernetes:core/v1:PersistentVolume"
QUOTA = "kubernetes:core/v1:ResourceQuota"
AWS = "pulumi:providers:aws"

PODS_TRUST = trusts("pods.eks.amazonaws.com")
EVERYBODY = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}]
ANONYMOUS = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:unauthenticated"}]
EVERYTHING = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
POD = "spec.template.spec"


def labelled(level: str) -> Edit:
    """The namespace's pods may do what this level of Pod Security allows."""
    return lambda inputs: inputs["metadata"]["labels"].update({"pod-security.kubernetes.io/enforce": level})


def rule(group: str, resource: str, *verbs: str) -> Edit:
    """Adds a rule to a role of Kubernetes."""

    def edit(inputs: Inputs) -> None:
        inputs["rules"] = [*inputs["rules"], {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}]

    return edit


def public_bucket(inputs: Inputs) -> None:
    """Everybody reads the bucket."""
    statement("policy", Principal="*", Action="s3:GetObject", Resource="*")(inputs)


def plain_http(inputs: Inputs) -> None:
    """No statement that refuses plain HTTP."""
    inputs["policy"] = json.dumps({"Version": "2012-10-17", "Statement": []})


def open_ingress(first: int, last: int, protocol: str = "tcp", world: str = WORLD) -> Edit:
    """The rule lets in every address, on these ports."""

    def edit(inputs: Inputs) -> None:
        inputs.pop("referencedSecurityGroupId", None)
        inputs["cidrIpv6" if ":" in world else "cidrIpv4"] = world
        inputs.update({"ipProtocol": protocol, "fromPort": first, "toPort": last})

    return edit


def secret_in_user_data(inputs: Inputs) -> None:
    """A key pair of AWS in a script."""
    import base64

    script = "#!/bin/bash\nexport AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY\n"
    inputs["userData"] = base64.b64encode(script.encode()).decode()


KINDS: tuple[Kind, ...] = (
    # The control plane.
    Kind(
        "endpoint open to the world",
        CLUSTER,
        set_at(
            "vpcConfig",
            {
                "endpointPublicAccess": True,
                "endpointPrivateAccess": True,
                "subnetIds": [],
                "publicAccessCidrs": [WORLD],
            },
        ),
    ),
    Kind(
        "endpoint open in halves",
        CLUSTER,
        set_at("vpcConfig.publicAccessCidrs", ["0.0.0.0/1", "128.0.0.0/1"]),
        has("vpcConfig.publicAccessCidrs"),
    ),
    Kind(
        "endpoint without ranges",
        CLUSTER,
        set_at("vpcConfig.publicAccessCidrs", GONE),
        has("vpcConfig.publicAccessCidrs"),
    ),
    Kind("secrets in plain text", CLUSTER, set_at("encryptionConfig", GONE)),
    Kind(
        "no audit log",
        CLUSTER,
        set_at("enabledClusterLogTypes", ["api", "authenticator", "controllerManager", "scheduler"]),
    ),
    Kind("no logs", CLUSTER, set_at("enabledClusterLogTypes", [])),
    Kind("aws-auth again", CLUSTER, set_at("accessConfig.authenticationMode", "API_AND_CONFIG_MAP")),
    Kind(
        "deletion allowed",
        CLUSTER,
        set_at("deletionProtection", False),
        lambda each: each.inputs.get("deletionProtection") is True,
    ),
    Kind("a version out of support", CLUSTER, set_at("version", "1.29")),
    Kind("extended support", CLUSTER, set_at("upgradePolicy", GONE)),
    # Logs and keys.
    Kind("logs kept a week", LOGS, set_at("retentionInDays", 7)),
    Kind("logs in plain text", LOGS, set_at("kmsKeyId", GONE)),
    Kind("no rotation", KEY, set_at("enableKeyRotation", False)),
    Kind("no rotation said", KEY, set_at("enableKeyRotation", GONE)),
    Kind("a key that is off", KEY, set_at("isEnabled", False)),
    Kind("a key for everybody", KEY_POLICY, statement("policy", Principal="*", Action="kms:*", Resource="*")),
    Kind(
        "a key for another account",
        KEY_POLICY,
        statement("policy", Principal={"AWS": "*"}, Action="kms:Decrypt", Resource="*"),
    ),
    Kind("no key policy", KEY_POLICY, None),
    Kind("a key that goes soon", KEY, set_at("deletionWindowInDays", 1)),
    # Nodes.
    Kind("IMDSv1", TEMPLATE, set_at("metadataOptions.httpTokens", "optional")),
    Kind("IMDS unset", TEMPLATE, set_at("metadataOptions", GONE)),
    Kind("IMDS for pods", TEMPLATE, set_at("metadataOptions.httpPutResponseHopLimit", 2)),
    Kind("a volume in plain text", TEMPLATE, set_at("blockDeviceMappings.0.ebs.encrypted", "false")),
    Kind("a volume with no word of encryption", TEMPLATE, set_at("blockDeviceMappings.0.ebs.encrypted", GONE)),
    Kind(
        "a second volume in plain text",
        TEMPLATE,
        lambda inputs: inputs["blockDeviceMappings"].append(
            {"deviceName": "/dev/xvdb", "ebs": {"volumeSize": 10, "volumeType": "gp3"}}
        ),
    ),
    Kind("SSH key", TEMPLATE, set_at("keyName", "ops")),
    Kind("a secret in user data", TEMPLATE, secret_in_user_data),
    Kind(
        "public addresses",
        TEMPLATE,
        set_at("networkInterfaces.0.associatePublicIpAddress", "true"),
        has("networkInterfaces.0"),
    ),
    Kind("remote access", GROUP, set_at("remoteAccess", {"ec2SshKey": "ops"})),
    Kind("an AMI that ends", GROUP, set_at("amiType", "AL2_x86_64")),
    Kind("no taint", GROUP, set_at("taints", GONE), has("taints")),
    Kind("no repair", GROUP, set_at("nodeRepairConfig", GONE)),
    Kind("the latest template", GROUP, set_at("launchTemplate.version", "$Latest")),
    # IAM.
    Kind(
        "nodes are administrators",
        ATTACHMENT,
        set_at("policyArn", "arn:aws:iam::aws:policy/AdministratorAccess"),
        lambda each: "Worker" in str(each.inputs),
    ),
    Kind(
        "an add-on is an administrator",
        ATTACHMENT,
        set_at("policyArn", "arn:aws:iam::aws:policy/AdministratorAccess"),
        lambda each: "Worker" not in str(each.inputs),
    ),
    Kind(
        "an add-on is a power user",
        ATTACHMENT,
        set_at("policyArn", "arn:aws:iam::aws:policy/PowerUserAccess"),
        lambda each: "Worker" not in str(each.inputs),
    ),
    Kind(
        "an add-on writes IAM",
        ATTACHMENT,
        set_at("policyArn", "arn:aws:iam::aws:policy/IAMFullAccess"),
        lambda each: "Worker" not in str(each.inputs),
    ),
    Kind(
        "nodes write images",
        ATTACHMENT,
        set_at("policyArn", "arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryFullAccess"),
        lambda each: "PullOnly" in str(each.inputs),
    ),
    Kind(
        "nodes have the CNI's policy",
        ATTACHMENT,
        set_at("policyArn", "arn:aws:iam::aws:policy/AmazonEKS_CNI_Policy"),
        lambda each: "Worker" in str(each.inputs),
    ),
    Kind("every action", ROLE_POLICY, first_statement("policy", Action="*", Resource="*")),
    Kind("every action of IAM", ROLE_POLICY, statement("policy", Action="iam:*", Resource="*")),
    Kind("passes every role", ROLE_POLICY, statement("policy", Action="iam:PassRole", Resource="*")),
    Kind("becomes every role", ROLE_POLICY, statement("policy", Action="sts:AssumeRole", Resource="*")),
    Kind("every action of S3 everywhere", ROLE_POLICY, statement("policy", Action="s3:*", Resource="*")),
    Kind(
        "attaches policies",
        ROLE_POLICY,
        statement("policy", Action=["iam:AttachRolePolicy", "iam:PutRolePolicy"], Resource="*"),
    ),
    Kind("reads every secret", ROLE_POLICY, statement("policy", Action="secretsmanager:GetSecretValue", Resource="*")),
    Kind("all but one action", ROLE_POLICY, statement("policy", NotAction="iam:DeleteUser", Resource="*")),
    Kind(
        "everybody becomes the role",
        ROLE,
        statement("assumeRolePolicy", Principal={"AWS": "*"}, Action="sts:AssumeRole"),
    ),
    Kind("anyone becomes the role", ROLE, statement("assumeRolePolicy", Principal="*", Action="sts:AssumeRole")),
    Kind(
        "another account becomes the role",
        ROLE,
        statement("assumeRolePolicy", Principal={"AWS": "arn:aws:iam::999988887777:root"}, Action="sts:AssumeRole"),
    ),
    Kind(
        "every web identity",
        ROLE,
        statement("assumeRolePolicy", Principal={"Federated": "*"}, Action="sts:AssumeRoleWithWebIdentity"),
        PODS_TRUST,
    ),
    # Network.
    Kind("open ingress", INGRESS, open_ingress(0, 65535)),
    Kind("open ingress of every protocol", INGRESS, open_ingress(-1, -1, "-1")),
    Kind("open ingress over IPv6", INGRESS, open_ingress(443, 443, world="::/0")),
    Kind("SSH from the office", INGRESS, open_ingress(22, 22, world="203.0.113.0/24")),
    Kind("open kubelet", INGRESS, open_ingress(10250, 10250)),
    Kind("a subnet of nodes with public addresses", SUBNET, set_at("mapPublicIpOnLaunch", True), called("-private-")),
    Kind("no flow logs", "aws:ec2/flowLog:FlowLog", None),
    Kind("flow logs of what was accepted", "aws:ec2/flowLog:FlowLog", set_at("trafficType", "ACCEPT")),
    Kind(
        "a default group that allows",
        "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup",
        set_at("ingress", [{"protocol": "-1", "fromPort": 0, "toPort": 0, "self": True}]),
    ),
    Kind("no default group", "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup", None),
    # Data.
    Kind("Lustre with AWS' key", LUSTRE, set_at("kmsKeyId", GONE)),
    Kind(
        "Lustre without backups",
        LUSTRE,
        set_at("automaticBackupRetentionDays", 0),
        lambda each: bool(each.inputs.get("automaticBackupRetentionDays")),
    ),
    Kind("Lustre without a log", LUSTRE, set_at("logConfiguration", GONE)),
    Kind(
        "no final backup",
        LUSTRE,
        set_at("skipFinalBackup", True),
        lambda each: each.inputs.get("skipFinalBackup") is False,
    ),
    Kind("a bucket that goes with its data", BUCKET, set_at("forceDestroy", True)),
    Kind("a public ACL", BUCKET, set_at("acl", "public-read")),
    *(
        Kind(f"{key} off", BLOCK, set_at(key, False))
        for key in ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
    ),
    Kind("no public access block", BLOCK, None),
    Kind("a public bucket", "aws:s3/bucketPolicy:BucketPolicy", public_bucket),
    Kind("plain HTTP", "aws:s3/bucketPolicy:BucketPolicy", plain_http),
    Kind("no bucket policy", "aws:s3/bucketPolicy:BucketPolicy", None),
    Kind(
        "no encryption of the bucket",
        "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
        None,
    ),
    Kind(
        "S3's own key",
        "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
        set_at("rules.0.applyServerSideEncryptionByDefault", {"sseAlgorithm": "AES256"}),
    ),
    Kind(
        "versions off",
        "aws:s3/bucketVersioning:BucketVersioning",
        set_at("versioningConfiguration.status", "Suspended"),
    ),
    Kind(
        "ACLs again",
        "aws:s3/bucketOwnershipControls:BucketOwnershipControls",
        set_at("rule.objectOwnership", "ObjectWriter"),
    ),
    Kind("tags that move", REPOSITORY, set_at("imageTagMutability", "MUTABLE")),
    Kind("images not scanned", REPOSITORY, set_at("imageScanningConfiguration.scanOnPush", False)),
    Kind("images with AWS' key", REPOSITORY, set_at("encryptionConfigurations", GONE)),
    Kind("images that go with the repository", REPOSITORY, set_at("forceDelete", True)),
    # Kubernetes.
    Kind("a privileged namespace", NAMESPACE, labelled("privileged"), lambda each: "baseline" in str(each.inputs)),
    Kind("a namespace without labels", NAMESPACE, set_at("metadata.labels", {})),
    Kind("a privileged container", JOB, set_at(f"{POD}.containers.0.securityContext.privileged", True)),
    Kind("every capability", JOB, set_at(f"{POD}.containers.0.securityContext.capabilities", {"add": ["ALL"]})),
    Kind("SYS_ADMIN", JOB, set_at(f"{POD}.containers.0.securityContext.capabilities", {"add": ["SYS_ADMIN"]})),
    Kind(
        "the host's files",
        JOB,
        lambda inputs: (
            inputs["spec"]["template"]["spec"]
            .setdefault("volumes", [])
            .append({"name": "host", "hostPath": {"path": "/"}})
        ),
    ),
    Kind("the host's network", JOB, set_at(f"{POD}.hostNetwork", True)),
    Kind("the host's processes", JOB, set_at(f"{POD}.hostPID", True)),
    Kind("the host's memory", JOB, set_at(f"{POD}.hostIPC", True)),
    Kind(
        "more rights than the parent", JOB, set_at(f"{POD}.containers.0.securityContext.allowPrivilegeEscalation", True)
    ),
    Kind("the latest image", JOB, set_at(f"{POD}.containers.0.image", "busybox:latest")),
    Kind("an image without tag", JOB, set_at(f"{POD}.containers.0.image", "busybox")),
    Kind("no limits", JOB, set_at(f"{POD}.containers.0.resources", GONE)),
    Kind("a token in the pod", JOB, set_at(f"{POD}.automountServiceAccountToken", True)),
    Kind("no network policy", NETWORK_POLICY, None, called("setup-network")),
    Kind("traffic from everywhere", NETWORK_POLICY, set_at("spec.ingress", [{}])),
    Kind("a role for everything", f"{RBAC}ClusterRole", set_at("rules", EVERYTHING)),
    Kind("a team's role for everything", f"{RBAC}Role", set_at("rules", EVERYTHING)),
    Kind("reads every secret of the cluster", f"{RBAC}ClusterRole", rule("", "secrets", "get", "list")),
    Kind("becomes others", f"{RBAC}ClusterRole", rule("", "users", "impersonate")),
    Kind(
        "binds and escalates",
        f"{RBAC}ClusterRole",
        rule("rbac.authorization.k8s.io", "clusterroles", "bind", "escalate"),
    ),
    Kind("makes tokens", f"{RBAC}ClusterRole", rule("", "serviceaccounts/token", "create")),
    Kind("proxies to kubelets", f"{RBAC}ClusterRole", rule("", "nodes/proxy", "get")),
    Kind("a team writes roles", f"{RBAC}Role", rule("rbac.authorization.k8s.io", "rolebindings", "create")),
    Kind("a role for whoever is logged in", f"{RBAC}ClusterRoleBinding", set_at("subjects", EVERYBODY)),
    Kind("a role for anyone", f"{RBAC}ClusterRoleBinding", set_at("subjects", ANONYMOUS)),
    Kind("a team's role for anyone", f"{RBAC}RoleBinding", set_at("subjects", ANONYMOUS)),
    Kind("a cluster's administrator", f"{RBAC}ClusterRoleBinding", set_at("roleRef.name", "cluster-admin")),
    Kind(
        "a team administers",
        f"{RBAC}RoleBinding",
        set_at("roleRef", {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}),
    ),
    Kind("no admission policy", ADMISSION, None),
    Kind("admission that fails open", ADMISSION, set_at("spec.failurePolicy", "Ignore")),
    Kind("admission that only warns", f"{ADMISSION}Binding", set_at("spec.validationActions", ["Warn"])),
    Kind("no admission binding", f"{ADMISSION}Binding", None),
    Kind(
        "admission for another namespace",
        f"{ADMISSION}Binding",
        set_at("spec.matchResources.namespaceSelector.matchLabels", {"kubernetes.io/metadata.name": "nobody"}),
    ),
    Kind("admission of some objects", f"{ADMISSION}Binding", set_at("spec.matchResources.objectSelector", {"a": "b"})),
    Kind(
        "admission that is never asked",
        ADMISSION,
        set_at("spec.matchConditions", [{"name": "judged", "expression": "false"}]),
    ),
    Kind(
        "admission of updates alone", ADMISSION, set_at("spec.matchConstraints.resourceRules.0.operations", ["UPDATE"])
    ),
    Kind("admission that refuses nothing", ADMISSION, set_at("spec.validations", [{"expression": "true"}])),
    Kind("no quota", QUOTA, None),
    Kind(
        "a mounted token by default",
        "kubernetes:core/v1:ServiceAccount",
        set_at("automountServiceAccountToken", True),
        lambda each: each.inputs.get("automountServiceAccountToken") is False,
    ),
    Kind(
        "the whole file system",
        VOLUME,
        set_at("spec.csi.volumeAttributes.mountname", "sim"),
        lambda each: "/" in str(each.inputs.get("spec")),
    ),
    Kind("a volume that goes with its claim", VOLUME, set_at("spec.persistentVolumeReclaimPolicy", "Delete")),
    Kind("a chart of any version", RELEASE, set_at("version", GONE), has("version")),
    Kind(
        "no network policies in the CNI",
        ADDON,
        in_values("configurationValues", enableNetworkPolicy="false"),
        called("vpc-cni"),
    ),
    Kind("an add-on of any version", ADDON, set_at("addonVersion", GONE)),
    # Access and provider.
    Kind(
        "a team administers the cluster",
        "aws:eks/accessEntry:AccessEntry",
        set_at("kubernetesGroups", ["system:masters"]),
        has("kubernetesGroups"),
    ),
    Kind("an access entry for everybody", "aws:eks/accessEntry:AccessEntry", set_at("principalArn", "*")),
    Kind("any account", AWS, set_at("allowedAccountIds", GONE), has("allowedAccountIds")),
    Kind("no owner", AWS, set_at("defaultTags", '{"tags": {}}')),
)


def sample(graph: Graph, count: int, seed: int) -> list[Mutation]:
    """So many mutations of a program: each kind once where it has a place, then others at random."""
    chooser = random.Random(seed)
    places = [(kind, urn) for kind in KINDS for urn in kind.places(graph)]
    first = {kind.name: (kind, urn) for kind, urn in chooser.sample(places, len(places))}
    rest = [each for each in places if each not in first.values()]
    chosen = [*first.values(), *chooser.sample(rest, max(0, min(len(rest), count - len(first))))]
    return [kind.at(graph, urn) for kind, urn in chosen]
