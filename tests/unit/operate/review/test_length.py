"""Huge changes: the comment stays below the platform's limit, keeps its beginning, and is written in seconds."""

import time
from dataclasses import replace

import pytest
from hand_built import PREFIX, STACK, environment

from trainium_eks.operate.review import comment, review
from trainium_eks.operate.review.comment import PLATFORMS
from trainium_eks.operate.review.review import Refusal, Review
from trainium_eks.operate.review.scrubbing import Scrubber
from trainium_eks.plan.graph import Graph, Resource

_TYPES = ("aws:s3/bucket:Bucket", "aws:iam/role:Role", "kubernetes:core/v1:ConfigMap", "aws:eks/nodeGroup:NodeGroup")


def _many(count: int, value: str) -> Graph:
    inputs = {"bucket": value, "description": value * 30, "data": {f"k{each}": value for each in range(5)}}
    names = (f"resource-with-a-long-name-{index:05}" for index in range(count))
    each_name = ((type_, name) for name in names for type_ in _TYPES)
    more = (Resource(f"{PREFIX}{type_}::{name}", type_, name, STACK, inputs=inputs) for type_, name in each_name)
    built = environment()
    return replace(built, resources=tuple(sorted((*built.resources, *more), key=lambda each: each.urn)))


def _review(before: Graph, after: Graph) -> Review:
    return Review("trainium-eks", "dev", "offline", "main", comparison=review.of_plans(before, after))


@pytest.mark.slow
@pytest.mark.parametrize(("count", "platform"), [(60, "github"), (60, "gitlab"), (60, "bitbucket"), (800, "github")])
def test_a_huge_change_is_cut_in_the_middle(count: int, platform: str) -> None:
    before, after = _many(count, "old"), _many(count, "new-é")
    began = time.process_time()
    text = comment.render(_review(before, after), PLATFORMS[platform], Scrubber())
    assert time.process_time() - began < 60  # far less, and for ever where it grows with the square
    assert len(text) <= PLATFORMS[platform].most_characters
    assert len(text) > PLATFORMS[platform].most_characters * 0.8, "what there is room for is used"
    assert "– BLOCKED" in text.splitlines()[2]
    assert "lines left out …" in text
    block = text.split("```diff\n")[1].split("```")[0].splitlines()
    assert block[0].startswith("@@")
    place = next(index for index, line in enumerate(block) if "left out" in line)
    assert abs(place - len(block) / 2) <= 2, "the middle is left out"
    assert "more risks" in text
    assert text.count("```") == 2


def test_a_huge_value_or_traceback_is_cut() -> None:
    before, after = _many(1, "old"), _many(1, "x" * 1_000_000)
    began = time.process_time()
    text = comment.render(_review(before, after), PLATFORMS["github"], Scrubber())
    assert time.process_time() - began < 60  # far less, and for ever where it grows with the square
    assert len(text) < 20_000
    refused = Refusal("it failed", detail="line `x`\n" * 100_000)
    judged = Review("trainium-eks", "dev", "offline", "main", refusal=refused)
    text = comment.render(judged, PLATFORMS["github"], Scrubber())
    assert len(text) <= 60_000
    assert "The program cannot be planned" in text


@pytest.mark.parametrize("name", ["", "a/b", "x -->", "a" * 101, "é"])
def test_a_name_that_pulumi_does_not_take_is_refused(name: str) -> None:
    judged = replace(_review(environment(), environment()), stack=name)
    with pytest.raises(ValueError, match="no name"):
        comment.render(judged, PLATFORMS["github"], Scrubber())
