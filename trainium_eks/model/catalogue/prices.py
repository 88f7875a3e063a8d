"""List prices of everything except instances, USD, us-east-1.

AWS is not queried: the prices give an estimate before anything exists, and a plan shows :data:`DATE` beside it. Taxes,
discounts, data transfer and requests are left out. Instance prices: :mod:`trainium_eks.model.catalogue.instances`.

Sources: EKS' prices are in several public tables; gp3's were quoted from the price list; FSx' 125 MB/s tier was read in
a cost tool's table. The others are from memory of the pricing pages, unverified on the date.
"""

from collections.abc import Mapping
from types import MappingProxyType

DATE = "2026-11-21"
"""Day of the last check of these prices."""

REGION = "us-east-1"
"""Region that the prices are of."""

HOURS_PER_MONTH = 730
"""AWS' own convention: 8760 hours a year over twelve."""

EKS_CLUSTER_HOURLY = 0.10
"""One control plane in standard support."""

EKS_EXTENDED_HOURLY = 0.60
"""One control plane in extended support, in all (not on top)."""

EKS_CONTROL_PLANE_TIER_HOURLY: Mapping[str, float] = MappingProxyType(
    {"standard": 0.0, "tier-xl": 1.65, "tier-2xl": 3.40, "tier-4xl": 6.90, "tier-8xl": 13.90}
)
"""Provisioned control plane, on top of the cluster."""

NAT_GATEWAY_HOURLY = 0.045
"""One NAT gateway; its public address and its traffic come on top."""

PUBLIC_IPV4_HOURLY = 0.005
"""Each public IPv4 address, in use or not."""

INTERFACE_ENDPOINT_HOURLY = 0.01
"""One interface endpoint in one zone. Gateway endpoints (S3) are free."""

GP3_GIB_MONTH = 0.08
"""gp3 storage."""

GP3_MIBPS_MONTH = 0.04
"""gp3 throughput above :data:`GP3_FREE_MIBPS`, each MiB/s."""

GP3_FREE_MIBPS = 125
"""Throughput that every gp3 volume has."""

GP3_IOPS_MONTH = 0.005
"""gp3 IOPS above :data:`GP3_FREE_IOPS`, each."""

GP3_FREE_IOPS = 3000
"""IOPS that every gp3 volume has."""

FSX_LUSTRE_GIB_MONTH: Mapping[int, float] = MappingProxyType({125: 0.145, 250: 0.210, 500: 0.340, 1000: 0.600})
"""PERSISTENT_2 SSD storage by its throughput, MB/s for each TiB. Metadata IOPS in automatic mode are included."""

FSX_SCRATCH_GIB_MONTH = 0.140
"""SCRATCH_2 storage."""

FSX_METADATA_IOPS_MONTH = 0.055
"""Each provisioned metadata IOPS above the number that the capacity includes."""

FSX_BACKUP_GIB_MONTH = 0.05
"""Backups of file systems, by stored size."""

S3_STANDARD_GIB_MONTH = 0.023
"""Objects in S3's Standard class, the first 50 TB."""

ECR_GIB_MONTH = 0.10
"""Images in ECR."""

LOGS_GIB_MONTH = 0.03
"""Logs kept in CloudWatch; writing them is another price."""

LOAD_BALANCER_HOURLY = 0.0225
"""One network or application load balancer; its traffic comes on top."""

CLASSIC_LOAD_BALANCER_HOURLY = 0.025
"""One load balancer of the first generation."""

SAGEMAKER_FACTOR = 1.15
"""Price of a training instance in SageMaker over EC2's On-Demand price. Both prices of AWS' benchmark of Trn1 have it
(docs/sagemaker.md): 24.725 is 1.15 times 21.50, and 37.69 is 1.15 times 32.77."""

KMS_KEY_MONTH = 1.0
"""A customer key; each of its first two rotations adds as much."""


def gp3_monthly_usd(size_gib: int, throughput_mibps: int = GP3_FREE_MIBPS, iops: int = GP3_FREE_IOPS) -> float:
    """Return the monthly price of one gp3 volume, USD."""
    return (
        size_gib * GP3_GIB_MONTH
        + max(0, throughput_mibps - GP3_FREE_MIBPS) * GP3_MIBPS_MONTH
        + max(0, iops - GP3_FREE_IOPS) * GP3_IOPS_MONTH
    )


def lustre_monthly_usd(storage_capacity_gib: int, deployment_type: str, throughput_per_tib: int) -> float:
    """Return the monthly price of a Lustre file system's storage, USD. ``throughput_per_tib`` (MB/s) is ignored for
    SCRATCH_2; ValueError: no price is known for the combination."""
    if deployment_type == "SCRATCH_2":
        return storage_capacity_gib * FSX_SCRATCH_GIB_MONTH
    if deployment_type != "PERSISTENT_2" or throughput_per_tib not in FSX_LUSTRE_GIB_MONTH:
        raise ValueError(f"no price is known for {deployment_type} with {throughput_per_tib} MB/s for each TiB")
    return storage_capacity_gib * FSX_LUSTRE_GIB_MONTH[throughput_per_tib]
