"""Charts and a release's inputs, with a ``helm`` that is a script and says what the real one says."""

import os
import tarfile
from concurrent.futures import ThreadPoolExecutor

import pulumi_kubernetes as k8s
import pytest
import toolchain_fakes as fakes

from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.paths import Paths
from trainium_eks.local.releases import charts as module
from trainium_eks.local.releases.charts import Charts
from trainium_eks.local.releases.helm_cli import HelmCli
from trainium_eks.local.releases.release_inputs import FLAGS, wanted
from trainium_eks.model.catalogue.versions import CHARTS

REPOSITORY = "https://charts.example.com/stable"


def description(name, version):
    return f"apiVersion: v2\nname: {name}\nversion: {version}\n"


def package(directory, version, name="thing"):
    directory.mkdir(exist_ok=True)
    file = directory / f"{name}-{version}.tgz"
    file.write_bytes(fakes.archive({f"{name}/Chart.yaml": description(name, version).encode()}))
    return file


def unpacked(directory, version):
    directory.mkdir(parents=True)
    (directory / "Chart.yaml").write_text(description(directory.name, version))


def release(version="1.0.0", chart="thing", repo=REPOSITORY):
    repository = {} if chart.startswith((".", "oci://")) else {"repositoryOpts": {"repo": repo}}
    inputs = {"name": "r", "namespace": "n", "chart": chart, "version": version, **repository}
    return wanted(inputs, timeout_seconds=60)


class Place:
    """A project, a cache, and a ``helm`` whose ``pull`` does what a test says."""

    def __init__(self, root):
        self.root = root
        self.calls = root / "calls"
        self.project = root / "project"
        self.given = root / "given"
        self.project.mkdir()
        self.served = f"cp {package(root / 'served', '1.0.0')} $2/thing-1.0.0.tgz"

    def charts(self, pull="echo 'Error: nobody may pull here' >&2; exit 1", **environment):
        wait = '[ -z "$HELM_NAMESPACE" ] || exit 9; while [ "$1" != --destination ]; do shift; done'
        helm = fakes.executable(self.root / "helm", f'#!/bin/sh\necho "$@" >> {self.calls}\n{wait}\n{pull}\n')
        theirs = {"PATH": os.environ["PATH"], "HELM_NAMESPACE": "other"}
        full = {**theirs, "TRN_CACHE": str(self.root / "cache"), **environment}
        return Charts(HelmCli(helm, Paths.of(self.project, "s"), full), self.project, full)

    @property
    def pulls(self):
        return len(self.calls.read_text().splitlines()) if self.calls.exists() else 0


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def found(charts, release_=None):
    return charts.find(release_ or release())


def missing(charts, release_=None):
    return charts.find(release_ or release()).reason


def test_missing_chart_is_an_error_and_a_wrong_version_is_not_kept(place):
    with pytest.raises(ClusterError, match=r"there is no chart .*project/charts/none"):
        place.charts().find(release(chart="./charts/none"))
    with pytest.raises(ClusterError, match="TRN_CHARTS is /nowhere"):
        place.charts(TRN_CHARTS="/nowhere").find(release())
    with pytest.raises(ClusterError, match="name the version of thing"):
        place.charts().find(release(version=""))
    with pytest.raises(ClusterError, match=r"sent thing 1\.0\.1 where thing 1\.0\.0 was asked for"):
        place.charts(f"cp {package(place.given, '1.0.1')} $2/thing-1.0.0.tgz").find(release())
    assert not list((place.root / "cache").rglob("*.tgz"))


@pytest.mark.parametrize(("wants", "has"), [("1.0.0", "1.0.0"), ("v1.0.0", "1.0.0"), ("1.0.0", "v1.0.0")])
def test_users_directory_precedes_with_or_without_the_v(place, wants, has):
    package(place.given, "0.9.0")
    charts = place.charts(TRN_CHARTS=str(place.given))
    assert f"TRN_CHARTS has thing 0.9.0, wanted {wants}" in missing(charts, release(wants))
    package(place.given, has)
    assert (found(charts, release(wants)).version, place.pulls) == (has, 0)
    unpacked(place.given / "thing", "1.1.0")
    assert found(charts, release("1.1.0", "oci://example.com/x/thing")).path == place.given / "thing"


def test_chart_is_pulled_once_a_repository_and_kept_while_intact(place):
    charts = place.charts(place.served)
    first, other = found(charts), found(charts, release(repo="https://other.example.com"))
    assert first.path != other.path
    assert "--version 1.0.0" in place.calls.read_text()
    assert f"--repo={REPOSITORY}" in place.calls.read_text()
    assert found(place.charts(TRN_OFFLINE="1")).digest == first.digest
    assert place.pulls == 2
    assert not list((place.root / "cache").rglob(".pull-*"))
    first.path.write_bytes(first.path.read_bytes()[:40])
    assert "not asked, TRN_OFFLINE is set" in missing(place.charts(TRN_OFFLINE="1"))
    assert found(place.charts(place.served)).digest == first.digest


GET = 'Get "https://x/v2/a": dial tcp'


@pytest.mark.parametrize(
    "words",
    [
        f'looks like "https://x" is not a valid chart repository or cannot be reached: {GET}: lookup x: no such host',
        f'failed to perform "FetchReference" on source: {GET} 1.2.3.4:443: connect: connection refused',
        "failed to fetch https://x/index.yaml : 403 Forbidden",
        f'chart "thing" version "1.0.0" not found in {REPOSITORY} repository',
        "example.com/x/thing:1.0.0: not found",
        f"failed to fetch {REPOSITORY}/index.yaml : 404 Not Found",
    ],
)
def test_unreachable_repository_is_no_error_and_a_missing_version_is(place, words):
    charts = place.charts(f"echo 'Error: {words}' >&2; exit 1")
    if "not found" in words.lower():
        with pytest.raises(ClusterError, match=r"stable does not have thing 1\.0\.0: .*(?i:not found)"):
            charts.find(release())
        return
    reason = missing(charts)
    assert reason.startswith(f"chart repository not reachable: {REPOSITORY} (")
    assert reason.endswith("set TRN_CHARTS to a directory with thing-1.0.0.tgz)")
    assert words.rpartition(": ")[2] in reason


def test_a_host_that_cannot_be_reached_is_asked_once(place):
    charts = place.charts("sleep 0.3; echo 'Error: connection refused' >&2; exit 1")
    with ThreadPoolExecutor() as pool:
        names = ("thing", "other", "third")
        assert len([*pool.map(lambda name: missing(charts, release(chart=name)), names)]) == 3
    assert place.pulls == 1
    charts.find(release(repo="https://elsewhere.example.com"))
    assert place.pulls == 2


def test_silent_repository_is_given_up(place, monkeypatch):
    monkeypatch.setattr(module, "PULL_SECONDS", 0.3)
    assert "no answer within" in missing(place.charts("exec sleep 600"))


VOLCANO = CHARTS["volcano"]
OF_VOLCANO = release(VOLCANO.version, VOLCANO.chart, VOLCANO.repository)


@pytest.fixture
def path(place):
    """A PATH with a ``go`` that has Volcano's module."""
    go = fakes.go(place.root / "go").parent
    chart = go / "source" / "installer" / "helm" / "chart" / "volcano"
    unpacked(chart, VOLCANO.version)
    fakes.executable(chart / "crd" / "bases" / "queues.yaml", "kind: CustomResourceDefinition\n")
    return f"{go}:{os.environ['PATH']}"


def test_volcanos_chart_comes_from_its_go_module_when_unreachable(place, path):
    first = found(place.charts(PATH=path), OF_VOLCANO)
    assert (first.version, first.origin) == (VOLCANO.version, "Volcano's Go module")
    with tarfile.open(first.path) as archive:
        definitions = [name for name in archive.getnames() if name.startswith("volcano/crd/")]
    # The templates read what is a symbolic link in the project, and modules have none.
    assert definitions == ["volcano/crd/bases/queues.yaml", "volcano/crd/v1/queues.yaml"]
    again = found(place.charts(PATH=path), OF_VOLCANO)
    assert (again.digest, again.origin.partition(":")[0]) == (first.digest, "the cache")
    first.path.unlink()
    assert found(place.charts(PATH=path), OF_VOLCANO).digest == first.digest


def test_missing_volcano_source_names_both_ways(place, path):
    reason = missing(place.charts(PATH="/bin"), OF_VOLCANO)
    assert "chart repository not reachable: https://volcano-sh.github.io" in reason
    assert reason.endswith("; nor in Go's modules: go is not on PATH")
    for other in (release(), release("1.14.0", VOLCANO.chart, VOLCANO.repository)):
        missing(place.charts(PATH=path), other)
    missing(place.charts(PATH=path, TRN_VOLCANO="off"), OF_VOLCANO)
    assert not (place.root / "go" / "go.calls").exists()


MINIMAL = {"name": "r", "namespace": "n", "chart": "./c"}


def read(**inputs):
    return wanted({**MINIMAL, **inputs}, timeout_seconds=600)


def test_helm_flags_equal_pulumis_inputs_and_are_set_on_request():
    known = set(k8s.helm.v3.ReleaseArgs.__init__.__annotations__)
    for key, flag in FLAGS.items():
        assert "".join(f"_{c.lower()}" if c.isupper() else c for c in key) in known
        assert [flag in read(**{key: asked}).flags for asked in (True, False)] == [True, False]


def test_unsupported_or_missing_inputs_are_named():
    unhonoured = {"verify": True, "lint": True, "repositoryOpts": {"repo": "https://r", "proxy": "p"}}
    with pytest.raises(ClusterError, match=r"n/r: .* does not support lint, verify, repositoryOpts\.proxy"):
        read(**unhonoured)
    for key in ("name", "chart"):
        with pytest.raises(ClusterError, match=f"has no {key}"):
            read(**{key: ""})


def test_values_equal_those_pulumi_passes():
    values = {"port": 8080.0, "half": 0.5, "gone": None, "list": [1.0, {"x": None, "y": 2.0}], "on": True}
    after = read(values=values).values
    assert after == {"port": 8080, "half": 0.5, "list": [1, {"y": 2}], "on": True}
    assert isinstance(after["port"], int)
    assert after["on"] is True
    assert read(values=values, allowNullValues=True).values["gone"] is None
