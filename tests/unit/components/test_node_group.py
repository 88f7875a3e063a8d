import base64
import email
import subprocess
from dataclasses import replace
from datetime import datetime

import pytest
from dry_run import planned_alike
from unit.components.parts import LEAST, of_kind, one

from components import _launch_template as template
from components._args import ArgumentError
from components._user_data import is_large_lustre_client, logical_core_setting
from components.node_group import AcceleratorNodeGroup
from trainium_eks.model.catalogue.instance_entries import with_entries
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.model.node_labels import POOL_LABEL

ACCELERATED = tuple(name for name, kind in CATALOGUE.items() if kind.family != "cpu")
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
    whole = with_entries(CATALOGUE, {"trn2.48xlarge": {"logicalNeuronCores": 128}})
    assert "NEURON_LOGICAL_NC_CONFIG=1" in str(user_data(built(record, "trn2.48xlarge", catalogue=whole)))
    # The runtime pairs cores by itself from Trainium2 on.
    for accelerator, setting in (("Trainium1", 2), ("Trainium2", 0), ("Trainium3", 0)):
        paired = replace(CATALOGUE.find("trn2.48xlarge"), accelerator=accelerator)
        assert logical_core_setting(paired) == setting


def test_name_too_long_for_eks_is_refused(record):
    with pytest.raises(ArgumentError, match="shorter name"):
        record(lambda: AcceleratorNodeGroup("g" * 50, WIRING))
    assert group(record(lambda: AcceleratorNodeGroup("g" * 49, WIRING)))


@pytest.mark.parametrize(
    ("name", "now", "size", "actions"),
    [
        ("trn1.32xlarge", "2027-01-11T11:27:59", 0, {"start": ("2027-01-11T11:30:00Z", 4)}),
        # Auto Scaling would refuse the action by the time that it is asked.
        ("trn1.32xlarge", "2027-01-11T11:28:00", 4, {}),
        ("trn1.32xlarge", "2027-01-14T10:49:59", 4, {}),
        ("trn1.32xlarge", "2027-01-14T10:50:00", 0, {}),
        ("trn2u.48xlarge", "2026-12-01T00:00:00", 0,
         {"start": ("2027-01-11T11:30:00Z", 4), "drain": ("2027-01-14T10:15:00Z", 0)}),
        ("trn2u.48xlarge", "2027-01-13T00:00:00", 4, {"drain": ("2027-01-14T10:15:00Z", 0)}),
        ("trn2u.48xlarge", "2027-01-14T10:15:00", 0, {}),
    ],
)  # fmt: skip
def test_block_is_scheduled_as_long_as_its_moments_are_ahead(record, monkeypatch, name, now, size, actions):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(int(datetime.fromisoformat(f"{now}Z").timestamp())))
    region, zone = ("ap-south-2", "aps2-az1") if name == "trn2u.48xlarge" else ("us-west-2", "usw2-az4")
    block = {"type": "capacity-block", "id": "cr-0123456789abcdef0", "zone_id": zone, "nodes": 4}
    block |= {"starts": "2027-01-11T11:30:00Z", "ends": "2027-01-14T11:30:00Z"}
    graph = built(record, name, region=region, capacity=block, max_size=4, desired_size=0, ignore_desired_size=True)
    assert group(graph).inputs["scalingConfig"]["desiredSize"] == size
    made = {each.name.removeprefix("g-block-"): each.inputs for each in of_kind(graph, "Schedule")}
    assert {key: (each["startTime"], each["desiredCapacity"]) for key, each in made.items()} == actions
    assert all((each["minSize"], each["maxSize"]) == (-1, -1) for each in made.values())
