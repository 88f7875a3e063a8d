"""Dev stacks on a real engine: an interrupted creation, another file system, and what `make up` and `make destroy` run.

The first steps share one stack and run in their order.
"""

import shlex

from engine.rig import called, succeeded

from trainium_eks.operate.cleanup.recovery import Advice, commands
from trainium_eks.operate.cleanup.state import StackState
from trainium_eks.plan.differences.diff import compare

CLAIM = "PersistentVolumeClaim trn-dev-training-claim"
FILE_SYSTEM = "LustreFileSystem trn-dev-fsx-file-system"
GOES = [
    CLAIM,
    "PersistentVolume trn-dev-volumes-training",
    "Job trn-dev-volumes-directories",
    "PersistentVolumeClaim trn-dev-volumes-setup-claim",
    "PersistentVolume trn-dev-volumes-lustre-setup",
    FILE_SYSTEM,
]
"""In the order of deletion: whoever is made from another goes before it."""


def exported(rig):
    return StackState.parse(rig.pulumi("stack", "export", "--stack", "dev"), "the engine")


def test_an_interrupted_node_group_is_imported_and_not_made_twice(rig):
    """As `trn orphans` says."""
    rig.begin("dev")
    succeeded(rig.up("dev"))
    urn = next(each.urn for each in exported(rig).of_type("aws:eks/nodeGroup:NodeGroup") if "trn1n" in each.urn)
    identity, dependents = rig.interrupt("dev", urn)
    before = exported(rig)
    assert [(each.kind, each.resource.urn) for each in before.pending] == [("creating", urn)]
    assert identity not in before.names

    for each in commands("dev", [Advice(before.pending[0], "import", "AWS has it", identity)]):
        program, *arguments = shlex.split(each)
        assert program == "pulumi"
        rig.pulumi(*arguments, "--yes")

    after = exported(rig)
    assert after.pending == ()
    assert [each.urn for each in after.resources if each.id == identity] == [urn]
    again = succeeded(rig.up("dev"))
    assert again.of("create") == dependents
    assert not again.of("delete", "replace")


def another(config):
    config["trainium-eks:fileSystem"] = {"deploymentType": "SCRATCH_2", "durability": {"type": "none"}}


def test_namespaces_and_volumes_are_deleted_before_their_file_system(rig):
    before = rig.recorded("dev")
    rig.configure("dev", another)

    planned = compare(before, rig.recorded("dev"))
    assert {called(each.resource.urn) for each in planned.replaced} == set(GOES)
    assert [called(each.resource.urn) for each in planned.claims] == [CLAIM]

    up = succeeded(rig.up("dev"))
    assert [step.name for step in up.steps if step.operation == "delete-replaced"] == GOES
    done = [step.operation for step in up.steps if step.operation in ("delete-replaced", "create-replacement")]
    assert done == ["delete-replaced"] * len(GOES) + ["create-replacement"] * len(GOES)

    down = succeeded(rig.destroy("dev"))
    order = [step.name for step in down.steps if step.operation == "delete"]
    for namespace, volume in (
        ("Namespace trn-dev-training-namespace", "PersistentVolume trn-dev-volumes-training"),
        ("Namespace trn-dev-volumes-setup", "PersistentVolume trn-dev-volumes-lustre-setup"),
    ):
        # Kubernetes keeps a volume as long as its claim, and the claim ends with its namespace.
        assert order.index(namespace) < order.index(volume) < order.index(FILE_SYSTEM)


def test_up_and_destroy_complete_without_an_account(new_rig):
    rig = new_rig()
    rig.begin("dev")
    code, said = rig.python("-m", "trainium_eks.cli", "deploy", "up", "--stack", "dev", "--", "--yes")
    assert code == 0, said
    assert "dev: about $" in said
    assert "checks could be made" in said
    assert rig.resources("dev")

    down = ("deploy", "destroy", "--stack", "dev", "--", "--yes", "--no-export")
    code, said = rig.python("-m", "trainium_eks.cli", *down)
    assert code == 0, said
    assert rig.resources("dev") == ()
    kept = {called(thing["urn"]): thing for thing in rig.inventory()}
    assert set(kept) == {"Key trn-dev-key-key", "KeyPolicy trn-dev-key-policy"}

    arn = kept["Key trn-dev-key-key"]["outputs"]["arn"]
    rig.configure("dev", lambda config: config.update({"trainium-eks:keptKeyArn": arn}))
    again = succeeded(rig.preview("dev"))
    keys = {step.name: step.state["inputs"] for step in again.steps if "aws:kms/" in step.urn}
    assert set(keys) == {"KeyPolicy trn-dev-key-policy", "Alias trn-dev-key-alias"}
    assert keys["Alias trn-dev-key-alias"]["targetKeyId"] == arn.rpartition("/")[2]
