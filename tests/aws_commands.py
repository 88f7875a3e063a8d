"""Commands of the AWS CLI, held to the parameters of botocore's models."""

import re

import botocore.session  # type: ignore[import-untyped]
from botocore import xform_name  # type: ignore[import-untyped]

GLOBAL = {"region", "query", "output"}
_CORE = botocore.session.Session()
_COMMAND = re.compile(r"\baws ([a-z][\w-]*) ([a-z][\w-]+)((?: --[a-z-]+(?: (?!-)[^\s;,)]+)*)*)")
_OWN = ("s3", "deploy", "update-kubeconfig")
"""Services and commands that the CLI makes of several operations."""


def fault_of(text):
    """Return the first fault of the commands in a text: an unknown operation or option, or a missing option."""
    for service, command, rest in _COMMAND.findall(text):
        if {service, command} & {*_OWN}:
            continue
        model = _CORE.get_service_model(service)
        operations = {xform_name(each, "-"): each for each in model.operation_names}
        if command not in operations:
            return f"aws {service} has no {command}"
        shape = model.operation_model(operations[command]).input_shape
        known = {xform_name(each, "-"): each for each in (shape.members if shape else ())}
        options = [each.removeprefix("no-") for each in re.findall(r"--([a-z-]+)", rest)]
        given = {known[each] for each in options if each in known}
        if unknown := {*options} - known.keys() - GLOBAL:
            return f"aws {service} {command} has no --{min(unknown)}"
        if missing := {*(shape.required_members if shape else ())} - given:
            return f"aws {service} {command} lacks {min(missing)}"
    return ""
