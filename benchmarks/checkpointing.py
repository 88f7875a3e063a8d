"""How long ``finetune`` stands still for a checkpoint: with the default, and with ``--no-async-checkpoint``.

Run by hand on an idle machine, in the environment of ``make torch``: ``.venv/workloads/bin/python
benchmarks/checkpointing.py DIRECTORY``, with a directory of the file system in question. The last checkpoint of a
training is always waited for, and left out. The first copy has to find its memory; later ones use it again.

``--resume GB`` measures a resume from a state of that size instead, from the disk (cold) and from memory (warm): the
newest checkpoint is found whole by its digests and loaded. Beside it stands the reading of its files by as many ranks.
"""

import argparse
import functools
import gc
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace

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
    parser.add_argument("--resume", type=float, metavar="GB")
    parser.add_argument("--workloads", type=Path, default=WORKLOADS, help="of another checkout; with --resume")
    asked = parser.parse_args()
    if "RANK" in os.environ:
        return _resume(asked.directory, asked.resume)
    isolated_run.isolate()
    if asked.resume:
        print("sharding  ranks  files    seconds: read  checked  loaded  processor  of the limit", flush=True)
        environment = {**os.environ, "PYTHONPATH": str(asked.workloads.resolve()), "OMP_NUM_THREADS": "1"}
        for ranks in (1, 2):
            with tempfile.TemporaryDirectory(dir=asked.directory) as place:
                run = [sys.executable, "-Wignore", "-m", "torch.distributed.run", "--standalone"]
                command = [*run, f"--nproc-per-node={ranks}", __file__, place, f"--resume={asked.resume}"]
                subprocess.run(command, env=environment, stderr=subprocess.DEVNULL, check=True)
        return 0
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


def _resume(place: Path, size: float) -> int:
    """Measure in each rank: one has the state whole, several have parts of it."""
    from torch.distributed.fsdp import fully_shard
    from trainium_workloads.checkpoint import Checkpoints
    from trainium_workloads.training.backends import Backend
    from trainium_workloads.training.layout import Layout
    from trainium_workloads.training.sharding import ShardedLayout

    backend = Backend(SimpleNamespace(backend="cpu", precision="fp32"))
    layout = ShardedLayout() if backend.world_size > 1 else Layout()
    checkpoints, own = Checkpoints(place, 1), backend.rank == 0

    def made() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        layers = [torch.nn.Linear(2048, 2048, False) for _ in range(round(size * 1e9 / 12 / 2**22))]
        model = torch.nn.Sequential(*layers)
        for each in (*model, model) if backend.world_size > 1 else ():
            fully_shard(each)
        return model, torch.optim.AdamW(model.parameters(), fused=True)

    def timed(work: Callable[[], object]) -> tuple[float, float]:
        backend.barrier()
        began, used = time.monotonic(), time.process_time()
        work()
        used = time.process_time() - used
        backend.barrier()
        return time.monotonic() - began, sum(backend.gather(used))

    def read() -> None:
        buffer = bytearray(2**22)
        for path in files[backend.rank :: backend.world_size]:
            with path.open("rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass

    model, optimizer = made()
    for each in model.parameters():
        each.grad = torch.zeros_like(each)
    optimizer.step()
    optimizer.zero_grad()
    layout.save(checkpoints, 1, layout.state(model, optimizer, backend), {"step": 1}, backend)
    path = next(place.glob("step-*"))
    files = sorted(path.iterdir())
    for is_cold in (True, True, True, False, False, False):
        found = []
        load = model = optimizer = None
        gc.collect()  # FSDP2's hooks hold the model in a circle
        model, optimizer = made()
        load = functools.partial(layout.load, path, model, optimizer)
        for work in (read, checkpoints.latest if own else int, load):
            for file in files if is_cold and own and len(found) < 2 else ():
                with file.open("rb") as opened:
                    os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            found.append(timed(work))
        (limit, _), (checked, one), (loaded, two) = found
        name = f"{layout.sharding:8s}  {backend.world_size:5d}  {'cold' if is_cold else 'warm'}"
        if own:
            print(f"{name} {limit:16.2f} {checked:8.2f} {loaded:7.2f} {one + two:10.2f}", end="")
            print(f" {limit / (checked + loaded):13.2f}", flush=True)
    backend.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
