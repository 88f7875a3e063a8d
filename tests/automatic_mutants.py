"""Automatic mutants: small changes of a room's code, drawn by a seed, and the tests that notice each of them.

``python tests/automatic_mutants.py jobs`` draws mutants of a room, tries each with tests that run its line, and names
the missed ones: the same mutants each time while their code stays. ``… sample`` tries fewer, of another room for each
commit, and fails when a smaller share is noticed than ``mutants/automatic.toml`` has. A room is a package of the
library, ``components`` or ``trainium_eks/NAME``; its tests are those of ``tests/unit/NAME`` unless ``--tests`` names
more directories.
"""

import argparse
import ast
import sys
import tempfile
import tomllib
from collections import Counter
from hashlib import sha256
from pathlib import Path

import forked_pytest
import isolated_run
from mutate import LISTS, ROOT, Mutant, commit, report, trees

COUNT = 200
SAMPLE = 40
"""Mutants of one room that `make mutants-sample` tries."""
MOST_TESTS = 30
"""Test functions tried for one mutant: those of the tests that run its line which run the fewest lines in all."""

LEFT_OUT = {"trainium_eks/local/control_plane/processes.py"}
"""Files whose mutants end other processes than the tests'."""

_OTHER: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip


def _nodes(node, where="", line=0):
    """Yield each node that runs, with its function and the first line of its statement."""
    if isinstance(node, ast.stmt):
        line = node.lineno
    yield node, where, line
    parts = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        where, parts = f"{where}.{node.name}", node.body
    elif isinstance(node, ast.AnnAssign):
        parts = [node.value] if node.value else []
    elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        parts = []
    for part in parts:
        yield from _nodes(part, where, line)


def _changes(node):
    """Yield the kind of each change of a node, the expression that goes and the one that comes."""
    match node:
        case ast.Compare():
            for at, operator in enumerate(node.ops):
                others = [*node.ops[:at], _OTHER[type(operator)](), *node.ops[at + 1 :]]
                yield "comparison", node, ast.Compare(node.left, others, node.comparators)
        case ast.BoolOp():
            yield "and/or", node, ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not()):
            yield "not", node, node.operand
        case ast.Constant() if type(node.value) is int:
            yield "number", node, ast.Constant(node.value + 1)
        case ast.If() | ast.IfExp():
            yield "branch", node.test, ast.UnaryOp(ast.Not(), node.test)
        case ast.Return() if node.value and ast.unparse(node.value) != "None":
            yield "return", node.value, ast.Constant(None)


def _planted(text, old, new):
    """Return a text with another expression in the place of one; None where that is no Python, as in an f-string."""
    lines = text.encode().splitlines(keepends=True)
    places = ((old.lineno, old.col_offset), (old.end_lineno, old.end_col_offset))
    start, end = (sum(map(len, lines[: line - 1])) + column for line, column in places)
    whole = text.encode()
    try:
        if ast.dump(ast.parse(b"(%s)" % whole[start:end], mode="eval").body) != ast.dump(old):
            return None
        changed = (whole[:start] + f"({ast.unparse(new)})".encode() + whole[end:]).decode()
        compile(changed, "mutant", "exec")
    except SyntaxError:
        return None
    return changed


def mutants_of(file, run):
    """Yield every mutant of a file, with tests that run its line."""
    text, numbers = (ROOT / file).read_text(encoding="utf-8"), Counter[str]()
    width = Counter(test for of_file in run.lines.values() for tests in of_file.values() for test in tests)
    for node, where, line in _nodes(ast.parse(text)):
        for kind, old, new in _changes(node):
            name = f"{where[1:]} {kind}"
            numbers[name] += 1
            # A line that no test runs by itself runs when the module is imported.
            tests = set(run.lines[file].get(line, ())) or {each for of in run.lines[file].values() for each in of}
            tests = sorted(tests - run.failed, key=lambda test: (width[test], test))[:MOST_TESTS]
            if (changed := _planted(text, old, new)) is not None:
                yield Mutant(file, text, changed, f"{name} {numbers[name]} (line {line})", tuple(tests))


def measure(room, tests, copies, count, share):
    """Try mutants of a room with tests that run their lines; whether the share of them is noticed."""
    sources = room if (ROOT / room).is_dir() else f"trainium_eks/{room}"
    with copies.one() as tree:
        run = forked_pytest.run(tree, ["-m", "not slow", *tests], covered=(sources,), timeout=3600)
    if not any(of for of_file in run.lines.values() for of in of_file.values()):
        raise SystemExit(f"the tests of {room} do not run: {' '.join(tests)}")
    if run.failed:
        print(f"{room}: left out, as they fail without a mutant in a tree without Git: {' '.join(sorted(run.failed))}")
    every = [each for file in sorted(run.lines) if file not in LEFT_OUT for each in mutants_of(file, run)]
    # By digest: the draw stays as it is where other code changes.
    every.sort(key=lambda each: sha256(f"{each.file} {each.why.partition(' (')[0]}".encode()).digest())
    return report(f"automatic mutants of {room}", every[:count], copies, share)


def main():
    """Return 1 when the tests of a room notice too little."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rooms", nargs="+", help="rooms, or `sample`")
    parser.add_argument("--tests", nargs="*", help="directories of tests (default: tests/unit/ROOM)")
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    rates = tomllib.loads((LISTS / "automatic.toml").read_text(encoding="utf-8"))
    isolated_run.isolate()
    with tempfile.TemporaryDirectory(prefix="trn-mutants-") as directory:
        copies = trees(Path(directory), options.workers)
        if options.rooms == ["sample"]:
            room = sorted(rates)[int(commit()[:8], 16) % len(rates)]
            return int(not measure(room, rates[room]["tests"], copies, SAMPLE, rates[room]["share"]))
        for room in options.rooms:
            measure(room, options.tests or [f"tests/unit/{room.rpartition('/')[2]}"], copies, options.count, 0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
