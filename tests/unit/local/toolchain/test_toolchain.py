"""Which tools are used, and the message about missing ones."""

import re
import sys

import pytest
import toolchain_fakes as fakes
from toolchain_fakes import failure, offline
from waiting import SECONDS

from trainium_eks.local.toolchain import TRAINING_OPERATOR, VOLCANO, find, kubernetes, provide, tools
from trainium_eks.local.toolchain.__main__ import main
from trainium_eks.model.catalogue import versions

[CURRENT] = kubernetes("1.35")
NAMES = {tool.name for tool in CURRENT.tools}


def test_path_precedes_kubebuilder_assets_and_the_cache_without_download(tmp_path):
    fakes.tools(tmp_path / "bin", kube_apiserver="", kwok="", kubectl="Client Version: v1.32.4")
    fakes.tools(tmp_path / "assets", kwok="")
    fakes.tools(tmp_path / "cache" / CURRENT.place)
    environment = offline(tmp_path / "bin", KUBEBUILDER_ASSETS=str(tmp_path / "assets"))
    there = provide(CURRENT, progress=pytest.fail, environment=environment, cache=tmp_path / "cache")
    assert set(there) == NAMES
    assert (there["etcd"].version, there["etcd"].path) == ("3.6.5", tmp_path / "bin/etcd")
    # The kubectl on PATH does not fit.
    origins = {"etcd": "PATH", "kube-apiserver": "KUBEBUILDER_ASSETS", "kubectl": "KUBEBUILDER_ASSETS", "kwok": "cache"}
    assert {name: there[name].origin for name in origins} == origins
    for tool in VOLCANO.tools:
        fakes.executable(tmp_path / "bin" / tool.name, fakes.tool_text("Version: v1.15.1"))
    there, reasons = find(VOLCANO, offline(tmp_path / "bin"), tmp_path / "cache")
    assert (there, set(reasons)) == ({}, {tool.name for tool in VOLCANO.tools}), "Volcano's are not taken from PATH"


def test_compatible_versions_are_recognised():
    misfits = {tool.name: tool.misfit for tool in CURRENT.tools}
    for tool, fits, does_not in (
        ("kube-apiserver", ["1.35.0", "1.35.9"], ["1.34.4", "1.36.0", "2.35.0"]),
        ("kubectl", ["1.34.0", "1.35.4", "1.36.3"], ["1.33.9", "1.37.0", "2.35.0"]),
        ("helm", ["3.14.0", "3.19.5"], ["3.13.9", "4.0.0", "2.17.0"]),
        ("etcd", ["3.5.0", "3.6.5"], ["3.4.30", "2.3.8", "4.5.0"]),
        ("kwok", ["0.6.0", "0.7.0", "1.0.0"], ["0.5.2", "2.0.0"]),
    ):
        assert [version for version in (*fits, *does_not) if misfits[tool](version)] == does_not


def test_missing_tool_is_reported_with_each_failed_way(tmp_path):
    fakes.tools(tmp_path / "bin", kubectl="Client Version: v1.32.4", kwok="")
    error = failure(offline(tmp_path / "bin"), tmp_path / "cache", CURRENT)
    *lines, helps = str(error).splitlines()
    assert lines == [
        "The local cloud needs programs that could not be found, downloaded or built: kubectl, kwok.",
        f"  PATH: {tmp_path}/bin/kubectl is 1.32.4, must be 1.34 or newer, below 1.37 (kubectl)",
        "  PATH: not there (kwok)",
        "  KUBEBUILDER_ASSETS: not set",
        f"  cache: not in {tmp_path}/cache/{CURRENT.place}",
        "  download: not tried, TRN_OFFLINE is set",
        "  build: go is not on PATH",
    ]
    assert "https://go.dev/dl/" in helps


def test_another_kubernetes_minor_is_not_built_and_is_refused(tmp_path):
    fakes.go(tmp_path / "bin")
    error = str(failure(offline(tmp_path / "bin"), tmp_path / "cache", *kubernetes("1.36")))
    assert "build: only Kubernetes 1.35 can be built" in error
    assert "use Kubernetes 1.35, which can be built from source" in error
    assert fakes.calls(tmp_path / "bin") == []
    with pytest.raises(ValueError, match="banana"):
        kubernetes("banana")


@pytest.mark.parametrize(
    ("script", "words", "seconds"),
    [
        ("#!/bin/sh\necho oh dear >&2; exit 3", "failed when asked for its version (exit code 3): oh dear", SECONDS),
        ("#!/bin/sh\necho hello", "does not say its version: 'hello'", SECONDS),
        ("#!/bin/sh\nPATH=/bin:/usr/bin exec sleep 600", "did not say its version in 0.3 s", 0.3),
        ("#!/no/such/interpreter", "cannot be run: No such file or directory", SECONDS),
    ],
)
def test_failing_tool_is_skipped_with_its_output(tmp_path, monkeypatch, script, words, seconds):
    monkeypatch.setattr("trainium_eks.local.toolchain.finding._ASK_SECONDS", seconds)
    fakes.executable(tmp_path / "bin" / "helm", f"{script}\n")
    error = failure(offline(tmp_path / "bin"), tmp_path / "cache", CURRENT)
    assert f"PATH: {tmp_path}/bin/helm {words} (helm)" in str(error)


@pytest.mark.parametrize("bundle", [VOLCANO, TRAINING_OPERATOR], ids=lambda bundle: bundle.name)
def test_optional_tool_can_be_switched_off(tmp_path, bundle):
    fakes.go(tmp_path / "bin")
    error = failure(offline(tmp_path / "bin", **{bundle.switch: "off"}), tmp_path / "cache", bundle)
    assert f"{bundle.switch} is off" in str(error)
    assert fakes.calls(tmp_path / "bin") == []
    assert bundle.helps[-1] in str(failure(offline(tmp_path), tmp_path / "cache", bundle))


def test_go_mod_pins_the_same_versions():
    pins = [
        (CURRENT, "k8s.io/kubernetes", tools.KUBERNETES_RELEASES[versions.KUBERNETES]),
        (CURRENT, "go.etcd.io/etcd/server/v3", tools.ETCD),
        (CURRENT, "helm.sh/helm/v3", tools.HELM),
        (CURRENT, "sigs.k8s.io/kwok", tools.KWOK),
        (VOLCANO, VOLCANO.source, versions.CHARTS["volcano"].version),
        (TRAINING_OPERATOR, TRAINING_OPERATOR.source, versions.TRAINING_OPERATOR.removeprefix("v")),
    ]
    for bundle, module, version in pins:
        text = (bundle.module / "go.mod").read_text()
        assert set(re.findall(rf"^(?:\t|require ){re.escape(module)} v([\d.]+)", text, re.MULTILINE)) == {version}
        if bundle.source:
            assert bundle.tools[0].version == version
            sums = (bundle.module / "sources.sum").read_text()
            assert len(re.findall(rf"^{re.escape(module)} v{re.escape(version)}(?:/go\.mod)? h1:\S+$", sums, re.M)) == 2


def test_toolchain_command_lists_tools_and_tolerates_a_missing_volcano(tmp_path, monkeypatch, capsys):
    for name, value in offline(tmp_path / "bin", TRN_CACHE=str(tmp_path), KUBEBUILDER_ASSETS="").items():
        monkeypatch.setenv(name, value)

    def command(*arguments):
        monkeypatch.setattr(sys, "argv", ["toolchain", *arguments])
        return main(), *capsys.readouterr()

    code, shown, said = command()
    assert (code, shown) == (1, "")
    assert "could not be found, downloaded or built: kube-apiserver" in said
    assert command("--try", "--prometheus") == (0, "", "")

    fakes.tools(tmp_path / "bin")
    code, shown, said = command()
    assert code == 0
    header, *rows = [line.split() for line in shown.splitlines()]
    assert header == ["NAME", "VERSION", "ORIGIN", "PATH"]
    assert ["kwok", "0.6.1", "PATH", str(tmp_path / "bin" / "kwok")] in rows
    assert {row[0] for row in rows} == NAMES
    assert "Volcano needs programs that could not be found" in said
    assert "jobs are validated but not scheduled" in said
    for tool in VOLCANO.tools:
        fakes.executable(tmp_path / VOLCANO.place / tool.name, "")
    code, shown, said = command()
    assert (code, "Volcano" in said) == (0, False)
    assert re.search(r"^vc-scheduler +1\.15\.1 +cache ", shown, re.MULTILINE)
