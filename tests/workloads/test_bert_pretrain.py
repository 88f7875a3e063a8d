"""BERT learns, on one rank and on several; what kills it costs no more than time; PyTorch/XLA computes the same."""

import random
import shutil
from pathlib import Path
from statistics import fmean

import pytest
from gangs import XLA_ON_CPU
from trainium_workloads.bert import config, make_data, pretrain
from trainium_workloads.training.options import options_of
from trainium_workloads.training.refusal import RefusalError

MODULE = "trainium_workloads.bert.pretrain"
TINY = ("--size", "tiny", "--precision", "fp32", "--warmup-steps", 5)
MADE_UP = (*TINY, "--synthetic", 1000)


def test_killed_pretraining_resumes_with_the_same_loss(gang, tmp_path):
    arguments = (*MADE_UP, "--steps", 12, "--batch-size", 4, "--accumulate", 2, "--checkpoint-every", 4)
    whole = gang(MODULE, *arguments, "--output", "whole")
    assert list(whole.losses) == list(range(1, 13))
    step = random.randrange(5, 10)
    saved = tmp_path / "killed" / "checkpoints" / "latest"
    killed = gang(MODULE, *arguments, "--output", "killed", kill_at=step, kill_when=saved)
    assert set(killed.codes) == {-9}
    resumed = gang(MODULE, *arguments, "--output", "killed")
    first = min(resumed.losses)
    assert 1 < first <= max(killed.losses) + 1, f"killed at {step}"
    assert {**killed.losses, **resumed.losses} == whole.losses, f"killed at {step}"
    weights = [tmp_path / output / "model" / "model.safetensors" for output in ("killed", "whole")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


@pytest.fixture
def data(tmp_path, monkeypatch):
    given = ["--to", str(tmp_path / "data"), "--examples", "500", "--seq-len", "32", "--vocab-size", "256"]
    monkeypatch.setattr("sys.argv", ["make_data", *given])
    make_data.main()
    return tmp_path / "data"


def test_guides_options_train_on_its_files(gang, data, tmp_path):
    arguments = (*TINY, "--batch_size", 4, "--grad_accum_usteps", 2, "--data_dir", data, "--seq_len", 32)
    arguments += ("--max_steps", 20, "--lr", 3e-3, "--warmup_steps", 3, "--seed", 7, "--checkpoint_every", 14)
    whole = gang(MODULE, *arguments, "--output_dir", "whole")
    losses = list(whole.losses.values())
    assert fmean(losses[-5:]) < losses[0] - 0.5, losses
    (saved,) = (tmp_path / "whole" / "checkpoints").glob("step-00000014-*.ckpt")
    shutil.copytree(saved, tmp_path / "parts" / "checkpoints" / saved.name)
    rest = gang(MODULE, *arguments, "--output_dir", "parts", "--workers", 1)  # read in a separate process: the same
    assert rest.losses == {step: loss for step, loss in whole.losses.items() if step > 14}


def test_compile_only_run_writes_no_model(gang, tmp_path):
    only_compiles = {"NEURON_EXTRACT_GRAPHS_ONLY": "1"}  # as neuron_parallel_compile sets it
    gang(MODULE, *MADE_UP, "--steps", 2, "--output", "out", ranks=1, environment=only_compiles)
    assert not (tmp_path / "out" / "model").exists()


def test_second_phase_starts_with_the_first_ones_weights(gang):
    first = gang(MODULE, *MADE_UP, "--steps", 20, "--output", "first", ranks=1)
    second = ("--phase2", "--seq-len", 64, "--steps", 3, "--batch-size", 8, "--accumulate", 2, "--output", "second")
    ended = gang(MODULE, *MADE_UP, *second, "--from", "first", ranks=1)
    assert ended.losses[1] < first.losses[1] - 0.5
    refused = gang(MODULE, *MADE_UP, *second, "--from", "first", "--seq-len", 48, ranks=1, code=78)
    assert "its sequence is 64, here 48" in refused.err[0]


ONE_LAYER = """
import sys
from trainium_workloads.bert import config, pretrain

config._SIZES["tiny"] = (1, 32, 2, 64, 256, 128)
"""
COUNTED = """
import torch_xla.debug.metrics as measured
from torch_xla.distributed import parallel_loader
from trainium_workloads.training.metrics import Metrics

step, begin = Metrics.step, parallel_loader.MpDeviceLoader.__init__
loaders = []

def counted_step(self, number, values):
    step(self, number, {**values, "graphs": measured.metric_data("COUNTER")[0], "loaders": len(loaders)})

def counted_begin(self, *arguments, **named):
    loaders.append(self)
    begin(self, *arguments, **named)

Metrics.step, parallel_loader.MpDeviceLoader.__init__ = counted_step, counted_begin
"""
RUN = "sys.exit(pretrain.main())"


def test_xla_gives_the_same_loss_with_few_graphs(gang, tmp_path):
    (tmp_path / "on_cpu.py").write_text(ONE_LAYER + RUN)
    # Without dropout, which draws other numbers there.
    arguments = (*MADE_UP, "--steps", 4, "--batch-size", 8, "--dropout", 0)
    cpu = gang("on_cpu", *arguments, "--output", "cpu", ranks=1)
    assert "23,458 parameters" in cpu.out[0]
    for given, tolerance, counter in (
        (("--precision", "fp32"), 1e-4, "CompileTime"),
        # Each operation by itself, which compiles in a third of the time.
        (("--precision", "bf16", "--eager"), 2e-2, "EagerOpCompileTime"),
    ):
        (tmp_path / "on_xla.py").write_text(ONE_LAYER + COUNTED.replace("COUNTER", counter) + RUN)
        on_xla = (*arguments, "--backend", "xla", *given, "--output", counter)
        xla = gang("on_xla", *on_xla, ranks=1, environment=XLA_ON_CPU)
        assert xla.losses == pytest.approx(cpu.losses, rel=tolerance)
        graphs = [line["graphs"] for line in xla.steps]
        assert graphs[1:] == [graphs[1]] * 3, f"a step after the second compiled again: {graphs}"
        assert graphs[-1] <= 3 or "--eager" in given
        # The tied weight stays one parameter.
        assert "23,458 parameters" in xla.out[0]
        assert {line["loaders"] for line in xla.steps} == {1}


def _asked(*arguments):
    return pretrain._parser(arguments).parse_args(arguments)


def test_defaults_equal_the_published_training(monkeypatch):
    for name in ("TRN_BACKEND", "TRN_PRECISION", "TRN_OUTPUT_DIR"):
        monkeypatch.delenv(name, raising=False)
    first, second = options_of(_asked()), options_of(_asked("--phase2"))
    assert (first.steps, first.learning_rate, first.warmup_steps) == (28125, 4e-4, 2000)
    assert (first.optimizer, first.weight_decay, first.clip, first.schedule) == ("adamw", 0.01, 1.0, "linear")
    assert (second.steps, second.learning_rate, second.warmup_steps) == (1563, 2.8e-4, 781)
    # Of 2 nodes with 32 ranks.
    assert 64 * first.batch_size * first.accumulate == 64 * second.batch_size * second.accumulate == 32_768
    assert options_of(_asked("--size", "tiny")).steps < 1000
    given = "--batch_size 16 --grad_accum_usteps 32 --data_dir /data/x --output_dir /data/output --steps_this_run 10"
    options = options_of(_asked(*given.split()))
    assert (options.batch_size, options.accumulate, options.steps_this_run) == (16, 32, 10)
    assert options.output == Path("/data/output")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", r"either --data-dir DIR .*trn stage wikicorpus-bert-128.* or --synthetic N"),
        ("--data-dir x --synthetic 5", r"either --data-dir DIR"),
        ("--data-dir nowhere", r"nowhere is not a directory"),
        ("--synthetic 0 --seq-len 8", r"--synthetic must be 1 or more, not 0; --seq-len must be 16 or more, not 8"),
        ("--synthetic 5 --size tiny --seq-len 512", r"have 512 tokens \(--seq-len\); --size tiny takes at most 128"),
        ("--synthetic 5 --dropout 1", r"--dropout must be 0 or more and less than 1, not 1.0"),
        ("--synthetic 5 --phase2", r"--phase2 needs --from DIR, the output directory of the first phase"),
        ("--synthetic 5 --size tiny --vocab-size 50", r"--vocab-size must be 120 or more, not 50"),
    ],
)
def test_untrainable_options_are_refused(arguments, said):
    asked = _asked(*arguments.split())
    with pytest.raises(RefusalError, match=said):
        pretrain.task_of(asked, options_of(asked))


def test_sequences_longer_than_the_model_are_refused(data, monkeypatch):
    monkeypatch.setitem(config._SIZES, "tiny", (2, 64, 2, 256, 256, 24))
    asked = _asked("--size", "tiny", "--data-dir", str(data))
    with pytest.raises(RefusalError, match=r"examples have 32 tokens .* takes at most 24"):
        pretrain.task_of(asked, options_of(asked))
