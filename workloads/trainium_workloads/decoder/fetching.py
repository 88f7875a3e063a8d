"""Weights from the Hugging Face Hub, where a job has not been given a directory of them."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from trainium_workloads.decoder.configuration import GATED
from trainium_workloads.stage.copying import Settings, stage
from trainium_workloads.stage.destination import Destination, StageRequest
from trainium_workloads.stage.files import StageError
from trainium_workloads.stage.progress import Progress
from trainium_workloads.stage.web import Web
from trainium_workloads.training.refusal import Refusal

SCHEME: Final = "hf://"
_WANTED: Final = ("*.safetensors", "*.json", "*.jinja", "tokenizer.model", "merges.txt")
"""Not the same weights once more in other formats."""


def fetch(source: str, below: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """Copy a model to the volume, whole or not at all, each file against its checksum; for one process. A complete copy
    is not repeated.

    Args:
        source: ``hf://<organization>/<model>[@<revision>]``.
        below: parent of the model's directory.
        environment: the token is ``HF_TOKEN``, or stands in the file that ``HF_TOKEN_PATH`` names, as a mounted Secret
            does.

    Raises:
        Refusal: there is no such model, or no right to it.
        Interrupted: the Hub does not answer now; a restart resumes.
    """
    name, _, revision = source.removeprefix(SCHEME).partition("@")
    token = token_of(environment)
    if name in GATED and not token:
        raise Refusal(
            f"{source} is gated: accept its licence at https://huggingface.co/{name}, put a token of that account into "
            "the namespace (trn secret) and name it (trn train --hf-secret hugging-face; in a container of yours "
            "HF_TOKEN, or a file that HF_TOKEN_PATH names)"
        )
    directory = below / "--".join(["models", *name.split("/"), *([revision.replace("/", "-")] if revision else [])])
    directory.parent.mkdir(parents=True, exist_ok=True)
    # Step lines go to standard output, where trn reads them; this is none.
    with Progress(sys.stderr) as progress:
        try:
            stage(
                Destination(directory, StageRequest(source, include=_WANTED, exclude=("original/*",))),
                Web(),
                progress,
                Settings(),
                {**environment, "HF_TOKEN": token},
            )
        except StageError as error:
            raise Refusal(str(error)) from None
    return directory


def token_of(environment: Mapping[str, str]) -> str:
    """Return the Hub's token; empty without one.

    Raises:
        Refusal: the file that should hold it cannot be read.
    """
    if token := environment.get("HF_TOKEN", "").strip():
        return token
    path = environment.get("HF_TOKEN_PATH", "")
    if not path:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise Refusal(f"HF_TOKEN_PATH names {path}: {error.strerror}; is the Secret mounted there?") from None
