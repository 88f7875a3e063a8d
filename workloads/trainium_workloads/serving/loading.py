"""Options that the server and the batch command share, and their predictor."""

import argparse
import os
from pathlib import Path

import torch

from trainium_workloads.polarity import saved
from trainium_workloads.serving.predictor import Predictor
from trainium_workloads.serving.runners import BACKENDS, runners
from trainium_workloads.serving.shapes import Shapes
from trainium_workloads.training.refusal import Refusal

BATCHES = (1, 8, 32)
"""Texts that are computed at once."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the model and its device."""
    parser.add_argument("model", type=Path, help="a model's directory: config.json, model.safetensors, tokenizer.json")
    backend = os.environ.get("TRN_BACKEND", "cpu")
    parser.add_argument("--backend", choices=BACKENDS, default=backend, help="default: TRN_BACKEND, else cpu")
    parser.add_argument("--copies", type=int, default=1, help="cores that are used at once (xla); default: 1")
    parser.add_argument("--threads", type=int, default=0, help="of a CPU; default: PyTorch's own choice")
    parser.add_argument("--graphs", type=Path, help="keeps traced graphs (xla); default: graphs beside the model")


def predictor(asked: argparse.Namespace) -> Predictor:
    """Return the predictor for the options.

    Raises:
        Refusal: the model cannot be read, or its device is not here.
    """
    if asked.copies < 1 or (asked.copies > 1 and asked.backend != "xla"):
        raise Refusal(f"--copies must be 1, or with --backend xla more, not {asked.copies}")
    if asked.threads:
        torch.set_num_threads(asked.threads)
    found = saved.load(asked.model)
    shapes = Shapes.up_to(found.length, BATCHES)
    graphs = asked.graphs or asked.model.parent / "graphs"
    copies = runners(found, asked.backend, shapes, copies=asked.copies, graphs=graphs)
    return Predictor(copies, found.pieces, found.labels, shapes)
