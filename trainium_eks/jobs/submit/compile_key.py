"""A job's compile cache, and the options that its graphs depend on."""

import re
from collections.abc import Sequence

_NOT_OF_THE_GRAPHS = frozenset(
    (
        *("checkpoint", "checkpoints", "ckpt", "dir", "directory", "epochs", "file", "log", "logging", "logs"),
        *("minutes", "name", "output", "path", "resume", "run", "save", "seconds", "steps"),
    )
)
"""Words in the names of a script's options by which its graphs do not change: a trial of a few steps compiles the
graphs of the whole training."""


def cache_key(model: str, world_size: int, precision: str, compiler: str) -> str:
    """Return the name of a compile cache: by all that compiled graphs depend on, beside the script's own options."""
    parts = (model, f"{world_size}x", precision, compiler)
    return "-".join(re.sub(r"[^A-Za-z0-9._]+", "-", part).strip("-.") for part in parts if part)


def compiler_of(image: str) -> str:
    """Return the version of the compiler in an image: the Neuron SDK's where the tag names it (``…-sdk2.30.0-…``), else
    the tag itself, so that no other image reads these graphs."""
    tag = image.rpartition("/")[2].partition(":")[2].partition("@")[0]
    sdk = re.search(r"sdk(\d+(?:\.\d+)+)", tag)
    return f"sdk{sdk[1]}" if sdk else tag or "latest"


def graph_options(arguments: Sequence[str]) -> dict[str, str]:
    """Return the options among a script's arguments that its graphs may depend on: ``--batch_size 16`` does,
    ``--max_steps`` does not. An argument without a name counts by its place."""
    found: dict[str, str] = {}
    name = ""
    for place, word in enumerate(arguments):
        if word.startswith("--"):
            name, _, value = word.removeprefix("--").replace("-", "_").partition("=")
            found[name] = value
        elif name:
            found[name] = f"{found[name]} {word}".strip()
        else:
            found[str(place)] = word
    return {option: value for option, value in found.items() if not _NOT_OF_THE_GRAPHS & set(option.split("_"))}
