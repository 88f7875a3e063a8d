"""IPv4 ranges: which of them no network may use, and how much of the internet a list of them opens.

The one source of these facts for the judges of a config and for the rules over a recorded program.
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
"""Ranges that no VPC and no peer can have, each with what it is for (IANA's registry of special addresses)."""

SHARED = Range("100.64.0.0/10")
"""RFC 6598: carrier-grade NAT. A VPC and its pods may use it; it never reaches an endpoint on the internet."""

MOST_PUBLIC_ADDRESSES = 2**24
"""As many addresses as a /8. Whoever opens an endpoint to more does not name offices and runners any more."""


def read(text: str) -> Range | None:
    """The range, or None for a text that is none (also one with bits set behind its prefix)."""
    try:
        return Range(text)
    except ValueError:
        return None


def overlap(one: str, other: str) -> bool:
    """Whether two ranges share an address; a text that is no range shares none."""
    first, second = read(one), read(other)
    return first is not None and second is not None and first.overlaps(second)


def unusable(text: str) -> str:
    """What the range, or a part of it, is reserved for; empty when a network can have it."""
    network = read(text)
    return next((use for reserved, use in UNUSABLE.items() if network and network.overlaps(reserved)), "")


def never_public(text: str) -> bool:
    """Whether no address of the range can come from the internet: private, shared or reserved."""
    network = read(text)
    return network is not None and any(network.subnet_of(each) for each in (*PRIVATE, *UNUSABLE, SHARED))


def public_addresses(texts: Iterable[str]) -> int:
    """How many addresses the ranges hold together, each counted once. Texts that are no range count nothing."""
    return sum(each.num_addresses for each in ipaddress.collapse_addresses(filter(None, map(read, texts))))
