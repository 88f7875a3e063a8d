"""Tokens that are learnt: TRL's, by the template's marks or by rendered prefixes; rows without any are counted."""

import json
import random
from importlib.resources import files

import pytest
from trainium_workloads.finetune import make_data, text
from trainium_workloads.finetune.targets import IGNORED
from trainium_workloads.finetune.text import Form
from trainium_workloads.tokenized import Rows, read_tokenizer
from trainium_workloads.training.refusal import RefusalError

LENGTH = 200
SAID = ["each rank waits. ", " Grüße, 世界 ", "\n def f(x):\n  return x\n", " <think>no</think> yes ", "  a  "]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    directory = tmp_path_factory.mktemp("made")
    make_data.make(directory, 40, make_data.configuration("qwen3"))
    tokenizer, _ = read_tokenizer(directory / "model")
    tokenizer.bos_token = "<|user|>"  # templates put one in front
    tokenizer.save_pretrained(directory / "model")
    return directory


def template(name):
    return files("trl").joinpath("chat_templates", f"{name}.jinja").read_text()


def conversations(count, *, has_system):
    chance = random.Random(1)
    for _ in range(count):
        talk = [{"role": "system", "content": "Be brief."}] if has_system and chance.random() < 0.3 else []
        for _ in range(chance.randint(1, 4)):
            talk += [{"role": role, "content": chance.choice(SAID)} for role in ("user", "assistant")]
        yield talk


def write(path, rows):
    path.write_text("".join(f"{json.dumps(each)}\n" for each in rows))
    return path


def theirs(rows, tokenizer, directory, monkeypatch, **settings):
    """Return tokens and labels by TRL's trainer and collator."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM
    from trl import SFTConfig, SFTTrainer

    monkeypatch.setenv("HF_DATASETS_CACHE", str(directory / "cache"))
    config = SFTConfig(
        output_dir=str(directory / "trl"), max_length=LENGTH + 1, use_cpu=True, bf16=False, report_to=[], **settings
    )
    model = AutoModelForCausalLM.from_pretrained(directory / "model")
    trainer = SFTTrainer(model, config, train_dataset=Dataset.from_list(rows), processing_class=tokenizer)
    collated = trainer.data_collator([trainer.train_dataset[each] for each in range(len(trainer.train_dataset))])
    return collated["input_ids"].tolist(), collated["labels"].tolist()


def ours(path, made, cache, **form):
    found = Rows(text.prepare(path, made / "model", cache, Form(LENGTH, 512, packing="none", **form)))
    rows = found.at(range(len(found)))
    return rows["tokens"].tolist(), rows["labels"].tolist()


def assert_same(found, expected):
    """Compare what is predicted: nothing predicts a first token, and lengths of padding differ."""
    assert len(found[0]) == len(expected[0])
    for tokens, labels, their_tokens, their_labels in zip(*found, *expected, strict=True):
        end = max(place for place, each in enumerate(labels) if each != IGNORED) + 1
        assert labels[1:end] == their_labels[1:end]
        assert {*labels[end:], *their_labels[end:]} <= {IGNORED}
        assert tokens[:end] == their_tokens[:end]


FAMILIES = ["llama3", "phi3", "gemma", "cohere", "qwen2_5_training", "qwen3_training", "lfm2_training"]


@pytest.mark.parametrize("name", FAMILIES)
def test_assistant_tokens_equal_trls(name, made, tmp_path, monkeypatch):
    talks = [{"messages": each} for each in conversations(200, has_system=name != "gemma")]
    (tmp_path / "a.jinja").write_text(template(name))
    path = write(tmp_path / "a.jsonl", talks)
    tokenizer, _ = read_tokenizer(made / "model")
    tokenizer.chat_template = template(name)
    expected = theirs(talks, tokenizer, made, monkeypatch, assistant_only_loss=True)
    assert_same(ours(path, made, tmp_path, chat_template=tmp_path / "a.jinja"), expected)


@pytest.mark.parametrize("kind", ["texts", "messages", "alpaca"])
def test_completion_tokens_equal_trls(kind, made, tmp_path, monkeypatch):
    chance = random.Random(2)
    pairs = [(chance.choice(SAID), chance.choice(SAID)) for _ in range(50)]
    rows = [{"prompt": ask, "completion": said} for ask, said in pairs]
    if kind != "texts":
        roles = {"prompt": "user", "completion": "assistant"}
        rows = [{key: [{"role": roles[key], "content": each}] for key, each in row.items()} for row in rows]
    given = rows
    if kind == "alpaca":
        given = [{"instruction": ask, "input": "", "output": said} for ask, said in pairs]
        given[0]["input"] = "Table"
        rows[0]["prompt"][0]["content"] += "\n\nTable"
    tokenizer, _ = read_tokenizer(made / "model")
    tokenizer.chat_template = template("qwen3")
    (tmp_path / "a.jinja").write_text(template("qwen3"))
    expected = theirs(rows, tokenizer, made, monkeypatch)
    assert_same(ours(write(tmp_path / "a.jsonl", given), made, tmp_path, chat_template=tmp_path / "a.jinja"), expected)


def learnt(rows, made, tmp_path, name="qwen3", **form):
    """Return the learnt text of each row."""
    (tmp_path / "a.jinja").write_text(template(name) if len(name) < 20 else name)
    path = write(tmp_path / f"{len([*tmp_path.iterdir()])}.jsonl", rows)
    _, found = ours(path, made, tmp_path / "cache", chat_template=tmp_path / "a.jinja", **form)
    tokenizer, _ = read_tokenizer(made / "model")
    return [tokenizer.decode([each for each in labels if each != IGNORED]) for labels in found]


def test_each_kind_of_loss_fits_each_kind_of_row(made, tmp_path):
    ask, reply = ({"role": role, "content": content} for role, content in (("user", "Hi"), ("assistant", "Yo")))
    talk, split = {"messages": [ask, reply, ask, reply]}, {"prompt": [ask, reply, ask], "completion": [reply]}
    first, last = "Yo<|im_end|>\n", "<think>\n\n</think>\n\nYo<|im_end|>\n"
    assert learnt([talk], made, tmp_path) == [first + last]
    assert learnt([talk], made, tmp_path, loss_on="completion") == [last]
    assert learnt([split], made, tmp_path) == [last]
    assert learnt([split], made, tmp_path, loss_on="assistant") == [first + last]
    (whole,) = learnt([split], made, tmp_path, loss_on="all")
    assert whole == learnt([talk], made, tmp_path, loss_on="all")[0]
    assert whole.count("Hi") == whole.count("Yo") == 2
    assert learnt([{"q": "1 + 1", "a": " = 2"}], made, tmp_path, column="q,a") == [" = 2<|end|>"]
    for row, loss_on in (({"text": "a"}, "completion"), ({"text": "a"}, "assistant"), (split | {"prompt": "a"}, None)):
        with pytest.raises(RefusalError, match=r"row 1: (a text without a prompt|texts have no|prompt and completion)"):
            learnt([row], made, tmp_path, loss_on=loss_on)


def test_rows_without_an_answer_are_counted(made, tmp_path, capsys):
    ask, reply = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}
    rows = [[ask, reply], [ask], [ask, reply | {"content": " "}], [ask | {"content": "Hi " * 300}, reply]]
    found = learnt([{"messages": each} for each in rows], made, tmp_path, name="llama3")
    assert found == ["Yo<|eot_id|>"]
    said = capsys.readouterr().out
    assert "1 rows without an answer to learn are left out\n1 rows with an empty answer are left out\n" in said
    assert "1 documents were longer and are cut; 1 left out, with nothing to learn" in said
    bare = "{% for each in messages %}[{{ each.role }}]{{ each.content }}{% endfor %}"
    assert learnt([{"messages": [ask, reply]}], made, tmp_path, name=bare) == ["[assistant]Yo"]
    assert "1 conversations that the chat template ends without an end-of-turn token" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "deepseekv3",
            r"row 1: this chat template does not tell .* the generation prompt, .*think>.*take --loss-on all",
        ),
        ("{% for each in messages %}{{ each.content }}{% endfor %}{# {% generation %} #}", "marks nothing of it with"),
    ],
)
def test_template_without_marked_answers_is_refused(name, said, made, tmp_path):
    talk = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]
    with pytest.raises(RefusalError, match=said):
        learnt([{"messages": talk}], made, tmp_path, name=name)


CALL = {"type": "function", "function": {"name": "weather", "arguments": '{"city": "Bern"}'}}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
TALK = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "sunny"},
    {"role": "assistant", "content": "Yo"},
]
PRINTED = '<tool_call>\n{"name": "weather", "arguments": {"city": "Bern"}}\n</tool_call><|im_end|>\n'
PLAIN = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name }}"
PLAIN += "{{ c.function.arguments }}{% endfor %}<end>{% endfor %}{{ '[assistant]' if add_generation_prompt }}"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("qwen2_5", f"{PRINTED}Yo<|im_end|>\n"),
        ("qwen3", f"{PRINTED}<think>\n\n</think>\n\nYo<|im_end|>\n"),
        (PLAIN, 'weather{"city": "Bern"}<end>Yo<end>'),
    ],
)
def test_tool_calls_are_trained_as_servers_print_them(name, expected, made, tmp_path, monkeypatch):
    monkeypatch.setattr("test_targets.LENGTH", 900)
    assert learnt([{"messages": TALK}], made, tmp_path, name=name) == [expected]
    if name == PLAIN:
        with pytest.raises(RefusalError, match="the chat template leaves out tools"):
            learnt([{"messages": TALK, "tools": [TOOL]}], made, tmp_path, name=name)
        return
    (whole,) = learnt([{"messages": TALK, "tools": json.dumps([TOOL])}], made, tmp_path, name=name, loss_on="all")
    assert '"name": "weather", "parameters"' in whole


@pytest.mark.parametrize("name", ["qwen2_5", "qwen2_5_training"])
def test_answers_with_weight_0_are_not_trained(name, made, tmp_path):
    ask, wrong, right = TALK[0], {"role": "assistant", "content": "no", "weight": 0}, TALK[3]
    talk = {"messages": [ask, wrong, ask, right | {"train": True}]}
    (found,) = learnt([talk], made, tmp_path, name=name)
    assert found.strip() == "Yo<|im_end|>"
    assert len(learnt([talk, {"messages": [ask, wrong]}], made, tmp_path, name=name)) == 1
    with pytest.raises(RefusalError, match=r"row 1: a message is not to be learnt .*, and --loss-on all"):
        learnt([talk], made, tmp_path, name=name, loss_on="all")


def test_fields_unused_by_the_template_are_named(made, tmp_path, capsys):
    talk = [TALK[0] | {"name": "Ann"}, TALK[3] | {"reasoning_content": "Hm"}]
    assert "Hm" in learnt([{"messages": talk}], made, tmp_path)[0]
    assert "row 1: the chat template leaves out name of messages of the role user\n" in capsys.readouterr().out
    with pytest.raises(RefusalError, match="row 1: the chat template leaves out reasoning_content"):
        learnt([{"messages": talk}], made, tmp_path, name=PLAIN)


def test_begin_token_is_added_once(made, tmp_path, capsys):
    from tokenizers.processors import TemplateProcessing

    tokenizer, _ = read_tokenizer(made / "model")
    (tmp_path / "made").mkdir()
    begin = ("<|user|>", tokenizer.bos_token_id)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="<|user|> $A", special_tokens=[begin])
    tokenizer.save_pretrained(tmp_path / "made" / "model")
    found = []
    for each in ("a node", "<|user|>a node"):
        path = write(tmp_path / f"{len(found)}.jsonl", [{"text": each}, {"prompt": each, "completion": " waits"}][:2])
        found.append(ours(path, tmp_path / "made", tmp_path / "cache"))
    assert found[0] == found[1]
    assert "2 texts with a begin token of their own" in capsys.readouterr().out
