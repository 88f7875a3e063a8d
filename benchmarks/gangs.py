"""How long a gang takes on the local cloud, from its submission until all its pods run, with a real Volcano.

Run by hand on an idle machine: ``python benchmarks/gangs.py``. Each gang is a Volcano job of N pods on N nodes, each
with a whole node's devices. It reports two times: until the last pod runs, when training can begin, and until the job's
status shows it, which users watch. Exit code 1 when a budget is exceeded.
"""

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes import client, config

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT), str(ROOT / "tests")]
import isolated_run
from local_project import repository_cloud

BUDGETS_SECONDS = {64: 2.0, 256: 5.0, 1000: 15.0}
"""Pods of a gang, and the time until the last of them runs."""
NAMESPACE, QUEUE, DEVICE, DEVICES = "training", "test", "aws.amazon.com/neuron", 16
JOBS = ("batch.volcano.sh", "v1alpha1", NAMESPACE, "jobs")
JOB_LABEL = "volcano.sh/job-name"
LOOK_SECONDS = 0.1
"""Between two looks at the job's status: a small object, so looking costs the API server next to nothing."""
LIMIT_SECONDS = 300


@dataclass(frozen=True)
class Gang:
    """One gang's times, in seconds from its submission."""

    running: float
    """Until the last pod was seen running."""
    told: float
    """Until the job's status counted all of them as running."""


@dataclass(frozen=True)
class Clients:
    """The API server of the local cloud, as its administrator."""

    pods: client.CoreV1Api
    jobs: client.CustomObjectsApi


def main() -> int:
    """Measures, prints, judges."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=sorted(BUDGETS_SECONDS), help="pods of each gang")
    parser.add_argument("--times", type=int, default=3, help="gangs of each size; the median counts")
    asked = parser.parse_args()
    isolated_run.isolate()
    held = []
    with _cloud(max(asked.sizes)) as clients:
        for size in sorted(asked.sizes):
            gangs = [_gang(clients, f"gang-{size}-{number}", size) for number in range(asked.times)]
            running = statistics.median(gang.running for gang in gangs)
            told = statistics.median(gang.told for gang in gangs)
            spread = " ".join(f"{gang.running:.1f}" for gang in gangs)
            budget = BUDGETS_SECONDS.get(size)
            held.append(budget is None or running <= budget)
            mark = "" if budget is None else f"budget {budget:.0f} s  {'ok' if held[-1] else 'OVER'}"
            print(f"{size:5d} pods   all run {running:5.1f} s ({spread})   told {told:5.1f} s   {mark}", flush=True)
    return 0 if all(held) else 1


@contextmanager
def _cloud(nodes: int) -> Iterator[Clients]:
    """Yield the clients of a new local cloud with this number of trn1.32xlarge nodes."""
    with (
        tempfile.TemporaryDirectory() as directory,
        repository_cloud(Path(directory), "--nodes", str(nodes), volcano=False) as project,
    ):
        if not json.loads((project.path / ".local/local/report.json").read_text())["realVolcano"]:
            raise SystemExit("Volcano is not on this machine; docs/local-cloud.md says where it can come from")
        kubeconfig = str(project.path / ".local/local/kubeconfig")
        with config.new_client_from_config(kubeconfig) as connection:
            yield Clients(client.CoreV1Api(connection), client.CustomObjectsApi(connection))


def _gang(clients: Clients, name: str, size: int) -> Gang:
    """Submit one gang, follow it until it runs, and delete it.

    Each has its own name: Volcano may still be at the end of the last one.
    """
    labels = f"{JOB_LABEL}={name}"
    with ThreadPoolExecutor(1) as watcher:
        watching = threading.Event()
        running = watcher.submit(_all_run, clients, labels, size, watching)
        watching.wait()
        begun = time.monotonic()
        clients.jobs.create_namespaced_custom_object(*JOBS, _job(name, size))
        told = _until(lambda: clients.jobs.get_namespaced_custom_object(*JOBS, name), size)
        gang = Gang(running.result() - begun, told - begun)
    clients.jobs.delete_namespaced_custom_object(*JOBS, name)
    while clients.pods.list_namespaced_pod(NAMESPACE, label_selector=labels, limit=1).items:
        time.sleep(1)
    return gang


def _all_run(clients: Clients, labels: str, size: int, watching: threading.Event) -> float:
    """When the last pod was seen running. A watch, because lists of a thousand pods would slow down what they see."""
    end = time.monotonic() + LIMIT_SECONDS
    running: set[str] = set()
    while time.monotonic() < end:  # the API server ends a watch that reads too slowly
        lines = clients.pods.list_namespaced_pod(
            NAMESPACE, label_selector=labels, watch=True, timeout_seconds=LIMIT_SECONDS, _preload_content=False
        )
        watching.set()
        for line in lines:
            pod = json.loads(line)["object"]
            if pod["status"].get("phase") == "Running":
                running.add(pod["metadata"]["name"])
            if len(running) == size:
                lines.close()
                return time.monotonic()
    raise SystemExit(f"{len(running)} of {size} pods ran within {LIMIT_SECONDS} s")


def _until(job: Callable[[], Any], size: int) -> float:
    """When the job's status counted all its pods as running."""
    end = time.monotonic() + LIMIT_SECONDS
    while job().get("status", {}).get("running") != size:
        if time.monotonic() > end:
            raise SystemExit(f"the job's status did not count {size} running pods within {LIMIT_SECONDS} s")
        time.sleep(LOOK_SECONDS)
    return time.monotonic()


def _job(name: str, size: int) -> dict[str, Any]:
    """One task of ``size`` replicas, all or none, each with a whole node."""
    resources = {DEVICE: str(DEVICES), "cpu": "1", "memory": "1Gi"}
    container = {
        "name": "train",
        "image": "train:1",
        "resources": {"requests": resources, "limits": resources},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    security = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never", "securityContext": security}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "volcano",
            "queue": QUEUE,
            "minAvailable": size,
            "tasks": [{"name": "worker", "replicas": size, "template": template}],
        },
    }


if __name__ == "__main__":
    sys.exit(main())
