"""How long ``finetune`` stands still for a checkpoint: with the default, and with ``--no-async-checkpoint``.

Run by hand on an idle machine, in the environment of ``make torch``: ``.venv/workloads/bin/python
benchmarks/checkpointing.py DIRECTORY``, with a directory of the file system in question. The last checkpoint of a
training is always waited for, and left out. The first copy has to find its memory; later ones use it again.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean

import torch
import transformers

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
import isolated_run

WORKLOADS = Path(__file__).resolve().parents[1] / "workloads"
MODEL = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 4, "num_attention_heads": 8,
         "num_key_value_heads": 8, "vocab_size": 8192, "tie_word_embeddings": True}  # fmt: skip
"""Llama with 60 million parameters: 720 MB with both moments, in FP32."""
OPTIONS = {"synthetic": 4096, "seq-len": 16, "batch-size": 1, "precision": "fp32", "backend": "cpu", "keep": 1,
           "steps": 31, "checkpoint-every": 6, "checkpoint-seconds": 0}  # fmt: skip


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    asked = parser.parse_args()
    isolated_run.isolate()
    print("seconds:             stands still             share          written  24 steps")
    print("ranks  sharding  at once   first   later  first  later  afterwards     at once  beside")
    with tempfile.TemporaryDirectory(dir=asked.directory) as place:
        model = transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(**MODEL), dtype=torch.float32)
        model.save_pretrained(f"{place}/model")
        for ranks, sharding in ((1, "none"), (2, "none"), (2, "full")):
            (waits, plain, _), (copies, beside, written) = (
                _train(place, ranks, sharding, option) for option in ("--no-async-checkpoint", "--async-checkpoint")
            )
            at_once, first, later = fmean(waits), copies[0], fmean(copies[1:])
            print(f"{ranks:5d}  {sharding:8s} {at_once:8.2f} {first:7.2f} {later:7.2f}  {first / at_once:5.1%}", end="")
            print(f"  {later / at_once:5.1%}  {fmean(written):10.2f}  {plain:10.1f} {beside:7.1f}", flush=True)
    return 0


def _train(place: str, ranks: int, sharding: str, option: str) -> tuple[list[float], float, list[float]]:
    """Return the pauses of its checkpoints, the time of 24 steps with all that comes between, and the times for which
    checkpoints were written after their pauses."""
    told = {**OPTIONS, "model": f"{place}/model", "output": f"{place}/{random.random()}", "sharding": sharding}
    words = [option, *(f"--{name}={value}" for name, value in told.items())]
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "-m"]
    environment = {**os.environ, "PYTHONPATH": str(WORKLOADS), "OMP_NUM_THREADS": "1", "USE_TORCH_XLA": "0"}
    command = [*run, "trainium_workloads.finetune.train", *words]
    printed = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    lines = [json.loads(each) for each in printed.splitlines() if each.startswith("{")]
    saved = {line["checkpoint_step"]: line for line in lines[:-1] if "checkpoint_step" in line}.values()
    pauses, written = ([line[f"checkpoint_{name}seconds"] for line in saved] for name in ("", "beside_"))
    return pauses, lines[29]["time"] - lines[5]["time"], written


if __name__ == "__main__":
    sys.exit(main())
