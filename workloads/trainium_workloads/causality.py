"""Trial of a language model: a model that sees the future learns to copy the next token, and no class tells it."""

import copy
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

_TOKENS: Final = 1024
"""Tokens of the trial: sparse attention is dense over few."""
_VOCABULARY: Final = 512
_LARGEST: Final = 2_000_000_000
"""Weights of the trial, at most: 8 GB of the CPU's memory."""
_NOISE: Final = 1e-4
"""Share of the largest logit: rounding changes logits by 10^-6 of it, seen tokens by 5 * 10^-3 and more."""


def sees_future(configuration: Any) -> bool | None:
    """Return whether a causal language model's logits change with the tokens after them; None where that cannot be
    tried.

    A model of the same configuration is tried on the CPU, with random weights and few layers, features and tokens: in a
    second, for any size, device and division of the real model.
    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING

    found = _tried(configuration, _differs)
    # Of an encoder the worst case is reported.
    return True if found is None and type(configuration) in MODEL_FOR_MASKED_LM_MAPPING else found


def mixes_documents(configuration: Any) -> bool | None:
    """Return whether a document's logits change with another document before it in the same example, though the
    positions begin anew; None where that cannot be tried. Tried as :func:`sees_future` is."""
    return _tried(configuration, _mixes)


def _tried(configuration: Any, trial: Callable[[Any], bool]) -> bool | None:
    for is_narrow in (True, False):
        try:
            with torch.random.fork_rng(devices=[]):
                return trial(_small(configuration, is_narrow=is_narrow))
        except Exception:  # noqa: BLE001 - sizes that do not fit fail in as many ways as there are models
            continue
    return None


def _small(configuration: Any, *, is_narrow: bool) -> Any:
    """Return a smaller configuration: sizes change, and no setting of the attention."""
    found = copy.deepcopy(configuration)
    sizes = found.get_text_config()
    depth, kinds = getattr(sizes, "num_hidden_layers", 0), getattr(sizes, "layer_types", None) or []
    kept = sorted({*range(min(depth, 2)), *map(kinds.index, kinds)})  # two layers, and one of each other kind
    for name, value in [*vars(sizes).items()]:
        if isinstance(value, list | tuple) and len(value) == depth:
            setattr(sizes, name, [value[each] for each in kept])
        elif is_narrow and name.endswith("intermediate_size") and isinstance(value, int):
            setattr(sizes, name, 64)
    if depth:
        sizes.num_hidden_layers = len(kept)
    if is_narrow:
        sizes.hidden_size = 64 if vars(sizes).get("head_dim") else 64 * sizes.num_attention_heads
    sizes.vocab_size, sizes.pad_token_id = _VOCABULARY, min(getattr(sizes, "pad_token_id", 0) or 0, _VOCABULARY - 1)
    return found


def _differs(configuration: Any) -> bool:
    """Return whether the logits of the first half of a text change with its second half."""
    model, half = _model(configuration)
    texts = torch.randint(100, 200, (2, 2 * half))
    texts[1, :half] = texts[0, :half]
    return _are_different(*(_logits(model, each)[:half] for each in texts))


def _mixes(configuration: Any) -> bool:
    """Return whether a text's logits change with a text before it."""
    model, half = _model(configuration)
    texts, positions = torch.randint(100, 200, (2 * half,)), torch.arange(half).repeat(2)[None]
    return _are_different(_logits(model, texts[half:]), _logits(model, texts, position_ids=positions)[half:])


def _model(configuration: Any) -> tuple[Any, int]:
    """Return a model with random weights, and the length of half a text."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        if AutoModelForCausalLM.from_config(configuration).num_parameters() > _LARGEST:
            raise MemoryError
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(configuration, dtype=torch.float32).eval()
    takes = getattr(configuration.get_text_config(), "max_position_embeddings", None) or -1  # as XLNet has
    return model, (min(_TOKENS, takes - 8) if takes > 0 else _TOKENS) // 2  # RoBERTa counts its positions from 2 on


def _logits(model: Any, tokens: Tensor, **positions: Tensor) -> Tensor:
    with torch.inference_mode():
        found: Tensor = model(input_ids=tokens[None], use_cache=False, **positions).logits[0]
        return found


def _are_different(first: Tensor, second: Tensor) -> bool:
    difference, largest = float((first - second).abs().max()), float(first.abs().max())
    if not 0 < largest < float("inf"):
        raise ArithmeticError
    return difference > _NOISE * largest
