"""The local counterpart of an EKS access entry: requests as a team's researcher.

On EKS an access entry puts a researcher's IAM role into the team's Kubernetes group. Here a client certificate names
the group, so that Role, quota and admission policies treat a request as they would there.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainium_eks.local.changes import LocalCloudError
from trainium_eks.local.control_plane import credentials
from trainium_eks.local.control_plane.flags import HOST
from trainium_eks.local.control_plane.loopback import Loopback
from trainium_eks.local.control_plane.ports import Settings
from trainium_eks.local.paths import Paths

_ROLE_BINDINGS = "/apis/rbac.authorization.k8s.io/v1/rolebindings"


def kubeconfig(paths: Paths, namespace: str) -> Path:
    """Return the file of a kubeconfig for a team's researcher, with the team's namespace in its context.

    A namespace without a group that has a role there has no researcher.
    """
    port = Settings.load(paths).ports["kube-apiserver"]
    teams = _groups(Loopback(paths, port).get(_ROLE_BINDINGS))
    if namespace not in teams:
        raise LocalCloudError(
            f"{namespace!r} is not a team's namespace: no RoleBinding in it is for a group; "
            f"teams: {', '.join(sorted(teams)) or 'none'}"
        )
    groups, server = sorted(teams[namespace]), f"https://{HOST}:{port}"
    if credentials.is_current(paths, server, namespace, groups):
        return paths.kubeconfig_of(namespace)
    # Imported here: the package cryptography takes as long to import as the whole request.
    from trainium_eks.local.control_plane import pki

    return pki.researcher_kubeconfig(paths, namespace, groups, server)


def _groups(bindings: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return the groups with a role in each namespace. Kubernetes' system groups are left out."""
    found: dict[str, set[str]] = {}
    for binding in bindings["items"]:
        for subject in binding.get("subjects") or ():
            if subject["kind"] == "Group" and not subject["name"].startswith("system:"):
                found.setdefault(binding["metadata"]["namespace"], set()).add(subject["name"])
    return found
