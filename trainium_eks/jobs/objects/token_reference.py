"""References of a job to the Secrets with its token for gated models and with its tracker's variables. Needs the
standard library and the model alone."""

import re
from collections.abc import Iterable
from typing import Any

from trainium_eks.model.validation.problems import Problem

DEFAULT_SECRET = "hugging-face"
"""Name of the Secret where none is given."""

TOKEN_KEY = "token"
"""Key of the token in it."""

TOKEN_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
"""Environment variables with the Hub's token, as its libraries read them; the first is ours."""

HUB_OPTION, TRACK_OPTION = "--hf-secret", "--track-secret"

TRACKING_SECRET = "tracking"
"""Name of a tracker's Secret in the remedies."""

TRACKING_TOKENS = ("MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_PASSWORD", "WANDB_API_KEY")
TRACKING_VARIABLES = ("MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_USERNAME", "WANDB_BASE_URL", *TRACKING_TOKENS)
"""Variables that a tracker's Secret may have, each under a key of its name."""

NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_KEY = re.compile(r"[-._A-Za-z0-9]+")


def reference_problem(text: str, option: str = HUB_OPTION) -> Problem | None:
    """Return the problem of ``NAME``, or of ``NAME:KEY`` of the Hub's token; or None."""
    name, colon, key = text.partition(":")
    of_tracker = option == TRACK_OPTION
    if NAME.fullmatch(name) and (not colon or (_KEY.fullmatch(key) and not of_tracker)):
        return None
    reason = "it is not the name of a Secret (lower-case letters, digits, dashes, dots)"
    more, good = ("", TRACKING_SECRET) if of_tracker else (", with :KEY behind it if need be", DEFAULT_SECRET)
    return Problem(option, reason + more, value=text, good=good)


def token_variable(reference: str) -> dict[str, Any]:
    """Return the environment variable of a container that gets the token."""
    name, _, key = reference.partition(":")
    return {"name": TOKEN_VARIABLES[0], "valueFrom": {"secretKeyRef": {"name": name, "key": key or TOKEN_KEY}}}


def tracking_variables(name: str, given: Iterable[str]) -> list[dict[str, Any]]:
    """Return the environment variables of a container that get what the tracker's Secret has, but for given ones."""
    return [
        {"name": key, "valueFrom": {"secretKeyRef": {"name": name, "key": key, "optional": True}}}
        for key in TRACKING_VARIABLES
        if key not in given
    ]


def missing_secret(reference: str, option: str = HUB_OPTION) -> Problem:
    """Return the problem of a Secret that the namespace does not have."""
    name = reference.partition(":")[0]
    fix = f"put the token there, from the variable {TOKEN_VARIABLES[0]} or a pipe: trn secret {name}"
    if option == TRACK_OPTION:
        fix = f"put the tracker's variables there, from your environment: trn secret {name} --track"
    return Problem(option, "the namespace has no such Secret", fix, value=name)
