"""An update in which one resource of a type fails, and the next run: for every type of the environments."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from engine.rig import REPOSITORY, Rig, succeeded

pytestmark = [pytest.mark.engine_full]


def _first_stacks() -> dict[str, str]:
    """Each type that a provider makes to the first environment that has one; from the accepted plans."""
    found: dict[str, str] = {}
    for stack in ("dev", "prod", "gpu"):
        plan = json.loads((REPOSITORY / "tests" / "golden_plans" / f"{stack}.json").read_text())
        for urn in plan:
            type_ = urn.split("::")[2].rpartition("$")[2]
            if type_.startswith(("aws:", "kubernetes:")) and type_ not in _COMPONENTS:
                found.setdefault(type_, stack)
    return found


_COMPONENTS = ("kubernetes:kustomize/v2:Directory",)


@pytest.fixture(scope="module")
def undisturbed(new_rig: Callable[[], Rig]) -> Callable[[str], list[Mapping[str, Any]]]:
    """What exists after an update in which nothing fails, by stack."""
    made: dict[str, list[Mapping[str, Any]]] = {}

    def of(stack: str) -> list[Mapping[str, Any]]:
        if stack not in made:
            rig = new_rig()
            rig.begin(stack)
            succeeded(rig.up(stack))
            made[stack] = list(rig.inventory())
        return made[stack]

    return of


@pytest.mark.parametrize(("failing", "stack"), sorted(_first_stacks().items()))
def test_after_a_failure_the_next_update_converges(
    new_rig: Callable[[], Rig], undisturbed: Callable[[str], list[Mapping[str, Any]]], failing: str, stack: str
) -> None:
    expected = undisturbed(stack)
    rig = new_rig()
    rig.begin(stack)
    failed = rig.up(stack, failing=failing)
    assert failed.code != 0
    assert "ThrottlingException" in failed.messages
    succeeded(rig.up(stack, failing=failing))
    assert list(rig.inventory()) == expected
