"""Step lines: a training process' report of its progress, one JSON object a line on standard output.

``trn status`` and ``trn jobs`` read them from the log of rank 0, so no file or port is needed. A line has ``step`` and
``time`` (seconds since the epoch), and may have ``steps`` (how many in all), ``loss``, ``tokens_per_second``,
``checkpoint_step`` and ``checkpoint_time`` (of the last complete checkpoint), ``checkpoint_seconds`` (how long it held
the training up) and ``checkpoint_beside_seconds`` (how long it was written afterwards, beside the training).
"""

import json
import time


def report(step: int, **values: int | float | str) -> None:
    """Print the line of a step, which has ended, from 1; for rank 0 alone."""
    print(json.dumps({"step": step, "time": round(time.time(), 3), **values}), flush=True)
