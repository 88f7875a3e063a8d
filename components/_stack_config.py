"""What a stack's program reads before it builds anything: the config, and the tags that it names."""

import re

import pulumi
from pulumi.runtime import config as runtime_config

from trainium_eks.model.config import stack_config as model
from trainium_eks.model.config.stack_config import StackConfig
from trainium_eks.model.validation.config_model import ConfigModelError
from trainium_eks.model.validation.problems import Problem, config_path, refused

from ._args import ArgumentError, validate_args, waivers_of


def read_config() -> StackConfig:
    """The running program's config as one validated model.

    Raises:
        ArgumentError: with every problem of the whole stack, spelled as in the config file.
    """
    project, stack = pulumi.get_project(), pulumi.get_stack()
    prefix = f"{project}:"
    # pulumi.Config can only be asked for names one knows; a misspelt name must be seen too.
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
    """The tags of everything in the running environment: the AWS provider's default tags.

    The stack passes them to its components too, for what the provider's tags do not reach: instances, volumes and
    interfaces that a node group launches.
    """
    return model.tags(config, environment=pulumi.get_stack())


def name_problems(name: str) -> list[Problem]:
    """Return the problems of the stack's name, which buckets, images and Kubernetes objects start with."""
    if re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name):
        return []
    reason = f"the name {name!r} does not fit buckets and Kubernetes objects: lower-case letters, digits and dashes"
    return [Problem("", reason, "rename the stack (the environment's config file is called after it)")]
