"""Fine-tuning by several ranks: the losses are the same for any division of a model, of each family."""

import json
import os
import re
import resource
import shutil
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from gangs import XLA_ON_CPU, Gang, step_lines
from safetensors.torch import load, load_file, save
from staging_servers import hub
from torch import nn
from torch.distributed.fsdp import fully_shard
from trainium_workloads.checkpoint import Checkpoints
from trainium_workloads.finetune import make_data, models, train
from trainium_workloads.training import backends, first_rank, sharding
from trainium_workloads.training.layout import facts_of
from trainium_workloads.training.options import Options
from trainium_workloads.training.refusal import RefusalError
from trainium_workloads.training.sharding import ShardedLayout
from waiting import SECONDS

STEPS = 8
CUT = 5
"""Step after which a checkpoint is saved."""
_EXPERTS = {"num_experts_per_tok": 2}
_WINDOW = {"sliding_window": 16}
FAMILIES = {
    "llama": ("llama", {"tie_word_embeddings": False}),
    "qwen3": ("qwen3", {}),
    "mistral": ("mistral", _WINDOW),
    "gemma": ("gemma3_text", _WINDOW | {"query_pre_attn_scalar": 16}),
    "phi": ("phi", {"tie_word_embeddings": False}),
    "phi3": ("phi3", _WINDOW | {"pad_token_id": 0}),
    "gpt-oss": ("gpt_oss", _WINDOW | _EXPERTS | {"num_local_experts": 4}),
    "qwen2-moe": ("qwen2_moe", _EXPERTS | {"num_experts": 4, "moe_intermediate_size": 32}),
}
"""transformers' name of each family's model type, and sizes besides the common ones."""
DIVIDED = ("llama", "qwen3")
"""Families that are also divided by layers."""
LORA = {"lora": ("qwen3", ["--lora", "4"]), "lora-bf16": ("gpt-oss", ["--lora", "4", "--precision", "bf16"])}
TRAININGS = {**{each: (each, []) for each in FAMILIES}, **LORA}
"""Family and options, by name."""
*OTHERS, KILLED = TRAININGS


def configuration(family):
    name, others = FAMILIES[family]
    return make_data.configuration(name, **others)


class Trainings:
    """Starts trainings, several in each gang."""

    def __init__(self, directory):
        self.directory = directory
        self._gang = Gang(directory)
        for family in FAMILIES:
            make_data.make(directory / family, 4, configuration(family))

    def __call__(self, ranks, runs, **how):
        """Return the end, and rank 0's lines by run."""
        file = self.directory / "runs.json"
        file.write_text(json.dumps(runs))
        ended = self._gang("finetune_script", file, ranks=ranks, **how)
        parts = [each.partition("\n") for each in ended.out[0].split("run ")[1:]]
        return ended, {name: lines.splitlines() for name, _, lines in parts}

    def arguments(self, name, output, batch_size, *more):
        family, own = TRAININGS[name]
        common = f"--model {self.directory / family / 'model'} --synthetic 64 --token-cache {self.directory / 'cache'}"
        common += f" --output {self.directory / output / name} --batch-size {batch_size} --seq-len 32 --steps {STEPS}"
        common += f" --learning-rate 0.003 --warmup-steps 2 --checkpoint-every {CUT} --checkpoint-seconds 0"
        return [*f"{common} --precision fp32 --backend cpu".split(), *own, *map(str, more)]


def losses(lines):
    return {name: {x["step"]: x["loss"] for x in step_lines("\n".join(each))} for name, each in lines.items()}


@pytest.fixture(scope="module")
def trainings(tmp_path_factory):
    return Trainings(tmp_path_factory.mktemp("finetune"))


@pytest.fixture(scope="module")
def whole(trainings):
    """Losses of two ranks, from the beginning to the end, with an export."""
    to = trainings.directory / "export"
    runs = {name: trainings.arguments(name, "whole", 4, "--export", to / name) for name in TRAININGS}
    _, lines = trainings(2, runs)
    assert "exported to" in lines["llama"][-1]
    return losses(lines)


@pytest.fixture(scope="module")
def cut(trainings, whole):
    """Losses of one that is killed after a checkpoint; of the others the same checkpoint, without losses."""
    for name in OTHERS:
        checkpoints = trainings.directory / "whole" / name / "checkpoints"
        (saved,) = checkpoints.glob(f"step-{CUT:08d}-*.ckpt")
        shutil.copytree(saved, trainings.directory / "cut" / name / "checkpoints" / saved.name)
    run = {KILLED: trainings.arguments(KILLED, "cut", 4)}
    saved = trainings.directory / "cut" / KILLED / "checkpoints" / "latest"
    ended, lines = trainings(2, run, kill_at=CUT + 1, kill_when=saved, kill_rank=1)
    assert ended.codes[1] == -signal.SIGKILL
    return {**{name: {} for name in OTHERS}, **losses(lines)}


def test_losses_decrease(whole):
    for name, of_steps in whole.items():
        assert list(of_steps) == list(range(1, STEPS + 1)), name
        assert of_steps[1] == pytest.approx(6.24, abs=0.06)  # the logarithm of 512 tokens
        assert of_steps[STEPS] < of_steps[1] - (0.03 if "lora" in name else 0.7), name


def test_interrupted_trainings_resume_bit_for_bit(trainings, whole, cut):
    shutil.copytree(trainings.directory / "cut", trainings.directory / "resumed", symlinks=True)
    _, lines = trainings(2, {name: trainings.arguments(name, "resumed", 4) for name in TRAININGS})
    for name, of_steps in losses(lines).items():
        assert min(of_steps) == CUT + 1, name
        # None differs, of those before the kill neither.
        assert {**whole[name], **cut[name], **of_steps} == whole[name], name


def test_losses_are_those_of_blocks_gathered_one_by_one(trainings, whole):
    """As on accelerators, and on CPUs in a model that is not small; a tied weight has two gradients to add."""
    runs = {name: trainings.arguments(name, "blocks", 4) for name in (*DIVIDED, "gpt-oss")}
    _, lines = trainings(2, runs, environment={"SMALL_BYTES": "0"})
    for name, of_steps in losses(lines).items():
        assert of_steps == whole[name], name


def test_training_resumes_alike_with_any_number_of_ranks(trainings, whole, cut):
    shutil.copytree(trainings.directory / "cut", trainings.directory / "four", symlinks=True)
    some = ("--steps-this-run", 1)
    # Half of them: four ranks take twice the time.
    _, four = trainings(4, {name: trainings.arguments(name, "four", 2, *some) for name in [*TRAININGS][::2]})
    begun = {name: trainings.arguments(name, "one", 8, "--steps-this-run", 2) for name in TRAININGS}
    _, one = trainings(1, begun)
    for name, of_steps in (*losses(four).items(), *losses(one).items()):
        assert of_steps, name
        bound = 0.01 if "bf16" in name else 1e-5
        assert of_steps == pytest.approx({step: whole[name][step] for step in of_steps}, abs=bound), name


def test_tensor_parallel_training_and_its_checkpoint_are_equivalent(trainings, whole):
    """A grid of 2 by 2 ranks, then one rank; and one row of two ranks with two micro-batches a step."""
    cut_off = ("--tensor-parallel", 2, "--activation-checkpointing", "--steps-this-run", 4)
    _, grid = trainings(4, {name: trainings.arguments(name, "grid", 4, *cut_off) for name in DIVIDED})
    more = {name: trainings.arguments(name, "grid", 4, "--accumulate", 2, "--steps-this-run", 2) for name in DIVIDED}
    _, alone = trainings(1, more)
    row = ("--tensor-parallel", 2, "--accumulate", 2, "--steps-this-run", 4)
    _, rows = trainings(2, {name: trainings.arguments(name, "row", 4, *row) for name in DIVIDED})
    for name in DIVIDED:
        found = {**losses(grid)[name], **losses(alone)[name]}
        assert list(found) == list(range(1, 7))
        assert found == pytest.approx({step: whole[name][step] for step in found}, abs=2e-6), name
        assert losses(rows)[name] == pytest.approx({step: whole[name][step] for step in range(1, 5)}, abs=2e-6), name
        norms = [[line["gradient_norm"] for line in step_lines("\n".join(lines[name]))] for lines in (grid, rows)]
        assert norms[0] == pytest.approx(norms[1], rel=1e-5)


def test_bf16_trains_with_a_whole_model_in_each_rank(trainings, whole):
    """Parameters stay in FP32, so the losses differ from FP32's by the rounding of activations alone."""
    runs = {}
    for how, precision in (("full", "bf16"), ("none", "bf16"), ("none", "fp32")):
        given = ("--precision", precision, "--sharding", how, "--steps-this-run", 2)
        runs[f"{how} {precision}"] = trainings.arguments("qwen3", f"{how}-{precision}", 4, *given)
    _, lines = trainings(2, runs)
    found = losses(lines)
    assert found["none fp32"][2] == pytest.approx(whole["qwen3"][2], abs=1e-5)
    for name in ("full bf16", "none bf16"):
        assert found[name][2] == pytest.approx(whole["qwen3"][2], abs=0.02)
        assert found[name][2] != whole["qwen3"][2]


def test_xla_gives_the_same_loss_with_a_constant_number_of_graphs(trainings, whole):
    """Trn1 trains small models. A weight that two layers share must stay one weight on the device."""
    arguments = ("--backend", "xla", "--sharding", "none", "--steps-this-run", 3)
    runs = {"qwen3": trainings.arguments("qwen3", "xla", 8, *arguments)}
    _, lines = trainings(1, runs, environment=XLA_ON_CPU)
    expected = {step: whole["qwen3"][step] for step in range(1, 4)}
    assert losses(lines)["qwen3"] == pytest.approx(expected, abs=1e-5)
    graphs = [int(each.split()[1]) for each in lines["qwen3"] if each.startswith("graphs")]
    assert len(graphs) == 3
    assert 0 < graphs[1] == graphs[2]
    assert any("106,880 parameters" in each for each in lines["qwen3"])


def learnt(trainings, name):
    """Return the weights in the last checkpoint."""
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    newest = sorted((trainings.directory / "whole" / name / "checkpoints").glob("step-*.ckpt"))[-1]
    dcp_to_torch_save(newest, trainings.directory / "learnt.pt")
    return torch.load(trainings.directory / "learnt.pt", weights_only=True)["model"]


@pytest.mark.parametrize("family", FAMILIES)
def test_export_loads_in_transformers(trainings, whole, family):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    directory = trainings.directory / "export" / family
    theirs = AutoModelForCausalLM.from_pretrained(directory)
    held = theirs.state_dict()
    expected = learnt(trainings, family)
    assert expected.keys() <= held.keys()
    assert all(torch.equal(tensor, held[name]) for name, tensor in expected.items())
    assert AutoTokenizer.from_pretrained(directory).chat_template
    of_origin = {each.name for each in (trainings.directory / family / "model").glob("*.json")}
    assert of_origin - {"model.safetensors.index.json"} <= {each.name for each in directory.iterdir()}


def test_adapter_loads_in_peft_and_merges_to_the_same_model(trainings, whole):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    to = trainings.directory / "merged"
    # A gang that is restarted after its last step, because a node was lost while it exported.
    _, lines = trainings(2, {"lora": trainings.arguments("lora", "whole", 4, "--merge", "--export", to)})
    assert not losses(lines)["lora"]
    assert json.loads((to / models.EXPORTED).read_text())["step"] == STEPS
    tokens = torch.arange(20)[None]
    merged = AutoModelForCausalLM.from_pretrained(to)(tokens).logits
    base = AutoModelForCausalLM.from_pretrained(trainings.directory / "qwen3" / "model")
    untaught = base(tokens).logits
    adapted = PeftModel.from_pretrained(base, trainings.directory / "export" / "lora")(tokens).logits
    torch.testing.assert_close(merged, adapted)
    assert (merged - untaught).abs().max() > 0.01
    config = json.loads((trainings.directory / "export" / "lora" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(trainings.directory / "qwen3" / "model")


def run_here(trainings, monkeypatch, *arguments):
    monkeypatch.chdir(trainings.directory)
    monkeypatch.setattr(sys, "argv", ["finetune", *trainings.arguments("llama", "refused", 4, *arguments)])
    try:
        train.main()
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--data", "texts"), "one of --data PATH and --synthetic N is needed"),
        (("--seq-len", 513), "--seq-len 513 is longer than the 512 tokens"),
        (("--tensor-parallel", 2), "--tensor-parallel 2 does not divide the 1 ranks"),
        (("--tensor-parallel", 2, "--sharding", "none"), "--tensor-parallel is for --sharding full"),
        (("--tensor-parallel", 2, "--lora", 2), "--lora is for whole layers"),
        (("--merge",), "--merge is for --lora"),
        (("--lora", 2, "--lora-targets", "nothing"), "--lora-targets nothing: "),
        (("--stochastic-rounding", "--precision", "bf16"), "keeps its parameters in FP32"),
        (("--backend", "xla"), "FSDP2, which PyTorch/XLA has not: use Trn2 or later"),
        (("--model", "nowhere"), "nowhere is not a directory; names on Hugging Face Hub are ORGANIZATION/NAME"),
        (("--model", "."), "./config.json cannot be read"),
        (("--export", "qwen3"), "--export qwen3 exists, and was not exported by this"),
    ],
)
def test_impossible_training_is_refused(trainings, arguments, said, monkeypatch):
    with pytest.raises(RefusalError, match=re.escape(said)):
        run_here(trainings, monkeypatch, *arguments)


def test_indivisible_layers_are_refused():
    for family in ("gpt-oss", "phi3"):
        with pytest.raises(RefusalError, match=f"--tensor-parallel 2: no {FAMILIES[family][0]} is trained so"):
            models._division(configuration(family), 2, 2, is_mixed=False)
    with pytest.raises(RefusalError, match="--tensor-parallel 4 does not divide the model's 2 num_key_value_heads"):
        models._division(configuration("llama"), 4, 4, is_mixed=False)


def _without_norm(content):
    return save({name: each for name, each in load(content).items() if name != "model.norm.weight"}, {"format": "pt"})


def _with(**settings):
    return lambda content: json.dumps(json.loads(content) | settings).encode()


@pytest.mark.parametrize(
    ("files", "harm", "said"),
    [
        ("*1-of-*.safetensors", lambda content: content[:-100], "cannot be read"),
        ("*2-of-*.safetensors", _without_norm, "holds no weights, or others, for its config.json's model.norm.weight"),
        ("config.json", _with(intermediate_size=256), "for its config.json's .*mlp"),
        ("config.json", _with(quantization_config={"quant_method": "mxfp4"}), "take the model's version in BF16"),
        ("config.json", lambda _: b"{", r"config\.json cannot be read"),
        ("*.safetensors", None, r"holds weights in \.bin files"),
    ],
)
def test_damaged_models_are_refused(trainings, files, harm, said, monkeypatch, tmp_path):
    shutil.copytree(trainings.directory / "llama" / "model", tmp_path / "model")
    for each in (tmp_path / "model").glob(files):
        if harm:
            each.write_bytes(harm(each.read_bytes()))
        else:
            each.rename(each.with_suffix(".bin"))
    with pytest.raises(RefusalError, match=said):
        run_here(trainings, monkeypatch, "--model", tmp_path / "model")


def test_random_weights_depend_on_the_seed(trainings, tmp_path):
    (tmp_path / "bare").mkdir()
    shutil.copy(trainings.directory / "llama" / "model" / "config.json", tmp_path / "bare")
    made = [models.find(str(tmp_path / "bare"), tmp_path / str(seed), seed) for seed in (1, 1, 2)]
    first, other = (load_file(made[number] / "model.safetensors")["lm_head.weight"] for number in (0, 2))
    assert made[0] == made[1]
    assert not torch.equal(first, other)


def test_hub_model_is_fetched_once_and_a_gated_one_needs_a_token(trainings, tmp_path, monkeypatch):
    from huggingface_hub import constants

    files = {each.name: each.read_bytes() for each in (trainings.directory / "llama" / "model").iterdir()}
    with hub() as served:
        served.name, served.revisions = "models/team/model", ("main", "v2")
        served.files = files | {"pytorch_model.bin": b"once more", "consolidated.safetensors": b"and again"}
        served.files |= {"original/model.safetensors": b"", "model.fp16.safetensors": b""}
        monkeypatch.setenv("HF_ENDPOINT", served.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        found = models.find("team/model", tmp_path / "output", 0)
        assert {each.name for each in found.iterdir()} == files.keys()
        assert (tmp_path in found.parents, served.sent) == (True, len(files))
        assert models.find("team/model", tmp_path / "output", 0) == found
        assert served.sent == len(files)
        with pytest.raises(RefusalError, match="neither a directory nor on the Hugging Face Hub"):
            models.find("team/other", tmp_path, 0)
        served.token = "secret"
        with pytest.raises(RefusalError, match=r"team/model is gated: accept its licence at .* \(trn secret\)"):
            models.find("team/model@v2", tmp_path, 0)
        (tmp_path / "token").write_text("secret\n")
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        assert models.find("team/model@v2", tmp_path, 0).is_dir()


def test_fsdp_precisions_are_checked():
    for precision in ("fp16", "fp8"):
        with pytest.raises(RefusalError, match=f"no --precision {precision}: use bf16"):
            sharding.check(Options(backend="cuda", precision=precision))
    # The launcher sets the variable behind it for every job on Trainium.
    sharding.check(Options(backend="neuron", precision="bf16", stochastic_rounding=True))


def test_refusal_of_rank_0_ends_all_ranks(trainings, whole):
    runs = {"llama": trainings.arguments("llama", "refused", 4, "--synthetic", 0, "--data", "nowhere")}
    refused, _ = trainings(2, runs, code=78)
    assert set(refused.codes) == {78}
    assert all("nowhere is not there; trn stage SOURCE" in each for each in refused.err)
    refused, _ = trainings(1, {"llama": trainings.arguments("llama", "whole", 8, "--sharding", "none")}, code=78)
    assert "is of another training: its sharding is full, here none" in refused.err[0]


@pytest.fixture
def small_files():
    """Limit files to 16 KiB: a full disk, for this process alone."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16 * 1024, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, ignored)


def test_full_disk_keeps_the_previous_checkpoint(tmp_path, request):
    options = Options(precision="fp32", output=tmp_path)
    for name in ("RANK", "WORLD_SIZE"):
        assert name not in os.environ
    backend = backends.start(options)
    try:
        layout = ShardedLayout()
        model = layout.place(fully_shard(nn.Linear(300, 300, bias=False)), backend, options)
        optimizer = torch.optim.AdamW(model.parameters())
        checkpoints = Checkpoints(tmp_path)
        state = layout.state(model, optimizer, backend)
        first = layout.save(checkpoints, 1, state, {"step": 1}, backend)
        request.getfixturevalue("small_files")
        with pytest.raises(OSError, match=r"is the disk full"):
            layout.save(checkpoints, 2, state, {"step": 2}, backend)
        assert checkpoints.latest() == first
        assert facts_of(first.path) == {"step": 1}
    finally:
        backend.close()


def test_ranks_keep_communicating_while_rank_0_works(monkeypatch):
    monkeypatch.setattr(first_rank, "_SIGN_OF_LIFE_SECONDS", 0.01)
    heard, enough = [], threading.Event()

    def any_of(flag):
        heard.append(flag)
        if len(heard) == 3:
            enough.set()
        return flag

    backend = SimpleNamespace(rank=0, any=any_of, share=lambda text: text)
    assert first_rank.made_by_first(backend, lambda: Path(str(enough.wait(SECONDS)))) == Path("True")
    assert all(heard[:3])  # signs of life
    assert heard[-2:] == [False, False]  # its end, and no refusal
