"""Building what is missing: once, whole, and with words for each way it can fail."""

import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import toolchain_fakes as fakes
from waiting import SECONDS, until

from trainium_eks.local.toolchain import TOOLS, Binary, Pins, Platform, Unavailable, build, go_command, provide, store
from trainium_eks.local.toolchain.throttle import Throttle
from trainium_eks.local.toolchain.tools import CONTROL_PLANE, KUBERNETES_RELEASES

KEY = Pins("1.35", Platform.here()).key


def offline(path: Path, **more: str) -> dict[str, str]:
    return {"PATH": str(path), "TRN_OFFLINE": "1", **more}


def failure(path: Path, cache: Path, **more: str) -> str:
    with pytest.raises(Unavailable) as caught:
        provide("1.35", progress=lambda _: None, environment=offline(path, **more), cache=cache)
    return str(caught.value)


def scratch_of(cache: Path) -> list[Path]:
    return [path for path in (cache / "bin").iterdir() if path.name.startswith(store.SCRATCH)]


def test_what_is_missing_is_built_once_and_then_comes_from_the_cache(tmp_path: Path) -> None:
    fakes.go(tmp_path / "bin")
    for origin in ("build", "cache"):
        there = provide(
            "1.35", progress=lambda _: None, environment=offline(tmp_path / "bin"), cache=tmp_path / "cache"
        )
        assert tuple(there) == TOOLS
        assert {binary.origin for binary in there.values()} == {origin}
    assert fakes.calls(tmp_path / "bin") == ["env", "list", "build"]
    assert there["etcd"].path == tmp_path / "cache" / "bin" / KEY / "etcd"
    assert scratch_of(tmp_path / "cache") == []


def test_two_minors_have_a_control_plane_each_and_the_rest_together(tmp_path: Path) -> None:
    fakes.go(tmp_path / "bin")

    def provided(minor: str) -> Mapping[str, Binary]:
        environment = offline(tmp_path / "bin")
        return provide(minor, progress=lambda _: None, environment=environment, cache=tmp_path / "cache")

    newer, older = provided("1.35"), provided("1.34")
    assert {tool for tool in TOOLS if newer[tool].path != older[tool].path} == set(CONTROL_PLANE)
    assert {older[tool].version for tool in CONTROL_PLANE} == {KUBERNETES_RELEASES["1.34"]}
    assert {older[tool].origin for tool in CONTROL_PLANE} == {"build"}
    line = (tmp_path / "bin" / "go.calls").read_text().splitlines()[-1]
    assert "-X k8s.io/component-base/version.gitVersion=v1.34." in line
    assert line.endswith(" ".join(build.PACKAGES[tool] for tool in CONTROL_PLANE))
    assert {binary.origin for binary in provided("1.34").values()} == {"cache"}


def test_only_what_is_missing_is_built(tmp_path: Path) -> None:
    fakes.tools(tmp_path / "bin", kwok="", etcd="")
    fakes.go(tmp_path / "bin")
    there = provide("1.35", progress=lambda _: None, environment=offline(tmp_path / "bin"), cache=tmp_path / "cache")
    assert {name for name, binary in there.items() if binary.origin == "build"} == {"kwok", "etcd"}
    [line] = [line for line in (tmp_path / "bin" / "go.calls").read_text().splitlines() if line.startswith("build")]
    assert line.endswith(" go.etcd.io/etcd/server/v3 sigs.k8s.io/kwok/cmd/kwok")


def test_go_is_told_to_trust_go_sum_only_and_to_say_the_right_versions(tmp_path: Path) -> None:
    fakes.go(tmp_path / "bin")
    environment = offline(tmp_path / "bin", GOFLAGS="-p=1", GOOS="plan9", GOWORK="/somewhere/go.work")
    provide("1.35", progress=lambda _: None, environment=environment, cache=tmp_path / "cache")
    line = (tmp_path / "bin" / "go.calls").read_text().splitlines()[-1]
    for flag in (
        "-mod=readonly",
        "-trimpath",
        "-buildvcs=false",
        "-gcflags=all=-dwarf=false",
        "-X k8s.io/component-base/version.gitVersion=v1.35.4",
        "-X k8s.io/component-base/version.gitMinor=35",
        "-X helm.sh/helm/v3/internal/version.version=v3.19.5",
    ):
        assert f" {flag} " in line
    told = dict(line.partition("=")[::2] for line in (tmp_path / "bin" / "go.environment").read_text().splitlines())
    assert told["CGO_ENABLED"] == "0"
    assert told["GOTOOLCHAIN"] == "auto"
    assert told["GOPROXY"] == "off"
    assert told["GOFLAGS"] == "-p=1"
    assert told["GOWORK"] == "off"
    assert "GOOS" not in told
    package = Path(build.__file__).parent
    for name in ("go.mod", "go.sum"):
        assert (tmp_path / "bin" / name).read_bytes() == (package / name).read_bytes()


def test_users_toolchain_and_proxy_are_left_alone() -> None:
    ours = go_command.go_environment({"GOTOOLCHAIN": "local", "GOPROXY": "https://proxy.example"}, offline=False)
    assert ours["GOTOOLCHAIN"] == "local"
    assert ours["GOPROXY"] == "https://proxy.example"


def test_progress_is_in_phases_and_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "Throttle", lambda progress: Throttle(progress, interval_seconds=0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    fakes.tools(tmp_path / "bin", kwok="")
    fakes.go(tmp_path / "bin")
    said: list[str] = []
    provide("1.35", progress=said.append, environment=offline(tmp_path / "bin"), cache=tmp_path / "cache")
    assert said[0].startswith("building kwok from source with go1.25.1: about 7 minutes on 2 cores, once")
    assert said[3].startswith("building: 3 of at most 2")
    assert said[3].endswith(" modules downloaded")
    assert "building: has the sources, compiling at most 4 packages" in said
    assert said[-1] == "building: 1 of at most 4 packages compiled"


@pytest.mark.parametrize(
    ("commands", "words"),
    [
        ("echo 'main.go:1:2: undefined: x'; exit 1", "go build failed (exit code 1)\n    main.go:1:2: undefined: x"),
        ("echo 'write /c: no space left on device'; exit 1", "the disk is full"),
        ("echo 'compile: signal: killed'; exit 1", "GOFLAGS=-p=1"),
        ("echo 'x: Get \"https://p\": dial tcp: lookup p: no such host'; exit 1", "module proxy cannot be reached"),
        ("echo 'go: go.mod requires go >= 1.25.0 (running go 1.22)'; exit 1", "this Go is too old"),
        ("echo 'go: verifying m: checksum mismatch'; exit 1", "do not use that proxy"),
        ("kill -9 $$", "go build was killed by signal 9"),
        ("exit 0", "go build succeeded but made no etcd, kube-apiserver"),
    ],
)
def test_failing_build_is_told_in_its_own_words(tmp_path: Path, commands: str, words: str) -> None:
    fakes.go(tmp_path / "bin", build=commands)
    assert words in failure(tmp_path / "bin", tmp_path / "cache")
    assert scratch_of(tmp_path / "cache") == []
    assert not (tmp_path / "cache" / "bin" / KEY).exists()


def test_go_that_cannot_fetch_a_newer_one_is_too_old(tmp_path: Path) -> None:
    fakes.go(tmp_path / "bin")
    message = failure(tmp_path / "bin", tmp_path / "cache", FAKE_GO_VERSION="go1.19.8")
    assert f"build: {tmp_path}/bin/go is go1.19.8; 1.21 or newer is needed" in message
    assert fakes.calls(tmp_path / "bin") == ["env"]


def test_built_tool_with_another_version_is_not_kept(tmp_path: Path) -> None:
    script = fakes.go(tmp_path / "bin")
    script.write_text(script.read_text().replace("v0.6.1", "v0.6.0"))
    assert "  build: got kwok 0.6.0 instead of 0.6.1\n" in failure(tmp_path / "bin", tmp_path / "cache")
    assert not (tmp_path / "cache" / "bin" / KEY / "kwok").exists()
    assert (tmp_path / "cache" / "bin" / KEY / "helm").exists()


def test_two_that_need_the_tools_at_once_build_once_and_the_second_says_that_it_waits(tmp_path: Path) -> None:
    # The build goes on until the second has said that it waits.
    told = tmp_path / "told"
    fakes.go(tmp_path / "bin", build=f"for n in $(seq 6000); do [ -e {told} ] && break; sleep 0.1; done")
    building = threading.Event()
    waiting: list[str] = []
    origins: list[str] = []

    def need(progress: Callable[[str], None]) -> None:
        there = provide("1.35", progress=progress, environment=offline(tmp_path / "bin"), cache=tmp_path / "cache")
        origins.append(there["kwok"].origin)

    def second(line: str) -> None:
        if line.startswith("waiting for process"):
            waiting.append(line)
            told.touch()

    threads = [threading.Thread(target=need, args=(progress,)) for progress in (lambda _: building.set(), second)]
    threads[0].start()
    assert building.wait(SECONDS)
    threads[1].start()
    for thread in threads:
        thread.join()
    assert origins == ["build", "cache"]
    assert fakes.calls(tmp_path / "bin").count("build") == 1
    assert waiting == [
        f"waiting for process {os.getpid()}, which is providing binaries in {tmp_path / 'cache' / 'bin'}"
    ]


def test_build_that_was_killed_is_done_again_and_leaves_nothing_behind(tmp_path: Path) -> None:
    bin_, cache = tmp_path / "bin", tmp_path / "cache"
    # Like go, it prints what it does, and stops when nobody reads it.
    fakes.go(bin_, build='echo $$ > "$here/go.pid"; mkdir out; echo half > out/kwok; while echo p; do sleep 0.05; done')
    child = subprocess.Popen(
        [sys.executable, "-m", "trainium_eks.local.toolchain"],
        cwd=Path(__file__).parents[4],
        env=offline(bin_, TRN_CACHE=str(cache)),
        stderr=subprocess.DEVNULL,
    )
    until(lambda: (bin_ / "go.pid").exists() and (bin_ / "go.pid").read_text().strip() != "")
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert len(scratch_of(cache)) == 1
    go = int((bin_ / "go.pid").read_text())
    until(lambda: not _runs(go))
    fakes.go(bin_)
    there = provide("1.35", progress=lambda _: None, environment=offline(bin_), cache=cache)
    assert there["kwok"].origin == "build"
    assert there["kwok"].path.read_text() != "half\n"
    assert scratch_of(cache) == []


def test_interrupt_ends_go(tmp_path: Path) -> None:
    bin_, cache = tmp_path / "bin", tmp_path / "cache"
    # Not all that it prints becomes progress.
    fakes.go(
        bin_, build='echo $$ > "$here/go.pid"; for n in $(seq 6000); do echo p; sleep 0.1; done; : > "$here/built"'
    )

    def interrupt(message: str) -> None:
        if (bin_ / "go.pid").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        provide("1.35", progress=interrupt, environment=offline(bin_), cache=cache)
    assert not (bin_ / "built").exists()
    assert not _runs(int((bin_ / "go.pid").read_text()))
    assert scratch_of(cache) == []


def test_cache_that_cannot_be_written_is_told_and_nothing_is_built(tmp_path: Path) -> None:
    fakes.go(tmp_path / "bin")
    (tmp_path / "file").write_text("")
    message = failure(tmp_path / "bin", tmp_path / "file" / "cache")
    assert f"cache: {tmp_path}/file/cache/bin cannot be written: Not a directory; TRN_CACHE names another" in message
    assert fakes.calls(tmp_path / "bin") == []


def test_disk_that_fills_up_while_a_tool_is_kept_is_told(tmp_path: Path) -> None:
    fakes.go(tmp_path / "bin", build='mkdir -p "$here/../cache/bin"; : > "$here/../cache/bin/KEY"'.replace("KEY", KEY))
    message = failure(tmp_path / "bin", tmp_path / "cache")
    assert f"cache: {tmp_path}/cache/bin/{KEY} cannot be written: File exists" in message


def test_file_size_limit_stands_for_a_full_disk(tmp_path: Path) -> None:
    fakes.go(tmp_path / "bin")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))  # go.sum is larger
    try:
        message = failure(tmp_path / "bin", tmp_path / "cache")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "cannot be written: File too large; TRN_CACHE names another directory" in message


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    shown = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return shown.strip() != "" and "Z" not in shown
