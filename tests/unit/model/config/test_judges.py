"""What the judges take and refuse on both sides of their limits, beyond the tables of bad and accepted inputs."""

import datetime
import re

import botocore.session
import pytest
from hand_built import Builder
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.model.config.test_bad_inputs import SOUND, judged, laid_over
from unit.model.config.test_config import EVERY, VARIANTS, put, text

from trainium_eks.model.catalogue import lustre, versions
from trainium_eks.model.catalogue.instance_entries import with_entries
from trainium_eks.model.catalogue.instances import CATALOGUE, CatalogueError
from trainium_eks.model.config import network, repository, storage, waivers
from trainium_eks.model.config.repository import ImageRepositoryConfig
from trainium_eks.model.config.stack_config import load, validate
from trainium_eks.model.config.waivers import WaiverConfig
from trainium_eks.model.sizing import queues
from trainium_eks.model.sizing.queues import QueueConfig
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.config_model import ConfigModelError, read
from trainium_eks.model.validation.problems import Severity, config_path, with_value
from trainium_eks.plan.rules import CONFIG_ALONE, NOT_JUDGED, RULES, judge

NEURON, EFA = "aws.amazon.com/neuron", "vpc.amazonaws.com/efa"
TRN = {"name": "train", "instanceType": "trn1.32xlarge"}
BLOCK = {"type": "capacity-block", "id": "cr-0123456789abcdef0", "zoneId": "usw2-az4"}
SCRATCH = {"deploymentType": "SCRATCH_2", "durability": {"type": "none"}}
PRODUCTION = {"production": True, "network": {"natGateways": "per-zone"}}
RESERVED = ["0.0.0.0/16", "127.0.0.0/16", "169.254.0.0/16", "224.0.0.0/16", "239.255.0.0/16", "240.0.0.0/16"]
BESIDE = ["1.0.0.0/16", "126.255.0.0/16", "128.0.0.0/16", "169.253.0.0/16", "169.255.0.0/16", "223.255.0.0/16"]
NEVER_PUBLIC = [*RESERVED, "100.64.0.0/10", "100.127.255.255/32", "10.0.0.0/8", "192.168.1.0/24"]
PUBLIC = [*BESIDE, "100.63.255.255/32", "100.128.0.0/32", "11.0.0.0/24", "172.32.0.0/24"]

EXISTING = VARIANTS[("existingNetwork",)]
CHILD = {"name": "c", "parent": "test"}


def found(config):
    return judged(laid_over(SOUND, config))


def describe_problems(config):
    return ", ".join(f"{config_path(each.path)} {each.severity} {each.rule}".strip() for each in found(config))


def group(**more):
    return {"nodeGroups": [{**TRN, **more}]}


def system(vcpus, memory):
    own = {"x1.own": {"like": "m6i.xlarge", "vcpus": vcpus, "memoryGib": memory}}
    return {"instanceTypes": own, "cluster": {"systemNodes": {"instanceType": "x1.own"}}}


def of_queues(*more, **first):
    return {"queues": [{"name": "test", **first}, *more]}


def family(key, parent, child):
    return of_queues({"name": "p", key: {NEURON: parent}}, {"name": "c", "parent": "p", key: {NEURON: child}})


def chain(levels):
    return of_queues({"name": "q0"}, *({"name": f"q{each}", "parent": f"q{each - 1}"} for each in range(1, levels)))


def guaranteed(*amounts, **sizes):
    asked = [{"name": f"q{index}", "guarantee": {NEURON: amount}} for index, amount in enumerate(amounts)]
    return {**group(minSize=1, maxSize=8, desiredSize=2, **sizes), **of_queues(*asked)}


def addons(**each):
    return {"cluster": {"addons": {name.replace("_", "-"): value for name, value in each.items()}}}


def of_peers(*blocks, **more):
    return {"network": {"peerCidrBlocks": list(blocks), **more}}


def endpoint(*blocks):
    return {"cluster": {"endpoint": {"publicAccessCidrs": list(blocks)}}}


def adopted(second, **section):
    """A network whose second private subnet lies in a further range of the VPC."""
    first, further = EXISTING["privateSubnets"]
    return {"existingNetwork": {**EXISTING, "privateSubnets": [first, {**further, "cidrBlock": second}], **section}}


def team(name="training", **more):
    return {"namespaces": [{"name": name, "queues": ["test"], **more}]}


def teams(*users):
    each = [{} if user is None else {"trainingUserId": user} for user in users]
    return {"namespaces": [{"name": f"t{n}", "queues": ["test"], **user} for n, user in enumerate(each)]}


def small(nodes):
    """A /24 has 251: 16 for the control plane, 3 x 23 and 23 for CPU nodes, 13 for each of the group's."""
    rest = {"cluster": {"cpuNodes": {"maxSize": 1}}, "fileSystem": None}
    return {**group(maxSize=nodes), "network": {"cidrBlock": "10.0.0.0/22"}, **rest}


def stored(**settings):
    return {"fileSystem": settings}


def efa(size, throughput):
    return stored(efaEnabled=True, throughputPerTib=throughput, storageCapacityGib=size)


def s3(**link):
    return stored(durability={"type": "s3", **link})


def pages(memory_left_mib):
    return group(hugepages2Mi=(CATALOGUE["trn1.32xlarge"].allocatable_memory_mib + 1 - memory_left_mib) // 2)


LUSTRE_STEPS = ((125, 38_400), (250, 19_200), (500, 9_600), (1000, 4_800))
SIZE, R05 = "fileSystem.storageCapacityGib refuse", "cluster.kubernetesVersion acknowledge R05"
PINS = {"kube_proxy": {"version": "v1.33.3-eksbuild.4"}, "coredns": {"version": "v1.12.2-eksbuild.4"}}
CNI = addons(vpc_cni={"version": "v1.18.4-eksbuild.9"})
FURTHER, EBS_VERSION = "existingNetwork.privateSubnets[1].cidrBlock", "cluster.addons.aws-ebs-csi-driver.version"
THREE_ZONES = {"zoneIds": ["usw2-az4", "usw2-az1", "usw2-az2"]}

JUDGED = {
    "sizes of a group": [
        (group(minSize=2, maxSize=2, desiredSize=2), ""),
        (group(minSize=1, maxSize=3, desiredSize=1), ""),
        (group(minSize=1, maxSize=3, desiredSize=3), ""),
        (group(minSize=1, maxSize=3, desiredSize=4), "nodeGroups[0].desiredSize refuse"),
        ({"nodeGroups": [{**TRN, "name": f"g{index}", "instanceType": "trn1.2xlarge"} for index in range(28)]}, ""),
        ({"nodeGroups": [TRN, TRN]}, "nodeGroups[1].name refuse"),
        ({"cluster": {"systemNodes": {"maxSize": 225}}}, ""),
        ({"cluster": {"systemNodes": {"maxSize": 150}}, "network": THREE_ZONES}, ""),
        ({"cluster": {"systemNodes": {"maxSize": 151}}, "network": THREE_ZONES}, "cluster.systemNodes.maxSize refuse"),
        (small(11), ""),
        (small(12), "network.cidrBlock refuse"),
    ],
    "types, their capacity and their interfaces": [
        (system(4, 16), ""),
        (system(3, 16), "cluster.systemNodes.instanceType warn"),
        (system(4, 15), "cluster.systemNodes.instanceType warn"),
        (group(instanceType="trn1.2xlarge", capacity={"type": "spot"}), ""),
        (pages(2), ""),
        (pages(0), "nodeGroups[0].hugepages2Mi refuse"),
        ({**group(), **addons(vpc_cni={"version": "v1.18.5-eksbuild.1"})}, ""),
        ({**group(), **addons(vpc_cni={"version": "v1.9.5-eksbuild.1"})}, "nodeGroups[0].interfaceLayout refuse"),
        ({**group(instanceType="trn1.2xlarge"), **CNI}, ""),
    ],
    "versions and add-ons of a cluster": [
        (laid_over(addons(**PINS), {"cluster": {"kubernetesVersion": "1.33"}}), R05),
        (addons(aws_ebs_csi_driver={"version": "v1.57.9-eksbuild.1"}), f"{EBS_VERSION} refuse"),
        (addons(aws_ebs_csi_driver={"version": "v1.58.0-eksbuild.1"}), ""),
        (addons(eks_node_monitoring_agent={"version": "v1.3.0-eksbuild.1"}), ""),
        (addons(amazon_cloudwatch_observability={}), ""),
        (addons(snapshot_controller={"version": "v8.3.0-eksbuild.1"}), ""),
        (
            addons(vpc_cni={"settings": {"env": {"MINIMUM_IP_TARGET": "9000"}}}),
            ", ".join(["network.cidrBlock refuse"] * 2),
        ),
        (addons(vpc_cni={"settings": {"env": {"WARM_IP_TARGET": "1", "MINIMUM_IP_TARGET": 30}}}), ""),
        (addons(coredns={"version": "v1.11.1-eksbuild.9", "settings": {"autoScaling": {"enabled": True}}}), ""),
        *(
            (addons(vpc_cni={"settings": {"env": {key: "1"}}}), "cluster.addons.vpc-cni.settings.env warn")
            for key in ("WARM_ENI_TARGET", "ENABLE_PREFIX_DELEGATION")
        ),
    ],
    "file systems": [
        (stored(**SCRATCH), ""),
        (stored(protect=False), ""),
        (PRODUCTION | stored(protect=True), ""),
        ({**PRODUCTION, **s3(bucket="my-data")}, ""),
        *((s3(fileSystemPath=path), "fileSystem.durability.fileSystemPath refuse") for path in ("", "/a//b", "/a\n")),
        (s3(bucket="b" * 63, prefix="sets é", fileSystemPath="/sets é"), ""),
        *(
            (s3(bucket=name), "fileSystem.durability.bucket refuse")
            for name in ("192.168.0.1", "a..b", "xn--a", "sthree-a", "a-s3alias", "a--ol-s3", "a--x-s3", "Abc")
        ),
        *((efa(size, each), "") for each, step in LUSTRE_STEPS for size in (step, 2 * step)),
        *((efa(size, each), SIZE) for each, step in LUSTRE_STEPS for size in (1200, step // 2, step - 1, step + 2400)),
    ],
    "queues and the pool that they share": [
        (of_queues(capability={NEURON: 96}, deserved={NEURON: 96}), ""),
        (of_queues(capability={NEURON: 97}), f'queues[0].capability["{NEURON}"] refuse'),
        (of_queues(deserved={NEURON: 97}), f'queues[0].deserved["{NEURON}"] refuse'),
        (of_queues(guarantee={NEURON: 9}, capability={NEURON: 8}), f'queues[0].guarantee["{NEURON}"] refuse'),
        (of_queues({"name": "b", "deserved": {NEURON: 48}}, deserved={NEURON: 48}), ""),
        (
            of_queues({"name": "b", "deserved": {NEURON: 49}}, deserved={NEURON: 48}),
            f'queues[1].deserved["{NEURON}"] refuse',
        ),
        (family("capability", 32, 32), ""),
        (family("guarantee", 16, 32), f'queues[2].guarantee["{NEURON}"] refuse'),
        (chain(5), ""),
        (chain(6), "queues[6].parent refuse"),
        # What nodes at rest do not have is no guarantee: an autoscaler may take all but the smallest size away.
        (guaranteed(16, 16), ""),
        (guaranteed(16, 17), f'queues[2].guarantee["{NEURON}"] warn'),
        (guaranteed(16, ignoreDesiredSize=True), ""),
        (guaranteed(17, ignoreDesiredSize=True), f'queues[1].guarantee["{NEURON}"] warn'),
        ({"volcano": {"reclaim": True}}, "volcano.reclaim warn"),
        ({**group(minSize=1, desiredSize=1), "volcano": {"scaleFromZero": False}}, ""),
    ],
    "teams": [
        (team("n" * 40), ""),
        (team("n" * 41), "namespaces[0].name refuse"),
        (of_queues(CHILD) | team(queues=["test", "c"]), "namespaces[0].queues[0] refuse"),
        (teams(1000, 1001), ""),
        (teams(None, None) | {"fileSystem": None}, ""),
        (group(name="n" * 40), ""),
        (group(name="n" * 41), "nodeGroups[0].name refuse"),
    ],
    "networks": [
        ({"network": {"zoneIds": ["usw2-az1"]}}, "network.zoneIds refuse"),
        (
            {"network": {"interfaceEndpoints": ["sts", "s3", "ecr-api", "ECR"]}},
            ", ".join(f"network.interfaceEndpoints[{n}] {how}" for n, how in ((1, "warn"), (2, "warn"), (3, "refuse"))),
        ),
        ({"existingNetwork": EXISTING, "network": {"natGateways": "per-zone"}}, "network warn"),
        ({"existingNetwork": EXISTING, "network": {}}, ""),
        (PRODUCTION, ""),
        ({"production": True, "network": {"interfaceEndpoints": list(network.COMPLETE_ENDPOINTS)}}, ""),
        *((of_peers(block), "network.peerCidrBlocks[0] refuse") for block in (*RESERVED, "126.0.0.0/7")),
        *((of_peers("10.9.0.0/16", cidrBlock=block), "") for block in (*BESIDE, "100.64.0.0/16", "100.127.0.0/16")),
        *((of_peers(block), "") for block in BESIDE),
        (adopted("100.64.0.0/17", peerCidrBlocks=["100.64.64.0/18"]), f"{FURTHER} refuse"),
        (adopted("100.64.0.0/17", peerCidrBlocks=["100.64.128.0/18"]), f"{FURTHER} warn"),
        (adopted("169.254.0.0/17"), f"{FURTHER} refuse"),
        (adopted("172.20.128.0/17"), f"{FURTHER} warn, cluster.serviceCidrBlock refuse"),
        (adopted("172.21.0.0/17"), f"{FURTHER} warn"),
        *((endpoint(block), "cluster.endpoint.publicAccessCidrs[0] refuse") for block in NEVER_PUBLIC),
        *((endpoint(block), "") for block in PUBLIC),
        (endpoint("::/0"), "cluster.endpoint.publicAccessCidrs[0] refuse"),
        (endpoint("0.0.0.0/0"), "cluster.endpoint.publicAccessCidrs[0] acknowledge R02"),
    ],
    "waivers": [
        *(
            ({"waivers": {"R06": {"reason": "x", "expires": day}}}, "waivers.R06.expires refuse")
            for day in ("20270331", "2027-W13-3", "2027-13-01", "31.3.2027", "never")
        ),
        ({"waivers": {"R06": {"reason": "torn down"}}}, "waivers.R06.expires refuse"),
    ],
}


@pytest.mark.parametrize(
    ("config", "expected"),
    [pytest.param(*row, id=f"{what}-{n}") for what, rows in JUDGED.items() for n, row in enumerate(rows, 1)],
)
def test_config_is_judged_on_each_side_of_a_limit(config, expected):
    assert describe_problems(config) == expected


@pytest.mark.parametrize(
    ("config", "place", "good"),
    [
        (of_peers("10.0.0.0/15", "10.2.0.0/16"), "network.cidrBlock", "10.3.0.0/16"),
        *(
            (stored(storageCapacityGib=given), "fileSystem.storageCapacityGib", good)
            for given, good in ((0, 1200), (1201, 1200), (1800, 2400), (4801, 4800), (100_000, 100_800))
        ),
        (teams(1000, 1001, 1000), "namespaces[2].trainingUserId", 1002),
        (teams(1000, 1001, 1002, 1000), "namespaces[3].trainingUserId", 1003),
        (team(queues=["tst"]), "namespaces[0].queues[0]", "test"),
        # A range of no VPC gets none proposed for its peers, and no entry of a default list can be set.
        ({"network": {"cidrBlock": "10.0.0.0/8", "peerCidrBlocks": ["10.0.0.0/16"]}}, "network.cidrBlock", None),
        ({"queues": [{"name": "other"}]}, "namespaces[0].queues[0]", None),
    ],
)
def test_fix_is_the_nearest_valid_value(config, place, good):
    assert good in [each.good for each in found(config) if config_path(each.path) == place]
    assert good is None or describe_problems(with_value(config, place, good)) == ""


@pytest.mark.parametrize("prefix", range(17, 24))
def test_proposed_range_is_large_enough(prefix):
    config = {**group(maxSize=60, interfaceLayout="efa"), "network": {"cidrBlock": f"10.0.0.0/{prefix}"}}
    problems = found(config)
    assert [config_path(each.path) for each in problems] == ["network.cidrBlock"] * (prefix > 19)
    assert all(describe_problems({**config, "network": {"cidrBlock": each.good}}) == "" for each in problems)


@pytest.mark.parametrize("name", [name for name, kind in CATALOGUE.items() if kind.family != "cpu"])
def test_every_accelerator_is_a_valid_group_with_its_offered_capacity(name):
    usage = CATALOGUE[name].usage
    capacity = {"type": "on-demand"} if "on-demand" in usage else BLOCK
    problems = found(group(instanceType=name, capacity=capacity))
    assert [each for each in problems if "zone" not in each.reason and each.severity is not Severity.WARN] == []


SUPPORT = versions.KUBERNETES_STANDARD_SUPPORT


@pytest.mark.parametrize("version", sorted(SUPPORT))
@pytest.mark.parametrize(("days", "severity"), [(120, []), (119, ["warn"]), (30, ["warn"]), (29, ["acknowledge"])])
def test_end_of_standard_support_warns_once_a_certified_version_follows(monkeypatch, version, days, severity):
    # Without a version to go to nothing warns before the last month.
    severity = [] if days >= 30 and versions.minor(version) >= versions.minor(versions.KUBERNETES) else severity
    end = datetime.datetime.fromisoformat(f"{SUPPORT[version].standard_end}T00:00Z")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(int((end - datetime.timedelta(days)).timestamp())))
    for policy, words in (("STANDARD", "by itself"), ("EXTENDED", "six times")):
        config = {"cluster": {"kubernetesVersion": version, "supportType": policy}}
        said = [each for each in found(config) if "ends on" in each.reason]
        assert [each.severity for each in said] == severity
        assert all(words in each.reason for each in said)


def test_old_or_unpinned_node_image_is_warned_of(monkeypatch):
    for days, warned in ((90, ""), (91, "cluster.kubernetesVersion warn")):
        made = datetime.datetime(2026, 11, 21) - datetime.timedelta(days)
        monkeypatch.setattr(versions, "AMI_RELEASES", {versions.KUBERNETES: f"1.35.8-{made:%Y%m%d}"})
        assert describe_problems({}) == warned
    monkeypatch.setattr(versions, "AMI_RELEASES", {})
    (problem,) = found({})
    assert (problem.path, problem.severity) == ("cluster.kubernetes_version", Severity.WARN)
    assert "`release_version` of each node group" in problem.fix


EIGHTS = ("203.0.0.0/9", "203.128.0.0/9")


@pytest.mark.parametrize(
    ("blocks", "wide"),
    [
        (("203.0.0.0/8",), False),
        (EIGHTS, False),
        ((*EIGHTS, "203.7.0.0/16"), False),  # counted once
        ((*EIGHTS, "202.0.0.1/32"), True),
        (("12.0.0.0/7",), True),
        (("1.0.0.0/8", "64.0.0.0/3", "128.0.0.0/2", "16.0.0.0/4"), True),  # seven sixteenths of the internet
        (("0.0.0.0/1", "128.0.0.0/1"), True),
    ],
)
def test_config_and_rule_refuse_the_same_ranges(blocks, wide):
    assert ({each.rule for each in found(endpoint(*blocks))} == {"R02"}) == wide
    assert ({each.rule for each in found({**PRODUCTION, **endpoint(*blocks)})} >= {"R02", "R03"}) == wide
    builder = Builder()
    access = {"endpointPrivateAccess": True, "endpointPublicAccess": True, "publicAccessCidrs": list(blocks)}
    builder.add("aws:eks/cluster:Cluster", "cluster", vpcConfig=access)
    failing = {result.id for result in judge(builder.graph({"production": True})) if result.status == "fail"}
    assert failing & {"R02", "R03"} == ({"R02", "R03"} if wide else set())
    assert set(waivers.RULES) == {rule.id for rule in RULES} | set(NOT_JUDGED) | set(CONFIG_ALONE)


def test_queue_defaults_come_from_pool_parent_and_guarantee():
    pool = {NEURON: 64, EFA: 32}
    tree = [
        QueueConfig(name="a", capability={NEURON: 32}, guarantee={NEURON: 16}),
        QueueConfig(name="b", parent="a"),
        QueueConfig(name="c", parent="b"),
        QueueConfig(name="d", parent="root"),
    ]
    resolved = queues.resolve(tree, pool)
    assert [queue.capability for queue in resolved] == [{NEURON: 32}] * 3 + [pool]
    assert resolved[0].deserved == {NEURON: 16}, "Volcano's webhook refuses a guarantee that deserved does not name"
    assert queues.leaves(tree) == ("c", "d")
    below = [QueueConfig(name="a", guarantee={NEURON: 32}), QueueConfig(name="b", parent="a", guarantee={NEURON: 32})]
    assert queues.guarantee_problems(below, present={NEURON: 32}) == [], "a share of its parent's"


def test_lustre_mounts_by_its_ports_and_writes_at_its_disks_speed():
    assert lustre.PORTS == ((988, 988), (1018, 1023)), "the FSx guide's"
    mounted = {"/": "m", "": "m", "/team": "m/team", "/linked/team/": "m/linked/team"}
    assert {each: lustre.fileset("m", each) for each in mounted} == mounted
    directories = {"/": "/team", "/linked": "/linked/team", "/a/b/": "/a/b/team"}
    assert {each: lustre.team_directory(each, "team") for each in directories} == directories
    for gib, kind, each, megabytes in ((1200, "PERSISTENT_2", 250, 293), (9600, "PERSISTENT_2", 1000, 9375)):
        assert lustre.write_megabytes_per_second(gib, kind, each) == pytest.approx(megabytes, abs=0.5)
    assert lustre.write_megabytes_per_second(2400, "SCRATCH_2", 250) == pytest.approx(234, abs=0.5)


def test_formats_equal_the_services_models():
    session = botocore.session.get_session()
    name = session.get_service_model("ecr").shape_for("RepositoryName").metadata
    assert repository.REPOSITORY_NAME.pattern == name["pattern"].replace("\\/", "/")
    for length, sound in ((1, False), (name["min"], True), (name["max"], True), (257, False)):
        assert (repository.validate(ImageRepositoryConfig(name="a" * length)) == []) == sound
    days = session.get_service_model("logs").shape_for("Days").documentation.split("Possible values are:")[1]
    assert tuple(map(int, re.findall(r"\d+", days.split(".")[0]))) == formats.RETENTION_DAYS
    fsx = session.get_service_model("fsx")
    members = fsx.shape_for("CreateFileSystemLustreConfiguration").members
    speed = members["PerUnitStorageThroughput"].documentation.split("<code>PERSISTENT_2</code> SSD storage:")[1]
    assert tuple(map(int, re.findall(r"\d+", speed.split("MB/s")[0]))) == storage.THROUGHPUT_PER_TIB
    assert set(storage.EFA_STEP_GIB) == set(storage.THROUGHPUT_PER_TIB)
    iops = fsx.shape_for("MetadataIops").metadata
    assert (min(storage.METADATA_IOPS), max(storage.METADATA_IOPS)) == (iops["min"], iops["max"])


@pytest.mark.parametrize("name", ["m7g.4xlarge", "im4gn.4xlarge", "a1.xlarge", "p6e-gb200.36xlarge"])
def test_arm64_type_is_refused_and_no_x86_type_is_mistaken_for_one(name):
    with pytest.raises(CatalogueError, match="arm64"):
        with_entries(CATALOGUE, {name: {"like": "m6i.4xlarge"}})
    for other in ("m7i.4xlarge", "g6e.4xlarge", "m7i-flex.4xlarge", "p6-b200.4xlarge"):
        assert other in with_entries(CATALOGUE, {other: {"like": "m6i.4xlarge"}})


@pytest.mark.parametrize("written", ["2027-03-31", datetime.date(2027, 3, 31), "2027-03-31T00:00:00Z"])
def test_unquoted_date_is_a_date(written):
    """PyYAML makes a date of it; the CLI sends midnight in UTC."""
    waiver = read(WaiverConfig, {"reason": "torn down", "expires": written})
    assert waiver.expires == "2027-03-31"
    assert waivers.validate({"R06": waiver}) == []
    assert waivers.reasons({"R06": waiver}) == {"R06": "torn down"}
    # Reasons are read from every form.
    for form, expected in (({"reason": "a", "expires": "x"}, "a"), ("a", "a"), ({}, "")):
        assert waivers.reasons({"R06": form}) == {"R06": expected}
    assert waivers.reasons(["R06"]) == waivers.reasons(None) == {}


SHORT = st.text(max_size=8)
PLAUSIBLE = ["0.0.0.0/0", "10.0.0.0/33", "::/0", "a/b", "trn1.32xlarge", "usw2-az4", "us-west-2d", "root", "²", "1.²"]
ODD = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.text(max_size=80), st.sampled_from(PLAUSIBLE)),
    *(st.lists(SHORT, max_size=3), st.dictionaries(SHORT, st.one_of(st.integers(), SHORT), max_size=2)),
)


@settings(max_examples=150, deadline=None)
@given(field=st.sampled_from([param.values[0] for param in EVERY]), value=ODD, production=st.booleans())
def test_no_value_makes_validation_raise(field, value, production):
    changed = put(put(field.data, field.path, value), ("production",), production)
    try:
        config = load(text(changed))
    except ConfigModelError:
        return
    for problem in validate(config):
        assert problem.path
        assert problem.rule if problem.severity is Severity.ACKNOWLEDGE else not problem.rule
