"""ResourceQuotas of team namespaces: validation, and default values."""

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal

from trainium_eks.model.catalogue import lustre
from trainium_eks.model.catalogue.instances import Catalogue
from trainium_eks.model.sizing.quantities import quantity, shown
from trainium_eks.model.validation.problems import Problem, join_key, nearest

BACKLOG = 10
"""The default quota of devices, CPU and memory, as a multiple of the amount that may run at once.

Pods that wait for a node count against a quota, too. A job for which the quota has no room waits without pods: the
scheduler's plugin ``resourcequota`` holds it back (decision 77).
"""

SMALL_PODS = 100
"""The pods that a team may have at one time by default besides one for each device of its queues: staging, serving,
and other pods without accelerators."""

FEWEST_PODS = 500
"""The default quota of pods where the queues name no devices and all nodes together hold fewer."""

FINISHED = 4
"""The default quota of pods, ended pods included, as a multiple of the quota at one time. Ended pods stay until their
job is deleted, or until the cluster has 12,500 of them, of all teams."""

VOLCANO_JOBS = "count/jobs.batch.volcano.sh"
"""Quota name of the number of Volcano jobs.

The API server refuses every object of a kind that is counted until the quota controller has seen its definition, which
takes half a minute after Volcano's chart is new."""

OBJECTS: Mapping[str, int] = {
    "configmaps": 500,
    "secrets": 500,
    "persistentvolumeclaims": 100,
    "count/jobs.batch": 500,
    "count/deployments.apps": 100,
    # Of the 10 revisions that Kubernetes keeps of each Deployment.
    "count/replicasets.apps": 1000,
    "count/cronjobs.batch.volcano.sh": 50,
    "count/commands.bus.volcano.sh": 10,
}
"""Default quota of each kind. Objects stay until they are deleted, all teams share one etcd of 8 GiB on EKS, and
each may have 1.5 MiB."""

_PER_POD = (VOLCANO_JOBS, "count/pytorchjobs.kubeflow.org", "count/trainjobs.trainer.kubeflow.org")
"""Kinds of which a team may have as many as it may have pods: each job that runs has one or more."""

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
"""Resources that a quota counts under a plain name (Kubernetes' ``ValidateResourceQuota``, core/validation); besides
these, huge pages, and names with a slash."""

_HUGE_PAGES = re.compile(r"(requests\.)?hugepages-(?P<size>\S+)")
_PART = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_PART}(\.{_PART})*"
_EXTENDED = re.compile(rf"(?P<requests>requests\.)?{_SUBDOMAIN}/[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?")
_OBJECT_COUNT = re.compile(rf"count/{_SUBDOMAIN}")
_CLASS = re.compile(rf"{_SUBDOMAIN}\.storageclass\.storage\.k8s\.io/(requests\.storage|persistentvolumeclaims)")


def room(nodes: Iterable[tuple[str, int]], catalogue: Catalogue) -> dict[str, str]:
    """Return CPU, memory and pods of nodes (instance type and number), as quantities; unknown types count nothing."""
    total: dict[str, Decimal] = {}
    for instance_type, count in nodes:
        if instance_type in catalogue:
            has = catalogue.allocatable(instance_type)
            for name in ("cpu", "memory", "pods"):
                total[name] = total.get(name, Decimal(0)) + max(count, 0) * (quantity(has[name]) or 0)
    return {name: shown(amount) for name, amount in total.items()}


def hard(
    queue_capability: Mapping[str, int],
    room: Mapping[str, str],
    given: Mapping[str, str],
    *,
    claimed_gib: int = 0,
) -> dict[str, str]:
    """Return the ``hard`` values of a namespace's ResourceQuota: what its queues may run at once, the room of all its
    nodes (empty when not known), and the values that the config gives; the default numbers of objects follow its
    ``pods``."""
    most = {name: quantity(amount) or Decimal(0) for name, amount in room.items()}
    found = {f"requests.{name}": shown(BACKLOG * most[name]) for name in ("cpu", "memory") if name in most}
    pods = int(quantity(given.get("pods", "")) or 0) or _pods(queue_capability, int(most.get("pods", 0)))
    counts = {"pods": pods, "count/pods": FINISHED * pods, **OBJECTS, **dict.fromkeys(_PER_POD, pods)}
    # Each TrainJob has a runtime, and each pod of a PyTorchJob a service, as each Volcano job has.
    counts |= {"count/trainingruntimes.trainer.kubeflow.org": pods, "services": pods + SMALL_PODS}
    found |= {name: str(amount) for name, amount in counts.items()}
    found["requests.storage"] = f"{claimed_gib + SCRATCH_GIB}Gi"
    # Each claim of this class creates a file system, at hundreds of dollars a month.
    found[f"{lustre.STORAGE_CLASS}.{CLAIMS_OF_CLASS}"] = "0"
    # Models are served to the namespace. Load balancers and node ports cost money, and are an administrator's choice.
    found |= dict.fromkeys(("services.loadbalancers", "services.nodeports"), "0")
    return found | dict(given)


def _pods(queue_capability: Mapping[str, int], room: int) -> int:
    """Return the default quota of pods: at most one pod for each device requests devices."""
    devices = [count for resource, count in queue_capability.items() if "/" in resource]
    return SMALL_PODS + max(devices) if devices else max(FEWEST_PODS, room)


def counted(hard: Mapping[str, str], name: str) -> int:
    """Return the number of objects that a quota allows; 0 where the amount is no quantity, which :func:`validate`
    refuses."""
    return int(quantity(hard[name]) or 0)


def counted_requests(hard: Mapping[str, str]) -> tuple[str, ...]:
    """Return the resources that a quota counts by requests: ``cpu``, ``memory``, ``aws.amazon.com/neuron``."""
    found = (name.removeprefix("requests.") for name in hard if name.startswith("requests.") or name in _MEASURED)
    return tuple(dict.fromkeys(name for name in found if name != "storage"))


def closed_storage_classes(hard: Mapping[str, str]) -> tuple[str, ...]:
    """Return the storage classes of which a quota allows no claim."""
    ending = f".{CLAIMS_OF_CLASS}"
    none = (name for name, most in hard.items() if name.endswith(ending) and quantity(most) == 0)
    return tuple(name.removesuffix(ending) for name in none)


def validate(hard: Mapping[str, str], path: str) -> list[Problem]:
    """Return the problems of a quota: values that the API server refuses, and names that it accepts and never
    counts."""
    found = []
    for name, amount in hard.items():
        here = join_key(path, name)
        reason, fix = _name_fault(name)
        if reason:
            found.append(Problem(here, reason, fix, value=amount))
        found += _amount_problems(here, name, amount)
    return found


def _name_fault(name: str) -> tuple[str, str]:
    """Return reason and fix, both empty for a name that is counted."""
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
