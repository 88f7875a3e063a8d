"""Texts become examples, once; what is no text is refused."""

import json
import lzma
import shutil
from pathlib import Path

import pyarrow.parquet
import pytest
from trainium_workloads.finetune import make_data, text
from trainium_workloads.finetune.text import Form
from trainium_workloads.tokenized import Rows
from trainium_workloads.training.refusal import RefusalError
from trainium_workloads.training.task import Position

VOCABULARY = 512
END = 0


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    directory = tmp_path_factory.mktemp("made")
    make_data.make(directory, 40, make_data.configuration("qwen3"))
    return directory


def prepare(data, tokenizer, cache, column=None, length=1):
    return text.prepare(data, tokenizer, cache, Form(length, VOCABULARY, column, packing="cut"))


def tokens_of(file):
    """Return all tokens of examples of one token, each with the next one."""
    found = Rows(file)
    rows = found.at(range(len(found)))["tokens"].tolist()
    return [rows[0][0], *(following for _, following in rows)]


def test_tokens_are_those_of_the_tokenizer(made, tmp_path):
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(made / "model")
    expected = []
    for row in pyarrow.parquet.read_table(made / "texts" / "train-00000.parquet").to_pylist():
        expected += [*theirs.encode(row["text"]), END]
    assert tokens_of(prepare(made / "texts", made / "model", tmp_path / "cache")) == expected
    talks = [json.loads(line)["messages"] for line in (made / "texts" / "talks.jsonl").read_text().splitlines()]
    expected = [x for each in talks for x in theirs.apply_chat_template(each, tokenize=True, return_dict=False)]
    assert tokens_of(prepare(made / "texts" / "talks.jsonl", made / "model", tmp_path / "cache")) == expected


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.json.gz", "gzip"),
        ("a.jsonl.bz2", "bz2"),
        ("a.jsonl.xz", None),
        ("a.jsonl.zst", "zstd"),
        ("a.jsonl.lz4", "lz4"),
        ("a.txt.gz", "gzip"),
    ],
)
def test_compressed_files_are_read(name, kind, made, tmp_path):
    plain, packed = tmp_path / Path(name).stem, tmp_path / name
    plain.write_bytes(b"one\n" if ".txt" in name else b'{"text": "one\\n"}\n')
    with pyarrow.output_stream(str(packed), compression=kind) as out:
        out.write(plain.read_bytes() if kind else lzma.compress(plain.read_bytes()))
    found = [tokens_of(prepare(each, made / "model", tmp_path)) for each in (plain, packed)]
    assert found[0] == found[1]
    assert not list(tmp_path.glob(".*"))


def test_empty_texts_are_none_and_a_txt_file_is_one(made, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n\n{"text": " "}\n{"text": "one"}\n')
    row = tokens_of(prepare(tmp_path / "a.jsonl", made / "model", tmp_path / "cache"))
    assert row.count(END) == 2
    assert row[: len(row) // 2] == row[len(row) // 2 :]
    (tmp_path / "b.txt").write_text("one\n\none\n")
    assert tokens_of(prepare(tmp_path / "b.txt", made / "model", tmp_path / "cache")).count(END) == 1
    (tmp_path / "c.json").write_text('[{"content": "one"}, {"content": "one"}]')
    assert tokens_of(prepare(tmp_path / "c.json", made / "model", tmp_path / "cache")) == row


def test_examples_are_pieces_of_one_row(made, tmp_path):
    row = tokens_of(prepare(made / "texts", made / "model", tmp_path / "cache"))
    examples = Rows(prepare(made / "texts", made / "model", tmp_path / "cache", length=32))
    assert len(examples) == (len(row) - 1) // 32
    batch = examples.__getitems__([Position(0, 3), Position(5, 0)])["tokens"]
    assert batch.tolist() == [row[96:129], row[:33]]
    few = f"there are {len(row)} tokens, and an example of --seq-len {len(row)} needs"
    with pytest.raises(RefusalError, match=few):
        prepare(made / "texts", made / "model", tmp_path / "cache", length=len(row))


def test_tokens_are_made_once_and_anew_where_they_are_damaged(made, tmp_path, capsys):
    shutil.copytree(made, tmp_path / "made")
    data, tokenizer, cache = tmp_path / "made/texts/talks.jsonl", tmp_path / "made" / "model", tmp_path / "cache"
    first = prepare(data, tokenizer, cache)
    assert "examples of 1 tokens, in " in capsys.readouterr().out
    assert prepare(data, tokenizer, cache) == first
    assert "examples of" not in capsys.readouterr().out
    before = first.read_bytes()
    first.write_bytes(before[:-1] + b"\xff")
    assert prepare(data, tokenizer, cache) == first
    assert first.read_bytes() == before
    # Whatever they depend on makes others: a file, the template.
    with data.open("a") as file:
        file.write(json.dumps({"messages": [{"role": "user", "content": "one more"}]}) + "\n")
    others = {first, prepare(data, tokenizer, cache)}
    (tokenizer / "chat_template.jinja").write_text("{% for each in messages %}{{ each.content }}{% endfor %}")
    others.add(prepare(data, tokenizer, cache))
    assert len(others) == 3
    assert {each.name for each in cache.iterdir()} == {each.name for each in others}


def test_synthetic_examples_follow_from_the_seed(tmp_path):
    made = [text.prepare_synthetic(10, 16, seed, tmp_path) for seed in (1, 2)]
    first, other = (Rows(each) for each in made)
    assert len(first) == 10
    assert first.digest != other.digest
    assert text.prepare_synthetic(10, 16, 1, tmp_path) == made[0]


def written(name, content):
    def write(directory):
        (directory / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return directory

    return write


def parquet_of(**columns):
    def write(directory):
        pyarrow.parquet.write_table(pyarrow.table(columns), directory / "a.parquet")
        return directory

    return write


def talk(content):
    return written("a.jsonl", json.dumps({"messages": [{"role": "user", "content": content}]}))


def test_parts_of_a_message_are_joined_as_the_server_joins_them(made, tmp_path):
    parts = [{"type": "text", "text": "each rank"}, {"type": "input_text", "text": "waits for"}]
    found = []
    for name, content in (("parts", parts), ("one", "each rank waits for")):
        path, message = tmp_path / f"{name}.jsonl", {"role": "user", "content": content, "name": None, "tool_calls": []}
        path.write_text(json.dumps({"messages": [message]}))
        found.append(tokens_of(prepare(path, made / "model", tmp_path / "cache")))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda directory: directory / "nowhere", "is not there; trn stage SOURCE --to"),
        (lambda directory: directory, "it holds none"),
        (written("a.csv", "text\n"), r"must hold .txt, .jsonl, .json, .parquet, .arrow files.*; it holds .csv"),
        (written("a.jsonl", '{"text": "a"}\n{"text": \n'), r"a\.jsonl is damaged, or no \.jsonl file"),
        (
            written("a.jsonl", '{"body": "a"}\n'),
            "has no column messages or .* or text or content; --column is to be one of body, or two of them",
        ),
        (written("a.jsonl", '{"text": 3}\n'), "must be a text, or a list of messages with role and content, not 3"),
        (written("a.jsonl", '{"messages": [{"role": "user"}]}\n'), "must be a list of messages with role and content"),
        (talk(7), "must be a list of messages with role and content, not {'role': 'user', 'content': 7}"),
        (talk({"type": "text", "text": "a"}), "must be a list of messages with role and content"),
        (talk(None), "must be a list of messages with role and content"),
        (talk([{"type": "image_url", "image_url": {"url": "a"}}]), "row 1: a message has a part image_url"),
        (talk([{"type": "text", "text": None}]), "a message has a part without text"),
        (talk(["a"]), "row 1: a message has a part a, and this learns from text alone"),
        (written("a.jsonl", '{"text": ["a", "b"]}\n'), "must be a text, or a list of messages"),
        (written("a.json", '[{"text": "a"}'), r"a\.json is damaged, or no \.json file"),
        (written("a.txt", b"\xff\xfe"), r"a\.txt is damaged, or no \.txt file"),
        (written("a.jsonl", b'{"text": "\xff"}'), r"a\.jsonl is damaged"),
        (written("a.parquet", b"PAR1 no"), r"a\.parquet is damaged, or no \.parquet file"),
        (parquet_of(text=[1, 2], label=[0, 1]), "a.parquet, row 1: must be a text"),
        (parquet_of(review=["good"], label=[1]), "--column is to be one of review, label"),
    ],
)
def test_what_is_no_text_is_refused(write, said, made, tmp_path):
    (tmp_path / "data").mkdir()
    with pytest.raises(RefusalError, match=said):
        prepare(write(tmp_path / "data"), made / "model", tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*"))


def test_a_column_can_be_named(made, tmp_path):
    parquet_of(review=["good"], label=[1])(tmp_path)
    assert prepare(tmp_path, made / "model", tmp_path / "cache", "review").is_file()


def test_a_tokenizer_must_be_the_models(made, tmp_path):
    with pytest.raises(RefusalError, match="has no tokenizer"):
        prepare(made / "texts", made / "texts", tmp_path)
    with pytest.raises(RefusalError, match="tokens, and the model 100: it is another model's"):
        text.prepare(made / "texts", made / "model", tmp_path, Form(1, 100))


def test_conversations_need_a_template(made, tmp_path):
    tokenizer = tmp_path / "tokenizer"
    shutil.copytree(made / "model", tokenizer)
    for template, said in (
        ("", "has no chat template"),
        ("{{ messages[0].content }}", "leaves out messages of the role assistant"),
        ("{{ raise_exception('roles must alternate') }}", "does not take a conversation: roles must alternate"),
        # A template is part of a download: it cannot reach out of Jinja's sandbox.
        ("{{ messages.__class__.__mro__ }}", "unsafe"),
    ):
        (tokenizer / "chat_template.jinja").write_text(template)
        with pytest.raises(RefusalError, match=said):
            prepare(made / "texts" / "talks.jsonl", tokenizer, tmp_path / "cache")
    (tokenizer / "chat_template.jinja").write_text("{% for each in messages %}{{ each.content }}{% endfor %}")
    call = {"type": "function", "function": {"name": "look", "arguments": "{}"}}
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": [{"role": "assistant", "tool_calls": [call]}]}))
    with pytest.raises(RefusalError, match="the chat template leaves out tool_calls"):
        prepare(tmp_path / "a.jsonl", tokenizer, tmp_path / "cache")
