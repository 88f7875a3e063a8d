"""The changes of the engine's tests, asked of the recorded program: so their table stays current where no engine is."""

import pytest
from engine.config_changes import CHANGES, expected, second_queue
from engine.rig import Rig, called

from trainium_eks.plan.differences.changes import KINDS
from trainium_eks.plan.differences.diff import compare


@pytest.mark.slow
def test_plan_of_a_config_change_equals_the_engines(tmp_path):
    rig = Rig(tmp_path)
    rig.configure("dev", second_queue)
    built = rig.recorded("dev")
    for name, change in CHANGES.items():
        rig.configure("dev", second_queue, change)
        planned = rig.recorded("dev")
        own = {called(each.urn) for each in (*built.resources, *planned.resources) if each.custom}
        found = {kind: {called(each.resource.urn) for each in compare(built, planned).of(kind)} for kind in KINDS}
        wanted = {kind: names & own for kind, names in expected(name, built, planned).items()}
        assert {kind: names for kind, names in found.items() if names} == wanted, name
