import datetime
from collections.abc import Mapping

import pytest

from trainium_eks.model.config.waivers import RULES, WaiverConfig, reasons, validate
from trainium_eks.model.validation.config_model import ConfigModelError, read


def waiver(expires: object) -> WaiverConfig:
    return read(WaiverConfig, {"reason": "torn down", "expires": expires})


@pytest.mark.parametrize("written", ["2027-03-31", datetime.date(2027, 3, 31), "2027-03-31T00:00:00Z"])
def test_a_day_without_quotes_is_a_day_too(written: object) -> None:
    """PyYAML makes a date of it; the CLI sends midnight in UTC."""
    assert waiver(written).expires == "2027-03-31"
    assert validate({"R06": waiver(written)}) == []


@pytest.mark.parametrize("written", ["20270331", "2027-W13-3", "2027-13-01", "31.3.2027", "", "never"])
def test_what_is_no_day_is_refused(written: str) -> None:
    [problem] = validate({"R06": waiver(written)})
    assert problem.path == "waivers.R06.expires"
    assert problem.allowed == ("<YYYY-MM-DD>",)


def test_a_reason_alone_is_told_what_a_waiver_has() -> None:
    with pytest.raises(ConfigModelError) as error:
        read(WaiverConfig, {"reason": "torn down"})
    assert [problem.path for problem in error.value.problems] == ["expires"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"R06": {"reason": "a", "expires": "x"}}, {"R06": "a"}),
        ({"R06": "a"}, {"R06": "a"}),
        ({"R06": waiver("2027-03-31")}, {"R06": "torn down"}),
        ({"R06": {}}, {"R06": ""}),
        (["R06"], {}),
        (None, {}),
    ],
)
def test_reasons_are_read_from_every_form(given: object, expected: Mapping[str, str]) -> None:
    assert reasons(given) == expected


def test_the_list_of_rules_is_that_of_the_judges() -> None:
    from trainium_eks.plan import rules

    assert set(RULES) == {rule.id for rule in rules.RULES} | set(rules.NOT_JUDGED)
