"""``trn verify``: find the stack's outputs and its cluster, look, judge, show; again until it is well, if asked."""

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainium_eks.checks.check import CheckStatus
from trainium_eks.checks.cluster import Refused
from trainium_eks.checks.local_report import LocalReport, ReportError
from trainium_eks.checks.verify import Verification
from trainium_eks.cli import recording
from trainium_eks.cli.cluster_access import check_commands, kubeconfig_file
from trainium_eks.cli.failure import FAILED, WRONG_USAGE, Failure, complain
from trainium_eks.local.changes import LocalError
from trainium_eks.local.paths import Paths
from trainium_eks.model.outputs import StackOutputs
from trainium_eks.model.shape import ShapeError

PAUSE_SECONDS = 5
"""Between two looks."""


@dataclass(frozen=True)
class VerifyOptions:
    """The options of one call."""

    stack: str
    outputs: Path | None = None
    """The stack's outputs in a file, as ``pulumi stack output --json --show-secrets`` prints them."""
    kubeconfig: Path | None = None
    """Instead of the one in the outputs."""
    as_json: bool = False
    no_color: bool = False
    directory: Path | None = None
    timeout_seconds: float = 0
    """With ``wait``: how long at most."""
    wait: bool = False
    """Look again until nothing fails."""


@dataclass(frozen=True)
class _Source:
    """What is verified against what."""

    stack: str
    """Empty when only the outputs are known."""
    outputs: StackOutputs
    local: LocalReport | None
    kubeconfig: Path | None
    """None for the one in the outputs."""


Look = Callable[[], Verification]
"""Reads the cluster and judges it.

Raises:
    Refused: when the API server cannot be asked.
"""


def run(asked: VerifyOptions) -> int:
    """Shows what is as the stack says and what is not; the exit code: 0, 1 when something failed, 2 for wrong usage."""
    try:
        source = _find(asked)
        with _kubeconfig(source) as kubeconfig:
            found = _until_well(asked, _looks(source, kubeconfig))
    except Failure as failure:
        if asked.as_json:
            sys.stdout.write(json.dumps(failure.to_json(), indent=2, ensure_ascii=False) + "\n")
            return failure.code
        return complain(failure)
    if asked.as_json:
        sys.stdout.write(json.dumps(found.to_json(), indent=2, ensure_ascii=False) + "\n")
    else:
        from trainium_eks.cli import render_verify

        render_verify.show(found, no_color=asked.no_color)
    return FAILED if found.failed else 0


def _find(asked: VerifyOptions) -> _Source:
    """The outputs: of the file given, of the local cloud where the stack has one, else of the deployed stack."""
    if asked.kubeconfig is not None and not asked.kubeconfig.is_file():
        raise Failure(WRONG_USAGE, f"there is no kubeconfig {asked.kubeconfig}")
    if asked.outputs is not None:
        # A local cloud keeps its report beside its outputs.
        paths = Paths(asked.outputs.resolve().parent)
        if asked.outputs.name == paths.outputs.name and paths.report.is_file():
            return _local("", paths, asked.kubeconfig)
        return _Source("", _read(asked.outputs), None, asked.kubeconfig)
    project = recording.find_project(asked.directory)
    paths = Paths.of(project, asked.stack)
    if paths.outputs.is_file():
        return _local(asked.stack, paths, asked.kubeconfig)
    recording.check_stack(project, asked.stack)
    return _Source(asked.stack, _deployed(project, asked.stack), None, asked.kubeconfig)


def _local(stack: str, paths: Paths, kubeconfig: Path | None) -> _Source:
    try:
        report = LocalReport.load(paths.report, _running(paths))
    except ReportError as error:
        raise Failure(WRONG_USAGE, f"{error}; `trn local up` writes it again") from None
    return _Source(stack, _read(paths.outputs), report, kubeconfig or paths.kubeconfig)


def _running(paths: Paths) -> set[str]:
    from trainium_eks.local.control_plane import processes

    return {each.name for each in processes.running(paths)}


def _read(file: Path) -> StackOutputs:
    try:
        return StackOutputs.load(file)
    except OSError as error:
        raise Failure(WRONG_USAGE, f"cannot read {file}: {error.strerror}") from None
    except ShapeError as error:
        raise Failure(WRONG_USAGE, f"{file} does not hold a stack's outputs", error.problems) from None
    except ValueError as error:
        raise Failure(WRONG_USAGE, f"{file} is not JSON: {error}") from None


def _deployed(project: Path, stack: str) -> StackOutputs:
    """What Pulumi says of a stack."""
    if shutil.which("pulumi") is None:
        raise Failure(
            WRONG_USAGE,
            f"stack {stack} has no local cloud here, and pulumi, which knows the deployed stack, is not on PATH.\n"
            f"  Local: trn local up --stack {stack}\n"
            "  On AWS: install https://www.pulumi.com/docs/install/, or give the outputs with --outputs FILE",
        )
    try:
        return StackOutputs.load(stack, directory=project)
    except RuntimeError as error:
        raise Failure(WRONG_USAGE, f"the outputs of the stack {stack} cannot be read: {error}") from None
    except ShapeError as error:
        # The first `up` of a stack writes its outputs at the end.
        title = f"the stack {stack} has no usable outputs; has its `up` finished?"
        raise Failure(WRONG_USAGE, title, error.problems) from None
    except ValueError as error:
        raise Failure(WRONG_USAGE, f"pulumi did not answer with JSON: {error}") from None


@contextmanager
def _kubeconfig(source: _Source) -> Iterator[Path]:
    """The kubeconfig as a file. That of the outputs is there, for its owner alone, only while it is used."""
    if source.kubeconfig is not None:
        check_commands(source.kubeconfig.read_text(encoding="utf-8") if source.kubeconfig.is_file() else "")
        yield source.kubeconfig
        return
    with kubeconfig_file(source.outputs.kubeconfig) as file:
        yield file


def _looks(source: _Source, kubeconfig: Path) -> Look:
    """How this cluster is looked at."""
    from trainium_eks.checks import cluster, verify
    from trainium_eks.checks.examined import Examined

    try:
        from trainium_eks.checks.api_reader import ApiReader
        from trainium_eks.local.objects.api import Api
    except ModuleNotFoundError as error:
        title = f"the Python package {error.name} is missing; `make local` installs it"
        raise Failure(WRONG_USAGE, title) from None
    try:
        api = Api.connect(kubeconfig)
    except LocalError as error:
        raise Failure(WRONG_USAGE, str(error)) from None

    def look() -> Verification:
        found = cluster.read(ApiReader(api))
        checks = verify.verify(Examined(source.outputs, found, source.local))
        return Verification(source.stack, source.outputs.cluster_name, api.server, source.local, checks)

    return look


def _until_well(asked: VerifyOptions, look: Look) -> Verification:
    """The first look, or with ``wait`` the first at which nothing fails, or the last.

    Raises:
        Failure: when the API server could not be asked, at the last look.
    """
    deadline = time.monotonic() + (asked.timeout_seconds if asked.wait else 0)
    with _progress(asked) as say:
        while True:
            try:
                found = look()
                if not found.failed:
                    return found
                trouble = (
                    f"failing: {', '.join(check.id for check in found.checks if check.status is CheckStatus.FAIL)}"
                )
                left = deadline - time.monotonic()
                if left <= 0:
                    return found
            except Refused as error:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise Failure(FAILED, str(error)) from None
                trouble = "the API server does not answer"
            say(f"{trouble}; looking again for {left:.0f} s")
            time.sleep(min(PAUSE_SECONDS, left))


@contextmanager
def _progress(asked: VerifyOptions) -> Iterator[Callable[[str], None]]:
    """A spinner on stderr where a person looks at it; lines in a log while it waits."""
    if not sys.stderr.isatty():
        yield lambda message: print(message, file=sys.stderr, flush=True)  # noqa: T201
        return
    from rich.console import Console

    with Console(stderr=True, no_color=asked.no_color or None).status("Reading the cluster") as status:
        yield status.update
