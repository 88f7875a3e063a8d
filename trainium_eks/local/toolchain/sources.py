"""Sources that go.mod files expect beside them, because they are changed or completed before they are built."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from trainium_eks.local.toolchain import go_command, store
from trainium_eks.local.toolchain.tools import TRAINING_OPERATOR, VOLCANO, Bundle

_CERTIFICATES_FILE = "pkg/cert/cert.go"
_CERTIFICATES_LINE = '\tcertDir                  = "/tmp/k8s-webhook-server/serving-certs"\n'
_CERTIFICATES_VARIABLE = """
var certDir = os.TempDir() + "/k8s-webhook-server/serving-certs"
"""

_VOLCANO_APIS = "1.14.0"
_ADDED_FILE = "pkg/apis/scheduling/v1beta1/added_for_volcano_1_15.go"
_ADDED = """package v1beta1

// QueueAllocationGateKey names the annotation, and the scheduling gate, that lets a queue admit a pod later.
const QueueAllocationGateKey = GroupName + "/queue-allocation-gate"
"""

Completion = Callable[[Path, Path, Mapping[str, str]], None]
"""A function that writes sources into a directory, given the scratch directory and the user's variables.

It raises :class:`.GoError` when Go cannot get the module or its file is not the expected one.
"""


def source(bundle: Bundle, scratch: Path, environment: Mapping[str, str], module: str = "", version: str = "") -> Path:
    """Return the directory with the source of a bundle, or of another module; see :func:`.go_command.source`."""
    assert bundle.module is not None
    module, version = module or bundle.source, version or bundle.tools[0].version
    return go_command.source(module, version, bundle.module, scratch, environment)


def _complete_volcano_apis(module: Path, scratch: Path, environment: Mapping[str, str]) -> None:
    """Write the definitions of Volcano's objects.

    Volcano builds with the definitions beside its code, which no module proxy has. The last version published as a
    separate module differs, in the parts that the programs use, by one name: see
    docs/decisions/0034-volcano-binaries.md.
    """
    found = source(VOLCANO, scratch, environment, "volcano.sh/apis", _VOLCANO_APIS)
    with store.writing(scratch):
        _copy(found, module / "apis")
        (module / "apis" / _ADDED_FILE).write_text(_ADDED)


def _complete_operator(module: Path, scratch: Path, environment: Mapping[str, str]) -> None:
    """Write the Training Operator's source, with one line changed.

    It waits for certificates in a directory of ``/tmp`` and ignores ``TMPDIR``, while the webhook server beside it
    obeys that. So all stacks of a machine would share one: see docs/decisions/0047-kubeflow-objects.md.
    """
    found, place = source(TRAINING_OPERATOR, scratch, environment), module / "operator"
    with store.writing(scratch):
        for part in ("cmd", "pkg"):
            _copy(found / part, place / part)
        shutil.copyfile(found / "go.mod", place / "go.mod")
        text = _without(found / _CERTIFICATES_FILE, _CERTIFICATES_LINE)
        (place / _CERTIFICATES_FILE).write_text(text + _CERTIFICATES_VARIABLE, encoding="utf-8")


COMPLETIONS: Mapping[str, Completion] = {
    VOLCANO.name: _complete_volcano_apis,
    TRAINING_OPERATOR.name: _complete_operator,
}
"""By the bundle's directory: what its go.mod expects beside it."""


def _without(file: Path, line: str) -> str:
    """Return the text of a module's file without a line, which the pinned release has once."""
    text = file.read_text(encoding="utf-8")
    if text.count(line) != 1:
        raise go_command.GoError(f"{file} is not the file that was to be changed")
    return text.replace(line, "")


def _copy(source: Path, place: Path) -> None:
    """Copy a directory of a module. Files of Go's cache are read-only; the copies can be changed and added to."""
    shutil.copytree(source, place, copy_function=shutil.copyfile)
    for directory in (place, *(path for path in place.rglob("*") if path.is_dir())):
        directory.chmod(0o755)
