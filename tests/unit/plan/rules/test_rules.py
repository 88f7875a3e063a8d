"""Every rule passes on a whole environment, fails on its faults alone, and does not apply to an empty program.

The policy pack agrees on the resources that an engine shows it.
"""

import contextlib
import itertools
from pathlib import Path

import pytest
import yaml
from engine.analyzer import pack, shown
from rule_faults import FAULTS, ONE_A_RULE, put, row_change
from rule_programs import DROP, environment, node_group, release, user_data

from trainium_eks.model.catalogue.versions import CHARTS
from trainium_eks.model.config import network
from trainium_eks.plan import autoscaling
from trainium_eks.plan.autoscaling import Autoscaling, ScaledPool
from trainium_eks.plan.graph import SECRET, UNKNOWN, Graph
from trainium_eks.plan.policy_pack import NotSeenError
from trainium_eks.plan.rules import CONFIG_ALONE, NOT_JUDGED, RULES, STANDING_WAIVERS, judge, scheduling, stale_waivers
from trainium_eks.plan.rules.network import NEEDED_ENDPOINTS

EMPTY = Graph("trainium-eks", "test", (), {})
ROOT = Path(__file__).parents[4]
RULE = {rule.id: rule for rule in RULES}


def verdicts(graph):
    return {verdict.id: verdict for verdict in judge(graph)}


def with_status(program, status="fail"):
    return {verdict.id for verdict in judge(program.graph()) if verdict.status == status}


def broken(graph, *, preview=False):
    """Yield each rule that the pack finds broken, with its finding; rules that it cannot judge are left out."""
    made, resources = pack(graph, preview=preview), shown(graph)
    for rule in RULES:
        with contextlib.suppress(NotSeenError):
            yield from ((rule.id, each) for each in made.broken(rule, resources))


def test_every_rule_uses_the_models_facts():
    assert len(RULE) == len(RULES)
    assert RULE.keys().isdisjoint(NOT_JUDGED.keys() | CONFIG_ALONE)
    assert set(NEEDED_ENDPOINTS) == {"s3", *network.COMPLETE_ENDPOINTS}
    assert {name for name, plugin in scheduling.PLUGINS.items() if plugin.device} <= set(CHARTS)


def test_every_rule_has_a_title_a_reason_and_a_fault():
    for rule in RULES:
        assert rule.title[0].isupper(), rule.id
        assert not rule.title.endswith("."), rule.id
        assert rule.source, rule.id
        assert len(rule.explanation) > 40, rule.id
    assert {fault.rule for fault in FAULTS} | {"R07"} == set(RULE)


def test_every_rule_passes_on_the_whole_environment():
    graph = environment().graph()
    found = verdicts(graph)
    assert set(found) == set(RULE)
    assert {id_: verdict.failures for id_, verdict in found.items() if verdict.status != "pass" and id_ != "R07"} == {}
    assert all(finding.text for verdict in found.values() for finding in verdict.findings)
    assert list(broken(graph)) == []
    assert pack(graph).stale_waivers(shown(graph)) == ()


def test_no_rule_applies_to_an_empty_program():
    found = judge(EMPTY)
    assert {verdict.id for verdict in found} == set(RULE)
    assert [verdict.id for verdict in found if verdict.status != "n/a" or verdict.findings] == []


@pytest.mark.parametrize("fault", ONE_A_RULE)
def test_fault_breaks_only_its_rule(fault):
    program = environment()
    fault.change(program)
    graph = program.graph()
    found = verdicts(graph)
    assert {id_ for id_, verdict in found.items() if verdict.status == "fail"} == {fault.rule} | fault.also
    failures = found[fault.rule].failures
    assert any(fault.says in each.text for each in failures), [each.text for each in failures]
    urns = {finding.subject for verdict in found.values() for finding in verdict.findings}
    assert urns <= {resource.urn for resource in graph.resources}
    in_pack = list(broken(graph))
    if fault.beyond_pack:
        assert RULE[fault.rule].beyond_pack
        assert fault.rule in pack(graph).not_judged(shown(graph))
        assert {id_ for id_, _ in in_pack} == fault.also
        return
    assert {id_ for id_, _ in in_pack} - fault.also == {fault.rule}
    assert {each.subject for id_, each in in_pack if id_ == fault.rule} == {each.subject for each in failures}


def waived(expires="2027-03-31"):
    """R08 is broken, and waived until a day, or with a reason alone."""
    program = environment()
    program.put("LogGroup flow-logs", "retentionInDays", 30)
    until = {"reason": "shipped elsewhere", "expires": expires}
    program.config["waivers"] = {"R08": "shipped elsewhere" if expires is None else until}
    return program.graph()


def test_creator_administrator_rule_is_waived_everywhere():
    verdict = verdicts(environment().graph())["R07"]
    assert (verdict.status, verdict.reason) == ("waived", STANDING_WAIVERS["R07"])
    assert verdict.failures


def test_waiver_of_the_config_keeps_the_findings():
    verdict = verdicts(waived())["R08"]
    assert (verdict.status, verdict.reason) == ("waived", "shipped elsewhere")
    assert [finding.subject for finding in verdict.failures] == [environment()["LogGroup flow-logs"].urn]
    [verdict] = [each for each in judge(waived(), accepted={}) if each.id == "R08"]
    assert verdict.status == "fail", "waivers that are given take the place of the config's"


def test_stale_waivers_are_reported():
    program = environment()
    program.drop("Release volcano-etcd")
    program.put("LogGroup flow-logs", "retentionInDays", 30)
    given = {"reason": "a", "expires": "2027-03-31"}
    program.config["waivers"] = dict.fromkeys(("R01", "R08", "R61", "R64", "R999"), given)
    found = judge(program.graph())
    lines = stale_waivers(program.graph(), found)
    assert [line.partition(":")[0] for line in lines] == ["R01", "R61", "R64", "R999"]
    assert pack(program.graph()).stale_waivers(shown(program.graph()))[0] == lines[0]
    assert lines[0] == "R01: waived, but the rule passes; remove the waiver"
    assert [(each.status, each.reason) for each in found if each.id == "R01"] == [("pass", "stale waiver: a")]


@pytest.mark.parametrize(
    ("expires", "status", "says"),
    [
        ("2026-11-21", "waived", ""),  # today
        ("2026-11-20", "fail", "R08: the waiver expired on 2026-11-20; mend what it excuses, or renew it: pulumi"),
        ("2027-11-22", "waived", ""),
        ("2027-11-23", "waived", "R08: waived until 2027-11-23, more than a year; name an earlier day: pulumi"),
        ("", "fail", "R08: waived without a last day, so not at all; name one: pulumi config set --path waivers.R08"),
        ("soon", "fail", "without a last day"),
        (None, "fail", "without a last day"),
    ],
)
def test_a_waiver_holds_until_its_last_day(expires, status, says):
    graph = waived(expires)
    found = judge(graph)
    assert [each.status for each in found if each.id == "R08"] == [status]
    made, resources = pack(graph), shown(graph)
    assert bool(made.broken(RULE["R08"], resources)) == (status == "fail")
    for lines in (stale_waivers(graph, found), made.stale_waivers(resources)):
        assert says in "".join(lines)
        assert len(lines) == bool(says)


def test_required_waiver_is_not_stale():
    """R67 judges the provider, the config's check the list of accounts: a user may have fixed one outside the stack."""
    program = environment()
    waivers = {"R67": {"reason": "tried anywhere", "expires": "2027-03-31"}}
    program.config = {"region": "us-west-2", "owner": "ml", "waivers": waivers}
    found = judge(program.graph())
    assert [each.status for each in found if each.id == "R67"] == ["pass"]
    assert stale_waivers(program.graph(), found) == ()


def cluster_without_component(program):
    cluster, vpc = program["eks-eksCluster"], program["vpc"]
    cluster.parent, cluster.provider = vpc.parent, vpc.provider
    cluster.dependencies = [program["LogGroup logs"].urn]
    cluster.options["protect"] = True
    program.drop("Cluster eks")
    program["kubernetes"].property_dependencies = {"kubeconfig": (cluster.urn,)}


def existing_network(program):
    program.drop(*[name for name, entry in program.entries.items() if "index:Network$aws:ec2" in entry.urn])
    subnets = [
        {"id": f"subnet-private-usw2-az{zone}", "zoneId": f"usw2-az{zone}", "cidrBlock": f"10.0.{16 * zone}.0/22"}
        for zone in (4, 1)
    ]
    program.config["existingNetwork"] = {"vpcId": "vpc-1", "cidrBlock": "10.0.0.0/16", "privateSubnets": subnets}


def endpoints_instead_of_nat(program):
    program.drop("nat-usw2-az1")
    for service in NEEDED_ENDPOINTS:
        name = f"com.amazonaws.us-west-2.{service}"
        inputs = {"vpcId": program["vpc"].outputs["id"], "serviceName": name, "vpcEndpointType": "Interface"}
        program.add(f"endpoint-{service}", "aws:ec2/vpcEndpoint:VpcEndpoint", inputs)


def spot_without_efa(program):
    node_group(program, "small", "trn1.2xlarge").inputs["capacityType"] = "SPOT"
    program["neuron-device-plugin"].inputs["values"]["neuronInstances"].append("trn1.2xlarge")
    program["Release neuron-monitor"].inputs["values"]["instanceTypes"].append("trn1.2xlarge")


def gpu_group(program):
    node_group(program, "gpu", "p4d.24xlarge", ami="AL2023_x86_64_NVIDIA", efa=4)
    efa = program["neuron-efa-device-plugin"].inputs["values"]
    efa["supportedInstanceLabels"]["values"].append("p4d.24xlarge")
    efa["tolerations"] = [{"operator": "Exists"}]
    expression = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["p4d.24xlarge"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    values = {"affinity": affinity, "resources": efa["resources"]}
    release(program, "nvidia-device-plugin", "kube-system", values, "0.19.0")


def gpu_group_with_devices_by_mount(program):
    gpu_group(program)
    program["nvidia-device-plugin"].inputs["values"]["deviceListStrategy"] = "volume-mounts"
    script = "nvidia-ctk config --in-place --set accept-nvidia-visible-devices-as-volume-mounts=true"
    program.put("gpu-template", "userData", user_data(script, "LimitMEMLOCK=infinity"))


def subnets_by_their_tags(program):
    program.drop(*[name for name in program.entries if name.startswith("association-")])


def assert_verdict(change, rule, status):
    program = environment()
    change(program)
    graph = program.graph()
    verdict = verdicts(graph)[rule]
    assert verdict.status == status, verdict.failures
    if status == "pass":
        with contextlib.suppress(NotSeenError):
            assert pack(graph).broken(RULE[rule], shown(graph)) == ()


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (cluster_without_component, "R08"),
        (existing_network, "R37"),
        (existing_network, "R41"),
        (endpoints_instead_of_nat, "R34"),
        (spot_without_efa, "R29"),
        (spot_without_efa, "R62"),
        (gpu_group, "R62"),
        (gpu_group_with_devices_by_mount, "R62"),
        (subnets_by_their_tags, "R36"),
    ],
)
def test_rule_accepts_equivalent_settings(change, rule):
    assert_verdict(change, rule, "pass")


VERDICTS = yaml.safe_load((ROOT / "tests" / "rule_verdicts.yaml").read_text())


@pytest.mark.parametrize("row", VERDICTS, ids=lambda row: row["what"])
def test_changed_environment_has_its_expected_verdict(row):
    for status in ("pass", "fail", "n/a"):
        for rule in row.get(status, ()):
            assert_verdict(row_change(row), rule, status)


def test_budget_rule_passes_at_its_bound():
    program = environment()
    findings = verdicts(program.graph())["R72"].findings
    used, nodes = (float(each.text.split(" of ")[0]) for each in findings)
    program.config["budget"] = {"hourlyUsd": used + 0.01, "nodes": nodes}
    assert verdicts(program.graph())["R72"].status == "pass"
    program.config["budget"] = {"hourlyUsd": used - 0.01, "nodes": nodes - 1}
    assert len(verdicts(program.graph())["R72"].failures) == 2


def test_development_skips_production_rules():
    program = environment()
    program.config["production"] = False
    program.put("base-template", "blockDeviceMappings.0.ebs.kmsKeyId", DROP)
    program.put("volumes-directories", "spec.template.spec.containers.0.image", "busybox:1.37.0")
    program["fsx-file-system"].options["protect"] = False
    program.drop("nat-usw2-az1")
    assert with_status(program) == set()


def test_role_bound_to_an_account_lets_it_mount_its_token():
    program = environment()
    program.put("training-service-account", "automountServiceAccountToken", True)
    assert "R55" in with_status(program)
    subject = {"kind": "ServiceAccount", "name": "training", "namespace": "training"}
    program.put("RoleBinding training-researcher", "subjects", [subject])
    assert "R55" not in with_status(program)


def test_thirty_days_of_support_are_enough(monkeypatch):
    day = 86400
    last = 1806105600 - 30 * day  # of 2027-03-27, the last day of 1.35
    for now, late in ((last, False), (last + day, True)):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", str(now))
        assert ("R05" in with_status(environment())) == late


STRANGE = [UNKNOWN, SECRET, None, 7, True, "x", [], {}, ["x"], [None], {"x": None}, [{}]]


def replaced(value, by, deep):
    if deep and isinstance(value, dict):
        return {key: replaced(each, by, deep) for key, each in value.items()}
    if deep and isinstance(value, list):
        return [replaced(each, by, deep) for each in value]
    return by


def spoil(program, by, deep, type_=None):
    for name, found in list(program.entries.items()):
        if type_ in (None, found.type):
            program[name].inputs = {key: replaced(each, by, deep) for key, each in found.inputs.items()}


@pytest.mark.parametrize("deep", [True, False])
@pytest.mark.parametrize("value", STRANGE, ids=repr)
def test_no_value_stops_a_rule(value, deep):
    program = environment()
    spoil(program, value, deep)
    judge(program.graph())
    for name in program.entries:
        program[name].outputs = dict.fromkeys(program[name].outputs, value)
    program.outputs = dict.fromkeys(program.outputs, value)
    program.config = dict.fromkeys(program.config, value)
    judge(program.graph())


@pytest.mark.slow
def test_no_value_of_one_type_stops_a_rule():
    for type_ in {entry.type for entry in environment().entries.values()}:
        for value, deep in itertools.product((UNKNOWN, {"x": None}), (True, False)):
            program = environment()
            spoil(program, value, deep, type_)
            judge(program.graph())


def test_unknown_references_are_followed_by_their_origin():
    """In a first preview ids are unknown; the origin of an input still tells its resource."""
    program = environment()
    for name, path, origin in (
        ("base-nodes", "launchTemplate", "base-template"),
        ("base-nodes", "nodeRoleArn", "node"),
        ("fsx-data-versioning", "bucket", "fsx-data-bucket"),
        ("flow-log", "vpcId", "vpc"),
        ("key-policy", "keyId", "key-key"),
        ("fsx-link", "fileSystemId", "fsx-file-system"),
    ):
        target = {"id": UNKNOWN, "version": UNKNOWN} if path == "launchTemplate" else UNKNOWN
        program[name].inputs[path] = target
        program[name].property_dependencies[path] = (program[origin].urn,)
    assert with_status(program) == set()


def test_subnets_of_another_stack_are_not_judged_before_they_are_known():
    """As outputs of a StackReference are in a plan: the rules take them neither for a fault nor for a pass."""
    program = environment()
    existing_network(program)
    del program.config["existingNetwork"]
    for name, path in (
        *((f"{group}-nodes", "subnetIds") for group in ("system", "cpu", "base", "block")),
        *((f"karpenter-{pool}-class", "spec.subnetSelectorTerms.0.id") for pool in ("karpenter", "trn1n")),
        ("eks-eksCluster", "vpcConfig.subnetIds"),
        ("fsx-file-system", "subnetIds"),
    ):
        program.put(name, path, UNKNOWN)
    assert with_status(program) == set()
    assert with_status(program, "unseen") == {"R26", "R41"}
    unseen = verdicts(program.graph())["R41"].unseen
    assert "subnets are known only during the update" in unseen[0].text


def test_preview_reports_known_values_and_omits_unknown_ones():
    program = environment()
    program.put("key-policy", "policy", UNKNOWN)
    program.config["waivers"] = {"R11": {"reason": "ours", "expires": "2027-03-31"}}
    graph = program.graph()
    first = pack(graph, preview=True)
    with pytest.raises(NotSeenError, match="known only during the update"):
        first.broken(RULE["R11"], shown(graph))
    assert first.stale_waivers(shown(graph)) == (), "whether it is stale is open"
    assert first.not_judged(shown(graph)).endswith("nor is whether their waivers are stale: R11")
    del program.config["waivers"]
    assert pack(program.graph()).broken(RULE["R11"], shown(program.graph())), "an update knows everything"
    put("key-key", "enableKeyRotation", False)(program)
    graph = program.graph()
    [finding] = pack(graph, preview=True).broken(RULE["R11"], shown(graph))
    assert "enableKeyRotation" in finding.text


def test_default_providers_are_left_out():
    program = environment()
    program.add("default_4_4_0", "pulumi:providers:eks", {})
    graph = program.graph()
    assert not [each for each in pack(graph).graph(shown(graph)).resources if each.name == "default_4_4_0"]


def test_autoscaled_pools_are_listed_with_their_bounds():
    program = environment()
    found = autoscaling.read(program.graph())
    assert [(each.pool, each.minimum, each.maximum, each.by) for each in found.pools] == [
        ("base", 0, 4, "Cluster Autoscaler"),
        ("karpenter", 0, 2, "Karpenter"),
        ("trn1n", 0, 1, "Karpenter"),
    ]
    program.drop("autoscaler-release", "karpenter-karpenter", "karpenter-trn1n")
    assert autoscaling.read(program.graph()) is None
    assert autoscaling.read(EMPTY) is None


def test_autoscaling_limits_for_gangs_are_shown_with_accelerators():
    cpu, trn1, p5 = (
        ScaledPool("pool", "Cluster Autoscaler", 0, 4, type_, family)
        for type_, family in (("m6i.xlarge", "cpu"), ("trn1.32xlarge", "neuron"), ("p5.48xlarge", "nvidia"))
    )
    assert Autoscaling((cpu,)).limits == ()
    assert autoscaling.OVER_BUYS not in Autoscaling((p5,)).limits
    assert Autoscaling((cpu, trn1)).to_json() == {
        "pools": [
            {"pool": "pool", "by": "Cluster Autoscaler", "minimum": 0, "maximum": 4, "instanceType": type_}
            for type_ in ("m6i.xlarge", "trn1.32xlarge")
        ],
        "limits": [autoscaling.NO_GANGS, autoscaling.OVER_BUYS, autoscaling.PARTIAL],
    }
