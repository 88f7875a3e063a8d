"""Kubernetes quantities."""

from decimal import Decimal

import pytest

from trainium_eks.model.sizing.quantities import quantity, shown


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (16, 16),
        ("-1", -1),
        ("+2", 2),
        ("500m", "0.5"),
        ("1.", 1),
        (".5", "0.5"),
        ("100n", "0.0000001"),
        ("2u", "0.000002"),
        ("1k", 1000),
        ("3M", 3 * 10**6),
        ("1E", 10**18),
        ("1Ki", 1024),
        ("1.5Ti", 3 * 2**39),
        ("1E3", 1000),
        ("5e-1", "0.5"),
    ],
)
def test_a_quantity_is_a_number(text: str | int, number: int | str) -> None:
    assert quantity(text) == Decimal(number)


@pytest.mark.parametrize(
    "text", ["", "Gi", "1 Gi", "1GB", "1K", "1ki", "1Kie3", "1e", "1.2.3", "x", "٣", None, True, 1.5]
)
def test_what_is_none_is_none(text: object) -> None:
    assert quantity(text) is None


@pytest.mark.parametrize(("number", "text"), [("16", "16"), ("1E+3", "1000"), ("0.5", "500m"), ("127.915", "127915m")])
def test_a_number_is_shown_as_a_quantity(number: str, text: str) -> None:
    assert shown(Decimal(number)) == text
    assert quantity(text) == Decimal(number)
