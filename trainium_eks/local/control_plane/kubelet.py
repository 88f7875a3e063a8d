"""What the API server asks nodes for: the logs of a pod. The agent of the pods answers in the place of all kubelets.

Pods that are simulated have one answer for all. Without it ``kubectl logs`` and ``torchx log`` would end in an error
about a host that does not exist.
"""

HOST = "localhost"
"""An address of every simulated node: where the agent answers."""

ADDRESS_TYPE = "ExternalDNS"
"""Of that address. Nodes in private subnets have none of this type, and ``kubectl get nodes -o wide`` leaves it out."""

PORT = "kubelet"
"""Name of its port."""

CERTIFICATE = "kubelet"
"""Name of its serving certificate."""

CLIENT = "kubelet-client"
"""Name of the certificate by which it knows the API server."""

CLIENT_USER = "kube-apiserver-kubelet-client"
"""Who that says it is; nobody else is answered."""

MESSAGE = "This pod is simulated: no container runs, so there is no output."

NO_EXEC = (
    "kubectl cannot go into pods of the local cloud; for pods with a local/ image use: trn local exec POD -- command"
)
