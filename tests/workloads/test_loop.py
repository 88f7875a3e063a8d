"""The loop that all trainings share, on a training of a few milliseconds a step."""

import argparse
import json
import os
import random
import re
import signal
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

import pytest
from gangs import XLA_ON_CPU, free_port
from prometheus_text import parse
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from trainium_workloads.training.options import Options, add_options

TOY = "toy_script"
PAGE = (Path(__file__).parents[2] / "docs" / "trainings.md").read_text(encoding="utf-8")
KILL = random.Random(os.environ.get("TRN_TEST_SEED", "0"))
KILLS = int(os.environ.get("TRN_TEST_KILLS", "2"))


@pytest.fixture(autouse=True)
def _script(tmp_path):
    (tmp_path / "toy_script.py").symlink_to(Path(__file__).with_name("toy_script.py"))


@pytest.mark.parametrize(
    ("ranks", "options"),
    [
        (1, ["--workers", 1]),
        (2, ["--precision", "bf16", "--stochastic-rounding"]),
        (4, ["--accumulate", 2]),
        (2, ["--sharding", "full"]),
    ],
)
def test_training_killed_during_writes_resumes_as_if_uninterrupted(gang, tmp_path, ranks, options):
    common = (*options, "--steps", 10**5, "--checkpoint-every", 1, "--slow-write", 0.03)
    checkpoints, losses, saved = tmp_path / "cut" / "checkpoints", [], 0
    for _ in range(KILLS):
        at, victim = KILL.randint(1, 4), KILL.choice([None, 0])
        how = {"ranks": ranks, "kill_when": tmp_path / "held", "kill_rank": victim}
        killed = gang(TOY, "--output", "cut", *common, "--hold-write", at, **how)
        assert killed.codes[0] == -signal.SIGKILL
        assert len([*checkpoints.glob("step-*.part")]) == 1, "it was in mid-write"
        assert min(killed.losses) == saved + 1
        losses += killed.losses.items()
        saved = int((checkpoints / "latest").resolve().name[5:13])
        (tmp_path / "held").unlink()
    resumed = gang(TOY, "--output", "cut", *common, "--steps-this-run", 3, ranks=ranks)
    assert f"resumed from step {saved} " in resumed.out[0]
    losses += resumed.losses.items()
    whole = gang(TOY, "--output", "whole", *common, "--steps-this-run", max(losses)[0], ranks=ranks).losses
    assert set(losses) == set(whole.items())


def test_checkpoint_is_written_in_the_background_one_at_a_time(gang):
    common = ("--steps", 40, "--checkpoint-every", 4, "--pause", 0.01, "--slow-write", 0.2)
    lines = gang(TOY, "--output", "beside", *common).steps
    assert "checkpoint_step" not in lines[5]
    seen = {line["checkpoint_step"]: line for line in reversed(lines) if "checkpoint_step" in line}
    assert sorted(seen)[:: len(seen) - 1] == [4, 40]
    for earlier, later in pairwise(sorted(seen)[:-1]):
        assert later == seen[earlier]["step"], "the next was due long since, and begins when this one is complete"
    assert all(
        line["checkpoint_seconds"] < 0.2 <= line["checkpoint_beside_seconds"]
        for step, line in seen.items()
        if step < 40
    )
    [*waited] = gang(TOY, "--output", "out", *common, "--no-async-checkpoint").steps
    saved = {line["checkpoint_step"]: line for line in waited if "checkpoint_step" in line}
    assert [*saved] == [*range(4, 41, 4)]
    assert all(line["checkpoint_beside_seconds"] < 0.2 <= line["checkpoint_seconds"] for line in saved.values())


def test_sigterm_waits_for_the_current_checkpoint_and_saves_another(gang, tmp_path):
    common = ("--output", "out", "--checkpoint-every", 5, "--slow-write", 0.5)
    stopped = gang(TOY, *common, kill_at=6, kill_signal=signal.SIGTERM)
    assert set(stopped.codes) == {143}
    saved = sorted(int(each.name[5:13]) for each in (tmp_path / "out" / "checkpoints").glob("step-*.ckpt"))
    assert saved == [5, max(stopped.losses)]
    assert min(gang(TOY, *common).losses) == saved[-1] + 1


def test_checkpoint_is_written_directly_without_memory_for_a_copy(gang):
    common = ("--output", "out", "--steps", 6, "--checkpoint-every", 2, "--slow-write", 0.1, "--free-memory", 5000)
    ended = gang(TOY, *common)
    assert re.search(r"has 5e-06 GB .* needs 4.63e-06 GB: checkpoints are written at once", ended.out[0])
    assert all(line["checkpoint_seconds"] >= 0.1 for line in ended.steps[1:])
    assert "at once" not in gang(TOY, *common[:-1], 8000).out[0]


def test_exception_in_a_checkpoint_write_ends_the_training(gang):
    common = ("--output", "out", "--steps", 10**6, "--checkpoint-every", 4)
    ended = gang(TOY, *common, "--fail-write-at", 5, code=None, seconds=180)
    assert ended.code == 1
    assert "ValueError: a bug" in ended.err[1]
    assert "resumed from step 4 " in gang(TOY, *common, "--steps-this-run", 1).out[0]


def test_twice_the_ranks_at_half_the_accumulation_see_the_same_data(gang):
    two = gang(TOY, "--output", "two", "--steps", 6, "--accumulate", 2, "--checkpoint-every", 3, "--dropout", 0)
    four = gang(TOY, "--output", "four", "--steps", 6, "--accumulate", 1, "--dropout", 0, ranks=4)
    assert list(four.losses.values()) == pytest.approx(list(two.losses.values()), rel=1e-4)
    resumed = gang(TOY, "--output", "two", "--steps", 6, "--accumulate", 1, "--dropout", 0, ranks=4, code=None)
    assert resumed.code == 0
    assert not resumed.losses, "it was complete"


def _learns(losses):
    values = list(losses.values())
    assert len(values) == 60
    assert sum(values[-5:]) < sum(values[:5]) / 2


@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_each_optimizer_and_schedule_lowers_the_loss(gang, optimizer):
    how = ("--optimizer", optimizer, "--schedule", "cosine", "--warmup-steps", 5)
    ended = gang(TOY, "--output", "out", "--steps", 60, *how, ranks=1)
    _learns(ended.losses)
    rates = [line["learning_rate"] for line in ended.steps]
    assert rates[:5] == pytest.approx([0.02 * step / 5 for step in range(1, 6)])
    assert rates[5:] == sorted(rates[5:], reverse=True)
    assert (rates[5], 0 < rates[-1] < 0.001) == (0.02, True)


@pytest.mark.parametrize("options", [[], ["--stochastic-rounding"]])
def test_bf16_lowers_the_loss(gang, options):
    _learns(gang(TOY, "--output", "out", "--steps", 60, "--precision", "bf16", *options).losses)


def test_sigterm_saves_and_ends_with_143(gang):
    stopped = gang(TOY, "--output", "out", kill_at=7, kill_rank=1, kill_signal=signal.SIGTERM)
    assert set(stopped.codes) == {143}
    step = max(stopped.losses)
    assert f"stopped after step {step}: another rank was asked to stop" in stopped.out[0]
    resumed = gang(TOY, "--output", "out")
    assert min(resumed.losses) == step + 1


def test_ending_capacity_block_stops_the_training(gang, tmp_path):
    # That of an earlier block stops nothing; the script writes that of its own into the file in its first step.
    block = {"TRN_CAPACITY_ENDS": "2026-01-01T00:00:00Z", "TRN_CAPACITY_FILE": str(tmp_path / "ends")}
    ended = gang(TOY, "--output", "out", "--pause", 0.1, environment=block, ranks=1, code=143)
    assert 0 < len(ended.losses) < 40
    assert f"the Capacity Block ends at {(tmp_path / 'ends').read_text()}" in ended.out[0]


def test_step_lines_and_tensorboard_curves_are_written(gang, tmp_path):
    ended = gang(TOY, "--output", "out", "--steps", 12, "--log-every", 5, "--checkpoint-every", 5)
    assert [line["step"] for line in ended.steps] == [5, 10, 12]
    line = ended.steps[1]
    assert {"time", "loss", "error", "gradient_norm", "learning_rate", "tokens_per_second"} <= line.keys()
    assert (line["steps"], ended.steps[-1]["checkpoint_step"]) == (12, 12)
    assert ended.steps[-1]["checkpoint_seconds"] > 0
    assert 0 <= line["checkpoint_age_seconds"] < 60
    assert "{" not in ended.out[1], "rank 0 alone reports"
    curves = EventAccumulator(str(tmp_path / "out" / "tensorboard")).Reload()
    losses = curves.Scalars("loss")
    assert [each.step for each in losses] == [5, 10, 12]
    assert losses[1].value == pytest.approx(line["loss"], rel=1e-6)
    assert {"tokens_per_second", "checkpoint_seconds"} <= {*curves.Tags()["scalars"]}


def test_only_rank_0_is_scraped_during_training(gang, tmp_path):
    """Rank 1 of the same machine would find the port taken, and report it."""
    common = ("--output", "out", "--steps", 30, "--checkpoint-every", 10, "--no-async-checkpoint")
    ended = gang(TOY, *common, "--keep-pages", environment={"TRN_METRICS_PORT": str(free_port())})
    pages = [parse(json.loads(line)) for line in (tmp_path / "pages.jsonl").read_text().splitlines()]
    assert [page["trn_training_step"].value for page in pages] == list(range(1, 31))
    first, last, told = pages[3], pages[23], ended.steps[23]
    assert "".join(ended.err) == ""
    assert last["trn_training_info"].labels == {"backend": "cpu", "world_size": "2", "examples": "64"}
    for name, value in (
        ("loss", told["loss"]),
        ("tokens_per_second", told["tokens_per_second"]),
        ("examples_total", told["step"] * 8),
        ("checkpoint_step", 20),
        ("checkpoint_timestamp_seconds", told["checkpoint_time"]),
    ):
        assert last[f"trn_training_{name}"].value == value
    assert first["trn_training_productive_seconds_total"].value < last["trn_training_productive_seconds_total"].value
    again = gang(TOY, *common, environment={"TRN_METRICS_PORT": "many"})
    assert "no metrics of this training: port many of TRN_METRICS_PORT cannot be served" in again.err[0]
    assert not again.err[1]


def test_checkpoints_are_saved_by_time(gang):
    ended = gang(TOY, "--output", "out", "--steps", 20, "--pause", 0.02, "--checkpoint-seconds", 0.1)
    saved = {line["checkpoint_step"]: line["checkpoint_time"] for line in ended.steps if "checkpoint_step" in line}
    assert len(saved) >= 3
    assert max(saved) == 20
    between = [later - earlier for earlier, later in pairwise([*saved.values()][:-1])]  # the end is saved at any time
    assert all(seconds >= 0.099 for seconds in between)


# --- What cannot be -------------------------------------------------------------------------------------------------


def refused(gang, *arguments, ranks=1, environment=None):
    ended = gang(TOY, "--output", "out", *map(str, arguments), ranks=ranks, code=78, environment=environment)
    assert not ended.losses
    [line] = [line for line in ended.err[0].splitlines() if line.startswith("refused: ")]
    return line


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--width", 4], "its width is 16, here 4"),
        (["--count", 60], "its data had 64 examples, here there are 60"),
        (["--seed", 1], "it has --seed 42, here it is 1"),
        (["--batch-size", 2], "it took 4 examples a step, this run takes 2: pass --accumulate 2"),
        (["--batch-size", 3], "choose --batch-size and --accumulate so that they agree"),
        (["--no-resume"], "--no-resume needs an --output without checkpoints"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(gang, arguments, says):
    gang(TOY, "--output", "out", "--steps", 2, ranks=1)
    assert says in refused(gang, *arguments)


def test_all_invalid_options_are_reported_at_once(gang, tmp_path):
    wrong = ("--steps", 0, "--learning-rate", "nan", "--clip", -1, "--precision", "fp8", "--eager")
    line = refused(gang, *wrong, environment={"TRN_REFUSED": str(tmp_path / "marker")})
    for part in ("--steps must be 1 or more, not 0", "--learning-rate", "--clip", "no --precision fp8", "--eager"):
        assert part in line
    assert (tmp_path / "marker").exists(), "otherwise torchrun hides that it was refused"


def test_unreadable_variable_is_named(gang):
    line = refused(gang, environment={"TRN_CHECKPOINT_SECONDS": "often"})
    assert "TRN_CHECKPOINT_SECONDS must be a number of seconds, not 'often'" in line


def test_missing_backend_is_refused(gang):
    assert "needs the package torch_neuronx" in refused(gang, "--backend", "neuron")
    assert "has no GPU, there are 0 here" in refused(gang, "--backend", "cuda")
    both = gang(TOY, "--backend", "xla", ranks=2, code=78).err
    assert "xla has one rank on the CPU" in "".join(both), "the first to say so ends the other"


@pytest.mark.parametrize(
    ("fault", "ranks", "said", "saved"),
    [
        (("--explode-at", 7), 1, "the loss is inf at step 7", 6),
        (("--explode-at", 7), 2, "the loss is inf at step 7", 6),
        (("--overflow-at", 4), 1, "the gradient norm is nan at step 4", 3),
    ],
)
def test_non_finite_loss_ends_training_for_good_and_is_not_saved(gang, fault, ranks, said, saved):
    # The refusal waits for the checkpoint that is being written.
    common = ("--output", "out", "--checkpoint-every", saved, "--slow-write", 0.3)
    ended = gang(TOY, *common, *fault, ranks=ranks, code=78)
    assert f"{said}; the checkpoint of step {saved} stays" in ended.err[0]
    assert min(gang(TOY, "--output", "out", ranks=ranks).losses) == saved + 1


# --- Faults of the disk ---------------------------------------------------------------------------------------------


def test_full_disk_keeps_the_previous_checkpoint(gang):
    gang(TOY, "--output", "out", "--steps", 4)
    ended = gang(TOY, "--output", "out", "--steps", 12, "--checkpoint-every", 4, "--fill-disk-at", 8)
    assert "the checkpoint of step 8 could not be saved ([Errno 28] No space left" in ended.out[0]
    assert "the one of step 4 stays" in ended.out[0]
    assert max(ended.losses) == 12


def test_failed_final_checkpoint_fails_the_job(gang):
    gang(TOY, "--output", "out", "--steps", 4)
    ended = gang(TOY, "--output", "out", "--steps", 8, "--fill-disk-at", 8, code=1)
    assert "the checkpoint of step 8 could not be saved" in ended.err[0]
    assert "Traceback" not in ended.err[0]
    again = gang(TOY, "--output", "out", "--steps", 8)
    assert list(again.losses) == [5, 6, 7, 8]


def test_damaged_checkpoint_is_skipped(gang, tmp_path):
    common = ("--output", "out", "--steps", 12, "--checkpoint-every", 4, "--no-async-checkpoint")
    whole = gang(TOY, *common)
    newest = (tmp_path / "out" / "checkpoints" / "latest").resolve()
    content = bytearray((newest / "state.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (newest / "state.pt").write_bytes(content)
    again = gang(TOY, *common)
    assert f"checkpoint {newest} is damaged" in again.out[0].replace(str(Path("out")), str(tmp_path / "out"), 1)
    assert "resumed from step 8" in again.out[0]
    assert again.losses == {step: loss for step, loss in whole.losses.items() if step > 8}


def test_training_with_only_damaged_checkpoints_does_not_restart(gang, tmp_path):
    gang(TOY, "--output", "out", "--steps", 4)
    [only] = (tmp_path / "out" / "checkpoints").glob("step-*")
    (only / "state.pt").write_bytes((only / "state.pt").read_bytes()[:-1])
    ended = gang(TOY, "--output", "out", "--steps", 8, code=78)
    assert "no checkpoint is whole: restore one, or start over with another --output" in ended.err[0]


# --- XLA ------------------------------------------------------------------------------------------------------------


def test_xla_agrees_with_the_cpu(gang):
    common = ("--steps", 6, "--dropout", 0, "--accumulate", 2)
    cpu = gang(TOY, "--output", "cpu", *common, ranks=1)
    xla = gang(TOY, "--output", "xla", "--backend", "xla", *common, ranks=1, environment=XLA_ON_CPU)
    assert list(xla.losses.values()) == pytest.approx(list(cpu.losses.values()), rel=1e-3)


def test_compile_only_run_saves_nothing(gang, tmp_path):
    environment = {"NEURON_EXTRACT_GRAPHS_ONLY": "1"}
    ended = gang(TOY, "--output", "out", "--steps", 3, "--explode-at", 2, environment=environment, ranks=1)
    assert len(ended.steps) == 3, "what is computed is made up, and not judged"
    assert not list((tmp_path / "out").glob("checkpoints/step-*"))


# --- docs/trainings.md ----------------------------------------------------------------------------------------------


def test_page_lists_exactly_the_options():
    parser = argparse.ArgumentParser()
    add_options(parser, Options())
    known = {name for action in parser._actions for name in action.option_strings}
    named = set(re.findall(r"`(--[a-z-]+)`", "\n".join(line for line in PAGE.splitlines() if line.startswith("| `--"))))
    assert named <= known
    names = [field.name for field in fields(Options)]
    assert not [each for each in names if not {f"--{each.replace('_', '-')}", f"--no-{each}"} & named]


def test_page_lists_exactly_the_keys_of_a_step_line(gang, tmp_path):
    [shown] = re.findall(r'^\{"step".*$', PAGE, re.MULTILINE)
    [script] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "plane.py").write_text(script)
    ended = gang("plane", "--output", "out", "--checkpoint-every", 50, "--stochastic-rounding")
    assert set(re.findall(r'"(\w+)":', shown)) == ended.steps[-1].keys()
    assert ended.losses[100] < ended.losses[1] / 10
