"""Reference of a job to the Secret with its token for gated models. Needs the standard library and the model alone."""

import re
from typing import Any

from trainium_eks.model.validation.problems import Problem

DEFAULT_SECRET = "hugging-face"
"""Name of the Secret where none is given."""

TOKEN_KEY = "token"
"""Key of the token in it."""

TOKEN_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
"""Environment variables with the Hub's token, as its libraries read them; the first is ours."""

NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_KEY = re.compile(r"[-._A-Za-z0-9]+")


def reference_problem(text: str) -> Problem | None:
    """Return the problem of ``NAME`` or ``NAME:KEY``, or None."""
    name, colon, key = text.partition(":")
    if NAME.fullmatch(name) and (_KEY.fullmatch(key) or not colon):
        return None
    reason = "it is not the name of a Secret (lower-case letters, digits, dashes, dots), with :KEY behind it if need be"
    return Problem("--hf-secret", reason, value=text, good=DEFAULT_SECRET)


def token_variable(reference: str) -> dict[str, Any]:
    """Return the environment variable of a container that gets the token."""
    name, _, key = reference.partition(":")
    return {"name": TOKEN_VARIABLES[0], "valueFrom": {"secretKeyRef": {"name": name, "key": key or TOKEN_KEY}}}


def missing_secret(reference: str) -> Problem:
    """Return the problem of a Secret that the namespace does not have."""
    name = reference.partition(":")[0]
    fix = f"put the token there, from the variable {TOKEN_VARIABLES[0]} or a pipe: trn secret {name}"
    return Problem("--hf-secret", "the namespace has no such Secret", fix, value=name)
