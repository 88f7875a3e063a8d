"""Trial of a language model: one that sees the future, which no class tells, learns to copy the next token."""

import copy
from collections.abc import Iterator
from typing import Any, Final

import torch

_TOKENS: Final = 1024
"""Tokens of the trial: sparse attention is dense over few."""
_VOCABULARY: Final = 512
_LARGEST: Final = 2_000_000_000
"""Weights of a trial, at most: 8 GB of the CPU's memory for a moment."""
_NOISE: Final = 1e-4
"""Share of the largest logit. By rounding logits differ by 10^-6 of it, by seen tokens by 5 * 10^-3 and more."""


def sees_future(configuration: Any) -> bool | None:
    """Return whether logits change with the tokens after them; None where it cannot be tried.

    A model of the same configuration is tried, with random weights, few layers and few features, on the CPU: in a
    second, for any number of devices and any division of the real one.

    Args:
        configuration: of transformers, for a model of any class.
    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    if type(configuration) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        return None
    for small in _small(configuration):
        try:
            with torch.random.fork_rng(devices=[]):
                return _differs(small)
        except Exception:  # noqa: BLE001 - sizes that do not fit each other fail in as many ways as there are models
            continue
    return None


def _small(configuration: Any) -> Iterator[Any]:
    """Yield smaller configurations, the smallest first: sizes change, and nothing that decides who sees whom."""
    for features, has_few_words in ((True, True), (False, True), (False, False)):
        found = copy.deepcopy(configuration)
        sizes = found.get_text_config()
        depth, kinds = getattr(sizes, "num_hidden_layers", 0), getattr(sizes, "layer_types", None) or []
        # Two layers, and one of each other kind.
        kept = sorted({*range(min(depth, 2)), *map(kinds.index, kinds)})
        for name, value in vars(sizes).items():
            if isinstance(value, list | tuple) and len(value) == depth:
                setattr(sizes, name, [value[each] for each in kept])
            elif features and name.endswith("intermediate_size") and isinstance(value, int):
                setattr(sizes, name, 64)
        if depth:
            sizes.num_hidden_layers = len(kept)
        if features:
            sizes.hidden_size = 64 if getattr(sizes, "head_dim", None) else 16 * sizes.num_attention_heads
        if has_few_words:
            sizes.vocab_size = _VOCABULARY
            sizes.pad_token_id = min(sizes.pad_token_id or 0, _VOCABULARY - 1)
        yield found


def _differs(configuration: Any) -> bool:
    """Return whether the logits of the first half of a text change with its second half."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        weights = sum(each.numel() for each in AutoModelForCausalLM.from_config(configuration).parameters())
    if weights > _LARGEST:
        raise MemoryError
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(configuration, dtype=torch.float32).eval()
    takes = getattr(configuration.get_text_config(), "max_position_embeddings", None) or _TOKENS
    half = min(_TOKENS, takes) // 2
    texts = torch.randint(100, 200, (2, 2 * half))
    texts[1, :half] = texts[0, :half]
    with torch.inference_mode():
        first, second = (model(input_ids=each[None], use_cache=False).logits[0, :half] for each in texts)
    difference, largest = float((first - second).abs().max()), float(first.abs().max())
    if not 0 < largest < float("inf"):
        raise ArithmeticError
    return difference > _NOISE * largest
