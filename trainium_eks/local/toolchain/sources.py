"""Sources that go.mod files expect beside them, because they are changed or completed before they are built."""

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from trainium_eks.local.toolchain import go_command, store
from trainium_eks.local.toolchain.tools import KARPENTER, TRAINING_OPERATOR

_OPERATOR = "github.com/kubeflow/training-operator"
_KARPENTER = "sigs.k8s.io/karpenter"
_KARPENTER_GO = "1.26.0"
_ADDRESSES_FILE = "pkg/operator/operator.go"
_ADDRESS, _LOOPBACK_ADDRESS = 'BindAddress: fmt.Sprintf(":%d"', 'BindAddress: fmt.Sprintf("127.0.0.1:%d"'

_CERTIFICATES_FILE = "pkg/cert/cert.go"
_CERTIFICATES_LINE = '\tcertDir                  = "/tmp/k8s-webhook-server/serving-certs"\n'
_CERTIFICATES_VARIABLE = """
var certDir = os.TempDir() + "/k8s-webhook-server/serving-certs"
"""

VOLCANO_APIS = "1.14.0"
_ADDED_FILE = "pkg/apis/scheduling/v1beta1/added_for_volcano_1_15.go"
_ADDED = """package v1beta1

// QueueAllocationGateKey names the annotation, and the scheduling gate, that lets a queue admit a pod later.
const QueueAllocationGateKey = GroupName + "/queue-allocation-gate"
"""


def complete_volcano_apis(place: Path, scratch: Path, environment: Mapping[str, str]) -> None:
    """Write the definitions of Volcano's objects where its go.mod expects them.

    Volcano builds with the definitions beside its code, which no module proxy has. The last version published as a
    separate module differs, in the parts that the programs use, by one name: see
    docs/decisions/0034-volcano-for-everyone.md.

    Args:
        place: a directory that is made.
        scratch: an existing directory.
        environment: from :func:`~trainium_eks.local.toolchain.go_command.go_environment`.

    Raises:
        go_command.GoFailed: Go cannot get the module.
        store.Unwritable: the directories cannot be written.
    """
    source = go_command.source("volcano.sh/apis", f"v{VOLCANO_APIS}", scratch, environment)
    with _writing(scratch):
        _copy(source, place)
        (place / _ADDED_FILE).write_text(_ADDED)


def complete_operator(place: Path, scratch: Path, environment: Mapping[str, str]) -> None:
    """Write the Training Operator's source where its go.mod expects it, with one line changed.

    It waits for certificates in a directory of ``/tmp`` and ignores ``TMPDIR``, while the webhook server beside it
    obeys that. So all stacks of a machine would share one: see docs/decisions/0047-kubeflow-objects.md.

    Args:
        place: a directory that is made.
        scratch: an existing directory.
        environment: from :func:`~trainium_eks.local.toolchain.go_command.go_environment`.

    Raises:
        go_command.GoFailed: Go cannot get the module, or its file is not the expected one.
        store.Unwritable: the directories cannot be written.
    """
    source = operator_source(scratch, environment)
    with _writing(scratch):
        for part in ("cmd", "pkg"):
            _copy(source / part, place / part)
        shutil.copyfile(source / "go.mod", place / "go.mod")
        text = _replaced(source / _CERTIFICATES_FILE, _CERTIFICATES_LINE, "", times=1)
        (place / _CERTIFICATES_FILE).write_text(text + _CERTIFICATES_VARIABLE, encoding="utf-8")


def complete_karpenter(place: Path, scratch: Path, environment: Mapping[str, str]) -> None:
    """Write Karpenter's source where its go.mod expects it, with two addresses and the version of Go changed.

    It serves its metrics and its health to the whole network, and requires the newest Go without using its new
    features: see docs/decisions/0064-karpenter-on-the-local-cloud.md.

    Args:
        place: a directory that is made.
        scratch: an existing directory.
        environment: from :func:`~trainium_eks.local.toolchain.go_command.go_environment`.

    Raises:
        go_command.GoFailed: Go cannot get the module, or its file is not the expected one.
        store.Unwritable: the directories cannot be written.
    """
    source = karpenter_source(scratch, environment)
    with _writing(scratch):
        for part in ("kwok", "pkg"):
            _copy(source / part, place / part)
        (place / "go.mod").write_text(f"module {_KARPENTER}\n\ngo {_KARPENTER_GO}\n", encoding="utf-8")
        text = _replaced(source / _ADDRESSES_FILE, _ADDRESS, _LOOPBACK_ADDRESS, times=2)
        (place / _ADDRESSES_FILE).write_text(text, encoding="utf-8")


@contextlib.contextmanager
def _writing(scratch: Path) -> Iterator[None]:
    """Raise store.Unwritable in place of an OSError, such as for a full disk."""
    try:
        yield
    except OSError as error:
        raise store.unwritable(scratch, error) from error


def _replaced(file: Path, old: str, new: str, *, times: int) -> str:
    """Return the text of a module's file with each ``old`` replaced; the pinned release has it ``times`` times."""
    text = file.read_text(encoding="utf-8")
    if text.count(old) != times:
        raise go_command.GoFailed(f"{file} is not the file that was to be changed")
    return text.replace(old, new)


def _copy(source: Path, place: Path) -> None:
    """Copy a directory of a module. Files of Go's cache are read-only; the copies can be changed and added to."""
    shutil.copytree(source, place, copy_function=shutil.copyfile)
    for directory in (place, *(path for path in place.rglob("*") if path.is_dir())):
        directory.chmod(0o755)


def karpenter_source(scratch: Path, environment: Mapping[str, str]) -> Path:
    """Return the directory with Karpenter's source, definitions included; see :func:`.go_command.source`."""
    return go_command.source(_KARPENTER, f"v{KARPENTER}", scratch, environment, go_command.KARPENTER_MODULE)


def operator_source(scratch: Path, environment: Mapping[str, str]) -> Path:
    """Return the directory with the Training Operator's source, manifests included; see :func:`.go_command.source`."""
    version = f"v{TRAINING_OPERATOR}"
    return go_command.source(_OPERATOR, version, scratch, environment, go_command.OPERATOR_MODULE)
