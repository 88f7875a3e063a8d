"""The decoder computes what the published implementations of its families do, and reads and writes their files."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from trainium_workloads.decoder import configuration, weights
from trainium_workloads.decoder.configuration import CONFIGURATIONS, Configuration
from trainium_workloads.decoder.memory import Plan, needed
from trainium_workloads.decoder.model import Decoder
from trainium_workloads.training.refusal import Refusal
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

TINY = CONFIGURATIONS["tiny"]
TINY_LLAMA = replace(
    TINY, architecture="LlamaForCausalLM", normed_queries=False, key_value_heads=4, tied=False, begin=1, end=2
)


def published(sizes: Configuration) -> LlamaForCausalLM | Qwen3ForCausalLM:
    """The same by transformers, with random weights."""
    torch.manual_seed(1)
    described = configuration.written(sizes)
    if sizes.architecture == "LlamaForCausalLM":
        return LlamaForCausalLM(LlamaConfig(**described)).float()
    return Qwen3ForCausalLM(Qwen3Config(**described)).float()


@pytest.mark.parametrize("sizes", [TINY, TINY_LLAMA, replace(TINY, tied=False)], ids=["qwen3", "llama", "untied"])
@pytest.mark.parametrize("recompute", [False, True])
def test_logits_and_gradients_are_those_of_transformers(sizes: Configuration, recompute: bool) -> None:
    theirs = published(sizes)
    ours = Decoder(sizes, recompute=recompute)
    ours.load_state_dict(theirs.state_dict())
    tokens = torch.randint(0, sizes.vocabulary, (3, 41))
    torch.testing.assert_close(ours(tokens), theirs(tokens).logits)

    loss = ours(tokens[:, :-1], tokens[:, 1:])
    loss.backward()
    expected = theirs(tokens, labels=tokens).loss
    expected.backward()
    torch.testing.assert_close(loss, expected)
    gradients = {name: each.grad for name, each in theirs.named_parameters()}
    for name, each in ours.named_parameters():
        torch.testing.assert_close(each.grad, gradients[name], msg=name)


def test_targets_that_are_negative_do_not_count() -> None:
    model = Decoder(TINY)
    weights.initialize(model.requires_grad_(False), 0)
    tokens = torch.randint(0, 512, (2, 9))
    targets = tokens[:, 1:].clone()
    targets[:, 3:] = -1
    torch.testing.assert_close(model(tokens[:, :-1], targets), model(tokens[:, :3], tokens[:, 1:4]))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("llama-2-7b", 6_738_415_616),
        ("qwen3-8b", 8_190_735_360),
        ("qwen3-4b", 4_022_468_096),
        ("qwen3-1.7b", 1_720_574_976),
        ("qwen3-0.6b", 596_049_920),
    ],
)
def test_published_sizes_have_the_published_number_of_parameters(name: str, parameters: int) -> None:
    sizes = CONFIGURATIONS[name]
    with torch.device("meta"):
        model = Decoder(sizes)
    assert sizes.parameters == sum(each.numel() for each in model.parameters()) == parameters
    assert sizes.largest_block == sum(each.numel() for each in model.model.layers[0].parameters())


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_configuration_survives_its_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(configuration.written(CONFIGURATIONS[name])))
    assert configuration.named(str(tmp_path)) == CONFIGURATIONS[name]


@pytest.mark.parametrize("sizes", [TINY, TINY_LLAMA], ids=["qwen3", "llama"])
def test_files_of_todays_transformers_are_read(sizes: Configuration, tmp_path: Path) -> None:
    theirs = published(sizes)
    theirs.save_pretrained(tmp_path)
    assert configuration.named(str(tmp_path)) == sizes
    ours = Decoder(sizes)
    with torch.no_grad():
        weights.Published(tmp_path, sizes).fill(ours)
    tokens = torch.arange(12)[None]
    torch.testing.assert_close(ours(tokens), theirs(tokens).logits)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "architectures must be one of LlamaForCausalLM, Qwen3ForCausalLM"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, r"rotary positions are scaled \(yarn\)"),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, r"rotary positions are scaled \(linear\)"),
        ({"hidden_act": "gelu"}, "hidden_act must be silu, not gelu"),
        ({"attention_bias": True}, "attention_bias must be false"),
        ({"use_sliding_window": True}, "use_sliding_window must be false"),
    ],
)
def test_other_models_are_refused(change: dict[str, object], said: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(configuration.written(TINY) | change))
    with pytest.raises(Refusal, match=said):
        configuration.named(str(tmp_path))


def test_a_model_must_be_a_name_or_a_directory(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"neither one of llama-2-7b, .* nor a directory"):
        configuration.named("qwen4")
    with pytest.raises(Refusal, match=r"a model's directory holds its config\.json"):
        configuration.named(str(tmp_path))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(Refusal, match="is no JSON"):
        configuration.named(str(tmp_path))
    without = {name: value for name, value in configuration.written(TINY).items() if name != "vocab_size"}
    (tmp_path / "config.json").write_text(json.dumps(without))
    with pytest.raises(Refusal, match="does not tell 'vocab_size'"):
        configuration.named(str(tmp_path))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Weights of the tiny model in three files."""
    model = Decoder(TINY)
    with torch.no_grad():
        weights.initialize(model, 3)
    found = tmp_path / "weights"
    found.mkdir()
    weights.write(model, TINY, found, file_bytes=TINY.parameters)
    assert len(list(found.glob("*.safetensors"))) == 3
    return found


def test_random_weights_follow_from_seed_and_name() -> None:
    one, same, other = (Decoder(TINY).requires_grad_(False) for _ in range(3))
    for model, seed in ((one, 1), (same, 1), (other, 2)):
        weights.initialize(model, seed)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not torch.equal(one.lm_head.weight, other.lm_head.weight)
    layer = one.model.layers[0]
    assert not torch.equal(layer.self_attn.k_proj.weight, layer.self_attn.v_proj.weight)
    assert layer.self_attn.q_proj.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert layer.mlp.down_proj.weight.std().item() == pytest.approx(0.02 / 2, rel=0.05)


def test_what_is_written_is_what_transformers_reads(directory: Path) -> None:
    model = Decoder(TINY).requires_grad_(False)
    weights.Published(directory, TINY).fill(model)
    theirs = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    tokens = torch.arange(20)[None]
    torch.testing.assert_close(model(tokens), theirs(tokens).logits)


def test_an_export_replaces_its_own_and_nothing_else(directory: Path) -> None:
    model = Decoder(TINY).requires_grad_(False)
    to = directory.parent / "export"
    for step in (1, 2):
        weights.check_export(to)
        weights.export(model, TINY, to, directory, {"step": step})
        assert json.loads((to / weights.EXPORTED).read_text()) == {"step": step}
    assert {each.name for each in directory.parent.iterdir()} == {"weights", "export"}
    with pytest.raises(Refusal, match="was not exported by this"):
        weights.check_export(directory)


def drop(name: str, path: Path) -> None:
    held = load_file(path)
    del held[name]
    save_file(held, path)


def lose_file(directory: Path) -> None:
    (directory / "model-00002-of-00003.safetensors").unlink()


def cut_file(directory: Path) -> None:
    path = directory / "model-00002-of-00003.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def cut_index(directory: Path) -> None:
    path = directory / "model.safetensors.index.json"
    path.write_text(path.read_text()[:-100])


def lose_tensor(directory: Path) -> None:
    drop("model.norm.weight", directory / "model-00003-of-00003.safetensors")


def only_pickles(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.mkdir()
    (directory / "pytorch_model.bin").touch()


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lose_file, r"is incomplete: model-00002-of-00003.safetensors missing, of 3 files; stage it anew"),
        (cut_file, r"model-00002-of-00003.safetensors is damaged or cut off"),
        (cut_index, "is cut off, or no index of weights"),
        (lose_tensor, "does not hold model.norm.weight, which the index says it does"),
        (only_pickles, r"holds neither .* \(it holds .bin files, which are not read"),
        (shutil.rmtree, "is no directory; trn stage hf://"),
    ],
)
def test_damaged_weights_are_refused(harm: Callable[[Path], None], said: str, directory: Path) -> None:
    harm(directory)
    with pytest.raises(Refusal, match=said):
        weights.Published(directory, TINY)


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        (replace(TINY, layers=3), "another model's weights: model.layers.2.* missing"),
        (replace(TINY, layers=1), "another model's weights: this one has no model.layers.1"),
        (TINY_LLAMA, "another model's weights: lm_head.weight missing"),
        (
            replace(TINY, intermediate=96),
            r"of another size: .*gate_proj.weight is \[128, 64\], not \[96, 64\] and 5 more",
        ),
    ],
)
def test_weights_of_another_model_are_refused(sizes: Configuration, said: str, directory: Path) -> None:
    with pytest.raises(Refusal, match=said):
        weights.Published(directory, sizes)


def test_how_to_stage_a_gated_model_is_told(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"trn stage hf://meta-llama/Llama-2-7b-hf .*gated: .*trn secret first"):
        weights.Published(tmp_path / "llama-2-7b", CONFIGURATIONS["llama-2-7b"])


def test_old_files_of_llama_hold_what_is_computed(directory: Path) -> None:
    path = directory / "model-00001-of-00003.safetensors"
    extra = "model.layers.0.self_attn.rotary_emb.inv_freq"
    save_file(load_file(path) | {extra: torch.zeros(8)}, path)
    index = directory / "model.safetensors.index.json"
    data = json.loads(index.read_text())
    data["weight_map"][extra] = path.name
    index.write_text(json.dumps(data))
    weights.Published(directory, TINY)


def test_memory_of_the_parameters_is_exact_and_falls_with_the_ranks() -> None:
    llama = CONFIGURATIONS["llama-2-7b"]
    alone = needed(llama, Plan(ranks=1, is_sharded=False))
    assert alone.states == 16 * 6_738_415_616
    of_eight = needed(llama, Plan(ranks=8))
    assert of_eight.states == 2 * 6_738_415_616
    assert needed(llama, Plan(ranks=16)).states == 6_738_415_616
    assert needed(llama, Plan(ranks=8, keeps_gradients=True)).gathered > 4 * 6_738_415_616
    assert needed(llama, Plan(ranks=8, recompute=False)).activations > 5 * of_eight.activations
    assert needed(llama, Plan(ranks=8, tensor_parallel=2)).gathered == of_eight.gathered // 2
