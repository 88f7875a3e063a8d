"""Automatic mutants: small changes of a room's code, drawn by a seed, and the tests that notice each of them.

``python tests/automatic_mutants.py measure jobs`` draws mutants of a room, tries each with tests that run its line, and
writes the result to a file. ``… again FILE`` tries the same mutants anew: what was noticed must be noticed still.
``… sample`` tries another room for each commit, and fails when less is noticed than ``mutants/automatic.toml`` has.
``… needless FILE`` lists the test functions without which the same lines run and the same mutants are noticed.
A room is a package of the library, ``components`` or ``trainium_eks/NAME``; its tests are those of ``tests/unit/NAME``
unless ``--tests`` names more directories.
"""

import argparse
import ast
import json
import re
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from mutate import LISTS, ROOT, commit, trees

COUNT = 200
SAMPLE = 40
"""Mutants of one room that `make mutants-sample` tries."""
SEED = 32
MOST_TESTS = 30
"""Test functions tried for one mutant: those of the tests that run its line which run the fewest lines in all."""

_OTHER = {
    "==": "!=", "!=": "==", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "in": "not in", "not in": "in", "is": "is not",
    "is not": "is",
}  # fmt: skip


@dataclass(frozen=True)
class Change:
    """One change of one place, found again by its text and number when other lines of the file change."""

    file: str
    where: str
    """Qualified name of the function; empty for a module."""
    kind: str
    """``comparison``, ``and/or``, ``not``, ``number``, ``branch`` or ``return``."""
    number: int
    """Counted among the changes of this kind in the function."""
    start: int
    """Offset of the text that is replaced."""
    end: int
    new: str
    line: int
    """First line of the statement."""

    @property
    def key(self):
        """Return the name by which another run knows the change."""
        return f"{self.file}::{self.where}::{self.kind}::{self.number}"

    def planted(self, text):
        """Return the file's text with the change."""
        return text[: self.start] + self.new + text[self.end :]


class _Finder(ast.NodeVisitor):
    """Collects the changes of a file."""

    def __init__(self, file, text):
        self.found: list[Change] = []
        self._file, self._text = file, text
        lines = text.encode().splitlines(keepends=True)
        self._starts = [0]
        for line in lines:
            self._starts.append(self._starts[-1] + len(line))
        self._bytes = text.encode()
        self._where: list[str] = []
        self._line = 0

    def visit(self, node):
        """Visit a node; annotations, decorators and what only type checkers read are left as they are."""
        if isinstance(node, ast.stmt):
            self._line = node.lineno
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self._where.append(node.name)
            for each in node.body:
                self.visit(each)
            self._where.pop()
        elif isinstance(node, ast.AnnAssign):
            if node.value:
                self.visit(node.value)
        elif not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            super().visit(node)

    def visit_Compare(self, node):
        """Turn a comparison into its near neighbour."""
        left = node.left
        for right in node.comparators:
            start, end = self._end(left), self._start(right)
            between = self._bytes[start:end].decode()
            operator = re.search(r"not\s+in|is\s+not|[=!<>]=|[<>]|\bin\b|\bis\b", between)
            if operator:
                word = " ".join(operator[0].split())
                self._add("comparison", start + operator.start(), start + operator.end(), _OTHER[word])
            left = right
        self.generic_visit(node)

    def visit_BoolOp(self, node):
        """Exchange the first ``and`` and ``or``."""
        start = self._end(node.values[0])
        between = self._bytes[start : self._start(node.values[1])].decode()
        if operator := re.search(r"\b(and|or)\b", between):
            other = "or" if operator[0] == "and" else "and"
            self._add("and/or", start + operator.start(), start + operator.end(), other)
        self.generic_visit(node)

    def visit_UnaryOp(self, node):
        """Drop a ``not``."""
        if isinstance(node.op, ast.Not):
            self._add("not", self._start(node), self._start(node.operand), "")
        self.generic_visit(node)

    def visit_Constant(self, node):
        """Add one to a whole number."""
        if type(node.value) is int:
            self._add("number", self._start(node), self._end(node), str(node.value + 1))

    def visit_If(self, node):
        """Swap the branches."""
        self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node):
        """Swap the values."""
        self._negate(node.test)
        self.generic_visit(node)

    def visit_Return(self, node):
        """Return nothing."""
        if node.value and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            self._add("return", self._start(node.value), self._end(node.value), "None")
        self.generic_visit(node)

    def _negate(self, test):
        start, end = self._start(test), self._end(test)
        self._add("branch", start, end, f"not ({self._bytes[start:end].decode()})")

    def _start(self, node):
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node):
        return self._starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[operator]

    def _add(self, kind, start, end, new):
        where = ".".join(self._where)
        number = sum(each.kind == kind and each.where == where for each in self.found)
        # Offsets of characters: the text may hold others than ASCII's.
        first, last = (len(self._bytes[:place].decode()) for place in (start, end))
        self.found.append(Change(self._file, where, kind, number, first, last, new, self._line))


def changes_of(file):
    """Return every change of a file that leaves valid Python."""
    text = (ROOT / file).read_text(encoding="utf-8")
    finder = _Finder(file, text)
    finder.visit(ast.parse(text))
    return [each for each in finder.found if _compiles(each.planted(text))]


def _compiles(text):
    try:
        compile(text, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def sources_of(room):
    """Return the directory of a room's code."""
    return room if (ROOT / room).is_dir() else f"trainium_eks/{room}"


@dataclass
class Measured:
    """Mutants of a room and the test functions that notice each."""

    room: str
    tests: list[str]
    """Directories of tests."""
    seed: int
    noticers: dict[str, list[str]]
    """Key of a mutant to its noticers; none for one that was missed."""
    seconds: dict[str, float]
    """Duration of each test function of the room."""
    needed_for_lines: list[str]
    """Test functions that run all lines together which the room's tests run."""

    @property
    def noticed(self):
        """Return the number of noticed mutants."""
        return sum(map(bool, self.noticers.values()))


def measure(room, tests, copies, *, count, seed, changes=None):
    """Try mutants of a room with tests that run their lines; ``changes`` instead of drawn ones if given."""
    with copies.one() as tree:
        run = tree.pytest.run(["-m", "not slow", *tests], covered=(sources_of(room),), timeout=3600)
    if not run.lines or not run.seconds:
        raise SystemExit(f"the tests of {room} do not run: {' '.join(tests)}")
    if run.failed:
        print(f"{room}: left out, as they fail without a mutant in a tree without Git: {' '.join(sorted(run.failed))}")
    for of_file in run.lines.values():
        for line, ran in of_file.items():
            of_file[line] = [test for test in ran if test not in run.failed]
    width = _widths(run.lines)
    if changes is None:
        drawn = [each for file in sorted(run.lines) for each in changes_of(file)]
        # By digest: the draw stays as it is where other code changes.
        changes = sorted(drawn, key=lambda change: sha256(f"{seed} {change.key}".encode()).digest())[:count]
    noticers = {}
    with ThreadPoolExecutor(copies.count) as pool:
        tried = pool.map(lambda change: _try(change, copies, _tests(change, run, width), run.seconds or {}), changes)
        for number, (change, found) in enumerate(zip(changes, tried, strict=True), 1):
            noticers[change.key] = found
            if number % 20 == 0:
                print(f"{room}: {number} of {len(changes)}, {sum(map(bool, noticers.values()))} noticed", flush=True)
    return Measured(room, tests, seed, noticers, run.seconds, _cover(run.lines, run.seconds))


def _widths(lines):
    """Return the number of lines that each test runs."""
    widths: dict[str, int] = {}
    for of_file in lines.values():
        for tests in of_file.values():
            for test in tests:
                widths[test] = widths.get(test, 0) + 1
    return widths


def _tests(change, run, width):
    of_file = (run.lines or {}).get(change.file, {})
    found = set(of_file.get(str(change.line), ()))
    if not found:  # the line runs when the module is imported
        found = {test for tests in of_file.values() for test in tests}
    return sorted(found, key=lambda test: (width[test], test))[:MOST_TESTS]


def _try(change, copies, tests, seconds):
    """Return the tests that notice a change, and all of them where none can be collected any more."""
    if not tests:
        return []
    patience = 20 + 5 * sum(seconds.get(test, 0) for test in tests)
    with copies.one() as tree, tree.changed(change.file, change.planted):
        run = tree.pytest.run(tests, timeout=patience)
    return sorted(run.failed) or (tests if run.code != 0 else [])


def _cover(lines, seconds):
    """Return few and quick tests that run all lines together."""
    by_test: dict[str, set[tuple[str, str]]] = {}
    for file, of_file in lines.items():
        for line, tests in of_file.items():
            for test in tests:
                by_test.setdefault(test, set()).add((file, line))
    chosen, missing = [], set().union(*by_test.values()) if by_test else set()
    while missing:
        best = max(by_test, key=lambda test: (len(by_test[test] & missing) / (0.05 + seconds.get(test, 0)), test))
        chosen.append(best)
        missing -= by_test[best]
    return sorted(chosen)


def needless(measured):
    """Return the test functions without which the same lines run and the same mutants are noticed."""
    needed = set(measured.needed_for_lines)
    for noticers in measured.noticers.values():
        if noticers and not needed & set(noticers):
            needed.add(min(noticers, key=lambda test: (measured.seconds.get(test, 0), test)))
    return sorted(set(measured.seconds) - needed)


def _again(before, copies):
    """Try the mutants that were noticed before; return 1 when one is missed now."""
    files = {key.partition("::")[0] for key in before.noticers}
    known = {each.key: each for file in files if (ROOT / file).exists() for each in changes_of(file)}
    wanted = [known[key] for key, noticers in before.noticers.items() if noticers and key in known]
    now = measure(before.room, before.tests, copies, count=0, seed=before.seed, changes=wanted)
    missed = [key for key, noticers in now.noticers.items() if not noticers]
    gone = before.noticed - len(wanted)
    print(
        f"{before.room}: {before.noticed} noticed before, {gone} of them gone with their code, {len(missed)} missed now"
    )
    print(*(f"  missed {key}" for key in missed), sep="\n")
    return 1 if missed else 0


def _sample(copies):
    """Try mutants of one room; return 1 when its tests notice too few."""
    rates = tomllib.loads((LISTS / "automatic.toml").read_text(encoding="utf-8"))
    room = sorted(rates)[int(commit()[:8], 16) % len(rates)]
    found = measure(room, rates[room]["tests"], copies, count=SAMPLE, seed=SEED)
    held = found.noticed >= rates[room]["share"] * len(found.noticers)
    print(f"{'ok  ' if held else 'LOW '} automatic mutants of {room}: {found.noticed} of {len(found.noticers)} noticed")
    return 0 if held else 1


def main():
    """Run one of the commands."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("measure", "again", "needless", "sample"))
    parser.add_argument("subjects", nargs="*", help="rooms to measure, files of measured rooms otherwise")
    parser.add_argument("--tests", nargs="*", help="directories of tests (default: tests/unit/ROOM)")
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--to", type=Path, default=Path(tempfile.gettempdir()), help="directory of the results")
    options = parser.parse_args()
    if options.command == "needless":
        for file in options.subjects:
            print(*needless(Measured(**json.loads(Path(file).read_text()))), sep="\n")
        return 0
    with tempfile.TemporaryDirectory(prefix="trn-mutants-") as directory:
        copies = trees(Path(directory), options.workers)
        if options.command == "sample":
            return _sample(copies)
        code = 0
        for subject in options.subjects:
            if options.command == "again":
                code |= _again(Measured(**json.loads(Path(subject).read_text())), copies)
                continue
            tests = options.tests or [f"tests/unit/{subject.rpartition('/')[2]}"]
            found = measure(subject, tests, copies, count=options.count, seed=options.seed)
            (options.to / f"{subject.replace('/', '-')}.json").write_text(json.dumps(asdict(found), indent=1))
            print(f"{subject}: {found.noticed} of {len(found.noticers)} noticed, {len(needless(found))} needless tests")
        return code


if __name__ == "__main__":
    sys.exit(main())
