"""A model that generates text over HTTP, with OpenAI's API, by ``transformers serve``."""

import argparse
import asyncio
import logging
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from trainium_workloads.serving import model_directory
from trainium_workloads.training.refusal import Refusal


def serve(options: argparse.Namespace) -> None:
    """Serve a model until SIGTERM.

    Args:
        options: of :mod:`.server`.

    Raises:
        Refusal: the model cannot be read.
    """
    # uvicorn answers what it was asked, and raises the signal again.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with tempfile.TemporaryDirectory() as place:
        # Requests must name the model by the words with which the server was started.
        (Path(place) / options.name).symlink_to(_merged(options.model.absolute(), Path(place) / "merged"))
        os.chdir(place)
        server = _answering(options)
        # The server has one model for all: nobody may unload it, or let it load others.
        routes = server.config.app.router.routes
        routes[:] = [each for each in routes if each.path not in ("/load_model", "/reset")]
        logging.disable(logging.INFO)  # a line for each request, and each probe
        server.run()


def _answering(options: argparse.Namespace) -> Any:
    """Return uvicorn's server with a model that has answered once; it does not listen yet."""
    import torch
    from transformers.cli.serve import Serve
    from transformers.cli.serving.model_manager import ModelManager

    class Prepared(Serve):
        def start_server(self) -> None:
            """Leave the start to the caller."""

    if options.threads:
        torch.set_num_threads(options.threads)
    listed = {"id": options.name, "object": "model", "created": 0, "owned_by": "trn"}
    # The list of transformers has the models in Hugging Face's cache.
    ModelManager.get_gen_models = staticmethod(lambda: [listed])
    where = {"device": options.backend, "host": options.host, "port": options.port}
    try:
        found = Prepared(options.name, **where, log_level="error", non_blocking=True)
    except (OSError, ValueError) as error:
        raise Refusal(f"{options.model} cannot be read: {error}") from None
    question = {"prompt": "a first question", "max_tokens": 1}
    asyncio.run(found._completion_handler.handle_request(question, "first"))
    return found.server


def _merged(model: Path, target: Path) -> Path:
    """Return a model's directory; a LoRA adapter is merged with its base model into the target."""
    if not (model / model_directory.ADAPTER).is_file():
        return model
    from peft import AutoPeftModelForCausalLM
    from transformers import AutoTokenizer

    base = model_directory.read(model / model_directory.ADAPTER).get("base_model_name_or_path")
    if not base or not Path(base).is_dir():
        raise Refusal(f"{model} is a LoRA adapter, and its base {base} is not there: fine-tune with --merge")
    tokenizer = AutoTokenizer.from_pretrained(model if (model / "tokenizer_config.json").is_file() else base)
    AutoPeftModelForCausalLM.from_pretrained(model, dtype="auto").merge_and_unload().save_pretrained(target)
    tokenizer.save_pretrained(target)
    return target
