"""The catalogue against EC2's own data (moto), the Neuron documentation, Karpenter's published figures and botocore."""

import gzip
import json
import re
from collections import Counter
from pathlib import Path

import botocore.loaders
import moto
import pytest

from components._launch_template import interfaces
from trainium_eks.model.catalogue import instance_data, sagemaker_hosting
from trainium_eks.model.catalogue.backends import backend_of
from trainium_eks.model.catalogue.instance_entries import with_entries
from trainium_eks.model.catalogue.instances import CATALOGUE, CatalogueError, Taint, UnknownInstanceTypeError, near
from trainium_eks.model.config.capacity import CapacityBlock, OnDemand, Spot, eks_capacity_type

RESOURCES = Path(moto.__file__).parent / "ec2" / "resources"
EC2 = json.loads(gzip.decompress((RESOURCES / "instance_types.json.gz").read_bytes()))
NAMES = sorted(CATALOGUE)

# Where the catalogue deliberately says something else than EC2, and what EC2 says.
TRAINIUM2_CHIP_MEMORY_GIB = (96, 512)  # the Neuron documentation's number and the API's


OFFERINGS = {}
"""Type to region to zone ids."""
for path in (RESOURCES / "instance_type_offerings" / "availability-zone-id").iterdir():
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    for offer in json.loads(text):
        regions = OFFERINGS.setdefault(offer["InstanceType"], {})
        regions.setdefault(path.name.split(".")[0], set()).add(offer["Location"])


def enum(service, shape):
    model = botocore.loaders.Loader().load_service_model(service, "service-2")
    return set(model["shapes"][shape]["enum"])


@pytest.mark.parametrize("name", NAMES)
def test_facts_equal_ec2s(name):
    kind, facts = CATALOGUE[name], EC2[name]
    assert (kind.name, kind.vcpus) == (name, facts["VCpuInfo"]["DefaultVCpus"])
    assert kind.memory_gib * 1024 == facts["MemoryInfo"]["SizeInMiB"]
    assert facts["ProcessorInfo"]["SupportedArchitectures"] == ["x86_64"], "the AMI types are all x86_64"
    network = facts["NetworkInfo"]
    assert kind.network_cards == network["MaximumNetworkCards"]
    assert kind.ipv4_per_interface == network["Ipv4AddressesPerInterface"]
    assert kind.interfaces_per_card == network["NetworkCards"][0]["MaximumNetworkInterfaces"]
    assert kind.efa_interfaces == network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0)
    assert kind.has_efa == network["EfaSupported"]
    disks = facts.get("InstanceStorageInfo", {}).get("Disks") or [{"Count": 0, "SizeInGB": 0}]
    assert [(kind.local_disks, kind.local_disk_gb)] == [(disk["Count"], disk["SizeInGB"]) for disk in disks]
    assert kind.usage == set(facts["SupportedUsageClasses"])
    assert {region: set(zones) for region, zones in kind.zones.items()} == OFFERINGS[name]
    for region in kind.zones:
        assert CATALOGUE.offered(name, region) == tuple(sorted(OFFERINGS[name][region]))
    gpus = [each for each in facts.get("GpuInfo", {}).get("Gpus", ()) if each["Manufacturer"] == "NVIDIA"]
    described = bool(gpus or facts.get("NeuronInfo", {}).get("NeuronDevices"))
    assert described == (kind.family != "cpu" and name not in instance_data.NO_DEVICES_IN_EC2), "for Karpenter"


@pytest.mark.parametrize("name", [name for name in NAMES if CATALOGUE[name].has_efa])
def test_interface_layout_fits_ec2s_network_cards(name):
    """A plain interface first, ``efa-only`` beside it and as device 0 of the other cards."""
    kind = CATALOGUE[name]
    cards = {card["NetworkCardIndex"]: card for card in EC2[name]["NetworkInfo"]["NetworkCards"]}
    for index, count in Counter(each.card for each in interfaces(kind, "ena")).items():
        assert count <= cards[index]["MaximumNetworkInterfaces"]
    with_efa = range(kind.first_efa_card, kind.first_efa_card + kind.efa_interfaces)
    assert all("efa-only" in cards[index]["InterfaceTypes"] for index in with_efa)
    assert ("efa" in cards[0]["InterfaceTypes"]) == (kind.first_efa_card == 0)
    assert kind.interface_layout == ("efa-only" if "efa" in cards[0]["InterfaceTypes"] else "ena")


@pytest.mark.parametrize("name", [name for name in NAMES if CATALOGUE[name].family == "neuron"])
def test_neuron_devices_and_cores_equal_ec2s(name):
    kind = CATALOGUE[name]
    if name in instance_data.NO_DEVICES_IN_EC2:
        twin = CATALOGUE["trn2.48xlarge"]
        assert (kind.accelerators, kind.neuron_cores) == (twin.accelerators, twin.neuron_cores)
        return
    [device] = EC2[name]["NeuronInfo"]["NeuronDevices"]
    assert (kind.accelerator, kind.accelerators) == (device["Name"], device["Count"])
    assert kind.neuron_cores == device["Count"] * device["CoreInfo"]["Count"]
    assert kind.logical_neuron_cores * (2 if kind.accelerator == "Trainium2" else 1) == kind.neuron_cores
    each = device["MemoryInfo"]["SizeInMiB"] // 1024
    documented, reported = TRAINIUM2_CHIP_MEMORY_GIB
    if kind.accelerator == "Trainium2":
        assert each == reported, "EC2 changed its number: see whether it now agrees with the documentation"
        each = documented
    assert kind.accelerator_memory_gib == kind.accelerators * each


@pytest.mark.parametrize("name", [name for name in NAMES if CATALOGUE[name].family == "nvidia"])
def test_gpus_equal_ec2s(name):
    kind = CATALOGUE[name]
    [gpus] = EC2[name]["GpuInfo"]["Gpus"]
    assert (kind.accelerators, kind.accelerator.split("-")[0]) == (gpus["Count"], gpus["Name"])
    assert kind.accelerator_memory_gib == EC2[name]["GpuInfo"]["TotalGpuMemoryInMiB"] // 1024


def test_every_ec2_accelerator_is_in_the_catalogue_with_sagemakers_name():
    training = enum("sagemaker", "TrainingInstanceType")
    for name, kind in CATALOGUE.items():
        if kind.family != "cpu":
            assert kind.sagemaker_name == (f"ml.{name}" if f"ml.{name}" in training else None)
    known = {name for name in EC2 if re.match(r"(trn\d|inf2|p[456])", name)}
    assert known - set(NAMES) == set(), "EC2 has a type that the catalogue lacks"


def test_ami_types_taint_effects_and_capacity_types_are_words_of_eks():
    assert {kind.ami_type for kind in CATALOGUE.values()} <= enum("eks", "AMITypes")
    effects = {taint.eks_effect for name in NAMES for taint in CATALOGUE.taints(name)}
    effects |= {Taint("k", "v", effect).eks_effect for effect in ("PreferNoSchedule", "NoExecute")}
    assert effects == enum("eks", "TaintEffect")
    backends = {"trn1.32xlarge": "xla", "trn2.48xlarge": "neuron", "p5.48xlarge": "cuda", "m6i.xlarge": "cpu"}
    assert {name: backend_of(CATALOGUE[name]) for name in backends} == backends
    capacities = (OnDemand(), Spot(), CapacityBlock(id="cr-0", zone_id="usw2-az4"))
    assert {eks_capacity_type(capacity) for capacity in capacities} == enum("eks", "CapacityTypes")


def test_sagemaker_types_equal_botocores_with_the_gpus_of_ec2():
    for name, kind in sagemaker_hosting.G5.items():
        found = EC2[name]
        [gpu], [disks] = found["GpuInfo"]["Gpus"], found["InstanceStorageInfo"]["Disks"]
        assert (kind.accelerators, kind.vcpus) == (gpu["Count"], found["VCpuInfo"]["DefaultVCpus"])
        assert kind.memory_gib * 1024 == found["MemoryInfo"]["SizeInMiB"]
        assert (kind.local_disks, kind.local_disk_gb) == (disks["Count"], disks["SizeInGB"])
    known = sagemaker_hosting.types(CATALOGUE)
    for batch, shape in ((False, "ProductionVariantInstanceType"), (True, "TransformInstanceType")):
        allowed = {
            f"ml.{name}" for name in known if not sagemaker_hosting.problems("x", f"ml.{name}", CATALOGUE, batch=batch)
        }
        assert allowed == {f"ml.{name}" for name in known} & enum("sagemaker", shape)


def test_allocatable_equals_karpenters_published_values():
    published = {
        "trn1.2xlarge": (7910, 29317, 58),
        "trn1.32xlarge": (127610, 481894, 247),
        "trn2.48xlarge": (191450, 1938410, 100),
        "p5.48xlarge": (191450, 1938410, 100),
        "p4d.24xlarge": (95690, 1082712, 250),
    }
    for name, figures in published.items():
        kind = CATALOGUE[name]
        assert (kind.allocatable_millicpu, kind.allocatable_memory_mib, kind.max_pods) == figures
    devices = {"aws.amazon.com/neuron": "16", "aws.amazon.com/neuroncore": "32", "vpc.amazonaws.com/efa": "8"}
    assert CATALOGUE.allocatable("trn1.32xlarge") == {"cpu": "127610m", "memory": "481894Mi", "pods": "247", **devices}
    assert CATALOGUE.allocatable("p4d.24xlarge")["hugepages-2Mi"] == "5120Mi"
    assert CATALOGUE.allocatable("p4d.24xlarge")["memory"] == f"{1082712 - 5120}Mi"
    reserving = {name for name in NAMES if CATALOGUE[name].hugepages_2mi}
    assert reserving == {name for name in NAMES if CATALOGUE[name].family == "nvidia" and CATALOGUE[name].has_efa}


@pytest.mark.parametrize(
    ("name", "devices"),
    [
        ("trn1n.32xlarge", {"aws.amazon.com/neuron": 16, "vpc.amazonaws.com/efa": 16}),
        ("trn1.2xlarge", {"aws.amazon.com/neuron": 1}),
        ("p5.48xlarge", {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 32}),
        ("m6i.xlarge", {}),
    ],
)
def test_a_node_has_resources_labels_and_a_taint_of_its_devices(name, devices):
    assert CATALOGUE.device_resources(name) == devices
    assert CATALOGUE.node_labels(name) == {f"{each}.present": "true" for each in devices}
    assert CATALOGUE.taints(name) == tuple(Taint(each, "true", "NoSchedule") for each in [*devices][:1])


def test_known_price_has_day_and_region_and_quota_codes_are_well_formed():
    price = CATALOGUE.price("trn1.32xlarge")
    assert (price.hourly_usd, price.region) == (21.50, "us-east-1")
    assert re.fullmatch(r"2026-\d\d-\d\d", price.date)
    assert CATALOGUE.price("trn2.48xlarge") is None
    block = {
        name: CATALOGUE.price(name, "capacity-block") for name in ("trn2.48xlarge", "p5en.48xlarge", "trn2u.48xlarge")
    }
    assert [each and each.hourly_usd for each in block.values()] == [35.76, 41.61, None]
    assert CATALOGUE.price("p5en.48xlarge", "on-demand").hourly_usd == 63.296
    assert CATALOGUE.price("trn1.32xlarge", "capacity-block") == price, "no price of its blocks is known"
    own = extended("trn2u.48xlarge", blockHourlyUsd=36.5)
    assert own.block_hourly_usd == 36.5
    unpriced = {name for name in NAMES if CATALOGUE.price(name) is None}
    assert all(not CATALOGUE[name].price_date and not CATALOGUE[name].price_region for name in unpriced)
    for kind in CATALOGUE.values():
        assert re.fullmatch(r"L-[0-9A-F]{8}", kind.quota_on_demand)
        assert re.fullmatch(r"(L-[0-9A-F]{8})?", kind.quota_spot)
    assert CATALOGUE["trn1.32xlarge"].quota_on_demand == "L-2C3B7624"


def test_no_ec2_type_is_read_as_another():
    """Prices are about those of vCPUs in a generation: g5.8xlarge is not p5.48xlarge at twenty times its price."""
    for name, facts in EC2.items():
        kind = CATALOGUE.get(near(name, NAMES) or "")
        if kind is not None:
            assert 1 / 1.5 <= kind.vcpus / facts["VCpuInfo"]["DefaultVCpus"] <= 1.5, name
            devices = {"NeuronInfo", "GpuInfo", "InferenceAcceleratorInfo"} & set(facts)
            assert (kind.family != "cpu") is bool(devices) or name in instance_data.NO_DEVICES_IN_EC2, (name, kind.name)
    assert near("trn1.32xlrge", NAMES) == "trn1.32xlarge"
    assert near("tnr1.32xlarge", NAMES) == "trn1.32xlarge"
    with pytest.raises(UnknownInstanceTypeError, match=r"did you mean trn1\.32xlarge") as caught:
        CATALOGUE.find("trn1.32xlrge")
    assert caught.value.nearest == "trn1.32xlarge"
    with pytest.raises(UnknownInstanceTypeError, match="known: c5"):
        CATALOGUE.allocatable("z")


# Entries of the stack's config.

REQUIRED = (
    "family accelerator accelerators neuron_cores logical_neuron_cores accelerator_memory_gib vcpus memory_gib "
    "network_cards interfaces_per_card ipv4_per_interface efa_interfaces first_efa_card interface_layout local_disks "
    "local_disk_gb ami_type hugepages_2mi quota_on_demand quota_spot usage"
)
WHOLE = {name: getattr(CATALOGUE["trn2.48xlarge"], name) for name in REQUIRED.split()}
WHOLE |= {"usage": ["capacity-block"], "zones": {"us-east-2": ["use2-az2", "use2-az1"]}}


def extended(name, **entry):
    return with_entries(CATALOGUE, {name: entry}).find(name)


def faults(**entries):
    with pytest.raises(CatalogueError) as caught:
        with_entries(CATALOGUE, entries)
    return {problem.path: problem.reason for problem in caught.value.problems}


def test_new_type_has_every_field_or_inherits_without_zones_and_price():
    kind = extended("trn3.48xlarge", **WHOLE)
    assert kind.zones["us-east-2"] == ("use2-az1", "use2-az2")
    assert (kind.allocatable_millicpu, kind.max_pods, kind.hourly_usd) == (191450, 100, None)
    assert "trn3.48xlarge" not in CATALOGUE, "the catalogue itself never changes"
    for field in WHOLE.keys() - {"zones"}:
        found = faults(**{"trn3.48xlarge": {key: value for key, value in WHOLE.items() if key != field}})
        assert list(found.values()) == ["it is required and missing"]
    like = extended("trn1x.32xlarge", like="trn1.32xlarge", vcpus=64)
    assert (like.accelerators, like.efa_interfaces, like.family) == (16, 8, "neuron")
    assert like.allocatable_millicpu == 64000 - 60 - 10 - 10 - 150, "derived anew from the new vCPU"
    assert (dict(like.zones), like.hourly_usd, like.sagemaker_name) == ({}, None, None)


def test_known_type_with_changed_facts_keeps_the_others():
    kind = extended("trn2.48xlarge", hourly_usd=20.0, priceDate="2026-11-01", price_region="us-east-2")
    assert (kind.hourly_usd, kind.price_date, kind.vcpus) == (20.0, "2026-11-01", 192)
    assert kind.zones == CATALOGUE["trn2.48xlarge"].zones
    changed = {"us-west-2": ["usw2-az2"], "us-east-1": [], "eu-west-1": ["euw1-az1"]}
    zones = extended("trn1.32xlarge", zones=changed).zones
    assert zones == {"us-west-2": ("usw2-az2",), "eu-west-1": ("euw1-az1",), "us-east-2": ("use2-az3",)} | {
        region: each for region, each in CATALOGUE["trn1.32xlarge"].zones.items() if region not in changed
    }
    assert extended("trn1.32xlarge", allocatableMillicpu=127000).allocatable_millicpu == 127000, "given, not derived"
    assert CATALOGUE.offered("trn1.32xlarge", "eu-west-1") == CATALOGUE.offered("trn1.32xlarge", "no-such-1") == ()


PRICE = {"hourlyUsd": 1, "priceDate": "2026-11-01", "priceRegion": "us-east-1"}


@pytest.mark.parametrize(
    ("field", "entry"),
    [
        *(("vcpus", {"vcpus": value}) for value in (2.5, True, float("nan"), "128")),
        ("memory_gib", {"memoryGib": float("inf")}),
        ("efa_interfaces", {"efaInterfaces": -1}),
        ("efa_interfaces", {"efaInterfaces": 9}),
        ("family", {"family": "tpu"}),
        ("interface_layout", {"interfaceLayout": "efa"}),
        ("interface_layout", {"efaInterfaces": 0}),
        ("interface_layout", {"firstEfaCard": 1, "efaInterfaces": 7}),
        ("ami_type", {"amiType": "AL2023_x86_64_NVIDIA"}),
        ("accelerator", {"accelerator": 3}),
        ("accelerators", {"accelerators": 0}),
        ("logical_neuron_cores", {"logicalNeuronCores": 64}),
        ("price_date", {**PRICE, "priceDate": "soon"}),
        ("price_region", {**PRICE, "priceRegion": ""}),
        ("block_hourly_usd", {"blockHourlyUsd": -1}),
        ("usage", {"usage": []}),
        ("usage", {"usage": ["reserved"]}),
        ("zones", {"zones": ["usw2-az4"]}),
        *(("zones", {"zones": {"us-west-2": value}}) for value in ("usw2-az4", ["us-west-2d"], ["use1-az4"])),
        ("sagemaker_name", {"sagemakerName": 1}),
        ("local_disks", {"localDisks": 0}),
        *(("", entry) for entry in (None, 3, "trn1", ["vcpus"])),
    ],
)
def test_each_fault_of_an_entry_is_named_with_its_field(field, entry):
    assert set(faults(**{"trn1.32xlarge": entry})) == {f"trn1.32xlarge.{field}".rstrip(".")}


def test_all_faults_of_all_entries_come_together():
    entries = {"trn1.32xlarge": {"vcpus": 0, "memoryGib": "x"}, "trn2.48xlarge": {"nope": 1}, "Trn3": WHOLE}
    paths = ["trn1.32xlarge.vcpus", "trn1.32xlarge.memory_gib", "trn2.48xlarge.nope", "Trn3"]
    assert list(faults(**entries)) == paths
    assert "p4d.24xlarge.neuron_cores" in faults(**{"p4d.24xlarge": {"neuronCores": 2}})
