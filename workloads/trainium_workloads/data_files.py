"""Files of one split of a data set, by the Hugging Face Hub's conventions; an ambiguous data set is refused.

``datasets`` knows the conventions: ``data/train-00000-of-00002.parquet``, a split's word in the name of a file or of a
directory, and the subsets that a repository's ``README.md`` declares.
"""

import glob
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import fsspec
import pyarrow
from datasets.data_files import DEFAULT_PATTERNS_ALL, _get_data_files_patterns, resolve_pattern, sanitize_patterns
from datasets.utils.metadata import MetadataConfigs
from huggingface_hub import DatasetCard
from pyarrow.parquet import ParquetFile

from trainium_workloads.training.refusal import RefusalError

READERS: Final[Mapping[str, Mapping[str, Any]]] = {
    ".txt": {"path": "text", "sample_by": "document"},
    ".jsonl": {"path": "json"},
    ".json": {"path": "json"},
    ".parquet": {"path": "parquet"},
    ".arrow": {"path": "arrow"},
    ".csv": {"path": "csv", "keep_default_na": False},  # otherwise "NA" is no text
}
"""Options of ``datasets.load_dataset`` for a kind of file."""
_BY_ARROW: Final = {".zst": "zstd", ".lz4": "lz4"}
"""Compressions for which ``datasets`` needs packages that images lack, and their names in pyarrow."""
_COMPRESSED: Final = (".gz", ".bz2", ".xz", *_BY_ARROW)
_NOTES: Final = ("readme", "license", "licence", "notice", "citation", "changelog", "requirements", "state", "metadata")
"""Names, without their ends, of notes about data, besides those that ``datasets`` leaves out."""
_SHOWN: Final = 3


def kind_of(file: Path) -> str:
    """Return the end of a file's name in front of a compression's: ``.json`` of ``c4.json.gz``."""
    return Path(file.stem if file.suffix in _COMPRESSED else file.name).suffix


def plain(file: Path, room: Path) -> Path:
    """Return a file that ``datasets`` reads: the file itself, or one in the given directory without its compression."""
    if file.suffix not in _BY_ARROW:
        return file
    found = room / file.stem
    with pyarrow.input_stream(str(file), compression=_BY_ARROW[file.suffix]) as packed, found.open("wb") as out:
        shutil.copyfileobj(packed, out)
    return found


def rows_of(file: Path, room: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a file, one after the other; ``room`` is a directory for an unpacked file. A damaged file
    raises an error of one of many classes.

    A row of JSON is taken as it stands: the reader of ``datasets`` takes the types of all columns from the first 10 MB
    (its issue 7092), and makes times of texts that look like them.
    """
    source, kind = plain(file, room), kind_of(file)
    if kind in (".json", ".jsonl"):
        yield from _json_rows(source)
    elif kind == ".parquet" and not ParquetFile(source).metadata.num_rows:
        return
    else:
        from datasets import load_dataset

        # By rows: the whole data set would be copied into a cache first. Pictures stay as they are, unread.
        rows = load_dataset(**READERS[kind], data_files=str(source), split="train", streaming=True)
        rows = rows.decode(False) if rows.features else rows
        yield from ({name: _filled(each) for name, each in row.items()} for row in rows)
    if source != file:
        source.unlink()


def _json_rows(file: Path) -> Iterator[Mapping[str, Any]]:
    with fsspec.open(str(file), "rt", encoding="utf-8-sig", compression="infer") as lines:
        for line in filter(str.strip, lines):
            is_list = line.lstrip().startswith("[")
            for row in json.loads(line + lines.read()) if is_list else [json.loads(line)]:
                found = {"text": row} if is_list and isinstance(row, str) else row
                if not isinstance(found, dict):
                    raise ValueError(f"a row must be an object, not {repr(row)[:60]}")
                yield found


def _filled(value: Any) -> Any:
    """Return a value of Arrow without the names that it fills up with nulls in each object."""
    if isinstance(value, dict):
        return {name: _filled(each) for name, each in value.items() if each is not None}
    return [_filled(each) for each in value] if isinstance(value, list) else value


def files_of(data: Path, split: str, kinds: Sequence[str], *, is_alone: bool = False) -> list[Path]:
    """Return the files of a split, by name; rank 0 prints them, and the files of the directory that are left out.

    ``data`` is a directory, or a file of any name. For the split ``test``, ``validation`` stands where no other is
    there. ``kinds`` are ends of the names of files that can be read. ``is_alone``: a directory is one of this split
    where no name tells a split; one to train with always is. Refusal: they are missing, neither names nor ``README.md``
    distinguish them from others, or they are of several kinds.
    """
    if not data.exists():
        raise RefusalError(f"{data} is not there; trn stage SOURCE --to {data} puts it there")
    inside = [data] if data.is_file() else [each for each in sorted(data.rglob("*")) if _is_seen(each, data)]
    splits = {"": [each for each in inside if kind_of(each) in kinds]} if data.is_file() else _splits(data, kinds)
    is_alone = is_alone or split == "train" or data.is_file()
    chosen = "" if splits.get("") and is_alone else _chosen([each for each in splits if each], split)
    if chosen is None:
        held = ", ".join(sorted({each.suffix or each.name for each in inside})[:5]) or "none"
        there = f"its splits are {', '.join(filter(None, splits))}" if any(splits) else f"it holds {held}"
        mends = f"name a file, or a directory of {split} files alone"
        raise RefusalError(f"{data} must hold {', '.join(kinds)} files to {split} with; {there}: {mends}")
    taken = splits[chosen]
    shared = [str(each) for name, files in splits.items() if name != chosen for each in files if each in taken]
    forms = sorted({READERS.get(kind_of(each), {}).get("path", "") for each in taken})
    if shared or len(forms) > 1:
        fault = f"{shared[0]} is of several splits" if shared else f"the files are {' and '.join(forms)}"
        raise RefusalError(
            f"{data}: {fault}, which does not tell what to {split} with: name a file or a narrower directory"
        )
    if data.is_dir() and os.environ.get("RANK", "0") == "0":
        left = [each for each in inside if each not in taken]
        print(f"{data}: to {split} with: {_listed(taken, data)}; left out: {_listed(left, data)}", flush=True)
    return taken


def _is_seen(file: Path, data: Path) -> bool:
    return file.is_file() and not any(part.startswith(".") for part in file.relative_to(data).parts)


def _listed(files: Sequence[Path], data: Path) -> str:
    names = ", ".join(str(each.relative_to(data)) for each in files[:_SHOWN])
    return names + f" and {len(files) - _SHOWN:,} more" * (len(files) > _SHOWN) or "nothing"


def _chosen(splits: Sequence[str], split: str) -> str | None:
    """Return the intended split, such as ``train_sft``; None where several may be, or none is."""
    exact = [each for each in ((split, "validation") if split == "test" else (split,)) if each in splits]
    near = [each for each in splits if each.startswith(split)]
    if split == "train" and len(splits) == 1 and not splits[0].startswith(("test", "val", "dev", "eval")):
        near = [*splits]
    return exact[0] if exact else near[0] if len(near) == 1 else None


def _splits(data: Path, kinds: Sequence[str]) -> dict[str, list[Path]]:
    """Return the files of each split; under an empty name all files of a directory where no name tells a split."""
    declared, page = MetadataConfigs(), data / "README.md"
    if page.is_file() and page.read_bytes().startswith(b"---"):
        with suppress(Exception):  # of several packages: a page that declares nothing
            declared = MetadataConfigs.from_dataset_card_data(DatasetCard.load(page).data)
    found = {name: splits for name, each in declared.items() if (splits := _of_subset(data, each, kinds))}
    name = declared.get_default_config_name() if len(found) > 1 else next(iter(found), "")
    if len(found) > 1 and name not in found:
        mends = "name the directory of one, or stage one alone (trn stage --include)"
        raise RefusalError(f"{data} holds the data sets {', '.join(found)} by its README.md: {mends}")
    return found[name] if found else _of_subset(data, {}, kinds)


def _of_subset(data: Path, subset: Mapping[str, Any], kinds: Sequence[str]) -> dict[str, list[Path]]:
    top, given = data.resolve(), subset.get("data_files")
    place = glob.escape(str(top / subset.get("data_dir", "")))

    def found(pattern: str) -> list[Path]:
        with suppress(FileNotFoundError):
            inside = [Path(each) for each in resolve_pattern(pattern, place) if Path(each).is_relative_to(top)]
            return [data / each.relative_to(top) for each in inside if kind_of(each) in kinds and not _is_note(each)]
        return []

    try:
        patterns = sanitize_patterns(given) if given else _get_data_files_patterns(found)
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise RefusalError(f"{data}: {error}") from None
    files = {name: sorted({each for pattern in some for each in found(pattern)}) for name, some in patterns.items()}
    return {"" if patterns == DEFAULT_PATTERNS_ALL else str(name): some for name, some in files.items() if some}


def _is_note(file: Path) -> bool:
    return file.suffix in (".json", ".txt") and file.name.lower().partition(".")[0] in _NOTES
