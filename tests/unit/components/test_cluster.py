import base64
import json

import pulumi
import pytest
from dry_run import planned_alike
from iam_evaluation import allowed, managed
from unit.components.parts import IAM_ROLE, INGRESS, of_kind, one, statements

from components._args import ArgumentError
from components.cluster import TrainiumCluster
from trainium_eks.model.catalogue import addon_records, versions
from trainium_eks.model.config.stack_config import StackConfig
from trainium_eks.model.sizing import addresses
from trainium_eks.operate.preflight.deploy_rights import IamRequest

EKS = "aws:eks/cluster:Cluster"
CONTROL_PLANE = "eks:index:Cluster"
KEY_ARN = "arn:aws:kms:us-west-2:000000000000:key/k"
ZONES = ("usw2-az4", "usw2-az1", "usw2-az2", "usw2-az3")
SUBNETS = {zone: f"subnet-00000ac{zone[-1]}" for zone in ZONES}
DEFAULT_GROUPS = StackConfig(region="us-west-2", owner="me").node_groups
PINNED = addon_records.pinned(versions.KUBERNETES)


def wiring(zones=2, **args):
    return {
        "region": "us-west-2",
        "vpc_id": "vpc-0123456789abcdef0",
        "subnet_ids_by_zone": {zone: SUBNETS[zone] for zone in ZONES[:zones]},
        "kms_key_arn": KEY_ARN,
        "endpoint": {"private_access_via": "vpc"},
        **args,
    }


def built(record, zones=2, **args):
    return planned_alike(record, lambda: TrainiumCluster("trn", wiring(zones, **args)))


def addons(graph):
    return {each.inputs["addonName"]: each for each in of_kind(graph, "Addon")}


def groups(graph):
    return {each.name: each for each in of_kind(graph, "NodeGroup")}


def test_control_plane_is_pulumi_eks_with_its_other_features_off(record):
    account = "arn:aws:iam::123456789012"
    principals = [f"{account}:role/ops/admin", f"{account}:role/ops-admin", f"{account}:user/ops-admin"]
    graph = built(record, log_retention_days=90, admin_principals=principals)
    inputs = one(graph, CONTROL_PLANE).inputs
    assert inputs["authenticationMode"] == "API"
    on = ("skipDefaultNodeGroup", "skipDefaultSecurityGroups", "useDefaultVpcCni")
    off = ("createInstanceRole", "createOidcProvider", "bootstrapSelfManagedAddons")
    assert [inputs[name] for name in (*on, *off)] == [True] * 3 + [False] * 3
    for name in ("corednsAddonOptions", "kubeProxyAddonOptions"):
        assert inputs[name]["enabled"] is False
    inputs = one(graph, EKS).inputs
    assert set(inputs["enabledClusterLogTypes"]) == {"api", "audit", "authenticator", "controllerManager", "scheduler"}
    assert inputs["encryptionConfig"] == {"provider": {"keyArn": KEY_ARN}, "resources": ["secrets"]}
    assert inputs["version"] == versions.KUBERNETES
    assert inputs["upgradePolicy"] == {"supportType": "STANDARD"}
    assert inputs["kubernetesNetworkConfig"]["serviceIpv4Cidr"] == "172.20.0.0/16"
    # The log group has the cluster's name, which is new each time.
    group = one(graph, "LogGroup").inputs
    assert group["name"] == f"/aws/eks/{inputs['name']}/cluster"
    assert (group["retentionInDays"], group["kmsKeyId"]) == (90, KEY_ARN)
    assert inputs["name"] == one(graph, IAM_ROLE, "trn-eks").outputs["name"] != "trn-eks"
    # Administrators get an entry and the cluster's admin policy.
    assert {each.inputs["principalArn"] for each in of_kind(graph, "AccessEntry")} == set(principals)
    policies = {each.inputs["policyArn"] for each in of_kind(graph, "AccessPolicyAssociation")}
    assert policies == {"arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"}
    # Without a key the cluster makes one and uses it everywhere.
    graph = built(record, kms_key_arn=None)
    key = one(graph, "Key").outputs["arn"]
    assert one(graph, EKS).inputs["encryptionConfig"]["provider"]["keyArn"] == key
    assert one(graph, "LogGroup").inputs["kmsKeyId"] == key
    assert one(graph, "TrainiumCluster").outputs["kms_key_arn"] == key
    assert not of_kind(built(record), "Key")
    # Logs that are taken out of the config are turned off, and EKS makes no group for them.
    graph = built(record, logs=False)
    assert (one(graph, EKS).inputs["enabledClusterLogTypes"], of_kind(graph, "LogGroup")) == ([], ())


@pytest.mark.parametrize(
    ("endpoint", "opened"),
    [
        ({"public_access_cidrs": ["203.0.113.0/24"]}, []),
        ({"public_access_cidrs": ["203.0.113.0/24"], "private_access_via": "vpc"}, ["10.0.0.0/16", "10.200.0.0/16"]),
        ({"private_access_via": "peers"}, ["10.0.0.0/16", "10.200.0.0/16"]),
    ],
)
def test_api_endpoint_is_open_to_named_ranges_and_privately_to_the_vpc(record, endpoint, opened):
    """Its interfaces are in a group that admits only its members, to which a deployment runner does not belong."""
    peers = ("10.200.0.0/16",)
    graph = built(record, vpc_cidr_block="10.0.0.0/16", peer_cidr_blocks=peers, endpoint=endpoint)
    network, public = one(graph, EKS).inputs["vpcConfig"], endpoint.get("public_access_cidrs")
    assert (network["endpointPrivateAccess"], network["endpointPublicAccess"]) == (True, bool(public))
    assert network.get("publicAccessCidrs") == public
    assert network["subnetIds"] == ["subnet-00000ac4", "subnet-00000ac1"]
    rules = of_kind(graph, INGRESS)
    assert sorted(each.inputs["cidrIpv4"] for each in rules) == opened
    provider = one(graph, "pulumi:providers:kubernetes", "trn-kubernetes")
    for rule in rules:
        assert rule.inputs["securityGroupId"] == one(graph, EKS).outputs["vpcConfig"]["clusterSecurityGroupId"]
        assert (rule.inputs["ipProtocol"], rule.inputs["fromPort"], rule.inputs["toPort"]) == ("tcp", 443, 443)
        assert rule.urn in provider.dependencies, "nothing uses the API before it is open"


@pytest.mark.parametrize(
    ("args", "protected"),
    [
        ({}, False),
        ({"production": True}, True),
        ({"deletion_protection": True}, True),
        ({"production": True, "deletion_protection": False, "waivers": {"R06": "a rehearsal"}}, False),
    ],
)
def test_production_is_protected_unless_waived(record, args, protected):
    cluster = one(built(record, **args), EKS)
    assert cluster.inputs["deletionProtection"] is protected
    assert cluster.options.protect is bool(args.get("production"))


def test_the_kubeconfig_is_secret_holds_no_credential_and_names_the_region(record):
    known = []

    def program():
        cluster = TrainiumCluster("trn", wiring())
        pulumi.export("kubeconfig", cluster.kubeconfig)
        pulumi.Output.unsecret(cluster.kubeconfig).apply(known.append)

    graph = record(program)
    assert graph.outputs["kubeconfig"] == "[secret]"
    config, cluster = json.loads(known[0]), one(graph, EKS).outputs
    authority = cluster["certificateAuthority"]["data"]
    wanted = {"server": cluster["endpoint"], "certificate-authority-data": authority}
    assert config["clusters"][0]["cluster"] == wanted
    user = config["users"][0]["user"]
    assert (set(user), user["exec"]["command"]) == ({"exec"}, "aws")
    arguments = " ".join(user["exec"]["args"])
    assert arguments == f"--region us-west-2 eks get-token --cluster-name {cluster['name']} --output json"
    assert config["current-context"] == config["contexts"][0]["name"]


@pytest.mark.parametrize("version", ["1.34", "1.35", "1.36"])
def test_every_add_on_is_pinned_and_overwrites_conflicts(record, version):
    own, pinned = "v1.14.4-eksbuild.1", addon_records.pinned(version)
    graph = built(record, kubernetes_version=version, waivers={"R05": "tried"}, addons={"coredns": {"version": own}})
    found = addons(graph)
    assert {name: each.inputs["addonVersion"] for name, each in found.items()} == {**pinned, "coredns": own}
    for each in found.values():
        assert each.inputs["resolveConflictsOnCreate"] == each.inputs["resolveConflictsOnUpdate"] == "OVERWRITE"


def test_users_add_on_is_installed_after_the_nodes_with_its_role(record):
    policy = "arn:aws:iam::111122223333:policy/snapshots"
    identity = {"service_account": "snapshots", "namespace": "storage", "policies": {"snapshots": policy}}
    own = {"version": "v8.3.0-eksbuild.1", "settings": {"replicaCount": 2}, "identity": identity}
    graph = built(record, addons={"snapshot-controller": own})
    made = addons(graph)["snapshot-controller"]
    assert made.inputs["addonVersion"] == "v8.3.0-eksbuild.1"
    assert json.loads(made.inputs["configurationValues"]) == {"replicaCount": 2}
    association = one(graph, "PodIdentityAssociation", "snapshot-controller")
    assert {groups(graph)["trn-system-nodes"].urn, association.urn} <= set(made.dependencies)
    assert (association.inputs["namespace"], association.inputs["serviceAccount"]) == ("storage", "snapshots")
    assert policy in [each.inputs["policyArn"] for each in of_kind(graph, "RolePolicyAttachment")]


def test_name_too_long_for_the_cluster_or_a_role_is_refused(record):
    # 56 characters, of which amazon-cloudwatch-observability and a dash take 32.
    given = {"addons": {"amazon-cloudwatch-observability": {}}, "node_groups": []}
    wrong = {**dict.fromkeys(("t" * 37, "my cluster", "-trn"), "component's name"), "c" * 25: "shorter name"}
    for name, said in wrong.items():
        with pytest.raises(ArgumentError, match=said):
            record(lambda: TrainiumCluster(name, wiring(**given)))  # noqa: B023
    assert of_kind(record(lambda: TrainiumCluster("c" * 24, wiring(**given))), "Addon")


def test_volume_driver_has_its_region_set(record):
    """With a hop limit of one it cannot ask the metadata service; EKS refuses a key that an add-on's schema lacks."""
    graph = built(record, addons={"vpc-cni": {"settings": {"env": {"AWS_VPC_K8S_CNI_LOGLEVEL": "DEBUG"}}}})
    configured = {name: addon.inputs.get("configurationValues") for name, addon in addons(graph).items()}
    gpus = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    # As many addresses as the budget counts, and what a user lays over the stack's settings.
    addresses_of_a_node = {
        "WARM_IP_TARGET": str(addresses.PODS.warm),
        "MINIMUM_IP_TARGET": str(addresses.PODS.minimum),
        "ENABLE_PREFIX_DELEGATION": "false",
        "AWS_VPC_K8S_CNI_LOGLEVEL": "DEBUG",
    }
    assert {name: json.loads(values) for name, values in configured.items() if values} == {
        "aws-ebs-csi-driver": {"controller": {"region": "us-west-2"}},
        "vpc-cni": {"enableNetworkPolicy": "true", "env": addresses_of_a_node},
        # Without it the agent calls every GPU node broken; also on a cluster whose GPU groups come later.
        "eks-node-monitoring-agent": {"dcgmAgent": {"tolerations": [gpus]}},
    }


def test_each_controller_has_its_own_role_by_pod_identity(record):
    graph = built(record)
    roles = {each.outputs["arn"]: each for each in of_kind(graph, IAM_ROLE)}
    associations = [each.inputs for each in of_kind(graph, "PodIdentityAssociation")]
    taken = {each["serviceAccount"]: roles[each["roleArn"]] for each in associations}
    assert {account: role.name for account, role in taken.items()} == {
        "aws-node": "trn-vpc-cni",
        "ebs-csi-controller-sa": "trn-aws-ebs-csi-driver",
        "fsx-csi-controller-sa": "trn-aws-fsx-csi-driver",
    }
    for role in taken.values():
        (statement,) = json.loads(role.inputs["assumeRolePolicy"])["Statement"]
        assert statement["Principal"] == {"Service": "pods.eks.amazonaws.com"}
    # The driver of file systems makes and deletes none unless asked for.
    for on_demand, driver in ((False, graph), (True, built(record, file_systems_on_demand=True))):
        granted = json.dumps(statements(driver, "-aws-fsx-csi-driver"))
        for action in ("fsx:CreateFileSystem", "fsx:DeleteFileSystem"):
            assert (action in granted) is on_demand
        assert "fsx:DescribeFileSystems" in granted


def test_volume_driver_manages_only_its_clusters_volumes(record):
    """AWS' policy compares volumes' tags with the session's, which Pod Identity brings (aws-ebs-csi-driver#2918)."""
    graph = built(record)
    role = one(graph, IAM_ROLE, "aws-ebs-csi-driver").outputs["name"]
    attachments = [each.inputs for each in of_kind(graph, "RolePolicyAttachment")]
    (attached,) = (each["policyArn"] for each in attachments if each["role"] == role)
    document = managed(attached.rpartition("/")[2])
    volume = "arn:aws:ec2:us-west-2:123456789012:volume/vol-1"
    for cluster in ("own", "another"):
        context = {"aws:PrincipalTag/eks-cluster-name": "own", "ec2:ResourceTag/ebs.csi.aws.com/cluster-name": cluster}
        assert allowed(IamRequest("ec2:DeleteVolume", volume, context), [document]) is (cluster == "own")
    association = one(graph, "PodIdentityAssociation", "aws-ebs-csi-driver")
    assert not association.inputs.get("disableSessionTags")
    # The first release that writes the tag.
    assert tuple(map(int, PINNED["aws-ebs-csi-driver"][1:].split("-")[0].split("."))) >= (1, 58, 0)


@pytest.mark.parametrize("zones", [2, 3, 4])
def test_system_nodes_are_one_group_across_all_zones(record, zones):
    made = groups(built(record, zones))
    system, cpu = made["trn-system-nodes"].inputs, made["trn-cpu-nodes"].inputs
    assert system["subnetIds"] == [SUBNETS[zone] for zone in ZONES[:zones]]
    assert system["scalingConfig"] == {"minSize": zones, "maxSize": 3 * zones, "desiredSize": zones}
    assert system["labels"] == {"trainium-eks/pool": "system"}
    assert "taints" not in system
    # A small CPU pool is beside the accelerators.
    assert (cpu["subnetIds"], cpu["instanceTypes"]) == (["subnet-00000ac4"], ["m6i.xlarge"])
    assert cpu["scalingConfig"] == {"minSize": 0, "maxSize": 4, "desiredSize": 1}


@pytest.mark.parametrize("name", ["trn-system", "trn-cpu"])
def test_cpu_nodes_have_the_same_hardening_and_the_clusters_group(record, name):
    graph = built(record, tags={"Owner": "me"}, lustre_network="tcp")
    template, group = one(graph, "LaunchTemplate", f"{name}-template").inputs, groups(graph)[f"{name}-nodes"].inputs
    metadata, volume = template["metadataOptions"], template["blockDeviceMappings"][0]["ebs"]
    assert (metadata["httpTokens"], metadata["httpPutResponseHopLimit"]) == ("required", 1)
    assert (volume["encrypted"], volume["volumeType"], volume["kmsKeyId"]) == ("true", "gp3", KEY_ARN)
    assert not {"vpcSecurityGroupIds", "networkInterfaces", "imageId"} & set(template)
    script = base64.b64decode(template["userData"]).decode()
    assert "dnf install --assumeyes lustre-client" in script, "every node mounts the file system"
    assert all(each["tags"]["Owner"] == "me" for each in template["tagSpecifications"])
    assert group["amiType"] == "AL2023_x86_64_STANDARD"
    assert group["releaseVersion"] == versions.AMI_RELEASES[versions.KUBERNETES]
    assert group["nodeRepairConfig"] == {"enabled": True}


def test_accelerator_groups_and_volumes_are_in_the_right_zone(record):
    first = {"name": "a", "instance_type": "trn1.32xlarge"}
    graph = built(record, node_groups=[first, {**first, "name": "b", "zone_id": "usw2-az1"}])
    found = [groups(graph)[f"trn-{name}-nodes"].inputs["subnetIds"] for name in ("a", "b")]
    assert found == [["subnet-00000ac4"], ["subnet-00000ac1"]]
    storage = one(graph, "StorageClass").inputs
    assert storage["metadata"]["annotations"] == {"storageclass.kubernetes.io/is-default-class": "true"}
    assert storage["provisioner"] == "ebs.csi.aws.com"
    assert storage["parameters"] == {"type": "gp3", "encrypted": "true", "kmsKeyId": KEY_ARN}
    assert storage["volumeBindingMode"] == "WaitForFirstConsumer"


def test_outputs_name_the_cluster_and_its_groups(record):
    found = {}

    def program():
        cluster = TrainiumCluster("trn", wiring(node_groups=DEFAULT_GROUPS))
        found.update({name: group.instance.name for name, group in cluster.groups.items()})

    graph = record(program)
    assert found == {"trn1-32xl-ng1": "trn1.32xlarge", "trn1n-32xl-ng": "trn1n.32xlarge"}
    outputs, cluster = one(graph, "TrainiumCluster").outputs, one(graph, EKS).outputs
    assert [outputs[f"cluster_{name}"] for name in ("name", "arn")] == [cluster["name"], cluster["arn"]]
    assert (outputs["endpoint"], outputs["kubeconfig"]) == (cluster["endpoint"], "[secret]")
    assert outputs["cluster_security_group_id"] == cluster["vpcConfig"]["clusterSecurityGroupId"]
    names = {name: groups(graph)[f"trn-{name}-nodes"].outputs["nodeGroupName"] for name in found}
    assert outputs["node_group_names"] == names
