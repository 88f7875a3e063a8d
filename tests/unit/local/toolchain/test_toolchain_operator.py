"""Kubeflow's Training Operator: found or built, at the version that the stacks install."""

import re
from pathlib import Path

import pytest
import toolchain_fakes as fakes

from trainium_eks.local import toolchain
from trainium_eks.local.paths import Paths
from trainium_eks.local.releases import parts
from trainium_eks.local.releases.training_operator import TrainingOperator, _objects
from trainium_eks.local.toolchain import find, go_command, sources, tools
from trainium_eks.model.catalogue import versions
from trainium_eks.plan.graph import Graph

_PLAIN = "/tmp/k8s-webhook-server/serving-certs"
_CERT = f'package cert\n\nconst (\n{sources._CERTIFICATES_LINE}\tcaName = "ca"\n)\n'

# A Go whose module has what is changed, and whose program says what it was built from.
_GO = r"""#!/bin/sh
PATH=/usr/bin:/bin
here=$(dirname "$0")
case "$1" in
env) echo go1.26.1 ;;
mod)
    mkdir -p "$here/source/pkg/cert" "$here/source/cmd"
    if [ ! -e "$here/source/go.mod" ]; then
        cp "$here/cert.go" "$here/source/pkg/cert/"
        echo module x > "$here/source/go.mod"
    fi
    chmod -R a-w "$here/source"
    printf '{"Path": "%s", "Dir": "%s"}\n' "$4" "$here/source"
    ;;
list) echo example.org/main ;;
build)
    cp -r operator "$here/built"
    mkdir out
    printf '\nmod\tgithub.com/kubeflow/training-operator\tv1.9.3\t\n' > out/training-operator.v1
    chmod +x out/training-operator.v1
    ;;
esac
"""


def _provided(directory: Path, path: Path) -> toolchain.Binary:
    environment = {"PATH": str(path), "TRN_OFFLINE": "1"}
    return toolchain.provide_part(toolchain.OPERATOR, progress=lambda _: None, environment=environment, cache=directory)


def _go(directory: Path, cert: str = _CERT) -> Path:
    fakes.executable(directory / "go", _GO)
    (directory / "cert.go").write_text(cert)
    return directory


def test_it_is_the_version_that_the_stacks_install() -> None:
    assert f"v{tools.TRAINING_OPERATOR}" == versions.TRAINING_OPERATOR
    for name in ("go.mod", "sources.sum"):
        text = (go_command.OPERATOR_MODULE / name).read_text()
        assert set(re.findall(r"github\.com/kubeflow/training-operator v([\d.]+)", text)) == {tools.TRAINING_OPERATOR}


def test_it_is_built_to_read_certificates_of_its_own(tmp_path: Path) -> None:
    made = _provided(tmp_path / "cache", _go(tmp_path / "bin"))
    assert (made.origin, made.version) == ("build", "1.9.3")
    built = (tmp_path / "bin" / "built" / "pkg" / "cert" / "cert.go").read_text()
    assert _PLAIN not in built
    assert 'var certDir = os.TempDir() + "/k8s-webhook-server/serving-certs"' in built
    assert _provided(tmp_path / "cache", tmp_path).origin == "cache"


def test_another_source_is_not_changed_blindly(tmp_path: Path) -> None:
    with pytest.raises(toolchain.Unavailable, match="is not the file that was to be changed"):
        _provided(tmp_path / "cache", _go(tmp_path / "bin", "package cert\n"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("\nmod\tgithub.com/kubeflow/training-operator\tv1.8.1\t\n", "is 1.8.1, must be 1.9.3"),
        (f"\nmod\tgithub.com/kubeflow/training-operator\tv1.9.3\t\n{_PLAIN}", "which all stacks would share"),
        ("anything", "is not built from the module"),
    ],
)
def test_a_program_on_path_that_does_not_serve_is_passed_over(tmp_path: Path, content: str, words: str) -> None:
    fakes.executable(tmp_path / "bin" / "training-operator", content)
    there, reasons = toolchain.find_part(toolchain.OPERATOR, {"PATH": str(tmp_path / "bin")}, tmp_path / "cache")
    assert there is None
    assert words in " ".join(reasons)


def test_one_on_path_that_fits_is_taken(tmp_path: Path) -> None:
    content = "\nmod\tgithub.com/kubeflow/training-operator\tv1.9.3\th1:x\n"
    program = fakes.executable(tmp_path / "bin" / "training-operator", content)
    assert find.version("training-operator", program, {}) == "1.9.3"
    assert _provided(tmp_path / "cache", tmp_path / "bin").path == program


def test_it_can_be_left_out(tmp_path: Path) -> None:
    paths = Paths.of(tmp_path, "local")
    off = {"TRN_TRAINING_OPERATOR": "off", "PATH": ""}
    found = parts.provided(toolchain.OPERATOR, TrainingOperator.manifests, paths, lambda _: None, off)
    assert (found.program, found.missing) == (None, "TRN_TRAINING_OPERATOR is off")
    assert not TrainingOperator.is_wanted(Graph(project="p", stack="s", resources=(), outputs={}))


def test_what_is_missing_is_told_with_what_helps(tmp_path: Path) -> None:
    with pytest.raises(toolchain.Unavailable) as refused:
        _provided(tmp_path / "cache", tmp_path)
    assert "go is not on PATH" in str(refused.value)
    assert "leave v1 out of `gpuAddons.trainers`" in str(refused.value)


def test_its_webhook_is_asked_on_this_machine() -> None:
    def webhook(resource: str) -> dict[str, object]:
        service = {"name": "webhook-service", "namespace": "system", "path": f"/validate-{resource}"}
        return {"name": resource, "clientConfig": {"service": service}, "rules": [{"resources": [resource]}]}

    webhooks = {"apiVersion": "v1", "kind": "W", "webhooks": [webhook("tfjobs"), webhook("pytorchjobs")]}
    upstream = ({"kind": "CustomResourceDefinition"}, webhooks)
    *_, service, configuration = _objects(upstream, 31000)
    assert service["spec"] == {"type": "ExternalName", "externalName": "localhost"}
    [only] = configuration["webhooks"]
    asked = {"name": "training-operator", "namespace": "kubeflow", "path": "/validate-pytorchjobs", "port": 31000}
    assert only["clientConfig"] == {"service": asked}
