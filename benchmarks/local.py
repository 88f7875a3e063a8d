"""How long the local cloud takes: to start, to bring the dev environment up, and how that grows with the nodes.

Run by hand on an idle machine: ``python benchmarks/local.py``. Exit code 1 when a budget is exceeded. The times are
those that ``trn local up`` prints itself: the start of Kubernetes, and the rest (all resources, all nodes Ready).
"""

import argparse
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT), str(ROOT / "tests")]
import isolated_run
from local_project import REAL_VOLCANO, LocalProject

START_SECONDS = 10.0
"""From nothing to a control plane that answers, the programs being there."""
DEV_SECONDS = 60.0
"""The dev environment on a control plane that has just started."""
THOUSAND_SECONDS = 180.0
"""The same with 1,000 accelerator nodes."""
NODES = (2, 500, 1000)
BEND = 2.0
"""How much dearer a node may be in the larger half of the range than in the smaller one: 1 is a straight line."""


@dataclass(frozen=True)
class Up:
    """One ``trn local up``."""

    start_seconds: float
    """Zero when all ran already."""
    seconds: float


def main() -> int:
    """Measures, prints, judges."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs=3, default=NODES, help="sizes to try, smallest first")
    sizes = tuple(parser.parse_args().nodes)
    isolated_run.isolate()
    ups: dict[int, Up] = {}
    with tempfile.TemporaryDirectory(prefix="trn-benchmark-") as directory:
        # The repository's program in its own directory.
        project = LocalProject.of_the_repository(Path(directory), **REAL_VOLCANO)
        project.configure("local")
        for nodes in sizes:
            ups[nodes] = _up(project, nodes)
            print(
                f"{nodes:5d} nodes   start {ups[nodes].start_seconds:5.1f} s, up {ups[nodes].seconds:6.1f} s",
                flush=True,
            )
            if nodes == sizes[0]:
                again = _up(project, nodes)
                print(f"      again   start {again.start_seconds:5.1f} s, up {again.seconds:6.1f} s", flush=True)
            project.trn("local", "down")
    small, middle, large = sizes
    first = (ups[middle].seconds - ups[small].seconds) / (middle - small)
    second = (ups[large].seconds - ups[middle].seconds) / (large - middle)
    print(f"each node     {1000 * (ups[large].seconds - ups[small].seconds) / (large - small):6.1f} ms")
    print(f"growth        {second / first:6.2f} x   from the first half to the second (straight: 1, budget {BEND})")
    checks = {
        f"start within {START_SECONDS:.0f} s": max(up.start_seconds for up in ups.values()) <= START_SECONDS,
        f"dev within {DEV_SECONDS:.0f} s": ups[small].seconds <= DEV_SECONDS,
        f"{large} nodes within {THOUSAND_SECONDS:.0f} s": ups[large].seconds <= THOUSAND_SECONDS,
        "growth": second / first <= BEND,
    }
    for name, held in checks.items():
        print(f"{'ok  ' if held else 'OVER'} {name}")
    return 0 if all(checks.values()) else 1


def _up(project: LocalProject, nodes: int) -> Up:
    shown = project.trn("local", "up", "--nodes", str(nodes))
    start = re.search(r"started in ([\d.]+) s", shown.stderr)
    rest = re.search(r"\(([\d.]+) s\)", shown.stdout)
    if shown.returncode or rest is None:
        raise SystemExit(f"`trn local up` failed, or said no time:\n{shown.stdout}{shown.stderr}")
    return Up(float(start[1]) if start else 0.0, float(rest[1]))


if __name__ == "__main__":
    sys.exit(main())
