"""Texts become examples, once; what is no text is refused."""

import json
import lzma
import shutil
from pathlib import Path

import pyarrow.parquet
import pytest
from trainium_workloads.finetune import make_data, rows, text
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


def test_tokens_equal_the_tokenizers(made, tmp_path):
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


def test_empty_texts_are_skipped_and_a_txt_file_is_one_text(made, tmp_path):
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


def test_tokens_are_cached_and_rebuilt_when_damaged(made, tmp_path, capsys):
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


def test_message_parts_are_joined_like_the_server_does(made, tmp_path):
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
        (written("a.jsonl", '{"body": "a"}\n'),
         "has no column messages or .* or text or content; --column is to be one of body, or two of them"),
        (written("a.jsonl", '"a"\n'), "a row must be an object, not 'a'"),
        (written("a.jsonl", '{"messages": "a"}\n'), "row 1: messages must be a list of messages .*, not a text"),
        (written("a.jsonl", '{"instruction": "a", "input": 41, "output": "b"}\n'), "input must be a text, not 41"),
        (written("a.jsonl", '{"instruction": "a", "history": ["b"], "output": "b"}\n'),
         "history must be a list of pair"),
        (written("a.jsonl", '{"prompt": "a", "completion": "b", "tools": [{}]}'),
         "column tools: it is not read beside"),
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
)  # fmt: skip
def test_data_without_text_is_refused(write, said, made, tmp_path):
    (tmp_path / "data").mkdir()
    with pytest.raises(RefusalError, match=said):
        prepare(write(tmp_path / "data"), made / "model", tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*"))


def lines(path, *found):
    path.write_text("".join(f"{json.dumps(each)}\n" for each in found))
    return path


def read(directory, *found, column=None):
    return [*rows.read([lines(directory / "a.jsonl", *found)], column, directory)]


ASKS, REPLY = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}


@pytest.mark.parametrize(("name", "decision"), [(name, each) for name, (each, _) in rows.decisions("row").items()])
def test_each_known_column_is_used_or_refused(name, decision, tmp_path, capsys):
    samples = {
        "system": "Ah",
        "tools": '[{"name": "f"}]',
        "chat_template_kwargs": {"tools": 1},
        "history": [["a", "b"]],
    }
    value = samples.get(name, 1 if decision == "wanted" else ["a"])
    talk, asked = {"messages": [ASKS, REPLY]}, {"instruction": "Hi", "output": "Yo"}
    row = (talk if name not in ("history", "input") else asked) | ({name: value} if decision != "learnt" else {})
    if "refused" in decision:
        with pytest.raises(RefusalError, match=rf"row 1 has a column {name}: "):
            read(tmp_path, row)
        if decision == "refused":
            assert read(tmp_path, {"text": "a", name: value}), "a text is whole"
            assert f"columns that are not read: {name}" in capsys.readouterr().out
        return
    (found,) = read(tmp_path, row)
    assert "not read" not in capsys.readouterr().out
    if decision == "used":
        (bare,) = read(tmp_path, {key: each for key, each in row.items() if key != name})
        assert found != bare
    if decision == "wanted":
        with pytest.raises(RefusalError, match=rf"row 1 has {name} False: "):
            read(tmp_path, row | {name: False})


@pytest.mark.parametrize(("name", "decision"), [(name, each) for name, (each, _) in rows.FIELDS.items()])
def test_each_known_field_is_used_or_refused(name, decision, tmp_path):
    value = {"weight": 0, "needed": [{"name": "f", "arguments": '{"a": 1}'}]}.get(decision, "a")
    if decision == "refused":
        with pytest.raises(RefusalError, match=f"row 1: a message has {name}: "):
            read(tmp_path, {"messages": [ASKS, REPLY | {name: value}]})
        return
    (found,) = read(tmp_path, {"messages": [ASKS, REPLY | {name: value}, ASKS, REPLY]})
    if decision == "weight":
        assert (found.context, found.messages[1]) == ({1}, REPLY)
        for message, told in ((REPLY | {name: 0.5}, "not 0.5"), (ASKS | {name: True}, f"{name} of .* role user")):
            with pytest.raises(RefusalError, match=told):
                read(tmp_path, {"messages": [message]})
    elif decision in ("needed", "passed"):
        assert name in found.messages[1]


def test_unread_columns_of_each_format_are_printed_once(tmp_path, capsys):
    of_sharegpt = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yo"}]
    found = read(tmp_path, {"conversations": of_sharegpt, "id": 1}, {"messages": [ASKS, REPLY], "id": "a", "source": 2})
    assert found[0].messages == found[1].messages == [ASKS, REPLY]
    said = capsys.readouterr().out
    assert said.count("\n") == 2, said
    assert "row 1: columns that are not read: id\n" in said
    assert "row 2: columns that are not read: source\n" in said
    with pytest.raises(RefusalError, match="a message is from 'function_call', not human"):
        read(tmp_path, {"conversations": [{"from": "function_call", "value": "Hi"}]})
    (asked,) = read(tmp_path, {"instruction": "Hi", "output": "Yo", "history": [["a", "b"]], "system": "Ah"})
    assert [each["content"] for each in asked.messages] == ["Ah", "a", "b", "Hi", "Yo"]
    assert read(tmp_path, {"chosen": [ASKS, REPLY], "rejected": [ASKS]}, column="chosen")[0].kind == "messages"
    assert not read(tmp_path, {"text": None}, {"prompt": "a", "completion": None})
    assert "2 rows are left out because their text is null; the first is" in capsys.readouterr().out


def test_json_rows_need_no_common_schema(tmp_path, capsys):
    early = {"messages": [ASKS, REPLY], "source": None, "pad": "x" * 1_000_000}
    call = REPLY | {"tool_calls": [{"function": {"name": "f", "arguments": {}}}]}
    late = {"messages": [ASKS, call], "source": "web", "score": 0.5}
    assert len(read(tmp_path, *[early] * 11, late)) == 12
    assert read(tmp_path, {"text": "2026-11-28T10:00:00"})[0].completion == "2026-11-28T10:00:00"
    (tmp_path / "b.json").write_text('\ufeff[{"text": "a"},\n {"text": "b"}]')
    assert len([*rows.read([tmp_path / "b.json"], None, tmp_path)]) == 2
    empty = [lines(tmp_path / "c.jsonl"), tmp_path / "d.parquet", tmp_path / "e.arrow"]
    table = pyarrow.table({"text": pyarrow.array([], pyarrow.string())})
    pyarrow.parquet.write_table(table, empty[1])
    with pyarrow.ipc.new_stream(str(empty[2]), table.schema):
        pass
    assert not [*rows.read(empty, None, tmp_path)]
    said = capsys.readouterr().out
    assert all(f"{each} has no rows" in said for each in empty)


def test_conversations_between_texts_are_not_cut(made, tmp_path):
    path = lines(tmp_path / "a.jsonl", {"text": "each rank"}, {"prompt": "each rank", "completion": " waits"})
    with pytest.raises(RefusalError, match=r"row 2 is not text, as .*row 1 is: take --packing documents"):
        text.prepare(path, made / "model", tmp_path, Form(8, VOCABULARY))
    assert len(Rows(text.prepare(path, made / "model", tmp_path, Form(8, VOCABULARY, packing="none")))) == 2


def test_a_column_can_be_named(made, tmp_path):
    parquet_of(review=["good"], label=[1])(tmp_path)
    assert prepare(tmp_path, made / "model", tmp_path / "cache", "review").is_file()


def test_foreign_tokenizer_is_refused(made, tmp_path):
    with pytest.raises(RefusalError, match="has no tokenizer"):
        prepare(made / "texts", made / "texts", tmp_path)
    with pytest.raises(RefusalError, match="tokens, and the model 100: it is another model's"):
        text.prepare(made / "texts", made / "model", tmp_path, Form(1, 100))


def test_conversation_without_a_template_is_refused(made, tmp_path):
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
