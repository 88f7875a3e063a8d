"""docs/training.md and docs/models.md: each command is run as printed, and its output is compared."""

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from local_project import ROOT, TIMEOUT_SECONDS, repository_cloud
from running_pods import processes_of
from waiting import until

from trainium_eks.fetched import cache
from trainium_eks.jobs.objects.identity import JOB_API
from trainium_eks.kube.api import Api, ApiError, ObjectReference
from trainium_eks.local.control_plane.ports import free_port
from trainium_eks.local.images import images
from trainium_eks.local.images.installing import known_recipe
from trainium_eks.local.paths import Paths

pytestmark = pytest.mark.slow

TUTORIAL = ROOT / "docs" / "training.md"
MODELS = ROOT / "docs" / "models.md"
_BLOCK = re.compile(r"^```(console|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _blocks(file):
    page, on_aws, _ = file.read_text(encoding="utf-8").partition("\n## On AWS\n")
    assert on_aws
    return _BLOCK.findall(page)


@pytest.fixture(scope="module")
def own_cache(tmp_path_factory):
    """The user's cache without its images: the tutorial is run as on a machine that has not made one."""
    place = tmp_path_factory.mktemp("cache")
    cache().mkdir(parents=True, exist_ok=True)
    for each in cache().iterdir():
        if each.name != "images":
            (place / each.name).symlink_to(each)
    return place


@pytest.fixture(scope="module")
def project(binaries, own_cache, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tutorial") / "project"
    with repository_cloud(folder, environment={"TRN_VOLCANO": "", "TRN_CACHE": str(own_cache)}) as project:
        (folder / "trn").write_text(f'#!/bin/sh\nexec {sys.executable} -m trainium_eks.cli "$@"\n')
        (folder / "trn").chmod(0o755)
        yield project


@pytest.fixture
def volume(project):
    """The team's volume, empty, and no job: as the page's reader begins, also where a page is tried again."""
    paths = Paths.of(project.path, "local")
    api = Api.connect(paths.kubeconfig)
    for api_version in (JOB_API, "batch/v1"):
        for job in api.list(api_version, "Job", namespace="training"):
            api.delete(
                ObjectReference(api_version, "Job", "training", job["metadata"]["name"]), propagation="Background"
            )
    until(lambda: not api.list("v1", "Pod", namespace="training"), "the pods of the jobs are gone")
    volume = paths.claims / "training" / "fsx-claim"
    shutil.rmtree(volume, ignore_errors=True)
    return volume


@pytest.fixture
def torch(own_cache):
    """The image `local/torch` of today's requirements, where this user has made it."""
    image = images.find(f"torch:{images.digest(known_recipe('torch').requirements)}")
    if image is None:
        pytest.skip("no image local/torch on this machine: trn local images make torch (`make test-workloads` does)")
    (own_cache / "images").mkdir(exist_ok=True)
    for each in (image.path, image.path.with_suffix(".json")):
        link = own_cache / "images" / each.name
        link.unlink(missing_ok=True)
        link.symlink_to(each)


def _run(project, line):
    """What a line of the page prints, on either stream."""
    environment = {**project.surroundings(), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    shown = subprocess.run(
        ["bash", "-c", line],
        cwd=project.path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert shown.returncode == 0, f"{line}\n{shown.stdout}"
    return shown.stdout


@contextmanager
def _held(project, job, program):
    """Stops those of a job's processes whose command lines have the program, from the job's first checkpoint to the
    end of the block: the training does not come to its end meanwhile, nor does a pod whose rank is killed."""
    paths = Paths.of(project.path, "local")
    api = Api.connect(paths.kubeconfig)
    pods = "/api/v1/namespaces/training/pods"

    def has_saved():
        try:
            log = api.text("GET", f"{pods}/{job}-trainer-0-0/log")
        except ApiError:  # not yet
            return False
        return re.search(r'"checkpoint_step": [1-9]', log) is not None

    until(has_saved, f"{job} has saved a checkpoint")
    uids = [
        pod["metadata"]["uid"]
        for pod in api.request("GET", pods)["items"]
        if pod["metadata"]["name"].startswith(f"{job}-trainer-")
    ]
    stopped = []
    for process in (each for uid in uids for each in processes_of(paths, uid)):
        with suppress(psutil.NoSuchProcess):
            if program in " ".join(process.cmdline()):
                process.suspend()
                stopped.append(process)
    assert stopped
    try:
        yield
    finally:
        for process in stopped:
            with suppress(psutil.NoSuchProcess):  # killed meanwhile
                process.resume()


def _kill(project, line, job, program):
    """Runs the line of the page that kills a rank, when `trn status` shows a checkpoint, as the page asks for."""
    with _held(project, job, program):
        status = json.loads(project.trn("status", job, "--json").stdout)
        assert status["progress"]["checkpointStep"], status
        return _run(project, line)


def _follow(project, page):
    printed = ""
    for kind, block in _blocks(page):
        if kind == "console":
            printed = ""
            for line in block.splitlines():
                if line.startswith("make "):
                    continue
                kills = re.search(r" exec (\S+)-trainer-\S+ -- pkill -9 -n -f (\S+)$", line)
                printed += _kill(project, line, *kills.groups()) if kills else _run(project, line)
            continue
        rest = printed
        for line in block.splitlines():
            wanted = ".*".join(re.escape(part) for part in line.split("…"))
            found = re.search(wanted, rest)
            assert found, f"the page shows\n  {line}\nand this was printed:\n{printed}"
            rest = rest[found.end() :]


def test_tutorial_commands_work_as_the_page_shows(project, volume):
    _follow(project, TUTORIAL)


def test_models_train_with_the_pages_commands(project, volume, torch):
    _follow(project, MODELS)
    curve = _curve(project, "bert-tiny", "loss", last=400)
    steps = [step for _, step, _ in curve]
    assert steps == list(range(1, 401)), "each step once, though a rank was killed"
    losses = [loss for _, _, loss in curve]
    assert sum(losses[-10:]) / 10 < 0.7 * losses[0]


def _curve(project, job, tag, last):
    """Time, step and value of each point to the last step, as TensorBoard tells a browser."""
    command = project.command("tensorboard", job, "--port", str(free_port(set())), "--json")
    with subprocess.Popen(command, cwd=project.path, env=project.surroundings(), stdout=subprocess.PIPE) as process:
        try:
            url = json.loads(process.stdout.readline())["url"]
            points = []

            def is_read():  # it answers before it has read the logs to their end
                points[:] = _points(url, tag)
                return any(step >= last for _, step, _ in points)

            until(is_read, f"TensorBoard has read step {last}")
            return points
        finally:
            process.terminate()


def _points(url, tag):
    try:
        address = f"{url}/data/plugin/scalars/scalars?tag={tag}&run=."
        with urllib.request.urlopen(address, timeout=60) as answer:
            found = json.load(answer)
            return list(found)
    except urllib.error.URLError:
        return []


@pytest.mark.parametrize("page", [TUTORIAL, MODELS], ids=lambda page: page.stem)
def test_every_command_of_the_pages_is_tested(page):
    commands = [line for kind, block in _blocks(page) if kind == "console" for line in block.splitlines()]
    assert len([line for line in commands if line.startswith("./trn ")]) > {"training": 12, "models": 6}[page.stem]
    known = r"\./trn |PYTHONPATH=workloads \$\(\./trn |make local$|mkdir |printf |echo "
    assert not [line for line in commands if not re.match(known, line)]
