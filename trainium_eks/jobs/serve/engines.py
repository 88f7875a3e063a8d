"""Servers of a model."""

from typing import Literal

Engine = Literal["auto", "classifier", "transformers", "vllm"]
"""LitServe for a classifier; ``transformers serve`` or vLLM, both with OpenAI's API, for a model that generates text.
``auto``: the first or the second, by the model's ``config.json``."""
