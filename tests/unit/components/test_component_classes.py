"""Classes of components: what they keep on themselves is their own, and what a provider's analyzer reads is outputs."""

import ast
import inspect
import textwrap
from functools import cache
from pathlib import Path
from typing import Any

import pulumi
import pytest
from pulumi.provider.experimental.analyzer import Analyzer, is_output

import components

SDK = (pulumi.Resource, pulumi.CustomResource, pulumi.ComponentResource, pulumi.ProviderResource)
# Types of args in dictionaries are keys, not attributes of a resource.
MODULES = sorted(path for path in Path(components.__file__).parent.glob("*.py") if path.name != "_dicts.py")


def assigned(tree):
    """Names of the attributes of ``self`` that are set anywhere in it."""
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            for each in ast.walk(target) if isinstance(target, ast.AST) else ():
                if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "self":
                    yield each.attr


def defined(tree):
    """Names of the methods and attributes in the bodies of classes."""
    for node in ast.walk(tree):
        for each in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(each, ast.FunctionDef):
                yield each.name
            elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                yield each.target.id


@cache
def of_the_sdk():
    """All that Pulumi's classes declare, define or set on a resource, but what every Python object has."""

    class Probe(pulumi.ComponentResource):
        pass

    found = {"_remote", *vars(Probe)}
    for class_ in SDK:
        source = ast.parse(textwrap.dedent(inspect.getsource(class_)))
        slots = getattr(class_, "__slots__", ())
        found |= {*vars(class_), *class_.__annotations__, *slots, *assigned(source)}
    return {name for name in found if not name.startswith("__")}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.name))
def test_component_does_not_override_pulumis_attributes(module):
    known = {"_protect", "_name", "_type", "_providers", "_aliases", "_transformations", "_get_providers"}
    assert known <= of_the_sdk()
    tree = ast.parse(module.read_text())
    assert {*assigned(tree), *defined(tree)} & of_the_sdk() == set()


EXPORTED = [getattr(components, name) for name in components.__all__]
CLASSES = [each for each in EXPORTED if inspect.isclass(each) and issubclass(each, pulumi.ComponentResource)]
assert {"Network", "TrainiumCluster", "TrainingStack"} <= {each.__name__ for each in CLASSES}


@pytest.mark.parametrize("component", CLASSES, ids=lambda each: each.__name__)
def test_public_attributes_are_documented_outputs(component):
    # The analyzer cannot read text: `from __future__ import annotations` would break it.
    given = inspect.get_annotations(component.__init__)
    assert not [name for name, type_ in given.items() if isinstance(type_, str)]
    public = {name: type_ for name, type_ in inspect.get_annotations(component).items() if not name.startswith("_")}
    assert public, f"{component.__name__} has no output"
    # A mapping has its Outputs inside, where one secret does not make all of it secret.
    plain = {name: type_ for name, type_ in public.items() if not is_output(type_)}
    assert plain == ({"stack_outputs": dict[str, Any]} if component.__name__ == "TrainingStack" else {})
    properties, _ = Analyzer("trainium-eks").analyze_type(component, is_component_output=True)
    assert len(properties) == len(public)
    assert [name for name, each in properties.items() if not each.description] == []
