"""ResourceQuotas of team namespaces: what they may say, and what they say by default."""

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal

from trainium_eks.model import lustre
from trainium_eks.model.instances import Catalogue
from trainium_eks.model.problems import Problem, join_key, nearest
from trainium_eks.model.quantities import quantity, shown

BACKLOG = 10
"""The default quota of devices, CPU and memory, as a multiple of what may run at once.

Waiting pods count against a quota too, and without the ``enqueue`` action every waiting job has its pods. Volcano
ends a job whose pods are refused 15 times (``max-requeue-num``). So the queue is the limit, and the quota only a
bound to a runaway submission."""

FEWEST_PODS = 500
"""The default quota of pods where all nodes together hold fewer: staging and other small pods wait, too."""

OBJECTS = ("configmaps", "secrets", "count/jobs.batch")
MOST_OBJECTS = 2000
"""How many of each of those by default. All of them stay until somebody deletes them, and all teams share one etcd.

Volcano's jobs are not among them: the API server refuses every object of a kind that is counted until the quota
controller has seen its definition, which takes half a minute after Volcano's chart is new."""

SCRATCH_GIB = 1024
"""Storage that a team may claim by default besides its share of the file system: EBS volumes of the default class."""

CLAIMS_OF_CLASS = "storageclass.storage.k8s.io/persistentvolumeclaims"
"""Quota name of the number of claims of a storage class, after the class and a dot."""

_COUNTED = (
    "pods",
    "persistentvolumeclaims",
    "services",
    "services.loadbalancers",
    "services.nodeports",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "configmaps",
)
_MEASURED = ("cpu", "memory", "ephemeral-storage")
NAMES = (
    *_COUNTED,
    *_MEASURED,
    *(f"{kind}.{name}" for kind in ("requests", "limits") for name in _MEASURED),
    "requests.storage",
)
"""What a quota counts under a plain name (Kubernetes' ``ValidateResourceQuota``, core/validation); besides these,
huge pages, and names with a slash."""

_HUGE_PAGES = re.compile(r"(requests\.)?hugepages-(?P<size>\S+)")
_PART = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_PART}(\.{_PART})*"
_EXTENDED = re.compile(rf"(?P<requests>requests\.)?{_SUBDOMAIN}/[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?")
_OBJECT_COUNT = re.compile(rf"count/{_SUBDOMAIN}")
_CLASS = re.compile(rf"{_SUBDOMAIN}\.storageclass\.storage\.k8s\.io/(requests\.storage|persistentvolumeclaims)")


def room(nodes: Iterable[tuple[str, int]], catalogue: Catalogue) -> dict[str, str]:
    """CPU, memory and pods of nodes, as quantities.

    Args:
        nodes: instance type and number of nodes; unknown types count nothing.
        catalogue: what a node of each type has.
    """
    total: dict[str, Decimal] = {}
    for instance_type, count in nodes:
        if instance_type in catalogue:
            has = catalogue.allocatable(instance_type)
            for name in ("cpu", "memory", "pods"):
                total[name] = total.get(name, Decimal(0)) + max(count, 0) * (quantity(has[name]) or 0)
    return {name: shown(amount) for name, amount in total.items()}


def default(queue_capability: Mapping[str, int], room: Mapping[str, str], *, claimed_gib: int = 0) -> dict[str, str]:
    """ResourceQuota ``hard`` of a namespace whose config sets none.

    Args:
        queue_capability: resource to amount that its queues may run at once.
        room: CPU, memory and pods of all its nodes, as quantities; empty when that is not known.
        claimed_gib: size of the namespace's claim of the file system, GiB.
    """
    most = {name: quantity(amount) or Decimal(0) for name, amount in room.items()}
    hard = {f"requests.{resource}": str(BACKLOG * count) for resource, count in queue_capability.items()}
    hard |= {f"requests.{name}": shown(BACKLOG * most[name]) for name in ("cpu", "memory") if name in most}
    hard["pods"] = str(max(FEWEST_PODS, int(most.get("pods", 0))))
    hard["requests.storage"] = f"{claimed_gib + SCRATCH_GIB}Gi"
    # Each claim of this class is a file system of its own, at hundreds of dollars a month.
    hard[f"{lustre.STORAGE_CLASS}.{CLAIMS_OF_CLASS}"] = "0"
    # Models are served to the namespace. What opens them to a network costs money, and is an administrator's matter.
    hard |= dict.fromkeys(("services.loadbalancers", "services.nodeports"), "0")
    return hard | dict.fromkeys(OBJECTS, str(MOST_OBJECTS))


def closed_storage_classes(hard: Mapping[str, str]) -> tuple[str, ...]:
    """Storage classes of which a quota allows no claim.

    Args:
        hard: the ResourceQuota's ``hard``.
    """
    ending = f".{CLAIMS_OF_CLASS}"
    none = (name for name, most in hard.items() if name.endswith(ending) and quantity(most) == 0)
    return tuple(name.removesuffix(ending) for name in none)


def problems(hard: Mapping[str, str], path: str) -> list[Problem]:
    """What a real API server would refuse of a quota, and what it would take and never count."""
    found = []
    for name, amount in hard.items():
        here = join_key(path, name)
        reason, fix = _name_fault(name)
        if reason:
            found.append(Problem(here, reason, fix, value=amount))
        found += _amount_problems(here, name, amount)
    return found


def _name_fault(name: str) -> tuple[str, str]:
    """Reason and fix, both empty for a name that is counted."""
    huge_pages = _HUGE_PAGES.fullmatch(name)
    if name in NAMES or (huge_pages and quantity(huge_pages["size"])):
        return "", ""
    if _OBJECT_COUNT.fullmatch(name) or _CLASS.fullmatch(name):
        return "", ""
    extended = _EXTENDED.fullmatch(name)
    if extended and extended["requests"]:
        return "", ""
    if extended:
        counted = f"requests.{name.removeprefix('limits.')}"
        return "extended resources are limited by their requests only", f"name it {counted}"
    guess = nearest(name, NAMES)
    return "it is not a resource that a quota can limit", f"did you mean {guess}?" if guess else "remove it"


def _amount_problems(path: str, name: str, amount: str) -> list[Problem]:
    number = quantity(amount)
    if number is None or number < 0:
        allowed = ("a Kubernetes quantity: 64, 500m, 500Gi",)
        return [Problem(path, "it is not a quantity", "give a number with its unit", value=amount, allowed=allowed)]
    if (name in _COUNTED or "/" in name) and number % 1:
        good = shown(number.to_integral_value(rounding="ROUND_CEILING"))
        return [Problem(path, "it is counted in whole numbers", value=amount, good=good)]
    return []
