"""The form of every kubeconfig written here: one cluster, one user, one context."""

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
    """Return a kubeconfig as data.

    Args:
        cluster: name of the cluster's entry and of the context; a context in a namespace is ``<cluster>-<namespace>``.
        server: ``https://…`` of the Kubernetes API.
        certificate_authority: base64 of the CA that signs for the server.
        user: name of the user's entry.
        credentials: the user's credentials (``exec``, ``client-certificate-data``).
        namespace: namespace of the context; ``default`` when empty.
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
