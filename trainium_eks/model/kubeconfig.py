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
    """Return a kubeconfig as data, with the credentials of a user (``exec``, ``client-certificate-data``). Its context
    is named after the cluster, or ``<cluster>-<namespace>``."""
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
