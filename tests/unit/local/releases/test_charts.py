"""Where charts are looked for. The ``helm`` here is a script that says what the real one says."""

import io
import os
import tarfile
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
import toolchain_fakes as fakes

from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.paths import Paths
from trainium_eks.local.releases import charts as module
from trainium_eks.local.releases.charts import Charts, FoundChart, Missing
from trainium_eks.local.releases.helm_cli import HelmCli
from trainium_eks.local.releases.release_inputs import ReleaseInputs, wanted
from trainium_eks.model.catalogue.versions import CHARTS

REPOSITORY = "https://charts.example.com/stable"


def package(file: Path, name: str, version: str, note: str = "") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    content = f"apiVersion: v2\nname: {name}\nversion: {version}\n# {note}\n".encode()
    with tarfile.open(file, "w:gz") as archive:
        info = tarfile.TarInfo(f"{name}/Chart.yaml")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return file


def release(version: str = "1.0.0", chart: str = "thing", repo: str = REPOSITORY) -> ReleaseInputs:
    repository = {} if chart.startswith((".", "oci://")) else {"repositoryOpts": {"repo": repo}}
    inputs = {"name": "r", "namespace": "n", "chart": chart, "version": version, **repository}
    return wanted(inputs, timeout_seconds=60)


class Place:
    """A project, a cache, and a ``helm`` whose ``pull`` does what a test says."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.calls = root / "calls"
        self.project = root / "project"
        self.project.mkdir()

    def charts(self, pull: str = "echo 'Error: nobody may pull here' >&2; exit 1", **environment: str) -> Charts:
        helm = self.root / "helm"
        helm.write_text(
            f'#!/bin/sh\necho "$@" >> {self.calls}\nwhile [ "$1" != --destination ]; do shift; done\n{pull}\n'
        )
        helm.chmod(0o755)
        full: Mapping[str, str] = {"PATH": os.environ["PATH"], "TRN_CACHE": str(self.root / "cache"), **environment}
        return Charts(HelmCli(helm, Paths.of(self.project, "s"), full), self.project, full)

    @property
    def pulls(self) -> int:
        return len(self.calls.read_text().splitlines()) if self.calls.exists() else 0


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_local_chart_is_relative_to_the_project(place: Place) -> None:
    directory = place.project / "charts" / "own"
    directory.mkdir(parents=True)
    (directory / "Chart.yaml").write_text("name: own\nversion: 0.1.0\n")
    found = place.charts().find(release(chart="./charts/own"))
    assert isinstance(found, FoundChart)
    assert (found.name, found.path) == ("own", directory.resolve())
    (directory / "values.yaml").write_text("a: 1\n")
    again = place.charts().find(release(chart="./charts/own"))
    assert isinstance(again, FoundChart)
    assert again.digest != found.digest


@pytest.mark.parametrize(
    ("release_", "environment", "words"),
    [
        (release(chart="./charts/none"), {}, r"there is no chart .*project/charts/none"),
        (release(), {"TRN_CHARTS": "/nowhere"}, "TRN_CHARTS is /nowhere"),
        (release(version=""), {}, "name the version of thing"),
    ],
)
def test_what_cannot_be_looked_for_is_an_error(
    place: Place, release_: ReleaseInputs, environment: dict[str, str], words: str
) -> None:
    with pytest.raises(ClusterError, match=words):
        place.charts(**environment).find(release_)


@pytest.mark.parametrize(("wants", "has"), [("1.0.0", "1.0.0"), ("v1.0.0", "1.0.0"), ("1.0.0", "v1.0.0")])
def test_the_users_directory_comes_first_with_or_without_the_v(place: Place, wants: str, has: str) -> None:
    given = place.root / "given"
    package(given / f"thing-{has}.tgz", "thing", has)
    package(given / "thing-0.9.0.tgz", "thing", "0.9.0")
    found = place.charts(TRN_CHARTS=str(given)).find(release(wants))
    assert isinstance(found, FoundChart)
    assert (found.version, place.pulls) == (has, 0)


def test_of_the_users_directory_an_unpacked_chart_is_taken_and_another_version_is_not_and_both_are_named(
    place: Place,
) -> None:
    given = place.root / "given"
    package(given / "thing-0.9.0.tgz", "thing", "0.9.0")
    found = place.charts(TRN_CHARTS=str(given)).find(release())
    assert isinstance(found, Missing)
    assert "TRN_CHARTS has thing 0.9.0, wanted 1.0.0" in found.reason
    (given / "thing").mkdir()
    (given / "thing" / "Chart.yaml").write_text("name: thing\nversion: 1.0.0\n")
    found = place.charts(TRN_CHARTS=str(given)).find(release(chart="oci://example.com/x/thing"))
    assert isinstance(found, FoundChart)
    assert found.path == given / "thing"


def test_a_chart_is_pulled_once_and_kept(place: Place) -> None:
    package(place.root / "served.tgz", "thing", "1.0.0")
    pull = f"cp {place.root}/served.tgz $2/thing-1.0.0.tgz"
    first = place.charts(pull).find(release())
    second = place.charts().find(release())
    assert isinstance(first, FoundChart)
    assert isinstance(second, FoundChart)
    assert (first.digest, place.pulls) == (second.digest, 1)
    assert "--version 1.0.0" in place.calls.read_text()
    assert f"--repo={REPOSITORY}" in place.calls.read_text()
    assert not list((place.root / "cache").rglob(".pull-*"))


def test_charts_of_two_repositories_are_two_and_a_broken_package_in_the_cache_is_pulled_anew(place: Place) -> None:
    package(place.root / "served.tgz", "thing", "1.0.0")
    charts = place.charts(f"cp {place.root}/served.tgz $2/thing-1.0.0.tgz")
    found, other = (charts.find(release(repo=repo)) for repo in (REPOSITORY, "https://other.example.com"))
    assert isinstance(found, FoundChart)
    assert isinstance(other, FoundChart)
    assert found.path != other.path
    found.path.write_bytes(found.path.read_bytes()[:40])
    assert isinstance(charts.find(release()), FoundChart)
    assert place.pulls == 3


def test_another_chart_than_was_asked_for_is_refused_and_not_kept(place: Place) -> None:
    package(place.root / "served.tgz", "thing", "1.0.1")
    with pytest.raises(ClusterError, match=r"sent thing 1\.0\.1 where thing 1\.0\.0 was asked for"):
        place.charts(f"cp {place.root}/served.tgz $2/thing-1.0.0.tgz").find(release())
    assert not list((place.root / "cache").rglob("*.tgz"))


@pytest.mark.parametrize(
    "words",
    [
        'looks like "https://x" is not a valid chart repository or cannot be reached: Get "https://x/index.yaml": dial '
        "tcp: lookup x on 10.0.0.2:53: no such host",
        'failed to perform "FetchReference" on source: Get "https://x/v2/a": dial tcp 1.2.3.4:443: connect: connection '
        "refused",
        "failed to fetch https://x/index.yaml : 403 Forbidden",
    ],
)
def test_a_repository_that_cannot_be_reached_is_no_fault_and_says_what_to_do(place: Place, words: str) -> None:
    found = place.charts(f"echo 'Error: {words}' >&2; exit 1").find(release())
    assert isinstance(found, Missing)
    assert found.reason.startswith(f"chart repository not reachable: {REPOSITORY} (")
    assert found.reason.endswith("set TRN_CHARTS to a directory with thing-1.0.0.tgz)")
    assert words.rpartition(": ")[2] in found.reason


def test_a_host_that_cannot_be_reached_is_asked_once(place: Place) -> None:
    charts = place.charts("sleep 0.3; echo 'Error: connection refused' >&2; exit 1")
    names = ["thing", "other", "third"]
    found: list[object] = []
    threads = [threading.Thread(target=lambda n=name: found.append(charts.find(release(chart=n)))) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [type(each) for each in found] == [Missing] * 3
    assert place.pulls == 1
    charts.find(release(repo="https://elsewhere.example.com"))
    assert place.pulls == 2


def test_a_repository_that_does_not_answer_is_given_up(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PULL_SECONDS", 0.3)
    found = place.charts("exec sleep 600").find(release())
    assert isinstance(found, Missing)
    assert "no answer within" in found.reason


@pytest.mark.parametrize(
    "words",
    [
        'chart "thing" version "1.0.0" not found in https://charts.example.com/stable repository',
        "example.com/x/thing:1.0.0: not found",
        "failed to fetch https://charts.example.com/stable/index.yaml : 404 Not Found",
    ],
)
def test_a_repository_without_that_version_is_a_fault_of_the_program(place: Place, words: str) -> None:
    with pytest.raises(ClusterError, match=r"stable does not have thing 1\.0\.0: .*(?i:not found)"):
        place.charts(f"echo 'Error: {words}' >&2; exit 1").find(release())


# --- Volcano's chart ----------------------------------------------------------------------------------------------

VOLCANO = CHARTS["volcano"]


def of_volcano() -> ReleaseInputs:
    return release(VOLCANO.version, VOLCANO.chart, VOLCANO.repository)


def with_module(place: Place) -> str:
    """A ``go`` that has Volcano's module: a directory for PATH."""
    directory = place.root / "go"
    fakes.go(directory)
    chart = directory / "source" / "installer" / "helm" / "chart" / "volcano"
    (chart / "crd" / "bases").mkdir(parents=True)
    (chart / "crd" / "bases" / "queues.yaml").write_text("kind: CustomResourceDefinition\n")
    (chart / "Chart.yaml").write_text(f"apiVersion: v2\nname: volcano\nversion: {VOLCANO.version}\n")
    return str(directory)


def test_volcanos_chart_comes_from_its_module_where_the_repository_cannot_be_reached(place: Place) -> None:
    path = f"{with_module(place)}:{os.environ['PATH']}"
    found = place.charts(PATH=path).find(of_volcano())
    assert isinstance(found, FoundChart)
    assert (found.version, found.origin) == (VOLCANO.version, "Volcano's Go module")
    with tarfile.open(found.path) as archive:
        definitions = [name for name in archive.getnames() if name.startswith("volcano/crd/")]
    # The templates read what is a symbolic link in the project, and modules have none.
    assert definitions == ["volcano/crd/bases/queues.yaml", "volcano/crd/v1/queues.yaml"]
    again = place.charts(PATH=path).find(of_volcano())
    assert isinstance(again, FoundChart)
    assert (again.digest, again.origin.partition(":")[0]) == (found.digest, "the cache")
    found.path.unlink()
    anew = place.charts(PATH=path).find(of_volcano())
    assert isinstance(anew, FoundChart)
    assert anew.digest == found.digest


def test_volcanos_chart_is_missing_where_it_has_no_source_and_both_are_named(place: Place) -> None:
    found = place.charts(PATH="/bin").find(of_volcano())
    assert isinstance(found, Missing)
    assert "chart repository not reachable: https://volcano-sh.github.io" in found.reason
    assert found.reason.endswith("; nor in Go's modules: go is not on PATH")


def test_no_other_chart_is_looked_for_there(place: Place) -> None:
    path = f"{with_module(place)}:{os.environ['PATH']}"
    for wanted_ in (release(), release("1.14.0", VOLCANO.chart, VOLCANO.repository)):
        assert isinstance(place.charts(PATH=path).find(wanted_), Missing)
    assert isinstance(place.charts(PATH=path, TRN_VOLCANO="off").find(of_volcano()), Missing)
    assert not (place.root / "go" / "go.calls").exists()


def test_offline_no_repository_is_asked(place: Place) -> None:
    found = place.charts(TRN_OFFLINE="1").find(release())
    assert isinstance(found, Missing)
    assert "not asked, TRN_OFFLINE is set" in found.reason
    assert place.pulls == 0
