"""Evaluations: the same rows for any number of ranks and after a kill; the best step is kept, and exported."""

import json
import signal

import pytest
import torch
from safetensors.torch import load_file
from trainium_workloads.checkpoint import Checkpoints
from trainium_workloads.finetune import make_data, text
from trainium_workloads.finetune.text import Form
from trainium_workloads.tokenized import Rows
from trainium_workloads.training.layout import facts_of
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

TUNE = "trainium_workloads.finetune.train"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    directory = tmp_path_factory.mktemp("made")
    make_data.make(directory, 60, make_data.configuration("qwen3"))
    return directory


def arguments(made, output, *more):
    found = ["--model", made / "model", "--data", made / "texts" / "talks.jsonl", "--seq-len", 128, "--output", output]
    found += ["--backend", "cpu", "--precision", "fp32", "--checkpoint-seconds", 0, "--token-cache", made / "tokens"]
    return [*map(str, [*found, *more])]


def test_losses_of_other_examples_are_not_compared(gang, made, tmp_path):
    own = ["--eval-every", 1, "--eval-data"]
    gang(TUNE, *arguments(made, "run", *own, made / "texts" / "talks.jsonl", "--steps", 2), ranks=1)
    other = [*own, made / "texts" / "prompts.jsonl", "--steps", 3, "--learning-rate", 1e-12]
    resumed = gang(TUNE, *arguments(made, "run", *other), ranks=1)
    said = ": the best step is reset\nthe next steps are made with steps 3, not 2; learning_rate 1e-12"
    assert said in resumed.out[0]
    assert [*evaluated(resumed)] == [2, 3], "the last step is evaluated with the new ones, too"
    lamb = [*other, "--optimizer", "lamb", "--sharding", "none"]
    assert "its optimizer is adamw, here lamb" in gang(TUNE, *arguments(made, "run", *lamb), ranks=1, code=78).err[0]


def test_exported_model_stops_where_the_answers_end(gang, made, tmp_path):
    marked = "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% else %}{%- generation %}"
    (tmp_path / "a.jinja").write_text(marked + "{{ m.content }}<|user|>{% endgeneration -%}{% endif %}{% endfor %}")
    gang(TUNE, *arguments(made, "run", "--steps", 1, "--chat-template", "a.jinja"), ranks=1)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run" / "model")
    ends = GenerationConfig.from_pretrained(tmp_path / "run" / "model").eos_token_id
    assert ends == [tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids("<|user|>")]
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert tokenizer.apply_chat_template(talk, tokenize=False) == "ab<|user|>"
    assert "generation" not in tokenizer.chat_template


def evaluated(ended):
    return {each["step"]: each["eval_loss"] for each in ended.steps if "eval_loss" in each}


def test_evaluation_fraction_is_taken_from_the_training_data(gang):
    own = ["--size", "tiny", "--synthetic", 60, "--length", 16, "--eval-every", 1, "--eval-fraction", 0.2]
    ended = gang("trainium_workloads.text_classification.train", *map(str, [*own, "--steps", 1, "--backend", "cpu"]))
    assert "eval_accuracy" in ended.steps[0]
    assert "48 examples, " in ended.out[0], "a fraction of the reviews to train with, in place of those to test with"


def test_evaluation_is_the_same_for_any_ranks_and_after_a_kill(gang, made):
    own = ["--eval-fraction", 0.3, "--eval-every", 1, "--steps", 6, "--learning-rate", 0.003, "--checkpoint-every", 3]
    whole = gang(TUNE, *arguments(made, "two", *own, "--batch-size", 2))
    assert "17 examples, 4 a step" in whole.out[0], "of 24, without the evaluated ones"
    assert [*evaluated(whole)] == [1, 2, 3, 4, 5, 6]
    assert evaluated(whole)[6] < evaluated(whole)[1]
    line = whole.steps[-1]
    assert line["eval_perplexity"] == pytest.approx(2.718281828459045 ** line["eval_loss"])
    alone = gang(TUNE, *arguments(made, "one", *own, "--batch-size", 4), ranks=1)
    assert evaluated(alone) == pytest.approx(evaluated(whole), abs=1e-5)
    for name, how in (("killed", {"kill_rank": 1}), ("stopped", {"kill_signal": signal.SIGTERM})):
        before = gang(TUNE, *arguments(made, name, *own, "--batch-size", 2), kill_at=4, **how)
        resumed = gang(TUNE, *arguments(made, name, *own, "--batch-size", 2))
        assert evaluated(before) | evaluated(resumed) == evaluated(whole)


def test_loss_is_the_mean_over_all_trained_tokens(gang, made, tmp_path):
    few = (made / "texts" / "talks.jsonl").read_text().splitlines()[:29]
    (tmp_path / "few.jsonl").write_text("\n".join(few))
    own = ["--packing", "none", "--steps", 1, "--clip", 0, "--learning-rate", 1e-12, "--eval-data", "few.jsonl"]
    (line,) = gang(TUNE, *arguments(made, "run", *own, "--batch-size", 5, "--accumulate", 3)).steps
    model = AutoModelForCausalLM.from_pretrained(made / "model")
    form = Form(128, 512, packing="none")
    expected = {}
    for name, file in (("eval_loss", tmp_path / "few.jsonl"), ("loss", made / "texts" / "talks.jsonl")):
        data = Rows(text.prepare(file, made / "model", tmp_path / "cache", form))
        batch = data.at(range(len(data)))
        logits = model(input_ids=batch["tokens"][:, :-1]).logits.flatten(0, 1)
        expected[name] = torch.nn.functional.cross_entropy(logits, batch["labels"][:, 1:].flatten())
    expected["loss"].backward()
    expected["gradient_norm"] = torch.nn.utils.get_total_norm([each.grad for each in model.parameters()])
    for name, value in expected.items():
        assert line[name] == pytest.approx(float(value), rel=1e-5), name


@pytest.mark.parametrize("wanted", ["best", "last"])
def test_early_stopping_exports_the_best_step(wanted, gang, made, tmp_path):
    own = ["--eval-data", made / "texts" / "train-00000.parquet", "--eval-every", 1, "--patience", 3, "--keep", 1]
    own += ["--steps", 90, "--learning-rate", 0.05, "--warmup-steps", 9, "--sharding", "none", "--export-from", wanted]
    ended = gang(TUNE, *arguments(made, "run", *own), ranks=1)
    losses = evaluated(ended)
    best, last = min(losses, key=losses.get), max(losses)
    assert last == best + 3 < 90
    assert (f"the best step is {best}, with an eval_loss of" in ended.out[0]) is (wanted == "best")
    checkpoints = Checkpoints(tmp_path / "run" / "checkpoints")
    exported = json.loads((tmp_path / "run" / "model" / "trained.json").read_text())["step"]
    assert exported == (best if wanted == "best" else last)
    assert facts_of(checkpoints.at(best))["evaluation"]["best_step"] == best
    weights = load_file(*(tmp_path / "run" / "model").glob("*.safetensors"))
    again = gang(TUNE, *arguments(made, "run", *own), ranks=1)
    assert not again.steps
    assert load_file(*(tmp_path / "run" / "model").glob("*.safetensors")).keys() == weights.keys()


@pytest.mark.parametrize(
    ("module", "own", "value"),
    [
        ("bert.pretrain", ["--eval-fraction", 0.2, "--seq-len", 16], "eval_perplexity"),
        ("text_classification.train", ["--length", 16], "eval_accuracy"),
    ],
)
def test_other_examples_evaluate(module, own, value, gang):
    common = ["--size", "tiny", "--synthetic", 60, "--steps", 3, "--eval-every", 2, "--backend", "cpu", *own]
    ended = gang(f"trainium_workloads.{module}", *map(str, common))
    assert [each["step"] for each in ended.steps if value in each] == [2, 3]
    assert 0 < ended.steps[-1]["eval_loss"] < 20


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (["--eval-fraction", 0.5, "--patience", 2], "--patience is for --eval-every"),
        (["--lora-targets", "q", "--gradient-sync", "each", "--sharding", "none"], "is for --lora; --gradient-sync"),
        (["--eval-every", 2], "--eval-every and --patience need examples: name --eval-data or --eval-fraction"),
        (["--eval-fraction", 1], "--eval-fraction must be less than 1, not 1.0"),
        (["--eval-fraction", 0.5, "--eval-data", "x"], "--eval-data and --eval-fraction: give one of them"),
        (["--packing", "cut", "--loss-on", "assistant"], "needs --packing documents or none"),
    ],
)
def test_impossible_evaluation_is_refused(own, said, gang, made):
    assert said in gang(TUNE, *arguments(made, "run", *own), ranks=1, code=78).err[0]
