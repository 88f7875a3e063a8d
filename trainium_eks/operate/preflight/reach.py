"""Check that this machine reaches the Kubernetes API, which `up` needs for every object in the cluster."""

import ipaddress
import os
import socket
from collections.abc import Callable, Iterator
from functools import partial

from trainium_eks.aws.account import NotCheckedError
from trainium_eks.model.finding import Finding
from trainium_eks.model.validation.problems import config_path
from trainium_eks.operate.preflight.existing_resources import AccountState
from trainium_eks.operate.preflight.question import Question, failed, passed, warned
from trainium_eks.plan.rules._endpoint import HTTPS, Endpoint

PATIENCE_SECONDS = 5.0

_OTHER_MACHINE = "run this on a machine in the VPC or in a peer's range (docs/deploying.md, Production from nothing)"

Connect = Callable[[str], str]
"""Function that connects to a host on port 443, and returns the reason for a failure; empty for success."""


def questions(present: AccountState, connect: "Connect | None" = None) -> Iterator[Question]:
    """Yield a question for each cluster."""
    for endpoint in present.needs.endpoints:
        ask = partial(_reached, endpoint, present, connect or _connect)
        yield Question("network/api", "the Kubernetes API from here", ask)


def _reached(endpoint: Endpoint, present: AccountState, connect: Connect) -> Finding:
    """Connect to a running cluster; before there is one, look whether this machine's address is let in."""
    running = present.cluster()
    if running is None or not running.get("endpoint"):
        return _let_in(endpoint)
    if os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy"):
        raise NotCheckedError("a proxy is between here and the API (HTTPS_PROXY)")
    host = str(running["endpoint"]).removeprefix("https://")
    why = connect(host)
    if not why:
        return passed(f"{host} takes connections")
    remedy = _OTHER_MACHINE
    if endpoint.public:
        remedy = f"add this machine's public address to {config_path('cluster.endpoint.public_access_cidrs')}"
    return failed(f"{host}: {why}; `up` would stop at the first Kubernetes object", remedy)


def _let_in(endpoint: Endpoint) -> Finding:
    if endpoint.public:
        return passed(f"once it is there, from {', '.join(endpoint.public)}")
    for text in endpoint.private:
        here = _address_towards(text)
        if here is not None and here in ipaddress.ip_network(text):
            return passed(f"once it is there: {here}, this machine's address, is in {text}")
    ranges = ", ".join(endpoint.private) or "no range"
    return warned(f"no address of this machine is in {ranges}, which alone will reach the API", _OTHER_MACHINE)


def _address_towards(text: str) -> "ipaddress.IPv4Address | None":
    """Return the address by which this machine would send to a range; no packet is sent."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            datagrams.connect((str(ipaddress.IPv4Network(text)[1]), HTTPS))
            return ipaddress.IPv4Address(datagrams.getsockname()[0])
    except (OSError, ValueError, IndexError):
        return None


def _connect(host: str) -> str:
    try:
        socket.create_connection((host, HTTPS), PATIENCE_SECONDS).close()
    except OSError as error:
        return str(error) or type(error).__name__
    return ""
