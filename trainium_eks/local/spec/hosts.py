"""The containers' ``/etc/hosts``, in the place of the cluster's DNS.

It has DNS' answers about pods of this machine: a pod's own name, ``<hostname>.<subdomain>`` of pods that a service of
the subdomain's name selects, and names of services, which lead straight to the selected pods. So a service's port must
be its pods' port. Pods that are not ready have names by services with ``publishNotReadyAddresses`` alone (Kubernetes,
DNS for Services and Pods).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trainium_eks.local.spec.known import Body

_DOMAIN = "svc.cluster.local"


@dataclass(frozen=True)
class Host:
    """A pod in other pods' hosts files."""

    namespace: str
    hostname: str
    subdomain: str
    labels: Mapping[str, str]
    address: str
    ready: bool


def text(own: Host, pods: Iterable[Host], services: Sequence[Body]) -> str:
    """Return the hosts file of a pod."""
    # The longest first: a program that looks up its canonical name gets the first.
    full = _names(f"{own.hostname}.{own.subdomain}", own.namespace, own) if own.subdomain else ()
    names = " ".join((*full, own.hostname))
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost", f"{own.address} {names}"]
    found = sorted(pods, key=lambda each: (each.namespace, each.hostname))
    named = {(each["metadata"]["namespace"], each["metadata"]["name"]): each for each in services}
    for each in found:
        service = named.get((each.namespace, each.subdomain))
        if service and each != own and _selects(service, each):
            lines.append(f"{each.address} {' '.join(_names(f'{each.hostname}.{each.subdomain}', each.namespace, own))}")
    for service in sorted(services, key=lambda each: str(each["metadata"]["name"])):
        names = " ".join(_names(service["metadata"]["name"], service["metadata"]["namespace"], own))
        lines += [f"{each.address} {names}" for each in found if _selects(service, each)]
    return "\n".join(lines) + "\n"


def _names(name: str, namespace: str, own: Host) -> list[str]:
    long = [f"{name}.{namespace}.{_DOMAIN}", f"{name}.{namespace}.svc", f"{name}.{namespace}"]
    return [*long, name] if namespace == own.namespace else long


def _selects(service: Body, pod: Host) -> bool:
    selector = service["spec"].get("selector") or {}
    return bool(
        selector
        and service["metadata"]["namespace"] == pod.namespace
        and (pod.ready or service["spec"].get("publishNotReadyAddresses"))
        and selector.items() <= dict(pod.labels).items()
    )
