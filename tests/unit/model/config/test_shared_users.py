"""Teams that share a file system have users of their own."""

from collections.abc import Sequence
from typing import Any

from trainium_eks.model.config import stack_config
from trainium_eks.model.config.stack_config import StackConfig
from trainium_eks.model.validation.problems import Problem, Severity, refused


def problems(users: Sequence[int | None], **changes: Any) -> list[Problem]:
    teams = [
        {"name": f"team{index}", "queues": ("test",), **({} if user is None else {"training_user_id": user})}
        for index, user in enumerate(users)
    ]
    stack = StackConfig.model_validate({"region": "us-west-2", "owner": "ml", "namespaces": teams, **changes})
    return [each for each in stack_config.validate(stack) if each.path.endswith("training_user_id")]


def test_two_teams_of_one_user_are_told_apart_or_accepted_with_a_reason() -> None:
    (found,) = problems([None, None])
    assert (found.path, found.value, found.good) == ("namespaces[1].training_user_id", 1000, 1001)
    assert (found.severity, found.rule) == (Severity.ACKNOWLEDGE, "R68")
    assert "team0" in found.reason
    assert refused([found], {}) == (found,)
    assert refused([found], {"R68": "one image, one user"}) == ()


def test_each_is_given_a_number_that_nobody_has() -> None:
    assert [each.good for each in problems([1000, 1001, 1000, 1000])] == [1002, 1003]


def test_users_of_their_own_and_no_file_system_are_well() -> None:
    assert problems([1000, 1001]) == []
    assert problems([None, None], file_system=None) == []
