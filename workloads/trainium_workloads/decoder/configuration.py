"""Sizes of decoders: the published ones by name, and any other from the ``config.json`` beside its weights."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from trainium_workloads.training.refusal import Refusal


@dataclass(frozen=True)
class Configuration:
    """Configuration of a decoder. Two with the same values have the same weights' names and shapes."""

    architecture: str
    """``LlamaForCausalLM`` or ``Qwen3ForCausalLM``: what ``config.json`` calls it."""
    vocabulary: int
    hidden: int
    intermediate: int
    """Width of the feed-forward layer."""
    layers: int
    heads: int
    key_value_heads: int
    """Divides :attr:`heads`: so many heads share keys and values (grouped-query attention, arXiv 2305.13245)."""
    head_size: int
    norm_epsilon: float
    rotary_base: float
    positions: int
    """Longest sequence that it was made for, in tokens."""
    tied: bool
    """Whether the output layer's weight is the embedding's."""
    normed_queries: bool
    """Whether queries and keys are normalized for each head, as Qwen3's are (arXiv 2505.09388)."""
    begin: int | None
    """Token before a text; None without one."""
    end: int
    """Token after a text."""

    @property
    def parameters(self) -> int:
        """Number of learnt parameters; a tied weight counts once."""
        attention = self.hidden * self.head_size * (2 * self.heads + 2 * self.key_value_heads)
        attention += 2 * self.head_size * self.normed_queries
        block = attention + 3 * self.hidden * self.intermediate + 2 * self.hidden
        embeddings = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return self.layers * block + embeddings + self.hidden

    @property
    def largest_block(self) -> int:
        """Parameters of one block, which FSDP gathers at a time."""
        outside = self.hidden + self.vocabulary * self.hidden * (1 if self.tied else 2)
        return (self.parameters - outside) // self.layers

    def facts(self) -> dict[str, int | float | str | bool]:
        """Return the facts on which a checkpoint must agree."""
        return {name: value for name, value in asdict(self).items() if value is not None}


_LLAMA_2_7B: Final = Configuration(
    architecture="LlamaForCausalLM",
    vocabulary=32000,
    hidden=4096,
    intermediate=11008,
    layers=32,
    heads=32,
    key_value_heads=32,
    head_size=128,
    norm_epsilon=1e-5,
    rotary_base=10_000.0,
    positions=4096,
    tied=False,
    normed_queries=False,
    begin=1,
    end=2,
)
_QWEN3_8B: Final = Configuration(
    architecture="Qwen3ForCausalLM",
    vocabulary=151_936,
    hidden=4096,
    intermediate=12_288,
    layers=36,
    heads=32,
    key_value_heads=8,
    head_size=128,
    norm_epsilon=1e-6,
    rotary_base=1_000_000.0,
    positions=40_960,
    tied=False,
    normed_queries=True,
    begin=None,
    end=151_645,
)

CONFIGURATIONS: Final[Mapping[str, Configuration]] = {
    "llama-2-7b": _LLAMA_2_7B,
    "qwen3-8b": _QWEN3_8B,
    "qwen3-4b": replace(_QWEN3_8B, hidden=2560, intermediate=9728, tied=True),
    "qwen3-1.7b": replace(_QWEN3_8B, hidden=2048, intermediate=6144, layers=28, heads=16, tied=True),
    "qwen3-0.6b": replace(_QWEN3_8B, hidden=1024, intermediate=3072, layers=28, heads=16, tied=True),
    "tiny": replace(
        _QWEN3_8B,
        vocabulary=512,
        hidden=64,
        intermediate=128,
        layers=2,
        heads=4,
        key_value_heads=2,
        head_size=16,
        rotary_base=10_000.0,
        positions=512,
        tied=True,
        end=0,
    ),
}
"""As published with the weights on the Hugging Face Hub, but ``tiny``, which is ours, for tests."""

REPOSITORIES: Final[Mapping[str, str]] = {
    "llama-2-7b": "meta-llama/Llama-2-7b-hf",
    "qwen3-8b": "Qwen/Qwen3-8B",
    "qwen3-4b": "Qwen/Qwen3-4B",
    "qwen3-1.7b": "Qwen/Qwen3-1.7B",
    "qwen3-0.6b": "Qwen/Qwen3-0.6B",
}
"""Where their weights are, on the Hugging Face Hub."""

LOSS_POSITIONS: Final = 1024
"""How many positions' logits are in memory at a time. For all 4,096 of one of Qwen3's sequences they and their gradient
would take 5 GB in FP32: a vocabulary has 151,936 tokens."""

GATED: Final = frozenset({"meta-llama/Llama-2-7b-hf"})
"""Those that the Hub gives only with the token of an account that has accepted the licence."""


def named(model: str) -> Configuration:
    """Return the configuration of a name, or of a directory with a ``config.json``.

    Raises:
        Refusal: neither, or a model that this decoder is not.
    """
    if found := CONFIGURATIONS.get(model):
        return found
    if not Path(model).is_dir():
        names = ", ".join(sorted(CONFIGURATIONS))
        raise Refusal(f"--model {model} is neither one of {names} nor a directory with a config.json")
    return read(Path(model) / "config.json")


def read(path: Path) -> Configuration:
    """Return the configuration in a ``config.json`` of the Hugging Face Hub.

    Raises:
        Refusal: there is none, it is cut off, or it is of a model that this decoder is not.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Refusal(f"{path}: {error.strerror}; a model's directory holds its config.json") from None
    except ValueError as error:
        raise Refusal(f"{path} is no JSON: {error}") from None
    if faults := list(_unlike(data)):
        raise Refusal(f"{path} is of a model that this decoder is not: {'; '.join(faults)}")
    try:
        return _configuration(data)
    except KeyError as error:
        raise Refusal(f"{path} does not tell {error}") from None


def written(configuration: Configuration) -> dict[str, Any]:
    """Return the ``config.json`` of weights of this configuration."""
    qwen = configuration.architecture == "Qwen3ForCausalLM"
    return {
        "architectures": [configuration.architecture],
        "model_type": "qwen3" if qwen else "llama",
        "vocab_size": configuration.vocabulary,
        "hidden_size": configuration.hidden,
        "intermediate_size": configuration.intermediate,
        "num_hidden_layers": configuration.layers,
        "num_attention_heads": configuration.heads,
        "num_key_value_heads": configuration.key_value_heads,
        "head_dim": configuration.head_size,
        "hidden_act": "silu",
        "rms_norm_eps": configuration.norm_epsilon,
        "rope_theta": configuration.rotary_base,
        "rope_scaling": None,
        "max_position_embeddings": configuration.positions,
        "tie_word_embeddings": configuration.tied,
        "attention_bias": False,
        "bos_token_id": configuration.begin,
        "eos_token_id": configuration.end,
        "torch_dtype": "bfloat16",
        "use_cache": True,
    }


def _configuration(data: Mapping[str, Any]) -> Configuration:
    heads, hidden = int(data["num_attention_heads"]), int(data["hidden_size"])
    architecture = data["architectures"][0]
    end = data.get("eos_token_id")
    return Configuration(
        architecture=architecture,
        vocabulary=int(data["vocab_size"]),
        hidden=hidden,
        intermediate=int(data["intermediate_size"]),
        layers=int(data["num_hidden_layers"]),
        heads=heads,
        key_value_heads=int(data.get("num_key_value_heads") or heads),
        head_size=int(data.get("head_dim") or hidden // heads),
        norm_epsilon=float(data["rms_norm_eps"]),
        rotary_base=float(_rotary(data).get("rope_theta", data.get("rope_theta", 10_000.0))),
        positions=int(data["max_position_embeddings"]),
        tied=bool(data.get("tie_word_embeddings", False)),
        normed_queries=architecture == "Qwen3ForCausalLM",
        begin=data.get("bos_token_id"),
        # Models for chats have several ends; the first is that of a turn.
        end=int(end[0] if isinstance(end, list) else end or 0),
    )


def _rotary(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return ``rope_parameters`` of transformers 5; before, the base stood alone and ``rope_scaling`` beside it."""
    return data.get("rope_parameters") or data.get("rope_scaling") or {}


def _unlike(data: Mapping[str, Any]) -> list[str]:
    """Return the differences between a model and this decoder."""
    faults = []
    known = ("LlamaForCausalLM", "Qwen3ForCausalLM")
    if (data.get("architectures") or [""])[0] not in known:
        faults.append(f"architectures must be one of {', '.join(known)}, not {data.get('architectures')}")
    if (act := data.get("hidden_act", "silu")) != "silu":
        faults.append(f"hidden_act must be silu, not {act}")
    if (kind := _rotary(data).get("rope_type", _rotary(data).get("type", "default"))) != "default":
        faults.append(f"its rotary positions are scaled ({kind}); only unscaled ones are built in")
    faults += [
        f"{name} must be false" for name in ("attention_bias", "mlp_bias", "use_sliding_window") if data.get(name)
    ]
    return faults
