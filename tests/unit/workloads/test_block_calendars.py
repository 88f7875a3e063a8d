import signal

import block_calendars
from block_calendars import MINUTE


def test_thousand_calendars_lose_no_step_and_idle_five_minutes_at_most():
    handler = signal.getsignal(signal.SIGTERM)
    for seed, each in enumerate(block_calendars.simulate(1000)):
        assert each.lost == 0, f"EC2 ended a training before it saved, in calendar {seed}"
        assert all(block.steps for block in each.blocks), f"the training did not go on in the next block, in {seed}"
        assert max(each.idle["start"]) <= 5 * MINUTE, seed
        assert sum(each.idle["end"]) <= 5 * MINUTE * each.ends, f"it stopped again and again, in calendar {seed}"
    signal.signal(signal.SIGTERM, handler)
