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
from typing import Literal

import yaml
from forked_pytest import ForkedPytest

ROOT = Path(__file__).resolve().parent.parent
LISTS = ROOT / "tests" / "mutants"
SHARE = 0.92
"""The least share of a list's faults that tests must notice."""
SHARE_OF_A_SAMPLE = 0.95
"""The least share of a sample's faults that tests must notice."""
_LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".local", ".mypy_cache", ".ruff_cache", "__pycache__", "dist")

Outcome = Literal["noticed", "missed"]


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

    @property
    def title(self):
        """One line for people."""
        return f"{self.file}: {self.why}"


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
    with tempfile.TemporaryDirectory(prefix="trn-mutants-") as directory:
        copies = trees(Path(directory), options.workers)
        if not _pass(copies, lists):
            return 1
        held = [_report(name, mutants, copies, share) for name, mutants in lists.items()]
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
    """Return the present commit."""
    return subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def load(path):
    """The faults of one list."""
    rows = yaml.safe_load(path.read_text(encoding="utf-8"))
    return tuple(Mutant(**{**row, "tests": tuple(row["tests"])}) for row in rows)


def planted(mutant, text):
    """The file's text with the fault in it; None when the fault does not fit (any more)."""
    return text.replace(mutant.old, mutant.new) if text.count(mutant.old) == 1 and mutant.old != mutant.new else None


class Tree:
    """A copy of the repository, and a process there whose forks run pytest."""

    def __init__(self, path):
        self.path = path
        self.pytest = ForkedPytest(path)

    @contextmanager
    def changed(self, file, change):
        """Change a file's text for a while."""
        target = self.path / file
        whole = target.read_text(encoding="utf-8")
        target.write_text(change(whole), encoding="utf-8")
        try:
            yield
        finally:
            target.write_text(whole, encoding="utf-8")


class Trees:
    """Copies of the repository, handed out one to each worker at a time."""

    def __init__(self, copies):
        self.count = len(copies)
        self._free: SimpleQueue[Tree] = SimpleQueue()
        for copy in copies:
            self._free.put(copy)

    @contextmanager
    def one(self):
        """Lend a copy."""
        tree = self._free.get()
        try:
            yield tree
        finally:
            self._free.put(tree)

    def outcome(self, mutant):
        """What the tests say of one fault."""
        with self.one() as tree, tree.changed(mutant.file, lambda text: text.replace(mutant.old, mutant.new)):
            code = tree.pytest.run(["-x", *mutant.tests]).code
        if code in (4, 5):
            raise SystemExit(f"pytest found no such tests: {' '.join(mutant.tests)}")
        return "noticed" if code else "missed"


def trees(directory, workers):
    """Return copies of the repository with their bytecode.

    Bytecode is told apart by time and size as a rule: a fault of the same size, planted within a second, would not be
    read. It is told apart by the source's digest here.
    """
    first, *others = (directory / str(number) for number in range(workers))
    shutil.copytree(ROOT, first, ignore=_LEFT_OUT, symlinks=True)
    compileall.compile_dir(first, quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
    for other in others:
        shutil.copytree(first, other, symlinks=True)
    return Trees(tuple(Tree(path) for path in (first, *others)))


def _pass(copies, lists):
    """A test that fails anyway notices nothing: all named tests must pass on the code as it is."""
    tests = sorted({test for mutants in lists.values() for mutant in mutants for test in mutant.tests})
    with copies.one() as tree:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", str(copies.count), *tests]
        ran = subprocess.run(command, cwd=tree.path, capture_output=True, text=True, check=False)
    if ran.returncode:
        print(f"{ran.stdout[-4000:]}\nWithout any fault the tests above fail already.")
    return not ran.returncode


def _report(name, mutants, copies, share):
    outcomes = dict(_outcomes(mutants, copies))
    for mutant, outcome in outcomes.items():
        if outcome != "noticed":
            print(f"  {outcome:7} {mutant.title}", flush=True)
    noticed = sum(outcome == "noticed" for outcome in outcomes.values())
    held = noticed >= share * len(outcomes)
    print(f"{'ok  ' if held else 'LOW '} {name}: {noticed} of {len(outcomes)} noticed", flush=True)
    return held


def _outcomes(mutants, copies):
    with ThreadPoolExecutor(copies.count) as pool:
        yield from zip(mutants, pool.map(copies.outcome, mutants), strict=True)


if __name__ == "__main__":
    sys.exit(main())
