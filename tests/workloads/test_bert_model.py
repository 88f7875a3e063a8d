"""BERT is the published model: `transformers` judges its loss, its gradients and its files."""

from pathlib import Path

import pytest
import torch
from torch.nn import functional
from trainium_workloads.bert import synthetic, weights
from trainium_workloads.bert.model import SIZES, BertForPreTraining, Sizes, attention
from trainium_workloads.bert.task import Pretraining, masked_loss
from trainium_workloads.bert.wikicorpus import batch_of
from trainium_workloads.training.refusal import Refusal
from trainium_workloads.training.task import Batch, parameter_count

SMALL = Sizes(layers=2, hidden=32, heads=4, intermediate=48, vocabulary=160, positions=40, dropout=0.0)


def _batch(count: int = 6, sizes: Sizes = SMALL) -> Batch:
    columns = synthetic.make(count, sequence=32, predictions=5, vocabulary=sizes.vocabulary, seed=1)
    return batch_of([(columns, row) for row in range(count)], 5)


def _theirs(sizes: Sizes) -> torch.nn.Module:
    from transformers import BertConfig
    from transformers import BertForPreTraining as Theirs

    torch.manual_seed(3)
    settings = {name: value for name, value in weights._config(sizes).items() if name != "architectures"}
    return Theirs(BertConfig(**settings))  # type: ignore[arg-type]


@pytest.mark.parametrize("plain", [False, True], ids=["fused", "plain"])
def test_loss_and_gradients_are_those_of_transformers(
    tmp_path: Path, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if plain:
        monkeypatch.setattr("trainium_workloads.bert.model._WITH_FUSED_ATTENTION", ())
    theirs = _theirs(SMALL)
    theirs.save_pretrained(tmp_path)  # type: ignore[operator]
    ours = BertForPreTraining(SMALL)
    weights.load(ours, tmp_path)
    batch = _batch()
    everywhere = torch.full_like(batch["tokens"], -100)
    row, at = batch["positions"].nonzero(as_tuple=True)
    everywhere[row, batch["positions"][row, at]] = batch["answers"][row, at]
    expected = theirs(
        input_ids=batch["tokens"],
        attention_mask=batch["mask"],
        token_type_ids=batch["segments"],
        labels=everywhere,
        next_sentence_label=batch["labels"],
    )
    expected.loss.backward()
    loss = Pretraining(SMALL, None).loss(ours, batch)  # type: ignore[arg-type]
    loss.total.backward()
    torch.testing.assert_close(loss.total, expected.loss, rtol=1e-5, atol=1e-6)
    gradients = {name: each.grad for name, each in theirs.named_parameters()}
    for name, each in ours.named_parameters():
        torch.testing.assert_close(each.grad, gradients[name], rtol=1e-4, atol=1e-6)
    assert parameter_count(ours) == parameter_count(theirs)


def test_what_is_exported_is_read_by_transformers(tmp_path: Path) -> None:
    from transformers import BertForPreTraining as Theirs

    ours = BertForPreTraining(SMALL).eval()
    weights.export(ours.state_dict(), SMALL, tmp_path)
    theirs, said = Theirs.from_pretrained(tmp_path, output_loading_info=True)
    assert not said["missing_keys"]
    assert not said["unexpected_keys"]
    batch = _batch()
    words, follows = ours(batch["tokens"], batch["segments"], batch["mask"], batch["positions"])
    expected = theirs(batch["tokens"], batch["mask"], batch["segments"])
    chosen = expected.prediction_logits[torch.arange(6)[:, None], batch["positions"]]
    torch.testing.assert_close(words, chosen, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(follows, expected.seq_relationship_logits, rtol=1e-4, atol=1e-5)


def test_sizes_are_those_of_the_paper() -> None:
    with torch.device("meta"):
        counts = {name: parameter_count(BertForPreTraining(SIZES[name])) for name in ("base", "large")}
    # The paper says 110 and 340 million, without the heads.
    assert counts == {"base": 110_106_428, "large": 336_226_108}


def test_first_published_names_are_read(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    ours = BertForPreTraining(SMALL)
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): each.clone()
        for name, each in ours.state_dict().items()
    }
    old["bert.embeddings.position_ids"] = torch.arange(40)[None]
    save_file(old, tmp_path / "old.safetensors")
    again = BertForPreTraining(SMALL)
    weights.load(again, tmp_path / "old.safetensors")
    for name, each in ours.state_dict().items():
        assert torch.equal(again.state_dict()[name], each)


def test_the_encoder_alone_is_read_where_the_head_is_another(tmp_path: Path) -> None:
    ours = BertForPreTraining(SMALL)
    weights.export(ours.state_dict(), SMALL, tmp_path)

    class Other(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = BertForPreTraining(SMALL).bert
            self.head = torch.nn.Linear(32, 3)

    other = Other()
    weights.load(other, tmp_path, only="bert.")
    assert torch.equal(other.bert.pooler.dense.weight, ours.bert.pooler.dense.weight)


def test_weights_of_another_model_are_refused_with_all_that_differs(tmp_path: Path) -> None:
    weights.export(BertForPreTraining(SMALL).state_dict(), SMALL, tmp_path)
    wider = BertForPreTraining(Sizes(layers=1, hidden=32, heads=4, intermediate=64, vocabulary=160, positions=40))
    with pytest.raises(
        Refusal,
        match=r"another model: .*intermediate\.dense\.weight has the shape \[48, 32\], not \[64, 32\].* more.*--size",
    ):
        weights.load(wider, tmp_path)
    with pytest.raises(Refusal, match=r"nothing is not there: a training writes it once its last step is done"):
        weights.load(wider, tmp_path / "nothing")
    (tmp_path / "cut.safetensors").write_bytes((tmp_path / "model.safetensors").read_bytes()[:-100])
    with pytest.raises(Refusal, match=r"cut\.safetensors cannot be read as safetensors"):
        weights.load(wider, tmp_path / "cut.safetensors")


def test_plain_attention_is_the_fused_one() -> None:
    queries, keys, values = torch.randn(3, 2, 4, 16, 8).unbind(0)
    seen = (torch.rand(2, 1, 1, 16) < 0.7) | (torch.arange(16) == 0)
    torch.testing.assert_close(
        attention(queries, keys, values, attn_mask=seen, dropout_p=0.0),
        functional.scaled_dot_product_attention(queries, keys, values, attn_mask=seen),
    )


def test_padding_changes_nothing() -> None:
    ours = BertForPreTraining(SMALL).eval()
    batch = _batch()
    other = batch["tokens"].masked_fill(batch["mask"] == 0, 110)
    assert not torch.equal(other, batch["tokens"])
    first, second = (
        ours(each, batch["segments"], batch["mask"], batch["positions"]) for each in (batch["tokens"], other)
    )
    torch.testing.assert_close(first, second)


def test_places_that_hide_no_word_count_nothing() -> None:
    words = torch.randn(2, 3, 7)
    answers = torch.tensor([[1, 2, 0], [3, 0, 0]])
    is_hidden = torch.tensor([[True, True, False], [True, False, False]])
    expected = functional.cross_entropy(words[is_hidden], answers[is_hidden])
    torch.testing.assert_close(masked_loss(words, answers, is_hidden), expected)
    assert masked_loss(words, answers, torch.zeros_like(is_hidden)).item() == 0.0


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_half_precision_is_finite(kind: torch.dtype) -> None:
    batch = _batch()
    for plain in (False, True):
        ours = BertForPreTraining(SMALL).to(kind)
        with pytest.MonkeyPatch.context() as patch:
            if plain:
                patch.setattr("trainium_workloads.bert.model._WITH_FUSED_ATTENTION", ())
            loss = Pretraining(SMALL, None).loss(ours, batch)  # type: ignore[arg-type]
        loss.total.backward()
        assert loss.total.isfinite()
        assert all(each.grad.isfinite().all() for each in ours.parameters())
