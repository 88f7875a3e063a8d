"""What no component takes is refused at its place, before anything is made (refused.yaml)."""

import pulumi
import pytest
from unit.components.parts import REFUSED

import components
from trainium_eks.model.validation.problems import describe

ROWS = [
    pytest.param(name, {**component["least"], **given}, path, says, id=f"{name}: {given}")
    for name, component in REFUSED.items()
    for given, path, *says in component["refused"]
]


def late(given):
    """Return what is given with the values that are known only during an update."""
    if isinstance(given, dict):
        return {key: late(value) for key, value in given.items()}
    if isinstance(given, list):
        return [late(each) for each in given]
    if given == "<output as text>":
        return f"{pulumi.Output.from_input(2)}"
    return pulumi.Output.from_input(2) if given == "<output>" else given


@pytest.mark.parametrize(("name", "args", "path", "says"), ROWS)
def test_invalid_arguments_are_refused_at_their_path(record, name, args, path, says):
    with pytest.raises(components.ArgumentError) as refused:
        record(lambda: getattr(components, name)("x", late(args)) and None)
    assert " ".join(dict.fromkeys(each.path for each in refused.value.problems)) == path
    said = describe(refused.value.problems)
    assert [each for each in says if each not in said] == []
    assert not any(each in said for each in ("Output[", "0x"))
