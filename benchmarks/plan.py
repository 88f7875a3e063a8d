"""How long the plan takes: of the dev environment as it is, and with more and more node groups.

Run by hand on an idle machine: ``python benchmarks/plan.py``. Exit code 1 when a budget is exceeded. The dev plan is
held to time on the clock; growth to processor time, which other work on the machine disturbs less.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
import isolated_run

ROOT = Path(__file__).resolve().parent.parent
BUDGETS = {"dev, seconds on the clock": 6.0, "each further group, seconds": 0.050, "growth of the second half": 1.5}
"""Warm, on two cores. Growth is a group's time in the larger half of :data:`GROUPS`, in terms of the smaller half's."""
GROUPS = (2, 14, 26)
"""Node groups to try; EKS' default quota is 30 groups, of which two are CPU nodes."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3, help="runs of each size; the fastest counts")
    repeat = parser.parse_args().repeat
    isolated_run.isolate()
    _plan(ROOT, "dev")  # compiles bytecode and fills the file cache
    clock = min(_plan(ROOT, "dev")[0] for _ in range(repeat))
    with tempfile.TemporaryDirectory(prefix="trn-benchmark-") as directory:
        project = _project(Path(directory))
        # Sizes take turns, so that a busy spell hits them all.
        turns = [[_plan(project, f"groups{count}")[1] for count in GROUPS] for _ in range(repeat)]
    small, middle, large = map(min, zip(*turns, strict=True))
    first, second = (middle - small) / (GROUPS[1] - GROUPS[0]), (large - middle) / (GROUPS[2] - GROUPS[1])
    found = (clock, (large - small) / (GROUPS[2] - GROUPS[0]), second / first)
    for (name, budget), value in zip(BUDGETS.items(), found, strict=True):
        print(f"{'ok  ' if value <= budget else 'OVER'} {name}: {value:.3f} (budget {budget})")
    return int(any(value > budget for value, budget in zip(found, BUDGETS.values(), strict=True)))


def _plan(project: Path, stack: str) -> tuple[float, float]:
    """Return the seconds of one ``trn plan --json``, Python's start included: on the clock, and of the processor."""
    command = [sys.executable, "-m", "trainium_eks.cli", "plan", "--json", "--stack", stack, "--directory", project]
    began, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if '"resources"' not in done.stdout:
        raise SystemExit(f"the plan of {stack} failed:\n{done.stdout}{done.stderr}")
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - began, now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime


def _project(directory: Path) -> Path:
    """Return a copy of the program with a stack for each number of groups: dev, with other node groups."""
    for name in ("Pulumi.yaml", "__main__.py"):
        shutil.copy(ROOT / name, directory)
    for name in ("components", "trainium_eks", "charts"):
        (directory / name).symlink_to(ROOT / name)
    content = yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text())
    for count in GROUPS:
        group = {"instanceType": "trn1.32xlarge", "maxSize": 4, "desiredSize": 1}
        groups = [{"name": f"group-{index:02d}", **group} for index in range(count)]
        content["config"]["trainium-eks:nodeGroups"] = groups
        (directory / f"Pulumi.groups{count}.yaml").write_text(yaml.safe_dump(content))
    return directory


if __name__ == "__main__":
    sys.exit(main())
