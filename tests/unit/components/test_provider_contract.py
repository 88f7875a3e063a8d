"""What a component provider's analyzer reads off the components: their outputs, and nothing else."""

import inspect
from collections.abc import Sequence
from typing import Any, TypedDict

import pulumi
import pytest
from pulumi.provider.experimental.analyzer import Analyzer, is_output

import components

CLASSES = [
    value
    for value in (getattr(components, name) for name in components.__all__)
    if inspect.isclass(value) and issubclass(value, pulumi.ComponentResource)
]


class _NoArgs(TypedDict):
    pass


def test_every_exported_component_is_looked_at() -> None:
    assert {"Network", "TrainiumCluster", "NeuronAddons", "FsxLustre", "VolcanoStack", "TrainingStack"} <= {
        each.__name__ for each in CLASSES
    }


@pytest.mark.parametrize("component", CLASSES, ids=lambda each: each.__name__)
def test_public_annotations_are_outputs_with_a_docstring(component: type[pulumi.ComponentResource]) -> None:
    public = {name: type_ for name, type_ in inspect.get_annotations(component).items() if not name.startswith("_")}
    assert public, f"{component.__name__} has no output"
    # A mapping has its Outputs inside, where one secret does not make all of it secret.
    plain = {name: type_ for name, type_ in public.items() if not is_output(type_)}
    assert plain == ({"stack_outputs": dict[str, Any]} if component.__name__ == "TrainingStack" else {})
    properties, _ = Analyzer("trainium-eks").analyze_type(component, is_component_output=True)
    assert len(properties) == len(public)
    assert [name for name, each in properties.items() if not each.description] == []


def test_analyzer_refuses_an_annotation_it_cannot_put_into_a_schema() -> None:
    class Wrong(pulumi.ComponentResource):
        zone_ids: tuple[str, ...]

    # On Python 3.13 the analyzer stumbles over the type before it can name the property.
    with pytest.raises(Exception, match=r"zone_ids|issubclass"):
        Analyzer("trainium-eks").analyze_type(Wrong, is_component_output=True)


def test_analyzer_takes_a_component_with_typed_dict_args() -> None:
    class Right(pulumi.ComponentResource):
        names: pulumi.Output[Sequence[str]]
        """Names."""

        def __init__(self, name: str, args: _NoArgs, opts: pulumi.ResourceOptions | None = None) -> None: ...

    assert list(Analyzer("trainium-eks").analyze_component(Right).outputs) == ["names"]


@pytest.mark.parametrize("component", CLASSES, ids=lambda each: each.__name__)
def test_modules_keep_their_annotations_as_types(component: type[pulumi.ComponentResource]) -> None:
    """The analyzer cannot read text: `from __future__ import annotations` would break it."""
    annotations = inspect.get_annotations(component.__init__)
    assert not [name for name, type_ in annotations.items() if isinstance(type_, str)]
