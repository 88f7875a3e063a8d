"""Every rule: passes on a whole environment, fails where it must and only there, and does not apply to nothing."""

import contextlib
import itertools

import pytest
from engine.analyzer import pack, shown
from rule_faults import FAULTS, ONE_A_RULE, Fault, both, drop, open_endpoint, option, put, values
from rule_programs import DROP, Program, environment, node_group, policy, release, user_data

from trainium_eks.plan.graph import SECRET, UNKNOWN, Graph
from trainium_eks.plan.policy_pack import NotSeenError
from trainium_eks.plan.rules import NOT_JUDGED, RULES, STANDING_WAIVERS, RuleResult, judge, scheduling, stale_waivers
from trainium_eks.plan.rules.__main__ import page
from trainium_eks.plan.rules.network import NEEDED_ENDPOINTS

EMPTY = Graph("trainium-eks", "test", (), {})


@pytest.fixture(autouse=True)
def _today(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1795000000")  # 2026-11-18


def verdicts(program: Program) -> dict[str, RuleResult]:
    return {verdict.id: verdict for verdict in judge(program.graph())}


def waiver(reason: str, expires: str = "2027-03-31") -> dict[str, str]:
    return {"reason": reason, "expires": expires}


def failed(program: Program) -> set[str]:
    return {id_ for id_, verdict in verdicts(program).items() if verdict.status == "fail"}


def test_every_rule_of_the_list_is_judged_or_said_not_to_be() -> None:
    ids = {rule.id for rule in RULES}
    assert len(ids) == len(RULES)
    assert ids.isdisjoint(NOT_JUDGED)
    assert ids | set(NOT_JUDGED) >= {f"R{number:02d}" for number in range(1, 89)}


def test_every_rule_says_what_and_why() -> None:
    for rule in RULES:
        assert rule.title[0].isupper(), rule.id
        assert not rule.title.endswith("."), rule.id
        assert len(rule.title) < 90, rule.id
        assert rule.source, rule.id
        assert len(rule.explanation) > 40, rule.id


def test_every_rule_passes_on_the_whole_environment() -> None:
    found = verdicts(environment())
    assert set(found) == {rule.id for rule in RULES}
    assert {id_: verdict.failures for id_, verdict in found.items() if verdict.status != "pass" and id_ != "R07"} == {}
    assert all(finding.message for verdict in found.values() for finding in verdict.findings)


def test_no_rule_applies_to_an_empty_program() -> None:
    found = judge(EMPTY)
    assert {verdict.id for verdict in found} == {rule.id for rule in RULES}
    assert [verdict.id for verdict in found if verdict.status != "n/a" or verdict.findings] == []


@pytest.mark.parametrize("fault", ONE_A_RULE)
def test_fault_breaks_its_rule_and_no_other(fault: Fault) -> None:
    program = environment()
    fault.change(program)
    found = verdicts(program)
    assert {id_ for id_, verdict in found.items() if verdict.status == "fail"} == {fault.rule} | fault.also
    messages = [finding.message for finding in found[fault.rule].failures]
    assert any(fault.says in message for message in messages), messages


def test_every_rule_has_a_fault() -> None:
    covered = {fault.rule for fault in FAULTS}
    # R07 is broken by the very component that makes the cluster: see its own test.
    assert covered | {"R07"} == {rule.id for rule in RULES}


def test_finding_names_a_resource_of_the_program() -> None:
    for fault in FAULTS[::20]:
        program = environment()
        fault.change(program)
        graph = program.graph()
        known = {resource.urn for resource in graph.resources}
        assert {finding.urn for verdict in judge(graph) for finding in verdict.findings} <= known


# Waivers ------------------------------------------------------------------------------------------------------------


def test_creator_as_administrator_is_waived_everywhere() -> None:
    verdict = verdicts(environment())["R07"]
    assert (verdict.status, verdict.reason) == ("waived", STANDING_WAIVERS["R07"])
    assert verdict.failures


def test_waiver_of_the_config_keeps_the_findings() -> None:
    program = environment()
    program.put("LogGroup flow-logs", "retentionInDays", 30)
    program.config["waivers"] = {"R08": waiver("logs are shipped elsewhere")}
    verdict = verdicts(program)["R08"]
    assert (verdict.status, verdict.reason) == ("waived", "logs are shipped elsewhere")
    assert [finding.urn for finding in verdict.failures] == [program["LogGroup flow-logs"].urn]


def test_waivers_given_take_the_place_of_the_configs() -> None:
    program = environment()
    program.put("LogGroup flow-logs", "retentionInDays", 30)
    program.config["waivers"] = {"R08": waiver("logs are shipped elsewhere")}
    [verdict] = [each for each in judge(program.graph(), accepted={}) if each.id == "R08"]
    assert verdict.status == "fail"


def test_stale_waivers_are_reported() -> None:
    program = environment()
    program.drop("Release volcano-etcd")
    program.put("LogGroup flow-logs", "retentionInDays", 30)
    program.config["waivers"] = {id_: waiver("a") for id_ in ("R01", "R08", "R61", "R64", "R99")}
    graph = program.graph()
    lines = stale_waivers(graph, judge(graph))
    assert [line.partition(":")[0] for line in lines] == ["R01", "R61", "R64", "R99"]
    assert verdicts(program)["R01"].status == "pass"
    assert verdicts(program)["R01"].reason == "stale waiver: a"


def waived(expires: object) -> Program:
    program = environment()
    program.put("LogGroup flow-logs", "retentionInDays", 30)
    program.config["waivers"] = {"R08": {"reason": "shipped elsewhere", "expires": expires}}
    return program


@pytest.mark.parametrize(
    ("expires", "status", "says"),
    [
        ("2026-11-18", "waived", ""),
        ("2026-11-17", "fail", "R08: the waiver expired on 2026-11-17; mend what it excuses, or renew it: pulumi"),
        ("2027-11-19", "waived", ""),
        ("2027-11-20", "waived", "R08: waived until 2027-11-20, more than a year; name an earlier day: pulumi"),
        ("", "fail", "R08: waived without a last day, so not at all; name one: pulumi config set --path waivers.R08"),
        ("soon", "fail", "without a last day"),
        (None, "fail", "without a last day"),
    ],
)
def test_a_waiver_holds_until_its_last_day(expires: object, status: str, says: str) -> None:
    graph = waived(expires).graph()
    found = judge(graph)
    assert [each.status for each in found if each.id == "R08"] == [status]
    lines = stale_waivers(graph, found)
    assert says in "".join(lines)
    assert len(lines) == bool(says)


def test_a_waiver_that_is_only_a_reason_waives_nothing() -> None:
    program = waived("2027-03-31")
    program.config["waivers"] = {"R08": "shipped elsewhere"}
    graph = program.graph()
    found = judge(graph)
    assert [each.status for each in found if each.id == "R08"] == ["fail"]
    assert "without a last day" in "".join(stale_waivers(graph, found))


def test_a_waiver_that_the_config_must_have_is_not_stale() -> None:
    """R67 judges the provider, the config's check the list of accounts: somebody may mend one beside the stack."""
    program = environment()
    program.config = {"region": "us-west-2", "owner": "ml", "waivers": {"R67": waiver("tried anywhere")}}
    graph = program.graph()
    found = judge(graph)
    assert [each.status for each in found if each.id == "R67"] == ["pass"]
    assert stale_waivers(graph, found) == ()


def test_what_costs_and_grows_within_the_budget_passes_at_the_bound() -> None:
    program = environment()
    [verdict] = [each for each in judge(program.graph()) if each.id == "R72"]
    used, nodes = (float(each.message.split(" of ")[0]) for each in verdict.findings)
    program.config["budget"] = {"hourlyUsd": used + 0.01, "nodes": nodes}
    assert verdicts(program)["R72"].status == "pass"
    program.config["budget"] = {"hourlyUsd": used - 0.01, "nodes": nodes - 1}
    assert len(verdicts(program)["R72"].failures) == 2


# Good in other ways --------------------------------------------------------------------------------------------------


def cluster_without_component(program: Program) -> None:
    program["eks-eksCluster"].parent = program["vpc"].parent
    program["eks-eksCluster"].provider = program["vpc"].provider
    program["eks-eksCluster"].dependencies = [program["LogGroup logs"].urn]
    program["eks-eksCluster"].options["protect"] = True
    program.drop("Cluster eks")
    program["kubernetes"].property_dependencies = {"kubeconfig": (program["eks-eksCluster"].urn,)}


def component_without_cluster(program: Program) -> None:
    program.drop("eks-eksCluster")
    program.config["waivers"] = {}


def existing_network(program: Program) -> None:
    program.drop(*[name for name, entry in program.entries.items() if "index:Network$aws:ec2" in entry.urn])
    subnets = [
        {"id": f"subnet-private-usw2-az{zone}", "zoneId": f"usw2-az{zone}", "cidrBlock": f"10.0.{16 * zone}.0/22"}
        for zone in (4, 1)
    ]
    program.config["existingNetwork"] = {"vpcId": "vpc-1", "cidrBlock": "10.0.0.0/16", "privateSubnets": subnets}


def backups(program: Program) -> None:
    both(
        drop("fsx-link"),
        put("fsx-file-system", "automaticBackupRetentionDays", 7),
        put("fsx-file-system", "skipFinalBackup", False),
    )(program)


def existing_bucket(program: Program) -> None:
    program.drop(
        "fsx-data-bucket",
        "fsx-data-access-block",
        "fsx-data-encryption",
        "fsx-data-versioning",
        "fsx-data-lifecycle",
        "fsx-data-policy",
    )
    program.put("fsx-link", "dataRepositoryPath", "s3://theirs/prefix")


def policy_in_the_key(program: Program) -> None:
    program.put("key-key", "policy", program["key-policy"].inputs["policy"])
    program.drop("key-policy")


def endpoints_instead_of_nat(program: Program) -> None:
    program.drop("nat-usw2-az1")
    for service in NEEDED_ENDPOINTS:
        inputs = {
            "vpcId": program["vpc"].outputs["id"],
            "serviceName": f"com.amazonaws.us-west-2.{service}",
            "vpcEndpointType": "Interface",
        }
        program.add(f"endpoint-{service}", "aws:ec2/vpcEndpoint:VpcEndpoint", inputs)


def inline_security_rules(program: Program) -> None:
    program.drop("base-efa-in", "base-efa-out")
    within = {"protocol": "-1", "self": True, "fromPort": 0, "toPort": 0, "description": "within"}
    out = {"protocol": "-1", "cidrBlocks": ["0.0.0.0/0"], "fromPort": 0, "toPort": 0, "description": "images"}
    program["base-efa"].inputs.update(ingress=[within], egress=[within, out])


def classic_security_rules(program: Program) -> None:
    program.drop("base-efa-in", "base-efa-out")
    for kind in ("ingress", "egress"):
        inputs = {
            "type": kind,
            "protocol": "-1",
            "self": True,
            "securityGroupId": "sg-base-efa",
            "description": "within",
        }
        program.add(f"classic-{kind}", "aws:ec2/securityGroupRule:SecurityGroupRule", inputs)


def ena_layout(program: Program) -> None:
    groups = {"securityGroups": ["sg-base-efa"]}
    rest = [{"networkCardIndex": card, "deviceIndex": 0, "interfaceType": "efa-only", **groups} for card in range(1, 8)]
    primary = {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface", **groups}
    beside = {"networkCardIndex": 0, "deviceIndex": 1, "interfaceType": "efa-only", **groups}
    program.put("base-template", "networkInterfaces", [primary, beside, *rest])


def reservation_in_its_own_group(program: Program) -> None:
    target = {"capacityReservationTarget": {"capacityReservationId": "cr-1"}}
    program.put("base-template", "capacityReservationSpecification", target)
    program.put("base-template", "placement", {"groupName": "theirs"})
    program.put("base-nodes", "updateConfig.updateStrategy", "MINIMAL")


def spot_without_efa(program: Program) -> None:
    group = node_group(program, "small", "trn1.2xlarge")
    group.inputs["capacityType"] = "SPOT"
    for chart, path in (("neuron-device-plugin", "neuronInstances"), ("Release neuron-monitor", "instanceTypes")):
        program[chart].inputs["values"][path].append("trn1.2xlarge")


def gpu_group(program: Program) -> None:
    node_group(program, "gpu", "p4d.24xlarge", ami="AL2023_x86_64_NVIDIA", efa=4)
    program["neuron-efa-device-plugin"].inputs["values"]["supportedInstanceLabels"]["values"].append("p4d.24xlarge")
    program["neuron-efa-device-plugin"].inputs["values"]["tolerations"] = [{"operator": "Exists"}]
    term = {
        "matchExpressions": [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["p4d.24xlarge"]}]
    }
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    amounts = program["neuron-efa-device-plugin"].inputs["values"]["resources"]
    release(program, "nvidia-device-plugin", "kube-system", {"affinity": affinity, "resources": amounts}, "0.19.0")


def gpu_group_with_devices_by_mount(program: Program) -> None:
    gpu_group(program)
    program["nvidia-device-plugin"].inputs["values"]["deviceListStrategy"] = "volume-mounts"
    script = "nvidia-ctk config --in-place --set accept-nvidia-visible-devices-as-volume-mounts=true"
    program.put("gpu-template", "userData", user_data(script, "LimitMEMLOCK=infinity"))


def own_instance_type(program: Program) -> None:
    program.config["instanceTypes"] = {"trn9.48xlarge": {"like": "trn1.32xlarge"}}
    program.put("base-nodes", "instanceTypes", ["trn9.48xlarge"])
    program["neuron-device-plugin"].inputs["values"]["neuronInstances"].append("trn9.48xlarge")
    program["Release neuron-monitor"].inputs["values"]["instanceTypes"].append("trn9.48xlarge")
    program["neuron-efa-device-plugin"].inputs["values"]["supportedInstanceLabels"]["values"].append("trn9.48xlarge")


def subnets_by_their_tags(program: Program) -> None:
    program.drop(*[name for name in program.entries if name.startswith("association-")])


HELD_FOR_THE_QUOTA = """actions: enqueue, allocate
tiers: [{plugins: [{name: capacity, enableJobEnqueued: false}, {name: resourcequota}]}]"""


def npd_recovery_alone(program: Program) -> None:
    program["neuron-device-plugin"].inputs["values"]["npd"] = {"nodeRecovery": {"enabled": True}}
    for group in ("base-nodes", "block-nodes"):
        program[group].inputs["nodeRepairConfig"]["enabled"] = False
    program.config["waivers"] = {"R19": waiver("Neuron's own recovery")}


def karpenter_outside_production_with_the_accounts_key(program: Program) -> None:
    program.config["production"] = False
    for name in ("karpenter", "trn1n"):
        program.put(f"karpenter-{name}-class", "spec.blockDeviceMappings.0.ebs.kmsKeyID", DROP)


def enqueue_without_resting_pools(program: Program) -> None:
    for group in ("base-nodes", "block-nodes"):
        program.put(group, "scalingConfig.minSize", 1)
    program.drop("karpenter-trn1n")
    program.put("volcano-release", "values.custom.scheduler_config_override", 'actions: "enqueue, allocate"')


def test_a_subnet_of_another_program_is_not_counted() -> None:
    program = environment()
    for group in ("system-nodes", "cpu-nodes", "base-nodes", "block-nodes"):
        program.put(group, "subnetIds", ["subnet-of-nobody"])
    program.drop("karpenter-karpenter", "karpenter-trn1n")
    program.put("base-nodes", "scalingConfig.maxSize", 2000)
    [verdict] = [each for each in judge(program.graph()) if each.id == "R37"]
    assert {finding.urn for finding in verdict.findings} == {program.graph().of_type("aws:ec2/vpc:Vpc")[0].urn}


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (cluster_without_component, "R08"),
        (component_without_cluster, "R01"),
        (existing_network, "R10"),
        (existing_network, "R37"),
        (existing_network, "R41"),
        (backups, "R39"),
        (existing_bucket, "R39"),
        (policy_in_the_key, "R11"),
        (endpoints_instead_of_nat, "R34"),
        (inline_security_rules, "R25"),
        (classic_security_rules, "R25"),
        (ena_layout, "R24"),
        (reservation_in_its_own_group, "R27"),
        (spot_without_efa, "R29"),
        (gpu_group, "R62"),
        (gpu_group_with_devices_by_mount, "R62"),
        (own_instance_type, "R23"),
        (subnets_by_their_tags, "R36"),
        (npd_recovery_alone, "R63"),
        (open_endpoint("203.0.113.0/24"), "R02"),
        (open_endpoint("203.0.113.0/24"), "R03"),
        (put("LogGroup logs", "retentionInDays", 0), "R08"),
        (put("base-template", "userData", DROP), "R17"),
        (put("base-template", "userData", user_data('TOKEN="$(cat /run/token)"')), "R17"),
        (put("base-nodes", "amiType", "BOTTLEROCKET_x86_64"), "R23"),
        (put("base-nodes", "nodeGroupNamePrefix", "base-"), "R30"),
        (option("base-nodes", ignore_changes=("scalingConfig",)), "R21"),
        (put("volcano-a", "spec.capability", {"cpu": "4000", "aws.amazon.com/neuron": "128"}), "R59"),
        (put("volcano-a", "spec.capability", {"aws.amazon.com/neuron": "144"}), "R59"),  # with Karpenter's pool
        (put("volcano-a", "spec.parent", "root"), "R59"),
        (karpenter_outside_production_with_the_accounts_key, "R82"),
        (put("training-data", "policy", policy({"Effect": "Deny", "Action": "*", "Resource": "*"})), "R18"),
        (values("volcano-release", "custom.scheduler_config_override", "actions: allocate, backfill # enqueue"), "R60"),
        (values("volcano-release", "custom.scheduler_config_override", HELD_FOR_THE_QUOTA), "R60"),
    ],
    ids=lambda value: value if isinstance(value, str) else getattr(value, "__name__", "change"),
)
def test_rule_accepts_other_good_ways(change: object, rule: str) -> None:
    program = environment()
    assert callable(change)
    change(program)
    graph = program.graph()
    [verdict] = [each for each in judge(graph) if each.id == rule]
    assert verdict.status == "pass", verdict.failures
    [judged] = [each for each in RULES if each.id == rule]
    with contextlib.suppress(NotSeenError):
        assert pack(graph).broken(judged, shown(graph)) == ()


@pytest.mark.parametrize("id_", ["R03", "R34"])
def test_production_rules_do_not_apply_elsewhere(id_: str) -> None:
    program = environment()
    program.config["production"] = False
    assert verdicts(program)[id_].status == "n/a"


@pytest.mark.parametrize(
    "change",
    [
        put("base-template", "blockDeviceMappings.0.ebs.kmsKeyId", DROP),
        put("volumes-directories", "spec.template.spec.containers.0.image", "busybox:1.37.0"),
        option("fsx-file-system", protect=False),
        drop("nat-usw2-az1"),
    ],
)
def test_development_is_not_held_to_the_production_parts(change: object) -> None:
    program = environment()
    program.config["production"] = False
    assert callable(change)
    change(program)
    assert failed(program) == set()


def test_scratch_outside_production_is_nobodys_data() -> None:
    program = environment()
    program.config["production"] = False
    program.drop("fsx-link")
    scratch = {"deploymentType": "SCRATCH_2", "storageCapacity": 1200, "subnetIds": "subnet-private-usw2-az4"}
    program["fsx-file-system"].inputs = {
        **scratch,
        "securityGroupIds": ["sg-fsx-group"],
        "logConfiguration": {"level": "WARN_ERROR"},
    }
    found = verdicts(program)
    assert [found[id_].status for id_ in ("R38", "R39", "R43")] == ["n/a"] * 3
    assert found["R40"].status == "pass"


def test_enqueue_is_fine_where_no_pool_rests() -> None:
    program = environment()
    enqueue_without_resting_pools(program)
    assert verdicts(program)["R60"].status == "n/a"


def test_queue_is_not_held_against_a_pool_that_is_not_there() -> None:
    program = Program()
    spec = {"metadata": {"name": "a"}, "spec": {"capability": {"aws.amazon.com/neuron": 1024}}}
    program.add("queue", "kubernetes:scheduling.volcano.sh/v1beta1:Queue", spec)
    assert verdicts(program)["R59"].status == "pass"


def test_child_queue_stays_within_its_parent() -> None:
    program = environment()
    program.put("volcano-b", "spec.parent", "a")
    program.put("volcano-a", "spec.capability", {"aws.amazon.com/neuron": 64})
    [finding] = verdicts(program)["R59"].failures
    assert "parent queue" in finding.message
    assert finding.urn == program["volcano-b"].urn


def test_role_bound_to_an_account_lets_it_mount_its_token() -> None:
    program = environment()
    program.put("training-service-account", "automountServiceAccountToken", True)
    assert "R55" in failed(program)
    subject = {"kind": "ServiceAccount", "name": "training", "namespace": "training"}
    program.put("RoleBinding training-researcher", "subjects", [subject])
    assert "R55" not in failed(program)


def test_node_group_without_a_launch_template_is_seen() -> None:
    program = environment()
    program.put("system-nodes", "launchTemplate", DROP)
    program["system-nodes"].property_dependencies = {}
    assert {"R12", "R13", "R16", "R30"} <= failed(program)


def test_thirty_days_of_support_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    program = environment()
    day = 86400
    last = 1806105600 - 30 * day  # of 2027-03-27, the last day of 1.35
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(last))
    assert "R05" not in failed(program)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(last + day))
    assert "R05" in failed(program)


# What cannot be seen ------------------------------------------------------------------------------------------------

STRANGE = [UNKNOWN, SECRET, None, 7, True, "x", [], {}, ["x"], [None], {"x": None}, [{}]]


def _replaced(value: object, by: object, deep: bool) -> object:
    if deep and isinstance(value, dict):
        return {key: _replaced(each, by, deep) for key, each in value.items()}
    if deep and isinstance(value, list):
        return [_replaced(each, by, deep) for each in value]
    return by


def _spoil(program: Program, by: object, deep: bool, type_: str | None = None) -> None:
    for entry in program.entries.values():
        if type_ in (None, entry.type):
            entry.inputs = {key: _replaced(each, by, deep) for key, each in entry.inputs.items()}


@pytest.mark.parametrize("deep", [True, False])
@pytest.mark.parametrize("value", STRANGE, ids=repr)
def test_no_value_stops_a_rule(value: object, deep: bool) -> None:
    program = environment()
    _spoil(program, value, deep)
    judge(program.graph())
    for entry in program.entries.values():
        entry.outputs = dict.fromkeys(entry.outputs, value)
    program.outputs = dict.fromkeys(program.outputs, value)
    program.config = dict.fromkeys(program.config, value)
    judge(program.graph())


@pytest.mark.slow
def test_no_value_of_one_type_stops_a_rule() -> None:
    for type_ in {entry.type for entry in environment().entries.values()}:
        for value, deep in itertools.product((UNKNOWN, {"x": None}), (True, False)):
            program = environment()
            _spoil(program, value, deep, type_)
            judge(program.graph())


@pytest.mark.parametrize(
    ("name", "path", "rule"),
    [
        ("eks-eksCluster", "enabledClusterLogTypes", "R01"),
        ("eks-eksCluster", "version", "R05"),
        ("eks-eksCluster", "deletionProtection", "R06"),
        ("base-template", "metadataOptions", "R12"),
        ("base-template", "userData", "R17"),
        ("training-data", "policy", "R18"),
        ("base-nodes", "taints", "R22"),
        ("base-nodes", "amiType", "R23"),
        ("base-template", "networkInterfaces", "R24"),
        ("base-nodes", "capacityType", "R29"),
        ("vpc", "cidrBlock", "R37"),
        ("fsx-file-system", "storageCapacity", "R40"),
        ("fsx-data-policy", "policy", "R49"),
        ("Addon vpc-cni", "configurationValues", "R56"),
        ("training-role", "assumeRolePolicy", "R57"),
        ("volcano-release", "values", "R58"),
        ("aws", "defaultTags", "R66"),
    ],
)
def test_value_that_cannot_be_seen_is_no_pass(name: str, path: str, rule: str) -> None:
    program = environment()
    program.put(name, path, UNKNOWN)
    assert verdicts(program)[rule].status == "fail"


def test_references_that_are_not_known_yet_are_followed_by_their_origin() -> None:
    """In a first preview ids are unknown; what an input came from still tells which resource is meant."""
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
    assert failed(program) == set()


# The rest -----------------------------------------------------------------------------------------------------------


def test_subnets_of_another_stack_are_not_judged_before_they_are_known() -> None:
    """As outputs of a StackReference are in a plan: the rules take them neither for a fault nor for a pass."""
    program = environment()
    existing_network(program)
    del program.config["existingNetwork"]
    for group in ("system-nodes", "cpu-nodes", "base-nodes", "block-nodes"):
        program.put(group, "subnetIds", UNKNOWN)
    for name, path in (
        ("eks-eksCluster", "vpcConfig.subnetIds"),
        ("fsx-file-system", "subnetIds"),
        ("karpenter-karpenter-class", "spec.subnetSelectorTerms.0.id"),
        ("karpenter-trn1n-class", "spec.subnetSelectorTerms.0.id"),
    ):
        program.put(name, path, UNKNOWN)
    found = verdicts(program)
    assert {id_ for id_, verdict in found.items() if verdict.status == "fail"} == set()
    assert {id_ for id_, verdict in found.items() if verdict.status == "unseen"} == {"R10", "R26", "R28", "R37", "R41"}
    assert "its subnets are known only during the update" in found["R37"].unseen[0].message


def test_numbers_are_those_of_the_model() -> None:
    from trainium_eks.model.config import network as network_model

    assert set(NEEDED_ENDPOINTS) == {"s3", *network_model.COMPLETE_ENDPOINTS}


def test_plugins_are_those_that_are_pinned() -> None:
    from trainium_eks.model.catalogue.versions import CHARTS

    assert {name for name, plugin in scheduling.PLUGINS.items() if plugin.device} <= set(CHARTS)


def test_page_of_the_rules_is_current() -> None:
    from pathlib import Path

    written = (Path(__file__).parents[4] / "docs" / "rules.md").read_text(encoding="utf-8")
    assert written == page(), "run: python -m trainium_eks.plan.rules > docs/rules.md"
