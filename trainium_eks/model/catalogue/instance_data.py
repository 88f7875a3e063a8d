"""The facts of the catalogue: ``instance_types.csv`` has a row for each type with accelerators, and CPU types are
computed. :mod:`trainium_eks.model.catalogue.instances` derives more from them.

Where they come from:

- vCPU, memory, accelerators, network cards, EFA interfaces, disks, addresses and usage classes: EC2's
  DescribeInstanceTypes, as packaged by moto 5.2.5 (tests hold each entry against it).
- Accelerator memory of Trainium2: the Neuron documentation (96 GiB a chip). EC2 reports 512 GiB a chip.
- Neuron cores of trn2u.48xlarge: the Neuron documentation; EC2 reports no NeuronInfo for it. So is the size
  of its UltraServer.
- Logical Neuron cores: the device plugin under the runtime's default, which joins two physical cores on Trainium2.
- Zones: :mod:`trainium_eks.model.catalogue.instance_zones`.
- Prices: Linux On-Demand list prices in us-east-1 as Karpenter generated them from the price list (v1.14.1,
  2026-07-20); the CPU types' from its table of 2026-01-19. None where no list price was found.
- Prices of Capacity Blocks: EC2's public page of Capacity Blocks' pricing, an instance for an hour, as of
  :data:`BLOCK_PRICE_DATE`. They change with demand. None where none was found.
- Quota codes: Service Quotas of EC2, all counted in vCPU. Empty where no quota of that kind is known.
- SageMaker names: botocore's TrainingInstanceType.
- EFA: p6-b300.48xlarge is the only type without EFA on card 0; its 16 EFA interfaces are on cards 1 to 16.
- Hugepages: the EKS user guide's NCCL tests ask 5120 MiB (2560 pages of 2 MiB) of GPU nodes with EFA; the Neuron
  samples ask for none.
"""

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

NO_DEVICES_IN_EC2: Final = frozenset({"trn2u.48xlarge"})
"""Types of which EC2 reports neither Neuron devices nor GPUs."""

_PRICE_DATE: Final = "2026-07-20"
_PRICE_DATE_CPU: Final = "2026-01-19"
_PRICE_REGION: Final = "us-east-1"

_QUOTAS: Final = {
    "trn": ("L-2C3B7624", "L-6B0D517C"),
    "inf": ("L-1945791B", "L-B5D1601B"),
    "p4": ("L-417A185B", "L-7212CCBC"),
    "p5": ("L-417A185B", "L-C4BD4855"),
    "p6": ("L-417A185B", ""),
    "standard": ("L-1216C47A", "L-34B43A08"),
}
"""Codes of the EC2 quotas that launches count against, On-Demand and Spot."""

BLOCK_PRICE_DATE: Final = "2026-11-28"
"""Day on which the prices of Capacity Blocks were read."""

_PRICES: Final = ("hourly_usd", "block_hourly_usd")
_TEXTS: Final = frozenset({"name", "family", "accelerator", "usage", *_PRICES, "quotas", "sagemaker_name"})

_GIB_PER_VCPU: Final = {"c": 2, "m": 4, "r": 8}
_CPU_SIZES: Final = {"xlarge": 4, "2xlarge": 8, "4xlarge": 16, "8xlarge": 32}
_CPU_XLARGE_USD: Final = {
    "c5": 0.17, "c6i": 0.17, "c7i": 0.1785,
    "m5": 0.192, "m6i": 0.192, "m7i": 0.2016,
    "r5": 0.252, "r6i": 0.252, "r7i": 0.2646,
}  # fmt: skip
"""Family to the price of its xlarge; the price list has the larger sizes in proportion to their vCPUs."""


def rows() -> Iterator[dict[str, Any]]:
    """Yield the facts of each type, by the fields of :class:`.instances.InstanceType`."""
    with Path(__file__).with_name("instance_types.csv").open(encoding="utf-8", newline="") as table:
        for row in csv.DictReader(table):
            numbers = {key: int(value) for key, value in row.items() if key not in _TEXTS}
            price, block = (float(row[each]) if row[each] else None for each in _PRICES)
            name = row["sagemaker_name"] or None
            texts = {"name": row["name"], "family": row["family"], "accelerator": row["accelerator"]}
            usage = row["usage"].split()
            yield (
                texts
                | numbers
                | _offered(usage, row["quotas"], price, _PRICE_DATE)
                | {
                    "sagemaker_name": name,
                    "block_hourly_usd": block,
                }
            )
    for family in _CPU_XLARGE_USD:
        for size, vcpus in _CPU_SIZES.items():
            if (family, size) != ("c5", "8xlarge"):  # the one that there is not: c5 goes on with 9xlarge
                yield _cpu(family, size, vcpus)


def _cpu(family: str, size: str, vcpus: int) -> dict[str, Any]:
    """Return the facts of a general x86 CPU type: EC2 gives up to 8 vCPU four interfaces of 15 addresses, then eight of
    30."""
    none = ("accelerators", "neuron_cores", "logical_neuron_cores", "accelerator_memory_gib", "efa_interfaces")
    return {
        **dict.fromkeys(
            (*none, "first_efa_card", "local_disks", "local_disk_gb", "hugepages_2mi", "ultraserver_nodes"), 0
        ),
        "name": f"{family}.{size}",
        "family": "cpu",
        "accelerator": "",
        "vcpus": vcpus,
        "memory_gib": vcpus * _GIB_PER_VCPU[family[0]],
        "network_cards": 1,
        "interfaces_per_card": 4 if vcpus <= 8 else 8,
        "ipv4_per_interface": 15 if vcpus <= 8 else 30,
        "sagemaker_name": None,
        "block_hourly_usd": None,
        **_offered(("on-demand", "spot"), "standard", round(_CPU_XLARGE_USD[family] * vcpus / 4, 4), _PRICE_DATE_CPU),
    }


def _offered(usage: Iterable[str], quotas: str, hourly_usd: float | None, date: str) -> dict[str, Any]:
    on_demand, spot = _QUOTAS[quotas]
    return {
        "usage": frozenset(usage),
        "hourly_usd": hourly_usd,
        "price_date": "" if hourly_usd is None else date,
        "price_region": "" if hourly_usd is None else _PRICE_REGION,
        "quota_on_demand": on_demand,
        "quota_spot": spot,
    }
