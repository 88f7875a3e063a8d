"""Hand-built programs: a small builder, and a whole environment in which every rule passes."""

import base64
import json
from typing import Any

from trainium_eks.plan.graph import SECRET, STACK_TYPE, Graph, Options, Resource

STACK_URN = "urn:pulumi:test::trainium-eks::pulumi:pulumi:Stack::trainium-eks-test"
OWNERS = {"Owner": "ml", "CostCenter": "training", "Environment": "test"}


class Entry:
    """One resource that a test may still change."""

    def __init__(self, urn: str, type_: str, name: str, inputs: dict[str, Any], **rest: Any) -> None:
        self.urn, self.type, self.name, self.inputs = urn, type_, name, inputs
        self.outputs: dict[str, Any] = rest.pop("outputs", None) or {}
        self.parent: str = rest.pop("parent", STACK_URN)
        self.custom: bool = rest.pop("custom", True)
        self.provider: str = rest.pop("provider", "")
        self.dependencies: list[str] = list(rest.pop("dependencies", ()))
        self.property_dependencies: dict[str, tuple[str, ...]] = rest.pop("property_dependencies", {})
        self.options: dict[str, Any] = rest


class Program:
    """A program being built; ``graph()`` is what a rule sees of it."""

    def __init__(self, **config: Any) -> None:
        self.config: dict[str, Any] = config
        self.entries: dict[str, Entry] = {}
        self.outputs: dict[str, Any] = {}

    def add(self, name: str, type_: str, inputs: dict[str, Any] | None = None, **rest: Any) -> Entry:
        """Adds a resource under a key that the test finds it by; AWS and Kubernetes get an explicit provider."""
        provider = {"aws": "aws", "kubernetes": "k8s"}.get(type_.partition(":")[0])
        if provider and rest.get("custom", True):
            rest.setdefault(
                "provider", self.urn(f"pulumi:providers:{'aws' if provider == 'aws' else 'kubernetes'}", provider)
            )
        self.entries[name] = Entry(self.urn(type_, name), type_, name, dict(inputs or {}), **rest)
        return self.entries[name]

    def urn(self, type_: str, name: str) -> str:
        return f"urn:pulumi:test::trainium-eks::{type_}::{name}"

    def __getitem__(self, name: str) -> Entry:
        return self.entries[name]

    def drop(self, *names: str) -> None:
        for name in names:
            del self.entries[name]

    def put(self, name: str, path: str, value: Any) -> None:
        """Sets an input at a dotted path (numbers are list indices); DROP removes it."""
        *steps, last = path.split(".")
        target: Any = self.entries[name].inputs
        for step in steps:
            target = target[int(step)] if isinstance(target, list) else target[step]
        if value is DROP:
            del target[int(last) if isinstance(target, list) else last]
        else:
            target[int(last) if isinstance(target, list) else last] = value

    def edit(self, name: str, path: str, change: dict[str, Any]) -> None:
        """Changes keys of a JSON document that an input holds as text."""
        document = json.loads(self.entries[name].inputs[path])
        document.update(change)
        self.entries[name].inputs[path] = json.dumps(document)

    def graph(self) -> Graph:
        stack = Resource(STACK_URN, STACK_TYPE, "trainium-eks-test", custom=False)
        resources = [stack, *(self._resource(entry) for entry in self.entries.values())]
        ordered = tuple(sorted(resources, key=lambda each: each.urn))
        return Graph("trainium-eks", "test", ordered, outputs=self.outputs, config=self.config)

    def _resource(self, entry: Entry) -> Resource:
        return Resource(
            urn=entry.urn,
            type=entry.type,
            name=entry.name,
            parent=entry.parent,
            custom=entry.custom,
            inputs=entry.inputs,
            outputs=entry.outputs,
            dependencies=tuple(sorted(entry.dependencies)),
            property_dependencies=entry.property_dependencies,
            provider=entry.provider,
            options=Options(**entry.options),
        )


DROP = object()


def policy(*statements: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def allow(principal: Any, *actions: str, **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Principal": principal, "Action": list(actions), "Resource": "*", **more}


def trust(service: str, *actions: str) -> str:
    return policy({"Effect": "Allow", "Principal": {"Service": service}, "Action": list(actions) or ["sts:AssumeRole"]})


POD_TRUST = trust("pods.eks.amazonaws.com", "sts:AssumeRole", "sts:TagSession")


def user_data(*parts: str) -> str:
    lines = ["MIME-Version: 1.0", 'Content-Type: multipart/mixed; boundary="=="', ""]
    for part in parts:
        lines += ["--==", 'Content-Type: text/x-shellscript; charset="us-ascii"', "", part]
    return base64.b64encode("\n".join([*lines, "--==--", ""]).encode()).decode()


def kubeconfig(**user: Any) -> str:
    exec_ = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "aws", "args": ["eks", "get-token"]}
    return json.dumps(
        {"apiVersion": "v1", "kind": "Config", "users": [{"name": "aws", "user": user or {"exec": exec_}}]}
    )


def environment() -> Program:
    """A production environment with a reservation, a Capacity Block and every optional part, as it should be."""
    program = Program(
        production=True,
        budget={"hourlyUsd": 1000, "nodes": 100},
        waivers={},
        network={"peerCidrBlocks": ["10.200.0.0/16"]},
        nodeGroups=[
            {"name": "base", "ignoreDesiredSize": True},
            {"name": "block", "capacity": {"type": "capacity-block", "id": "cr-block", "zoneId": "usw2-az4"}},
        ],
    )
    program.outputs = {
        "kubeconfig": SECRET,
        "updateKubeconfigCommand": "aws eks update-kubeconfig",
        "queueNames": ["a"],
    }
    _providers(program)
    _key(program)
    _network(program)
    _cluster(program)
    _nodes(program)
    _storage(program)
    _kubernetes(program)
    _scheduling(program)
    _observability(program)
    return program


def _providers(program: Program) -> None:
    program.add(
        "aws",
        "pulumi:providers:aws",
        {
            "region": "us-west-2",
            "allowedAccountIds": '["111122223333"]',
            "defaultTags": json.dumps({"tags": OWNERS}),
        },
    )
    program.add(
        "k8s",
        "pulumi:providers:kubernetes",
        {"kubeconfig": kubeconfig(), "clusterIdentifier": "arn:sim-cluster"},
        property_dependencies={"kubeconfig": (program.urn("eks:index:Cluster", "eks"),)},
    )


def _key(program: Program) -> None:
    program.add(
        "key",
        "aws:kms/key:Key",
        {"enableKeyRotation": True, "deletionWindowInDays": 30},
        outputs={"id": "sim-key", "keyId": "sim-key", "arn": "arn:aws:kms:us-west-2:000000000000:key/sim-key"},
    )
    caller = {"StringEquals": {"kms:CallerAccount": "000000000000"}}
    document = policy(
        allow({"AWS": "arn:aws:iam::000000000000:root"}, "kms:*"),
        allow({"AWS": "*"}, "kms:Decrypt", Condition=caller),
    )
    program.add("key-policy", "aws:kms/keyPolicy:KeyPolicy", {"keyId": "sim-key", "policy": document})


def _network(program: Program) -> None:
    program.add(
        "vpc",
        "aws:ec2/vpc:Vpc",
        {"cidrBlock": "10.0.0.0/16", "enableDnsSupport": True, "enableDnsHostnames": True},
        outputs={"id": "vpc-sim"},
    )
    program.add("default-group", "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup", {"vpcId": "vpc-sim"})
    program.add("flow-log", "aws:ec2/flowLog:FlowLog", {"vpcId": "vpc-sim", "trafficType": "ALL"})
    program.add("flow-logs", "aws:cloudwatch/logGroup:LogGroup", {"retentionInDays": 365, "kmsKeyId": "arn:key"})
    plan = {"az4": ("10.0.0.0/18", "10.0.192.0/20"), "az1": ("10.0.64.0/18", "10.0.208.0/20")}
    for zone, (private, public) in plan.items():
        for kind, block, role in (("private", private, "internal-elb"), ("public", public, "elb")):
            inputs = {
                "vpcId": "vpc-sim",
                "availabilityZoneId": f"usw2-{zone}",
                "cidrBlock": block,
                "mapPublicIpOnLaunch": False,
                "tags": {f"kubernetes.io/role/{role}": "1"},
            }
            program.add(f"{kind}-{zone}", "aws:ec2/subnet:Subnet", inputs, outputs={"id": f"subnet-{kind}-{zone}"})
            table = f"rtb-{kind}-{zone}"
            program.add(table, "aws:ec2/routeTable:RouteTable", {"vpcId": "vpc-sim"}, outputs={"id": table})
            way = {"gatewayId": "igw-sim"} if kind == "public" else {"natGatewayId": f"nat-{zone}"}
            program.add(f"route-{kind}-{zone}", "aws:ec2/route:Route", {"routeTableId": table, **way})
            program.add(
                f"association-{kind}-{zone}",
                "aws:ec2/routeTableAssociation:RouteTableAssociation",
                {"routeTableId": table, "subnetId": f"subnet-{kind}-{zone}"},
            )
        program.add(f"nat-{zone}", "aws:ec2/natGateway:NatGateway", {"subnetId": f"subnet-public-{zone}"})
    program.add(
        "s3-endpoint",
        "aws:ec2/vpcEndpoint:VpcEndpoint",
        {
            "vpcId": "vpc-sim",
            "serviceName": "com.amazonaws.us-west-2.s3",
            "vpcEndpointType": "Gateway",
            "routeTableIds": ["rtb-private-az4", "rtb-private-az1"],
        },
    )


def _cluster(program: Program) -> None:
    logs = program.add(
        "cluster-logs",
        "aws:cloudwatch/logGroup:LogGroup",
        {"name": "/aws/eks/trn-1/cluster", "retentionInDays": 365, "kmsKeyId": "arn:key"},
    )
    types = ["api", "audit", "authenticator", "controllerManager", "scheduler"]
    subnets = ["subnet-private-az4", "subnet-private-az1"]
    component = program.add(
        "eks",
        "eks:index:Cluster",
        {
            "name": "trn-1",
            "subnetIds": subnets,
            "enabledClusterLogTypes": types,
            "endpointPublicAccess": True,
            "publicAccessCidrs": ["203.0.113.0/24"],
            "endpointPrivateAccess": True,
            "encryptionConfigKeyArn": "arn:key",
            "version": "1.35",
            "authenticationMode": "API",
            "deletionProtection": True,
            "upgradePolicy": {"supportType": "STANDARD"},
        },
        custom=False,
        dependencies=[logs.urn],
        protect=True,
    )
    program.add(
        "cluster",
        "aws:eks/cluster:Cluster",
        {
            "name": "trn-1",
            "version": "1.35",
            "enabledClusterLogTypes": types,
            "vpcConfig": {
                "subnetIds": subnets,
                "endpointPublicAccess": True,
                "publicAccessCidrs": ["203.0.113.0/24"],
                "endpointPrivateAccess": True,
            },
            "encryptionConfig": {"provider": {"keyArn": "arn:key"}, "resources": ["secrets"]},
            "accessConfig": {"authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": False},
            "upgradePolicy": {"supportType": "STANDARD"},
            "deletionProtection": True,
            "kubernetesNetworkConfig": {"serviceIpv4Cidr": "172.20.0.0/16"},
        },
        parent=component.urn,
        provider="",
        outputs={"name": "trn-1", "arn": "arn:sim-cluster"},
    )
    for addon, service_account in (
        ("vpc-cni", "aws-node"),
        ("aws-ebs-csi-driver", "ebs-csi-controller-sa"),
        ("aws-fsx-csi-driver", "fsx-csi-controller-sa"),
    ):
        role = f"{addon}-role"
        program.add(
            role, "aws:iam/role:Role", {"assumeRolePolicy": POD_TRUST}, outputs={"name": role, "arn": f"arn:{role}"}
        )
        inputs: dict[str, Any] = {
            "addonName": addon,
            "addonVersion": "v1.22.3-eksbuild.1",
            "podIdentityAssociations": [{"roleArn": f"arn:{role}", "serviceAccount": service_account}],
        }
        if addon == "vpc-cni":
            inputs["configurationValues"] = json.dumps({"enableNetworkPolicy": "true", "env": {"WARM_IP_TARGET": "8"}})
        program.add(addon, "aws:eks/addon:Addon", inputs)
    program.add(
        "cni-policy",
        "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
        {"role": "vpc-cni-role", "policyArn": "arn:aws:iam::aws:policy/AmazonEKS_CNI_Policy"},
    )
    for addon in ("eks-node-monitoring-agent", "coredns"):
        program.add(addon, "aws:eks/addon:Addon", {"addonName": addon, "addonVersion": "v1.7.0-eksbuild.1"})
    keys = ("nvidia.com/gpu", "trainium-eks/fabric-untested")
    tolerations = [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in keys]
    program.put(
        "eks-node-monitoring-agent", "configurationValues", json.dumps({"dcgmAgent": {"tolerations": tolerations}})
    )


def _nodes(program: Program) -> None:
    ec2 = trust("ec2.amazonaws.com")
    program.add(
        "node-role", "aws:iam/role:Role", {"assumeRolePolicy": ec2}, outputs={"name": "node", "arn": "arn:node"}
    )
    for name in ("AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly", "AmazonSSMManagedInstanceCore"):
        arn = f"arn:aws:iam::aws:policy/{name}"
        program.add(name, "aws:iam/rolePolicyAttachment:RolePolicyAttachment", {"role": "node", "policyArn": arn})
    program.add("efa", "aws:ec2/securityGroup:SecurityGroup", {"description": "EFA"}, outputs={"id": "sg-efa"})
    for direction in ("Ingress", "Egress"):
        program.add(
            f"efa-{direction.lower()}",
            f"aws:vpc/securityGroup{direction}Rule:SecurityGroup{direction}Rule",
            {
                "securityGroupId": "sg-efa",
                "referencedSecurityGroupId": "sg-efa",
                "ipProtocol": "-1",
                "description": "All traffic within the group",
            },
        )
    node_group(program, "system", "m6i.xlarge", ami="AL2023_x86_64_STANDARD", subnets=["private-az4", "private-az1"])
    base = node_group(program, "base", "trn1.32xlarge", efa=8)
    base.options["ignore_changes"] = ("scalingConfig.desiredSize",)
    program["base-template"].inputs["placement"] = {"groupName": "sim-placement"}
    program.add(
        "placement", "aws:ec2/placementGroup:PlacementGroup", {"strategy": "cluster"}, outputs={"id": "sim-placement"}
    )
    block = node_group(program, "block", "trn1.32xlarge", efa=8)
    block.inputs["capacityType"] = "CAPACITY_BLOCK"
    block.inputs["updateConfig"]["updateStrategy"] = "MINIMAL"
    del block.inputs["instanceTypes"]
    program["block-template"].inputs.update(
        instanceType="trn1.32xlarge",
        instanceMarketOptions={"marketType": "capacity-block"},
        capacityReservationSpecification={"capacityReservationTarget": {"capacityReservationId": "cr-block"}},
    )


def node_group(
    program: Program,
    name: str,
    type_: str,
    *,
    ami: str = "AL2023_x86_64_NEURON",
    efa: int = 0,
    subnets: list[str] | None = None,
) -> Entry:
    """Adds a managed node group and its launch template, as they should be."""
    template: dict[str, Any] = {
        "metadataOptions": {"httpTokens": "required", "httpPutResponseHopLimit": 1},
        "blockDeviceMappings": [
            {
                "deviceName": "/dev/xvda",
                "ebs": {"encrypted": "true", "volumeType": "gp3", "volumeSize": 100, "kmsKeyId": "arn:key"},
            }
        ],
        "userData": user_data(
            "#!/bin/bash\nprintf '[Service]\\nLimitMEMLOCK=infinity\\n' > memlock.conf\n",
            *(["lnetctl net add --net efa --if rdmap0s0"] if efa else []),
        ),
        "tagSpecifications": [{"resourceType": kind, "tags": OWNERS} for kind in ("instance", "volume")],
    }
    if efa:
        template["networkInterfaces"] = [
            {
                "networkCardIndex": card,
                "deviceIndex": 1 if card else 0,
                "interfaceType": "efa-only" if card else "efa",
                "associatePublicIpAddress": "false",
                "securityGroups": ["sg-cluster", "sg-efa"],
            }
            for card in range(efa)
        ]
    program.add(
        f"{name}-template",
        "aws:ec2/launchTemplate:LaunchTemplate",
        template,
        outputs={"id": f"lt-{name}", "latestVersion": 1},
    )
    accelerated = ami != "AL2023_x86_64_STANDARD"
    neuron = ami == "AL2023_x86_64_NEURON"
    resource = "aws.amazon.com/neuron" if neuron else "nvidia.com/gpu"
    inputs: dict[str, Any] = {
        "clusterName": "trn-1",
        "nodeRoleArn": "arn:node",
        "subnetIds": [f"subnet-{each}" for each in subnets or ["private-az4"]],
        "amiType": ami,
        "capacityType": "ON_DEMAND",
        "instanceTypes": [type_],
        "launchTemplate": {"id": f"lt-{name}", "version": "1"},
        "scalingConfig": {"minSize": 0, "maxSize": 4, "desiredSize": 1},
        "updateConfig": {"maxUnavailable": 1},
        "nodeRepairConfig": {"enabled": True},
        "labels": {"trainium-eks/pool": name},
    }
    if accelerated:
        keys = (resource, "trainium-eks/fabric-untested")
        inputs["taints"] = [{"key": key, "value": "true", "effect": "NO_SCHEDULE"} for key in keys]
        inputs["labels"][f"{resource}.present"] = "true"
        inputs["labels"]["vpc.amazonaws.com/efa.present"] = "true"
    came_from = {"launchTemplate": (program[f"{name}-template"].urn,)}
    return program.add(name, "aws:eks/nodeGroup:NodeGroup", inputs, property_dependencies=came_from)


def _storage(program: Program) -> None:
    program.add("lustre-group", "aws:ec2/securityGroup:SecurityGroup", {}, outputs={"id": "sg-lustre"})
    own = []
    for direction in ("Ingress", "Egress"):
        type_ = f"aws:vpc/securityGroup{direction}Rule:SecurityGroup{direction}Rule"
        for peer in ("sg-lustre", "sg-cluster"):
            for first, last in ((988, 988), (1018, 1023)):
                inputs = {
                    "securityGroupId": "sg-lustre",
                    "referencedSecurityGroupId": peer,
                    "ipProtocol": "tcp",
                    "fromPort": first,
                    "toPort": last,
                    "description": "Lustre",
                }
                entry = program.add(f"lustre-{peer}-{direction.lower()}-{first}", type_, inputs)
                own += [entry.urn] if peer == "sg-lustre" else []
        everything = {
            "securityGroupId": "sg-lustre",
            "referencedSecurityGroupId": "sg-lustre",
            "ipProtocol": "-1",
            "description": "Lustre over EFA",
        }
        own.append(program.add(f"lustre-efa-{direction.lower()}", type_, everything).urn)
    program.add(
        "file-system",
        "aws:fsx/lustreFileSystem:LustreFileSystem",
        {
            "deploymentType": "PERSISTENT_2",
            "storageType": "SSD",
            "storageCapacity": 9600,
            "perUnitStorageThroughput": 500,
            "subnetIds": "subnet-private-az4",
            "securityGroupIds": ["sg-lustre"],
            "kmsKeyId": "arn:key",
            "automaticBackupRetentionDays": 0,
            "skipFinalBackup": True,
            "efaEnabled": True,
            "metadataConfiguration": {"mode": "USER_PROVISIONED", "iops": 12000},
            "logConfiguration": {"level": "WARN_ERROR"},
        },
        outputs={"id": "fs-sim"},
        dependencies=own,
        protect=True,
    )
    bucket = {"bucket": "sim-data"}
    program.add(
        "bucket",
        "aws:s3/bucket:Bucket",
        {"forceDestroy": False},
        outputs={"id": "sim-data", **bucket},
        protect=True,
        retain_on_delete=True,
    )
    events = {"events": ["NEW", "CHANGED", "DELETED"]}
    program.add(
        "link",
        "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation",
        {
            "fileSystemId": "fs-sim",
            "dataRepositoryPath": "s3://sim-data",
            "s3": {"autoImportPolicy": dict(events), "autoExportPolicy": dict(events)},
        },
    )
    switches = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
    program.add(
        "access-block",
        "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
        {**bucket, **dict.fromkeys(switches, True)},
    )
    kms = {"sseAlgorithm": "aws:kms", "kmsMasterKeyId": "arn:key"}
    program.add(
        "encryption",
        "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
        {**bucket, "rules": [{"applyServerSideEncryptionByDefault": kms, "bucketKeyEnabled": True}]},
    )
    program.add(
        "versioning",
        "aws:s3/bucketVersioning:BucketVersioning",
        {**bucket, "versioningConfiguration": {"status": "Enabled"}},
    )
    program.add(
        "lifecycle",
        "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
        {**bucket, "rules": [{"id": "old-versions", "status": "Enabled"}]},
    )
    deny = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": "arn:aws:s3:::sim-data/*",
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    program.add("bucket-policy", "aws:s3/bucketPolicy:BucketPolicy", {**bucket, "policy": policy(deny)})
    for name, namespace, mounted in (
        ("volume", "training", "abcde/training"),
        ("volume-vision", "vision", "abcde/vision"),
        ("setup-volume", "lustre-setup", "abcde"),
    ):
        attributes = {"dnsname": "fs-1.fsx.us-west-2.amazonaws.com", "mountname": mounted}
        spec = {
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": namespace, "name": "fsx-claim"},
            "csi": {"driver": "fsx.csi.aws.com", "volumeAttributes": attributes},
        }
        program.add(name, "kubernetes:core/v1:PersistentVolume", {"spec": spec})


def _kubernetes(program: Program) -> None:
    program.add("team", "trainium-eks:index:TrainingNamespace", custom=False)
    team = program["team"].urn
    enforce = "pod-security.kubernetes.io/enforce"
    for name, level in (("training", "baseline"), ("volcano-system", "baseline"), ("lustre-setup", "baseline")):
        program.add(
            f"namespace-{name}",
            "kubernetes:core/v1:Namespace",
            {"metadata": {"name": name, "labels": {enforce: level}}},
            parent=team if name == "training" else STACK_URN,
        )
    within = {"namespace": "training"}
    program.add(
        "deny",
        "kubernetes:networking.k8s.io/v1:NetworkPolicy",
        {"metadata": {"name": "deny", **within}, "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}},
    )
    program.add(
        "within",
        "kubernetes:networking.k8s.io/v1:NetworkPolicy",
        {
            "metadata": {"name": "within", **within},
            "spec": {
                "podSelector": {},
                "policyTypes": ["Ingress", "Egress"],
                "ingress": [{"from": [{"podSelector": {}}]}],
                "egress": [{"to": [{"podSelector": {}}]}],
            },
        },
    )
    program.add(
        "account",
        "kubernetes:core/v1:ServiceAccount",
        {"metadata": {"name": "trainer", **within}, "automountServiceAccountToken": False},
    )
    program.add(
        "researchers",
        "kubernetes:rbac.authorization.k8s.io/v1:Role",
        {
            "metadata": {"name": "researcher", **within},
            "rules": [{"apiGroups": ["batch.volcano.sh"], "resources": ["jobs"], "verbs": ["create", "get"]}],
        },
    )
    program.add(
        "researchers-binding",
        "kubernetes:rbac.authorization.k8s.io/v1:RoleBinding",
        {
            "metadata": {"name": "researchers", **within},
            "roleRef": {"kind": "Role", "name": "researcher"},
            "subjects": [{"kind": "Group", "name": "training:researchers"}],
        },
    )
    program.add(
        "closed",
        "kubernetes:networking.k8s.io/v1:NetworkPolicy",
        {
            "metadata": {"name": "deny-all", "namespace": "lustre-setup"},
            "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
        },
    )
    entry = {"principalArn": "arn:aws:iam::111122223333:role/team", "kubernetesGroups": ["training:researchers"]}
    program.add("entry", "aws:eks/accessEntry:AccessEntry", entry)
    program.add(
        "images",
        "aws:ecr/repository:Repository",
        {
            "imageTagMutability": "IMMUTABLE",
            "imageScanningConfiguration": {"scanOnPush": True},
            "encryptionConfigurations": [{"encryptionType": "KMS", "kmsKey": "arn:key"}],
            "forceDelete": False,
        },
    )
    _isolation(program)
    program.add(
        "team-role", "aws:iam/role:Role", {"assumeRolePolicy": POD_TRUST}, outputs={"name": "team", "arn": "arn:team"}
    )
    statement = {"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": "arn:aws:s3:::sim-data/training/*"}
    program.add("team-policy", "aws:iam/rolePolicy:RolePolicy", {"role": "team", "policy": policy(statement)})
    program.add(
        "team-identity",
        "aws:eks/podIdentityAssociation:PodIdentityAssociation",
        {"namespace": "training", "serviceAccount": "trainer", "roleArn": "arn:team"},
    )
    amounts = {"requests": {"cpu": "50m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}}
    container = {"name": "setup", "image": f"public.ecr.aws/busybox:1.37.0@sha256:{'0' * 64}", "resources": amounts}
    program.add(
        "setup",
        "kubernetes:batch/v1:Job",
        {
            "metadata": {"name": "setup", "namespace": "lustre-setup"},
            "spec": {"template": {"spec": {"automountServiceAccountToken": False, "containers": [container]}}},
        },
    )
    program.add(
        "gp3",
        "kubernetes:storage.k8s.io/v1:StorageClass",
        {"provisioner": "ebs.csi.aws.com", "parameters": {"type": "gp3", "encrypted": "true"}},
    )


def _isolation(program: Program) -> None:
    pod_fields = "schedulerName nodeName tolerations priorityClassName resourceClaims volumes ephemeral"
    held_by = "finalizers ownerReferences annotations labels"
    for name, group, resource, fields in (
        ("pods", "", "pods", pod_fields),
        ("jobs", "batch.volcano.sh", "jobs", f"{pod_fields} object.spec.queue volumeClaim"),
        ("groups", "scheduling.volcano.sh", "podgroups", "queue priorityClassName"),
        ("commands", "bus.volcano.sh", "commands", "target"),
        ("batch", "batch", "jobs", f"{pod_fields} parallelism"),
        ("cron", "batch", "cronjobs", f"{pod_fields} parallelism"),
        ("deployments", "apps", "deployments", f"{pod_fields} replicas"),
        ("volcano-cron", "batch.volcano.sh", "cronjobs", f"{pod_fields} queue"),
        ("flows", "flow.volcano.sh", "jobflows", "flows"),
        ("pytorch", "kubeflow.org", "pytorchjobs", f"{pod_fields} queue"),
        ("train-jobs", "trainer.kubeflow.org", "trainjobs", pod_fields),
        ("runtimes", "trainer.kubeflow.org", "trainingruntimes", f"{pod_fields} podGroupPolicy"),
        ("scale", "*", "*/scale", "replicas"),
        ("services", "", "services", "externalIPs"),
        ("metadata", "batch.volcano.sh", "jobs", held_by),
        ("deletions", "", "pods", "gracePeriodSeconds"),
    ):
        operations = ["DELETE"] if name == "deletions" else ["CREATE", "UPDATE"]
        matched = {"apiGroups": [group], "resources": [resource], "operations": operations}
        spec = {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [matched]},
            "variables": [],
            "validations": [{"expression": f"about(object, {fields})", "message": "no"}],
        }
        metadata = {"metadata": {"name": f"guard-{name}"}}
        kind = "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy"
        program.add(f"guard-{name}", kind, {**metadata, "spec": spec})
        selector = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "training"}}}
        binding = {"policyName": f"guard-{name}", "validationActions": ["Deny"], "matchResources": selector}
        bound = program.add(f"bound-{name}", f"{kind}Binding", {**metadata, "spec": binding})
        program["researchers-binding"].dependencies.append(bound.urn)
    hard = {
        "pods": "500",
        "count/jobs.batch.volcano.sh": "500",
        "requests.cpu": "500",
        "requests.memory": "1Ti",
        "requests.storage": "1Ti",
    }
    own = {"name": "SETTINGS", "value": json.dumps({"pools": {each: {} for each in ("base", "block", "gpu", "trn1n")}})}
    amounts = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "64Mi"}}
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {"name": "gate", "image": "python@sha256:" + 64 * "0", "env": [own], "resources": amounts}
    pod = {
        "automountServiceAccountToken": False,
        "containers": [{**container, "securityContext": security}],
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    program.add(
        "gate",
        "kubernetes:apps/v1:Deployment",
        {"metadata": {"name": "fabric-gate", "namespace": "fabric-gate"}, "spec": {"template": {"spec": pod}}},
    )
    program.add(
        "quota",
        "kubernetes:core/v1:ResourceQuota",
        {"metadata": {"name": "team", "namespace": "training"}, "spec": {"hard": hard}},
    )
    program.add(
        "high",
        "kubernetes:scheduling.k8s.io/v1:PriorityClass",
        {"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never", "globalDefault": False},
    )


def _scheduling(program: Program) -> None:
    amounts = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}
    custom: dict[str, Any] = {
        "leader_elect_enable": True,
        "scheduler_config_override": 'actions: "enqueue, allocate, backfill"\n'
        "tiers: [{plugins: [{name: gang}, {name: resourcequota}]}]\n",
    }
    for component in ("scheduler", "controller", "admission"):
        custom[f"{component}_replicas"] = 2
        custom[f"{component}_resources"] = amounts
        program.add(
            f"pdb-{component}",
            "kubernetes:policy/v1:PodDisruptionBudget",
            {
                "metadata": {"name": component, "namespace": "volcano-system"},
                "spec": {"selector": {"matchLabels": {"app": f"volcano-{component}"}}},
            },
        )
    release(program, "volcano", "volcano-system", {"basic": {"image_tag_version": "v1.15.0"}, "custom": custom})
    for name, guarantee in (("a", 32), ("b", 16)):
        program.add(
            f"queue-{name}",
            "kubernetes:scheduling.volcano.sh/v1beta1:Queue",
            {
                "metadata": {"name": name},
                "spec": {
                    "capability": {"aws.amazon.com/neuron": 128, "vpc.amazonaws.com/efa": 64},
                    "deserved": {"aws.amazon.com/neuron": 64},
                    "guarantee": {"resource": {"aws.amazon.com/neuron": guarantee}},
                },
            },
        )
    tolerations = [{"key": "aws.amazon.com/neuron", "operator": "Exists", "effect": "NoSchedule"}]
    plugin = {"tolerations": tolerations, "resources": amounts}
    npd = {"enabled": False, "nodeRecovery": {"enabled": False}}
    neuron = {"neuronInstances": ["trn1.32xlarge", "trn1n.32xlarge"], "devicePlugin": plugin, "npd": npd}
    release(program, "oci://public.ecr.aws/neuron/neuron-helm-chart", "kube-system", neuron, "1.10.0")
    efa = {"supportedInstanceLabels": {"keys": [], "values": ["trn1.32xlarge", "trn1n.32xlarge"]}, **plugin}
    release(program, "aws-efa-k8s-device-plugin", "kube-system", efa, "v0.5.30")
    monitor = {"instanceTypes": ["trn1.32xlarge", "trn1n.32xlarge"], "tolerations": tolerations}
    release(program, "./charts/neuron-monitor", "neuron-monitor", monitor, None)
    release(program, "./charts/torchx-etcd", "torchx-etcd", {"image": "quay.io/coreos/etcd:v3.5.24"}, None)
    _autoscaling(program, amounts)


def _autoscaling(program: Program, amounts: dict[str, Any]) -> None:
    """Cluster Autoscaler that serves the group `base`."""
    values = {
        "awsRegion": "us-west-2",
        "autoDiscovery": {"clusterName": "trn-1", "tags": ["served={{ .Values.autoDiscovery.clusterName }}"]},
        "resources": amounts,
    }
    release(program, "cluster-autoscaler", "cluster-autoscaler", values, "9.59.0")
    template = "k8s.io/cluster-autoscaler/node-template"
    tags = {
        "served": "trn-1",
        f"{template}/resources/aws.amazon.com/neuron": "16",
        f"{template}/resources/vpc.amazonaws.com/efa": "8",
        f"{template}/taint/aws.amazon.com/neuron": "true:NoSchedule",
        f"{template}/autoscaling-options/scaledownutilizationthreshold": "0",
        f"{template}/autoscaling-options/ignoredaemonsetsutilization": "true",
    }
    for key, value in tags.items():
        program.add(
            f"tag-{key.rpartition('/')[2]}" if "taint" not in key else "tag-taint",
            "aws:autoscaling/tag:Tag",
            {"autoscalingGroupName": "eks-base-0123", "tag": {"key": key, "value": value, "propagateAtLaunch": False}},
            property_dependencies={"autoscalingGroupName": (program["base"].urn,)},
        )
    program.add(
        "autoscaler-role",
        "aws:iam/role:Role",
        {"assumeRolePolicy": POD_TRUST},
        outputs={"name": "autoscaler", "arn": "arn:autoscaler"},
    )
    scaling = {
        "Effect": "Allow",
        "Action": ["autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"],
        "Resource": "arn:aws:autoscaling:us-west-2:*:autoScalingGroup:*:autoScalingGroupName/eks-*",
        "Condition": {"StringEquals": {"aws:ResourceTag/served": "trn-1"}},
    }
    program.add("autoscaler-policy", "aws:iam/rolePolicy:RolePolicy", {"role": "autoscaler", "policy": policy(scaling)})
    identity = {"namespace": "cluster-autoscaler", "serviceAccount": "cluster-autoscaler", "roleArn": "arn:autoscaler"}
    program.add("autoscaler-identity", "aws:eks/podIdentityAssociation:PodIdentityAssociation", identity)
    _karpenter(program, amounts)


def _karpenter(program: Program, amounts: dict[str, Any]) -> None:
    """Karpenter that starts CPU nodes, and trn1n nodes, of which there is no group."""
    values = {"settings": {"interruptionQueue": "interruptions"}, "controller": {"resources": amounts}}
    release(program, "oci://public.ecr.aws/karpenter/karpenter", "karpenter", values, "1.14.1")
    disk = {"deviceName": "/dev/xvda", "ebs": {"encrypted": True, "kmsKeyID": "arn:key", "volumeSize": "100Gi"}}
    node_class = {
        "amiSelectorTerms": [{"alias": "al2023@v20260930"}],
        "associatePublicIPAddress": False,
        "metadataOptions": {"httpTokens": "required", "httpPutResponseHopLimit": 1},
        "blockDeviceMappings": [disk],
        "subnetSelectorTerms": [{"id": "subnet-private-az4"}],
        "tags": {"ebs.csi.aws.com/cluster-name": "trn-1"},
    }
    taints = [{"key": "aws.amazon.com/neuron", "value": "true", "effect": "NoSchedule"}]
    gate = [{"key": "trainium-eks/fabric-untested", "value": "true", "effect": "NoSchedule"}]
    for name, type_, cpus, own in (
        ("small", "m6i.xlarge", 8, {}),
        ("trn1n", "trn1n.32xlarge", 128, {"taints": taints, "startupTaints": gate}),
    ):
        metadata = {"metadata": {"name": name}}
        kind = "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass"
        program.add(f"class-{name}", kind, {**metadata, "spec": json.loads(json.dumps(node_class))})
        requirement = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [type_]}
        spec = {"nodeClassRef": {"name": name}, "requirements": [requirement], "expireAfter": "Never", **own}
        pool = {
            "template": {"spec": spec},
            "limits": {"cpu": str(cpus)},
            "disruption": {"consolidationPolicy": "WhenEmpty"},
        }
        program.add(f"pool-{name}", "kubernetes:karpenter.sh/v1:NodePool", {**metadata, "spec": pool})


def _observability(program: Program) -> None:
    program.add(
        "workspace",
        "aws:amp/workspace:Workspace",
        {"kmsKeyArn": "arn:key"},
        outputs={"arn": "arn:aws:aps:us-west-2:000000000000:workspace/ws-1"},
    )
    program.add("dashboards", "aws:grafana/workspace:Workspace", {"authenticationProviders": ["AWS_SSO"]})
    home = {"app.kubernetes.io/name": "monitoring"}
    for name in ("monitoring", "log-shipping"):
        labels = {**home, "pod-security.kubernetes.io/enforce": "privileged"}
        program.add(name, "kubernetes:core/v1:Namespace", {"metadata": {"name": name, "labels": labels}})
    program.add(
        "monitoring-ingress",
        "kubernetes:networking.k8s.io/v1:NetworkPolicy",
        {
            "metadata": {"name": "ingress", "namespace": "monitoring"},
            "spec": {
                "podSelector": {},
                "policyTypes": ["Ingress"],
                "ingress": [{"from": [{"podSelector": {}}]}, {"ports": [{"port": 10250, "protocol": "TCP"}]}],
            },
        },
    )
    amounts = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}
    here = {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}
    spec = {
        f"{kind}NamespaceSelector": here for kind in ("rule", "serviceMonitor", "podMonitor", "probe", "scrapeConfig")
    }
    claim = {"volumeClaimTemplate": {"spec": {"resources": {"requests": {"storage": "50Gi"}}}}}
    release(
        program,
        "kube-prometheus-stack",
        "monitoring",
        {
            "prometheus": {
                "prometheusSpec": {
                    **spec,
                    "storageSpec": claim,
                    "resources": amounts,
                    "nodeSelector": {"trainium-eks/pool": "base"},
                }
            },
            "grafana": {"service": {"type": "ClusterIP"}, "ingress": {"enabled": False}, "grafana.ini": {}},
        },
        "88.5.3",
    )
    logs = program.add(
        "container-logs",
        "aws:cloudwatch/logGroup:LogGroup",
        {"name": "/trainium-eks/trn-1/containers", "retentionInDays": 90, "kmsKeyId": "arn:key"},
    )
    output = "[OUTPUT]\n    Name cloudwatch_logs\n    auto_create_group Off\n"
    values = {"config": {"outputs": output}, "resources": amounts}
    release(program, "fluent-bit", "log-shipping", values, "0.58.1").dependencies.append(logs.urn)
    for name, action, resource in (
        ("prometheus", "aps:RemoteWrite", "arn:aws:aps:us-west-2:000000000000:workspace/ws-1"),
        (
            "shipper",
            "logs:PutLogEvents",
            "arn:aws:logs:us-west-2:000000000000:log-group:/trainium-eks/trn-1/containers:*",
        ),
    ):
        arn = f"arn:{name}"
        program.add(f"{name}-role", "aws:iam/role:Role", {"assumeRolePolicy": POD_TRUST}, outputs={"arn": arn})
        statement = {"Effect": "Allow", "Action": [action], "Resource": resource}
        program.add(f"{name}-policy", "aws:iam/rolePolicy:RolePolicy", {"role": name, "policy": policy(statement)})


def release(
    program: Program, chart: str, namespace: str, values: dict[str, Any], version: str | None = "1.15.0"
) -> Entry:
    """Adds a Helm release, found by its chart's name."""
    inputs: dict[str, Any] = {
        "chart": chart,
        "namespace": namespace,
        "values": values,
        "name": chart.rpartition("/")[2],
    }
    if version is not None:
        inputs["version"] = version
    return program.add(chart.rpartition("/")[2], "kubernetes:helm.sh/v3:Release", inputs)
