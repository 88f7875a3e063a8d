"""A control plane goes up one minor version while a gang trains, as docs/upgrading.md describes: on the local cloud."""

import itertools
import json
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from local_project import LocalProject
from waiting import until

from trainium_eks.local import toolchain
from trainium_eks.local.control_plane import pki, processes
from trainium_eks.local.control_plane.loopback import Loopback
from trainium_eks.local.control_plane.ports import Settings
from trainium_eks.local.control_plane.programs import SHIM
from trainium_eks.local.paths import Paths
from trainium_eks.local.toolchain import Pins, Platform, find
from trainium_eks.local.toolchain.tools import CONTROL_PLANE

pytestmark = pytest.mark.slow

OLDER, NEWER = "1.34", "1.35"
GROUP = {"name": "trn1", "instanceType": "trn1.32xlarge", "minSize": 0, "maxSize": 2, "desiredSize": 2}
STEP_SECONDS = 0.1

_WHO = pki.ADMINISTRATOR

REPLACED = set(CONTROL_PLANE)
SECONDS = 900.0


@dataclass
class Outage:
    """How long an API server does not answer, looked at twenty times a second by a thread of its own."""

    paths: Paths
    longest: float = 0.0
    _over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "Outage":
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        files = pki.certificate(self.paths, "ca"), pki.certificate(self.paths, _WHO), pki.key(self.paths, _WHO)
        server = Loopback(Settings.load(self.paths).ports["kube-apiserver"], *files)
        answered = time.monotonic()
        while not self._over.wait(0.05):
            if server.has("/readyz"):
                self.longest = max(self.longest, time.monotonic() - answered)
                answered = time.monotonic()


class Training:
    """A gang of two pods that adds gradients, and what is known of it."""

    def __init__(self, project: LocalProject, name: str, steps: int) -> None:
        self._project, self.name = project, name
        arguments = ("--example", "gradient-sum", "--image", "local/python", "--nodes", "2", "--name", name, "--detach")
        shown = project.trn("train", *arguments, "--", "--steps", str(steps), "--step-seconds", str(STEP_SECONDS))
        assert shown.returncode == 0, shown.stderr

    def pods(self) -> Mapping[str, tuple[str, str, int]]:
        """Uid, node and restarts of each."""
        found = self._project.get("local", "pods", "-n", "training", "-l", f"volcano.sh/job-name={self.name}")
        return {
            pod["metadata"]["uid"]: (pod["metadata"]["name"], pod["spec"].get("nodeName", ""), _restarts(pod))
            for pod in found
        }

    def log(self) -> str:
        return self._project.trn("logs", self.name, "--all").stdout

    def steps(self) -> list[dict[str, Any]]:
        """Rank 0's, from the first one on."""
        return [json.loads(found) for found in re.findall(r'\{"step": .*\}', self.log())]

    def state(self) -> str:
        return str(json.loads(self._project.trn("status", self.name, "--json").stdout)["job"]["state"])


def _restarts(pod: Mapping[str, Any]) -> int:
    return sum(each["restartCount"] for each in pod["status"].get("containerStatuses") or ())


@pytest.fixture(scope="module")
def project(binaries: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalProject]:
    """A local cloud of the older version, with the real Volcano."""
    pins = Pins(OLDER, Platform.here())
    there = find.cached(CONTROL_PLANE, pins, toolchain.paths.cache(os.environ) / "bin" / pins.key)
    if missing := REPLACED - there.keys():
        pytest.skip(f"`make test-upgrade` first builds Kubernetes {OLDER}: {', '.join(sorted(missing))}")
    _, missing_of_volcano = toolchain.find_volcano()
    if missing_of_volcano:
        pytest.skip(f"`python -m trainium_eks.local.toolchain` provides {', '.join(missing_of_volcano)} where it can")
    made = LocalProject.of_the_repository(tmp_path_factory.mktemp("upgrade"))
    made = LocalProject(made.path, {"TRN_VOLCANO": os.environ.get("TRN_VOLCANO", "")})
    try:
        up(made, OLDER)
        yield made
    finally:
        made.trn("local", "down")
        assert made.processes("local") == []


def configure(project: LocalProject, version: str, **group: str) -> None:
    endpoint = {"publicAccessCidrs": ["0.0.0.0/0"]}
    cluster = {"kubernetesVersion": version, "endpoint": endpoint}
    project.configure("local", cluster=cluster, nodeGroups=[{**GROUP, **group}])


def up(project: LocalProject, version: str, **group: str) -> str:
    configure(project, version, **group)
    shown = project.trn("local", "up")
    assert shown.returncode == 0, shown.stderr[-3000:]
    return shown.stdout + shown.stderr


def running(project: LocalProject) -> dict[str, set[int]]:
    """Process numbers by the name of their program; those of pods come and go by themselves."""
    found: dict[str, set[int]] = {}
    for each in processes.running(Paths.of(project.path, "local")):
        if each.name != SHIM:
            found.setdefault(each.name, set()).add(each.pid)
    return found


def kubelets(project: LocalProject) -> Sequence[str]:
    nodes = project.get("local", "nodes", "-l", "trainium-eks/pool=trn1")
    return [each["status"]["nodeInfo"]["kubeletVersion"].removeprefix("v").rpartition(".")[0] for each in nodes]


def test_a_gang_trains_on_while_the_control_plane_goes_up_one_minor_version(project: LocalProject) -> None:
    begun = time.monotonic()
    up(project, OLDER)
    # Two minutes, or on a slow machine ten times what an `up` takes that changes nothing: longer than the upgrade.
    count = max(1200, int(10 * (time.monotonic() - begun) / STEP_SECONDS))
    gang = Training(project, "through", count)
    until(lambda: len(gang.steps()) > 10, "it trains")
    before, pods, processes_before = gang.steps(), gang.pods(), running(project)
    assert len(pods) == 2
    with Outage(Paths.of(project.path, "local")) as outage:
        begun = time.time()
        up(project, NEWER, kubernetesVersion=OLDER)
        ended = time.time()
    assert gang.state() == "Running", "or it proves nothing: more steps"

    version = json.loads(project.kubectl("local", "get", "--raw", "/version"))
    assert f"{version['major']}.{version['minor']}" == NEWER
    assert {name for name, numbers in running(project).items() if numbers != processes_before[name]} == REPLACED
    assert set(kubelets(project)) == {OLDER}, "the group's nodes stay"

    assert gang.pods() == pods, "the same pods, on the same nodes, never restarted"
    during = [step for step in gang.steps() if begun < step["time"] < ended]
    assert len(during) > 10
    pauses = [later["time"] - earlier["time"] for earlier, later in itertools.pairwise(during)]
    print(  # noqa: T201 (`make test-upgrade` shows it)
        f"up: {ended - begun:.0f} s; the API server did not answer for {outage.longest:.1f} s; "
        f"{len(during)} steps meanwhile, the longest {max(pauses):.2f} s"
    )
    until(lambda: gang.state() == "Completed", "it ends", SECONDS + 5 * count * STEP_SECONDS)
    steps = [step["step"] for step in gang.steps()]
    assert steps == list(range(steps[0], count + 1)), "every step once"
    assert steps[0] <= before[0]["step"]
    assert "rank 1: the gradients' sum is 3; 2 of 2 ranks agree" in gang.log()


def test_the_new_control_plane_runs_new_gangs(project: LocalProject) -> None:
    gang = Training(project, "after", steps=5)
    until(lambda: gang.state() == "Completed", "it ends", SECONDS)


def test_the_way_back_is_refused_before_anything_is_touched(project: LocalProject) -> None:
    before = running(project)
    configure(project, OLDER)
    shown = project.trn("local", "up")
    assert shown.returncode == 1
    assert f"EKS never goes back from Kubernetes {NEWER} to {OLDER}: keep {NEWER}" in shown.stderr
    assert running(project) == before


def test_the_nodes_follow_when_they_are_let(project: LocalProject) -> None:
    before = running(project)
    up(project, NEWER)
    assert kubelets(project) == [NEWER, NEWER]
    assert running(project) == before
