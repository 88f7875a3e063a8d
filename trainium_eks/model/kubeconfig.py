"""What every kubeconfig written here looks like: one cluster, one user, one context."""

from collections.abc import Mapping


def document(
    cluster: str,
    server: str,
    certificate_authority: str,
    user: str,
    credentials: Mapping[str, object],
    *,
    namespace: str = "",
) -> dict[str, object]:
    """A kubeconfig as data.

    Args:
        cluster: its entry, and that of the context; a context in a namespace is ``<cluster>-<namespace>``.
        server: ``https://…`` of the Kubernetes API.
        certificate_authority: base64 of the CA that signs for the server.
        user: its entry.
        credentials: how the user is told (``exec``, ``client-certificate-data``).
        namespace: of the context; ``default`` when empty.
    """
    context = f"{cluster}-{namespace}" if namespace else cluster
    place = {"cluster": cluster, "user": user, **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": cluster, "cluster": {"server": server, "certificate-authority-data": certificate_authority}}
        ],
        "users": [{"name": user, "user": dict(credentials)}],
        "contexts": [{"name": context, "context": place}],
        "current-context": context,
    }
