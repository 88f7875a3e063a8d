"""A tiny model and texts for it in the real formats, for machines without a network.

    python -m trainium_workloads.finetune.make_data DIRECTORY [--family llama]

makes ``DIRECTORY/model`` (``config.json``, a tokenizer trained on the texts, random weights in two safetensors files)
and ``DIRECTORY/texts`` (a Parquet file of texts and a JSON Lines file of conversations).
"""

import argparse
import json
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch

from trainium_workloads.training.refusal import guarded

_SUBJECTS: Final = ("a node", "the queue", "each rank", "the volume", "a gradient", "the gang", "one pod")
_VERBS: Final = ("waits for", "starts", "sends", "holds", "reads", "ends")
_OBJECTS: Final = ("its neighbour", "the next step", "a checkpoint", "all tokens", "the first batch", "another node")
_CHAT: Final = "{% for each in messages %}<|{{ each.role }}|>{{ each.content }}<|end|>{% endfor %}"
_SPECIAL: Final = ("<|end|>", "<|user|>", "<|assistant|>")
_EXPERTS: Final = {"num_experts_per_tok": 2}
_WINDOW: Final = {"sliding_window": 16}

FAMILIES: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "llama": ("llama", {"tie_word_embeddings": False}),
    "qwen3": ("qwen3", {}),
    "mistral": ("mistral", _WINDOW),
    "gemma": ("gemma3_text", _WINDOW | {"query_pre_attn_scalar": 16}),
    "phi": ("phi", {"tie_word_embeddings": False}),
    "phi3": ("phi3", _WINDOW | {"pad_token_id": 0}),
    "gpt-oss": ("gpt_oss", _WINDOW | _EXPERTS | {"num_local_experts": 4}),
    "qwen2-moe": ("qwen2_moe", _EXPERTS | {"num_experts": 4, "moe_intermediate_size": 32}),
}
"""transformers' name of each family's model type, and sizes besides the common ones."""
_SIZES: Final = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "head_dim": 16}
_HEADS: Final = {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True}
_TOKENS: Final = {"vocab_size": 512, "bos_token_id": None, "eos_token_id": 0, "pad_token_id": None}


def configuration(family: str) -> Any:
    """Return the configuration of a tiny model of :data:`FAMILIES`."""
    from transformers import AutoConfig

    kind, own = FAMILIES[family]
    return AutoConfig.for_model(kind, **{"max_position_embeddings": 512, **_SIZES, **_HEADS, **_TOKENS, **own})


def main() -> int:
    """Run the command and return the exit code."""
    parser = argparse.ArgumentParser(prog="make_data", description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--family", choices=FAMILIES, default="qwen3", help="of the model (default: %(default)s)")
    parser.add_argument("--texts", type=int, default=400, metavar="N", help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    make(asked.directory, asked.texts, asked.seed, asked.family)
    return 0


def make(directory: Path, texts: int, seed: int, family: str = "qwen3") -> None:
    """Write a model of :data:`FAMILIES`, and this number of texts."""
    import pyarrow
    from pyarrow import parquet
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    chance = random.Random(seed)
    made = [_text(chance) for _ in range(texts)]
    (directory / "texts").mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table({"text": made[::2]}), directory / "texts" / "train-00000.parquet")
    asks = ({"role": "user", "content": _text(chance)} for _ in made)
    talks = [[next(asks), {"role": "assistant", "content": each}] for each in made[1::2]]
    lines = "".join(json.dumps({"messages": each}) + "\n" for each in talks)
    (directory / "texts" / "talks.jsonl").write_text(lines, encoding="utf-8")
    _write_tokenizer(directory / "model", made)
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(configuration(family), dtype=torch.float32)
    model.save_pretrained(directory / "model", max_shard_size=model.num_parameters() * 3)


def _text(chance: random.Random) -> str:
    sentences = [(chance.choice(_SUBJECTS), chance.choice(_VERBS), chance.choice(_OBJECTS)) for _ in range(8)]
    return " ".join(f"{' '.join(each)}." for each in sentences[: chance.randint(3, 8)])


def _write_tokenizer(directory: Path, texts: list[str]) -> None:
    """Write a tokenizer of byte-level BPE, as Qwen's is."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=512, special_tokens=list(_SPECIAL), initial_alphabet=alphabet)
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=_SPECIAL[0], chat_template=_CHAT)
    fast.save_pretrained(directory)


if __name__ == "__main__":
    sys.exit(guarded(main))
