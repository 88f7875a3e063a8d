"""What the API server asks nodes for: the logs of a pod. kwok answers in the place of all kubelets.

No container runs, so there is one answer for all. Without it ``kubectl logs`` and ``torchx log`` would end in an error
about a host that does not exist.
"""

import json

from trainium_eks.local.control_plane.processes import unwritable
from trainium_eks.local.paths import Paths

HOST = "localhost"
"""An address of every simulated node: where kwok answers."""

ADDRESS_TYPE = "ExternalDNS"
"""Of that address. Nodes in private subnets have none of this type, and ``kubectl get nodes -o wide`` leaves it out."""

PORT = "kubelet"
"""Name of its port."""

CERTIFICATE = "kubelet"
"""Name of its serving certificate."""

MESSAGE = "This pod is simulated: no container runs, so there is no output."


def write_config(paths: Paths) -> None:
    """Writes what kwok answers.

    Raises:
        LocalError: the directory cannot be written.
    """
    log = paths.kubelet / "simulated.log"
    logs = {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "ClusterLogs",
        "metadata": {"name": "simulated"},
        "spec": {"logs": [{"logsFile": str(log)}]},
    }
    line = {"log": f"{MESSAGE}\n", "stream": "stdout", "time": "2026-01-01T00:00:00Z"}
    try:
        paths.kubelet.mkdir(exist_ok=True, mode=0o700)
        log.write_text(json.dumps(line) + "\n", encoding="utf-8")
        paths.kubelet_config.write_text(json.dumps(logs, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise unwritable(error, paths.kubelet) from error
