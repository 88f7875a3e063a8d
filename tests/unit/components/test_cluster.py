import json

import pulumi
import pytest
from dry_run import planned_alike
from iam_evaluation import allowed, managed
from unit.components.parts import IAM_ROLE, of_kind, one

from components._args import ArgumentError
from components.cluster import TrainiumCluster
from trainium_eks.model.catalogue import addon_records, versions
from trainium_eks.operate.preflight.deploy_rights import IamRequest

EKS = "aws:eks/cluster:Cluster"
KEY_ARN = "arn:aws:kms:us-west-2:000000000000:key/k"
ZONES = ("usw2-az4", "usw2-az1", "usw2-az2", "usw2-az3")
SUBNETS = {zone: f"subnet-00000ac{zone[-1]}" for zone in ZONES}
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
def test_every_add_on_is_pinned(record, version):
    own, pinned = "v1.14.4-eksbuild.1", addon_records.pinned(version)
    graph = built(record, kubernetes_version=version, waivers={"R05": "tried"}, addons={"coredns": {"version": own}})
    found = {each.inputs["addonName"]: each.inputs["addonVersion"] for each in of_kind(graph, "Addon")}
    assert found == {**pinned, "coredns": own}


def test_name_too_long_for_the_cluster_or_a_role_is_refused(record):
    # 56 characters, of which amazon-cloudwatch-observability and a dash take 32.
    given = {"addons": {"amazon-cloudwatch-observability": {}}, "node_groups": []}
    wrong = {**dict.fromkeys(("t" * 37, "my cluster", "-trn"), "component's name"), "c" * 25: "shorter name"}
    for name, said in wrong.items():
        with pytest.raises(ArgumentError, match=said):
            record(lambda: TrainiumCluster(name, wiring(**given)))  # noqa: B023
    assert of_kind(record(lambda: TrainiumCluster("c" * 24, wiring(**given))), "Addon")


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
