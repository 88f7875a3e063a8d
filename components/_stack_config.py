"""The stack's config and default tags, read before the program builds anything."""

import re

import pulumi
from pulumi.runtime import config as runtime_config

from trainium_eks.model.config import stack_config as model
from trainium_eks.model.config.stack_config import StackConfig
from trainium_eks.model.validation.config_model import ConfigModelError
from trainium_eks.model.validation.problems import Problem, config_path, refused

from ._args import ArgumentError, validate_args, waivers_of


def read_config() -> StackConfig:
    """Return the running program's config as one validated model.

    Raises:
        ArgumentError: with every problem of the whole stack, spelled as in the config file.
    """
    project, stack = pulumi.get_project(), pulumi.get_stack()
    prefix = f"{project}:"
    # pulumi.Config reads known names only; a misspelt name must be found too.
    every = {**runtime_config.get_config_env(), **runtime_config.CONFIG.get()}
    values = {key.removeprefix(prefix): value for key, value in every.items() if key.startswith(prefix)}
    subject = f"Pulumi.{stack}.yaml"
    try:
        config = model.load(values)
    except ConfigModelError as error:
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
