"""What is done about idle nodes, case by case."""

from dataclasses import replace

import pytest

from trainium_eks.observe.idle.decision import Limits, Node, steps

NOW = 1_000_000.0
LIMITS = Limits(warn_seconds=600, remove_seconds=1200)
NODE = Node("node-1", "trn1", busy=False)


def since(minutes: float) -> Node:
    return replace(NODE, idle_since=NOW - minutes * 60)


def done(*nodes: Node, waiting: frozenset[str] = frozenset(), minimum: int = 0, limits: Limits = LIMITS) -> list[str]:
    found = steps(NOW, nodes, waiting=waiting, minimum={"trn1": minimum} if minimum else {}, limits=limits)
    return [f"{step.action} {step.node.name}" for step in found]


CASES = {
    "a node that works is left alone": (replace(NODE, busy=True), []),
    "idleness is noted when it is seen first": (NODE, ["mark node-1"]),
    "work ends it": (replace(since(30), busy=True), ["clear node-1"]),
    "nothing is said at first": (since(9), []),
    "then it is said": (since(10), ["warn node-1"]),
    "once": (replace(since(11), warned=True), []),
    "then the node is held": (replace(since(20), warned=True), ["hold node-1"]),
    "and removed at the next look": (replace(since(21), warned=True, held=True), ["remove node-1"]),
    "a long gap between looks skips no warning": (since(60), ["warn node-1", "hold node-1"]),
    "a pod that came before the hold keeps its node": (
        replace(since(21), busy=True, held=True),
        ["release node-1", "clear node-1"],
    ),
    "a hold whose node is no longer due ends": (replace(since(5), held=True), ["release node-1"]),
}


@pytest.mark.parametrize("case", CASES)
def test_one_node(case: str) -> None:
    node, wanted = CASES[case]
    assert done(node) == wanted


def test_nothing_goes_while_a_gang_waits_for_the_group() -> None:
    idle, held = replace(since(60), warned=True), replace(since(60), name="node-2", warned=True, held=True)
    assert done(idle, held, waiting=frozenset({"trn1"})) == ["release node-2"]
    assert done(idle, held, waiting=frozenset({"another"})) == ["remove node-2", "hold node-1"]


def test_the_minimum_stays_and_the_longest_idle_go_first() -> None:
    nodes = [replace(since(20 + number), name=f"node-{number}", warned=True) for number in range(4)]
    assert done(*nodes, minimum=1) == ["hold node-3", "hold node-2", "hold node-1"]
    assert done(*nodes, minimum=4) == []
    assert done(*nodes, replace(NODE, name="busy", busy=True), minimum=4) == ["hold node-3"]


def test_without_an_end_it_only_warns() -> None:
    assert done(since(6000), limits=Limits(600, None)) == ["warn node-1"]
