"""A model that generates text over HTTP, with OpenAI's API, by ``transformers serve``."""

import argparse
import asyncio
import gc
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from fastapi import HTTPException
from transformers import AutoConfig, AutoTokenizer
from transformers.cli.serve import Serve
from transformers.cli.serving.model_manager import ModelManager
from transformers.cli.serving.utils import Modality
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from trainium_workloads.causality import sees_future
from trainium_workloads.serving import served_model
from trainium_workloads.serving.draining import Draining
from trainium_workloads.serving.sagemaker import Invocations
from trainium_workloads.training.refusal import RefusalError

_TEXT_PARTS = ("text", "input_text", "output_text")


class _Server(Serve):
    def start_server(self) -> None:
        """Leave the start to the caller."""


def serve(options: argparse.Namespace) -> None:
    """Serve a model until SIGTERM; refuse an unreadable model."""
    # uvicorn answers what it was asked, and raises the signal again.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with tempfile.TemporaryDirectory() as place:
        # Requests must name the model by the words with which the server was started.
        model = merged(options.model.absolute(), Path(place) / "merged")
        (Path(place) / options.name).symlink_to(model)
        os.chdir(place)
        server = _answering(options)
        _check_continues(options.model, model)
        app = server.config.app
        # The server has one model for all: no client may unload it, or let it load others.
        app.router.routes[:] = [each for each in app.router.routes if each.path not in ("/load_model", "/reset")]
        app.add_middleware(Draining, seconds=options.linger)
        app.add_middleware(Invocations)
        logging.disable(logging.INFO)  # a line for each request, and each probe
        gc.freeze()  # else the end takes 5 s, to collect PyTorch
        server.run()


def _check_continues(given: Path, model: Path) -> None:
    """Raise a refusal for a model that was trained with the next tokens in sight."""
    configuration = AutoConfig.from_pretrained(model)
    if type(configuration) in MODEL_FOR_CAUSAL_LM_MAPPING and sees_future(configuration):
        raise RefusalError(
            f"{given} is a {configuration.model_type} that sees the tokens after each: it continues no text"
        )


def _of_texts(take: Callable[..., Any]) -> Callable[..., Any]:
    """Return the server's reader of messages without its silence: it drops images that a model does not see."""

    def checked(messages: Sequence[Mapping[str, Any]], modality: Modality) -> Any:
        for content in (each.get("content") or "" for each in messages):
            parts = [] if isinstance(content, str) else content if isinstance(content, list) else [content]
            kinds = [each.get("type") if isinstance(each, dict) else each for each in parts]
            if wrong := [each for each in kinds if modality is Modality.LLM and each not in _TEXT_PARTS]:
                raise HTTPException(422, f"the model reads text alone, and a message has a part {wrong[0]}")
        return take(messages, modality)

    return checked


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
        raise RefusalError(f"{options.model} cannot be read: {error}") from None
    for handler in (found._chat_handler, found._response_handler):
        handler.get_processor_inputs_from_messages = _of_texts(handler.get_processor_inputs_from_messages)
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
        raise RefusalError(f"{model} is a LoRA adapter, and its base {base} is not there: fine-tune with --merge")
    tokenizer = AutoTokenizer.from_pretrained(model if (model / "tokenizer_config.json").is_file() else base)
    AutoPeftModelForCausalLM.from_pretrained(model, dtype="auto").merge_and_unload().save_pretrained(target)
    tokenizer.save_pretrained(target)
    if (ends := model / "generation_config.json").is_file():
        shutil.copyfile(ends, target / ends.name)
    return target
