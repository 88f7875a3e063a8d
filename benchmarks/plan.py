"""How long the plan takes: the dev environment as it is, and with more and more node groups.

Run by hand on an idle machine: ``python benchmarks/plan.py``. Exit code 1 when a budget is exceeded. The dev plan is
held to time on the clock; growth to processor time, which other work on the machine disturbs less (the plan is one
process that waits for another, so on an idle machine the two are the same).
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
DEV_SECONDS = 6.0
"""For the dev environment, warm, on two cores."""
SECONDS_PER_GROUP = 0.050
"""For each further node group."""
BEND = 1.5
"""How much dearer a group may be in the larger half of the range than in the smaller one: 1 is a straight line."""
GROUPS = (2, 14, 26)
"""Node groups to try; EKS' default quota is 30 groups, of which two are CPU nodes."""


def main() -> int:
    """Measures, prints, judges."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3, help="runs of each size; the fastest counts")
    repeat = parser.parse_args().repeat
    isolated_run.isolate()
    _plan(ROOT, "dev")  # compiles bytecode and fills the file cache

    dev = [_plan(ROOT, "dev") for _ in range(repeat)]
    clock, processor = min(each[0] for each in dev), min(each[1] for each in dev)
    print(f"dev plan      {clock:6.2f} s on the clock (budget {DEV_SECONDS:.0f}), {processor:.2f} s of processor")
    # Machines differ by a factor of two from day to day: the shortest command beside the plan's is the measure.
    least = min(_run("--help")[1] for _ in range(repeat))
    prod = min(_plan(ROOT, "prod")[1] for _ in range(repeat))
    print(f"`trn --help`  {least:6.2f} s of processor; dev {processor / least:.1f}, prod {prod / least:.1f} times that")
    runs: dict[int, list[tuple[float, float]]] = {count: [] for count in GROUPS}
    with tempfile.TemporaryDirectory(prefix="trn-benchmark-") as directory:
        project = _project(Path(directory))
        for _ in range(repeat):  # sizes take turns, so that a busy spell hits them all
            for count in GROUPS:
                _write_stack(project, count)
                runs[count].append(_plan(project, "many"))
    fastest = {count: min(each[1] for each in found) for count, found in runs.items()}
    for count, found in runs.items():
        on_clock = min(each[0] for each in found)
        print(f"{count:3d} groups    {on_clock:6.2f} s on the clock, {fastest[count]:.2f} s of processor")
    small, middle, large = (fastest[count] for count in GROUPS)
    whole = (large - small) / (GROUPS[2] - GROUPS[0])
    first, second = (middle - small) / (GROUPS[1] - GROUPS[0]), (large - middle) / (GROUPS[2] - GROUPS[1])
    print(f"each group    {whole * 1000:6.1f} ms  (budget {SECONDS_PER_GROUP * 1000:.0f})")
    print(f"growth        {second / first:6.2f} x   from the first half to the second (straight: 1, budget {BEND})")
    checks = {
        "dev plan": clock <= DEV_SECONDS,
        "each group": whole <= SECONDS_PER_GROUP,
        "growth": second / first <= BEND,
    }
    failed = [name for name, good in checks.items() if not good]
    print(f"over budget: {', '.join(failed)}" if failed else "within budget")
    return int(bool(failed))


def _plan(project: Path, stack: str) -> tuple[float, float]:
    """Seconds of one `trn plan --json`, start-up of Python included: on the clock, and of the processor."""
    return _run("plan", "--json", "--stack", stack, "--directory", str(project), shows='"resources"')


def _run(*arguments: str, shows: str = "plan") -> tuple[float, float]:
    command = [sys.executable, "-m", "trainium_eks.cli", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    start, used = time.perf_counter(), _processor_seconds()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start, _processor_seconds() - used
    if shows not in done.stdout:
        raise SystemExit(f"trn {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
    return seconds


def _processor_seconds() -> float:
    """What all processes started from here have used; theirs count once they have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _project(directory: Path) -> Path:
    """A copy of the program with the library beside it, so that the stack file need not lie in the repository."""
    for name in ("Pulumi.yaml", "__main__.py"):
        shutil.copy(ROOT / name, directory)
    for name in ("components", "trainium_eks", "charts"):
        (directory / name).symlink_to(ROOT / name)
    return directory


def _write_stack(project: Path, count: int) -> None:
    """The dev environment with ``count`` accelerator groups, and a VPC that has room for them."""
    content = yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text())
    content["config"]["trainium-eks:nodeGroups"] = [
        {"name": f"group-{index:02d}", "instanceType": "trn1.32xlarge", "maxSize": 4, "desiredSize": 1}
        for index in range(count)
    ]
    (project / "Pulumi.many.yaml").write_text(yaml.safe_dump(content))


if __name__ == "__main__":
    sys.exit(main())
