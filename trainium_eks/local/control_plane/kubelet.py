"""The API server's way to the logs of pods. The agent of the pods answers in the place of all kubelets.

Simulated pods all have the same answer. Without it ``kubectl logs`` and ``torchx log`` would end in an error about a
host that does not exist.
"""

HOST = "localhost"
"""The address, in every simulated node, at which the agent answers."""

ADDRESS_TYPE = "ExternalDNS"
"""Type of that address. Nodes in private subnets have none of it, and ``kubectl get nodes -o wide`` leaves it out."""

PORT = "kubelet"

CERTIFICATE = "kubelet"

CLIENT = "kubelet-client"
"""Name of the certificate by which the agent recognizes the API server."""

CLIENT_USER = "kube-apiserver-kubelet-client"
"""User name in that certificate; the agent answers no other user."""

MESSAGE = "This pod is simulated: no container runs, so there is no output."

NO_EXEC = (
    "kubectl cannot go into pods of the local cloud; for pods with a local/ image use: trn local exec POD -- command"
)
