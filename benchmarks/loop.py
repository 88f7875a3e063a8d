"""Whether a training job survives the loss of a rank, again and again, and how long each part takes.

Run by hand on an idle machine: ``python benchmarks/loop.py``. It brings up a local cloud of its own with a real Volcano
and, as the team's researcher, repeats: submit gradient-sum, wait for its first checkpoint, kill a rank (``kill -9``),
wait for the job's end. A run counts as good when the gang restarted, went on from a checkpoint, and all ranks agreed on
the sum. With ``--image local/torch`` (``trn local images make torch``) the ranks meet by torchrun's c10d and add by
gloo, otherwise over plain TCP. Exit code 1 when a run was not good.
"""

import argparse
import json
import os
import random
import re
import signal
import statistics
import sys
import time
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from cloud import local_cloud, ranks, step_times, trn, until

NAMESPACE, CLAIM = "training", "fsx-claim"
STEP_SECONDS = 0.1
STEPS = 60
"""Of each job. The first checkpoint is at step 5, and the kill within two seconds of it."""


@dataclass(frozen=True)
class Loop:
    """The parts of one run, in seconds."""

    submitted: float
    """``trn train`` itself."""
    first_step: float
    """From then to the first step."""
    restarted: float
    """From the kill to the first step after it."""
    whole: float
    """From the command to the job's end."""


def main() -> int:
    """Measures, prints, judges."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=20, help="runs; default: %(default)s")
    parser.add_argument("--image", default="local/python", help="default: %(default)s")
    parser.add_argument("--ranks-per-node", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of which rank is killed; default: %(default)s")
    asked = parser.parse_args()
    random.seed(asked.seed)
    good: list[Loop] = []
    begun = time.monotonic()
    with local_cloud("loop") as project:
        for number in range(1, asked.times + 1):
            try:
                good.append(_loop(project, f"loop-{number}", asked))
                print(f"{number:3d}  " + "  ".join(f"{each:5.1f}" for each in astuple(good[-1])), flush=True)
            except AssertionError as error:
                print(f"{number:3d}  {error}", flush=True)
    print(f"{len(good)} of {asked.times} runs ended well, in {(time.monotonic() - begun) / 60:.1f} minutes")
    for place, field in enumerate(fields(Loop)):
        seconds = sorted(astuple(each)[place] for each in good) or [0.0]
        print(f"  {field.name:11s} median {statistics.median(seconds):5.1f} s  ({seconds[0]:.1f}-{seconds[-1]:.1f})")
    return 0 if len(good) == asked.times else 1


def _loop(project: Path, job: str, asked: argparse.Namespace) -> Loop:
    """One run; an AssertionError says what did not end well."""
    begun = time.time()
    trn(
        *(project, "train", "--example", "gradient-sum", "--name", job, "--image", asked.image, "--detach"),
        *("--ranks-per-node", str(asked.ranks_per_node), "--", "--steps", str(STEPS)),
        *("--step-seconds", str(STEP_SECONDS)),
    )
    submitted = time.time()
    checkpoints = project / f".local/local/claims/{NAMESPACE}/{CLAIM}/output/{job}/checkpoints"
    saved = until("a checkpoint", lambda: _newest(checkpoints))
    first = _steps(project, job)[0]
    world = 2 * asked.ranks_per_node
    running = until("all ranks", lambda: found if len(found := ranks(job)) == world else None)
    killed = time.time()
    os.kill(random.choice(running), signal.SIGKILL)
    ended = until("the job's end", lambda: found if (found := _status(project, job))["job"]["ended"] else None)
    whole = time.time() - begun
    assert ended["job"]["state"] == "Completed", f"ended as {ended['job']['state']}"
    assert ended["job"]["restarts"] >= 1, "the gang did not restart"
    log = trn(project, "logs", job)
    resumed = re.search(r"resumed from step (\d+)", log)
    assert int(resumed[1] if resumed else 0) >= saved, f"did not go on from step {saved} or later"
    assert f"{world} of {world} ranks agree" in log, "the ranks did not agree"
    return Loop(submitted - begun, first - submitted, _steps(project, job)[0] - killed, whole)


def _newest(checkpoints: Path) -> int | None:
    """Step of the newest checkpoint."""
    return max((int(path.name[5:13]) for path in checkpoints.glob("*.ckpt")), default=None)


def _steps(project: Path, job: str) -> list[float]:
    """When each step of the present pod of rank 0 ended, seconds since the epoch."""
    return step_times(trn(project, "logs", job))


def _status(project: Path, job: str) -> Any:
    return json.loads(trn(project, "status", job, "--json"))


if __name__ == "__main__":
    sys.exit(main())
