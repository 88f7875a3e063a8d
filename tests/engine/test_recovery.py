"""`trn orphans` on a real engine: an interrupted creation is imported, and the next update changes nothing."""

import shlex

from engine.rig import Rig, succeeded

from trainium_eks.operate.cleanup.recovery import Advice, commands
from trainium_eks.operate.cleanup.state import StackState


def exported(rig: Rig) -> StackState:
    return StackState.parse(rig.pulumi("stack", "export", "--stack", "dev"), "the engine")


def test_an_interrupted_node_group_is_imported_and_not_made_twice(rig: Rig) -> None:
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
