"""Data sets that ``trn stage`` knows by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Preset:
    """A data set with its source and its treatment."""

    source: str
    """Source as ``trn stage`` takes it."""
    to: str
    """Directory on the volume by default; the training examples look there."""
    about: str
    """Description in one line."""
    extract: bool = False
    """Whether its archives are unpacked."""
    include: tuple[str, ...] = ()
    """Patterns of the files to copy; all when empty."""
    size: str = ""
    """Expected size on the volume, with its source; empty where no source gives one."""


_WIKICORPUS = "s3://neuron-s3/training_datasets/bert_pretrain_wikicorpus_tokenized_hdf5"
_TOKENIZED = "bert_pretrain_wikicorpus_tokenized_hdf5_seqlen"

PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        # The bucket is public; the AWS guides download these two with `--no-sign-request`. Their scripts say 30 GB for
        # the first phase, their text more than 50 GB for both.
        "wikicorpus-bert-128": Preset(
            f"{_WIKICORPUS}/{_TOKENIZED}128.tar",
            f"{_TOKENIZED}128",
            "English Wikipedia, tokenized for BERT pre-training, phase 1 (128 tokens)",
            extract=True,
            size="about 30 GB, twice that while it is unpacked",
        ),
        "wikicorpus-bert-512": Preset(
            f"{_WIKICORPUS}/{_TOKENIZED}512.tar",
            f"{_TOKENIZED}512",
            "English Wikipedia, tokenized for BERT pre-training, phase 2 (512 tokens)",
            extract=True,
        ),
        # Converted by the Hub to four files to train with and one to test with; columns label, title, content. 3.6
        # million reviews and 400,000.
        "amazon-polarity": Preset(
            "hf://datasets/fancyzhx/amazon_polarity/amazon_polarity",
            "amazon-polarity",
            "Amazon reviews, good or bad, for the example text-classification",
            include=("*.parquet",),
        ),
        "bert-base-uncased": Preset(
            "hf://google-bert/bert-base-uncased",
            "models/bert-base-uncased",
            "BERT-base and its vocabulary, which the example text-classification begins with",
            include=("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt"),
            size="0.4 GB",
        ),
        "wikitext-103": Preset(
            "hf://datasets/Salesforce/wikitext",
            "data/wikitext-103",
            "Wikipedia's good articles as raw text, for a small language model",
            include=("wikitext-103-raw-v1/*",),
        ),
        "tinystories": Preset(
            "hf://datasets/roneneldan/TinyStories",
            "data/tinystories",
            "Short stories for small models",
            include=("data/*.parquet",),
        ),
    }
)
"""Data sets by name, as ``trn stage --list`` shows them."""
