"""Prometheus and promtool: found or built, with the service discoveries that are used here and no others."""

import re
from pathlib import Path

import pytest
import toolchain_fakes as fakes

from trainium_eks.local import toolchain
from trainium_eks.local.toolchain import go_command, tools


def _provided(cache: Path, path: Path) -> dict[str, str]:
    found = toolchain.provide_prometheus(
        progress=lambda _: None, environment={"PATH": str(path), "TRN_OFFLINE": "1"}, cache=cache
    )
    return {name: f"{binary.origin} {binary.version}" for name, binary in found.items()}


def test_its_module_is_the_pinned_version() -> None:
    # Go's version of Prometheus 3.13.5 is v0.313.5.
    major, minor, patch = tools.PROMETHEUS.split(".")
    text = (go_command.PROMETHEUS_MODULE / "go.mod").read_text()
    assert re.findall(r"github\.com/prometheus/prometheus (v\S+)", text) == [f"v0.{major}{minor:0>2}.{patch}"]


def test_it_is_built_once_without_the_discoveries_of_clouds(tmp_path: Path) -> None:
    fakes.go(tmp_path / "bin")
    for origin in ("build", "cache"):
        there = _provided(tmp_path / "cache", tmp_path / "bin")
        assert there == {"prometheus": f"{origin} {tools.PROMETHEUS}", "promtool": f"{origin} {tools.PROMETHEUS}"}
    _, listed, built = (tmp_path / "bin" / "go.calls").read_text().splitlines()
    for line in (listed, built):
        assert " -tags=remove_all_sd,enable_kubernetes_sd " in line
    assert f"-X github.com/prometheus/common/version.Version={tools.PROMETHEUS} " in built


def test_other_programs_are_built_without_tags(tmp_path: Path) -> None:
    fakes.go(tmp_path / "bin")
    environment = {"PATH": str(tmp_path / "bin"), "TRN_OFFLINE": "1"}
    toolchain.provide("1.35", progress=lambda _: None, environment=environment, cache=tmp_path / "cache")
    assert "-tags" not in (tmp_path / "bin" / "go.calls").read_text()


@pytest.mark.parametrize(("version", "words"), [("2.42.0", "is 2.42.0, must be 3"), ("4.0.0", "is 4.0.0, must be 3")])
def test_one_on_path_that_does_not_fit_is_passed_over(tmp_path: Path, version: str, words: str) -> None:
    fakes.executable(tmp_path / "prometheus", fakes.tool_text(f"prometheus, version {version} (branch: x)"))
    with pytest.raises(toolchain.Unavailable) as refused:
        _provided(tmp_path / "cache", tmp_path)
    assert words in str(refused.value)
    assert "put the programs of Prometheus 3 on PATH" in str(refused.value)


def test_those_on_path_that_fit_are_taken(tmp_path: Path) -> None:
    for name in tools.PROMETHEUS_TOOLS:
        fakes.executable(tmp_path / name, fakes.tool_text(f"{name}, version 3.14.0 (branch: HEAD)"))
    assert _provided(tmp_path / "cache", tmp_path) == {"prometheus": "PATH 3.14.0", "promtool": "PATH 3.14.0"}
