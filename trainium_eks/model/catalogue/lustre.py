"""Facts about FSx for Lustre and its CSI driver, which components, rules and checks share."""

from collections.abc import Mapping
from types import MappingProxyType

PORTS = ((988, 988), (1018, 1023))
"""Ranges of TCP ports that servers and clients use, both ways (FSx for Lustre guide, file system access control)."""

THROUGHPUT_PER_TIB = (125, 250, 500, 1000)
"""Throughputs of PERSISTENT_2 SSD file systems, MB/s for each TiB (FSx CreateFileSystem)."""

SCRATCH_WRITE_PER_TIB = 100
"""Write throughput of SCRATCH_2 file systems, MB/s for each TiB; they read twice as fast (FSx for Lustre guide,
performance of SSD storage)."""

EFA_STEP_GIB: Mapping[int, int] = MappingProxyType({125: 38_400, 250: 19_200, 500: 9_600, 1000: 4_800})
"""Size step of an EFA-enabled file system by its throughput (FSx for Lustre guide, EFA-enabled file systems)."""

NO_EFA_CLIENTS = ("p4d", "p4de", "trn2", "trn2u")
"""Families with EFA that reach a file system over TCP alone: Nitro before version 4, and Trainium2 (FSx for Lustre
guide, configuring EFA clients)."""

EFA_CLIENT_INTERFACES: Mapping[str, int] = MappingProxyType(
    dict.fromkeys(("p5.48xlarge", "p5e.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge"), 8) | {"p6-b300.48xlarge": 16}
)
"""EFA interfaces of a node that the Lustre client uses, by type; 2 of others (the same page)."""

METADATA_IOPS = (1500, 3000, 6000, *range(12_000, 192_001, 12_000))
"""Metadata IOPS that can be provisioned (FSx CreateFileSystemLustreMetadataConfiguration)."""

DRIVER = "fsx.csi.aws.com"
"""Name of the CSI driver, in volumes and in storage classes."""

CLAIM = "fsx-claim"
"""Name of the claim in every team's namespace; the training components of the AWS guides mount a claim of this name."""

STORAGE_CLASS = "fsx"
"""Class of file systems made on demand."""

DEFAULT_USER_ID = 1000
"""UID and GID of a team that names none."""


def efa_client_interfaces(instance_type: str, efa_interfaces: int) -> int:
    """Return the EFA interfaces of a node that the Lustre client uses; 0 for a type that cannot."""
    if instance_type.partition(".")[0] in NO_EFA_CLIENTS:
        return 0
    return min(efa_interfaces, EFA_CLIENT_INTERFACES.get(instance_type, 2))


def write_megabytes_per_second(storage_capacity_gib: int, deployment_type: str, throughput_per_tib: int) -> float:
    """Return the sustained write throughput of a file system, MB/s: the throughput of its disks, without bursts of the
    network. ``throughput_per_tib`` (MB/s) is ignored for SCRATCH_2."""
    each = SCRATCH_WRITE_PER_TIB if deployment_type == "SCRATCH_2" else throughput_per_tib
    return storage_capacity_gib / 1024 * each


def fileset(mount_name: str, directory: str) -> str:
    """Return the mount name with which a client sees one existing directory of a file system and nothing above it.

    FSx documents ``mount -t lustre host@tcp:/<mount name>/<directory>`` (guide, mounting from a specific fileset); the
    CSI driver appends a volume's ``mountname`` unchanged to ``host@tcp:/`` (aws-fsx-csi-driver, ``NodePublishVolume``).
    """
    below = directory.strip("/")
    return f"{mount_name}/{below}" if below else mount_name


def team_directory(root: str, namespace: str) -> str:
    """Return the directory of a namespace on the file system: ``/<namespace>``, or ``<root>/<namespace>``."""
    above = root.strip("/")
    return f"/{above}/{namespace}" if above else f"/{namespace}"
