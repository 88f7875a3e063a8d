"""Karpenter with its kwok provider: found or built, at one version."""

import json
import re
import zipfile
from pathlib import Path

import pytest
import toolchain_fakes as fakes

from trainium_eks.local import toolchain
from trainium_eks.local.toolchain import find, go_command, sources, tools

_OPERATOR_GO = (
    f"package operator\n\nvar a = []string{{\n\t{sources._ADDRESS}, 1),\n\tHealthProbe{sources._ADDRESS}, 2),\n}}\n"
)
_PROGRAM = (
    "path\tsigs.k8s.io/karpenter/kwok\nmod\ttrainium-eks/karpenter\t(devel)\t\ndep\tsigs.k8s.io/karpenter\tv{}\t\n"
)

# A Go that is too old for the module: it has the archive, and does not unpack it.
_GO = r"""#!/bin/sh
PATH=/usr/bin:/bin
here=$(dirname "$0")
case "$1" in
env) echo go1.26.1 ;;
mod) cat "$here/answer.json"; exit 1 ;;
list) echo example.org/main ;;
build)
    cp -r karpenter "$here/built"
    mkdir out
    cp "$here/program" out/kwok
    chmod +x out/kwok
    ;;
esac
"""
_SUM = next(
    line.split()[2]
    for line in (go_command.KARPENTER_MODULE / "sources.sum").read_text().splitlines()
    if "/go.mod" not in line
)


def _provided(cache: Path, path: Path) -> toolchain.Binary:
    environment = {"PATH": str(path), "TRN_OFFLINE": "1"}
    return toolchain.provide_part(toolchain.SCALER, progress=lambda _: None, environment=environment, cache=cache)


def _go(directory: Path, *, text: str = _OPERATOR_GO, checksum: str = _SUM) -> Path:
    fakes.executable(directory / "go", _GO)
    (directory / "program").write_text("\n" + _PROGRAM.format("1.15.0"))
    with zipfile.ZipFile(directory / "module.zip", "w") as archive:
        for name, content in (("pkg/operator/operator.go", text), ("kwok/main.go", "package main"), ("go.mod", "go 9")):
            archive.writestr(f"sigs.k8s.io/karpenter@v1.15.0/{name}", content)
    answer = {"Zip": str(directory / "module.zip"), "Sum": checksum, "Error": "requires go >= 1.26.9 (running 1.26.1)"}
    (directory / "answer.json").write_text(json.dumps(answer))
    return directory


def test_its_module_is_the_pinned_version() -> None:
    for name in ("go.mod", "sources.sum"):
        text = (go_command.KARPENTER_MODULE / name).read_text()
        assert set(re.findall(r"sigs\.k8s\.io/karpenter v([\d.]+)", text)) == {tools.KARPENTER}


def test_it_is_built_by_a_go_that_does_not_unpack_it_and_listens_on_this_machine_alone(tmp_path: Path) -> None:
    made = _provided(tmp_path / "cache", _go(tmp_path / "bin"))
    assert (made.origin, made.version) == ("build", "1.15.0")
    built = tmp_path / "bin" / "built"
    text = (built / "pkg" / "operator" / "operator.go").read_text()
    assert text.count('BindAddress: fmt.Sprintf("127.0.0.1:%d"') == 2
    assert sources._ADDRESS not in text
    assert (built / "go.mod").read_text() == "module sigs.k8s.io/karpenter\n\ngo 1.26.0\n"
    assert _provided(tmp_path / "cache", tmp_path).origin == "cache"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"checksum": "h1:another"}, "this Go is too old"),
        ({"text": "package operator"}, "is not the file that was to be changed"),
    ],
)
def test_another_source_is_not_taken(tmp_path: Path, changes: dict[str, str], words: str) -> None:
    with pytest.raises(toolchain.Unavailable, match=words):
        _provided(tmp_path / "cache", _go(tmp_path / "bin", **changes))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (_PROGRAM.format("1.14.0"), "is 1.14.0, must be 1.15.0"),
        (_PROGRAM.format("1.15.0").partition("\n")[2], "makes nodes of another cloud"),
        ("anything", "is not built from a release of the module"),
    ],
)
def test_a_program_on_path_that_does_not_serve_is_passed_over(tmp_path: Path, content: str, words: str) -> None:
    fakes.executable(tmp_path / "bin" / "karpenter", f"\n{content}")
    there, reasons = toolchain.find_part(toolchain.SCALER, {"PATH": str(tmp_path / "bin")}, tmp_path / "cache")
    assert there is None
    assert words in " ".join(reasons)


def test_one_on_path_that_fits_is_taken(tmp_path: Path) -> None:
    program = fakes.executable(tmp_path / "bin" / "karpenter", "\n" + _PROGRAM.format("1.15.0"))
    assert find.version("karpenter", program, {}) == "1.15.0"
    assert _provided(tmp_path / "cache", tmp_path / "bin").path == program


def test_it_can_be_left_out(tmp_path: Path) -> None:
    with pytest.raises(toolchain.Unavailable, match="TRN_KARPENTER is off"):
        toolchain.provide_part(
            toolchain.SCALER, progress=lambda _: None, environment={"TRN_KARPENTER": "off"}, cache=tmp_path
        )
