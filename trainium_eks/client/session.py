"""Session of a researcher: a stack's outputs, a namespace, and the API server as that namespace's researcher."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainium_eks.client import kubeconfig_variable
from trainium_eks.client.cluster_access import StackAccess, find_source, open_kubeconfig
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import UsageError
from trainium_eks.kube.api import Api
from trainium_eks.kube.pod_channels import Place
from trainium_eks.model.outputs import NamespaceOutput, StackOutputs
from trainium_eks.model.validation.problems import nearest


@dataclass(frozen=True)
class Session:
    """Open connection of a researcher."""

    source: StackAccess
    namespace: NamespaceOutput
    api: Api
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

    def place(self, pod: str) -> Place:
        """Return a pod of the namespace, for channels into it."""
        return Place(self.kubeconfig, self.namespace.name, pod)


@contextmanager
def open_session(cluster: ClusterOptions) -> Iterator[Session]:
    """Open a session. Without a kubeconfig of the caller, the local cloud's API server is used as the team's
    researcher, never as the administrator."""
    source = find_source(cluster.stack, cluster.outputs, cluster.kubeconfig, cluster.directory)
    if source.paths is not None and source.has_own_kubeconfig:
        namespace = find_namespace(source.outputs, cluster.namespace, cluster.outputs)
        from trainium_eks.local import access

        file = access.make_kubeconfig(source.paths, namespace.name)
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
    """Return one of the stack's namespaces, the first without a name."""
    names = [each.name for each in outputs.namespaces]
    if not names:
        stack = f"the stack of {file}" if file else "the stack"
        raise UsageError(f"{stack} has no team namespace: add one under `trainium-eks:namespaces`")
    if name is None:
        return outputs.namespaces[0]
    for each in outputs.namespaces:
        if each.name == name:
            return each
    near = nearest(name, names)
    meant = f"; did you mean {near}?" if near else ""
    raise UsageError(f"{name!r} is not one of the stack's namespaces ({', '.join(names)}){meant}")
