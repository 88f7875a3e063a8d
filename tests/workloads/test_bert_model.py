"""BERT's loss at the masked positions alone is that of `transformers` over all, and its files are read or refused."""

import shutil

import pytest
import torch
import transformers
from torch.nn import functional
from trainium_workloads.bert import make_data
from trainium_workloads.bert.config import config_of
from trainium_workloads.bert.task import BertForPreTraining, MadeUp, Pretraining, masked_loss
from trainium_workloads.bert.wikicorpus import batch_of
from trainium_workloads.model_directory import read_model, write_model
from trainium_workloads.training.order import Order
from trainium_workloads.training.progress import differences
from trainium_workloads.training.refusal import RefusalError
from trainium_workloads.training.task import parameter_count


def _small(backend="cpu", layers=2, hidden=32):
    config = config_of("tiny", backend, vocabulary=160, dropout=0.0)
    config.num_hidden_layers, config.hidden_size, config.intermediate_size = layers, hidden, 48
    return config


@pytest.mark.parametrize("backend", ["cpu", "xla"])  # by PyTorch's kernel, and in plain operators
def test_loss_and_gradients_equal_transformers(backend):
    torch.manual_seed(3)
    ours = BertForPreTraining(_small(backend))
    theirs = transformers.BertForPreTraining(_small())
    theirs.load_state_dict(ours.state_dict())
    columns = make_data.make(6, sequence=32, predictions=5, vocabulary=160, seed=1)
    batch = batch_of([(columns, row) for row in range(6)], 5)
    everywhere = torch.full_like(batch["tokens"], -100)
    row, at = batch["positions"].nonzero(as_tuple=True)
    everywhere[row, batch["positions"][row, at]] = batch["answers"][row, at]
    given = {"input_ids": batch["tokens"], "attention_mask": batch["mask"], "token_type_ids": batch["segments"]}
    expected = theirs(**given, labels=everywhere, next_sentence_label=batch["labels"])
    expected.loss.backward()
    loss = Pretraining(ours.config, None).loss(ours, batch)
    loss.total.backward()
    torch.testing.assert_close(loss.total, expected.loss, rtol=1e-5, atol=1e-6)
    gradients = {name: each.grad for name, each in theirs.named_parameters()}
    for name, each in ours.named_parameters():
        torch.testing.assert_close(each.grad, gradients[name], rtol=1e-4, atol=1e-6)


def test_sizes_equal_the_papers():
    with torch.device("meta"):
        counts = {name: parameter_count(BertForPreTraining(config_of(name, "cpu"))) for name in ("base", "large")}
    # The paper says 110 and 340 million, without the heads.
    assert counts == {"base": 110_106_428, "large": 336_226_108}


def test_a_model_is_written_for_transformers_and_read_again(tmp_path):
    ours = BertForPreTraining(_small())
    state = {name: each.bfloat16() for name, each in ours.state_dict().items()}
    write_model(ours, state, tmp_path / "out" / "model", facts={"steps": 3})
    write_model(ours, state, tmp_path / "out" / "model")  # takes the place of the first
    assert [each.name for each in (tmp_path / "out").iterdir()] == ["model"]
    theirs, told = transformers.BertForPreTraining.from_pretrained(tmp_path / "out/model", output_loading_info=True)
    assert not told["missing_keys"] | told["unexpected_keys"]
    again = read_model(BertForPreTraining, tmp_path / "out", ours.config)  # of the directory above it, too
    for name, each in theirs.state_dict().items():
        assert torch.equal(again.state_dict()[name], each)
        assert torch.equal(each, state[name].float())


def test_foreign_weights_are_refused_with_all_differences(tmp_path):
    ours = BertForPreTraining(_small())
    write_model(ours, ours.state_dict(), tmp_path / "model")
    for place, config, said in (
        ("", _small(hidden=64), r"another model: .* has the shape \[.*32\], not \[.*64\].* more; give its own --"),
        ("", _small(layers=3), r"another model: .*layer\.2\..* is not in it"),
        ("nothing", ours.config, r"nothing holds no model \(config\.json\).*once its last step is done"),
        ("damaged", ours.config, r"model cannot be read as a model: "),
    ):
        if place == "damaged":
            weights = shutil.copytree(tmp_path / "model", tmp_path / "damaged" / "model") / "model.safetensors"
            weights.write_bytes(weights.read_bytes()[:-100])
        with pytest.raises(RefusalError, match=said):
            read_model(BertForPreTraining, tmp_path / place, config)


def test_checkpoint_of_the_former_bert_is_refused():
    task = Pretraining(config_of("tiny", "cpu"), MadeUp(20, sequence=32, predictions=5, vocabulary=256, seed=1))
    order = Order(20, 1, 4, 1, 0, 1)
    before = {"model": "bert", "layers": 2, "hidden": 64, "vocabulary": 256, "sequence": 32}
    theirs = {"identity": before, "examples": 20, "seed": 1, "global_batch": 4}
    [line] = differences(theirs, task.identity, order)
    assert line == "its model is bert, here BertForPreTraining"


def test_unmasked_positions_have_no_loss():
    words = torch.randn(2, 3, 7)
    answers = torch.tensor([[1, 2, 0], [3, 0, 0]])
    is_masked = torch.tensor([[True, True, False], [True, False, False]])
    expected = functional.cross_entropy(words[is_masked], answers[is_masked])
    torch.testing.assert_close(masked_loss(words, answers, is_masked), expected)
    assert masked_loss(words, answers, torch.zeros_like(is_masked)).item() == 0.0
