"""A preview must plan what an `up` would build: the same resources, wired the same, with the same known values."""

from collections.abc import Mapping

from trainium_eks.plan.graph import UNKNOWN


def planned_alike(record, program):
    """Records ``program`` as an `up` and as a preview, holds one against the other, and returns the `up`."""
    up, preview = record(program), record(program, dry_run=True)
    assert list(preview.by_urn) == list(up.by_urn)
    for urn, planned in preview.by_urn.items():
        built = up.by_urn[urn]
        assert (planned.type, planned.parent, planned.provider) == (built.type, built.parent, built.provider), urn
        assert planned.options == built.options, urn
        assert planned.dependencies == built.dependencies, urn
        assert set(planned.inputs) == set(built.inputs), urn
        for name, value in planned.inputs.items():
            assert _fits(value, built.inputs[name]), f"{urn} {name}: {value!r} planned, {built.inputs[name]!r} built"
    return up


def _fits(planned, built):
    if planned == UNKNOWN:
        return True
    if isinstance(planned, Mapping) and isinstance(built, Mapping):
        return set(planned) == set(built) and all(_fits(planned[key], built[key]) for key in planned)
    if isinstance(planned, list) and isinstance(built, list):
        return len(planned) == len(built) and all(map(_fits, planned, built))
    return bool(planned == built)
