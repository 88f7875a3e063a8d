"""Outputs and cluster of a stack: from the local cloud, from a file, or from the deployed stack.

Every command uses the kubeconfig of ``--kubeconfig``; without it, the kubeconfig of the variable ``KUBECONFIG`` where
that leads to the stack's cluster; without both, the stack's own kubeconfig (docs/watching.md, "Rights").
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainium_eks.client import kubeconfig_variable
from trainium_eks.client.failure import CommandError, UsageError
from trainium_eks.client.notices import notice
from trainium_eks.client.project import find_project
from trainium_eks.client.stack_check import check_stack
from trainium_eks.diagnose.local_report import LocalReport, ReportError
from trainium_eks.kube.api import Api
from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.paths import Paths
from trainium_eks.model.outputs import StackOutputs
from trainium_eks.model.validation.config_model import ConfigModelError
from trainium_eks.model.validation.parsing import parse_yaml


@dataclass(frozen=True)
class StackAccess:
    """Outputs of a stack and the way to its cluster."""

    stack: str
    """Empty when only the outputs are known."""
    outputs: StackOutputs
    local: LocalReport | None = None
    """Report of the local cloud; None for a stack on AWS."""
    paths: Paths | None = None
    """Files of the local cloud; None for a stack on AWS."""
    kubeconfig: Path | None = None
    """The file that the option or the variable names; None for the stack's own."""
    merged: str = ""
    """Merged kubeconfig where the variable names several files."""

    @property
    def has_own_kubeconfig(self) -> bool:
        """Whether neither the option nor the variable names another kubeconfig."""
        return self.kubeconfig is None and not self.merged


def find_source(stack: str, outputs: Path | None, kubeconfig: Path | None, directory: Path | None) -> StackAccess:
    """Return the outputs of the given file, as ``pulumi stack output --json --show-secrets`` prints it, of the local
    cloud where the stack has one, or of the deployed stack."""
    if kubeconfig is not None and not kubeconfig.is_file():
        raise UsageError(f"there is no kubeconfig {kubeconfig}")
    found = find_stack(stack, outputs, directory)
    if kubeconfig is not None:
        return replace(found, kubeconfig=kubeconfig)
    return _with_variable(found)


def find_stack(stack: str, outputs: Path | None, directory: Path | None) -> StackAccess:
    """Return the outputs as :func:`find_source` does, without ``--kubeconfig`` and ``KUBECONFIG``."""
    if outputs is not None:
        # A local cloud keeps its report beside its outputs.
        paths = Paths(outputs.resolve().parent)
        if outputs.name == paths.outputs.name and paths.report.is_file():
            return _local("", paths)
        return StackAccess("", _read(outputs))
    project = find_project(directory)
    paths = Paths.of(project, stack)
    if paths.outputs.is_file():
        return _local(stack, paths)
    check_stack(project, stack)
    return StackAccess(stack, _deployed(project, stack))


def _with_variable(source: StackAccess) -> StackAccess:
    """Return the source with the kubeconfig of the variable; the same source where that leads to another cluster."""
    files = kubeconfig_variable.list_files()
    if not files:
        return source
    text = kubeconfig_variable.merge_files(files)
    own = source.paths.kubeconfig if source.paths is not None else None
    stacks = source.outputs.kubeconfig if own is None else own.read_text(encoding="utf-8") if own.is_file() else ""
    elsewhere = kubeconfig_variable.other_server(text, stacks)
    if elsewhere:
        shown = f"{kubeconfig_variable.VARIABLE} ({os.environ[kubeconfig_variable.VARIABLE]})"
        notice(
            f"{shown} leads to {elsewhere}, which is not the cluster of {source.stack or 'these outputs'}, and is not "
            "used; --kubeconfig FILE uses a file all the same"
        )
        return source
    return replace(source, kubeconfig=files[0]) if len(files) == 1 else replace(source, merged=text)


@contextmanager
def open_kubeconfig(source: StackAccess) -> Iterator[Path]:
    """Yield the kubeconfig's file. A kubeconfig that is only text is written to a file for its owner alone, and removed
    after use."""
    if source.kubeconfig is not None:
        check_commands(source.kubeconfig.read_text(encoding="utf-8") if source.kubeconfig.is_file() else "")
        yield source.kubeconfig
        return
    if source.paths is not None and not source.merged:
        yield source.paths.kubeconfig
        return
    with kubeconfig_file(source.merged or source.outputs.kubeconfig) as file:
        yield file


@contextmanager
def kubeconfig_file(text: str) -> Iterator[Path]:
    """Yield a temporary file with the kubeconfig, for its owner alone, and delete it afterwards."""
    if not text.lstrip().startswith("{"):
        title = "the outputs hold no kubeconfig (pulumi shows it only with --show-secrets); give one with --kubeconfig"
        raise UsageError(title)
    check_commands(text)
    handle, name = tempfile.mkstemp(prefix="trn-kubeconfig-")  # 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


@contextmanager
def open_stack(stack: str, project: Path) -> Iterator[Api]:
    """Yield a connection to a deployed stack's cluster, by the kubeconfig of its outputs. CommandError: the cluster
    cannot be asked."""
    try:
        with kubeconfig_file(StackOutputs.load(stack, directory=project).kubeconfig) as file:
            yield Api.connect(file)
    except (ClusterError, RuntimeError, ValueError) as error:
        raise CommandError(str(error)) from None


def check_commands(kubeconfig: str) -> None:
    """Check that the token command of a kubeconfig is installed: without a token the API server would refuse the
    client."""
    for command in _commands(kubeconfig):
        if shutil.which(command) is None:
            raise UsageError(
                f"{command} is not on PATH; the kubeconfig gets its token from it.\n"
                "  Install: https://docs.aws.amazon.com/cli/latest/userguide/getting-started-install.html",
            )


def _commands(kubeconfig: str) -> Iterator[str]:
    try:
        data: Any = parse_yaml(kubeconfig)
        for user in data["users"]:
            if "exec" in user["user"]:
                yield str(user["user"]["exec"]["command"])
    except (ValueError, KeyError, TypeError):
        return  # the client reports the error


def _local(stack: str, paths: Paths) -> StackAccess:
    from trainium_eks.local import access

    try:
        report = LocalReport.load(paths.report, access.list_processes(paths))
    except ReportError as error:
        raise UsageError(f"{error}; `trn local up` writes it again") from None
    return StackAccess(stack, _read(paths.outputs), report, paths)


def _read(file: Path) -> StackOutputs:
    try:
        return StackOutputs.load(file)
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None
    except ConfigModelError as error:
        raise UsageError(f"{file} does not hold a stack's outputs", error.problems) from None
    except ValueError as error:
        raise UsageError(f"{file} is not JSON: {error}") from None


def _deployed(project: Path, stack: str) -> StackOutputs:
    """Return the stack's outputs from Pulumi."""
    if shutil.which("pulumi") is None:
        raise UsageError(
            f"stack {stack} has no local cloud here, and pulumi, which knows the deployed stack, is not on PATH.\n"
            f"  Local: trn local up --stack {stack}\n"
            "  On AWS: install https://www.pulumi.com/docs/install/, or give the outputs with --outputs FILE",
        )
    try:
        return StackOutputs.load(stack, directory=project)
    except RuntimeError as error:
        raise UsageError(f"the outputs of the stack {stack} cannot be read: {error}") from None
    except ConfigModelError as error:
        # The first `up` of a stack writes its outputs at the end.
        raise UsageError(f"the stack {stack} has no usable outputs; has its `up` finished?", error.problems) from None
    except ValueError as error:
        raise UsageError(f"pulumi did not answer with JSON: {error}") from None
