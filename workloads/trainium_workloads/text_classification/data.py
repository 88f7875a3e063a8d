"""Reviews of a training: read by ``datasets`` or made from a seed, tokenized once for all ranks.

Files are Parquet, CSV or JSON, compressed or not, with the columns ``label`` and ``text``, or with those of Amazon
Polarity on the Hub: ``label`` (0 or 1), ``title`` and ``content``. The title is not used, as in AWS' own fine-tuning of
BERT-base.
"""

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
from datasets import ClassLabel, Dataset, Features, List, Value
from transformers import BertTokenizer

from trainium_workloads.atomic_write import take_place
from trainium_workloads.data_files import READERS, files_of, kind_of, plain, rows_of
from trainium_workloads.text_classification.make_data import reviews
from trainium_workloads.tokenized import Rows, cached_tokens, read_tokenizer, room_in, stamps
from trainium_workloads.training.backends import Backend
from trainium_workloads.training.first_rank import made_by
from trainium_workloads.training.refusal import RefusalError

KINDS = (".parquet", ".csv", ".jsonl", ".json", ".arrow")
"""Ends of the names of files with reviews."""
TEXTS = ("text", "content")
"""Names of the column with the texts: the first that is there."""
LEARNT_PIECES = 4096
"""Pieces of a vocabulary that is learnt from the reviews, at most."""
_LEARNT_FROM = 20_000
"""Reviews that a vocabulary is learnt from."""
_CACHE = ".tokenized"
"""Below the reviews' own directory: other trainings with the same settings find it."""
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@dataclass(frozen=True)
class Data:
    """Data of a training: rows with ``input_ids`` and ``attention_mask`` [length], and ``labels``."""

    train: Rows
    test: Rows
    tokenizer: Any
    """Of ``transformers``; its ``model_max_length`` is the length of the reviews."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the labels, by their numbers."""
        return tuple(self.train.table.features["labels"].names)


@dataclass(frozen=True)
class ReviewSource:
    """Source of the reviews."""

    train: Path | None
    """A file or a directory; see :func:`~trainium_workloads.data_files.files_of`."""
    test: Path | None
    synthetic: int
    """Number of made-up reviews; 0 for those of the files. A fifth as many are made to test with."""
    seed: int
    """Seed of synthetic reviews."""
    length: int
    """Pieces of a review, padding included; longer reviews are cut off."""
    vocabulary: Path | None
    """Directory of a tokenizer; None to learn a vocabulary from the reviews."""
    cache: Path | None
    """Directory of tokenized reviews; None for one beside the reviews."""
    each_node: bool
    """Whether the nodes share no directory, so that each tokenizes for itself."""
    output: Path
    """Of the training; keeps a vocabulary that is learnt."""

    def prepared(self, backend: Backend) -> Data:
        """Tokenize new reviews in one rank; the others wait, and map the files. Refusal in all ranks, if the reviews or
        the vocabulary are not as they must be."""
        makes = backend.local_rank == 0 if self.each_node else backend.rank == 0
        made, read = (made_by(backend, turn, self._made) for turn in (makes, not makes))
        found = made or read
        assert found is not None, "each rank has had its turn"
        return found

    def _made(self) -> Data:
        directory = self.vocabulary or self._learnt(self.output / "vocabulary")
        tokenizer, digests = read_tokenizer(directory, model_max_length=self.length)
        if not tokenizer.is_fast or tokenizer.pad_token is None:
            raise RefusalError(f"the tokenizer in {directory} has no tokenizer.json, or no token for padding")
        train = Rows(self._tokenized("train", tokenizer, digests, ()))
        names = train.table.features["labels"].names
        return Data(train, Rows(self._tokenized("test", tokenizer, digests, names)), tokenizer)

    def _learnt(self, directory: Path) -> Path:
        if not directory.is_dir():
            with room_in(self.output), self._raw("train") as raw:
                learnt = learn(raw[:_LEARNT_FROM][_text_column(raw, self._path("train"))], LEARNT_PIECES)
                part = directory.with_name(".vocabulary")
                learnt.save_pretrained(part)
                take_place(part, directory)
        return directory

    def _tokenized(self, split: str, tokenizer: Any, digests: list[str], labels: Sequence[str]) -> Path:
        """Return the file of a split's tokens. Without names of the labels the reviews name them."""
        source = [self.seed, self.synthetic] if self.synthetic else stamps(self._files(split))
        key = [split, source, digests, tokenizer.pad_token_id, self.length, list(labels)]

        def make(file: Path) -> None:
            with self._raw(split) as raw:
                _tokenize(raw, self._path(split), tokenizer, labels, file)

        return cached_tokens(self._cache(split), split, key, make)

    @contextlib.contextmanager
    def _raw(self, split: str) -> Iterator[Dataset]:
        """Yield the reviews of a split as they lie in their files."""
        if self.synthetic:
            first, count = (0, self.synthetic) if split == "train" else (self.synthetic, max(self.synthetic // 5, 1))
            yield reviews(self.seed, range(first, first + count))
            return
        files = self._files(split)
        kind = kind_of(files[0])
        with room_in(self._cache(split)) as part:
            try:
                if kind in (".json", ".jsonl"):
                    told = {"gen_kwargs": {"files": files, "room": part}, "cache_dir": str(part)}
                    found = Dataset.from_generator(_rows_of_json, **told)
                else:
                    read = [str(plain(each, part)) for each in files]
                    found = datasets.load_dataset(**READERS[kind], data_files=read, split="train", cache_dir=str(part))
            except (datasets.exceptions.DatasetGenerationError, ValueError) as error:
                cause = error.__cause__ or error
                if isinstance(cause, OSError) and cause.errno:
                    raise cause from None
                where = files[0] if len(files) == 1 else files[0].parent
                raise RefusalError(
                    f"{where} has no reviews, or cannot be read as {kind[1:]}: {cause}; stage it again with --replace"
                ) from None
            yield found

    def _files(self, split: str) -> list[Path]:
        # A channel of SageMaker has files of one split, of any name; beside other splits the names have to tell.
        return files_of(self._path(split), split, KINDS, is_alone=self.train != self.test)

    def _path(self, split: str) -> Path:
        path = self.train if split == "train" else self.test
        if path is None and not self.synthetic:
            raise RefusalError(
                f"there are no reviews to {split} with: give --data-dir (trn stage amazon-polarity brings them to "
                f"/data/amazon-polarity), --{split}-data, or --synthetic N to make some up"
            )
        return path or Path("synthetic reviews")

    def _cache(self, split: str) -> Path:
        path = self._path(split)
        return self.cache or (self.output if self.synthetic else path if path.is_dir() else path.parent) / _CACHE


def _rows_of_json(files: Sequence[Path], room: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows' columns that are read: the others have no common types. A row without any is yielded whole."""
    for row in (row for file in files for row in rows_of(file, room)):
        yield {name: row[name] for name in ("label", *TEXTS) if name in row} or dict(row)


def _tokenize(raw: Dataset, where: Path, tokenizer: Any, labels: Sequence[str], file: Path) -> None:
    """Write raw reviews in the columns of :class:`Data`."""
    text = _text_column(raw, where)
    names = list(labels or _labels(raw, where))
    known = ", ".join(f"{number} ({name})" for number, name in enumerate(names))

    def convert(batch: Mapping[str, list[Any]], indices: Sequence[int]) -> dict[str, Any]:
        for index, content, label in zip(indices, batch[text], batch["label"], strict=True):
            if not isinstance(content, str):
                raise RefusalError(f"{where}, review {index + 1}: {text} is {content!r}, no text")
            if label not in names and label not in range(len(names)):
                raise RefusalError(f"{where}, review {index + 1}: label {label!r} is not one of {known}")
        told = tokenizer(batch[text], padding="max_length", truncation=True, return_token_type_ids=False)
        numbers = [names.index(each) if isinstance(each, str) else each for each in batch["label"]]
        return {**told, "labels": numbers}

    pieces, mask = (List(Value(kind), length=tokenizer.model_max_length) for kind in ("int32", "int8"))
    features = Features(input_ids=pieces, attention_mask=mask, labels=ClassLabel(names=names))
    raw.map(
        convert,
        batched=True,
        with_indices=True,
        remove_columns=raw.column_names,
        features=features,
        cache_file_name=str(file),
        new_fingerprint=file.stem,
    )


def _text_column(raw: Dataset, where: Path) -> str:
    names = raw.column_names
    text = next((each for each in TEXTS if each in names), None)
    missing = ["label"] * ("label" not in names) + [" or ".join(TEXTS)] * (text is None)
    if missing or text is None:
        raise RefusalError(f"{where} has no column {' and no column '.join(missing)}; its columns: {', '.join(names)}")
    return text


def _labels(raw: Dataset, where: Path) -> tuple[str, ...]:
    """Return the names of the labels, by their numbers."""
    if isinstance(raw.features["label"], ClassLabel):
        return tuple(raw.features["label"].names)
    found = raw.unique("label")
    numbers = [each for each in found if not isinstance(each, str) or each.isdigit()]
    if all(isinstance(each, str) and each for each in found) and len(numbers) in (0, len(found)):
        return tuple(sorted(found))
    if set(found) != set(range(len(found))):
        shown = ", ".join(sorted(map(repr, found))[:10])
        raise RefusalError(
            f"{where}: the labels are {shown}, where names or all numbers from 0 on are expected; "
            "files that count from 1 need 1 taken off"
        )
    return ("negative", "positive") if len(found) == 2 else tuple(map(str, range(len(found))))


def learn(texts: Iterable[str], size: int) -> BertTokenizer:
    """Return a tokenizer with a vocabulary of these texts in lower case: their characters, then their words, the
    frequent ones first, at most ``size`` pieces.

    The trainer of ``tokenizers`` gives another vocabulary each time it runs; by this one a training can be repeated.
    """
    cutter = BertTokenizer().backend_tokenizer
    words = Counter(
        word
        for text in texts
        for word, _ in cutter.pre_tokenizer.pre_tokenize_str(cutter.normalizer.normalize_str(text))
    )
    letters = sorted(set("".join(words)))
    by_frequency = sorted(words, key=lambda word: (-words[word], word))
    pieces = dict.fromkeys([*_SPECIAL, *letters, *(f"##{letter}" for letter in letters), *by_frequency])
    return BertTokenizer(vocab={piece: number for number, piece in enumerate(list(pieces)[:size])})
