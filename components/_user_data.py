"""User data: settings of a node's disks, memory, limits and packages before the kubelet starts."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass

from trainium_eks.model.catalogue import lustre
from trainium_eks.model.catalogue.instances import InstanceType

DEFAULT_CORES_PER_LOGICAL_CORE: Mapping[str, int] = {"Trainium2": 2, "Trainium3": 2}
"""Physical Neuron cores that the runtime shows as one (LNC), by accelerator; 1 for those not listed."""

LARGE_LUSTRE_CLIENT_VCPUS = 64
"""Above this many vCPUs FSx recommends other module options for clients (FSx for Lustre user guide, performance)."""

BOUNDARY = "==node-config=="
"""Fixed, so that the same settings give the same user data."""


@dataclass(frozen=True)
class Boot:
    """The settings of a node before the kubelet starts."""

    raid0: bool = False
    """Local NVMe disks become one volume for containers and images."""
    max_pods: int = 0
    """Most pods of the node; 0 leaves the number that EKS computes from the type."""
    lockable_memory: bool = False
    """Containers may lock as much memory as they like, which EFA does with every buffer that it sends from."""
    nvidia_devices_by_mount: bool = False
    """NVIDIA's runtime reads a container's devices from mounts, and no longer from its environment."""
    hugepages_2mi: int = 0
    """Hugepages of 2 MiB to reserve."""
    cores_per_logical_core: int = 0
    """Neuron's LNC to set; 0 leaves the runtime's default."""
    lustre_client: bool = False
    """Install the Lustre client."""
    large_lustre_client: bool = False
    """Set the Lustre options for clients with many processors."""
    lustre_efa_step: int = 0
    """Each of how many EFA interfaces the Lustre client uses; 0 for none of them."""


def logical_core_setting(instance: InstanceType) -> int:
    """Return the LNC for the catalogue's number of logical cores; 0 if the runtime's default is right."""
    if not instance.logical_neuron_cores:
        return 0
    wanted = instance.neuron_cores // instance.logical_neuron_cores
    return 0 if wanted == DEFAULT_CORES_PER_LOGICAL_CORE.get(instance.accelerator, 1) else wanted


def is_large_lustre_client(instance: InstanceType) -> bool:
    """Return whether FSx recommends other module options on nodes of this type."""
    return instance.vcpus > LARGE_LUSTRE_CLIENT_VCPUS


def lustre_efa_step(instance: InstanceType, lustre_network: str) -> int:
    """Return :attr:`Boot.lustre_efa_step` for a type and a component's ``lustre_network``."""
    count = lustre.efa_client_interfaces(instance.name, instance.efa_interfaces) if lustre_network == "efa" else 0
    return instance.efa_interfaces // count if count else 0


def user_data(boot: Boot) -> str | None:
    """Return the user data for EKS, base64 of :func:`user_data_text`; None without settings."""
    text = user_data_text(boot)
    return None if text is None else base64.b64encode(text.encode()).decode()


def user_data_text(boot: Boot) -> str | None:
    """Return the user data as MIME parts, for Karpenter; None without settings.

    EKS merges its own part (cluster, endpoint, CA) as long as the template names no image (EKS user guide, launch
    templates). Scripts run in cloud-init's last stage, which nodeadm-run.service waits for before it starts containerd
    and the kubelet (awslabs/amazon-eks-ami).
    """
    parts = [("application/node.eks.aws", config)] if (config := _node_config(boot)) else []
    parts += [("text/x-shellscript", f"#!/bin/bash\nset -euo pipefail\n{script}") for script in _scripts(boot)]
    if not parts:
        return None
    lines = ["MIME-Version: 1.0", f'Content-Type: multipart/mixed; boundary="{BOUNDARY}"', ""]
    for content_type, content in parts:
        lines += [f"--{BOUNDARY}", f'Content-Type: {content_type}; charset="us-ascii"', "", content]
    lines += [f"--{BOUNDARY}--", ""]
    return "\n".join(lines)


def _node_config(boot: Boot) -> str:
    """Return nodeadm's part; empty if its defaults suffice."""
    parts = [_RAID0] if boot.raid0 else []
    if boot.max_pods:
        parts.append(_MAX_PODS.format(count=boot.max_pods))
    return "".join([_NODE_CONFIG, *parts]) if parts else ""


def _scripts(boot: Boot) -> list[str]:
    """Return the shell scripts, in order."""
    scripts = []
    if boot.lockable_memory:
        scripts.append(_LOCKABLE_MEMORY)
    if boot.nvidia_devices_by_mount:
        scripts.append(_NVIDIA_DEVICES_BY_MOUNT)
    if boot.hugepages_2mi:
        scripts.append(_HUGEPAGES.format(count=boot.hugepages_2mi))
    if boot.cores_per_logical_core:
        scripts.append(_LOGICAL_CORES.format(cores=boot.cores_per_logical_core))
    if boot.large_lustre_client:
        scripts.append(_LARGE_LUSTRE_CLIENT)
    if boot.lustre_client:
        scripts.append(_LUSTRE_CLIENT)
    if boot.lustre_client and boot.lustre_efa_step:
        scripts.append(_LUSTRE_EFA.format(step=boot.lustre_efa_step))
    return scripts


_NODE_CONFIG = """\
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
"""

_RAID0 = """\
  instance:
    localStorage:
      strategy: RAID0
"""

# A flag, because it outweighs the `maxPods` that EKS writes into its own NodeConfig, in whichever order nodeadm merges.
_MAX_PODS = """\
  kubelet:
    flags:
      - --max-pods={count}
"""

# Containers inherit containerd's limit, 8 MiB by systemd's default. Neither Kubernetes nor CAP_IPC_LOCK raises it for
# a container that does not run as root (nvidia-container-toolkit#2037). A base runtime spec in a NodeConfig would have
# to repeat every limit that the image sets. containerd is not running yet; where it is, it restarts.
_LOCKABLE_MEMORY = """\
mkdir -p /etc/systemd/system/containerd.service.d
printf '[Service]\\nLimitMEMLOCK=infinity\\n' > /etc/systemd/system/containerd.service.d/50-memlock.conf
systemctl daemon-reload
systemctl try-restart containerd.service
"""

# The device plugin makes such mounts, and no team may (they are host paths). NVIDIA_VISIBLE_DEVICES stands in many
# images, and may come from a ConfigMap, which no admission policy sees. Images had the variable obeyed until April 2026
# and ignored since (amazon-eks-ami#2706): both are set here, so that every release does the same. The runtime reads
# its file again for each container.
_NVIDIA_DEVICES_BY_MOUNT = """\
nvidia-ctk config --in-place \\
  --set accept-nvidia-visible-devices-as-volume-mounts=true \\
  --set accept-nvidia-visible-devices-envvar-when-unprivileged=false
"""

_HUGEPAGES = """\
echo 'vm.nr_hugepages = {count}' > /etc/sysctl.d/90-hugepages.conf
sysctl --load /etc/sysctl.d/90-hugepages.conf
"""

_LOGICAL_CORES = """\
mkdir -p /opt/aws/neuron
echo 'NEURON_LOGICAL_NC_CONFIG={cores}' > /opt/aws/neuron/logical_nc_config
"""

# Options are read when the modules are loaded, which the first mount does.
_LARGE_LUSTRE_CLIENT = """\
printf 'options ptlrpc ptlrpcd_per_cpt_max=32\\noptions ksocklnd credits=2560\\n' > /etc/modprobe.d/lustre.conf
"""

# Images have had the kernel module without the tools that mount with it (aws-fsx-csi-driver#460).
_LUSTRE_CLIENT = """\
export PATH="$PATH:/usr/sbin:/sbin"
{ command -v lctl && command -v mount.lustre; } > /dev/null || dnf install --assumeyes lustre-client
"""

# Lustre takes EFA only where LNet has it before the first mount (FSx for Lustre guide, configuring EFA clients; EKS
# user guide, optimize FSx for Lustre on nodes with EFA). Mounts still name the server by its TCP address; discovery
# finds its EFA ones, which the last line prefers. A node on which this fails mounts over TCP.
_LUSTRE_EFA = """\
export PATH="$PATH:/usr/sbin:/sbin"
interface=$(ip -o -4 route show to default | awk '{{print $5; exit}}')
modprobe lnet
modprobe kefalnd ipif_name="$interface"
modprobe ksocklnd
lnetctl lnet configure
lnetctl net del --net tcp 2> /dev/null || true
lnetctl net add --net tcp --if "$interface"
for device in /sys/class/infiniband/*; do
  [[ $(realpath "$device/device/driver") != */efa ]] || basename "$device"
done | awk '(NR - 1) % {step} == 0' | while read -r device; do
  lnetctl net add --net efa --if "$device" --peer-credits 32
done
lnetctl set discovery 1
lnetctl udsp add --src efa --priority 0
"""
