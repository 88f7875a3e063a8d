"""Runs a training as the ranks of a gang, each a separate process, and kills them when a test wants it.

Importing PyTorch takes 6 seconds, so ranks are forked from a server that did it once. Nothing is calculated in that
server and it has a single thread, so what is forked from it is as sound as a fresh interpreter, but for two things: the
ranks share a seed of hashes, and the interpreter ends without its finalization.
"""

import gc
import json
import multiprocessing
import os
import random
import runpy
import signal
import socket
import sys
import time
from contextlib import suppress
from ctypes import CDLL
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

WORKLOADS = Path(__file__).resolve().parents[2] / "workloads"

# As the trainings have it; read when transformers is imported.
os.environ["USE_TORCH_XLA"] = "0"
# Otherwise pyarrow, which transformers' trainer imports, starts a thread in the server.
os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"

# What the trainings import; torch._dynamo by the first optimizer, the last two by torch_xla. None starts a thread.
_PRELOADED = (
    "torch",
    "torch._dynamo",
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "torch.distributed.tensor.parallel",
    "torch.utils.data",
    "torch.utils.tensorboard",
    "transformers.models.bert.modeling_bert",
    "transformers.distributed",
    "transformers.generation",
    "transformers.masking_utils",
    "transformers.models.auto.modeling_auto",
    "transformers.models.qwen3.modeling_qwen3",
    "transformers.trainer",
    "peft",
    "h5py",
    "pytest",
    "networkx",
    "torch._functorch.aot_autograd",
)
XLA_ON_CPU = {
    "PJRT_DEVICE": "CPU",
    "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
}
"""Environment of a rank with PyTorch/XLA: to optimize a graph for the CPU takes longer than all its runs in a test."""
_LOOK_SECONDS = 0.005
_BY_THEMSELVES_SECONDS = 60.0
"""For the others once a rank failed: they were told the same, or miss it in their next reduction."""
_GRACE_SECONDS = 2.0
"""For those that do not. They wait in a reduction, where nobody hears SIGTERM."""
_END_SECONDS = 60.0
"""For one that was killed."""
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of <sys/prctl.h>


@dataclass(frozen=True)
class Ended:
    """What became of a gang."""

    code: int
    """0, or of the rank that failed first: its exit code, or the negative number of the signal that ended it."""
    codes: tuple[int, ...]
    """Of all, by rank."""
    steps: tuple[dict[str, Any], ...]
    """Rank 0's step lines."""
    out: tuple[str, ...]
    """Standard output, by rank."""
    err: tuple[str, ...]
    """Standard error, by rank."""

    @property
    def losses(self):
        """By step, as far as rank 0 printed them."""
        return {line["step"]: line["loss"] for line in self.steps if "loss" in line}


class Gang:
    """Starts gangs below a test's directory, which is their working directory, too."""

    def __init__(self, directory):
        self._directory = directory
        self._count = 0

    def __call__(
        self,
        module,
        *arguments,
        ranks=2,
        code=0,
        kill_at=None,
        kill_when=None,
        kill_rank=None,
        kill_signal=signal.SIGKILL,
        environment=None,
        seconds=900.0,
    ):
        """Runs a gang to its end; no process of it is left.

        It must end with ``code``, None for any, unless something is killed. When rank 0 has printed the line of the
        step ``kill_at`` and the file ``kill_when`` is there, the signal is sent to ``kill_rank``, None for all; after
        the next line rank 0 waits for that.
        Only what hangs takes ``seconds``.
        """
        self._count += 1
        logs = self._directory / f"gang-{self._count}"
        logs.mkdir()
        port, running = str(free_port()), []
        for rank in range(ranks):
            for kind in ("out", "err"):
                (logs / f"{rank}.{kind}").touch()
            variables = {**(environment or {}), **_place(rank, ranks, port)}
            running.append(Rank(module, arguments, variables, self._directory, logs / f"{rank}.out", kill_at))
        # Not before: the server that the first ranks are forked from has to import PyTorch.
        deadline = time.monotonic() + seconds
        try:
            victims = running if kill_rank is None else [running[kill_rank]]
            first_code = _watch(running, logs / "0.out", deadline, (kill_at, kill_when), victims, kill_signal)
        finally:
            codes = tuple(each.end() for each in running)
        out, err = (
            tuple((logs / f"{rank}.{kind}").read_text(errors="replace") for rank in range(ranks))
            for kind in ("out", "err")
        )
        ended = Ended(first_code or 0, codes, step_lines(out[0]), out, err)
        if first_code is None:
            pytest.fail(f"{module} was not done within {seconds:.0f} s\n{_tails(ended)}")
        if kill_at is None and kill_when is None and code is not None and ended.code != code:
            pytest.fail(f"{module} ended with {ended.code}, not {code}\n{_tails(ended)}")
        return ended


def start(module, *arguments, log, environment=None):
    """Starts a process that is no rank; it prints into ``log``, in whose directory it runs."""
    return Rank(module, arguments, environment or {}, log.parent, log, None)


def step_lines(output):
    """The step lines among what a rank printed; one that a kill truncated does not count."""
    found = []
    for line in output.splitlines():
        if line.startswith("{"):
            with suppress(ValueError):
                said = json.loads(line)
                if "step" in said:
                    found.append(said)
    return tuple(found)


class Rank:
    """A rank, which is a fork of the server."""

    def __init__(self, module, arguments, environment, directory, out, holds_after):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(_PRELOADED))
        words = [module, *map(str, arguments)]
        self._process = context.Process(target=_run, args=(words, environment, directory, out, holds_after))
        self._process.start()

    def code(self):
        """None while it runs; the negative number of a signal."""
        return self._process.exitcode

    def send(self, number):
        if self._process.exitcode is None and self._process.pid:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    def end(self):
        """Kills what is left of it and its children."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.join(_END_SECONDS)
        assert self._process.exitcode is not None
        return self._process.exitcode


def _run(words, environment, directory, out, holds_after):
    """In a fork of the server: becomes the rank. After the line of a later step than ``holds_after`` it waits."""
    gc.freeze()  # otherwise each collection goes through all that the server has imported, and copies it
    os.setsid()
    # The server ends with the tests, however those end.
    CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    for path, descriptor in ((out, 1), (out.with_suffix(".err"), 2)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(file, descriptor)
        os.close(file)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(environment)
    os.chdir(directory)
    # As `python -m` and PYTHONPATH would have it.
    first = [str(directory), str(WORKLOADS)]
    sys.path[:] = [*first, *(each for each in sys.path if each not in ("", *first))]
    sys.argv = words
    if holds_after is not None:
        _hold(holds_after, out.with_name("goes-on"))
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)


def _hold(after, goes_on):
    """A signal comes late on a machine with other work, and the training must not be over by then."""
    from trainium_workloads import steps

    report = steps.report

    def reported(step, **values):
        report(step, **values)
        while step > after and not goes_on.exists():
            time.sleep(_LOOK_SECONDS)

    steps.report = reported


def _watch(running, log, deadline, kill, victims, kill_signal):
    """The code of the first rank that failed, 0 when all ended well, None when time was up."""
    kill_at, kill_when = kill
    while time.monotonic() < deadline:
        is_printed = kill_at is None or any(x["step"] >= kill_at for x in step_lines(log.read_text()))
        if (kill_at or kill_when) and is_printed and (kill_when is None or kill_when.exists()):
            for each in victims:
                each.send(kill_signal)
            log.with_name("goes-on").touch()
            kill_at = kill_when = None
        codes = [each.code() for each in running]
        if first := [code for code in codes if code]:
            _await(running, _BY_THEMSELVES_SECONDS)
            failed = [*first, *(code for each in running if (code := each.code()))]
            for each in running:
                if each.code() is None:
                    each.send(signal.SIGTERM)
            _await(running, _GRACE_SECONDS)
            # By an exception, 1, also those end that miss the one that failed, and sooner than that is known to us.
            return next((code for code in failed if code != 1), 1)
        if all(code == 0 for code in codes):
            return 0
        time.sleep(_LOOK_SECONDS)
    return None


def _await(running, seconds):
    """Until all have ended, or time is up."""
    deadline = time.monotonic() + seconds
    while any(each.code() is None for each in running) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)


def _place(rank, ranks, port):
    """What torchrun tells a rank of where it is; all on one node."""
    size = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return {**size, "RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0"}


def free_port():
    """Below those that the kernel hands out, which the ranks' own connections take."""
    while True:
        port = random.randrange(15_000, 30_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def _tails(ended):
    return "\n".join(
        f"rank {rank} ({code}), the end of what it printed:\n{_tail(out)}\n{_tail(err)}"
        for rank, (code, out, err) in enumerate(zip(ended.codes, ended.out, ended.err, strict=True))
    )


def _tail(text):
    return "\n".join(f"  {line}" for line in text.splitlines()[-25:])
