"""Differences of inputs: a plan's comparison and the engine's provider agree."""

import pytest

from trainium_eks.plan.graph import UNKNOWN, Options, Resource
from trainium_eks.plan.resource_types.differences import differences

GROUP = "aws:eks/nodeGroup:NodeGroup"


def paths(before, after, *ignored):
    resource = Resource("u", GROUP, "n", inputs=after, options=Options(ignore_changes=ignored))
    return [(each.path, each.before, each.after) for each in differences(resource, before)]


@pytest.mark.parametrize(
    ("before", "after"), [(1, 1.0), (None, None), ([], []), ({}, {}), (True, True), ([1, {"a": 2}], [1.0, {"a": 2}])]
)
def test_equal_inputs_have_no_difference(before, after):
    assert paths({"x": before}, {"x": after}) == []


@pytest.mark.parametrize(("before", "after"), [(1, True), (False, 0), ("1", 1), ([1], [True]), ({}, []), (None, False)])
def test_changed_input_is_one_difference(before, after):
    assert len(paths({"x": before}, {"x": after})) == 1


def test_smallest_changed_paths_are_named_and_null_is_absent():
    before = {"a": {"b": 1, "c": [{"d": 1}, 2]}, "e": [1]}
    after = {"a": {"b": 1, "c": [{"d": 3}, 2]}, "e": [1, 2], "f": "new"}
    assert paths(before, after) == [("a.c[0].d", 1, 3), ("e", [1], [1, 2]), ("f", None, "new")]
    assert paths({"x": None}, {}) == paths({"x": {}}, {"x": {"y": None}}) == []
    assert paths({}, {"x": {"y": None}}) == [("x", None, {"y": None})]


def test_ignored_input_is_left_out_unless_its_whole_object_changes():
    sizes = {"scalingConfig": {"desiredSize": 1, "maxSize": 2}}, {"scalingConfig": {"desiredSize": 3, "maxSize": 4}}
    assert paths(*sizes, "scalingConfig.desiredSize") == [("scalingConfig.maxSize", 2, 4)]
    assert paths(*sizes, "scalingConfig") == []
    # A claim whose volume is replaced: the engine knows nothing of its ``spec`` any more.
    spec = {"volumeName": "v", "resources": {"requests": {"storage": "1Ti"}}}
    assert paths({"spec": spec}, {"spec": "[unknown]"}, "spec.resources") == [("spec", spec, "[unknown]")]
    assert paths({"spec": spec}, {"spec": {**spec, "resources": {}}}, "spec.resources") == []


def test_replacing_inputs_are_marked_at_each_path():
    resource = Resource("u", GROUP, "n", inputs={"instanceTypes": ["b"], "version": UNKNOWN})
    found = differences(resource, {"instanceTypes": ["a"], "version": "1"})
    assert [(each.path, each.top, each.replaces) for each in found] == [
        ("instanceTypes[0]", "instanceTypes", True),
        ("version", "version", False),
    ]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({"Owner": "me"}, {"Owner": "you"}, ["tagsAll.Owner"]),
        ({"Owner": "me"}, {"Owner": "me"}, []),
        ({}, {"Owner": "me"}, ["tagsAll.Owner"]),
        ({"Owner": "me"}, UNKNOWN, ["tagsAll"]),
        (None, None, []),
    ],
)
def test_changed_default_tags_are_listed(before, after, told):
    found = differences(Resource("u", GROUP, "n"), {}, tags_all=(before, after))
    assert [each.path for each in found] == told
