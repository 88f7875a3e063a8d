"""Every example is a program that runs; every component has one, and a page that shows it."""

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

from trainium_eks.graph.graph import STACK_TYPE, Graph

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
KUBECONFIG = '{"apiVersion": "v1", "kind": "Config"}'


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path: Path, record: Callable[..., Graph]) -> None:
    graph = record(lambda: runpy.run_path(str(path), run_name="__main__"), config={"kubeconfig": KUBECONFIG})
    ours = [each for each in graph.resources if each.type.startswith("trainium-eks:index:")]
    assert ours
    [stack] = graph.of_type(STACK_TYPE)
    assert [each.name for each in ours if each.parent == stack.urn], "the component stands under the stack"


def test_every_component_has_an_example() -> None:
    import components

    shown = "\n".join(path.read_text() for path in EXAMPLES)
    classes = [name for name in components.__all__ if f"{name}Args" in components.__all__ or name == "TrainingStack"]
    assert [name for name in classes if f"{name}(" not in shown] == []
