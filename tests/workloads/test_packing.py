"""Documents side by side in an example do not see each other: their losses are those of each alone."""

import pytest
import torch
from test_finetune import FAMILIES, configuration
from trainium_workloads.causality import mixes_documents
from trainium_workloads.finetune import make_data, packing, text, train
from trainium_workloads.finetune.targets import Document
from trainium_workloads.finetune.text import Form
from trainium_workloads.tokenized import Rows
from transformers import AutoConfig, AutoModelForCausalLM, masking_utils


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    directory = tmp_path_factory.mktemp("made")
    make_data.make(directory, 60, configuration("qwen3"))
    return directory


@pytest.fixture(autouse=True)
def packed_sequences(monkeypatch):
    """Tells transformers that examples are packed, whatever a training in this process told before."""
    monkeypatch.setattr(masking_utils, "find_packed_sequence_indices", train._document_of_each)


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_and_separate_documents_have_the_same_loss(family, made, tmp_path, capsys):
    is_mixed = family == "gpt-oss"  # transformers 5.23.0 does not give its masks the positions
    assert mixes_documents(configuration(family)) is is_mixed
    if is_mixed:
        return
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(configuration(family)).eval()
    sums = {}
    for how in ("none", "documents"):
        form = Form(256, 512, packing=how)
        data = Rows(text.prepare(made / "texts" / "talks.jsonl", made / "model", tmp_path, form))
        assert train._tell_whether_packed(data) is (how == "documents")
        batch = data.at(range(len(data)))
        positions = {"position_ids": batch["positions"][:, :-1]} if how == "documents" else {}
        with torch.no_grad():
            logits = model(input_ids=batch["tokens"][:, :-1], use_cache=False, **positions).logits
        targets = batch["labels"][:, 1:].flatten()
        losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets, reduction="none")
        sums[how] = losses[losses > 0].sort().values, len(data)
    torch.testing.assert_close(sums["none"][0], sums["documents"][0], rtol=1e-5, atol=1e-5)
    assert sums["documents"][1] < sums["none"][1] / 2
    assert " % padding; " in capsys.readouterr().out


def test_rows_are_filled_and_long_documents_are_truncated_or_split(tmp_path, capsys):
    sizes = [5, 9, 3, 20, 1, 2]
    documents = [Document([each] * each, [each] * each, each == 20) for each in sizes]
    documents.append(Document([7] * 20, [-100] * 15 + [7] * 5))
    (tmp_path / "a" / "b").mkdir(parents=True)
    packing.write(tmp_path / "a" / "b" / "c", iter(documents), 9, "documents", 0)
    rows = Rows(tmp_path / "a" / "b" / "c")
    batch = rows.at(range(len(rows)))
    assert sorted(x for each in batch["tokens"].tolist() for x in each if x) == sorted(
        [5] * 5 + [9] * 9 + [3] * 3 + [20] * 22 + [2] * 2
    )
    assert batch["positions"][batch["labels"] != -100].min() == 1
    said = capsys.readouterr().out
    assert "5 examples of 9 tokens; 18.0 % padding" in said
    assert "1 documents were longer and are cut; 2 left out, with nothing to learn in so many tokens" in said


@pytest.mark.parametrize(("kind", "mixes"), [("gpt2", False), ("mamba", True), ("bloom", True)])
def test_stateful_model_is_reported_as_mixing_documents(kind, mixes):
    small = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2}
    assert mixes_documents(AutoConfig.for_model(kind, **small)) is mixes


def test_model_that_mixes_documents_is_refused_and_trains_unpacked(gang, made, tmp_path):
    AutoConfig.for_model("mamba", hidden_size=32, num_hidden_layers=1, vocab_size=512, state_size=4).save_pretrained(
        tmp_path / "mamba"
    )
    common = ["--model", tmp_path / "mamba", "--tokenizer", made / "model", "--data", made / "texts" / "talks.jsonl"]
    common += ["--seq-len", 128, "--steps", 1, "--backend", "cpu", "--precision", "fp32", "--sharding", "none"]
    ended = gang("trainium_workloads.finetune.train", *common, ranks=1, code=78)
    assert "--packing documents: " in ended.err[0]
    assert "Take --packing none" in ended.err[0]
    gang("trainium_workloads.finetune.train", *common, "--packing", "none", ranks=1)
