"""How long the local cloud takes: to start, to bring the dev environment up, and how that grows with the nodes.

Run by hand on an idle machine: ``python benchmarks/local.py``. Exit code 1 when a budget is exceeded. The times are
those that ``trn local up`` prints itself: the start of Kubernetes, and the rest (all resources, all nodes Ready).
``--killed-rank`` shows instead what passes from the kill of a rank of two to the training's next step, with the image
`local/torch` (``trn local images make torch``).
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT), str(ROOT / "tests")]
import isolated_run
from local_project import REAL_VOLCANO, LocalProject
from running_pods import processes_of

from trainium_eks.kube.api import Api, ApiError
from trainium_eks.local.paths import Paths

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
    parser.add_argument("--killed-rank", action="store_true", help="the parts of a restart; the last line is their sum")
    asked = parser.parse_args()
    sizes = tuple(asked.nodes)
    isolated_run.isolate()
    if asked.killed_rank:
        return killed_rank()
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


def killed_rank() -> int:
    """Kills a rank of a fine-tuning that has saved, and prints the time of each event until its next step."""
    pods, name = "/api/v1/namespaces/training/pods", "killed-trainer"
    with tempfile.TemporaryDirectory(prefix="trn-benchmark-") as directory:
        project = LocalProject.of_the_repository(Path(directory), **REAL_VOLCANO)
        (project.path / "workloads").symlink_to(ROOT / "workloads")
        project.configure("local")
        with project.up("local", "--nodes", "2", volcano=True):
            python = f"{project.trn('local', 'images', 'path', 'torch').stdout.strip()}/bin/python"
            made = [python, "-m", "trainium_workloads.finetune.make_data", "tiny", "--family", "llama"]
            environment = project.surroundings() | {"PYTHONPATH": str(ROOT / "workloads")}
            subprocess.run(made, cwd=project.path, env=environment, check=True, capture_output=True)
            data = "--model /data/tiny/model --data /data/tiny/texts/talks.jsonl --seq-len 64"
            training = f"train --example finetune --name killed --data tiny --detach -- {data} --steps 100000"
            for line in ("stage tiny --to tiny", f"{training} --checkpoint-every 10"):
                shown = project.trn(*line.split())
                assert shown.returncode == 0, shown.stderr
            paths = Paths.of(project.path, "local")
            api = Api.connect(paths.kubeconfig)

            def log() -> str:
                with suppress(ApiError):  # not yet
                    return api.text("GET", f"{pods}/{name}-0-0/log?timestamps=true")
                return ""

            while not re.search(r'"checkpoint_step": [1-9]', log()):
                time.sleep(1)
            found = (each["metadata"] for each in api.request("GET", pods)["items"])
            before = {each["name"]: each["uid"] for each in found if each["name"].startswith(name)}
            ranks = [each for each in processes_of(paths, before[f"{name}-1-0"]) if "-u" in each.cmdline()]
            begin, seen = time.time(), dict[str, float]()
            ranks[-1].kill()
            while not re.search(r'"step": \d', text := log() if "both run again" in seen else ""):
                items = [each for each in api.request("GET", pods)["items"] if each["metadata"]["name"] in before]
                old = [each for each in items if each["metadata"]["uid"] in before.values()]
                new = [each for each in items if each not in old]
                ours = [each for pod in new for each in processes_of(paths, pod["metadata"]["uid"])]
                for event, is_so in {
                    "its pod has failed": any(each["status"].get("phase") == "Failed" for each in old),
                    "both pods are gone": not old,
                    "both are scheduled again": sum("nodeName" in each["spec"] for each in new) == 2,
                    "both run again": sum(each["status"].get("phase") == "Running" for each in new) == 2,
                }.items():
                    if is_so:
                        seen.setdefault(event, time.time() - begin)
                with suppress(psutil.Error):
                    started = [each.create_time() for each in ours if "-u" in each.cmdline()]
                    seen |= {"torchrun has imported torch": min(started) - begin} if started else {}
                time.sleep(0.05)
            for event, line in (
                ("the ranks have imported theirs, and met", "Gloo"),
                ("the checkpoint is read", "resumed from"),
                ("the next step", '"step":'),
            ):
                at = next(each for each in text.splitlines() if line in each)[:26]
                seen[event] = datetime.fromisoformat(f"{at}+00:00").timestamp() - begin
            for event, seconds in seen.items():
                print(f"{seconds:6.2f} s  {event}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
