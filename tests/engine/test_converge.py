"""An update in which one resource of a type fails, and the next run: for every type of the environments."""

import functools
import json

import pytest
from engine.rig import REPOSITORY, succeeded

pytestmark = [pytest.mark.engine_full]


def _first_stacks():
    """Each type that a provider makes to the first environment that has one; from the accepted plans."""
    found = {}
    for stack in ("dev", "prod", "gpu"):
        plan = json.loads((REPOSITORY / "tests" / "golden_plans" / f"{stack}.json").read_text())
        for type_ in (urn.split("::")[2].rpartition("$")[2] for urn in plan):
            if type_.startswith(("aws:", "kubernetes:")) and type_ != "kubernetes:kustomize/v2:Directory":
                found.setdefault(type_, stack)
    return found


def _begun(new_rig, stack):
    rig = new_rig()
    rig.begin(stack)
    return rig


@pytest.fixture(scope="module")
def undisturbed(new_rig):
    """What exists after an update in which nothing fails, by stack."""

    @functools.cache
    def of(stack):
        rig = _begun(new_rig, stack)
        succeeded(rig.up(stack))
        return rig.inventory()

    return of


@pytest.mark.parametrize(("failing", "stack"), sorted(_first_stacks().items()))
def test_after_a_failure_the_next_update_converges(new_rig, undisturbed, failing, stack):
    rig = _begun(new_rig, stack)
    failed = rig.up(stack, failing=failing)
    assert failed.code != 0
    assert "ThrottlingException" in failed.messages
    succeeded(rig.up(stack, failing=failing))
    assert rig.inventory() == undisturbed(stack)
