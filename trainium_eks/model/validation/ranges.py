"""IPv4 ranges: the ranges that no network may use, and the number of public addresses in a list of ranges.

The validators of a config and the rules over a recorded program share these facts.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from types import MappingProxyType

Range = ipaddress.IPv4Network

EVERYWHERE = "0.0.0.0/0"
"""Every address."""

PRIVATE = tuple(Range(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))
"""RFC 1918. EKS takes service addresses from these alone, and refuses them for its public endpoint."""

UNUSABLE: Mapping[Range, str] = MappingProxyType(
    {
        Range("0.0.0.0/8"): "no host of another network",  # RFC 1122
        Range("127.0.0.0/8"): "the machine itself",  # RFC 1122
        Range("169.254.0.0/16"): "link-local: instance metadata and Pod Identity",  # RFC 3927
        Range("224.0.0.0/4"): "multicast",  # RFC 5771
        Range("240.0.0.0/4"): "reserved",  # RFC 1112
    }
)
"""Ranges that no VPC and no peer can have, each with its purpose (IANA's registry of special addresses)."""

SHARED = Range("100.64.0.0/10")
"""RFC 6598: carrier-grade NAT. A VPC and its pods may use it; it never reaches an endpoint on the internet."""

MOST_PUBLIC_ADDRESSES = 2**24
"""Addresses in a /8. An endpoint open to more addresses is not limited to offices and runners."""


def read(text: str) -> Range | None:
    """Return the range, or None for a text that is no range, lacks its prefix or has bits set behind it."""
    try:
        return Range(text) if "/" in text else None
    except ValueError:
        return None


def overlap(one: str, other: str) -> bool:
    """Return whether two ranges share an address; a text that is no range shares none."""
    first, second = read(one), read(other)
    return first is not None and second is not None and first.overlaps(second)


def unusable(text: str) -> str:
    """Return the purpose that reserves the range or a part of it; empty when a network can have it."""
    network = read(text)
    return next((use for reserved, use in UNUSABLE.items() if network and network.overlaps(reserved)), "")


def never_public(text: str) -> bool:
    """Return whether no address of the range can come from the internet: private, shared or reserved."""
    network = read(text)
    return network is not None and any(network.subnet_of(each) for each in (*PRIVATE, *UNUSABLE, SHARED))


def public_addresses(texts: Iterable[str]) -> int:
    """Return the number of addresses in the ranges, each counted once. Texts that are no range count nothing."""
    return sum(each.num_addresses for each in ipaddress.collapse_addresses(filter(None, map(read, texts))))
