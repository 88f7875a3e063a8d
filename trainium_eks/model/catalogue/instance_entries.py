"""Catalogue entries from the stack's config: read, completed, validated."""

import datetime
import math
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any

from trainium_eks.model.catalogue import regions
from trainium_eks.model.catalogue.instances import (
    AMI_TYPES,
    Catalogue,
    CatalogueError,
    InstanceType,
    address_pods,
    allocatable_memory_mib,
    allocatable_millicpu,
    max_pods,
    near,
)
from trainium_eks.model.validation.problems import Problem, nearest, snake

FIELDS = tuple(field.name for field in fields(InstanceType) if field.name != "name")
DERIVED = frozenset({"allocatable_millicpu", "allocatable_memory_mib", "max_pods"})
ABSENT: Mapping[str, object] = MappingProxyType({"ultraserver_nodes": 0})
"""Fields that a new entry may leave out."""
OF_THE_TYPE_ALONE: Mapping[str, object] = MappingProxyType(
    {"zones": {}, "hourly_usd": None, "price_date": "", "price_region": "", "sagemaker_name": None}
    | {"block_hourly_usd": None}
)
"""Fields that ``like`` does not copy, and that a new entry may leave out."""

WORDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"family": tuple(AMI_TYPES), "interface_layout": ("efa-only", "ena", "none"), "ami_type": tuple(AMI_TYPES.values())}
)
USAGES = ("on-demand", "spot", "capacity-block")
PRICES = frozenset({"hourly_usd", "block_hourly_usd"})
TEXTS = frozenset({"accelerator", "price_date", "price_region", "quota_on_demand", "quota_spot"})
AT_LEAST_ONE = frozenset({"vcpus", "memory_gib", "network_cards", "interfaces_per_card", "ipv4_per_interface"})
NAME = re.compile(r"[a-z0-9-]+\.[a-z0-9-]+")


def with_entries(catalogue: Catalogue, entries: Mapping[str, Mapping[str, Any]]) -> Catalogue:
    """Return a catalogue with types added or changed, as the stack's config says (``instanceTypes``); CatalogueError
    has every fault of every entry.

    Entries map a name to fields of :class:`InstanceType`, in camelCase or snake_case. A known name needs only the
    fields that change; ``zones`` replace the known zones region by region. A new name needs every field, or ``like``, a
    known type to start from: all fields are copied but zones, price and SageMaker name, which differ between types of
    the same hardware. ``allocatable…`` and ``maxPods`` are derived unless given.
    """
    problems: list[Problem] = []
    types = dict(catalogue)
    for name, entry in entries.items():
        made, faults = _type(catalogue, name, entry)
        problems.extend(faults)
        if made is not None:
            types[name] = made
    if problems:
        raise CatalogueError(tuple(problems))
    return Catalogue(types, is_gated=catalogue.is_gated)


def _type(catalogue: Catalogue, name: str, entry: Mapping[str, Any]) -> tuple[InstanceType | None, list[Problem]]:
    """Return one type from its entry, or the entry's faults."""
    if not NAME.fullmatch(name):
        return None, [Problem(name, "it is not the name of an instance type", "write it as trn2.48xlarge")]
    if not isinstance(entry, Mapping):
        return None, [
            Problem(name, "it must be an object with fields of the catalogue", "write it as {like: trn2.48xlarge}")
        ]
    given = {_snake(key): value for key, value in entry.items()}
    like = given.pop("like", None)
    base, problems = _base(catalogue, name, like)
    problems += [_unknown(name, key) for key in given if key not in FIELDS]
    given = {key: value for key, value in given.items() if key in FIELDS}
    for key, value in given.items():
        reason = _fault(key, value)
        if reason:
            problems.append(Problem(f"{name}.{key}", reason, _OTHER_VALUE))
    problems += [
        Problem(f"{name}.{key}", "it is required and missing", "give it, or start from a known type with `like`")
        for key in FIELDS
        if base is not None and key not in {*base, *given, *DERIVED, *ABSENT, *OF_THE_TYPE_ALONE}
    ]
    if base is None or problems:
        return None, problems
    made = _made(name, base, given)
    problems = [Problem(f"{name}.{key}", reason, _OTHER_VALUE) for key, reason in _contradictions(made)]
    return (None if problems else made), problems


_OTHER_VALUE = "give it another value; what it has is in EC2's DescribeInstanceTypes"


def _unknown(name: str, key: str) -> Problem:
    guess = nearest(key, FIELDS)
    return Problem(
        f"{name}.{key}", "it is no field of the catalogue", f"did you mean {guess}?" if guess else "remove it"
    )


def _base(catalogue: Catalogue, name: str, like: object) -> tuple[dict[str, Any] | None, list[Problem]]:
    """Return the initial fields, of the type, of ``like``, or none for a new type, with faults; None for a wrong
    ``like``."""
    if like is None:
        return ({key: getattr(catalogue[name], key) for key in FIELDS} if name in catalogue else {}), []
    if not isinstance(like, str) or like not in catalogue:
        guess = near(str(like), catalogue)
        return None, [
            Problem(
                f"{name}.like",
                f"{like!r} is not a known type",
                f"did you mean {guess}?" if guess else "name a type of the catalogue",
            )
        ]
    return {key: getattr(catalogue[like], key) for key in FIELDS} | dict(OF_THE_TYPE_ALONE), []


def _made(name: str, values: Mapping[str, Any], given: Mapping[str, Any]) -> InstanceType:
    """Return the type of valid fields, with zones merged, sequences frozen, and derived fields computed anew."""
    merged = {**ABSENT, **OF_THE_TYPE_ALONE, **values, **given}
    zones = {**values.get("zones", {}), **given.get("zones", {})}
    merged["zones"] = MappingProxyType({region: tuple(sorted(ids)) for region, ids in zones.items() if ids})
    merged["usage"] = frozenset(merged["usage"])
    for key, value in merged.items():
        if isinstance(value, float) and key not in PRICES:
            merged[key] = int(value)  # 3.0 is 3: other languages send whole numbers so
    made = InstanceType(**{"name": name, **dict.fromkeys(DERIVED, 0), **merged})
    pods = address_pods(made.interfaces_per_card, made.ipv4_per_interface)
    derived: dict[str, Any] = {
        "allocatable_millicpu": allocatable_millicpu(made.vcpus),
        "allocatable_memory_mib": allocatable_memory_mib(made.memory_gib, pods),
        "max_pods": max_pods(made.vcpus, pods),
    }
    return replace(made, **{key: value for key, value in derived.items() if key not in given})


def _fault(key: str, value: object) -> str:
    """Return the fault of one field by itself, or an empty text."""
    if key in WORDS:
        return "" if value in WORDS[key] else f"{value!r} is not allowed; allowed: {', '.join(WORDS[key])}"
    if key in TEXTS:
        return "" if isinstance(value, str) else "it must be text"
    if key == "sagemaker_name":
        return "" if value is None or isinstance(value, str) else "it must be text or null"
    if key in PRICES:
        return "" if value is None or (_number(value) and value >= 0) else "it must be a price in USD, or null"  # type: ignore[operator]
    if key == "usage":
        sound = isinstance(value, list | tuple | set | frozenset) and value and all(word in USAGES for word in value)
        return "" if sound else f"it must be a list of {', '.join(USAGES)}"
    if key == "zones":
        return _zones_fault(value)
    if not _number(value) or value != int(value):  # type: ignore[call-overload]
        return f"it must be a whole number, not {value!r}"
    least = 1 if key in AT_LEAST_ONE else 0
    return "" if value >= least else f"{value!r} is less than {least}"  # type: ignore[operator]


def _zones_fault(value: object) -> str:
    if not isinstance(value, Mapping):
        return "it must be an object: region to a list of zone ids"
    for region, ids in value.items():
        if not isinstance(ids, list | tuple) or not all(isinstance(zone, str) for zone in ids):
            return f"it must have a list of zone ids for {region}"
        wrong = [zone for zone in ids if regions.zone_belongs(zone, region) is False]
        if wrong:
            example = f"{regions.region_zone_prefix(region)}-az1"
            return f"{', '.join(wrong)}: these are no zone ids of {region}, such as {example}"
    return ""


def _contradictions(made: InstanceType) -> list[tuple[str, str]]:
    """Return the faults that only two fields together show."""
    faults: list[tuple[str, str]] = []
    if (made.family == "cpu") != (made.accelerators == 0):
        faults.append(("accelerators", f"{made.accelerators} does not fit family {made.family}"))
    if made.family != "neuron" and (made.neuron_cores or made.logical_neuron_cores):
        faults.append(("neuron_cores", f"a type of family {made.family} has none"))
    if made.family == "neuron" and not 0 < made.logical_neuron_cores <= made.neuron_cores:
        faults.append(("logical_neuron_cores", f"it must be 1 to neuron_cores ({made.neuron_cores})"))
    if _is_arm(made.name):
        faults.append(("like", f"{made.name} is an arm64 type, and the node images of this stack are x86_64"))
    if AMI_TYPES[made.family] != made.ami_type:
        faults.append(("ami_type", f"{made.ami_type} does not fit family {made.family}: use {AMI_TYPES[made.family]}"))
    if made.efa_interfaces > made.network_cards - made.first_efa_card:
        most = made.network_cards - made.first_efa_card
        faults.append(
            ("efa_interfaces", f"{made.efa_interfaces} do not fit {most} cards: a card takes one EFA interface")
        )
    if (made.interface_layout == "none") != (made.efa_interfaces == 0):
        faults.append(
            ("interface_layout", f"{made.interface_layout} does not fit {made.efa_interfaces} EFA interfaces")
        )
    if made.first_efa_card and made.interface_layout == "efa-only":
        faults.append(("interface_layout", f"it must be ena: card 0 has no EFA before card {made.first_efa_card}"))
    if bool(made.local_disks) != bool(made.local_disk_gb):
        faults.append(("local_disks", "the number of local disks and their size go together"))
    if made.hourly_usd is not None:
        faults += _price_faults(made)
    return faults


def _is_arm(name: str) -> bool:
    """Return whether a type runs on Graviton or Grace: a ``g`` behind its generation (``m7g``, ``im4gn``,
    ``p6e-gb200``)."""
    attributes = re.match(r"[a-z]+[0-9]+([^.]*)[.]", name)
    return name.startswith("a1.") or (attributes is not None and "g" in attributes[1])


def _price_faults(made: InstanceType) -> list[tuple[str, str]]:
    faults = []
    try:
        datetime.date.fromisoformat(made.price_date)
    except ValueError:
        faults.append(("price_date", f"a price needs its date (2026-07-20), not {made.price_date!r}"))
    if not made.price_region:
        faults.append(("price_region", "a price needs its region"))
    return faults


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _snake(name: str) -> str:
    # `hugepages2mi`, as a config would spell hugepages_2mi, has no capital to go by.
    spelled = snake(name)
    return "hugepages_2mi" if spelled.replace("_", "") == "hugepages2mi" else spelled
