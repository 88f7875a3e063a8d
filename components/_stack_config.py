"""The stack's config and default tags, read before the program builds anything."""

import json
import re
from typing import Any

import pulumi
from pulumi.runtime import config as runtime_config

from trainium_eks.model.config import stack_config as model
from trainium_eks.model.config.stack_config import StackConfig
from trainium_eks.model.validation.config_model import ConfigModelError
from trainium_eks.model.validation.problems import Problem, config_path, refused

from ._args import ArgumentError, validate_args, waivers_of


def read_output(stack: str, name: str) -> Any:
    """Return one output of another stack as a plain value, for arguments that must be known before anything is built.

    ``pulumi.StackReference`` gives an Output of the same value, for all other arguments and for secrets. Under
    ``trn plan``, ``answers.<stack>.yaml`` has the outputs (docs/testing.md).

    Args:
        stack: full name of the stack: ``<organization>/<project>/<stack>``, ``organization/…`` in a bucket's state.
        name: the output.

    Raises:
        pulumi.RunError: the stack does not exist, is not up, or has no such output; or the output is a secret.
    """
    up_first = f"bring it up first: pulumi up --stack {stack}"
    try:
        answer = pulumi.runtime.invoke("pulumi:pulumi:readStackOutputs", {"name": stack}).value
    except Exception as error:
        raise pulumi.RunError(f"the outputs of the stack {stack} cannot be read ({error}); {up_first}") from error
    outputs = answer["outputs"]
    if outputs.get(name) is None:
        others = f"it has {', '.join(sorted(outputs))}" if outputs else "it has none"
        raise pulumi.RunError(f"the stack {stack} has no output {name!r}, {others}; {up_first}")
    if name in answer["secretOutputNames"]:
        raise pulumi.RunError(
            f"the output {name!r} of the stack {stack} is a secret, and a plain value would be shown: use "
            f'pulumi.StackReference("{stack}").require_output("{name}")'
        )
    return outputs[name]


def read_config(**given: Any) -> StackConfig:
    """Return the running program's config as one validated model.

    Args:
        **given: plain values of the program's own for keys that the config leaves out, such as an output of another
            stack: ``existing_network=read_output(...)``.

    Raises:
        ArgumentError: with every problem of the whole stack, spelled as in the config file.
    """
    project, stack = pulumi.get_project(), pulumi.get_stack()
    prefix = f"{project}:"
    # pulumi.Config reads known names only; a misspelt name must be found too.
    every = {**runtime_config.get_config_env(), **runtime_config.CONFIG.get()}
    values = {key.removeprefix(prefix): value for key, value in every.items() if key.startswith(prefix)}
    for name, value in given.items():
        key = config_path(name)
        if key in values:
            raise pulumi.RunError(f"the program gives {key}: remove it from Pulumi.{stack}.yaml")
        if isinstance(value, pulumi.Output):
            raise pulumi.RunError(f"{key} must be known before anything is built: give a plain value (read_output)")
        values[key] = value if isinstance(value, str) else json.dumps(value)
        # As if the file had it: rules, preflight and comparisons of `trn` read the config of the program that ran.
        pulumi.runtime.set_config(f"{prefix}{key}", values[key])
    subject = f"Pulumi.{stack}.yaml"
    try:
        config = model.load(values)
    except ConfigModelError as error:
        misshapen = [each for each in error.problems if re.split(r"[.\[]", each.path)[0] in given]
        if misshapen:
            raise ArgumentError(f"read_config({', '.join(given)})", misshapen) from None
        beside = refused(model.problems_beside(values, error.problems), waivers_of(model.decode(values)))
        raise ArgumentError(subject, [*error.problems, *beside], spell=config_path) from None
    return validate_args(StackConfig, config, model.validate, subject, waivers=waivers_of(config), spell=config_path)


def default_tags(config: StackConfig) -> dict[str, str]:
    """Return the tags of all resources in the running environment: the AWS provider's default tags.

    The stack passes them to its components too, for resources that the provider does not tag: instances, volumes and
    interfaces that a node group launches.
    """
    return model.tags(config, environment=pulumi.get_stack())


def name_problems(name: str) -> list[Problem]:
    """Return the problems of the stack's name, which buckets, images and Kubernetes objects start with."""
    if re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name):
        return []
    reason = f"the name {name!r} does not fit buckets and Kubernetes objects: lower-case letters, digits and dashes"
    return [Problem("", reason, "rename the stack (the environment's config file is called after it)")]
