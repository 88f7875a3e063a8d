"""The trainings on an NVIDIA GPU: ``pytest -m gpu tests/workloads``; on a CPU with ``TRN_TEST_DEVICE=cpu``."""

import http.client
import json
import os
import random
import shutil
import signal
from pathlib import Path

import pytest
import tiny_models
import torch
from gangs import free_port, start
from waiting import SECONDS, until

DEVICE = os.environ.get("TRN_TEST_DEVICE", "cuda")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        DEVICE == "cuda" and not torch.cuda.is_available(),
        reason="no NVIDIA GPU here: run them on a machine with one (on a CPU they run with TRN_TEST_DEVICE=cpu)",
    ),
]
FINETUNE, TOY = "trainium_workloads.finetune.train", "toy_script"
TINY = ("--model", "tiny", "--synthetic", 256, "--seq-len", 64, "--batch-size", 8, "--learning-rate", 3e-3)
TINY += ("--warmup-steps", 2, "--backend", DEVICE)
ON_CPU = ("--precision", "fp32", "--sharding", "none", "--backend", "cpu")


@pytest.fixture(autouse=True)
def _scripts(tmp_path):
    for name in ("gpu_script.py", "toy_script.py"):
        (tmp_path / name).symlink_to(Path(__file__).with_name(name))


@pytest.mark.parametrize(
    ("module", "options"),
    [  # tiny BERT classifies nothing after so few steps
        ("bert.pretrain", ["--size", "tiny", "--synthetic", 1000, "--batch-size", 16]),
        ("text_classification.train", ["--size", "tiny", "--synthetic", 800, "--length", 32, "--log-every", 1]),
        ("finetune.train", ["--sharding", "none"]),
        ("finetune.train", ["--activation-checkpointing", "--accumulate", 2]),
        ("finetune.train", ["--lora", 4, "--learning-rate", 0.03]),
        ("finetune.train", ["--precision", "fp32", "--optimizer", "lamb", "--sharding", "none"]),
    ],
    ids=lambda each: each if isinstance(each, str) else " ".join(map(str, each)),
)
def test_each_example_makes_20_steps(gang, module, options):
    own = TINY if "finetune" in module else ("--learning-rate", 3e-3, "--backend", DEVICE)
    ended = gang(f"trainium_workloads.{module}", *own, *options, "--steps", 20, "--output", "out", ranks=1)
    losses = list(ended.losses.values())
    assert len(losses) == 20
    assert sum(losses[-3:]) / 3 < losses[0] + (0.1 if "text" in module else -0.02), losses


@pytest.mark.parametrize(
    "options", [["--sharding", "full"], ["--sharding", "none", "--precision", "fp32"], ["--lora", 4]]
)
def test_killed_gpu_training_resumes_bit_for_bit(gang, tmp_path, options):
    common = (FINETUNE, *TINY, *options, "--steps", 16, "--checkpoint-every", 4, "--accumulate", 2)
    whole = gang("gpu_script", *common, "--output", "whole", ranks=1)
    at, saved = random.randrange(5, 13), tmp_path / "cut" / "checkpoints" / "latest"
    killed = gang("gpu_script", *common, "--output", "cut", ranks=1, kill_at=at, kill_when=saved)
    assert killed.code == -signal.SIGKILL
    resumed = gang("gpu_script", *common, "--output", "cut", ranks=1)
    assert 1 < min(resumed.losses) <= at + 2, f"killed at {at}"
    assert {**killed.losses, **resumed.losses} == whole.losses, f"killed at {at}"


@pytest.mark.parametrize(
    ("options", "bound"),
    [
        (["--precision", "fp32"], 1e-4),
        ([], 0.03),
        (["--sharding", "none"], 0.03),
        (["--compile"], 0.03),
        (["--sharding", "none", "--compile", "--activation-checkpointing"], 0.03),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_losses_match_the_cpu_in_fp32(gang, options, bound):
    exact = gang(FINETUNE, *TINY, "--steps", 8, *ON_CPU, "--output", "exact", ranks=1)
    found = gang(FINETUNE, *TINY, "--steps", 8, *options, "--output", "other", ranks=1)
    assert found.losses == pytest.approx(exact.losses, abs=bound)


def test_fp16_skips_an_overflowing_update(gang):
    if DEVICE == "cpu":
        pytest.skip("no FP16 on a CPU")
    options = ("--precision", "fp16", "--backend", DEVICE, "--steps", 40, "--checkpoint-every", 4)
    ended = gang(TOY, *options, "--overflow-at", 6, "--output", "out", ranks=1)
    losses = list(ended.losses.values())
    assert len(losses) == 40
    assert not torch.isfinite(torch.tensor(ended.steps[5]["gradient_norm"]))
    assert sum(losses[-5:]) < sum(losses[:5]) / 2


@pytest.fixture
def served(gang, tmp_path):
    """A server of what was fine-tuned here, and its port."""
    tiny_models.make(tmp_path)
    shutil.rmtree(tmp_path / "classifier")
    gang(FINETUNE, *TINY, "--model", tmp_path / "generator", "--synthetic", 8, "--steps", 2, "--seq-len", 32,
         "--output", "out", ranks=1)  # fmt: skip
    port, log = free_port(), tmp_path / "served.out"
    log.touch()
    how = ("--backend", DEVICE, "--engine", "transformers", "--host", "127.0.0.1", "--port", str(port))
    server = start("trainium_workloads.serving.server", tmp_path / "out" / "model", *how, log=log)
    yield port, server
    server.end()


def test_gpu_export_is_served(served, tmp_path):
    port, server = served

    def answer():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        question = {"model": "model", "messages": [{"role": "user", "content": "a superb lamp"}], "max_tokens": 4}
        try:
            connection.request(
                "POST", "/v1/chat/completions", json.dumps(question), {"Content-Type": "application/json"}
            )
            reply = json.loads(connection.getresponse().read())
        except OSError:
            assert server.code() is None, (tmp_path / "served.err").read_text()
            return None
        return str(reply["choices"][0]["message"]["role"])

    assert until(answer, "an answer") == "assistant"
