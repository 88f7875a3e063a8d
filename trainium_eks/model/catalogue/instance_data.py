"""The facts of the catalogue, one entry a type.

:mod:`trainium_eks.model.catalogue.instances` derives more from them.

Where they come from:

- vCPU, memory, accelerators, network cards, EFA interfaces, disks, addresses and usage classes: EC2's
  DescribeInstanceTypes, as packaged by moto 5.2.5 (tests hold each entry against it).
- Accelerator memory of Trainium2: the Neuron documentation (96 GiB a chip). EC2 reports 512 GiB a chip.
- Neuron cores of trn2u.48xlarge: the Neuron documentation; EC2 reports no NeuronInfo for it.
- Logical Neuron cores: the device plugin under the runtime's default, which joins two physical cores on Trainium2.
- Zones: :mod:`trainium_eks.model.catalogue.instance_zones`.
- Prices: Linux On-Demand list prices in us-east-1 as Karpenter generated them from the price list (v1.14.1,
  2026-07-20); the CPU types' from its table of 2026-01-19. None where no list price was found.
- Quota codes: Service Quotas of EC2, all counted in vCPU. Empty where no quota of that kind is known.
- SageMaker names: botocore's TrainingInstanceType.
- Hugepages: the EKS user guide's NCCL tests ask 5120 MiB (2560 pages of 2 MiB) of GPU nodes with EFA; the Neuron
  samples ask for none.
"""

from collections.abc import Mapping
from typing import Final, NotRequired, TypedDict


class Quotas(TypedDict):
    """Codes of the EC2 quotas that launches of a type count against."""

    on_demand: str
    spot: str


class Facts(TypedDict):
    """One type as EC2 and Neuron describe it."""

    accelerator: NotRequired[str]
    accelerators: NotRequired[int]
    neuron_cores: NotRequired[int]
    logical_neuron_cores: NotRequired[int]
    accelerator_memory_gib: NotRequired[int]
    vcpus: int
    memory_gib: int
    network_cards: NotRequired[int]
    interfaces_per_card: int
    efa_interfaces: NotRequired[int]
    first_efa_card: NotRequired[int]
    ipv4_per_interface: int
    local_disks: NotRequired[int]
    local_disk_gb: NotRequired[int]
    hugepages_2mi: NotRequired[int]
    usage: tuple[str, ...]
    hourly_usd: float | None
    quotas: Quotas
    sagemaker_name: NotRequired[str]


NO_DEVICES_IN_EC2: Final = frozenset({"trn2u.48xlarge"})
"""Types of which EC2 reports neither Neuron devices nor GPUs."""

PRICE_DATE: Final = "2026-07-20"
PRICE_DATE_CPU: Final = "2026-01-19"
PRICE_REGION: Final = "us-east-1"

TRN: Final[Quotas] = {"on_demand": "L-2C3B7624", "spot": "L-6B0D517C"}
INF: Final[Quotas] = {"on_demand": "L-1945791B", "spot": "L-B5D1601B"}
P4: Final[Quotas] = {"on_demand": "L-417A185B", "spot": "L-7212CCBC"}
P5: Final[Quotas] = {"on_demand": "L-417A185B", "spot": "L-C4BD4855"}
P6: Final[Quotas] = {"on_demand": "L-417A185B", "spot": ""}
STANDARD: Final[Quotas] = {"on_demand": "L-1216C47A", "spot": "L-34B43A08"}

_OD_SPOT: Final = ("on-demand", "spot")
_ALL: Final = ("on-demand", "spot", "capacity-block")

NEURON: Final[Mapping[str, Facts]] = {
    "trn1.2xlarge": {
        "accelerator": "Trainium",
        "accelerators": 1,
        "neuron_cores": 2,
        "logical_neuron_cores": 2,
        "accelerator_memory_gib": 32,
        "vcpus": 8,
        "memory_gib": 32,
        "interfaces_per_card": 4,
        "ipv4_per_interface": 15,
        "local_disks": 1,
        "local_disk_gb": 474,
        "usage": _OD_SPOT,
        "hourly_usd": 1.34375,
        "quotas": TRN,
        "sagemaker_name": "ml.trn1.2xlarge",
    },
    "trn1.32xlarge": {
        "accelerator": "Trainium",
        "accelerators": 16,
        "neuron_cores": 32,
        "logical_neuron_cores": 32,
        "accelerator_memory_gib": 512,
        "vcpus": 128,
        "memory_gib": 512,
        "network_cards": 8,
        "interfaces_per_card": 5,
        "efa_interfaces": 8,
        "ipv4_per_interface": 50,
        "local_disks": 4,
        "local_disk_gb": 1900,
        "usage": _ALL,
        "hourly_usd": 21.50,
        "quotas": TRN,
        "sagemaker_name": "ml.trn1.32xlarge",
    },
    "trn1n.32xlarge": {
        "accelerator": "Trainium",
        "accelerators": 16,
        "neuron_cores": 32,
        "logical_neuron_cores": 32,
        "accelerator_memory_gib": 512,
        "vcpus": 128,
        "memory_gib": 512,
        "network_cards": 16,
        "interfaces_per_card": 5,
        "efa_interfaces": 16,
        "ipv4_per_interface": 50,
        "local_disks": 4,
        "local_disk_gb": 1900,
        "usage": _OD_SPOT,
        "hourly_usd": 24.78,
        "quotas": TRN,
        "sagemaker_name": "ml.trn1n.32xlarge",
    },
    "trn2.3xlarge": {
        "accelerator": "Trainium2",
        "accelerators": 1,
        "neuron_cores": 8,
        "logical_neuron_cores": 4,
        "accelerator_memory_gib": 96,
        "vcpus": 12,
        "memory_gib": 128,
        "interfaces_per_card": 2,
        "efa_interfaces": 1,
        "ipv4_per_interface": 15,
        "local_disks": 1,
        "local_disk_gb": 470,
        "usage": _ALL,
        "hourly_usd": None,
        "quotas": TRN,
    },
    "trn2.48xlarge": {
        "accelerator": "Trainium2",
        "accelerators": 16,
        "neuron_cores": 128,
        "logical_neuron_cores": 64,
        "accelerator_memory_gib": 1536,
        "vcpus": 192,
        "memory_gib": 2048,
        "network_cards": 16,
        "interfaces_per_card": 2,
        "efa_interfaces": 16,
        "ipv4_per_interface": 50,
        "local_disks": 4,
        "local_disk_gb": 1900,
        "usage": _ALL,
        "hourly_usd": None,
        "quotas": TRN,
        "sagemaker_name": "ml.trn2.48xlarge",
    },
    "trn2u.48xlarge": {
        "accelerator": "Trainium2",
        "accelerators": 16,
        "neuron_cores": 128,
        "logical_neuron_cores": 64,
        "accelerator_memory_gib": 1536,
        "vcpus": 192,
        "memory_gib": 2048,
        "network_cards": 16,
        "interfaces_per_card": 2,
        "efa_interfaces": 16,
        "ipv4_per_interface": 50,
        "local_disks": 4,
        "local_disk_gb": 1900,
        "usage": ("on-demand", "capacity-block"),
        "hourly_usd": None,
        "quotas": TRN,
    },
    "inf2.xlarge": {
        "accelerator": "Inferentia2",
        "accelerators": 1,
        "neuron_cores": 2,
        "logical_neuron_cores": 2,
        "accelerator_memory_gib": 32,
        "vcpus": 4,
        "memory_gib": 16,
        "interfaces_per_card": 4,
        "ipv4_per_interface": 15,
        "usage": _OD_SPOT,
        "hourly_usd": 0.7582,
        "quotas": INF,
    },
    "inf2.8xlarge": {
        "accelerator": "Inferentia2",
        "accelerators": 1,
        "neuron_cores": 2,
        "logical_neuron_cores": 2,
        "accelerator_memory_gib": 32,
        "vcpus": 32,
        "memory_gib": 128,
        "interfaces_per_card": 8,
        "ipv4_per_interface": 30,
        "usage": _OD_SPOT,
        "hourly_usd": 1.96786,
        "quotas": INF,
    },
    "inf2.24xlarge": {
        "accelerator": "Inferentia2",
        "accelerators": 6,
        "neuron_cores": 12,
        "logical_neuron_cores": 12,
        "accelerator_memory_gib": 192,
        "vcpus": 96,
        "memory_gib": 384,
        "interfaces_per_card": 15,
        "ipv4_per_interface": 50,
        "usage": _OD_SPOT,
        "hourly_usd": 6.49063,
        "quotas": INF,
    },
    "inf2.48xlarge": {
        "accelerator": "Inferentia2",
        "accelerators": 12,
        "neuron_cores": 24,
        "logical_neuron_cores": 24,
        "accelerator_memory_gib": 384,
        "vcpus": 192,
        "memory_gib": 768,
        "interfaces_per_card": 15,
        "ipv4_per_interface": 50,
        "usage": _OD_SPOT,
        "hourly_usd": 12.98127,
        "quotas": INF,
    },
}

NVIDIA: Final[Mapping[str, Facts]] = {
    "p4d.24xlarge": {
        "accelerator": "A100-40",
        "accelerators": 8,
        "accelerator_memory_gib": 320,
        "vcpus": 96,
        "memory_gib": 1152,
        "network_cards": 4,
        "interfaces_per_card": 15,
        "efa_interfaces": 4,
        "ipv4_per_interface": 50,
        "local_disks": 8,
        "local_disk_gb": 1000,
        "hugepages_2mi": 2560,
        "usage": _ALL,
        "hourly_usd": 21.957642,
        "quotas": P4,
        "sagemaker_name": "ml.p4d.24xlarge",
    },
    "p4de.24xlarge": {
        "accelerator": "A100-80",
        "accelerators": 8,
        "accelerator_memory_gib": 640,
        "vcpus": 96,
        "memory_gib": 1152,
        "network_cards": 4,
        "interfaces_per_card": 15,
        "efa_interfaces": 4,
        "ipv4_per_interface": 50,
        "local_disks": 8,
        "local_disk_gb": 1000,
        "hugepages_2mi": 2560,
        "usage": _ALL,
        "hourly_usd": 27.44705,
        "quotas": P4,
        "sagemaker_name": "ml.p4de.24xlarge",
    },
    "p5.4xlarge": {
        "accelerator": "H100",
        "accelerators": 1,
        "accelerator_memory_gib": 80,
        "vcpus": 16,
        "memory_gib": 256,
        "interfaces_per_card": 4,
        "efa_interfaces": 1,
        "ipv4_per_interface": 30,
        "local_disks": 1,
        "local_disk_gb": 3800,
        "hugepages_2mi": 2560,
        "usage": _ALL,
        "hourly_usd": 6.88,
        "quotas": P5,
        "sagemaker_name": "ml.p5.4xlarge",
    },
    "p5.48xlarge": {
        "accelerator": "H100",
        "accelerators": 8,
        "accelerator_memory_gib": 640,
        "vcpus": 192,
        "memory_gib": 2048,
        "network_cards": 32,
        "interfaces_per_card": 2,
        "efa_interfaces": 32,
        "ipv4_per_interface": 50,
        "local_disks": 8,
        "local_disk_gb": 3800,
        "hugepages_2mi": 2560,
        "usage": _ALL,
        "hourly_usd": 55.04,
        "quotas": P5,
        "sagemaker_name": "ml.p5.48xlarge",
    },
    "p5e.48xlarge": {
        "accelerator": "H200",
        "accelerators": 8,
        "accelerator_memory_gib": 1128,
        "vcpus": 192,
        "memory_gib": 2048,
        "network_cards": 32,
        "interfaces_per_card": 2,
        "efa_interfaces": 32,
        "ipv4_per_interface": 50,
        "local_disks": 8,
        "local_disk_gb": 3800,
        "hugepages_2mi": 2560,
        "usage": _ALL,
        "hourly_usd": None,
        "quotas": P5,
        "sagemaker_name": "ml.p5e.48xlarge",
    },
    "p5en.48xlarge": {
        "accelerator": "H200",
        "accelerators": 8,
        "accelerator_memory_gib": 1128,
        "vcpus": 192,
        "memory_gib": 2048,
        "network_cards": 16,
        "interfaces_per_card": 4,
        "efa_interfaces": 16,
        "ipv4_per_interface": 50,
        "local_disks": 8,
        "local_disk_gb": 3800,
        "hugepages_2mi": 2560,
        "usage": _ALL,
        "hourly_usd": 63.296,
        "quotas": P5,
        "sagemaker_name": "ml.p5en.48xlarge",
    },
    "p6-b200.48xlarge": {
        "accelerator": "B200",
        "accelerators": 8,
        "accelerator_memory_gib": 1432,
        "vcpus": 192,
        "memory_gib": 2048,
        "network_cards": 8,
        "interfaces_per_card": 4,
        "efa_interfaces": 8,
        "ipv4_per_interface": 50,
        "local_disks": 8,
        "local_disk_gb": 3800,
        "hugepages_2mi": 2560,
        "usage": _ALL,
        "hourly_usd": 113.9328,
        "quotas": P6,
        "sagemaker_name": "ml.p6-b200.48xlarge",
    },
    # The only type whose card 0 has no EFA: its 16 EFA interfaces are on cards 1 to 16.
    "p6-b300.48xlarge": {
        "accelerator": "B300",
        "accelerators": 8,
        "accelerator_memory_gib": 2148,
        "vcpus": 192,
        "memory_gib": 4096,
        "network_cards": 17,
        "interfaces_per_card": 4,
        "efa_interfaces": 16,
        "first_efa_card": 1,
        "ipv4_per_interface": 50,
        "local_disks": 8,
        "local_disk_gb": 3800,
        "hugepages_2mi": 2560,
        "usage": _ALL,
        "hourly_usd": 142.416,
        "quotas": P6,
        "sagemaker_name": "ml.p6-b300.48xlarge",
    },
}


_GIB_PER_VCPU: Final = {"c": 2, "m": 4, "r": 8}
_CPU_SIZES: Final = {"xlarge": 4, "2xlarge": 8, "4xlarge": 16, "8xlarge": 32}
_CPU_XLARGE_USD: Final = {
    "c5": 0.17, "c6i": 0.17, "c7i": 0.1785,
    "m5": 0.192, "m6i": 0.192, "m7i": 0.2016,
    "r5": 0.252, "r6i": 0.252, "r7i": 0.2646,
}  # fmt: skip
"""Family to the price of its xlarge; the price list has the larger sizes in proportion to their vCPUs."""


def _cpu(family: str, vcpus: int) -> Facts:
    """Return the facts of a general x86 CPU type: EC2 gives up to 8 vCPU four interfaces of 15 addresses, then eight of
    30."""
    small = vcpus <= 8
    return {
        "vcpus": vcpus,
        "memory_gib": vcpus * _GIB_PER_VCPU[family[0]],
        "interfaces_per_card": 4 if small else 8,
        "ipv4_per_interface": 15 if small else 30,
        "usage": _OD_SPOT,
        "hourly_usd": round(_CPU_XLARGE_USD[family] * vcpus / 4, 4),
        "quotas": STANDARD,
    }


CPU: Final[Mapping[str, Facts]] = {
    f"{family}.{size}": _cpu(family, vcpus)
    for family in _CPU_XLARGE_USD
    for size, vcpus in _CPU_SIZES.items()
    if f"{family}.{size}" != "c5.8xlarge"  # the one that there is not: c5 goes on with 9xlarge
}
