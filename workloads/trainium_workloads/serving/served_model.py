"""A trained model's directory, as transformers writes it, and the options that name one."""

import argparse
import json
import os
from pathlib import Path
from typing import Any

from trainium_workloads.training.refusal import RefusalError

ADAPTER = "adapter_config.json"
_SERVED = ("ForSequenceClassification", "ForCausalLM", "ForConditionalGeneration")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the model and its device."""
    parser.add_argument("model", type=Path, help="a model's directory, as transformers writes it")
    backend = os.environ.get("TRN_BACKEND", "cpu")
    backends = ("cpu", "cuda", "xla", "neuron")
    parser.add_argument("--backend", choices=backends, default=backend, help="default: TRN_BACKEND, else cpu")
    parser.add_argument("--threads", type=int, default=0, help="threads of a CPU; default: PyTorch's own choice")
    parser.add_argument("--graphs", type=Path, help="folder of traced graphs (xla); default: graphs beside the model")


def is_classifier(directory: Path) -> bool:
    """Return whether a model classifies texts, not generates them; refuse any other directory."""
    if (directory / ADAPTER).is_file():
        return False
    name = (read(directory / "config.json").get("architectures") or ["no architecture"])[0]
    if not name.endswith(_SERVED):
        raise RefusalError(
            f"{directory} holds {name} by its config.json, and only …{', …'.join(_SERVED)} can be served"
        )
    return bool(name.endswith(_SERVED[0]))


def read(file: Path) -> dict[str, Any]:
    """Return the JSON object of a file of the directory; refuse a missing or other one."""
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise RefusalError(f"{file.parent} is not a model directory: {file.name}: {error.strerror or error}") from None
    except (ValueError, TypeError) as error:
        raise RefusalError(f"{file} is not a JSON object: {error}") from None
