"""The comparison of a stack's objects with its cluster, by one mechanism for every kind: the Kubernetes objects of the
stack's state, the objects of its Helm releases, the labels and taints of its node groups."""

import base64
import gzip
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from trainium_eks.diagnose.cluster_state import ClusterState
from trainium_eks.diagnose.local_report import LocalReport
from trainium_eks.kube import drift
from trainium_eks.kube.api import Api, ApiError, NoSuchKindError, ObjectReference, in_parallel
from trainium_eks.kube.cluster import Object, labels_of, name_of
from trainium_eks.model.catalogue.instances import EKS_EFFECTS, FABRIC_UNTESTED
from trainium_eks.model.finding import Finding, Status, failed, not_checked, passed
from trainium_eks.model.sizing.quantities import quantity
from trainium_eks.model.validation.parsing import parse_json
from trainium_eks.observe.faults.catalogue import BY_NAME
from trainium_eks.operate.cleanup.state import StackState, StateResource
from trainium_eks.operate.verify import additions

OBJECTS = "objects of the stack"
_RELEASE = "kubernetes:helm.sh/v3:Release"
_MANY = 4
"""Objects of a kind in one namespace that are read by a list: fewer take as many requests as pages of a long list."""


@dataclass(frozen=True)
class ObjectComparison:
    """The comparison of a stack's objects with its cluster."""

    drifted: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """``Kind namespace/name`` to its differences, a line each."""
    count: int = 0
    unread: Mapping[str, str] = field(default_factory=dict)
    """Objects, in words, that were not compared, to the reason."""
    commands: Mapping[str, str] = field(default_factory=dict)
    """Object of a Helm release to the command that sets it back on AWS, where an `up` does not look into releases."""
    groups: Sequence[StateResource] = ()
    """Node groups of the state."""
    huge_pages: Mapping[str, int] = field(default_factory=dict)
    """Name of a node group in EKS to the 2 MiB pages that its user data reserves on each node."""
    added: Mapping[str, str] = field(default_factory=dict)
    """``Kind namespace/name`` of objects beside the stack's that bear on a team, to what they say."""


_Wanted = tuple[Object, str, str]
"""Manifest, namespace where it names none, and the command of Helm that applies it again."""


def compare(api: Api, state: StackState, local: LocalReport | None, teams: Collection[str] = ()) -> ObjectComparison:
    """Compare the objects of a stack's state, and of its Helm releases, with the cluster's, and find what was added to
    the namespaces of these teams or to the rights of their researchers.

    The comparison takes the right to patch: see :mod:`trainium_eks.kube.drift`.
    """
    if state.pending:
        return ObjectComparison(unread={OBJECTS: "an update is running, or was interrupted: trn orphans"})
    resources = [each for each in state.resources if each.id and not each.replaced]
    of_type = {type_: [each for each in resources if each.type == type_] for type_ in {each.type for each in resources}}
    wanted: list[_Wanted] = [
        (_manifest(each), "", "") for each in resources if each.type.startswith("kubernetes:") and "kind" in each.inputs
    ]
    drifted: dict[str, Sequence[str]] = {}
    for release in of_type.get(_RELEASE, ()):
        name, namespace = str(release.outputs.get("name")), str(release.outputs.get("namespace"))
        if local is None or not local.missing(name):
            objects = _of_release(api, name, namespace)
            drifted |= {} if objects else {f"Helm release {namespace}/{name}": ("is not deployed",)}
            wanted += objects
    unread = {"the insides of EKS add-ons": "AWS makes them"} if of_type.get("aws:eks/addon:Addon") else {}
    if any(manifest["kind"] == "Secret" for manifest, _, _ in wanted):
        unread["values of secrets"] = "the state hides them"

    read = _reader(api, wanted)

    def compared(each: _Wanted) -> tuple[str, Sequence[str]]:
        try:
            return drift.differences(api, each[0], each[1], read)
        except ApiError as error:
            unread.setdefault(f"{each[0]['kind']} objects", str(error).partition("\n")[0])
            return "", ()

    found = in_parallel(compared, wanted)
    drifted |= {about: lines for about, lines in found if lines}
    # With a namespace go its objects.
    gone = [about for about, lines in drifted.items() if lines[0] in (drift.GONE, drift.ENDING)]
    lost = tuple(f"{about.partition(' ')[2]}/" for about in gone if about.startswith("Namespace "))
    return ObjectComparison(
        {about: lines for about, lines in drifted.items() if not about.partition(" ")[2].startswith(lost)},
        sum(bool(about) for about, _ in found),
        unread,
        {about: command for (about, _), (_, _, command) in zip(found, wanted, strict=True) if command},
        groups := of_type.get("aws:eks/nodeGroup:NodeGroup", ()),
        dict(_huge_pages(groups, of_type.get("aws:ec2/launchTemplate:LaunchTemplate", ()))),
        _added(api, wanted, of_type.get("aws:eks/accessEntry:AccessEntry", ()), teams, unread) if teams else {},
    )


def _reader(api: Api, wanted: Sequence[_Wanted]) -> Callable[[ObjectReference], Object | None]:
    """Return a function that reads an object: of many of one kind in one place by the list that is made here."""

    def place_of(each: _Wanted) -> tuple[str, str, str] | None:
        try:
            reference = api.reference(drift.with_namespace(api, each[0], each[1]))
        except NoSuchKindError:
            return None
        return reference.api_version, reference.kind, reference.namespace

    def listed(place: tuple[str, str, str]) -> dict[str, Object] | None:
        try:
            return {name_of(each): each for each in api.list(*place[:2], namespace=place[2])}
        except ApiError:
            return None  # each object says why

    places = Counter(filter(None, in_parallel(place_of, wanted)))
    many = [place for place, count in places.items() if count >= _MANY]
    lists = dict(zip(many, in_parallel(listed, many), strict=True))

    def read(reference: ObjectReference) -> Object | None:
        found = lists.get((reference.api_version, reference.kind, reference.namespace))
        return api.get(reference) if found is None else found.get(reference.name)

    return read


def _huge_pages(groups: Sequence[StateResource], templates: Sequence[StateResource]) -> Iterator[tuple[str, int]]:
    boot = {each.id: base64.b64decode(str(each.inputs.get("userData") or "")) for each in templates}
    for group in groups:
        template = str((group.inputs.get("launchTemplate") or {}).get("id"))
        if pages := re.search(rb"vm\.nr_hugepages *= *(\d+)", boot.get(template, b"")):
            yield str(group.outputs.get("nodeGroupName")), int(pages[1])


def _added(
    api: Api,
    wanted: Sequence[_Wanted],
    entries: Sequence[StateResource],
    teams: Collection[str],
    unread: dict[str, str],
) -> dict[str, str]:
    """Return the objects that a person added; a kind that may not be listed goes into ``unread``."""

    def listed(kind: str) -> Sequence[Object]:
        try:
            return api.list(additions.KINDS.get(kind, "v1"), kind)
        except NoSuchKindError:
            return ()
        except ApiError as error:
            unread.setdefault(f"{kind} objects", str(error).partition("\n")[0])
            return ()

    namespaces, *found = in_parallel(listed, ["Namespace", *additions.KINDS])
    made, groups = set(), set()
    for manifest, namespace, _ in wanted:
        kind, where = manifest["kind"], str(manifest["metadata"].get("namespace") or namespace)
        made |= {f"{kind} {where}/{manifest['metadata']['name']}", f"{kind} {manifest['metadata']['name']}"}
        if kind == "RoleBinding" and where in teams:
            groups |= {each["name"] for each in manifest.get("subjects") or () if each["kind"] == "Group"}
    people = {
        str(each.inputs["principalArn"]) for each in entries if groups & {*(each.inputs.get("kubernetesGroups") or ())}
    }
    places = {name_of(each): labels_of(each) for each in namespaces if name_of(each) in teams}
    return dict(additions.added([one for each in found for one in each], made, additions.Teams(places, groups, people)))


def checks(cluster: ClusterState, made: ObjectComparison) -> Iterator[Finding]:
    """Check that each object is as the stack made it."""
    for about, lines in sorted({**made.drifted, **dict(_nodes(cluster, made.groups))}.items()):
        command = made.commands.get(about) if cluster.local is None else ""
        if any(drift.ADDED in line for line in lines):
            kind, _, place = about.partition(" ")
            namespace, _, name = place.rpartition("/")
            command = " ".join(
                filter(None, ("kubectl edit", kind.lower(), name, namespace and f"--namespace {namespace}"))
            )
        remedy = BY_NAME["object-drifted"].mend(restore=command or cluster.restore)
        detail, faults = (lines[0], ()) if len(lines) == 1 else (f"{len(lines)} fields are not as made", lines)
        yield failed(f"objects/{about.replace(' ', '/')}", about, detail, remedy, faults, fault="object-drifted")
    for about, does in sorted(made.added.items()):
        kind, _, place = about.partition(" ")
        namespace, _, name = place.rpartition("/")
        remedy = BY_NAME["object-added"].mend(object=f"{kind.lower()} {name}" + (namespace and f" -n {namespace}"))
        detail = f"the stack did not make it: {does}"
        yield failed(f"objects/{about.replace(' ', '/')}", about, detail, remedy, fault="object-added")
    yield from _short_of_pages(cluster, made.huge_pages)
    if made.count:
        yield passed("objects/all", "objects", f"{made.count - len(made.drifted)} as the stack made them")
    for what, why in made.unread.items():
        yield not_checked(f"objects/{what}", what, why)


def without_repeats(found: Sequence[Finding]) -> list[Finding]:
    """Return findings without lost or stopped objects that another failure is about: each fault is reported once."""
    told = {about for each in found if each.status is Status.FAIL for about in each.data.get("objects", ())}

    def is_repeated(check: Finding) -> bool:
        is_lost = check.text in (drift.GONE, drift.ENDING) or check.text.startswith("spec.replicas is 0,")
        return check.section == "objects" and is_lost and check.subject in told

    return [each for each in found if not is_repeated(each)]


def _manifest(resource: StateResource) -> Object:
    """Return the manifest that a resource was made from, without the fields that its updates leave alone."""
    manifest: Object = resource.inputs
    for path in resource.ignored:
        manifest = _without(manifest, path.split("."))
    return manifest


def _without(value: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any]:
    inner = value.get(path[0])
    return {**value, path[0]: _without(inner, path[1:]) if path[1:] and isinstance(inner, Mapping) else drift.IGNORED}


def _of_release(api: Api, name: str, namespace: str) -> list[_Wanted]:
    """Return the objects that Helm keeps of a release's newest revision; none where it is not deployed."""
    kept = api.list("v1", "Secret", namespace=namespace, labels=f"owner=helm,name={name}")
    newest = max(kept, key=lambda each: int(labels_of(each)["version"]), default=None)
    if newest is None or labels_of(newest)["status"] != "deployed":
        return []
    text = gzip.decompress(base64.b64decode(base64.b64decode(newest["data"]["release"]))).decode()
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found = [each for each in yaml.load_all(parse_json(text)["manifest"], loader) if each]
    for webhook in (webhook for each in found for webhook in each.get("webhooks") or ()):
        # Programs of charts write both: their authority, and Fail once they answer.
        webhook["clientConfig"].pop("caBundle", None)
        if webhook.get("failurePolicy") == "Ignore":
            del webhook["failurePolicy"]
    place = f"--namespace {namespace}"
    command = f"helm get manifest {name} {place} | kubectl apply --server-side --force-conflicts {place} -f -"
    return [(each, namespace, command) for each in found]


def _short_of_pages(cluster: ClusterState, huge_pages: Mapping[str, int]) -> Iterator[Finding]:
    for group, pages in huge_pages.items():
        for node in cluster.nodes_of(group):
            has = (node.get("status", {}).get("capacity") or {}).get("hugepages-2Mi", "0")
            if (quantity(has) or 0) < pages * 2**21:
                remedy = BY_NAME["hugepages-missing"].mend(node=name_of(node))
                remedy = remedy if cluster.local is None else f"{cluster.deploy} sets it back"
                detail = f"hugepages-2Mi is {has}, was made as {2 * pages}Mi"
                id_ = f"objects/Node/{name_of(node)}/hugepages"
                yield failed(id_, f"Node {name_of(node)}", detail, remedy, fault="hugepages-missing")


def _nodes(cluster: ClusterState, groups: Sequence[StateResource]) -> Iterator[tuple[str, list[str]]]:
    """Yield the nodes that lack a label or a taint of their managed group. The gate's taint is taken off again."""
    effects = {eks: effect for effect, eks in EKS_EFFECTS.items()}
    for group in groups:
        due = [
            (each["key"], each.get("value") or "", effects[each["effect"]])
            for each in group.inputs.get("taints") or ()
            if each["key"] != FABRIC_UNTESTED.key
        ]
        labels = group.inputs.get("labels") or {}
        for node in cluster.nodes_of(str(group.outputs.get("nodeGroupName"))):
            has = {(each["key"], each.get("value") or "", each["effect"]) for each in node["spec"].get("taints") or ()}
            lines = [
                f"label {key} is {labels_of(node).get(key, 'missing')}, was made as {value}"
                for key, value in labels.items()
                if labels_of(node).get(key) != value
            ]
            lines += [
                f"taint {key}={value}:{effect} is missing"
                for key, value, effect in due
                if (key, value, effect) not in has
            ]
            if lines:
                yield f"Node {name_of(node)}", lines
