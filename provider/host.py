"""The component provider host of this library, with errors in the spelling of the consumer's language."""

import inspect
import json
import re
from collections.abc import Mapping
from typing import Any

import pulumi
from pulumi.provider import ConstructResult
from pulumi.provider.experimental.analyzer import PropertyDefinition
from pulumi.provider.experimental.component import ComponentProvider
from pulumi.provider.server import ComponentInitError

import components
from components import ArgumentError
from provider.arguments import ArgumentTypes
from trainium_eks import __version__
from trainium_eks.model.validation.problems import config_path, describe, nearest

NAME = "trainium-eks"
"""Name of the package: the first part of the components' types."""


class TrainiumProvider(ComponentProvider):
    """Provider of every public component."""

    def __init__(self) -> None:
        made = ArgumentTypes()
        super().__init__([_with_args(name, args) for name, args in made.args.items()], NAME, None, __version__)
        schema = json.loads(self.schema or "")
        _describe(schema, made)
        self.schema = json.dumps(_tidied(schema))

    def construct(
        self, name: str, resource_type: str, inputs: Mapping[str, Any], options: pulumi.ResourceOptions | None = None
    ) -> ConstructResult:
        """Return the component that ``inputs`` describe; InputPropertiesError has every problem of bad ones, and the
        engine prints it without a traceback."""
        try:
            return super().construct(name, resource_type, dict(inputs), options)
        except ComponentInitError as error:
            if not isinstance(error.inner, ArgumentError):
                raise
            raise _refusal(error.inner) from None

    def map_input_properties(
        self,
        inputs: Mapping[str, Any],
        properties: Mapping[str, PropertyDefinition],
        mapping: Mapping[str, str],
        component_name: str,
        property_path: str,
    ) -> dict[str, Any]:
        """Return the inputs of a component, or of an object inside, after checks that Pulumi's SDK leaves out: it would
        drop a name that the schema does not have, and fail on an Output where the value must be plain, or take it for
        an empty object. Both are InputPropertyErrors."""
        if not isinstance(inputs, Mapping):
            raise pulumi.InputPropertyError(property_path, "it must be an object that is known when the program starts")
        for name, value in inputs.items():
            path = f"{property_path}.{name}" if property_path else name
            if name not in properties:
                near = nearest(name, properties)
                hint = f"did you mean {near}?" if near else f"it takes {', '.join(sorted(properties))}"
                raise pulumi.InputPropertyError(path, f"{component_name} has no input of this name; {hint}")
            if properties[name].plain and isinstance(value, pulumi.Output):
                reason = "it must be known when the program starts; give a plain value, not another resource's output"
                raise pulumi.InputPropertyError(path, reason)
        return dict(
            super().map_input_properties(inputs, properties, mapping, component_name, property_path)  # type: ignore[arg-type]
        )


def _with_args(name: str, args: type) -> type[pulumi.ComponentResource]:
    """Return a component with args for the analyzer, in place of the union of model and TypedDict."""
    component: type[pulumi.ComponentResource] = getattr(components, name)
    vars(component)["__init__"].__annotations__["args"] = args
    return component


def _describe(schema: dict[str, Any], made: ArgumentTypes) -> None:
    """Write the fields' texts into the schema: Pulumi's analyzer looks for them in source code alone."""
    described = [(name.rpartition(":")[2], each.get("properties", {})) for name, each in schema["types"].items()]
    described += [
        (made.args[name.rpartition(":")[2]].__name__, each["inputProperties"])
        for name, each in schema["resources"].items()
    ]
    for name, properties in described:
        for key, text in made.texts.get(name, {}).items():
            node = properties[key]
            while node:  # what a list or a mapping holds has the text, too
                node["description"] = text
                node = node.get("items") or node.get("additionalProperties")


def _tidied(node: Any) -> Any:
    """Return a part of the schema with its descriptions in Markdown and the fields' names in camelCase."""
    if isinstance(node, list):
        return [_tidied(each) for each in node]
    if isinstance(node, dict):
        return {key: _tidied(each) for key, each in node.items()} | (
            {"description": _markdown(node["description"])} if isinstance(node.get("description"), str) else {}
        )
    return node


def _markdown(text: str) -> str:
    # Python 3.13 takes the indentation from a class's docstring, earlier versions leave it.
    marked = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", inspect.cleandoc(text)).replace("``", "`")
    return re.sub(r"`([a-z]\w*_\w+)(?=[`.=:])", lambda found: f"`{config_path(found[1])}", marked)


def _refusal(error: ArgumentError) -> pulumi.InputPropertiesError:
    """Return a component's refusal of its args as the engine shows it."""
    text = f"{str(error).splitlines()[0]}\n{describe(error.problems, _camel)}"
    # The text has the paths already. With None, which is the default, the SDK fails (3.272).
    return pulumi.InputPropertiesError(text, [])


def _camel(path: str) -> str:
    # With `config_path` itself the fixes would be commands that change a stack's config.
    return config_path(path)
