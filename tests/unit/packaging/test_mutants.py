"""The lists of faults for ``make mutants``: each fits the code as it is, says why it matters, and names real tests."""

from pathlib import Path

import pytest
from mutate import LISTS, ROOT, Mutant, load, planted

pytestmark = pytest.mark.slow

LOADED = {path.stem: load(path) for path in sorted(LISTS.glob("*.yaml"))}
MUTANTS = [
    pytest.param(mutant, id=f"{name}-{number}") for name, rows in LOADED.items() for number, mutant in enumerate(rows)
]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_fault_fits_the_code(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    assert planted(mutant, text) is not None, f"stands {text.count(mutant.old)} times in {mutant.file}: {mutant.old!r}"
    assert mutant.why
    assert mutant.tests
    for test in mutant.tests:
        assert Path(ROOT, test.partition("::")[0]).exists(), test


def test_no_fault_is_listed_twice() -> None:
    planted_at = [(mutant.file, mutant.old, mutant.new) for rows in LOADED.values() for mutant in rows]
    assert len(planted_at) == len(set(planted_at))


@pytest.mark.parametrize("text", ["a b", "b", "a a"])
def test_a_fault_is_planted_where_its_text_stands_once(text: str) -> None:
    mutant = Mutant("f", old="a", new="c", why="", tests=())
    assert planted(mutant, text) == (text.replace("a", "c") if text.count("a") == 1 else None)
