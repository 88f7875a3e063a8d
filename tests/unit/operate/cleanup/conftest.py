"""What a broken stack left in an account of moto's."""

from collections.abc import Iterator

import pytest
from cleanup_accounts import Left, left_in_moto


@pytest.fixture(scope="module")
def left() -> Iterator[Left]:
    with left_in_moto() as found:
        yield found
