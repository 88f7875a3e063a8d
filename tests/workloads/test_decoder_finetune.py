"""Fine-tuning by several ranks: whatever divides the model, is killed or damaged, the losses are the same."""

import itertools
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from gangs import Ended, Gang
from safetensors.torch import load_file
from trainium_workloads.checkpoint import Checkpoints
from trainium_workloads.decoder import finetune, make_data, weights
from trainium_workloads.decoder.configuration import CONFIGURATIONS
from trainium_workloads.decoder.model import Decoder
from trainium_workloads.training import backends, sharding
from trainium_workloads.training.options import Options
from trainium_workloads.training.refusal import Refusal
from trainium_workloads.training.sharding import Sharded
from waiting import SECONDS

SCRIPT = "trainium_workloads.decoder.finetune"
STEPS = 8
CHECKPOINTS = 2
"""Steps between two."""


class Trainings:
    """Starts trainings of the same model on the same texts."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._gang = Gang(directory)
        make_data.make(directory / "made", texts=60, seed=0)

    def __call__(self, output: str, *arguments: str | Path | float, ranks: int, **how: Any) -> Ended:
        return self._gang(SCRIPT, *self.arguments(output), *arguments, ranks=ranks, **how)

    def arguments(self, output: str) -> list[str | Path | float]:
        """What all have in common."""
        common = {
            "--model": self.directory / "made" / "model",
            "--data": self.directory / "made" / "texts",
            "--token-cache": self.directory / "cache",
            "--output": self.directory / output,
            "--seq-len": 32,
            "--steps": STEPS,
            "--precision": "fp32",
            "--learning-rate": 0.003,
            "--warmup-steps": 2,
            "--checkpoint-every": CHECKPOINTS,
            "--checkpoint-seconds": 0,
            "--backend": "cpu",
        }
        return list(itertools.chain(*common.items()))

    def checkpoints(self, output: str) -> list[Path]:
        """The oldest first."""
        return sorted((self.directory / output / "checkpoints").glob("step-*.ckpt"))


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Trainings:
    return Trainings(tmp_path_factory.mktemp("finetune"))


@pytest.fixture(scope="module")
def whole(trainings: Trainings) -> Ended:
    """Four ranks from the beginning to the end, with an export."""
    return trainings("whole", "--batch-size", 2, "--export", trainings.directory / "export", ranks=4)


@pytest.fixture(scope="module")
def killed(trainings: Trainings) -> str:
    """Output of the same, but that one rank was killed after some step."""
    step = random.SystemRandom().randint(CHECKPOINTS + 1, STEPS - 2)
    trainings("killed", "--batch-size", 2, ranks=4, kill_at=step, kill_rank=step % 4)
    assert trainings.checkpoints("killed"), f"killed at {step}"
    return "killed"


def test_the_loss_goes_down(whole: Ended) -> None:
    assert list(whole.losses) == list(range(1, STEPS + 1))
    assert whole.losses[1] == pytest.approx(6.24, abs=0.05)  # the logarithm of 512 tokens
    assert whole.losses[STEPS] < whole.losses[1] - 0.5


def test_killed_and_resumed_it_is_the_same_to_the_last_bit(trainings: Trainings, whole: Ended, killed: str) -> None:
    shutil.copytree(trainings.directory / killed, trainings.directory / "resumed", symlinks=True)
    resumed = trainings("resumed", "--batch-size", 2, ranks=4)
    assert "resumed from step" in resumed.out[0]
    assert 0 < len(resumed.losses) < STEPS
    assert resumed.losses == {step: whole.losses[step] for step in resumed.losses}


def test_two_ranks_go_on_from_the_last_sound_checkpoint_of_four(
    trainings: Trainings, whole: Ended, killed: str
) -> None:
    shutil.copytree(trainings.directory / killed, trainings.directory / "halved", symlinks=True)
    newest = trainings.checkpoints("halved")[-1]
    if len(trainings.checkpoints("halved")) > 1:
        part = next(newest.glob("__3_*"))
        data = bytearray(part.read_bytes())
        data[len(data) // 2] ^= 1
        part.write_bytes(data)
    resumed = trainings("halved", "--batch-size", 2, "--accumulate", 2, ranks=2)
    if len(trainings.checkpoints(killed)) > 1:
        assert f"{newest} is damaged" in resumed.out[0]
        assert f"resumed from step {trainings.checkpoints(killed)[-2].name[5:13].lstrip('0')} " in resumed.out[0]
    for step, loss in resumed.losses.items():
        assert loss == pytest.approx(whole.losses[step], abs=2e-6)
    assert max(resumed.losses) == STEPS


def test_tensor_parallel_is_the_same_and_its_checkpoint_anybodys(trainings: Trainings, whole: Ended) -> None:
    divided = ("--tensor-parallel", 2, "--activation-checkpointing")
    tensor = trainings("tensor", *divided, "--batch-size", 4, "--steps-this-run", 4, ranks=4)
    assert list(tensor.losses) == [1, 2, 3, 4]
    for step, loss in tensor.losses.items():
        assert loss == pytest.approx(whole.losses[step], abs=2e-6)
        norms = {line["step"]: line["gradient_norm"] for line in (*whole.steps, *tensor.steps)}
        assert norms[step] == pytest.approx(whole.steps[step - 1]["gradient_norm"], rel=1e-5)
    # Not divided, by one rank, and with gradients that travel after each micro-batch.
    alone = trainings("tensor", "--batch-size", 4, "--accumulate", 2, "--gradient-sync", "each", ranks=1)
    assert list(alone.losses) == [5, 6, 7, 8]
    for step, loss in alone.losses.items():
        assert loss == pytest.approx(whole.losses[step], abs=2e-6)


def test_the_export_is_a_model_of_transformers(trainings: Trainings, whole: Ended) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    assert "exported to" in whole.out[0]
    directory = trainings.directory / "export"
    theirs = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    sentence = tokenizer("each rank waits for its neighbour. the queue starts a checkpoint.", return_tensors="pt")
    learnt = theirs(**sentence, labels=sentence["input_ids"]).loss.item()
    untaught = AutoModelForCausalLM.from_pretrained(trainings.directory / "made" / "model", dtype=torch.float32)
    assert learnt < untaught(**sentence, labels=sentence["input_ids"]).loss.item() - 0.5


def test_bf16_and_a_whole_model_in_each_rank(trainings: Trainings, whole: Ended) -> None:
    """Parameters stay in FP32, so the losses are those of FP32 but for the rounding of what is computed."""
    for how in ("full", "none"):
        arguments = ("--precision", "bf16", "--sharding", how, "--batch-size", 8, "--steps-this-run", 2)
        rounded = trainings(f"bf16-{how}", *arguments, ranks=1)
        assert rounded.losses[2] == pytest.approx(whole.losses[2], abs=0.02)
        assert rounded.losses[2] != whole.losses[2]


def test_xla_computes_the_same_in_a_whole_model(trainings: Trainings, whole: Ended) -> None:
    """What there is on Trn1: small models, whose weight that two layers share must stay one when it moves there."""
    arguments = ("--backend", "xla", "--sharding", "none", "--activation-checkpointing", "--steps-this-run", 1)
    # XLA:CPU takes longer to make a graph fast than all its runs here take.
    quickly = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    environment = {"PJRT_DEVICE": "CPU", "XLA_FLAGS": quickly}
    traced = trainings("xla", *arguments, "--batch-size", 8, ranks=1, environment=environment)
    for name in ("loss", "gradient_norm"):
        assert traced.steps[0][name] == pytest.approx(whole.steps[0][name], rel=1e-5)
    assert "106,880 parameters" in traced.out[0]


def test_a_checkpoint_that_was_not_sharded_is_refused(trainings: Trainings, whole: Ended) -> None:
    refused = trainings("whole", "--sharding", "none", "--batch-size", 8, ranks=1, code=78)
    assert "refused: " in refused.err[0]
    assert "is of a sharded training" in refused.err[0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--synthetic", 8), "one of --data PATH and --synthetic N is needed"),
        (("--seq-len", 513), "--seq-len 513 is longer than the 512 tokens"),
        (("--tensor-parallel", 2), "--tensor-parallel 2 does not divide the 1 ranks"),
        (("--tensor-parallel", 2, "--sharding", "none"), "--tensor-parallel is for --sharding full"),
        (("--stochastic-rounding", "--precision", "bf16"), "keeps its parameters in FP32"),
        (("--backend", "xla"), "FSDP2, which PyTorch/XLA has not: use Trn2 or later"),
        (("--weights", "hf://meta-llama/Llama-2-7b-hf"), "is gated: accept its licence"),
        (("--model", "tiny", "--weights", "nowhere"), "--weights nowhere is no directory"),
        (("--model", "qwen3-0.6b", "--weights", "made/model"), "of another model than --model qwen3-0.6b"),
        (("--model", "tiny"), "--data needs a tokenizer"),
        (("--export", "made"), "--export made exists, and was not exported by this"),
    ],
)
def test_what_cannot_run_is_refused(
    trainings: Trainings, arguments: tuple[str | int, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trainings.directory)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(sys, "argv", ["finetune", *map(str, (*trainings.arguments("refused"), *arguments))])
    try:
        with pytest.raises(Refusal, match=re.escape(said)):
            finetune.main()
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def test_what_fsdp_takes_of_precisions() -> None:
    for precision in ("fp16", "fp8"):
        with pytest.raises(Refusal, match=f"no --precision {precision}: use bf16"):
            sharding.check(Options(backend="cuda", precision=precision))  # type: ignore[arg-type]
    # The launcher sets the variable behind it for every job on Trainium.
    sharding.check(Options(backend="neuron", precision="bf16", stochastic_rounding=True))


def test_a_refusal_of_rank_0_is_that_of_all(trainings: Trainings) -> None:
    refused = trainings("refused", "--data", "nowhere", ranks=2, code=78)
    assert set(refused.codes) == {78}
    assert all("--data nowhere is not there" in each for each in refused.err)


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file may grow beyond 16 KiB: what a full disk does, to this process alone."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16 * 1024, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, ignored)


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    sizes = CONFIGURATIONS["tiny"]
    options = Options(precision="fp32", output=tmp_path)
    for name in ("RANK", "WORLD_SIZE"):
        assert name not in os.environ
    backend = backends.start(options)
    try:
        layout = Sharded(lambda model: weights.initialize(model, 0))
        with torch.device("meta"):
            model = Decoder(sizes)
        model = layout.place(model, backend, options)
        optimizer = torch.optim.AdamW(model.parameters())
        checkpoints = Checkpoints(tmp_path)
        first = layout.save(checkpoints, 1, model, optimizer, {"step": 1}, backend)
        assert first is not None
        request.getfixturevalue("small_files")
        with pytest.raises(OSError, match=r"the checkpoint cannot be written: .*File too large"):
            layout.save(checkpoints, 2, model, optimizer, {"step": 2}, backend)
        assert checkpoints.latest() == first
        assert layout.facts(first.path) == {"step": 1}
    finally:
        backend.close()


def test_a_run_with_nothing_left_to_train_exports(trainings: Trainings, whole: Ended) -> None:
    """A gang that is restarted after its last step, because a node was lost while it exported."""
    to = trainings.directory / "late"
    ended = trainings("whole", "--batch-size", 4, "--export", to, ranks=2)
    assert not ended.losses
    assert json.loads((to / "trained.json").read_text())["step"] == STEPS
    before = load_file(trainings.directory / "export" / "model.safetensors")
    after = load_file(to / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_the_others_hear_of_rank_0_while_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finetune, "_SIGN_OF_LIFE_SECONDS", 0.01)
    shared: list[str] = []

    class Backend:
        rank = 0

        def share(self, text: str) -> str:
            shared.append(text)
            if len(shared) == 3:
                done.set()
            return text

    done = threading.Event()

    def make() -> Path:
        assert done.wait(SECONDS)
        return Path("made")

    assert finetune._first(Backend(), make) == Path("made")  # type: ignore[arg-type]
    assert shared[:3] == [""] * 3
    assert "made" in shared[-1]
