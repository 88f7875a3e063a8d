"""The kubeconfig of an EKS cluster."""

import json

from trainium_eks.model.kubeconfig import document

EXEC_API = "client.authentication.k8s.io/v1beta1"
"""Version of the exec plugin's answer that ``aws eks get-token`` gives."""


def eks_kubeconfig(name: str, endpoint: str, certificate_authority: str, region: str) -> str:
    """Return the kubeconfig of an EKS cluster as JSON text, from values that never change while the cluster exists.
    ``aws`` is passed the cluster's region, so that the caller's default region does not matter.

    It holds no token and no profile: the ``aws`` command's credentials are used. A kubeconfig with a token makes every
    object behind it look replaced when the token changes (pulumi-eks#207, #352).
    """
    token = ["--region", region, "eks", "get-token", "--cluster-name", name, "--output", "json"]
    credentials = {"exec": {"apiVersion": EXEC_API, "command": "aws", "args": token}}
    return json.dumps(document(name, endpoint, certificate_authority, name, credentials))
