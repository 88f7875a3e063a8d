"""Values of Fluent Bit: the files it reads, the records it makes of lines, and the destination. No resource."""

from typing import Any

import pulumi

from trainium_eks.model.catalogue.chart_workloads import SYSTEM_NAMESPACE
from trainium_eks.model.config import namespaces

CHART = "fluent-bit"
RELEASE_NAME = "fluent-bit"
SERVICE_ACCOUNT = RELEASE_NAME
"""As the chart names it after the release."""

STREAM_SCRIPT = """\
-- The kubelet names a container's log <pod>_<namespace>_<container>-<id>.log. Its parts become what readers look for,
-- and together the name of the stream: a template of the output may put only dots and commas between two of them.
function name_stream(tag, timestamp, record)
  local file = record["file"] or ""
  local pod, namespace, container = string.match(file, "([^/_]+)_([^/_]+)_([^/_]+)%-%x+%.log$")
  if pod == nil then
    return 0, timestamp, record
  end
  record["file"] = nil
  record["_p"] = nil
  record["kubernetes"] = { namespace_name = namespace, pod_name = pod, container_name = container }
  record["log_stream"] = namespace .. "/" .. pod .. "/" .. container
  return 2, timestamp, record
end
"""

SERVICE = """\
[SERVICE]
    Daemon Off
    Flush 5
    Log_Level warn
    HTTP_Server On
    HTTP_Listen 0.0.0.0
    HTTP_Port 2020
    Health_Check On
    storage.path /state/buffer
    storage.max_chunks_up 64
"""

INPUT = """\
[INPUT]
    Name tail
    Tag containers
    Path /var/log/containers/*.log
    Exclude_Path {excluded}
    Path_Key file
    multiline.parser cri
    DB /state/positions.db
    Read_from_Head On
    Refresh_Interval 5
    Skip_Long_Lines On
    Buffer_Max_Size 256k
    storage.type filesystem
"""

FILTER = """\
[FILTER]
    Name lua
    Match containers
    script /fluent-bit/scripts/stream.lua
    call name_stream
"""

OUTPUT = """\
[OUTPUT]
    Name cloudwatch_logs
    Match containers
    region {region}
    log_group_name ${{LOG_GROUP}}
    log_stream_template $log_stream
    log_stream_prefix unknown-
    auto_create_group Off
    Retry_Limit 10
    storage.total_limit_size 1G
"""


def fluent_bit_values(region: str, log_group: pulumi.Input[str], *, system: bool) -> dict[str, Any]:
    """Return the values of the chart fluent-bit, for an existing log group; ``system`` sends it the logs of
    ``kube-system``, too.

    Fluent Bit sends no request to the Kubernetes API: a thousand nodes would each list their pods there, and a log's
    file name already contains namespace, pod and container.
    """
    # Its own complaints about a line that it cannot send would be lines to send.
    left_out = [namespaces.LOG_SHIPPING, *([] if system else [SYSTEM_NAMESPACE])]
    excluded = ",".join(f"/var/log/containers/*_{each}_*.log" for each in left_out)
    return {
        "serviceAccount": {"automountServiceAccountToken": False},
        "rbac": {"create": False},
        "testFramework": {"enabled": False},
        # On every node, whatever its taints.
        "tolerations": [{"operator": "Exists"}],
        "priorityClassName": "system-node-critical",
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        # Root, because the kubelet's files are root's; with nothing that root may do besides.
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "env": [{"name": "LOG_GROUP", "value": log_group}],
        "luaScripts": {"stream.lua": STREAM_SCRIPT},
        "config": {
            "service": SERVICE,
            "inputs": INPUT.format(excluded=excluded),
            "filters": FILTER,
            "outputs": OUTPUT.format(region=region),
            "customParsers": "",
        },
        # What has been read and what is not yet sent outlive the pod.
        "daemonSetVolumes": [
            {"name": "logs", "hostPath": {"path": "/var/log"}},
            {"name": "state", "hostPath": {"path": "/var/lib/fluent-bit", "type": "DirectoryOrCreate"}},
        ],
        "daemonSetVolumeMounts": [
            {"name": "logs", "mountPath": "/var/log", "readOnly": True},
            {"name": "state", "mountPath": "/state"},
        ],
        # One node after the other would take an hour on a large pool.
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
    }
