"""The files of a stack's certificates, keys and kubeconfigs. :mod:`.pki` makes them."""

import base64
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainium_eks.local.paths import Paths
from trainium_eks.model.kubeconfig import document
from trainium_eks.model.validation.parsing import MISSHAPEN, parse_json

ADMINISTRATOR = "admin"
SERVICE_ACCOUNT = "service-account"
"""Certificate and key by which the API server knows the tokens of service accounts."""


def certificate(paths: Paths, name: str) -> Path:
    """Return the file of a certificate, such as ``ca``, ``kube-apiserver``, ``admin`` or ``service-account``."""
    return paths.pki / f"{name}.crt"


def key(paths: Paths, name: str) -> Path:
    """Return the file of the private key of a certificate."""
    return paths.pki / f"{name}.key"


def kubeconfig(paths: Paths, client: str) -> Path:
    """Return the kubeconfig of a client; people use the administrator's."""
    return paths.kubeconfig if client == ADMINISTRATOR else paths.pki / f"{client}.kubeconfig"


def certificate_authority_data(paths: Paths) -> str:
    """Return the authority's certificate as kubeconfigs and webhook configurations hold it: PEM in base64."""
    return _base64(certificate(paths, "ca"))


def kubeconfig_document(paths: Paths, server: str, client: str, user: str, namespace: str = "") -> dict[str, Any]:
    """Return a kubeconfig with the certificate and key of a client; its context is in the namespace."""
    held = {
        "client-certificate-data": _base64(certificate(paths, client)),
        "client-key-data": _base64(key(paths, client)),
    }
    cluster, authority = f"trn-{paths.root.name}", certificate_authority_data(paths)
    return document(cluster, server, authority, user, held, namespace=namespace)


def researcher_names(namespace: str) -> tuple[str, str]:
    """Return the names of a researcher's certificate and user."""
    # X.509 limits a common name to 64 characters; what matters is the group.
    return f"researcher-{namespace}", f"researcher@{namespace}"[:64]


def researcher(
    paths: Paths, server: str, namespace: str, groups: Sequence[str], valid: Sequence[str]
) -> dict[str, Any]:
    """Return the kubeconfig of a team's researcher, with the facts of its certificate: the groups, and the first and
    the last moment of its use, as ISO 8601."""
    facts = {"name": "certificate", "extension": {"groups": [*groups], "valid": [*valid]}}
    made = kubeconfig_document(paths, server, *researcher_names(namespace), namespace)
    return {**made, "extensions": [facts]}


def is_current(paths: Paths, server: str, namespace: str, groups: Sequence[str]) -> bool:
    """Return whether the kubeconfig of a team's researcher can be used as it is: it was written, after a check, with
    these very files of certificate, key and authority, for these groups, and its certificate has not expired."""
    try:
        kept = parse_json(paths.kubeconfig_of(namespace).read_bytes())
        first, last = kept["extensions"][0]["extension"]["valid"]
        is_valid = datetime.fromisoformat(first) <= datetime.now(UTC) <= datetime.fromisoformat(last)
        return is_valid and bool(kept == researcher(paths, server, namespace, groups, (first, last)))
    except (OSError, *MISSHAPEN):
        return False


def _base64(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()
