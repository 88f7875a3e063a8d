"""What a component keeps on itself is its own: Pulumi's resources keep their options in private attributes too."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pulumi
import pytest

import components
from components.fsx_lustre import FsxLustre
from trainium_eks.plan.graph import Graph

SDK = (pulumi.Resource, pulumi.CustomResource, pulumi.ComponentResource, pulumi.ProviderResource)
MODULES = sorted(Path(components.__file__).parent.glob("*.py"))
DICTIONARIES = "_dicts.py"
"""Types of args in dictionaries: keys, not attributes of a resource."""


def assigned(tree: ast.AST) -> Iterator[str]:
    """Names of the attributes of ``self`` that are set anywhere in it."""
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            for each in ast.walk(target) if isinstance(target, ast.AST) else ():
                if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "self":
                    yield each.attr


def defined(tree: ast.AST) -> Iterator[str]:
    """Names of the methods and attributes in the bodies of classes."""
    for node in ast.walk(tree):
        for each in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(each, ast.FunctionDef):
                yield each.name
            elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                yield each.target.id


@cache
def of_the_sdk() -> set[str]:
    """All that Pulumi's classes declare, define or set on a resource, but what every Python object has."""

    class Probe(pulumi.ComponentResource):
        pass

    found = {"_remote", *vars(Probe)}
    for class_ in SDK:
        source = ast.parse(textwrap.dedent(inspect.getsource(class_)))
        slots = getattr(class_, "__slots__", ())
        found |= {*vars(class_), *class_.__annotations__, *slots, *assigned(source)}
    return {name for name in found if not name.startswith("__")}


def test_the_sdks_own_attributes_are_found() -> None:
    """Were they not, the next test could not fail."""
    assert {
        "_protect",
        "_name",
        "_type",
        "_providers",
        "_aliases",
        "_transformations",
        "_get_providers",
    } <= of_the_sdk()


@pytest.mark.parametrize(
    "module", [path for path in MODULES if path.name != DICTIONARIES], ids=lambda module: str(module.name)
)
def test_no_component_sets_or_defines_what_pulumi_keeps_on_a_resource(module: Path) -> None:
    tree = ast.parse(module.read_text())
    assert {*assigned(tree), *defined(tree)} & of_the_sdk() == set()


def test_no_instance_has_another_value_there_than_pulumi_gave_it(record: Callable[..., Graph]) -> None:
    """What is set by other ways than an assignment to ``self``."""
    seen: dict[str, object] = {}
    wiring = {
        "region": "us-west-2",
        "vpc_id": "vpc-1",
        "subnet_id": "subnet-1",
        "kms_key_arn": "arn:aws:kms:us-west-2:111122223333:key/k",
    }

    def program() -> None:
        plain = pulumi.ComponentResource("a:b:C", "shared")
        made = FsxLustre("shared", {**wiring, "production": True})
        for name in vars(plain).keys() & vars(made).keys() - {"_type", "_childResources", "urn"}:
            if vars(plain)[name] != vars(made)[name]:
                seen[name] = vars(made)[name]

    record(program)
    assert seen == {}
