"""Session of a researcher: a stack's outputs, a namespace, and the API server as that namespace's researcher."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainium_eks.cli.shared import kubeconfig_variable, output
from trainium_eks.cli.shared.cluster_access import StackAccess, find_source, open_kubeconfig
from trainium_eks.cli.shared.cluster_options import ClusterOptions
from trainium_eks.cli.shared.failure import FAILED, WRONG_USAGE, Failure
from trainium_eks.kube.errors import ClusterError, MissingError
from trainium_eks.model.outputs import NamespaceOutput, StackOutputs
from trainium_eks.model.validation.problems import nearest

if TYPE_CHECKING:
    from trainium_eks.kube.api import Api

INTERRUPTED = 130
"""Exit code after Ctrl-C."""


@dataclass(frozen=True)
class Session:
    """Open connection of a researcher."""

    source: StackAccess
    namespace: NamespaceOutput
    api: "Api"
    """Client of the API server, with the researcher's rights."""
    kubeconfig: Path
    """File behind :attr:`api`, for programs such as kubectl; gone after the session unless it is the local cloud's."""

    @property
    def outputs(self) -> StackOutputs:
        """The stack's outputs."""
        return self.source.outputs

    @property
    def is_local(self) -> bool:
        """Whether the cluster is the local cloud of this machine."""
        return self.source.paths is not None


@contextmanager
def open_session(cluster: ClusterOptions) -> Iterator[Session]:
    """Open a session. Without a kubeconfig of the caller, the local cloud's API server is used as the team's
    researcher, never as the administrator.

    Raises:
        Failure: no stack, no such namespace, or no way to the cluster.
        ClusterError: the local cloud does not answer.
    """
    try:
        from trainium_eks.kube.api import Api
    except ModuleNotFoundError as error:
        title = f"the Python package {error.name} is missing: pip install 'trainium-eks[local]'"
        raise Failure(WRONG_USAGE, title) from None
    source = find_source(cluster.stack, cluster.outputs, cluster.kubeconfig, cluster.directory)
    if source.paths is not None and source.has_own_kubeconfig:
        namespace = find_namespace(source.outputs, cluster.namespace, cluster.outputs)
        from trainium_eks.local.control_plane import researchers

        file = researchers.kubeconfig(source.paths, namespace.name)
        yield Session(source, namespace, Api.connect(file), file)
        return
    with open_kubeconfig(source) as file:
        names = {each.name for each in source.outputs.namespaces}
        own = kubeconfig_variable.namespace_of(file.read_text(encoding="utf-8", errors="replace")) or ""
        namespace = find_namespace(
            source.outputs, cluster.namespace or (own if own in names else None), cluster.outputs
        )
        yield Session(source, namespace, Api.connect(file), file)


def find_namespace(outputs: StackOutputs, name: str | None, file: Path | None = None) -> NamespaceOutput:
    """Return one of the stack's namespaces, the first without a name.

    Args:
        outputs: of the stack.
        name: of the namespace.
        file: the file with the outputs, for the message.

    Raises:
        Failure: the stack has none, or none of that name.
    """
    names = [each.name for each in outputs.namespaces]
    if not names:
        stack = f"the stack of {file}" if file else "the stack"
        raise Failure(WRONG_USAGE, f"{stack} has no team namespace: add one under `trainium-eks:namespaces`")
    if name is None:
        return outputs.namespaces[0]
    for each in outputs.namespaces:
        if each.name == name:
            return each
    near = nearest(name, names)
    meant = f"; did you mean {near}?" if near else ""
    raise Failure(WRONG_USAGE, f"{name!r} is none of the stack's namespaces ({', '.join(names)}){meant}")


def run_and_report(act: Callable[[], int], *, as_json: bool = False) -> int:
    """Run a command and report its errors in their own words, without a traceback; return the exit code.

    Args:
        act: the command.
        as_json: report an error as one JSON document on standard output, without other output.
    """
    try:
        try:
            return act()
        except ClusterError as error:
            raise Failure(WRONG_USAGE if isinstance(error, MissingError) else FAILED, str(error)) from error
    except Failure as failure:
        return output.tell(failure, as_json=as_json)
    except BrokenPipeError:
        # The reader (`| head`) has gone; Python would complain again when it flushes at exit.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return FAILED
    except KeyboardInterrupt:
        sys.stderr.write("\nInterrupted.\n")
        return INTERRUPTED
