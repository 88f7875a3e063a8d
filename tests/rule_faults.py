"""What breaks each rule: one change to the whole environment, the rule that must fail, and a word of its message."""

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dotted
import yaml
from rule_programs import DROP, POD_TRUST, Program, kubeconfig, node_group, policy, release, user_data
from tables import first_of_each

from trainium_eks.plan.rules.isolation import BOUNDED, POD_FIELDS
from trainium_eks.plan.rules.load import COUNTED

GUARD = "ValidatingAdmissionPolicy training-admission-"


@dataclass(frozen=True)
class Fault:
    rule: str
    label: str
    says: str
    """A part of the failing finding's message."""
    change: Callable[[Program], Any]
    also: frozenset[str] = frozenset()
    """Other rules that the same change breaks."""
    beyond_pack: bool = False
    """Whether a policy pack cannot see it."""


def rows(text):
    """Yield the rows of rule_faults.yaml, or another file of that form, with the rule of each."""
    for rule, of_rule in yaml.safe_load(text).items():
        for row in of_rule:
            for each in row.get("each", ["EACH"]):
                yield rule, json.loads(json.dumps(row).replace("EACH", each))


_EDITS = {
    "put": lambda program, name, path, value: program.put(name, path, value),
    "lacks": lambda program, name, path, item: program.put(name, path, lambda old: [x for x in old if x != item]),
    "gains": lambda program, name, path, item: program.put(name, path, lambda old: [*old, item]),
    "policy": lambda program, name, path, statements: program.put(name, path, policy(*statements)),
    "edit": lambda program, name, path, value: program.edit(name, path, value),
    "options": lambda program, name, option, value: program[name].options.update({option: value}),
}
"""Part of a row to what is done with each name, key and value in it."""


def row_change(row):
    def change(program):
        given = copy.deepcopy(row)  # values may be changed by the rules' next test
        for name, added in given.get("add", {}).items():
            like = program[added["like"]] if "like" in added else None
            inputs = copy.deepcopy({**(like.inputs if like else {}), **added["inputs"]})
            program.add(name, like.type if like else added["type"], inputs)
        program.drop(*given.get("drop", ()))
        for part, edit in _EDITS.items():
            for name, values in given.get(part, {}).items():
                for key, value in values.items():
                    edit(program, name, key, value)
        for name, paths in given.get("unset", {}).items():
            for path in paths:
                program.put(name, path, DROP)
        for name, script in given.get("script", {}).items():
            program.put(name, "userData", user_data(script))
        for name, others in given.get("waits", {}).items():
            program[name].dependencies = [program[each].urn for each in others]
        for name, origins in given.get("origins", {}).items():
            urns = {key: tuple(program[each].urn for each in others) for key, others in origins.items()}
            program[name].property_dependencies = urns
        for name, urn in given.get("provider", {}).items():
            program[name].provider = urn
        for path, value in given.get("config", {}).items():
            dotted.put(program.config, path, value)

    return change


def put(name, path, value):
    return lambda program: program.put(name, path, value)


def statement(name, **changed):
    """Changes keys of the last statement of a role's policy."""

    def change(program):
        *others, last = json.loads(program[name].inputs["policy"])["Statement"]
        found = {key: value for key, value in {**last, **changed}.items() if value is not DROP}
        program.edit(name, "policy", {"Statement": [*others, found]})

    return change


def p5_without_plugin(program):
    node_group(program, "gpu", "p5.48xlarge", ami="AL2023_x86_64_NVIDIA", efa=32)


def unseen_gpus(program):
    p5_without_plugin(program)
    program.put("eks-node-monitoring-agent", "configurationValues", DROP)


def p5_without_volume_mounts(program):
    p5_without_plugin(program)
    amounts = program["neuron-efa-device-plugin"].inputs["values"]["resources"]
    given = {"deviceListStrategy": "volume-mounts", "resources": amounts}
    release(program, "nvidia-device-plugin", "kube-system", given, "0.19.3")


def network_policies_of_ingress(program):
    for name in [each for each in program.entries if each.startswith("training-network-")]:
        program.put(name, "spec.policyTypes", ["Ingress"])


def many_identities(program):
    for index in range(1001):
        role = f"role-{index}"
        program.add(role, "aws:iam/role:Role", {"assumeRolePolicy": POD_TRUST}, outputs={"arn": f"arn:{role}"})
        inputs = {"namespace": "x", "serviceAccount": role, "roleArn": f"arn:{role}"}
        program.add(f"identity-{index}", "aws:eks/podIdentityAssociation:PodIdentityAssociation", inputs)


def serves_the_system_nodes(program):
    """Cluster Autoscaler finds the CPU group `system`, too; its size is left alone."""
    program["system-nodes"].options["ignore_changes"] = ("scalingConfig.desiredSize",)
    program.add(
        "tag-system",
        "aws:autoscaling/tag:Tag",
        program["autoscaler-base-trainium-eks/cluster-autoscaler"].inputs,
        property_dependencies={"autoscalingGroupName": (program["system-nodes"].urn,)},
    )


def grafana_without_login(program):
    program["metrics-release"].inputs["values"]["grafana"]["grafana.ini"]["auth.anonymous"] = {"enabled": True}


def without_field(field):
    judged = " ".join(each for each in POD_FIELDS if each != field)
    return put(f"{GUARD}pods", "spec.validations", [{"expression": judged}])


def unbounded(name):
    return put("training-quota", "spec.hard", {each: "1" for each in (*BOUNDED, COUNTED) if each != name})


def unmatched(of, resource):
    """A policy that does not look at one of its resources."""
    rules = "spec.matchConstraints.resourceRules"
    return put(f"{GUARD}{of}", rules, lambda old: [each for each in old if resource not in each["resources"]])


def untagged(tag):
    tags = dict.fromkeys({"Owner", "CostCenter", "Environment"} - {tag}, "x")
    return put("aws", "defaultTags", json.dumps({"tags": tags}))


def bare_interfaces(program):
    for each in program["base-template"].inputs["networkInterfaces"]:
        del each["securityGroups"]


def open_kubeconfig(program):
    program.outputs["kubeconfig"] = kubeconfig()


AUTOSCALER = "RolePolicy autoscaler"
SYSTEM_NODES = "trn-test-cluster-system-nodes"
UNSEEN_GPUS = "dcgmAgent.tolerations for nvidia.com/gpu:NO_SCHEDULE"
OF_REGION = {"StringEquals": {"aws:RequestedRegion": "us-west-2"}}
ANY_INSTANCE = {"Action": "ec2:Run*", "Resource": ["arn:aws:ec2:*:*:instance/*"], "Condition": DROP}

FAULTS = (
    *(Fault(rule, row["what"], row["says"], row_change(row), frozenset(row.get("also", ())), "beyond_pack" in row)
      for rule, row in rows(Path(__file__).with_suffix(".yaml").read_text())),
    Fault("R19", "an agent that cannot see GPUs", UNSEEN_GPUS, unseen_gpus, frozenset({"R62"})),
    Fault("R25", "no group at all", "securityGroups", bare_interfaces),
    Fault("R56", "egress is open", "Egress", network_policies_of_ingress),
    Fault("R57", "too many", "1000", many_identities),
    Fault("R62", "a GPU group without a plugin", "nvidia-device-plugin", p5_without_plugin),
    Fault("R62", "a runtime that takes no mounts", "volume-mounts", p5_without_volume_mounts),
    *(Fault("R71", f"{each} is not judged", each, without_field(each)) for each in POD_FIELDS),
    *(Fault("R71", f"{each} has no bound", each, unbounded(each)) for each in BOUNDED),
    *(Fault("R78", f"{of} without {resource}", f"of {resource}", unmatched(of, resource))
      for of, resource in (("volcano-jobs", "cronjobs"), ("jobs", "cronjobs"), ("job-flows", "jobflows"),
                           ("pytorch-jobs", "pytorchjobs"), ("train-jobs", "trainjobs"),
                           ("job-sets", "trainingruntimes"), ("scale", "*/scale"))),
    Fault("R65", "the kubeconfig is plain", "plain text", open_kubeconfig, beyond_pack=True),
    Fault("R65", "a token inside", "token", put("kubernetes", "kubeconfig", kubeconfig(token="abc"))),
    Fault("R65", "no exec", "exec.command", put("kubernetes", "kubeconfig", kubeconfig(name="x"))),
    *(Fault("R66", f"no {each}", each, untagged(each)) for each in ("Owner", "CostCenter", "Environment")),
    Fault("R79", "groups of every cluster", "wanted a Condition on a tag", statement(AUTOSCALER, Condition=DROP)),
    Fault("R79", "a condition on something else", "SetDesiredCapacity", statement(AUTOSCALER, Condition=OF_REGION)),
    Fault("R79", "any instance", "allows ec2:Run*", statement(AUTOSCALER, **ANY_INSTANCE)),
    Fault("R81", "two for CPU pods", f"Cluster Autoscaler serves {SYSTEM_NODES}", serves_the_system_nodes),
    Fault("R86", "no login", "wanted a login", grafana_without_login),
    Fault("R88", "every workspace", "aps:RemoteWrite", statement("RolePolicy metrics-prometheus", Resource="*")),
    Fault("R88", "every log", "logs:PutLogEvents", statement("RolePolicy logs-fluent-bit", Resource="*")),
)  # fmt: skip

ONE_A_RULE = first_of_each(FAULTS, lambda fault: fault.rule, lambda fault: f"{fault.rule} {fault.label}")
"""The faults as parameters of a test; all but the first of each rule are slow."""
