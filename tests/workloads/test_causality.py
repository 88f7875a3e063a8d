"""Models that see future tokens are distinguished from causal ones, whatever their class."""

import pytest
from trainium_workloads.causality import sees_future
from trainium_workloads.finetune import models
from trainium_workloads.serving import generator
from trainium_workloads.training.refusal import RefusalError
from transformers import AutoConfig

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2}
DECODER = {"is_decoder": True}


@pytest.mark.parametrize(
    ("kind", "settings", "sees"),
    [
        ("bert", {}, True),
        ("bert", DECODER, False),
        ("roberta", {}, True),
        ("electra", {}, True),
        ("big_bird", {"max_position_embeddings": 4096}, True),
        ("big_bird", {"max_position_embeddings": 4096, **DECODER}, True),
        ("xlm", {}, True),
        ("xmod", {}, True),
        ("xlnet", {"d_head": 16}, True),
        ("gemma3_text", {"layer_types": ["full_attention"] * 2}, False),
        ("gemma3_text", {"layer_types": ["full_attention"] * 2, "use_bidirectional_attention": True}, True),
        ("gpt2", {}, False),
        ("qwen3", {"vocab_size": 152_000, "pad_token_id": 151_643}, False),
        ("mamba", {}, False),
        ("gpt_oss", {"layer_types": ["sliding_attention", "full_attention"]}, False),
    ],
)
def test_model_that_sees_future_tokens_is_detected(kind, settings, sees):
    assert sees_future(AutoConfig.for_model(kind, **SMALL, **settings)) is sees


def test_non_causal_model_is_neither_tuned_nor_served(tmp_path):
    AutoConfig.for_model("roberta", **SMALL).save_pretrained(tmp_path)
    with pytest.raises(RefusalError, match="is a roberta whose positions see the tokens after them"):
        models.find(str(tmp_path), tmp_path / "output", 0)
    with pytest.raises(RefusalError, match="is a roberta that sees the tokens after each: it continues no text"):
        generator._check_continues(tmp_path, tmp_path)
    AutoConfig.for_model("bart", decoder_layers=1, d_model=32).save_pretrained(tmp_path)
    with pytest.raises(RefusalError, match="holds a bart, whose decoder alone"):
        models.find(str(tmp_path), tmp_path / "output", 0)
