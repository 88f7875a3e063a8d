"""How long a training stands still for its checkpoints: written beside its steps, and at once.

Run by hand on an idle machine, in the environment of ``make torch``: ``.venv/workloads/bin/python
benchmarks/checkpointing.py DIRECTORY``, with a directory of the file system in question. Rows are of the same training
on CPUs, with and without ``--async-checkpoint``; the last checkpoint, which is always waited for, is left out. The
first copy finds its memory, and later ones use it again.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import fmean

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[1] / "workloads"))
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from trainium_workloads.training.backends import start
from trainium_workloads.training.loop import train
from trainium_workloads.training.options import Options
from trainium_workloads.training.sharding import ShardedLayout
from trainium_workloads.training.task import Batch, Loss, Position

SIZE = 2048
"""Of each layer, both ways: with AdamW's moments its state takes 50 MB."""


class Layers:
    """Layers one after the other."""

    identity, tokens_per_example = {"model": "layers"}, 1

    def __init__(self, layers: int, sharding: str) -> None:
        self._layers, self._sharding = layers, sharding

    def model(self) -> nn.Module:
        made = nn.Sequential(*(nn.Linear(SIZE, SIZE, bias=False) for _ in range(self._layers)))
        return fully_shard(made) if self._sharding == "full" else made

    def examples(self) -> "Layers":
        return self

    def __len__(self) -> int:
        return 1 << 20

    def __getitems__(self, positions: list[Position]) -> Batch:
        return {"x": torch.ones(len(positions), SIZE)}

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        return Loss(model(batch["x"]).square().mean())


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--layers", type=int, default=8, help="of 50 MB; default: %(default)s")
    parser.add_argument("--batch-size", type=int, default=256, help="in each rank; default: %(default)s")
    parser.add_argument("--steps", type=int, default=50, help="default: %(default)s")
    parser.add_argument("--every", type=int, default=10, help="default: %(default)s")
    asked = parser.parse_args()
    print("ranks sharding  stands still, at once  first copy  later  share  written beside  50 steps, at once  beside")
    for ranks, sharding in ((1, "none"), (2, "none"), (2, "full")):
        at_once, beside = (_run(asked, ranks, sharding, is_async) for is_async in (False, True))
        print(ranks, sharding, at_once, beside)
    return 0


def _run(asked, ranks, sharding, is_async):
    output = asked.directory / f"checkpoints-{random.random()}"
    port = str(random.randrange(15_000, 30_000))
    told = {"layers": asked.layers, "sharding": sharding}
    options = {"steps": asked.steps, "checkpoint_every": asked.every, "async_checkpoint": is_async}
    options |= {"batch_size": asked.batch_size, "output": str(output), "precision": "fp32", "keep": 1}
    running = []
    for rank in range(ranks):
        place = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        words = [sys.executable, str(HERE), json.dumps([told, options])]
        out = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
        running.append(subprocess.Popen(words, env={**os.environ, "OMP_NUM_THREADS": "1", **place}, stdout=out, text=True))
    lines = [json.loads(each) for each in running[0].communicate()[0].splitlines() if each.startswith("{")]
    shutil.rmtree(output)
    if any(each.wait() for each in running):
        sys.exit("a training failed; it says above why")
    saved = {each["checkpoint_step"]: each for each in lines[:-1] if "checkpoint_step" in each}
    return lines, saved


if __name__ == "__main__":
    sys.exit(main())
