"""A cache of compiled graphs that jobs share: one writer, whole or not there, and checked before training starts.

A Neuron graph takes minutes to compile and every process of a job needs the same ones. The SDK's own cache shares them
by a directory, with two dangers on many machines: a compilation that is killed leaves a lock for which everybody after
it waits for ever, and a job with another option finds nothing and compiles on all its processes at once.

So one process compiles, under a lock, into a directory that training does not read; its graphs appear by one rename
under the name that training reads; and training asks first whether the graphs of its very options are there.

    check  whether the graphs are there; training starts with it
    run    compiles, as the only one, and publishes
    join   compiles beside the process of the same job that runs it, on the job's other nodes
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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainium_workloads.file_lock import InUseError
from trainium_workloads.graph_cache import COMPLETE, IN_USE, NOT_THERE, OTHER_OPTIONS, Cache, IncompleteError

NOT_COMPILED = 6
"""Exit code of ``run``: the command ended well and left graphs that it did not compile."""

_XLA, _TORCH_NEURON = "NEURON_COMPILE_CACHE_URL", "TORCH_NEURONX_NEFF_CACHE_DIR"
"""Variables with the cache of the SDK's two frameworks; a job with TorchNeuron has the second."""
_FLAGS = "NEURON_CC_FLAGS"
_CACHE_FLAG = re.compile(r"(--cache_dir[= ])(\S+)")
"""Wins over the variables (SDK documentation, persistent cache)."""


@dataclass(frozen=True)
class Compilation:
    """A compilation of a job: the command that compiles, its cache and its options."""

    cache: Cache
    options: Mapping[str, str]
    command: Sequence[str]
    job: str = ""
    """Name of the job: its other nodes join by it."""
    patience_seconds: float = 600.0
    """Longest wait of a joining node for the process that compiles."""

    def run(self) -> int:
        """Compile as the only process and publish; return at once where the cache is complete already. Return 0, the
        command's exit code, :data:`IN_USE` or :data:`NOT_COMPILED`."""
        if self._is_complete():
            return 0
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        who = f"{self.job or 'a process'} ({socket.gethostname()}, process {os.getpid()}) since {since}"
        try:
            with self.cache.compiling(who, self.job) as directory:
                # The process that compiled before may have done it.
                return 0 if self._is_complete() else self._compile(directory)
        except InUseError as note:
            by = str(note).partition("\n")[0]
            return _report(f"compile cache {self.cache.name} is being compiled by {by}", IN_USE)

    def join(self) -> int:
        """Run the command beside the job's process that compiles, in the same directory. Return 0 where nothing is left
        to compile, the command's exit code, or :data:`IN_USE` when no such process came."""
        deadline = time.monotonic() + self.patience_seconds
        while time.monotonic() < deadline:
            if self._is_complete():
                return 0
            with self.cache.helping(self.job) as directory:
                if directory is not None:
                    return self._command(directory)
            time.sleep(0.5)
        waited = f"after {self.patience_seconds:.0f} s"
        return _report(f"no node of job {self.job} compiles {self.cache.name} {waited}", IN_USE)

    def _is_complete(self) -> bool:
        state = self.cache.state(self.options)
        if state.code == COMPLETE:
            _say(state.message)
        return state.code == COMPLETE

    def _compile(self, directory: Path) -> int:
        cache = self.cache
        if code := self._command(directory):
            return _report(f"the command ended with {code}; what it compiled is kept for the next attempt", code)
        cache.await_helpers(directory)
        try:
            graphs = cache.publish(directory, self.options, self.command)
        except IncompleteError as error:
            return _report(str(error), NOT_COMPILED)
        what = f"{graphs} graphs" if graphs else "no graph (without Neuron devices there is nothing to compile)"
        return _report(f"compile cache {cache.name} is complete: {what}", 0)

    def _command(self, directory: Path) -> int:
        """Run the command to its end; pass SIGTERM on."""
        process = subprocess.Popen(self.command, env=surroundings(os.environ, directory))
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        code = process.wait()
        return code if code >= 0 else 128 - code


def surroundings(environment: Mapping[str, str], directory: Path) -> dict[str, str]:
    """Return the environment in which the job's framework uses that directory as its cache."""
    ours = {**environment, _TORCH_NEURON if _TORCH_NEURON in environment else _XLA: str(directory)}
    if _FLAGS in environment:
        ours[_FLAGS] = _CACHE_FLAG.sub(lambda match: f"{match[1]}{shlex.quote(str(directory))}", environment[_FLAGS])
    return ours


# --- Command line -------------------------------------------------------------------------------------------------


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _report(message: str, code: int) -> int:
    _say(message)
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    words = sys.argv[1:] if arguments is None else [*arguments]
    end = words.index("--") if "--" in words else len(words)
    asked, command = _parser().parse_args(words[:end]), words[end + 1 :]
    try:
        cache = Cache(asked.root, asked.key)
        if asked.verb == "check":
            verdict = cache.check(asked.options)
            return _report(verdict.message, verdict.code)
        if not command:
            return _report("name the command that compiles, after --", 2)
        compilation = Compilation(cache, asked.options, command, asked.job)
        return compilation.run() if asked.verb == "run" else compilation.join()
    except ValueError as error:
        return _report(str(error), 2)
    except OSError as error:
        where = error.filename or asked.root
        return _report(f"compile cache {asked.key}: {where}: {error.strerror}. What training reads is as it was", 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m trainium_workloads.compile_cache",
        usage="%(prog)s check|run|join --root ROOT --key KEY [--options JSON] [--job JOB] [-- command that compiles]",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    codes = f"{COMPLETE}: complete; {NOT_THERE}: not there; {OTHER_OPTIONS}: compiled with other options"
    parser.epilog = f"Exit codes of check: {codes}; {IN_USE}: being compiled"
    parser.add_argument("verb", choices=("check", "run", "join"))
    parser.add_argument("--root", required=True, type=Path, help="directory of all caches")
    parser.add_argument("--key", required=True, help="name of the cache")
    parser.add_argument("--options", type=_options, default={}, metavar="JSON", help="other inputs of graphs")
    parser.add_argument("--job", default="", help="name of the job that compiles")
    return parser


def _options(text: str) -> dict[str, Any]:
    options = json.loads(text)
    if not isinstance(options, dict):
        raise argparse.ArgumentTypeError("must be a JSON object")
    return options


if __name__ == "__main__":
    sys.exit(main())
