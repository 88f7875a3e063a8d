"""What the judges take and refuse on both sides of their limits, beyond the tables of bad and accepted inputs."""

import datetime
import json
import re
from pathlib import Path

import botocore.session
import pytest
import yaml
from hand_built import Builder
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.model.config.test_bad_inputs import SOUND, judged, laid_over
from unit.model.config.test_config import EVERY, put, text

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
PRODUCTION = {"production": True, "network": {"natGateways": "per-zone"}}


def found(config):
    return judged(laid_over(SOUND, config))


def describe_problems(config):
    return ", ".join(f"{config_path(each.path)} {each.severity} {each.rule}".strip() for each in found(config))


def group(**more):
    return {"nodeGroups": [{**TRN, **more}]}


def of_peers(*blocks, **more):
    return {"network": {"peerCidrBlocks": list(blocks), **more}}


def endpoint(*blocks):
    return {"cluster": {"endpoint": {"publicAccessCidrs": list(blocks)}}}


def teams(*users):
    each = ({"name": f"t{n}", "queues": ["test"], "trainingUserId": user} for n, user in enumerate(users))
    return {"namespaces": list(each)}


def stored(**settings):
    return {"fileSystem": settings}


def pages(memory_left_mib):
    return group(hugepages2Mi=(CATALOGUE["trn1.32xlarge"].allocatable_memory_mib + 1 - memory_left_mib) // 2)


def rows():
    """Yield each config of judged.yaml with what is found in it, and those that are computed."""
    sections = yaml.safe_load((Path(__file__).parent / "judged.yaml").read_text())
    for row in (row for title, section in sections.items() if title != "parts" for row in section):
        for each in row.get("each", ["EACH"]):
            yield json.loads(json.dumps(row["config"]).replace('"EACH"', json.dumps(each))), row.get("found", "")
    yield pages(2), ""
    yield pages(0), "nodeGroups[0].hugepages2Mi refuse"
    yield {"nodeGroups": [{**TRN, "name": f"g{index}", "instanceType": "trn1.2xlarge"} for index in range(28)]}, ""
    yield {"production": True, "network": {"interfaceEndpoints": list(network.COMPLETE_ENDPOINTS)}}, ""


@pytest.mark.parametrize(("config", "expected"), [*rows()])
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
        ({"namespaces": [{"name": "training", "queues": ["tst"]}]}, "namespaces[0].queues[0]", "test"),
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
