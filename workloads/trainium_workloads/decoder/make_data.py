"""A tiny model and texts for it in the real formats, for machines without a network.

    python -m trainium_workloads.decoder.make_data DIRECTORY

makes ``DIRECTORY/model`` (``config.json``, a tokenizer trained on the texts, weights in two safetensors files) and
``DIRECTORY/texts`` (a Parquet file of texts and a JSON Lines file of conversations' texts).
"""

import argparse
import json
import random
import sys
from pathlib import Path
from typing import Final

import torch

from trainium_workloads.decoder import weights
from trainium_workloads.decoder.configuration import CONFIGURATIONS
from trainium_workloads.decoder.model import Decoder
from trainium_workloads.training.refusal import Refusal, guarded

_SUBJECTS: Final = ("a node", "the queue", "each rank", "the volume", "a gradient", "the gang", "one pod", "the cache")
_VERBS: Final = ("waits for", "starts", "sends", "holds", "reads", "ends", "follows", "finds")
_OBJECTS: Final = ("its neighbour", "the next step", "a checkpoint", "all tokens", "the first batch", "another node")
_CHAT: Final = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
_SPECIAL: Final = ("<|end|>", "<|user|>", "<|assistant|>")


def main() -> int:
    """Run the command and return the exit code."""
    parser = argparse.ArgumentParser(prog="make_data", description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--texts", type=int, default=400, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    if asked.texts < 1:
        raise Refusal(f"--texts must be 1 or more, not {asked.texts}")
    make(asked.directory, asked.texts, asked.seed)
    return 0


def make(directory: Path, texts: int, seed: int) -> None:
    """Write model and texts.

    Args:
        directory: made where it is not there.
        texts: how many.
        seed: of texts and weights.
    """
    chance = random.Random(seed)
    made = [_text(chance) for _ in range(texts)]
    (directory / "texts").mkdir(parents=True, exist_ok=True)
    _write_parquet(directory / "texts" / "train-00000.parquet", made[::2])
    talks = [
        [{"role": "user", "content": _text(chance)}, {"role": "assistant", "content": each}] for each in made[1::2]
    ]
    lines = "".join(json.dumps({"messages": each}) + "\n" for each in talks)
    (directory / "texts" / "talks.jsonl").write_text(lines, encoding="utf-8")
    model = directory / "model"
    model.mkdir(exist_ok=True)
    _write_tokenizer(model, made)
    sizes = CONFIGURATIONS["tiny"]
    with torch.no_grad():
        decoder = Decoder(sizes)
        weights.initialize(decoder, seed)
    weights.write(decoder, sizes, model, file_bytes=sizes.parameters)


def _text(chance: random.Random) -> str:
    sentences = (
        f"{chance.choice(_SUBJECTS)} {chance.choice(_VERBS)} {chance.choice(_OBJECTS)}."
        for _ in range(chance.randint(3, 12))
    )
    return " ".join(sentences)


def _write_parquet(path: Path, texts: list[str]) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise Refusal("a Parquet file is made with the package pyarrow, which this image lacks") from None
    parquet.write_table(pyarrow.table({"text": texts}), path)


def _write_tokenizer(directory: Path, texts: list[str]) -> None:
    """Write a tokenizer of byte-level BPE, as Qwen's is."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=CONFIGURATIONS["tiny"].vocabulary,
        special_tokens=list(_SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": _SPECIAL[0], "chat_template": _CHAT}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(guarded(main))
