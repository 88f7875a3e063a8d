"""A training that is small enough to run in each test: a line through points, with dropout."""

import argparse
import json
import os
import sys
import time
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.request import urlopen

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from trainium_workloads import checkpoint
from trainium_workloads.checkpoint import Checkpoints
from trainium_workloads.scraped import SeriesServer
from trainium_workloads.stopping import MARGIN_SECONDS
from trainium_workloads.training import host_memory
from trainium_workloads.training.backends import start
from trainium_workloads.training.layout import Layout
from trainium_workloads.training.loop import train
from trainium_workloads.training.options import Options, add_options, options_of
from trainium_workloads.training.refusal import guarded
from trainium_workloads.training.sharding import ShardedLayout
from trainium_workloads.training.task import Loss

SIZE = 8


class Points:
    def __init__(self, count):
        self._count = count

    def __len__(self):
        return self._count

    def __getitems__(self, positions):
        made = [torch.Generator().manual_seed(each.index) for each in positions]
        x = torch.stack([torch.randn(SIZE, generator=each) for each in made])
        return {"x": x, "y": x.sum(1, keepdim=True), "index": torch.tensor([each.index for each in positions])}


@dataclass
class Line:
    """Its loss goes to 0; ``explode_at`` makes it infinite at a micro-batch, ``overflow_at`` its gradients."""

    count: int = 64
    width: int = 16
    explode_at: int = 0
    pause: float = 0.0
    dropout: float = 0.1
    overflow_at: int = 0
    sharding: str = "none"

    def __post_init__(self):
        self.done = 0

    @property
    def identity(self):
        return {"model": "line", "width": self.width}

    tokens_per_example = SIZE

    def model(self):
        made = nn.Sequential(
            nn.Linear(SIZE, self.width), nn.LayerNorm(self.width), nn.Dropout(self.dropout), nn.Linear(self.width, 1)
        )
        return fully_shard(made) if self.sharding == "full" else made

    def examples(self):
        return Points(self.count)

    def loss(self, model, batch):
        self.done += 1
        time.sleep(self.pause)
        if self.done == 1 and (file := os.environ.get("TRN_CAPACITY_FILE")):
            soon = datetime.now(UTC) + timedelta(seconds=MARGIN_SECONDS + 0.2)
            Path(file).write_text(soon.isoformat(), encoding="utf-8")
        error = model(batch["x"].to(next(model.parameters()).dtype)).float() - batch["y"]
        loss = error.square().mean()
        if self.done == self.explode_at:
            loss = loss * float("inf")
        if self.done == self.overflow_at:
            loss.register_hook(lambda gradient: gradient * float("inf"))
        return Loss(loss, {"error": error.abs().mean()})


def main():
    parser = argparse.ArgumentParser()
    for field in fields(Line):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default), default=field.default)
    parser.add_argument("--keep-pages", action="store_true", help="write what is scraped after each step: pages.jsonl")
    parser.add_argument("--fill-disk-at", type=int, default=0, help="a save of this step finds the disk full")
    parser.add_argument(
        "--fail-write-at", type=int, default=0, help="rank 1 has a bug that saves from this step on show"
    )
    parser.add_argument("--slow-write", type=float, default=0, help="seconds until a checkpoint's state is written")
    parser.add_argument("--hold-write", type=int, default=0, help="the third write stops, half done, at this sync")
    parser.add_argument("--free-memory", type=int, help="bytes of memory that the host pretends to have")
    add_options(parser, Options(steps=40, learning_rate=0.02, precision="fp32", batch_size=4, checkpoint_seconds=0))
    arguments = parser.parse_args()
    options = options_of(arguments)
    if arguments.fill_disk_at:
        _fill_disk(arguments.fill_disk_at)
    if arguments.free_memory is not None:
        host_memory.free_bytes = lambda: arguments.free_memory
    _write_slowly(arguments.slow_write, arguments.hold_write)
    if arguments.fail_write_at and os.environ["RANK"] == "1":
        _fail(arguments.fail_write_at)
    if arguments.keep_pages and os.environ["RANK"] == "0":
        _keep_pages(os.environ["TRN_METRICS_PORT"])
    task = Line(*(getattr(arguments, field.name) for field in fields(Line)))
    backend = start(options)
    try:
        return train(task, options, backend, ShardedLayout() if task.sharding == "full" else None).exit_code
    finally:
        backend.close()


def _keep_pages(port):
    step = SeriesServer.step

    def step_and_read(self, *values):
        step(self, *values)
        with urlopen(f"http://127.0.0.1:{port}/metrics") as page, Path("pages.jsonl").open("a") as file:
            file.write(json.dumps(page.read().decode()) + "\n")

    SeriesServer.step = step_and_read


def _fill_disk(step):
    """/dev/full behaves as a full disk does."""
    real = Checkpoints.begin

    def begin(self, at):
        part = real(self, at)
        if at == step and int(os.environ["RANK"]) == 0:
            (part / "state.pt").symlink_to("/dev/full")
        return part

    Checkpoints.begin = begin


def _write_slowly(seconds, at):
    """Also makes the file ``held``, once a write is half done for good."""
    begin, sync, begun, synced = Checkpoints.begin, checkpoint.sync, [], []

    def begin_slowly(self, step):
        part = begin(self, step)
        time.sleep(seconds)
        begun.append(step)
        synced.clear()
        return part

    def sync_or_hold(*paths):
        synced.extend(paths)
        if len(begun) == 3 and len(synced) == at:
            for each in paths:
                if each.is_file():
                    os.truncate(each, each.stat().st_size // 2)
            Path("held").touch()
            time.sleep(600)
        sync(*paths)

    Checkpoints.begin, checkpoint.sync = begin_slowly, sync_or_hold


def _fail(at):
    save = Layout.save

    def save_or_fail(self, checkpoints, step, *others):
        if step >= at:
            raise ValueError("a bug")
        return save(self, checkpoints, step, *others)

    Layout.save = save_or_fail


if __name__ == "__main__":
    sys.exit(guarded(main))
