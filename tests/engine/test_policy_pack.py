"""The policy pack on a real engine: it finds nothing in a sound stack, and each fault of a bad one."""

import re

import pytest
from engine.rig import REPOSITORY
from full_environments import given

from trainium_eks.plan.rules import RULES, judge

PACK = str(REPOSITORY / "policy")

pytestmark = pytest.mark.skipif(
    not (REPOSITORY / ".venv" / "policy").is_dir(), reason="no .venv/policy: `make policy` sets it up"
)

FAULTS = """
import pulumi_aws as aws
import pulumi_kubernetes as k8s

given = pulumi.ResourceOptions(provider=provider)
aws.kms.Key("still", enable_key_rotation=False, opts=given)
aws.s3.Bucket("bare", force_destroy=True, opts=given)
anyone = aws.ec2.SecurityGroup("anyone", opts=given)
ssh = {"ip_protocol": "tcp", "from_port": 22, "to_port": 22, "cidr_ipv4": "0.0.0.0/0"}
aws.vpc.SecurityGroupIngressRule("ssh", security_group_id=anyone.id, **ssh, opts=given)
everything = '{"Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}'
aws.iam.RolePolicy("all", role="somebody", policy=everything)
"""
"""Resources that are wrong whatever is known of them, after the stack's own."""


def expired(config):
    config["trainium-eks:waivers"]["R06"]["expires"] = "2026-01-31"


def broken(said):
    """The policies that the CLI says are broken."""
    return set(re.findall(r"\[mandatory\](?: +\[severity: \w+\])? +(\w+)", said))


@pytest.mark.parametrize("features", [lambda _: {}, given], ids=["plain", "every feature"])
@pytest.mark.parametrize("stack", ["dev", "gpu", "prod"])
def test_a_sound_stack_is_previewed_and_made_under_the_pack(new_rig, stack, features):
    """The update knows ids, so it judges the rules that follow them, too."""
    rig = new_rig()
    rig.begin(stack, lambda config: config.update(features(stack)))
    for command in (["preview"], ["up", "--yes", "--skip-preview"]):
        code, said = rig.says(*command, "--stack", stack, "--policy-pack", PACK)
        assert broken(said) == set()
        assert "✅ trainium-eks" in said, said
        assert code == 0, said
        lines = [each for each in said.splitlines() if "not judged by this policy pack, but by `trn plan`: " in each]
        assert lines, said
        documented = {each.id for each in RULES if each.beyond_pack or each.follows_ids or each.reads_computed}
        assert set(re.findall(r"R\d+", " ".join(lines))) <= documented


def test_faults_stop_the_preview(new_rig):
    rig = new_rig()
    program = rig.project / "__main__.py"
    program.write_text(f"{program.read_text()}\n{FAULTS}")
    rig.begin("dev", expired)
    code, said = rig.says("preview", "--stack", "dev", "--policy-pack", PACK)
    assert code != 0
    planned = {each.id.lower() for each in judge(rig.recorded("dev")) if each.status == "fail"}
    assert planned >= {"r06", "r11", "r14", "r18", "r25", "r46", "r47", "r48", "r49", "r50", "r73"}
    assert broken(said) == {*planned, "waivers"}, said
    assert "R06: the waiver expired on 2026-01-31" in said
