"""Fixtures for all tests."""

import fcntl
import functools
import gc
import hashlib
import json
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import isolated_run
from isolated_run import pytest_handlecrashitem  # noqa: F401 (a hook of pytest-xdist)

isolated_run.isolate()  # before the imports below read variables
os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])  # for children: a test's directory is empty

import botocore.loaders
import botocore.session
import pytest
import typer.testing
from hypothesis import HealthCheck, settings
from messages import fault_of

from trainium_eks.model.catalogue.versions import KUBERNETES
from trainium_eks.model.validation.problems import Problem
from trainium_eks.plan.graph import Graph
from trainium_eks.plan.recording import process
from trainium_eks.plan.recording.program import record_program

_ROOT = Path(__file__).resolve().parent.parent
_PRODUCT = (f"{_ROOT}/trainium_eks/", f"{_ROOT}/components/")
_QUOTING = ("model/validation/problems.py", "client/failure.py", "cli/shared/programs.py")
"""Files that make a problem of another one's text."""

# A machine that is busy with other tests is slow to make examples; that says nothing of what is tested.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

isolated_run.refuse_exec()

# Importing the SDKs makes a million objects that stay. Going through them again and again, looking for garbage, would
# take a quarter of the tests' time.
gc.disable()


# Typer's runner makes the whole tree of commands anew for each call: 60 ms, which most commands do not take.
typer.testing._get_command = functools.cache(typer.testing._get_command)


_record_anew = process._record


def _record_once(project, request, python, live=None):
    """Record a request of this checkout once in a run, for all its workers: an environment takes three seconds."""
    if project.directory != _ROOT or live is not None:
        return _record_anew(project, request, python, live)
    name = hashlib.sha256(f"{python}\n{request.to_json()}".encode()).hexdigest()
    with Path(os.environ[isolated_run.RUN], f"{name}.json").open("a+") as kept:
        fcntl.flock(kept, fcntl.LOCK_EX)
        kept.seek(0)
        if text := kept.read():
            return Graph.from_json(json.loads(text))
        graph = _record_anew(project, request, python)
        json.dump(graph.to_json(), kept)
        return graph


process._record = _record_once


def pytest_collection_finish():
    """What was imported stays, and garbage is collected from now on."""
    gc.freeze()
    gc.enable()
    # A recording keeps its objects to the end: at the default of 700 the search takes a fifth of its time.
    gc.set_threshold(50_000, 20, 100)


@pytest.fixture(scope="session", autouse=True)
def _models_of_aws_are_read_once():
    """Share botocore's loader: a session reads the models of its services anew, which takes longer than most tests."""
    with pytest.MonkeyPatch.context() as patch:
        loader = botocore.loaders.create_loader()
        patch.setattr(botocore.session, "create_loader", lambda *_: loader)
        yield


@pytest.fixture(autouse=True)
def _empty_directory(monkeypatch):
    """Begin each test in an empty directory: in the checkout the user's local clouds would be found."""
    with tempfile.TemporaryDirectory(prefix="empty-") as directory:
        monkeypatch.chdir(directory)
        yield


@pytest.fixture(scope="session", autouse=True)
def _every_message_has_its_form():
    """Holds every problem that the product makes in any test to the form of messages.py."""
    make = Problem.__init__

    def held(self, *given, **named):
        make(self, *given, **named)
        place = sys._getframe(1).f_code.co_filename
        if place.startswith(_PRODUCT) and not place.endswith(_QUOTING):
            assert not fault_of(self), f"{fault_of(self)}: {self}"

    Problem.__init__ = held  # type: ignore[method-assign]
    yield
    Problem.__init__ = make  # type: ignore[method-assign]


@pytest.fixture(scope="session")
def record():
    """Records a program in this process: ``graph = record(lambda: Network("net", {...}))``.

    Takes the keyword arguments of :func:`trainium_eks.plan.recording.program.record_program`. Pulumi's state lives
    in a context of the recording's own, so nothing is left for the next test.
    """

    def recorded(*arguments, **options):
        # For each resource Pulumi's SDK notes the whole stack, of which pytest makes most. A thread begins a new one.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(record_program, *arguments, **options).result()

    return recorded


@pytest.fixture(scope="session")
def binaries(progress):
    """The programs of the control plane, kubectl and helm, by their names; without them the tests are skipped.

    The first time on a machine they are built, which takes minutes: progress is shown.
    """
    # Most tests do without, and it takes a while to import.
    from trainium_eks.local.toolchain import UnavailableError, kubernetes, provide

    try:
        return {name: binary.path for name, binary in provide(*kubernetes(KUBERNETES), progress=progress).items()}
    except UnavailableError as error:
        pytest.skip(error.summary)


@pytest.fixture(scope="session")
def prometheus(progress):
    """Prometheus and promtool, by their names, as :func:`binaries`."""
    from trainium_eks.local.toolchain import PROMETHEUS, UnavailableError, provide

    try:
        found = provide(PROMETHEUS, progress=progress, patience_seconds=600)
    except UnavailableError as error:
        pytest.skip(f"no Prometheus: {error.last}")
    return {name: binary.path for name, binary in found.items()}


@pytest.fixture(scope="session")
def progress(request):
    """Shows a line while pytest captures what is printed: what is built the first time on a machine takes minutes."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def show(line):
        with capture.global_and_fixture_disabled():
            print(f"\n{line}", flush=True)  # noqa: T201 (that is what it is for)

    return show
