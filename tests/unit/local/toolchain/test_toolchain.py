"""Which tools are taken, and what is said of those that are missing."""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import toolchain_fakes as fakes
from waiting import SECONDS

from trainium_eks.local.toolchain import TOOLS, Pins, Platform, Unavailable, build, find, provide, tools
from trainium_eks.local.toolchain.throttle import Throttle
from trainium_eks.model.catalogue import versions

LINUX = Platform("linux", "amd64")
GO_MOD = Path(tools.__file__).with_name("go.mod")


def offline(path: Path, **more: str) -> dict[str, str]:
    return {"PATH": str(path), "TRN_OFFLINE": "1", **more}


def silent(message: str) -> None:
    pytest.fail(f"nothing was to be said: {message}")


def unavailable(environment: dict[str, str], cache: Path, minor: str = "1.35") -> Unavailable:
    with pytest.raises(Unavailable) as caught:
        provide(minor, progress=lambda _: None, environment=environment, cache=cache)
    return caught.value


def test_tools_on_path_that_fit_are_taken_and_nothing_is_fetched(tmp_path: Path) -> None:
    fakes.tools(tmp_path / "bin")
    there = provide("1.35", progress=silent, environment=offline(tmp_path / "bin"), cache=tmp_path / "cache")
    assert tuple(there) == TOOLS
    assert {binary.origin for binary in there.values()} == {"PATH"}
    assert there["etcd"].version == "3.6.5"
    assert there["helm"].path == tmp_path / "bin" / "helm"


def test_path_comes_before_kubebuilder_assets_and_these_before_the_cache(tmp_path: Path) -> None:
    fakes.tools(tmp_path / "bin", kube_apiserver="", kwok="")
    fakes.tools(tmp_path / "assets", kwok="")
    fakes.tools(tmp_path / "cache" / "bin" / Pins("1.35", Platform.here()).key)
    environment = offline(tmp_path / "bin", KUBEBUILDER_ASSETS=str(tmp_path / "assets"))
    there = provide("1.35", progress=silent, environment=environment, cache=tmp_path / "cache")
    assert there["etcd"].origin == "PATH"
    assert there["kube-apiserver"].origin == "KUBEBUILDER_ASSETS"
    assert there["kwok"].origin == "cache"


def test_tool_whose_version_does_not_fit_is_passed_over(tmp_path: Path) -> None:
    fakes.tools(tmp_path / "bin", kubectl="Client Version: v1.32.4")
    fakes.tools(tmp_path / "assets")
    environment = offline(tmp_path / "bin", KUBEBUILDER_ASSETS=str(tmp_path / "assets"))
    there = provide("1.35", progress=silent, environment=environment, cache=tmp_path / "cache")
    assert there["kubectl"].origin == "KUBEBUILDER_ASSETS"


@pytest.mark.parametrize(
    ("tool", "fits", "does_not"),
    [
        ("kube-apiserver", ["1.35.0", "1.35.9"], ["1.34.4", "1.36.0", "2.35.0"]),
        ("kube-scheduler", ["1.35.4"], ["1.34.4"]),
        ("kube-controller-manager", ["1.35.4"], ["1.36.0"]),
        ("kubectl", ["1.34.0", "1.35.4", "1.36.3"], ["1.33.9", "1.37.0", "2.35.0"]),
        ("helm", ["3.14.0", "3.19.5"], ["3.13.9", "4.0.0", "2.17.0"]),
        ("etcd", ["3.5.0", "3.6.5"], ["3.4.30", "2.3.8", "4.5.0"]),
        ("kwok", ["0.6.0", "0.7.0", "1.0.0"], ["0.5.2"]),
    ],
)
def test_versions_that_fit(tool: str, fits: list[str], does_not: list[str]) -> None:
    pins = Pins("1.35", LINUX)
    assert [version for version in fits if pins.misfit(tool, version)] == []
    assert [version for version in does_not if not pins.misfit(tool, version)] == []


def test_what_is_missing_is_told_with_each_way_and_why_it_failed(tmp_path: Path) -> None:
    fakes.tools(tmp_path / "bin", kubectl="Client Version: v1.32.4", kwok="")
    error = unavailable(offline(tmp_path / "bin"), tmp_path / "cache")
    place = tmp_path / "cache" / "bin" / Pins("1.35", Platform.here()).key
    assert str(error).splitlines() == [
        "The local cloud needs programs that could not be found, downloaded or built: kubectl, kwok.",
        f"  PATH: {tmp_path}/bin/kubectl is 1.32.4, must be within one minor version of 1.35 (kubectl)",
        "  PATH: not there (kwok)",
        "  KUBEBUILDER_ASSETS: not set",
        f"  cache: not in {place}",
        "  download: not tried, TRN_OFFLINE is set",
        "  build: go is not on PATH",
        str(error).splitlines()[-1],
    ]
    assert "https://go.dev/dl/" in str(error).splitlines()[-1]
    assert "dl.k8s.io" in str(error)


def test_reason_for_a_skipped_test_is_one_line(tmp_path: Path) -> None:
    summary = unavailable(offline(tmp_path), tmp_path / "cache").summary
    assert "\n" not in summary
    assert "7 of 7" in summary
    assert "go is not on PATH" in summary
    assert "python -m trainium_eks.local.toolchain" in summary


def test_another_minor_is_not_built_and_that_is_said(tmp_path: Path) -> None:
    fakes.go(tmp_path / "bin")
    error = unavailable(offline(tmp_path / "bin"), tmp_path / "cache", minor="1.36")
    assert "build: only Kubernetes 1.34 and 1.35 can be built, not 1.36" in str(error)
    assert "use Kubernetes 1.34 or 1.35, which can be built from source" in str(error)
    assert fakes.calls(tmp_path / "bin") == []


def test_no_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="banana"):
        provide("banana", progress=silent, environment=offline(tmp_path), cache=tmp_path)


@pytest.mark.parametrize(
    ("script", "words", "seconds"),
    [
        (
            "echo broken pipe dream >&2; exit 3",
            "failed when asked for its version (exit code 3): broken pipe dream",
            SECONDS,
        ),
        ("echo hello", "does not say its version: 'hello'", SECONDS),
        ("exec sleep 600", "did not say its version in 0.3 s", 0.3),
    ],
)
def test_tool_that_does_not_answer_is_passed_over_with_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: str, seconds: float
) -> None:
    monkeypatch.setattr(find, "_ASK_SECONDS", seconds)
    fakes.executable(tmp_path / "bin" / "helm", f"#!/bin/sh\nPATH=/bin:/usr/bin\n{script}\n")
    assert f"PATH: {tmp_path}/bin/helm {words} (helm)" in str(unavailable(offline(tmp_path / "bin"), tmp_path / "c"))


def test_tool_that_cannot_be_run_is_passed_over(tmp_path: Path) -> None:
    fakes.executable(tmp_path / "bin" / "helm", "#!/no/such/interpreter\n")
    error = unavailable(offline(tmp_path / "bin"), tmp_path / "cache")
    assert f"PATH: {tmp_path}/bin/helm cannot be run: No such file or directory" in str(error)


def test_program_is_asked_for_its_version_once_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    answers = iter(["3.14.0", "3.15.0"])

    def answer(tool: str, path: Path, environment: object) -> str:
        asked.append(tool)
        return next(answers)

    monkeypatch.setattr(find, "version", answer)
    program = fakes.executable(tmp_path / "helm", b"\x7fELF one")

    def ask() -> str:
        known = find.Answers(tmp_path / "versions.json")
        try:
            return known.version("helm", program, {})
        finally:
            known.save()

    assert [ask(), ask()] == ["3.14.0", "3.14.0"]
    assert asked == ["helm"]
    program.write_bytes(b"\x7fELF another")
    assert ask() == "3.15.0"


def test_script_is_asked_every_time_because_version_managers_answer_by_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = fakes.executable(tmp_path / "helm", "#!/bin/sh\nread version < ./version\necho $version\n")
    for version in ("3.14.0", "3.15.0"):
        script.with_name("version").write_text(f"{version}\n")
        known = find.Answers(tmp_path / "versions.json")
        assert known.version("helm", script, {}) == version
        known.save()


@pytest.mark.parametrize("content", ["{", "[]", '{"%s": "3.14.0"}', '{"%s": []}'])
def test_broken_file_of_answers_is_no_answer(tmp_path: Path, content: str) -> None:
    helm = fakes.executable(tmp_path / "helm", fakes.tool_text("v3.19.5"))
    file = tmp_path / "versions.json"
    file.write_text(content.replace("%s", str(helm)))
    assert find.Answers(file).version("helm", helm, {}) == "3.19.5"


def test_key_of_the_cache_changes_with_every_pin_and_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {Pins("1.35", LINUX).key, Pins("1.36", LINUX).key, Pins("1.35", Platform("linux", "arm64")).key}
    for pin in ("ETCD", "HELM", "KWOK"):
        monkeypatch.setattr(tools, pin, "9.9.9")
        keys.add(Pins("1.35", LINUX).key)
    assert len(keys) == 6


@pytest.mark.parametrize(
    ("module", "version"),
    [
        ("k8s.io/kubernetes", tools.KUBERNETES_RELEASES[tools.BUILDABLE_MINOR]),
        ("go.etcd.io/etcd/server/v3", tools.ETCD),
        ("helm.sh/helm/v3", tools.HELM),
        ("sigs.k8s.io/kwok", tools.KWOK),
    ],
)
def test_go_mod_pins_the_same_versions(module: str, version: str) -> None:
    assert re.findall(rf"^\t{re.escape(module)} v(\S+)", GO_MOD.read_text(), re.MULTILINE) == [version]


def test_the_stacks_own_kubernetes_can_be_built() -> None:
    assert versions.KUBERNETES == tools.BUILDABLE_MINOR
    assert tools.BUILDABLE_MINORS[-1] == tools.BUILDABLE_MINOR


@pytest.mark.parametrize("minor", tools.BUILDABLE_MINORS)
def test_a_minor_is_built_from_modules_of_its_own_release(minor: str) -> None:
    go_mod = (build.module_of(Pins(minor, LINUX)) / "go.mod").read_text()
    release = tools.KUBERNETES_RELEASES[minor]
    assert re.findall(r"^\tk8s\.io/kubernetes v(\S+)", go_mod, re.MULTILINE) == [release]
    replaced = set(re.findall(r"^\tk8s\.io/\S+ => k8s\.io/\S+ v(0\.\d\d\S+)", go_mod, re.MULTILINE))
    assert replaced == {f"0.{release.removeprefix('1.')}"}


PROGRAMS = [GO_MOD, *(GO_MOD.parent / each / "go.mod" for each in ("volcano", "karpenter", "training_operator"))]


def test_a_module_of_one_source_is_required_in_one_version_so_that_it_is_compiled_once() -> None:
    """Go's cache has the required version in its keys, also of a module that is replaced."""
    required: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for file in (*PROGRAMS, GO_MOD.parent / "prometheus" / "go.mod"):
        text = file.read_text()
        sources = dict(re.findall(r"^(?:\t|replace )(\S+) => \S+ (v\S+)$", text, re.MULTILINE))
        for module, version in re.findall(r"^(?:\t|require )(\S+) (v\S+)(?: // indirect)?$", text, re.MULTILINE):
            required[module, sources.get(module, version)].add(version)
    assert {module: versions for module, versions in required.items() if len(versions) > 1} == {}


@pytest.mark.parametrize("file", PROGRAMS[1:], ids=lambda file: file.parent.name)
def test_programs_are_built_with_the_libraries_of_kubernetes(file: Path) -> None:
    """Prometheus is not: it needs newer ones."""

    def chosen(go_mod: Path) -> dict[str, str]:
        text = go_mod.read_text()
        required = dict(re.findall(r"^\t(\S+) (v\S+)(?: // indirect)?$", text, re.MULTILINE))
        return required | dict(re.findall(r"^\t(\S+) => \S+ (v\S+)$", text, re.MULTILINE))

    ours, kubernetes = chosen(file), chosen(GO_MOD)
    both = set(ours) & set(kubernetes)
    assert len(both) > 40
    others = {"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc", "sigs.k8s.io/controller-runtime"}
    assert {module for module in both if ours[module] != kubernetes[module]} <= others


def test_progress_is_at_most_one_message_an_interval_and_none_that_matters_is_lost() -> None:
    said: list[str] = []
    throttle = Throttle(said.append, interval_seconds=60)
    for number in range(1000):
        throttle(f"{number} of 1000")
    throttle.now("done")
    assert said == ["done"]
    often = Throttle(said.append, interval_seconds=0)
    often("one")
    assert said == ["done", "one"]


def test_command_shows_what_there_is(tmp_path: Path) -> None:
    fakes.tools(tmp_path / "bin")
    done = _command(offline(tmp_path / "bin", TRN_CACHE=str(tmp_path / "cache")))
    assert done.returncode == 0
    header, *rows = [line.split() for line in done.stdout.splitlines()]
    assert header == ["NAME", "VERSION", "ORIGIN", "PATH"]
    assert ["kwok", "0.6.1", "PATH", str(tmp_path / "bin" / "kwok")] in rows
    assert len(rows) == len(TOOLS)


def test_command_fails_when_something_cannot_be_had(tmp_path: Path) -> None:
    done = _command(offline(tmp_path, TRN_CACHE=str(tmp_path / "cache")))
    assert done.returncode == 1
    assert "could not be found, downloaded or built: etcd" in done.stderr
    assert done.stdout == ""


def test_command_that_only_tries_leaves_the_word_to_others(tmp_path: Path) -> None:
    done = _command(offline(tmp_path, TRN_CACHE=str(tmp_path / "cache")), "--try")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    fakes.tools(tmp_path / "bin")
    done = _command(offline(tmp_path / "bin", TRN_CACHE=str(tmp_path / "cache")), "--try")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_command_refuses_what_is_no_minor_version(tmp_path: Path) -> None:
    done = _command(offline(tmp_path), "--kubernetes", "1.35.4")
    assert done.returncode == 2
    assert "'1.35.4' is not a minor version" in done.stderr


def _command(environment: dict[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "trainium_eks.local.toolchain", *arguments],
        cwd=Path(__file__).parents[4],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
