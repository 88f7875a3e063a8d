"""Examples on a real engine: production as two stacks, and an environment by the Automation API."""

import json
from dataclasses import dataclass

import pytest
from engine.rig import Rig, succeeded

from trainium_eks.model.outputs import StackOutputs

NETWORK = "organization/production-network/prod"


@dataclass
class Production:
    """Both projects, as the steps go on."""

    rig: Rig
    network: tuple[str, str]
    cluster: tuple[str, str]
    """The CLI's option for the directory of each."""


def made(rig, kind):
    """URNs of one kind of resource in the simulated clouds."""
    return [each["urn"] for each in rig.inventory() if each["type"].endswith(f":{kind}")]


@pytest.fixture(scope="module")
def production(new_rig):
    rig = new_rig()
    folder = rig.example("production")
    program = folder / "network" / "__main__.py"
    # Ids of the simulated AWS are not of AWS' form, which the cluster's config must have.
    adopted = "network.as_existing_network()"
    text = program.read_text()
    assert adopted in text
    real = f"{adopted}.apply(lambda it: json.loads(json.dumps(it).replace('-sim-', '-')))"
    program.write_text(text.replace(adopted, real))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(rig.project))
        yield Production(rig, ("-C", str(folder / "network")), ("-C", str(folder / "cluster")))


def test_cluster_stack_without_its_network_is_refused_with_the_fix(production):
    production.rig.pulumi("stack", "init", "prod", *production.cluster)
    text = production.rig.refused("prod", *production.cluster)
    assert f"the outputs of the stack {NETWORK} cannot be read" in text
    assert f"bring it up first: pulumi up --stack {NETWORK}" in text
    assert "Traceback" not in text
    production.rig.pulumi("stack", "init", "prod", *production.network)
    assert "no output 'existingNetwork', it has none" in production.rig.refused("prod", *production.cluster)


def test_cluster_uses_the_network_of_the_other_stack(production):
    rig = production.rig
    succeeded(rig.up("prod", *production.network))
    outputs = json.loads(rig.pulumi("stack", "output", "--json", "--stack", "prod", *production.network))
    private = [each["id"] for each in outputs["existingNetwork"]["privateSubnets"]]

    planned = succeeded(rig.preview("prod", *production.cluster))
    [control_plane] = [step for step in planned.steps if "aws:eks/cluster:Cluster" in step.urn]
    assert control_plane.state["inputs"]["vpcConfig"]["subnetIds"] == private
    succeeded(rig.up("prod", *production.cluster))
    assert set(succeeded(rig.up("prod", "--expect-no-changes", *production.cluster)).changes()) == set()
    rig.pulumi("stack", "output", "clusterName", "--stack", "prod", *production.cluster)


def test_protected_network_cannot_be_destroyed_under_its_cluster(production):
    rig = production.rig
    code, said = rig.says("destroy", "--yes", "--stack", "prod", *production.network)
    assert code != 0
    assert "protect" in said
    assert made(rig, "Vpc")
    rig.pulumi("config", "set", "protect", "false", "--stack", "prod", *production.network)
    succeeded(rig.up("prod", *production.network))
    succeeded(rig.destroy("prod", *production.network))
    assert not made(rig, "Vpc")
    assert made(rig, "Cluster"), "the other stack's part of the inventory"


def test_automation_example_creates_and_destroys_an_environment(new_rig):
    rig = new_rig()
    folder = rig.example("automation")
    script = str(folder / "deploy.py")
    code, said = rig.python(script, "preview")
    assert code == 0, said
    assert rig.inventory() == ()

    code, said = rig.python(script, "up", "--wait", "0")
    file = folder / "dev-outputs.json"
    assert file.is_file(), said
    outputs = StackOutputs.load(file)
    assert [each.instance_type for each in outputs.node_groups] == ["trn1.2xlarge"]
    assert outputs.kubeconfig.startswith("{")
    assert file.stat().st_mode & 0o077 == 0
    assert code == 1, "the simulated API server does not answer `trn doctor`"

    code, said = rig.python(script, "destroy")
    assert code == 0, said
