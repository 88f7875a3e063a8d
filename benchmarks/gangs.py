"""How long a gang takes on the local cloud, from its submission until all its pods run, with a real Volcano.

Run by hand on an idle machine: ``python benchmarks/gangs.py``. Each gang is a Volcano job of N pods on N nodes, each
with a whole node's devices. It reports two times: until the last pod runs, when training can begin, and until the job's
status shows it, which users watch; and for each program the CPU time of a gang and its largest memory so far. CPU time
hardly depends on what else the machine does. ``--queues 1000 --waiting 10000`` first fills the cluster with jobs that
wait. Exit code 1 when a budget is exceeded.
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

import psutil
from kubernetes import client, config

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT), str(ROOT / "tests")]
import isolated_run
from local_project import repository_cloud

from trainium_eks.local.control_plane import processes
from trainium_eks.local.paths import Paths

BUDGETS_SECONDS = {64: 2.0, 256: 5.0, 1000: 15.0}
"""Pods of a gang, and the time until the last of them runs."""
NAMESPACE, QUEUE, DEVICE, DEVICES = "training", "test", "aws.amazon.com/neuron", 16
JOBS = ("batch.volcano.sh", "v1alpha1", NAMESPACE, "jobs")
JOB_LABEL = "volcano.sh/job-name"
LOOK_SECONDS = 0.1
"""Between two looks at the job's status: a small object, so looking costs the API server next to nothing."""
LIMIT_SECONDS = 900
CROWD = "waiting"
"""Namespace of the jobs that wait, and prefix of their queues: its quota has room for none of them, so Volcano holds
them back without pods, as it does with a team's jobs beyond its quota."""
MOST_OWN_NODES = 1200
"""Nodes whose addresses fit into a subnet of the stack's own network."""
WIDE_NETWORK = {
    "vpcId": "vpc-0123456789abcdef0",
    "cidrBlock": "10.0.0.0/16",
    "privateSubnets": [
        {"id": "subnet-0123456789abcdef0", "zoneId": "usw2-az4", "cidrBlock": "10.0.0.0/16"},
        {"id": "subnet-0123456789abcdef1", "zoneId": "usw2-az1", "cidrBlock": "10.1.0.0/18"},
    ],
    "publicSubnets": [{"id": "subnet-0123456789abcdef2", "zoneId": "usw2-az4", "cidrBlock": "10.1.64.0/20"}],
}
"""One with a subnet of the largest size that AWS has."""
PROGRAMS = ("vc-scheduler", "vc-controller-manager", "vc-webhook-manager", "kube-apiserver", "etcd", "kwok")


@dataclass(frozen=True)
class Gang:
    """One gang's times, in seconds from its submission."""

    running: float
    """Until the last pod was seen running."""
    told: float
    """Until the job's status counted all of them as running."""
    cpu: dict[str, float]
    """CPU seconds of each program meanwhile."""


@dataclass(frozen=True)
class Clients:
    """The API server of the local cloud, as its administrator."""

    pods: client.CoreV1Api
    jobs: client.CustomObjectsApi
    paths: Paths

    def processes(self) -> dict[str, psutil.Process]:
        """Return the cloud's programs."""
        return {each.name: psutil.Process(each.pid) for each in processes.running(self.paths) if each.name in PROGRAMS}

    def cpu(self) -> dict[str, float]:
        """Return the CPU seconds of each program so far."""
        return {name: sum(each.cpu_times()[:2]) for name, each in self.processes().items()}

    def memory(self) -> dict[str, int]:
        """Return the largest resident memory of each program so far, MiB (proc(5), VmHWM)."""
        peaks = {}
        for name, each in self.processes().items():
            status = Path(f"/proc/{each.pid}/status").read_text()
            peaks[name] = next(int(line.split()[1]) for line in status.splitlines() if line[:5] == "VmHWM") // 1024
        return peaks


def main() -> int:
    """Measures, prints, judges."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=sorted(BUDGETS_SECONDS), help="pods of each gang")
    parser.add_argument("--times", type=int, default=3, help="gangs of each size; the median counts")
    parser.add_argument("--nodes", type=int, default=0, help="nodes of the cluster; default: the largest size")
    parser.add_argument("--queues", type=int, default=1, help="queues of the jobs that wait")
    parser.add_argument("--waiting", type=int, default=0, help="jobs that wait in them, of two nodes each")
    asked = parser.parse_args()
    isolated_run.isolate()
    held = []
    with _cloud(asked.nodes or max(asked.sizes)) as clients:
        if asked.waiting:
            _crowd(clients, asked.queues, asked.waiting)
        for size in sorted(asked.sizes):
            gangs = [_gang(clients, f"gang-{size}-{number}", size) for number in range(asked.times)]
            running = statistics.median(gang.running for gang in gangs)
            told = statistics.median(gang.told for gang in gangs)
            spread = " ".join(f"{gang.running:.1f}" for gang in gangs)
            budget = BUDGETS_SECONDS.get(size)
            held.append(budget is None or running <= budget)
            mark = "" if budget is None else f"budget {budget:.0f} s  {'ok' if held[-1] else 'OVER'}"
            print(f"{size:5d} pods   all run {running:5.1f} s ({spread})   told {told:5.1f} s   {mark}", flush=True)
            cpu = {name: statistics.median(gang.cpu[name] for gang in gangs) for name in gangs[0].cpu}
            _print_use(cpu, clients.memory())
    return 0 if all(held) else 1


@contextmanager
def _cloud(nodes: int) -> Iterator[Clients]:
    """Yield the clients of a new local cloud with this number of trn1.32xlarge nodes."""
    with (
        tempfile.TemporaryDirectory() as directory,
        repository_cloud(
            Path(directory),
            *("--nodes", str(nodes)),
            volcano=False,
            **({"existingNetwork": WIDE_NETWORK} if nodes > MOST_OWN_NODES else {}),
        ) as project,
    ):
        if not json.loads((project.path / ".local/local/report.json").read_text())["realVolcano"]:
            raise SystemExit("Volcano is not on this machine; docs/local-cloud.md says where it can come from")
        paths = Paths.of(project.path, "local")
        with config.new_client_from_config(str(paths.kubeconfig)) as connection:
            yield Clients(client.CoreV1Api(connection), client.CustomObjectsApi(connection), paths)


def _print_use(cpu: dict[str, float], memory: dict[str, int]) -> None:
    for name, seconds in cpu.items():
        print(f"{'':11}{name:22} {seconds:6.1f} CPU s  {memory[name]:6d} MiB", flush=True)


def _crowd(clients: Clients, queues: int, waiting: int) -> None:
    """Make the queues and the jobs that wait in them, and print what they cost."""
    begun, before = time.monotonic(), clients.cpu()
    clients.pods.create_namespace({"metadata": {"name": CROWD}})
    quota = {"metadata": {"name": "devices"}, "spec": {"hard": {f"requests.{DEVICE}": str(DEVICES)}}}
    clients.pods.create_namespaced_resource_quota(CROWD, quota)
    group, version, _, jobs = JOBS
    queue: dict[str, Any] = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "spec": {"weight": 1}}
    with ThreadPoolExecutor(16) as pool:
        names = [f"{CROWD}-{number}" for number in range(queues)]
        made = [queue | {"metadata": {"name": name}} for name in names]
        place = ("scheduling.volcano.sh", "v1beta1", "queues")
        list(pool.map(lambda each: clients.jobs.create_cluster_custom_object(*place, each), made))
        _await(lambda: _count(clients.jobs.list_cluster_custom_object(*place), "state", "Open"), queues)
        held = [_job(f"{CROWD}-{number}", 2, names[number % queues]) for number in range(waiting)]
        make = clients.jobs.create_namespaced_custom_object
        list(pool.map(lambda each: make(group, version, CROWD, jobs, each), held))
    held_back = ("scheduling.volcano.sh", "v1beta1", CROWD, "podgroups")
    _await(lambda: _count(clients.jobs.list_namespaced_custom_object(*held_back), "phase", "Pending"), waiting)
    print(f"{waiting} jobs wait in {queues} queues after {time.monotonic() - begun:.0f} s", flush=True)
    now = clients.cpu()
    _print_use({name: now[name] - before[name] for name in now}, clients.memory())
    time.sleep(30)
    rest = clients.cpu()
    shares = "  ".join(f"{name} {(rest[name] - now[name]) / 30:.2f}" for name in rest)
    print(f"{'':11}cores while they wait: {shares}", flush=True)


def _count(answer: Any, field: str, value: str) -> int:
    return sum(each.get("status", {}).get(field) == value for each in answer["items"])


def _await(count: Callable[[], int], wanted: int) -> None:
    """Wait until there are so many."""
    end = time.monotonic() + LIMIT_SECONDS
    while (found := count()) < wanted:
        if time.monotonic() > end:
            raise SystemExit(f"{found} of {wanted} after {LIMIT_SECONDS} s")
        time.sleep(2)


def _gang(clients: Clients, name: str, size: int) -> Gang:
    """Submit one gang, follow it until it runs, and delete it.

    Each has its own name: Volcano may still be at the end of the last one.
    """
    labels, before = f"{JOB_LABEL}={name}", clients.cpu()
    with ThreadPoolExecutor(1) as watcher:
        watching = threading.Event()
        running = watcher.submit(_all_run, clients, labels, size, watching)
        watching.wait()
        begun = time.monotonic()
        clients.jobs.create_namespaced_custom_object(*JOBS, _job(name, size))
        told = _until(lambda: clients.jobs.get_namespaced_custom_object(*JOBS, name), size)
        ran = running.result()
        cpu = {name: spent - before[name] for name, spent in clients.cpu().items()}
        gang = Gang(ran - begun, told - begun, cpu)
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


def _job(name: str, size: int, queue: str = QUEUE) -> dict[str, Any]:
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
            "queue": queue,
            "minAvailable": size,
            "tasks": [{"name": "worker", "replicas": size, "template": template}],
        },
    }


if __name__ == "__main__":
    sys.exit(main())
