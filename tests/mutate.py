"""The mutants: each fault of ``tests/mutants`` is planted by itself, and the tests that should fail are run.

``make mutants`` plants all faults, ``make mutants ARGS="components model"`` those of some lists, and ``make test-all``
a sample of 60 that is another one for each commit. Each fault is planted in a copy of the tree, so an interrupt leaves
nothing behind. A fault is noticed when one of its tests fails. Before any is planted, each fault of every list must fit
the code, and its tests must exist and pass.
"""

import argparse
import compileall
import os
import random
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode
from queue import SimpleQueue

import forked_pytest
import isolated_run
import yaml

ROOT = Path(__file__).resolve().parent.parent
LISTS = ROOT / "tests" / "mutants"
SHARE = 0.92
"""The least share of a list's faults that tests must notice."""
SHARE_OF_A_SAMPLE = 0.95
"""The least share of a sample's faults that tests must notice."""
_LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".local", ".mypy_cache", ".ruff_cache", "__pycache__", "dist")


@dataclass(frozen=True)
class Mutant:
    """One fault: what to change where, why it would matter, and who should notice."""

    file: str
    old: str
    """Text that stands in the file exactly once."""
    new: str
    why: str
    tests: tuple[str, ...]
    """Test files, or single tests, of which one must fail."""


def main():
    """Plant faults, run their tests and return 1 when too few are noticed or a list is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = sorted(path.stem for path in LISTS.glob("*.yaml"))
    parser.add_argument("lists", nargs="*", choices=[[], *known], metavar="LIST", help=f"of {', '.join(known)}")
    parser.add_argument("--sample", type=int, metavar="COUNT", help="plant this many faults, drawn from the lists")
    parser.add_argument("--seed", help="of the sample (default: the commit)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    everything = {name: load(LISTS / f"{name}.yaml") for name in known}
    if problems := list(faults_of_lists(everything)):
        print("\n".join(problems))
        return 1
    lists = {name: everything[name] for name in options.lists or known}
    share = SHARE
    if options.sample:
        seed = options.seed or commit()
        drawn = random.Random(seed).sample([each for mutants in lists.values() for each in mutants], options.sample)
        lists, share = {f"a sample drawn by --seed {seed}": tuple(drawn)}, SHARE_OF_A_SAMPLE
    isolated_run.isolate()
    with tempfile.TemporaryDirectory(prefix="trn-mutants-") as directory:
        copies = trees(Path(directory), options.workers)
        if not _pass(copies, lists):
            return 1
        held = [report(name, mutants, copies, share) for name, mutants in lists.items()]
        return 0 if all(held) else 1


def faults_of_lists(lists):
    """Yield a line for each entry that does not fit the code, lacks a reason or tests, or is listed twice."""
    seen = set()
    for name, mutants in lists.items():
        for mutant in mutants:
            text = (ROOT / mutant.file).read_text(encoding="utf-8") if (ROOT / mutant.file).exists() else ""
            if planted(mutant, text) is None:
                yield f"{name}: {mutant.old!r} stands {text.count(mutant.old)} times in {mutant.file}, not once"
            if not (mutant.why and mutant.tests):
                yield f"{name}: {mutant.old!r} of {mutant.file} lacks its reason or its tests"
            for test in mutant.tests:
                if not (ROOT / test.partition("::")[0]).exists():
                    yield f"{name}: there is no {test}, which {mutant.old!r} of {mutant.file} names"
            key = (mutant.file, mutant.old, mutant.new)
            if key in seen:
                yield f"{name}: {mutant.old!r} of {mutant.file} is listed twice"
            seen.add(key)


def commit():
    return subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def load(path):
    rows = yaml.safe_load(path.read_text(encoding="utf-8"))
    return tuple(Mutant(**{**row, "tests": tuple(row["tests"])}) for row in rows)


def planted(mutant, text):
    """The file's text with the fault in it; None when the fault does not fit (any more)."""
    return text.replace(mutant.old, mutant.new) if text.count(mutant.old) == 1 and mutant.old != mutant.new else None


class Trees:
    """Copies of the repository, handed out one to each worker at a time."""

    def __init__(self, paths):
        self.count = len(paths)
        self._free = SimpleQueue()
        for path in paths:
            self._free.put(path)

    @contextmanager
    def one(self):
        tree = self._free.get()
        try:
            yield tree
        finally:
            self._free.put(tree)

    def notice(self, mutant):
        """Plant one fault, and return whether its tests notice it."""
        with self.one() as tree:
            file = tree / mutant.file
            whole = file.read_text(encoding="utf-8")
            file.write_text(whole.replace(mutant.old, mutant.new), encoding="utf-8")
            try:
                return forked_pytest.run(tree, ["-x", *mutant.tests]) != 0
            finally:
                file.write_text(whole, encoding="utf-8")


def trees(directory, workers):
    """Return copies of the repository with their bytecode.

    Python recognises stale bytecode by time and size: a fault of the same size, planted within a second, would not be
    read. Here it is recognised by the source's digest.
    """
    first, *others = (directory / str(number) for number in range(workers))
    shutil.copytree(ROOT, first, ignore=_LEFT_OUT, symlinks=True)
    compileall.compile_dir(first, quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
    for other in others:
        shutil.copytree(first, other, symlinks=True)
    return Trees([first, *others])


def _pass(copies, lists):
    """A test that fails anyway notices nothing: all named tests must pass on the code as it is."""
    tests = sorted({test for mutants in lists.values() for mutant in mutants for test in mutant.tests})
    with copies.one() as tree:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", str(copies.count), *tests]
        ran = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    if ran.returncode:
        print(f"{ran.stdout[-4000:]}\nWithout any fault the tests above fail already.")
    return not ran.returncode


def report(name, mutants, copies, share):
    """Plant faults, name the missed ones, and return whether the share of them is noticed."""
    with ThreadPoolExecutor(copies.count) as pool:
        noticed = list(pool.map(copies.notice, mutants))
    for mutant, is_noticed in zip(mutants, noticed, strict=True):
        if not is_noticed:
            print(f"  missed {mutant.file}: {mutant.why}")
    held = sum(noticed) >= share * len(mutants)
    print(f"{'ok  ' if held else 'LOW '} {name}: {sum(noticed)} of {len(mutants)} noticed", flush=True)
    return held


if __name__ == "__main__":
    sys.exit(main())
