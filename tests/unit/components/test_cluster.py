import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

import kubernetes_validate
import pulumi
import pulumi_aws as aws
import pytest
from dry_run import planned_alike
from iam_evaluation import IamRequest, allowed, managed

from components._args import ArgumentError
from components.cluster import TrainiumCluster
from components.encryption_key import EncryptionKey
from components.network import Network
from trainium_eks.model.catalogue import addon_records, versions
from trainium_eks.model.config.stack_config import StackConfig
from trainium_eks.model.sizing import addresses
from trainium_eks.plan.edges import check_edges
from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.order import order

EKS = "aws:eks/cluster:Cluster"
CONTROL_PLANE = "eks:index:Cluster"
ADDON = "aws:eks/addon:Addon"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
LOG_GROUP = "aws:cloudwatch/logGroup:LogGroup"
ROLE = "aws:iam/role:Role"
ROLE_POLICY = "aws:iam/rolePolicy:RolePolicy"
ATTACHMENT = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
ASSOCIATION = "aws:eks/podIdentityAssociation:PodIdentityAssociation"
CLUSTER = "trainium-eks:index:TrainiumCluster"
GROUP = "trainium-eks:index:AcceleratorNodeGroup"
STORAGE_CLASS = "kubernetes:storage.k8s.io/v1:StorageClass"
KEY_ARN = "arn:aws:kms:us-west-2:000000000000:key/k"
ZONES = ("usw2-az4", "usw2-az1", "usw2-az2", "usw2-az3")
DEFAULT_GROUPS = StackConfig(region="us-west-2", owner="me").node_groups
BEFORE_NODES = {"vpc-cni", "kube-proxy", "eks-pod-identity-agent"}
PINNED = addon_records.pinned(versions.KUBERNETES)
AFTER_NODES = set(PINNED) - BEFORE_NODES
Record = Callable[..., Graph]


def wiring(zones: int = 2, **args: Any) -> dict[str, Any]:
    return {
        "region": "us-west-2",
        "vpc_id": "vpc-0123456789abcdef0",
        "subnet_ids_by_zone": {zone: f"subnet-of-{zone}" for zone in ZONES[:zones]},
        "kms_key_arn": KEY_ARN,
        "endpoint": {"private_access_via": "vpc"},
        **args,
    }


def built(record: Record, zones: int = 2, **args: Any) -> Graph:
    return planned_alike(record, lambda: TrainiumCluster("trn", wiring(zones, **args)))


def one(graph: Graph, type_: str) -> Resource:
    (found,) = graph.of_type(type_)
    return found


def one_named(graph: Graph, type_: str, ending: str) -> Resource:
    (found,) = (each for each in graph.of_type(type_) if each.name.endswith(ending))
    return found


def addons(graph: Graph) -> dict[str, Resource]:
    return {each.inputs["addonName"]: each for each in graph.of_type(ADDON)}


def groups(graph: Graph) -> dict[str, Resource]:
    return {each.name: each for each in graph.of_type(NODE_GROUP)}


def stack(record: Record) -> Graph:
    """Key, network and cluster with the default groups, under an explicit provider."""

    def program() -> None:
        opts = pulumi.ResourceOptions(providers=[aws.Provider("main", region="us-west-2")])
        key = EncryptionKey("key", {"region": "us-west-2"}, opts)
        network = Network("net", {"region": "us-west-2", "kms_key_arn": key.key_arn}, opts)
        args = wiring(
            vpc_id=network.vpc_id,
            subnet_ids_by_zone={zone: network.private_subnet_id(zone) for zone in network.zone_ids},
            kms_key_arn=key.key_arn,
            egress=tuple(network.egress),
            node_groups=DEFAULT_GROUPS,
        )
        TrainiumCluster("trn", args, opts)

    return planned_alike(record, program)


def test_the_control_plane_is_pulumi_eks_with_everything_else_of_its_own_turned_off(record: Record) -> None:
    inputs = one(built(record), CONTROL_PLANE).inputs
    assert inputs["authenticationMode"] == "API"
    for name in ("skipDefaultNodeGroup", "skipDefaultSecurityGroups", "useDefaultVpcCni"):
        assert inputs[name] is True
    for name in ("createInstanceRole", "createOidcProvider", "bootstrapSelfManagedAddons"):
        assert inputs[name] is False
    for name in ("corednsAddonOptions", "kubeProxyAddonOptions"):
        assert inputs[name]["enabled"] is False


def test_the_control_plane_logs_everything_and_encrypts_secrets(record: Record) -> None:
    inputs = one(built(record), EKS).inputs
    assert set(inputs["enabledClusterLogTypes"]) == {"api", "audit", "authenticator", "controllerManager", "scheduler"}
    assert inputs["encryptionConfig"] == {"provider": {"keyArn": KEY_ARN}, "resources": ["secrets"]}
    assert inputs["version"] == versions.KUBERNETES
    assert inputs["upgradePolicy"] == {"supportType": "STANDARD"}
    assert inputs["kubernetesNetworkConfig"]["serviceIpv4Cidr"] == "172.20.0.0/16"


def test_the_log_group_stands_before_the_cluster_under_a_name_that_is_new_each_time(record: Record) -> None:
    graph = built(record, log_retention_days=90)
    group, cluster, component = one(graph, LOG_GROUP), one(graph, EKS), one(graph, CONTROL_PLANE)
    assert group.inputs["name"] == f"/aws/eks/{cluster.inputs['name']}/cluster"
    assert (group.inputs["retentionInDays"], group.inputs["kmsKeyId"]) == (90, KEY_ARN)
    assert group.urn in component.dependencies
    (role,) = (each for each in graph.of_type(ROLE) if each.name == "trn-eks")
    assert cluster.inputs["name"] == role.outputs["name"] != "trn-eks"


def test_the_cluster_outlives_no_policy_of_its_role(record: Record) -> None:
    graph = built(record)
    (attachment,) = (each for each in graph.of_type(ATTACHMENT) if each.name == "trn-eks")
    assert attachment.inputs["policyArn"] == "arn:aws:iam::aws:policy/AmazonEKSClusterPolicy"
    assert attachment.urn in one(graph, CONTROL_PLANE).dependencies
    assert one(graph, EKS).inputs["roleArn"].endswith(f"role/{attachment.inputs['role']}")


def test_without_ranges_only_the_private_endpoint_is_on(record: Record) -> None:
    network = one(built(record), EKS).inputs["vpcConfig"]
    assert network["endpointPrivateAccess"] is True
    assert network["endpointPublicAccess"] is False
    assert "publicAccessCidrs" not in network
    assert network["subnetIds"] == ["subnet-of-usw2-az4", "subnet-of-usw2-az1"]


def test_named_ranges_reach_the_public_endpoint(record: Record) -> None:
    network = one(built(record, endpoint={"public_access_cidrs": ["203.0.113.0/24"]}), EKS).inputs["vpcConfig"]
    assert network["endpointPublicAccess"] is True
    assert network["publicAccessCidrs"] == ["203.0.113.0/24"]


def test_a_private_api_is_reached_from_the_vpc_before_anything_uses_it(record: Record) -> None:
    """Its interfaces are in a group that lets in its own members alone, and a deployment runner is none of them."""
    graph = built(record, vpc_cidr_block="10.0.0.0/16")
    rule = one(graph, INGRESS)
    assert rule.inputs["securityGroupId"] == one(graph, EKS).outputs["vpcConfig"]["clusterSecurityGroupId"]
    assert (rule.inputs["ipProtocol"], rule.inputs["fromPort"], rule.inputs["toPort"]) == ("tcp", 443, 443)
    assert rule.inputs["cidrIpv4"] == "10.0.0.0/16"
    (provider,) = (each for each in graph.of_type("pulumi:providers:kubernetes") if each.name == "trn-kubernetes")
    assert rule.urn in provider.dependencies


def test_an_api_with_public_ranges_is_opened_to_the_vpc_and_its_peers_only_when_that_is_a_way(record: Record) -> None:
    peers, public = ("10.200.0.0/16",), {"public_access_cidrs": ["203.0.113.0/24"]}
    graph = built(record, vpc_cidr_block="10.0.0.0/16", peer_cidr_blocks=peers, endpoint=public)
    assert graph.of_type(INGRESS) == ()
    for endpoint in ({**public, "private_access_via": "vpc"}, {"private_access_via": "peers"}):
        graph = built(record, vpc_cidr_block="10.0.0.0/16", peer_cidr_blocks=peers, endpoint=endpoint)
        opened = [each.inputs["cidrIpv4"] for each in graph.of_type(INGRESS)]
        assert sorted(opened) == ["10.0.0.0/16", "10.200.0.0/16"]


@pytest.mark.parametrize(
    ("args", "protected"),
    [
        ({}, False),
        ({"production": True}, True),
        ({"deletion_protection": True}, True),
        ({"production": True, "deletion_protection": False, "waivers": {"R06": "a rehearsal"}}, False),
    ],
)
def test_production_is_protected_unless_waived(record: Record, args: Mapping[str, Any], protected: bool) -> None:
    graph = built(record, **args)
    assert one(graph, EKS).inputs["deletionProtection"] is protected
    assert one(graph, EKS).options.protect is bool(args.get("production"))


def test_the_callers_provider_reaches_every_aws_resource_those_of_pulumi_eks_included(record: Record) -> None:
    graph = stack(record)
    provider = one(graph, "pulumi:providers:aws").urn
    made = [each for each in graph.resources if each.type.startswith("aws:")]
    assert EKS in {each.type for each in made}
    assert {each.provider for each in made} == {provider}


def test_the_kubeconfig_is_secret_holds_no_credential_and_names_the_region(record: Record) -> None:
    known: list[str] = []

    def program() -> None:
        cluster = TrainiumCluster("trn", wiring())
        pulumi.export("kubeconfig", cluster.kubeconfig)
        pulumi.export(
            "shown", pulumi.Output.unsecret(cluster.kubeconfig).apply(lambda text: known.append(text) or "ok")
        )

    graph = record(program)
    assert graph.outputs["kubeconfig"] == "[secret]"
    config, cluster = json.loads(known[0]), one(graph, EKS).outputs
    assert config["clusters"][0]["cluster"] == {
        "server": cluster["endpoint"],
        "certificate-authority-data": cluster["certificateAuthority"]["data"],
    }
    user = config["users"][0]["user"]
    assert set(user) == {"exec"}
    assert user["exec"]["command"] == "aws"
    arguments = " ".join(user["exec"]["args"])
    assert arguments == f"--region us-west-2 eks get-token --cluster-name {cluster['name']} --output json"
    assert config["current-context"] == config["contexts"][0]["name"]


def test_one_kubernetes_provider_is_tied_to_the_clusters_arn(record: Record) -> None:
    graph = built(record)
    (provider,) = (each for each in graph.of_type("pulumi:providers:kubernetes") if each.name == "trn-kubernetes")
    assert provider.inputs["clusterIdentifier"] == one(graph, EKS).outputs["arn"]
    assert provider.inputs["kubeconfig"] == "[secret]"
    assert one(graph, STORAGE_CLASS).provider == provider.urn


def test_administrators_get_an_entry_and_the_cluster_admin_policy(record: Record) -> None:
    account = "arn:aws:iam::123456789012"
    principals = [f"{account}:role/ops/admin", f"{account}:role/ops-admin", f"{account}:user/ops-admin"]
    graph = built(record, admin_principals=principals)
    entries = graph.of_type("aws:eks/accessEntry:AccessEntry")
    policies = graph.of_type("aws:eks/accessPolicyAssociation:AccessPolicyAssociation")
    assert {each.inputs["principalArn"] for each in entries} == set(principals)
    assert {each.inputs["type"] for each in entries} == {"STANDARD"}
    assert {each.inputs["policyArn"] for each in policies} == {
        "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
    }
    assert {each.inputs["accessScope"]["type"] for each in policies} == {"cluster"}
    assert all(any(entry.urn in each.dependencies for entry in entries) for each in policies)


def test_every_add_on_is_pinned_and_wins_over_what_was_there(record: Record) -> None:
    graph = built(record, addons={"coredns": {"version": "v1.14.4-eksbuild.1"}})
    found = addons(graph)
    assert {name: each.inputs["addonVersion"] for name, each in found.items()} == {
        **PINNED,
        "coredns": "v1.14.4-eksbuild.1",
    }
    for each in found.values():
        assert each.inputs["resolveConflictsOnCreate"] == each.inputs["resolveConflictsOnUpdate"] == "OVERWRITE"


def test_an_add_on_of_a_users_own_comes_after_the_nodes_with_its_settings_and_role(record: Record) -> None:
    policy = "arn:aws:iam::111122223333:policy/snapshots"
    own = {
        "version": "v8.3.0-eksbuild.1",
        "settings": {"replicaCount": 2},
        "identity": {"service_account": "snapshots", "namespace": "storage", "policies": {"snapshots": policy}},
    }
    graph = built(record, addons={"snapshot-controller": own})
    made = addons(graph)["snapshot-controller"]
    assert made.inputs["addonVersion"] == "v8.3.0-eksbuild.1"
    assert json.loads(made.inputs["configurationValues"]) == {"replicaCount": 2}
    system = next(each for each in graph.of_type(NODE_GROUP) if each.name == "trn-system-nodes")
    (association,) = [each for each in graph.of_type(ASSOCIATION) if each.inputs["namespace"] == "storage"]
    assert {system.urn, association.urn} <= set(made.dependencies)
    assert association.inputs["serviceAccount"] == "snapshots"
    assert policy in [each.inputs["policyArn"] for each in graph.of_type(ATTACHMENT)]


def test_settings_are_laid_over_the_stacks(record: Record) -> None:
    graph = built(record, addons={"vpc-cni": {"settings": {"env": {"AWS_VPC_K8S_CNI_LOGLEVEL": "DEBUG"}}}})
    settings = json.loads(addons(graph)["vpc-cni"].inputs["configurationValues"])
    assert settings["env"]["AWS_VPC_K8S_CNI_LOGLEVEL"] == "DEBUG"
    assert settings["env"]["WARM_IP_TARGET"] == str(addresses.WARM_IP_TARGET)


def test_settings_are_plain_data(record: Record) -> None:
    given = wiring(addons={"coredns": {"settings": {"replicaCount": pulumi.Output.from_input(2)}}})
    with pytest.raises(ArgumentError, match=r"addons\.coredns\.settings\.replicaCount"):
        record(lambda: TrainiumCluster("trn", given))


@pytest.mark.parametrize(("length", "fits"), [(24, True), (25, False)])
def test_an_add_ons_role_has_a_name_that_iam_takes(record: Record, length: int, fits: bool) -> None:
    """56 characters, of which amazon-cloudwatch-observability and a dash take 32."""
    given = wiring(addons={"amazon-cloudwatch-observability": {}}, node_groups=[])
    if fits:
        assert record(lambda: TrainiumCluster("c" * length, given)).of_type(ADDON)
        return
    with pytest.raises(ArgumentError, match="shorter name"):
        record(lambda: TrainiumCluster("c" * length, given))


def test_the_cni_keeps_as_many_addresses_as_the_budget_counts(record: Record) -> None:
    settings = json.loads(addons(built(record))["vpc-cni"].inputs["configurationValues"])
    assert settings["enableNetworkPolicy"] == "true"
    assert settings["env"] == {
        "WARM_IP_TARGET": str(addresses.WARM_IP_TARGET),
        "MINIMUM_IP_TARGET": str(addresses.MINIMUM_IP_TARGET),
        "ENABLE_PREFIX_DELEGATION": "false",
    }


def test_the_volume_driver_gets_its_region_by_value(record: Record) -> None:
    """With a hop limit of one it cannot ask the metadata service."""
    driver = addons(built(record))["aws-ebs-csi-driver"]
    assert json.loads(driver.inputs["configurationValues"]) == {"controller": {"region": "us-west-2"}}


def test_no_add_on_is_configured_by_keys_that_its_schema_may_lack(record: Record) -> None:
    """EKS refuses an unknown key, and the whole deployment ends there."""
    configured = {name for name, addon in addons(built(record)).items() if "configurationValues" in addon.inputs}
    assert configured == {"vpc-cni", "aws-ebs-csi-driver", "eks-node-monitoring-agent"}


def test_the_gpu_part_of_the_monitoring_agent_tolerates_gpu_nodes(record: Record) -> None:
    """Without it the agent calls every GPU node broken; also on a cluster whose GPU groups come later."""
    agent = addons(built(record))["eks-node-monitoring-agent"]
    gpu = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    assert json.loads(agent.inputs["configurationValues"]) == {"dcgmAgent": {"tolerations": [gpu]}}


@pytest.mark.parametrize("version", ["1.34", "1.35", "1.36"])
def test_add_ons_are_those_of_the_clusters_own_kubernetes_version(record: Record, version: str) -> None:
    found = addons(built(record, kubernetes_version=version, waivers={"R05": "tried"}))
    assert {name: each.inputs["addonVersion"] for name, each in found.items()} == dict(addon_records.pinned(version))
    assert found["kube-proxy"].inputs["addonVersion"].startswith(f"v{version}.")


def test_each_controller_that_calls_aws_has_a_role_of_its_own_by_pod_identity(record: Record) -> None:
    graph = built(record)
    roles = {each.outputs["arn"]: each for each in graph.of_type(ROLE)}
    taken = {each.inputs["serviceAccount"]: roles[each.inputs["roleArn"]] for each in graph.of_type(ASSOCIATION)}
    assert {account: role.name for account, role in taken.items()} == {
        "aws-node": "trn-vpc-cni",
        "ebs-csi-controller-sa": "trn-aws-ebs-csi-driver",
        "fsx-csi-controller-sa": "trn-aws-fsx-csi-driver",
    }
    for role in taken.values():
        (statement,) = json.loads(role.inputs["assumeRolePolicy"])["Statement"]
        assert statement["Principal"] == {"Service": "pods.eks.amazonaws.com"}
    for name in ("vpc-cni", "aws-ebs-csi-driver", "aws-fsx-csi-driver"):
        prepared = [each for each in graph.of_type(ASSOCIATION, ATTACHMENT, ROLE_POLICY) if each.name == f"trn-{name}"]
        assert len(prepared) >= 2
        assert {each.urn for each in prepared} <= set(addons(graph)[name].dependencies)


def driver_statements(graph: Graph) -> list[dict[str, Any]]:
    (permission,) = (each for each in graph.of_type(ROLE_POLICY) if each.name == "trn-aws-fsx-csi-driver")
    found: list[dict[str, Any]] = json.loads(permission.inputs["policy"])["Statement"]
    return found


def test_the_file_system_driver_makes_and_deletes_nothing_unless_asked_for(record: Record) -> None:
    granted = json.dumps(driver_statements(built(record)))
    assert "fsx:DescribeFileSystems" in granted
    assert "fsx:CreateFileSystem" not in granted
    assert "fsx:DeleteFileSystem" not in granted


def test_the_file_system_driver_deletes_only_what_it_made(record: Record) -> None:
    statements = driver_statements(built(record, file_systems_on_demand=True))
    (deleting,) = (each for each in statements if "fsx:DeleteFileSystem" in each["Action"])
    assert deleting["Condition"] == {"Null": {"aws:ResourceTag/CSIVolumeName": "false"}}
    assert not any("*" in action for each in statements for action in [each["Action"]] if isinstance(action, str))


def test_the_volume_driver_manages_volumes_of_its_own_cluster_alone(record: Record) -> None:
    """AWS' policy compares volumes' tags with the session's, which Pod Identity brings (aws-ebs-csi-driver#2918)."""
    graph = built(record)
    role = one_named(graph, "aws:iam/role:Role", "aws-ebs-csi-driver")
    (attached,) = (
        each
        for each in graph.of_type("aws:iam/rolePolicyAttachment:RolePolicyAttachment")
        if each.inputs["role"] == role.outputs["name"]
    )
    document = managed(attached.inputs["policyArn"].rpartition("/")[2])
    volume = "arn:aws:ec2:us-west-2:123456789012:volume/vol-1"

    def may_delete(cluster: str) -> bool:
        context = {"aws:PrincipalTag/eks-cluster-name": "own", "ec2:ResourceTag/ebs.csi.aws.com/cluster-name": cluster}
        return allowed(IamRequest("ec2:DeleteVolume", volume, context), [document])

    assert may_delete("own")
    assert not may_delete("another")
    association = one_named(graph, "aws:eks/podIdentityAssociation:PodIdentityAssociation", "aws-ebs-csi-driver")
    assert not association.inputs.get("disableSessionTags")
    # The first release that writes the tag.
    assert tuple(map(int, PINNED["aws-ebs-csi-driver"][1:].split("-")[0].split("."))) >= (1, 58, 0)


def test_storage_drivers_use_the_key_only_through_their_service(record: Record) -> None:
    for name, service in (("aws-ebs-csi-driver", "ec2"), ("aws-fsx-csi-driver", "fsx")):
        (permission,) = (
            each
            for each in built(record, file_systems_on_demand=True).of_type(ROLE_POLICY)
            if each.name == f"trn-{name}"
        )
        about_key = [
            each for each in json.loads(permission.inputs["policy"])["Statement"] if each["Resource"] == KEY_ARN
        ]
        assert len(about_key) == 2
        for statement in about_key:
            via = statement["Condition"]["StringEquals"]["kms:ViaService"]
            assert via == f"{service}.us-west-2.amazonaws.com"


@pytest.mark.parametrize("zones", [2, 3, 4])
def test_system_nodes_are_one_group_over_all_zones_with_their_number_in_each(record: Record, zones: int) -> None:
    system = groups(built(record, zones))["trn-system-nodes"].inputs
    assert system["subnetIds"] == [f"subnet-of-{zone}" for zone in ZONES[:zones]]
    assert system["scalingConfig"] == {"minSize": zones, "maxSize": 3 * zones, "desiredSize": zones}
    assert system["labels"] == {"trainium-eks/pool": "system"}
    assert "taints" not in system


def test_a_small_cpu_pool_is_beside_the_accelerators(record: Record) -> None:
    cpu = groups(built(record))["trn-cpu-nodes"].inputs
    assert cpu["subnetIds"] == ["subnet-of-usw2-az4"]
    assert cpu["scalingConfig"] == {"minSize": 0, "maxSize": 4, "desiredSize": 1}
    assert cpu["instanceTypes"] == ["m6i.xlarge"]


def test_cpu_nodes_are_as_safe_as_the_others_and_left_to_the_clusters_group(record: Record) -> None:
    graph = built(record, tags={"Owner": "me"})
    for name in ("trn-system", "trn-cpu"):
        (template,) = (
            each for each in graph.of_type("aws:ec2/launchTemplate:LaunchTemplate") if each.name == f"{name}-template"
        )
        assert template.inputs["metadataOptions"]["httpTokens"] == "required"
        assert template.inputs["metadataOptions"]["httpPutResponseHopLimit"] == 1
        volume = template.inputs["blockDeviceMappings"][0]["ebs"]
        assert (volume["encrypted"], volume["volumeType"], volume["kmsKeyId"]) == ("true", "gp3", KEY_ARN)
        assert not {"vpcSecurityGroupIds", "networkInterfaces", "imageId", "userData"} & set(template.inputs)
        assert all(each["tags"]["Owner"] == "me" for each in template.inputs["tagSpecifications"])
        group = groups(graph)[f"{name}-nodes"]
        assert group.inputs["amiType"] == "AL2023_x86_64_STANDARD"
        assert group.inputs["releaseVersion"] == versions.AMI_RELEASES[versions.KUBERNETES]
        assert group.inputs["nodeRepairConfig"] == {"enabled": True}


def test_every_node_has_the_lustre_client_where_there_is_a_file_system(record: Record) -> None:
    graph = built(record, lustre_network="tcp", node_groups=[{"name": "a", "instance_type": "trn1.2xlarge"}])
    found = graph.of_type("aws:ec2/launchTemplate:LaunchTemplate")
    scripts = {each.name: base64.b64decode(each.inputs["userData"]).decode() for each in found}
    assert len(scripts) == 3
    assert all("dnf install --assumeyes lustre-client" in script for script in scripts.values())


def test_accelerator_groups_are_where_they_say_or_in_the_accelerator_zone(record: Record) -> None:
    graph = built(
        record,
        node_groups=[
            {"name": "a", "instance_type": "trn1.32xlarge"},
            {"name": "b", "instance_type": "trn1.32xlarge", "zone_id": "usw2-az1"},
        ],
    )
    found = groups(graph)
    assert found["trn-a-nodes"].inputs["subnetIds"] == ["subnet-of-usw2-az4"]
    assert found["trn-b-nodes"].inputs["subnetIds"] == ["subnet-of-usw2-az1"]
    for name in ("trn-a-nodes", "trn-b-nodes"):
        assert found[name].inputs["clusterName"] == one(graph, EKS).outputs["name"]
        (role,) = (each for each in graph.of_type(ROLE) if each.name == "trn-node")
        assert found[name].inputs["nodeRoleArn"] == role.outputs["arn"]


def test_every_node_waits_for_network_plugins_policies_and_the_way_out(record: Record) -> None:
    graph = stack(record)
    waited = {addons(graph)[name].urn for name in BEFORE_NODES}
    waited |= {each.urn for each in graph.of_type(ATTACHMENT) if each.name.startswith("trn-node-")}
    waited |= {each.urn for each in graph.of_type("aws:ec2/route:Route", "aws:ec2/vpcEndpoint:VpcEndpoint")}
    assert len(groups(graph)) == 4
    for group in groups(graph).values():
        assert waited <= set(group.dependencies), group.name


def test_add_ons_with_pods_wait_for_system_nodes_and_for_no_others(record: Record) -> None:
    graph = stack(record)
    system = groups(graph).pop("trn-system-nodes").urn
    others = {each.urn for each in groups(graph).values()} - {system}
    for name in AFTER_NODES:
        assert system in addons(graph)[name].dependencies
        assert not others & set(addons(graph)[name].dependencies)
    for name in BEFORE_NODES:
        assert system not in addons(graph)[name].dependencies


def test_accelerators_start_beside_the_system_nodes_and_keys_before_the_network(record: Record) -> None:
    graph = stack(record)
    checks = {each.id: each for each in check_edges(graph, order(graph))}
    for name in ("accelerators-system", "kms-vpc", "iam-vpc", "cluster-logs", "nodes-cni", "nodes-egress"):
        assert checks[name].applies, name
        assert checks[name].ok, checks[name].violations


def test_workloads_wait_for_dns_drivers_and_system_nodes_and_not_for_accelerators(record: Record) -> None:
    def program() -> None:
        cluster = TrainiumCluster("trn", wiring(node_groups=DEFAULT_GROUPS))
        aws.ec2.Eip("after", opts=pulumi.ResourceOptions(depends_on=cluster.ready))

    graph = planned_alike(record, program)
    waited = set(one(graph, "aws:ec2/eip:Eip").dependencies)
    names = {each.name for each in graph.resources if each.urn in waited}
    assert names == {
        "trn-system-nodes",
        "trn-eks-pod-identity-agent",
        "trn-coredns",
        "trn-aws-ebs-csi-driver",
        "trn-aws-fsx-csi-driver",
    }


def test_the_default_storage_class_is_encrypted_gp3_bound_where_the_pod_is(record: Record) -> None:
    graph = built(record)
    storage = one(graph, STORAGE_CLASS)
    kubernetes_validate.validate(dict(storage.inputs), versions.KUBERNETES, strict=True)
    assert storage.inputs["metadata"]["annotations"] == {"storageclass.kubernetes.io/is-default-class": "true"}
    assert storage.inputs["provisioner"] == "ebs.csi.aws.com"
    assert storage.inputs["parameters"] == {"type": "gp3", "encrypted": "true", "kmsKeyId": KEY_ARN}
    assert storage.inputs["volumeBindingMode"] == "WaitForFirstConsumer"
    assert addons(graph)["aws-ebs-csi-driver"].urn in storage.dependencies


def test_without_a_key_the_cluster_makes_one_and_uses_it_everywhere(record: Record) -> None:
    graph = built(record, kms_key_arn=None)
    key = one(graph, "aws:kms/key:Key").outputs["arn"]
    assert one(graph, EKS).inputs["encryptionConfig"]["provider"]["keyArn"] == key
    assert one(graph, LOG_GROUP).inputs["kmsKeyId"] == key
    assert one(graph, CLUSTER).outputs["kms_key_arn"] == key
    assert not built(record).of_type("aws:kms/key:Key")


def test_outputs_name_the_cluster_and_its_groups(record: Record) -> None:
    graph = built(record, node_groups=DEFAULT_GROUPS)
    outputs, cluster = one(graph, CLUSTER).outputs, one(graph, EKS).outputs
    assert outputs["cluster_name"] == cluster["name"]
    assert outputs["cluster_arn"] == cluster["arn"]
    assert outputs["endpoint"] == cluster["endpoint"]
    assert outputs["cluster_security_group_id"] == cluster["vpcConfig"]["clusterSecurityGroupId"]
    assert outputs["kubeconfig"] == "[secret]"
    assert outputs["node_group_names"] == {
        name: groups(graph)[f"trn-{name}-nodes"].outputs["nodeGroupName"] for name in ("trn1-32xl-ng1", "trn1n-32xl-ng")
    }
    assert one(built(record), CLUSTER).outputs["node_group_names"] == {}


def test_groups_are_found_by_their_name_in_the_stack(record: Record) -> None:
    found: dict[str, str] = {}

    def program() -> None:
        cluster = TrainiumCluster("trn", wiring(node_groups=DEFAULT_GROUPS))
        found.update({name: group.instance.name for name, group in cluster.groups.items()})

    record(program)
    assert found == {"trn1-32xl-ng1": "trn1.32xlarge", "trn1n-32xl-ng": "trn1n.32xlarge"}


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ({"subnet_ids_by_zone": {"usw2-az4": "subnet-1"}}, "subnet_ids_by_zone"),
        ({"subnet_ids_by_zone": {"use1-az3": "a", "use1-az4": "b"}}, "use1-az3"),
        ({"endpoint": {}}, "private_access_via"),
        ({"endpoint": {"private_access_via": "peers"}}, "no range of peers"),
        ({"endpoint": {"private_access_via": "office"}}, "private_access_via"),
        ({"peer_cidr_blocks": ["10.0.0.1/8"]}, r"peer_cidr_blocks\[0\]"),
        ({"endpoint": {"public_access_cidrs": ["0.0.0.0/0"]}}, "R02"),
        ({"kubernetes_version": "1.12"}, "kubernetes_version"),
        ({"addons": {"core-dns": {}}}, "core-dns"),
        ({"admin_principals": ["arn:aws:sts::123456789012:assumed-role/a/b"]}, "admin_principals"),
        ({"system_nodes": {"desired_size": 0, "min_size": 0}}, "system_nodes"),
        ({"node_groups": [{"name": "cpu", "instance_type": "trn1.32xlarge"}]}, r"node_groups\[0\]"),
        ({"node_groups": [{"name": "a", "instance_type": "trn1.32xlarge"}] * 2}, "two groups of one name"),
        ({"node_groups": [{"name": "a", "instance_type": "trn1.32xlarge", "zone_id": "usw2-az2"}]}, "zone_id"),
        ({"node_groups": [{"name": "a" * 47, "instance_type": "trn1.32xlarge"}]}, "characters"),
        ({"node_groups": [{"name": "a", "instance_type": "trn1.32xlarge", "capacity": {"type": "spot"}}]}, "R29"),
        (
            {
                "addons": {"vpc-cni": {"version": "v1.18.0-eksbuild.1"}},
                "node_groups": [{"name": "a", "instance_type": "trn1.32xlarge"}],
            },
            "1.18.5",
        ),
        ({"production": True, "deletion_protection": False}, "R06"),
        ({"regoin": "us-west-2"}, "regoin"),
    ],
)
def test_a_bad_cluster_is_refused_before_anything_is_made(record: Record, args: Mapping[str, Any], reason: str) -> None:
    with pytest.raises(ArgumentError, match=reason):
        record(lambda: TrainiumCluster("trn", wiring(**args)))


@pytest.mark.parametrize("name", ["t" * 37, "my cluster", "-trn"])
def test_a_name_that_cannot_become_the_clusters_is_refused(record: Record, name: str) -> None:
    with pytest.raises(ArgumentError, match="component's name"):
        record(lambda: TrainiumCluster(name, wiring()))
