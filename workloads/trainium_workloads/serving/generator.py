"""A model that generates text over HTTP, with OpenAI's API, by ``transformers serve``."""

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer
from transformers.cli.serve import Serve
from transformers.cli.serving.model_manager import ModelManager

from trainium_workloads.serving import served_model
from trainium_workloads.serving.draining import Draining
from trainium_workloads.serving.sagemaker import Invocations
from trainium_workloads.training.refusal import Refusal


class _Server(Serve):
    def start_server(self) -> None:
        """Leave the start to the caller."""


def serve(options: argparse.Namespace) -> None:
    """Serve a model until SIGTERM; refuse an unreadable model."""
    # uvicorn answers what it was asked, and raises the signal again.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with tempfile.TemporaryDirectory() as place:
        # Requests must name the model by the words with which the server was started.
        (Path(place) / options.name).symlink_to(merged(options.model.absolute(), Path(place) / "merged"))
        os.chdir(place)
        server = _answering(options)
        app = server.config.app
        # The server has one model for all: nobody may unload it, or let it load others.
        app.router.routes[:] = [each for each in app.router.routes if each.path not in ("/load_model", "/reset")]
        app.add_middleware(Draining, seconds=options.linger)
        app.add_middleware(Invocations)
        logging.disable(logging.INFO)  # a line for each request, and each probe
        gc.freeze()  # else the end takes 5 s, to collect PyTorch
        server.run()


def _answering(options: argparse.Namespace) -> Any:
    """Return uvicorn's server with a model that has answered once; it does not listen yet."""
    if options.threads:
        torch.set_num_threads(options.threads)
    listed = {"id": options.name, "object": "model", "created": 0, "owned_by": "trn"}
    # The list of transformers has the models in Hugging Face's cache.
    ModelManager.get_gen_models = staticmethod(lambda: [listed])
    where = {"device": options.backend, "host": options.host, "port": options.port}
    try:
        found = _Server(options.name, **where, log_level="error", non_blocking=True)
    except (OSError, ValueError) as error:
        raise Refusal(f"{options.model} cannot be read: {error}") from None
    question = {"prompt": "a first question", "max_tokens": 1}
    asyncio.run(found._completion_handler.handle_request(question, "first"))
    return found.server


def merged(model: Path, target: Path) -> Path:
    """Return a model's directory: the target for a LoRA adapter, which is merged there with its base model."""
    if not (model / served_model.ADAPTER).is_file():
        return model
    from peft import AutoPeftModelForCausalLM

    base = served_model.read(model / served_model.ADAPTER).get("base_model_name_or_path")
    if not base or not Path(base).is_dir():
        raise Refusal(f"{model} is a LoRA adapter, and its base {base} is not there: fine-tune with --merge")
    tokenizer = AutoTokenizer.from_pretrained(model if (model / "tokenizer_config.json").is_file() else base)
    AutoPeftModelForCausalLM.from_pretrained(model, dtype="auto").merge_and_unload().save_pretrained(target)
    tokenizer.save_pretrained(target)
    return target
