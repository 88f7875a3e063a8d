"""A cache of compiled graphs that jobs share: one writer, whole or not there, and checked before training starts.

A Neuron graph takes minutes to compile and every process of a job needs the same ones. The SDK's own cache shares them
by a directory, with two dangers on many machines: a compilation that is killed leaves a lock for which everybody after
it waits for ever, and a job with another option finds nothing and compiles on all its processes at once.

So one process compiles, under a lease, into a directory that training does not read; its graphs appear by one rename
under the name that training reads; and training asks first whether the graphs of its very options are there.

    key    prints the name of a cache
    check  whether the graphs are there; training starts with it
    run    compiles, as the only one, and publishes
    join   compiles beside the process of the same job that has the lease, on the job's other nodes
"""

import argparse
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from trainium_workloads.graph_cache import COMPLETE, IN_USE, NOT_THERE, OTHER_OPTIONS, Cache, Incomplete
from trainium_workloads.lease import Lost

NOT_COMPILED = 6
"""Exit code of ``run``: the command ended well and left graphs that it did not compile."""

_XLA, _TORCH_NEURON = "NEURON_COMPILE_CACHE_URL", "TORCH_NEURONX_NEFF_CACHE_DIR"
"""Variables with the cache of the SDK's two frameworks; a job with TorchNeuron has the second."""
_FLAGS = "NEURON_CC_FLAGS"
_CACHE_FLAG = re.compile(r"(--cache_dir[= ])(\S+)")
"""Wins over the variables (SDK documentation, persistent cache)."""


def key(model: str, world_size: int, precision: str, compiler: str) -> str:
    """Return the name of a cache: it holds all that graphs depend on, beside a script's own options.

    Args:
        model: any text.
        world_size: processes of the job.
        precision: ``bf16`` or ``fp32``.
        compiler: its version, or the version of its image.
    """
    parts = (model, f"{world_size}x", precision, compiler)
    return "-".join(re.sub(r"[^A-Za-z0-9._]+", "-", part).strip("-.") for part in parts if part)


@dataclass(frozen=True)
class Compilation:
    """A compilation of a job: the command that compiles, its cache and its options."""

    cache: Cache
    options: Mapping[str, str]
    command: Sequence[str]
    job: str = ""
    """Name of the job: its other nodes join by it."""
    waits: bool = False
    """Whether to wait while somebody else compiles."""
    patience_seconds: float = 600.0
    """Longest wait of a joining node for the holder of the lease."""

    def run(self) -> int:
        """Compile under the lease and publish; return at once where the cache is complete already.

        Returns:
            0; the command's exit code; :data:`IN_USE` or :data:`NOT_COMPILED`.
        """
        cache, told = self.cache, 0
        while True:
            if (done := cache.complete(self.options)) is not None:
                return _said(done.message, 0)
            holder = cache.lease.holder()
            if holder is not None and cache.lease.is_alive(holder):
                if not self.waits:
                    return _said(f"compile cache {cache.name} is being compiled by {holder}", IN_USE)
                if told != holder.generation:
                    told = holder.generation
                    _say(f"compile cache {cache.name} is being compiled by {holder}; waiting")
                continue
            now = cache.lease.holder()
            if now is not None and (holder is None or now.generation != holder.generation):
                continue
            try:
                generation = cache.lease.take(self._told(), now)
            except Lost:
                continue
            if now is not None:
                _say(f"compile cache {cache.name}: {now} is silent for too long, taking over")
            try:
                return self._compile(generation)
            except Lost as lost:
                told_now = f"compile cache {cache.name} is being compiled by {lost}: they took this process for dead"
                return _said(told_now, IN_USE)
            finally:
                cache.lease.give_back()

    def join(self) -> int:
        """Run the command beside the job's process that has the lease, with the same directory.

        Returns:
            0 where nothing is left to compile; the command's exit code; :data:`IN_USE` when no holder came.
        """
        cache = self.cache
        deadline = time.monotonic() + self.patience_seconds
        while time.monotonic() < deadline:
            if (done := cache.complete(self.options)) is not None:
                return _said(done.message, 0)
            holder = cache.lease.holder()
            # The same job's holder of an earlier attempt does not beat any more.
            if holder is not None and holder.told.get("job") == self.job and cache.lease.is_alive(holder):
                helper = cache.helper(holder.generation, f"{socket.gethostname()}.{os.getpid()}")
                helper.take(self._told())
                try:
                    if cache.is_open(holder.generation):
                        return self._command(cache.staging(holder.generation), lambda: None)
                finally:
                    helper.give_back()
            time.sleep(0.2)
        return _said(f"nobody of job {self.job} compiles {cache.name} after {self.patience_seconds:.0f} s", IN_USE)

    def _told(self) -> dict[str, str]:
        who = f"{self.job or 'a process'} ({socket.gethostname()}, process {os.getpid()})"
        return {"who": who, "job": self.job, "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}

    def _compile(self, generation: int) -> int:
        cache = self.cache
        # The previous holder of the lease may have done it.
        if (done := cache.complete(self.options)) is not None:
            return _said(done.message, 0)
        directory = cache.prepare(generation)
        if code := self._command(directory, cache.lease.check):
            return _said(f"the command ended with {code}; what it compiled is kept for the next attempt", code)
        cache.await_helpers(generation)
        try:
            graphs = cache.publish(generation, self.options, self.command)
        except Incomplete as error:
            return _said(str(error), NOT_COMPILED)
        cache.discard(generation)
        what = f"{graphs} graphs" if graphs else "no graph (without Neuron devices there is nothing to compile)"
        return _said(f"compile cache {cache.name} is complete: {what}", 0)

    def _command(self, directory: Path, look: Callable[[], None]) -> int:
        """Run the command to its end; pass SIGTERM on."""
        process = subprocess.Popen(self.command, env=surroundings(os.environ, directory))

        def pass_on(number: int, _frame: FrameType | None) -> None:
            process.send_signal(number)

        before = signal.signal(signal.SIGTERM, pass_on)
        try:
            while True:
                try:
                    code = process.wait(timeout=1.0)
                    return code if code >= 0 else 128 - code
                except subprocess.TimeoutExpired:
                    look()
        except BaseException:
            process.kill()
            process.wait()
            raise
        finally:
            signal.signal(signal.SIGTERM, before)


def surroundings(environment: Mapping[str, str], directory: Path) -> dict[str, str]:
    """Return the environment in which the job's framework uses that directory as its cache."""
    ours = {**environment, _TORCH_NEURON if _TORCH_NEURON in environment else _XLA: str(directory)}
    if _FLAGS in environment:
        ours[_FLAGS] = _CACHE_FLAG.sub(lambda match: f"{match[1]}{shlex.quote(str(directory))}", environment[_FLAGS])
    return ours


# --- Command line -------------------------------------------------------------------------------------------------


def _say(message: str) -> None:
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()


def _said(message: str, code: int) -> int:
    _say(message)
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    asked = _parser().parse_args(arguments)
    if asked.verb == "key":
        sys.stdout.write(f"{key(asked.model, asked.world_size, asked.precision, asked.compiler)}\n")
        return 0
    try:
        cache = Cache(asked.root, asked.key)
        if asked.verb == "check":
            verdict = cache.check(asked.options)
            return _said(verdict.message, verdict.code)
        if not asked.command:
            return _said("name the command that compiles, after --", 2)
        command = asked.command[1:] if asked.command[0] == "--" else asked.command
        compilation = Compilation(cache, asked.options, command, asked.job, asked.wait)
        return compilation.run() if asked.verb == "run" else compilation.join()
    except ValueError as error:
        return _said(str(error), 2)
    except OSError as error:
        where = error.filename or asked.root
        return _said(f"compile cache {asked.key}: {where}: {error.strerror}. What training reads is as it was", 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trainium_workloads.compile_cache", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="key|check|run|join")
    named = verbs.add_parser("key", help="print the name of a cache")
    named.add_argument("--model", required=True)
    named.add_argument("--world-size", required=True, type=int)
    named.add_argument("--precision", required=True)
    named.add_argument("--compiler", required=True)
    helps = {
        "check": f"exit code {COMPLETE}: complete; {NOT_THERE}: not there; {OTHER_OPTIONS}: compiled with other "
        f"options; {IN_USE}: being compiled",
        "run": "compile, as the only one, and publish",
        "join": "compile beside the process of the same job that has the lease",
    }
    for verb, told in helps.items():
        each = verbs.add_parser(verb, help=told)
        each.add_argument("--root", required=True, type=Path, help="directory of all caches")
        each.add_argument("--key", required=True)
        each.add_argument("--options", type=_options, default={}, metavar="JSON", help="what graphs depend on besides")
        if verb != "check":
            each.add_argument("--job", default="", help="name of the job")
            each.add_argument("--wait", action="store_true", help="wait while another job compiles")
            each.add_argument("command", nargs=argparse.REMAINDER, metavar="-- command")
    return parser


def _options(text: str) -> dict[str, Any]:
    options = json.loads(text)
    if not isinstance(options, dict):
        raise argparse.ArgumentTypeError("must be a JSON object")
    return options


if __name__ == "__main__":
    sys.exit(main())
