"""Texts become examples, once; what is no text is refused."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
from trainium_workloads.decoder import chat, documents, make_data, text
from trainium_workloads.decoder.configuration import CONFIGURATIONS
from trainium_workloads.decoder.text import Synthetic, TextSource, Tokens
from trainium_workloads.training.refusal import Refusal
from trainium_workloads.training.task import Position

TINY = CONFIGURATIONS["tiny"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("made")
    make_data.make(directory, texts=40, seed=0)
    return directory


def tokens_of(directory: Path) -> list[int]:
    facts = json.loads((directory / "tokens.json").read_text())
    return [int(each) for each in numpy.fromfile(directory / "tokens.bin", dtype=facts["type"])]


def test_tokens_are_those_of_transformers(made: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(made / "model")
    directory = text.prepare(TextSource(made / "texts", made / "model"), replace(TINY, begin=7), tmp_path / "cache")
    expected: list[int] = []
    talks = [json.loads(line)["messages"] for line in (made / "texts" / "talks.jsonl").read_text().splitlines()]
    for talk in talks:
        expected += theirs.apply_chat_template(talk, tokenize=True, return_dict=False)
    for written in documents.read([made / "texts" / "train-00000.parquet"], None):
        expected += [7, *theirs.encode(written, add_special_tokens=False), TINY.end]
    assert tokens_of(directory) == expected


def test_empty_texts_are_none(made: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n\n{"text": " "}\n{"text": "one"}\n')
    row = tokens_of(text.prepare(TextSource(tmp_path / "a.jsonl", made / "model"), TINY, tmp_path / "cache"))
    assert row.count(TINY.end) == 2
    assert row[: len(row) // 2] == row[len(row) // 2 :]


def test_examples_are_pieces_of_one_row(made: Path, tmp_path: Path) -> None:
    directory = text.prepare(TextSource(made / "texts", made / "model"), TINY, tmp_path / "cache")
    row = tokens_of(directory)
    examples = Tokens(directory, 32)
    assert len(examples) == (len(row) - 1) // 32
    batch = examples.__getitems__([Position(0, 3), Position(5, 0)])["tokens"]
    assert batch.tolist() == [row[96:129], row[:33]]
    with pytest.raises(Refusal, match=f"there are {len(row)} tokens, and an example of --seq-len {len(row)} needs"):
        Tokens(directory, len(row))


def test_tokens_are_made_once(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(made, tmp_path / "made")
    source = TextSource(tmp_path / "made" / "texts", tmp_path / "made" / "model")
    cache = tmp_path / "cache"
    first = text.prepare(source, TINY, cache)
    assert "40 texts" in capsys.readouterr().out
    assert text.prepare(source, TINY, cache) == first
    assert not capsys.readouterr().out
    # Whatever they depend on makes others: the end token, a file, the template.
    others = {first, text.prepare(source, replace(TINY, end=1), cache)}
    with (source.data / "talks.jsonl").open("a") as file:
        file.write(json.dumps({"text": "one more"}) + "\n")
    others.add(text.prepare(source, TINY, cache))
    (source.tokenizer / "chat_template.jinja").write_text("{{ messages[0].content }}")
    others.add(text.prepare(source, TINY, cache))
    assert len(others) == 4
    assert {each.name for each in cache.iterdir()} == {each.name for each in others}


def test_damaged_tokens_are_made_anew(made: Path, tmp_path: Path) -> None:
    source = TextSource(made / "texts", made / "model")
    directory = text.prepare(source, TINY, tmp_path)
    before = tokens_of(directory)
    data = bytearray((directory / "tokens.bin").read_bytes())
    data[100] ^= 1
    (directory / "tokens.bin").write_bytes(data)
    assert text.prepare(source, TINY, tmp_path) == directory
    assert tokens_of(directory) == before


def test_many_tokens_need_wide_numbers(made: Path, tmp_path: Path) -> None:
    source = TextSource(made / "texts", made / "model")
    wide = text.prepare(source, replace(TINY, vocabulary=151_936, end=151_645), tmp_path)
    assert json.loads((wide / "tokens.json").read_text())["type"] == "uint32"
    assert max(tokens_of(wide)) == 151_645


def test_synthetic_examples_follow_from_the_seed() -> None:
    batch = Synthetic(10, 16, 1).__getitems__([Position(0, 4), Position(3, 4)])["tokens"]
    assert batch.shape == (2, 17)
    assert batch[0].tolist() == batch[1].tolist()
    assert batch[0].tolist() != Synthetic(10, 16, 2).__getitems__([Position(0, 4)])["tokens"][0].tolist()


def written(name: str, content: str | bytes) -> Callable[[Path], Path]:
    def write(directory: Path) -> Path:
        (directory / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return directory

    return write


def parquet_of_numbers(directory: Path) -> Path:
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"text": [1, 2], "label": [0, 1]}), directory / "a.parquet")
    return directory


def parquet_of_reviews(directory: Path) -> Path:
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"review": ["good"], "label": [1]}), directory / "a.parquet")
    return directory


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda directory: directory / "nowhere", "is not there; trn stage SOURCE --to"),
        (lambda directory: directory, "it holds none"),
        (written("a.csv", "text\n"), r"must hold .txt, .jsonl, .json, .parquet files; it holds .csv"),
        (written("a.jsonl", '{"text": "a"}\n{"text": \n'), "a.jsonl, line 2 is no JSON"),
        (written("a.jsonl", '"a"\n'), "line 1 must be an object with a field text or messages, not 'a'"),
        (
            written("a.jsonl", '{"body": "a"}\n'),
            "has no column text or messages or content; --column is to be one of body",
        ),
        (written("a.jsonl", '{"text": 3}\n'), "must be a text, or a list of messages with role and content, not 3"),
        (written("a.jsonl", '{"messages": [{"role": "user"}]}\n'), "must be a text, or a list of messages"),
        (written("a.json", '[{"text": "a"}, 3]'), "row 2 must be an object"),
        (written("a.json", '[{"text": "a"}'), "line 1 is no JSON"),
        (written("a.txt", b"\xff\xfe"), "is not UTF-8 text: invalid start byte at byte 0"),
        (written("a.jsonl", b'{"text": "\xff"}'), "is not UTF-8 text"),
        (written("a.parquet", b"PAR1 no"), "is damaged, or no Parquet file"),
        (parquet_of_numbers, "a.parquet, row 1: must be a text"),
        (parquet_of_reviews, "--column is to be one of review, label"),
    ],
)
def test_what_is_no_text_is_refused(write: Callable[[Path], Path], said: str, made: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with pytest.raises(Refusal, match=said):
        text.prepare(TextSource(write(tmp_path / "data"), made / "model"), TINY, tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*"))


def test_a_column_can_be_named(made: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    parquet_of_reviews(tmp_path / "data")
    assert text.prepare(TextSource(tmp_path / "data", made / "model", "review"), TINY, tmp_path / "cache").is_dir()


def test_a_tokenizer_must_be_the_models(made: Path, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"tokenizer\.json is not there"):
        text.prepare(TextSource(made / "texts", made / "texts"), TINY, tmp_path)
    with pytest.raises(Refusal, match="tokens, and the model 100: it is another model's"):
        text.prepare(TextSource(made / "texts", made / "model"), replace(TINY, vocabulary=100), tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(Refusal, match="is no tokenizer"):
        text.prepare(TextSource(made / "texts", tmp_path), TINY, tmp_path)


def test_conversations_need_a_template(made: Path, tmp_path: Path) -> None:
    shutil.copy(made / "model" / "tokenizer.json", tmp_path)
    with pytest.raises(Refusal, match="has no chat template"):
        text.prepare(TextSource(made / "texts", tmp_path), TINY, tmp_path / "cache")
    (tmp_path / "chat_template.jinja").write_text("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(Refusal, match="does not take a conversation: roles must alternate"):
        text.prepare(TextSource(made / "texts", tmp_path), TINY, tmp_path / "cache")
    # A template is part of a download: it cannot reach out of Jinja's sandbox.
    (tmp_path / "chat_template.jinja").write_text("{{ messages.__class__.__mro__ }}")
    with pytest.raises(Refusal, match="unsafe"):
        chat.renderer(tmp_path)([{"role": "user", "content": "a"}])
