"""A token for gated models, or a tracker's, as a Secret of the namespace: created and looked for, and never shown.

Researchers may create and delete Secrets, and not read them back (:mod:`trainium_eks.model.policies.researchers`). So a
dry run of its creation shows whether one is there, and an old token is deleted before another takes its place.
"""

import base64
import re
from collections.abc import Mapping
from typing import Any

from trainium_eks.aws.sessions import AwsError, client, saying
from trainium_eks.jobs.objects import team_pod
from trainium_eks.kube.api import Api, ApiError, ObjectReference
from trainium_eks.model.validation.parsing import parse_json

_ARN = re.compile(r"arn:aws[a-z-]*:secretsmanager:(?P<region>[a-z0-9-]+):\d{12}:secret:.+")


class NoTokenError(AwsError):
    """The given text holds no token; the message is for people, and does not hold the text either."""


def cleaned(token: str) -> str:
    """Return a token without the white space around it."""
    token = token.strip()
    if not token:
        raise NoTokenError("the token is empty")
    if not token.isprintable() or any(letter.isspace() for letter in token):
        raise NoTokenError("the token has white space or control characters in it: it is one word, such as hf_…")
    return token


def token_exists(api: Api, namespace: str, name: str) -> bool:
    """Return whether a namespace has a Secret, as far as its caller may know."""
    try:
        api.create(_manifest(namespace, name, {}), dry_run=True)
    except ApiError as error:
        return error.reason == "AlreadyExists"
    return False


def put(api: Api, namespace: str, name: str, values: Mapping[str, str]) -> bool:
    """Create the Secret, in place of an old one; return whether there was one. No value is in a word of a refusal."""
    reference = ObjectReference("v1", "Secret", namespace, name)
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    made = _manifest(namespace, name, encoded)
    try:
        # A refusal is known before the old one is deleted.
        was_there = token_exists(api, namespace, name)
        if was_there:
            api.delete(reference, propagation="Background")
        api.create(made)
    except ApiError as error:
        hidden = error.message
        # The longest first: a user's name may be a part of a token.
        for value in sorted((*encoded.values(), *values.values()), key=len, reverse=True):
            hidden = hidden.replace(value, "…")
        raise ApiError(error.status, error.reason, hidden) from None
    return was_there


def from_secrets_manager(identity: str, region: str, key: str = "") -> str:
    """Return the token in AWS Secrets Manager, read with the caller's credentials. The region of an ARN comes before
    the stack's; the key is for a secret that is a JSON object."""
    arn = _ARN.fullmatch(identity)
    with saying(f"read the secret {identity} of Secrets Manager (secretsmanager:GetSecretValue)"):
        answer = client("secretsmanager", arn["region"] if arn else region).get_secret_value(SecretId=identity)
    text = str(answer.get("SecretString") or "")
    if not text.lstrip().startswith("{"):
        return cleaned(text)
    try:
        held: dict[str, Any] = parse_json(text)
    except ValueError:
        raise NoTokenError(f"the secret {identity} starts like a JSON object but is not one") from None
    if not key and len(held) == 1:
        key = next(iter(held))
    if key not in held:
        raise NoTokenError(f"the secret {identity} has the keys {', '.join(sorted(held))}: name one with --json-key")
    return cleaned(str(held[key]))


def _manifest(namespace: str, name: str, data: dict[str, str]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "labels": team_pod.labels("token")}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data}
