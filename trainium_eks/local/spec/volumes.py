"""A pod's volumes: files to write, directories to make, and mounts for each container."""

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainium_eks.local.spec.environment import contents, expanded, field_value, resource_value
from trainium_eks.local.spec.known import Body, PlanInputs, UnmetError
from trainium_eks.local.spec.plan import Mount
from trainium_eks.model.catalogue.instances import ULTRASERVER
from trainium_eks.model.sizing.quantities import quantity

FILE_MODE = 0o644


@dataclass(frozen=True)
class File:
    """A file of a volume."""

    path: Path
    content: bytes
    mode: int = FILE_MODE


@dataclass(frozen=True)
class Volume:
    """The place of a volume's content."""

    source: Path
    files: tuple[File, ...] = ()
    memory_bytes: int | None = None
    """Size of a volume in memory, 0 for half of the machine's; None for a volume on disk."""
    read_only: bool = False
    is_projection: bool = False
    """Whether Kubernetes makes its content, so that containers cannot."""


@dataclass(frozen=True)
class TokenRequest:
    """A token that a projected volume asks for."""

    volume: str
    path: str
    audience: str


@dataclass(frozen=True)
class References:
    """The objects that a pod names."""

    config_maps: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    tokens: tuple[TokenRequest, ...] = ()


def references(pod: Body) -> References:
    """Return the objects to read from the API server before a pod can be planned."""
    spec = pod["spec"]
    config_maps, secrets, tokens = set(), set(), []
    for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
        sources = [each.get("valueFrom") or {} for each in container.get("env") or ()]
        for source in [*sources, *(container.get("envFrom") or ())]:
            for key in ("configMapKeyRef", "configMapRef"):
                config_maps |= {source[key]["name"]} if key in source else set()
            for key in ("secretKeyRef", "secretRef"):
                secrets |= {source[key]["name"]} if key in source else set()
    for volume in spec.get("volumes") or ():
        for source in (volume, *((volume.get("projected") or {}).get("sources") or ())):
            if "configMap" in source:
                config_maps.add(source["configMap"]["name"])
            if "secret" in source:
                secrets.add(source["secret"].get("secretName") or source["secret"].get("name"))
            if "serviceAccountToken" in source:
                asked = source["serviceAccountToken"]
                tokens.append(TokenRequest(volume["name"], asked["path"], asked.get("audience") or ""))
    return References(tuple(sorted(config_maps)), tuple(sorted(secrets)), tuple(tokens))


def volumes(pod: Body, known: PlanInputs) -> dict[str, Volume]:
    """Return the pod's volumes by their names."""
    return {each["name"]: _volume(each, pod, known) for each in pod["spec"].get("volumes") or ()}


def config_map_volumes(pod: Body) -> dict[str, Body]:
    """Return the sources of the pod's volumes that show one ConfigMap, by their names."""
    return {each["name"]: each["configMap"] for each in pod["spec"].get("volumes") or () if "configMap" in each}


def config_map_files(source: Body, place: Path, found: Mapping[str, Body]) -> tuple[File, ...]:
    """Return the files of such a volume as the ConfigMaps are now. UnmetError: it is not there, or lacks a key."""
    return tuple(_keys(source, source["name"], "configmap", found, place, source.get("defaultMode") or FILE_MODE))


def driver(known: PlanInputs) -> Volume | None:
    """Return the files by which Neuron's driver shows a node's place in its UltraServer; None for other nodes."""
    labels = (known.node.get("metadata") or {}).get("labels") or {}
    place = known.directory.volume("neuron-driver")
    shown = {
        f"{name.replace('-', '_')}_{size}": labels.get(f"{ULTRASERVER}-{name}-{size}", "")
        for name in ("server-id", "node-id")
        for size in (2, 4)
    }
    if not all(shown.values()):
        return None
    # The runtime's modes for four, two (vertical) and one nodes, where the label has the numbers of nodes.
    files = {**shown, "ultraserver_mode": "1,3,4"}
    return Volume(place, tuple(File(place / name, f"{text}\n".encode()) for name, text in files.items()))


def mounts(container: Body, found: Mapping[str, Volume], variables: Mapping[str, str]) -> tuple[Mount, ...]:
    """Return a container's mounts of the volumes."""
    made = []
    for each in container.get("volumeMounts") or ():
        volume = found[each["name"]]
        below = each.get("subPath") or expanded(each.get("subPathExpr") or "", variables)
        if below and (posixpath.isabs(below) or ".." in below.split("/") or "$(" in below):
            raise UnmetError("CreateContainerConfigError", f"subPath {below!r} must be a path in the volume")
        read_only = bool(each.get("readOnly")) or volume.read_only or volume.is_projection
        made.append(Mount(str(volume.source), posixpath.normpath(each["mountPath"]), read_only, below))
    return tuple(made)


def _volume(volume: Body, pod: Body, known: PlanInputs) -> Volume:
    name = volume["name"]
    place = known.directory.volume(name)
    if "persistentVolumeClaim" in volume:
        claim = volume["persistentVolumeClaim"]
        return Volume(known.claims / claim["claimName"], read_only=bool(claim.get("readOnly")))
    if "emptyDir" in volume:
        empty = volume["emptyDir"] or {}
        if empty.get("medium") != "Memory":
            return Volume(place)
        return Volume(place, memory_bytes=int(quantity(str(empty.get("sizeLimit") or "0")) or 0))
    if "hostPath" in volume:
        path = Path(volume["hostPath"]["path"])
        if not path.exists():
            raise UnmetError("ContainerCreating", f'MountVolume.SetUp failed for volume "{name}": there is no {path}')
        return Volume(path)
    if "projected" in volume:
        sources = volume["projected"].get("sources") or ()
        mode = volume["projected"].get("defaultMode") or FILE_MODE
        files = [file for source in sources for file in _files(source, name, mode, pod, known)]
        return Volume(place, tuple(files), is_projection=True)
    if "configMap" in volume:
        return Volume(place, config_map_files(volume["configMap"], place, known.config_maps), is_projection=True)
    if volume.keys() & {"secret", "downwardAPI"}:
        source = next(volume[key] for key in ("secret", "downwardAPI") if key in volume)
        files = list(_files(volume, name, source.get("defaultMode") or FILE_MODE, pod, known))
        return Volume(place, tuple(files), is_projection=True)
    kind = ", ".join(sorted(volume.keys() - {"name"}))
    raise UnmetError("ContainerCreating", f'volume "{name}": the local cloud has no volumes of the kind {kind}')


def _files(source: Body, volume: str, mode: int, pod: Body, known: PlanInputs) -> Iterator[File]:
    place = known.directory.volume(volume)
    if "configMap" in source:
        body = source["configMap"]
        yield from _keys(body, body["name"], "configmap", known.config_maps, place, mode)
    elif "secret" in source:
        body = source["secret"]
        named = body.get("secretName") or body.get("name")
        yield from _keys(body, named, "secret", known.secrets, place, mode)
    elif "downwardAPI" in source:
        for item in source["downwardAPI"].get("items") or ():
            if "fieldRef" in item:
                text = field_value(item["fieldRef"]["fieldPath"], pod, known)
            else:
                text = resource_value(item["resourceFieldRef"], pod, {}, known)
            yield File(place / item["path"], text.encode(), item.get("mode") or mode)
    elif "serviceAccountToken" in source:
        path = source["serviceAccountToken"]["path"]
        yield File(place / path, known.tokens[volume][path].encode(), mode)
    else:
        raise UnmetError("ContainerCreating", f'volume "{volume}": nothing is known of {", ".join(source)}')


def _keys(body: Body, name: str, kind: str, found: Mapping[str, Body], place: Path, mode: int) -> Iterator[File]:
    if name not in found:
        if body.get("optional"):
            return
        why = f'MountVolume.SetUp failed for volume "{place.name}": {kind} "{name}" not found'
        raise UnmetError("ContainerCreating", why)
    data = contents(found[name])
    for item in body.get("items") or ({"key": key, "path": key} for key in data):
        if item["key"] not in data:
            if body.get("optional"):
                continue
            why = (
                f'MountVolume.SetUp failed for volume "{place.name}": references non-existent config key: {item["key"]}'
            )
            raise UnmetError("ContainerCreating", why)
        yield File(place / item["path"], data[item["key"]], item.get("mode") or mode)
