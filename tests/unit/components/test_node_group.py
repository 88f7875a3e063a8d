import base64
import email
import re
import subprocess
from dataclasses import replace

import pytest
import yaml
from dry_run import planned_alike
from unit.components.parts import EGRESS, IAM_ROLE, INGRESS, LEAST, of_kind, one

from components import _launch_template as template
from components._args import ArgumentError
from components._user_data import is_large_lustre_client, logical_core_setting
from components.node_group import AcceleratorNodeGroup
from trainium_eks.model.catalogue import versions
from trainium_eks.model.catalogue.instance_entries import with_entries
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.model.config.node_groups import POOL_LABEL

ACCELERATED = tuple(name for name, kind in CATALOGUE.items() if kind.family != "cpu")
RESERVATION = {"id": "cr-0123456789abcdef0", "zone_id": "usw2-az4"}
TARGET = {"capacityReservationId": RESERVATION["id"]}
WIRING = LEAST["AcceleratorNodeGroup"]


def built(record, instance_type="trn1.32xlarge", **args):
    given = {**WIRING, "instance_type": instance_type, **args}
    return planned_alike(record, lambda: AcceleratorNodeGroup("g", given))


def group(graph):
    return one(graph, "NodeGroup")


def settings(graph):
    return one(graph, "LaunchTemplate").inputs


def user_data(graph):
    text = base64.b64decode(settings(graph)["userData"]).decode()
    return [(part.get_content_type(), part.get_payload()) for part in email.message_from_string(text).get_payload()]


def run_script(record, holds, home, *, commands=(), **args):
    """Run the one script of the user data that holds a text, with its files below ``home`` and these commands there.

    dnf leaves ``dnf.log`` in ``home``; modprobe and lnetctl leave ``lnet.log``.
    """
    (script,) = [text for _, text in user_data(built(record, **args)) if holds in text]
    (home / "bin").mkdir()
    bodies = {"systemctl": "", "dnf": f"echo $@ > {home}/dnf.log", "ip": "echo default via 10.0.0.1 dev ens5"}
    bodies |= dict.fromkeys(("modprobe", "lnetctl"), f"echo $@ >> {home}/lnet.log")
    for name, body in {**bodies, **dict.fromkeys(commands, "")}.items():
        (home / "bin" / name).write_text(f"#!/bin/sh\n{body}\n")
        (home / "bin" / name).chmod(0o755)
    for folder in ("etc/modprobe.d", "etc/systemd/system"):
        (home / folder).mkdir(parents=True)
    here = script.replace("/etc/", f"{home}/etc/").replace("/sys/", f"{home}/sys/").replace(":/usr/sbin:/sbin", "")
    subprocess.run(["bash", "-c", here], env={"PATH": f"{home / 'bin'}:/bin:/usr/bin"}, check=True)


def places(graph):
    keys = ("networkCardIndex", "deviceIndex", "interfaceType")
    return [tuple(each[key] for key in keys) for each in settings(graph).get("networkInterfaces", [])]


@pytest.mark.parametrize("name", ACCELERATED)
def test_every_instance_type_gets_its_interfaces_image_taint_and_labels(record, name):
    kind, graph = CATALOGUE[name], built(record, name)
    efa = [card for card, _, type_ in places(graph) if type_ != "interface"]
    assert efa == list(range(kind.first_efa_card, kind.first_efa_card + kind.efa_interfaces))
    assert len(set(places(graph))) == len(places(graph))
    assert all(device < kind.interfaces_per_card for _, device, _ in places(graph))
    inputs = group(graph).inputs
    assert (inputs["amiType"], inputs["instanceTypes"]) == (kind.ami_type, [name])
    assert inputs["taints"] == [{"key": kind.device_resource, "value": "true", "effect": "NO_SCHEDULE"}]
    assert inputs["labels"] == {**CATALOGUE.node_labels(name), POOL_LABEL: "ng"}
    parts = [type_ for type_, _ in user_data(graph)] if "userData" in settings(graph) else []
    assert ("application/node.eks.aws" in parts) is (kind.local_disks > 0)
    assert bool(of_kind(graph, "SecurityGroup")) is bool(of_kind(graph, "PlacementGroup")) is kind.has_efa
    # Without EFA the template names no group: EKS adds the cluster's.
    assert kind.has_efa or not {"networkInterfaces", "vpcSecurityGroupIds", "placement"} & set(settings(graph))


@pytest.mark.parametrize(
    ("name", "layout", "wanted"),
    [
        *((name, None, [(0, 0, "efa"), *((card, 1, "efa-only") for card in range(1, count))])
          for name, count in (("trn1.32xlarge", 8), ("trn1n.32xlarge", 16), ("p4d.24xlarge", 4))),
        # A plain interface on card 0, as EFA has none there.
        ("p6-b300.48xlarge", None, [(0, 0, "interface"), *((card, 0, "efa-only") for card in range(1, 17))]),
        ("trn1.32xlarge", "ena",
         [(0, 0, "interface"), (0, 1, "efa-only"), *((card, 0, "efa-only") for card in range(1, 8))]),
        ("trn1.32xlarge", "efa", [(0, 0, "efa"), *((card, 1, "efa") for card in range(1, 8))]),
    ],
)  # fmt: skip
def test_each_interface_layout_has_its_number_of_addresses(record, name, layout, wanted):
    assert places(built(record, name, **({"interface_layout": layout} if layout else {}))) == wanted
    with pytest.raises(ValueError, match="no EFA on card 0"):
        template.interfaces(CATALOGUE["p6-b300.48xlarge"], "efa-only")


def test_interfaces_have_the_clusters_group_and_a_self_referencing_one(record):
    """With interfaces in the template, EKS adds no group by itself."""
    graph = built(record)
    own = one(graph, "SecurityGroup")
    assert own.inputs["vpcId"] == WIRING["vpc_id"]
    for interface in settings(graph)["networkInterfaces"]:
        assert interface["securityGroups"] == [WIRING["cluster_security_group_id"], own.outputs["id"]]
        public = None if interface["interfaceType"] == "efa-only" else "false"
        assert interface.get("associatePublicIpAddress") == public
        assert (interface["deleteOnTermination"], interface.get("subnetId")) == ("true", None)
    for rule in (one(graph, INGRESS), one(graph, EGRESS)):
        assert rule.inputs["securityGroupId"] == rule.inputs["referencedSecurityGroupId"] == own.outputs["id"]
        assert rule.inputs["ipProtocol"] == "-1"
        assert rule.urn in group(graph).dependencies
    assert "vpcSecurityGroupIds" not in settings(graph)


@pytest.mark.parametrize(
    ("name", "args", "size"),
    [
        ("trn1.32xlarge", {}, 100),
        ("trn1.32xlarge", {"local_storage": "none"}, 500),
        ("inf2.48xlarge", {}, 500),
        ("trn1.32xlarge", {"root_volume_gib": 250}, 250),
    ],
)
def test_root_volume_is_encrypted_and_sized_and_metadata_needs_a_token(record, name, args, size):
    found = settings(built(record, name, kms_key_arn="arn:aws:kms:us-west-2:000000000000:key/k", **args))
    wanted = {"httpEndpoint": "enabled", "httpTokens": "required", "httpPutResponseHopLimit": 1}
    assert found["metadataOptions"] == wanted
    (mapping,) = found["blockDeviceMappings"]
    volume = mapping["ebs"]
    assert (mapping["deviceName"], volume["volumeSize"]) == ("/dev/xvda", size)
    assert (volume["volumeType"], volume["encrypted"], volume["deleteOnTermination"]) == ("gp3", "true", "true")
    assert volume["kmsKeyId"] == "arn:aws:kms:us-west-2:000000000000:key/k"
    # gp3 gives a quarter of a MiB/s for each IOPS.
    assert 125 < volume["throughput"] <= volume["iops"] / 4


@pytest.mark.parametrize(("layout", "pods"), [("ena", 51), ("efa-only", None)])
def test_address_consuming_layout_lowers_max_pods(record, layout, pods):
    ((type_, text), *rest) = user_data(built(record, "trn2.48xlarge", interface_layout=layout))
    assert [type_, *{other for other, _ in rest}] == ["application/node.eks.aws", "text/x-shellscript"]
    config = yaml.safe_load(text)
    assert (config["kind"], config["spec"]["instance"]) == ("NodeConfig", {"localStorage": {"strategy": "RAID0"}})
    assert config["spec"].get("kubelet") == (None if pods is None else {"flags": [f"--max-pods={pods}"]})


def test_efa_nodes_lock_memory_and_gpus_are_passed_only_by_mounts(record):
    trn1, p5 = (
        [text for type_, text in user_data(built(record, name)) if type_ == "text/x-shellscript"]
        for name in ("trn1.32xlarge", "p5.48xlarge")
    )
    # A step that fails fails the boot, and not the first job.
    assert all(script.startswith("#!/bin/bash\nset -euo pipefail\n") for script in (*trn1, *p5))
    for first, *_ in (trn1, p5):
        assert first.index("LimitMEMLOCK=") < first.index("daemon-reload") < first.index("try-restart")
    assert "MEMLOCK" not in str(user_data(built(record, "trn1.2xlarge")))
    # Devices of GPU nodes go to those that the plugin mounts them for.
    (script,) = [text for text in p5 if "nvidia-ctk" in text]
    assert "accept-nvidia-visible-devices-as-volume-mounts=true" in script
    assert "accept-nvidia-visible-devices-envvar-when-unprivileged=false" in script
    assert script.replace("\\\n", "").count("\n") == 3, "the command is one line to the shell"
    assert "nvidia-ctk" not in str(trn1)


@pytest.mark.parametrize(
    ("holds", "file", "text"),
    [
        ("LimitMEMLOCK", "systemd/system/containerd.service.d/50-memlock.conf", "[Service]\nLimitMEMLOCK=infinity\n"),
        # What FSx asks for on large clients.
        ("ptlrpcd_per_cpt_max", "modprobe.d/lustre.conf",
         "options ptlrpc ptlrpcd_per_cpt_max=32\noptions ksocklnd credits=2560\n"),
    ],
)  # fmt: skip
def test_boot_script_writes_complete_files(record, tmp_path, holds, file, text):
    run_script(record, holds, tmp_path)
    assert (tmp_path / "etc" / file).read_text() == text
    for vcpus, large in ((64, False), (65, True)):
        assert is_large_lustre_client(replace(CATALOGUE["m6i.xlarge"], vcpus=vcpus)) is large


@pytest.mark.parametrize(
    ("name", "args", "pages"),
    [
        ("trn1.32xlarge", {}, 0),
        ("p4d.24xlarge", {}, CATALOGUE["p4d.24xlarge"].hugepages_2mi),
        ("trn1.32xlarge", {"hugepages_2mi": 64}, 64),
        ("p4d.24xlarge", {"hugepages_2mi": 0}, 0),
    ],
)
def test_trainium_reserves_no_hugepages_and_gpus_with_efa_do(record, name, args, pages):
    found = re.findall(r"vm.nr_hugepages = (\d+)", str(user_data(built(record, name, **args))))
    assert found == [str(pages)] * bool(pages)


@pytest.mark.parametrize("there", [(), ("lctl",), ("mount.lustre",), ("lctl", "mount.lustre")])
def test_lustre_client_is_installed_unless_both_tools_exist(record, tmp_path, there):
    """aws-fsx-csi-driver#460: an image had the module without the tools."""
    run_script(record, "lustre-client", tmp_path, commands=there, install_lustre_client=True)
    assert (tmp_path / "dnf.log").exists() is (len(there) < 2)


BY_TCP = ("trn2.48xlarge", "trn2u.48xlarge", "p4d.24xlarge", "trn1.2xlarge")


@pytest.mark.parametrize(
    ("network", "own", "installs"),
    [("none", None, False), ("tcp", None, True), ("efa", None, True), ("tcp", False, False), ("none", True, True)],
)
@pytest.mark.parametrize("name", ["trn1.32xlarge", *BY_TCP])
def test_lustre_client_is_installed_where_the_cluster_has_a_file_system(record, name, network, own, installs):
    found = str(user_data(built(record, name, lustre_network=network, install_lustre_client=own)))
    assert ("lustre-client" in found, "kefalnd" in found) == (installs, network == "efa" and name not in BY_TCP)


@pytest.mark.parametrize(
    ("name", "used"),
    [("trn1.32xlarge", 2), ("trn1n.32xlarge", 2), ("p5.4xlarge", 1), ("p5.48xlarge", 8), ("p5en.48xlarge", 8),
     ("p6-b200.48xlarge", 8), ("p6-b300.48xlarge", 16)],
)  # fmt: skip
def test_lustre_efa_is_configured_before_the_first_mount(record, tmp_path, name, used):
    count = CATALOGUE[name].efa_interfaces
    for number in range(count + 1):
        device = tmp_path / f"sys/class/infiniband/rdmap{number:02}s0/device"
        device.mkdir(parents=True)
        (device / "driver").symlink_to(tmp_path / ("efa" if number else "mlx5_core"))
    run_script(record, "kefalnd", tmp_path, instance_type=name, lustre_network="efa")
    lines = (tmp_path / "lnet.log").read_text().splitlines()
    added = [line.split()[5] for line in lines if line.startswith("net add --net efa")]
    assert added == [f"rdmap{1 + each * count // used:02}s0" for each in range(used)]
    assert "net add --net tcp --if ens5" in lines
    assert lines[-2:] == ["set discovery 1", "udsp add --src efa --priority 0"]


def test_logical_cores_are_set_only_where_they_differ_from_the_default(record):
    assert "LOGICAL_NC" not in str(user_data(built(record, "trn2.48xlarge")))
    assert "userData" not in settings(built(record, "trn1.2xlarge", local_storage="none")), "nothing to do at boot"
    whole = with_entries(CATALOGUE, {"trn2.48xlarge": {"logicalNeuronCores": 128}})
    assert "NEURON_LOGICAL_NC_CONFIG=1" in str(user_data(built(record, "trn2.48xlarge", catalogue=whole)))
    # The runtime pairs cores by itself from Trainium2 on.
    for accelerator, setting in (("Trainium1", 2), ("Trainium2", 0), ("Trainium3", 0)):
        paired = replace(CATALOGUE.find("trn2.48xlarge"), accelerator=accelerator)
        assert logical_core_setting(paired) == setting


def test_on_demand_uses_a_placement_group_and_spot_needs_a_waiver(record):
    graph = built(record)
    placement = one(graph, "PlacementGroup")
    assert placement.inputs["strategy"] == "cluster"
    assert settings(graph)["placement"] == {"groupName": placement.outputs["name"]}
    assert group(graph).inputs["capacityType"] == "ON_DEMAND"
    assert not {"instanceType", "instanceMarketOptions", "capacityReservationSpecification"} & set(settings(graph))
    # It can be refused or given.
    for wanted, placed in (("none", None), ("mine", {"groupName": "mine"})):
        graph = built(record, placement_group=wanted)
        assert (settings(graph).get("placement"), of_kind(graph, "PlacementGroup")) == (placed, ())
    # Spot takes a waiver.
    with pytest.raises(ArgumentError, match="R29"):
        built(record, capacity={"type": "spot"})
    graph = built(record, capacity={"type": "spot"}, waivers={"R29": "checkpoints every minute"})
    assert group(graph).inputs["capacityType"] == "SPOT"
    assert not of_kind(graph, "PlacementGroup")
    assert "instanceMarketOptions" not in settings(graph)


@pytest.mark.parametrize("made_in", [None, "pg-of-the-reservation"])
def test_reservation_is_targeted_in_its_own_zone(record, made_in):
    graph = built(record, capacity={"type": "reservation", **RESERVATION, "placement_group": made_in})
    assert settings(graph)["capacityReservationSpecification"] == {"capacityReservationTarget": TARGET}
    assert settings(graph).get("placement") == ({"groupName": made_in} if made_in else None)
    assert not of_kind(graph, "PlacementGroup")
    inputs = group(graph).inputs
    assert (inputs["capacityType"], inputs["instanceTypes"]) == ("ON_DEMAND", ["trn1.32xlarge"])
    assert group(graph).options.delete_before_replace


def test_capacity_block_sets_its_type_only_in_the_template(record):
    graph = built(record, capacity={"type": "capacity-block", **RESERVATION}, desired_size=0)
    found, inputs = settings(graph), group(graph).inputs
    assert found["instanceType"] == "trn1.32xlarge"
    assert found["instanceMarketOptions"] == {"marketType": "capacity-block"}
    assert found["capacityReservationSpecification"]["capacityReservationTarget"] == TARGET
    assert "placement" not in found
    assert (inputs["capacityType"], inputs.get("instanceTypes")) == ("CAPACITY_BLOCK", None)
    assert group(graph).options.delete_before_replace


def test_group_is_in_one_subnet_with_pinned_versions(record):
    graph = built(record)
    inputs = group(graph).inputs
    assert (inputs["subnetIds"], inputs["version"]) == ([WIRING["subnet_id"]], versions.KUBERNETES)
    assert inputs["releaseVersion"] == versions.AMI_RELEASES[versions.KUBERNETES]
    assert inputs["launchTemplate"]["version"] == "1"
    assert not {"nodeGroupName", "remoteAccess", "diskSize"} & set(inputs)
    assert group(built(record, release_version="1.35.0-20260101")).inputs["releaseVersion"] == "1.35.0-20260101"
    found, made = one(graph, "AcceleratorNodeGroup").outputs, group(graph).outputs
    assert (found["node_group_name"], found["node_group_arn"]) == (made["nodeGroupName"], made["arn"])
    assert found["launch_template_id"] == one(graph, "LaunchTemplate").outputs["id"]
    assert found["launch_template_version"] == "1"


def test_sizes_repair_and_updates_are_explicit(record):
    found = group(built(record, min_size=1, max_size=4, desired_size=2, max_unavailable=2))
    assert found.inputs["scalingConfig"] == {"minSize": 1, "maxSize": 4, "desiredSize": 2}
    assert found.inputs["nodeRepairConfig"] == {"enabled": True}
    assert found.inputs["updateConfig"] == {"maxUnavailable": 2, "updateStrategy": "MINIMAL"}
    # A drain takes up to 15 minutes a node: more than the provider's hour for an update of five.
    assert found.options.custom_timeouts == {"create": "30m", "update": "2h", "delete": "1h"}
    # The desired size is ignored only when it is managed elsewhere, and own labels are added to the catalogue's.
    assert found.options.ignore_changes == ()
    found = group(built(record, ignore_desired_size=True, labels={"team": "nlp"}))
    assert found.options.ignore_changes == ("scalingConfig.desiredSize",)
    assert found.inputs["labels"] == {**CATALOGUE.node_labels("trn1.32xlarge"), POOL_LABEL: "ng", "team": "nlp"}


def test_group_on_a_foreign_cluster_brings_its_own_role_with_policies(record):
    graph = built(record, node_role_arn=None)
    role = one(graph, IAM_ROLE)
    assert group(graph).inputs["nodeRoleArn"] == role.outputs["arn"]
    assert '"Service": "ec2.amazonaws.com"' in role.inputs["assumeRolePolicy"]
    attached = {each.inputs["policyArn"].rpartition("/")[2]: each for each in of_kind(graph, "RolePolicyAttachment")}
    core = {"AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly", "AmazonSSMManagedInstanceCore"}
    assert attached.keys() == core
    assert {each.urn for each in attached.values()} <= set(group(graph).dependencies)
    assert not of_kind(built(record), IAM_ROLE)
    # A name too long for EKS is refused.
    with pytest.raises(ArgumentError, match="shorter name"):
        record(lambda: AcceleratorNodeGroup("g" * 50, WIRING))
    assert group(record(lambda: AcceleratorNodeGroup("g" * 49, WIRING)))
