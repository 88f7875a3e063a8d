"""The wording of problems and of faults of shape: to who writes a config file, and to who writes Python."""

import json
import shlex
from typing import Annotated, Literal

import pydantic
import pytest

from trainium_eks.model.validation.config_model import (
    ConfigModel,
    ConfigModelError,
    LooseStr,
    StrictBool,
    StrictInt,
    read,
)
from trainium_eks.model.validation.problems import (
    Problem,
    Severity,
    config_path,
    config_set,
    describe,
    join,
    join_key,
    nearest,
    nearest_number,
    refused,
    under,
)


@pytest.mark.parametrize(
    ("path", "spelled"),
    [
        ("region", "region"),
        ("node_groups[0].max_size", "nodeGroups[0].maxSize"),
        ("node_groups[0].hugepages_2mi", "nodeGroups[0].hugepages2Mi"),
        ('queues[0].capability["aws.amazon.com/neuron"]', 'queues[0].capability["aws.amazon.com/neuron"]'),
        ('node_groups[0].labels["my_key"]', 'nodeGroups[0].labels["my_key"]'),
        (r'tags["a\"b_c"].d_e', r'tags["a\"b_c"].dE'),
    ],
)
def test_paths_are_spelled_as_in_the_config_file_and_keys_are_unchanged(path, spelled):
    assert config_path(path) == spelled
    assert (join("", "a"), join(join("a", 0), "b"), join_key("waivers", "R06")) == ("a", "a[0].b", "waivers.R06")
    assert join_key("tags", "my_key") == 'tags["my_key"]', "or config_path would take it for a field"
    moved = under("queues", [Problem(path, "x") for path in ("[0].name", "", "a")])
    assert [each.path for each in moved] == ["queues[0].name", "queues", "queues.a"]


@pytest.mark.parametrize(
    ("path", "value", "arguments"),
    [
        ("region", "us-west-2", ["region", "us-west-2"]),
        ("production", True, ["production", "true"]),
        ("node_groups[0].max_size", 4, ["--path", "nodeGroups[0].maxSize", "4"]),
        ("waivers.R06", "it's off at night", ["--path", "waivers.R06", "it's off at night"]),
        ('queues[0].capability["a.b/c"]', 4, ["--path", 'queues[0].capability["a.b/c"]', "4"]),
        ("owner", "<owner>", ["owner", "<owner>"]),
    ],
)
def test_a_command_can_be_pasted_into_a_shell(path, value, arguments):
    assert shlex.split(config_set(path, value)) == ["pulumi", "config", "set", *arguments]
    # Lists and mappings take one command for each entry.
    assert config_set("network.zone_ids", ("usw2-az4", "usw2-az1")) == (
        "pulumi config set --path 'network.zoneIds[0]' usw2-az4"
        " && pulumi config set --path 'network.zoneIds[1]' usw2-az1"
    )
    assert config_set("queues[0].capability", {"a.b/c": 4}) == (
        "pulumi config set --path 'queues[0].capability[\"a.b/c\"]' 4"
    )


def test_problem_shows_its_value_the_allowed_values_and_the_fix():
    problem = Problem("node_groups[0].max_size", "more than `other_size`", value=500, allowed=("1 to 450",), good=450)
    assert describe([problem], config_path).splitlines() == [
        "- nodeGroups[0].maxSize = 500: more than otherSize",
        "    allowed: 1 to 450",
        "    fix: pulumi config set --path 'nodeGroups[0].maxSize' 450",
    ]
    assert describe([problem]).splitlines() == [
        "- node_groups[0].max_size = 500: more than other_size",
        "    allowed: 1 to 450",
        "    fix: set node_groups[0].max_size to 450",
    ]
    # A second fix and a waiver are shown, too.
    problem = Problem("a.b_c", "x", "or look at `d_e`", severity=Severity.ACKNOWLEDGE, rule="R29", good=False)
    assert describe([problem], config_path).splitlines()[1:] == [
        "    fix: pulumi config set --path a.bC false",
        "    or: look at dE",
        "    or accept it: pulumi config set --path waivers.R29.reason '<your reason>'"
        " && pulumi config set --path waivers.R29.expires '<YYYY-MM-DD>'",
    ]
    assert "or accept it: waive R29 with a reason" in describe([problem])


def test_warnings_long_lists_and_the_root_are_described():
    assert describe([Problem("a", "x", severity=Severity.WARN)]) == "- warning: a: x"
    assert describe([Problem("", "x", value=3)]) == "- x"
    assert describe([Problem("a", "x", value="")]) == "- a = '': x"
    assert describe([Problem("a", "x", good=("b", "c"))]).endswith("fix: set a to [b, c]")
    assert describe([Problem("a", "x", good={"b": 1, "c": 2})]).endswith("fix: set a to {b: 1, c: 2}")
    many = describe([Problem("a", "x", allowed=tuple(f"w{number}" for number in range(30)))])
    assert "w19, … (30 in all)\n" in many
    assert describe([]) == ""
    # Words and numbers are guessed only when near.
    assert nearest("Per-Zone", ["single", "per-zone"]) == "per-zone"
    assert nearest("zzz", ["single", "per-zone"]) is None
    assert nearest_number(3, (2, 4)) == 4
    assert nearest_number(200, (125, 250)) == 250


def test_refused_problems_are_those_without_a_reasoned_waiver():
    refuse, warn = Problem("a", "x"), Problem("b", "x", severity=Severity.WARN)
    acknowledge = Problem("c", "x", severity=Severity.ACKNOWLEDGE, rule="R29")
    every = (refuse, warn, acknowledge)
    assert refused(every, {}) == (refuse, acknowledge)
    assert refused(every, {"R29": "known"}) == (refuse,)
    assert refused(every, {"R29": " ", "R01": "other"}) == (refuse, acknowledge)


class Left(ConfigModel):
    type: Literal["left"] = "left"
    depth: StrictInt
    """How deep. In metres."""


class Right(ConfigModel):
    type: Literal["right"] = "right"
    width: StrictInt = 1


class Sample(ConfigModel):
    new_name: str
    """What it is called: in words."""
    size_gib: StrictInt = 1
    on: StrictBool = False
    mode: Literal["fast", "slow"] = "fast"
    parts: tuple[Annotated[Left | Right, pydantic.Field(discriminator="type")], ...] = ()
    maybe: Right | None = None
    counts: dict[str, StrictInt] = pydantic.Field(default_factory=dict)
    words: dict[str, LooseStr] = pydantic.Field(default_factory=dict)
    many: tuple[str, ...] = ()


def problems_of(**data):
    with pytest.raises(ConfigModelError) as caught:
        read(Sample, {key: value for key, value in {"newName": "x", **data}.items() if value is not ...})
    return describe(caught.value.problems, config_path)


def test_misspelt_name_is_refused_with_the_known_or_translated_names():
    assert problems_of(sizeGb=1).splitlines() == [
        "- sizeGb: it is an unknown name",
        "    allowed: counts, many, maybe, mode, newName, on, parts, sizeGib, words",
        "    fix: did you mean sizeGib?",
    ]
    assert "fix: the stack's tags are on everything" in problems_of(defaultTags=1)
    assert "fix: name it sizeGib" in problems_of(SIZE_GIB=1)
    assert "given twice, in two spellings" in problems_of(sizeGib=1, size_gib=2)
    assert problems_of(newName=...).splitlines() == [
        "- newName: it is required and missing (What it is called)",
        "    fix: pulumi config set newName '<new name>'",
    ]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"newName": 3}, "newName: it must be text, not 3"),
        ({"newName": 1.35}, 'fix: write it in quotes: "1.35"'),
        ({"sizeGib": "3"}, "fix: pulumi config set sizeGib 3"),
        ({"sizeGib": True}, "sizeGib: it must be a whole number, not true"),
        ({"sizeGib": 2.5}, "sizeGib: it must be a whole number, not 2.5"),
        ({"sizeGib": float("inf")}, "sizeGib: it must be a whole number"),
        ({"on": "yes"}, "fix: pulumi config set on true"),
        ({"on": 1}, "on: it must be true or false, not 1"),
        ({"mode": "Fast"}, "fix: pulumi config set mode fast"),
        ({"mode": None}, "mode: it must be one of the allowed words, not nothing"),
        ({"many": "x"}, "fix: write it as a list: [x]"),
        ({"many": {"a": 1}}, "many: it must be a list, not an object"),
        ({"maybe": 3}, "maybe: it must be an object (names with values), not 3"),
        ({"maybe": {"width": "x"}}, "maybe.width: it must be a whole number, not 'x'"),
        ({"counts": {"a.b/c": "x"}}, 'counts["a.b/c"]: it must be a whole number'),
        ({"words": {"a": [1]}}, "words.a: it must be text, not a list"),
        ({"parts": [{"type": "up"}]}, "parts[0].type: it must be one of the allowed words, not 'up'"),
        ({"parts": [{"depth": 1}]}, "parts[0].type: it is required and missing"),
        ({"parts": [3]}, "parts[0]: it must be an object (names with values), not 3"),
        ({"parts": [{"type": "left"}]}, "parts[0].depth: it is required and missing (How deep)"),
        ({"parts": [{"type": "right", "depth": 1}]}, "parts[0].depth: it is an unknown name with type right"),
    ],
)
def test_wrong_shape_is_described_without_pydantics_terms(data, reason):
    assert reason in problems_of(**data)
    # The contents of an object are never shown.
    assert "hunter2" not in problems_of(newName={"password": "hunter2"}, many={"secret": "hunter2"})


def test_scalars_and_models_are_coerced():
    sample = read(Sample, {"new_name": "x", "size_gib": 3.0, "words": {"a": 12, "b": True, "c": "d"}})
    assert (sample.size_gib, type(sample.size_gib)) == (3, int)
    assert sample.words == {"a": "12", "b": "true", "c": "d"}
    assert read(Sample, sample) is sample
    with pytest.raises(ConfigModelError, match="it must be an object with the fields of Sample, not a list"):
        read(Sample, ["x"])


def test_problem_survives_json():
    of = {"severity": Severity.ACKNOWLEDGE, "rule": "R20"}
    problem = Problem("a[0].b", "more than there can be", "split it", **of, value=9, allowed=("1", "4"), good=4)
    assert Problem.from_json(json.loads(json.dumps(problem.to_json()))) == problem
    assert problem.to_json()["severity"] == "acknowledge"
