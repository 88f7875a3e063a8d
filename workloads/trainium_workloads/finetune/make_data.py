"""A tiny model and texts for it in the real formats, for machines without a network.

    python -m trainium_workloads.finetune.make_data DIRECTORY [--family llama]

makes ``DIRECTORY/model`` (``config.json``, a tokenizer trained on the texts, random weights in two safetensors files)
and ``DIRECTORY/texts`` (a Parquet file of texts, and JSON Lines of conversations, of prompts with completions, and in
Alpaca's form).
"""

import argparse
import random
import sys
from pathlib import Path
from typing import Any, Final

import torch

from trainium_workloads.training.refusal import guarded

_WORDS: Final = (
    ("a node", "the queue", "each rank", "the volume", "a gradient", "the gang", "one pod"),
    ("waits for", "starts", "sends", "holds", "reads", "ends"),
    ("its neighbour", "the next step", "a checkpoint", "all tokens", "the first batch", "another node"),
)
"""Subjects, verbs and objects of sentences."""
_CHAT: Final = "{% for each in messages %}<|{{ each.role }}|>{{ each.content }}<|end|>{% endfor %}"
_SPECIAL: Final = ("<|end|>", "<|user|>", "<|assistant|>")
_SIZES: Final = {
    "max_position_embeddings": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "head_dim": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
    "vocab_size": 512,
    "bos_token_id": None,
    "eos_token_id": 0,
    "pad_token_id": None,
}


def configuration(family: str, **others: Any) -> Any:
    """Return the configuration of a tiny model of a type by transformers' name, with other sizes than the common
    ones."""
    from transformers import AutoConfig

    return AutoConfig.for_model(family, **_SIZES | others)


def main() -> int:
    """Run the command and return the exit code."""
    parser = argparse.ArgumentParser(prog="make_data", description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--family", choices=("llama", "qwen3"), default="qwen3", help="default: %(default)s")
    parser.add_argument("--texts", type=int, default=400, metavar="N", help="default: %(default)s")
    asked = parser.parse_args()
    make(asked.directory, asked.texts, configuration(asked.family))
    return 0


def make(directory: Path, texts: int, configured: Any) -> None:
    """Write a model of a configuration, and this number of texts."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    chance = random.Random(0)
    made = [_text(chance) for _ in range(texts)]
    asks = ({"role": "user", "content": _text(chance)} for _ in made)
    talks = [[next(asks), {"role": "assistant", "content": each}] for each in made[1::2]]
    (directory / "texts").mkdir(parents=True, exist_ok=True)
    Dataset.from_dict({"text": made[::2]}).to_parquet(directory / "texts" / "train-00000.parquet")
    Dataset.from_dict({"messages": talks}).to_json(directory / "texts" / "talks.jsonl")
    asked, said = ([talk[place]["content"] for talk in talks] for place in (0, 1))
    for name, columns in (("prompts", ("prompt", "completion")), ("alpaca", ("instruction", "output"))):
        Dataset.from_dict(dict(zip(columns, (asked, said), strict=True))).to_json(directory / "texts" / f"{name}.jsonl")
    _write_tokenizer(directory / "model", made)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(configured, dtype=torch.float32)
    model.save_pretrained(directory / "model", max_shard_size=model.num_parameters() * 3)


def _text(chance: random.Random) -> str:
    sentences = [" ".join(map(chance.choice, _WORDS)) for _ in range(8)]
    return " ".join(f"{each}." for each in sentences[: chance.randint(3, 8)])


def _write_tokenizer(directory: Path, texts: list[str]) -> None:
    """Write a tokenizer of byte-level BPE, as Qwen's is."""
    from tokenizers import ByteLevelBPETokenizer, Tokenizer
    from transformers import PreTrainedTokenizerFast

    learnt = ByteLevelBPETokenizer()
    learnt.train_from_iterator(texts, 512, min_frequency=0, show_progress=False, special_tokens=list(_SPECIAL))
    tokenizer = Tokenizer.from_str(learnt.to_str())
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=_SPECIAL[0], chat_template=_CHAT)
    fast.save_pretrained(directory)


if __name__ == "__main__":
    sys.exit(guarded(main))
