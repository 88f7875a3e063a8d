"""The comments of real edits, letter by letter. ``make golden`` rewrites them."""

import pytest
import review_cases
from review_cases import CASES, Case
from tables import first_of_each


@pytest.mark.parametrize("case", first_of_each(CASES, lambda case: case.outcome, lambda case: case.name))
def test_comment_of_a_real_edit(case: Case) -> None:
    judged = review_cases.reviewed(case)
    assert judged.outcome is case.outcome
    written = review_cases.text(case, judged)
    assert written == (review_cases.FOLDER / f"{case.name}.md").read_text()
    assert len(written) < 60_000


def test_no_golden_comment_is_left_over() -> None:
    assert {file.stem for file in review_cases.FOLDER.glob("*.md")} == {case.name for case in CASES}
    assert len(CASES) >= 30
