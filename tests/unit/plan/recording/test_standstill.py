"""A program is stuck when nothing moves in it, however long the machine takes."""

import asyncio

import pulumi
import pulumi_aws as aws

from trainium_eks.plan.recording.program import record_program
from trainium_eks.plan.recording.watchdog import Standstill, Steps


def watched(steps: Steps, limit: float, every: float | None = None) -> Standstill:
    return Standstill(lambda: steps.count, limit, every)


def test_it_is_one_when_nothing_has_moved_in_as_many_looks_as_the_limit_has() -> None:
    standstill = watched(Steps(), 3, 1)
    assert [standstill.look() for _ in range(4)] == [False, False, True, True]


def test_a_limit_is_ten_looks_unless_said_otherwise() -> None:
    standstill = watched(Steps(), 60)
    assert standstill.every_seconds == 6
    assert [standstill.look() for _ in range(10)] == [False] * 9 + [True]


def test_a_program_that_moves_may_take_longer_than_the_limit() -> None:
    """Each of its steps is longer than a look, and all together than the limit."""
    limit = 5.0

    async def slow(text: str) -> str:
        # Many tasks, so that a machine that stalls for a while lets some of them end between two looks.
        for _ in range(80):
            await asyncio.gather(asyncio.sleep(limit / 60))
        return text

    def program() -> None:
        log = aws.cloudwatch.LogGroup("log", name=pulumi.Output.from_input(slow("log")))
        pulumi.export("log", log.name)

    assert record_program(program, timeout_seconds=limit).outputs == {"log": "log"}
