"""Text to numbers: BERT's WordPiece, by the package ``tokenizers``."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy

from trainium_workloads.training.refusal import Refusal

PAD, UNKNOWN, FIRST, END, MASK = SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
FILE, VOCABULARY, SETTINGS = "tokenizer.json", "vocab.txt", "tokenizer_config.json"


class WordPieces:
    """A vocabulary, and how text is cut into its pieces."""

    def __init__(self, tokenizer: Any) -> None:
        """Wrap a ``tokenizers.Tokenizer`` with BERT's special tokens.

        Raises:
            Refusal: it lacks one of them.
        """
        missing = [name for name in SPECIAL if tokenizer.token_to_id(name) is None]
        if missing:
            raise Refusal(
                f"the vocabulary lacks {', '.join(missing)}: it is not BERT's; give the model's own directory"
            )
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        self.pad_id: int = tokenizer.token_to_id(PAD)

    @property
    def size(self) -> int:
        """Number of pieces, which the model's embedding must hold."""
        return int(self._tokenizer.get_vocab_size())

    @property
    def as_json(self) -> str:
        """All of it, as text that is the same for the same vocabulary."""
        return str(self._tokenizer.to_str())

    def encode(self, texts: Sequence[str], length: int) -> Any:
        """Return numbers of the pieces, ``[texts, length]`` (int64): cut off at the end, or filled with
        :attr:`pad_id`."""
        filled = numpy.full((len(texts), length), self.pad_id, dtype=numpy.int64)
        for row, each in zip(filled, self._tokenizer.encode_batch(list(texts)), strict=True):
            ids = each.ids
            if len(ids) > length:
                ids = [*ids[: length - 1], ids[-1]]  # the last one is [SEP]
            row[: len(ids)] = ids
        return filled

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Return the number of each text's pieces, with the special ones."""
        return [len(each.ids) for each in self._tokenizer.encode_batch(list(texts))]

    def save(self, directory: Path, longest: int) -> None:
        """Write the files for :func:`load`, and for transformers' ``AutoTokenizer``.

        Args:
            directory: it must exist.
            longest: pieces that the model takes.
        """
        (directory / FILE).write_text(self.as_json, encoding="utf-8")
        names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
        settings = {"tokenizer_class": "BertTokenizerFast", "model_max_length": longest, **names}
        (directory / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def load(directory: Path) -> WordPieces:
    """Return the vocabulary in a model's directory: ``tokenizer.json``, or ``vocab.txt`` as Google published it.

    Raises:
        Refusal: it has neither, or one that cannot be read.
    """
    tokenizers = _package()
    file, words = directory / FILE, directory / VOCABULARY
    try:
        if file.is_file():
            return WordPieces(tokenizers.Tokenizer.from_file(str(file)))
        if words.is_file():
            plain = tokenizers.BertWordPieceTokenizer(str(words), lowercase=_is_uncased(directory))
            return WordPieces(tokenizers.Tokenizer.from_str(plain.to_str()))
    except Refusal:
        raise
    except Exception as error:  # noqa: BLE001 - the package raises nothing narrower
        raise Refusal(f"the vocabulary in {directory} cannot be read: {error}") from None
    raise Refusal(
        f"{directory} has neither {FILE} nor {VOCABULARY}; a model's directory has one beside its config.json"
    )


def learn(texts: Iterable[str], size: int) -> WordPieces:
    """Return a vocabulary of these texts, in lower case: their characters, and then their words, the frequent ones
    first.

    The package's own trainer gives another vocabulary each time it runs; by this one a training can be repeated.

    Args:
        texts: to learn from.
        size: pieces at most.
    """
    tokenizers = _package()
    normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    splitter = tokenizers.pre_tokenizers.BertPreTokenizer()
    counts = Counter(
        word for text in texts for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)) if word
    )
    letters = sorted({letter for word in counts for letter in word})
    words = sorted(counts, key=lambda word: (-counts[word], word))
    all_pieces = dict.fromkeys([*SPECIAL, *letters, *(f"##{letter}" for letter in letters), *words])
    numbered = {piece: number for number, piece in enumerate(list(all_pieces)[:size])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(numbered, unk_token=UNKNOWN))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    tokenizer.decoder = tokenizers.decoders.WordPiece()
    tokenizer.add_special_tokens(list(SPECIAL))
    ends = [(name, numbered[name]) for name in (FIRST, END)]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{FIRST} $A {END}", pair=f"{FIRST} $A {END} $B:1 {END}:1", special_tokens=ends
    )
    return WordPieces(tokenizer)


def _package() -> Any:
    try:
        import tokenizers
    except ImportError:
        raise Refusal("the Python package tokenizers is missing in the image") from None
    return tokenizers


def _is_uncased(directory: Path) -> bool:
    """Return whether text is lower-cased, as transformers' settings beside the vocabulary say; most BERTs are so."""
    try:
        return bool(json.loads((directory / SETTINGS).read_text(encoding="utf-8")).get("do_lower_case", True))
    except (OSError, ValueError):
        return True
