"""A container's environment variables and its command, as the kubelet makes them.

Sources: Kubernetes' documentation, "Define Environment Variables for a Container", "Downward API"; the expansion of
``$(NAME)`` is described at ``EnvVar`` in the API reference.
"""

import base64
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from trainium_eks.local.spec.known import Body, PlanInputs, UnmetError
from trainium_eks.model.sizing.quantities import quantity

_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """Return the text with ``$(NAME)`` replaced; ``$$`` is ``$``, and unknown names stay unchanged."""

    def value(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        return variables.get(found[1], found[0])

    return _REFERENCE.sub(value, text)


def variables(pod: Body, container: Body, known: PlanInputs) -> dict[str, str]:
    """Return a container's variables: services', then ``envFrom``, then ``env``, a later one over an earlier."""
    made: dict[str, str] = {}
    if pod["spec"].get("enableServiceLinks", True):
        made |= service_variables(known.services, pod["metadata"]["namespace"])
    made |= _kubernetes(known)
    for source in container.get("envFrom") or ():
        made |= _all_of(source, container["name"], known)
    for each in container.get("env") or ():
        if "valueFrom" in each:
            value = _value_from(each["valueFrom"], pod, container, known)
            if value is not None:
                made[each["name"]] = value
        else:
            made[each["name"]] = expanded(each.get("value") or "", made)
    return made


def service_variables(services: Sequence[Body], namespace: str) -> dict[str, str]:
    """Return the variables of the services in a container's namespace (``NAME_SERVICE_HOST``, and Docker's links)."""
    made: dict[str, str] = {}
    for service in services:
        spec, address = service["spec"], service["spec"].get("clusterIP")
        if service["metadata"]["name"] == "kubernetes" and namespace == "default":
            continue  # every pod gets that service's variables, with the API server's address for pods
        if service["metadata"]["namespace"] != namespace or not address or address == "None" or not spec.get("ports"):
            continue
        made |= _of_service(service["metadata"]["name"], address, spec["ports"])
    return made


def field_value(path: str, pod: Body, known: PlanInputs) -> str:
    """Return the value of a ``fieldRef``."""
    metadata, spec, status = pod["metadata"], pod["spec"], known.node.get("status") or {}
    if found := _SUBSCRIPT.fullmatch(path):
        return str((metadata.get(found[1]) or {}).get(found[2], ""))
    host = next((each["address"] for each in status.get("addresses") or () if each["type"] == "InternalIP"), "")
    values = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "metadata.labels": _lines(metadata.get("labels") or {}),
        "metadata.annotations": _lines(metadata.get("annotations") or {}),
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        "status.podIP": known.reached_at,
        "status.podIPs": known.reached_at,
        "status.hostIP": host,
        "status.hostIPs": host,
    }
    if path not in values:
        raise UnmetError("CreateContainerConfigError", f"unsupported pod field: {path}")
    return str(values[path])


def resource_value(reference: Body, pod: Body, container: Body, known: PlanInputs) -> str:
    """Return the value of a ``resourceFieldRef``, in units of its divisor, rounded up."""
    spec = pod["spec"]
    named = reference.get("containerName")
    if named:
        every = [*(spec.get("initContainers") or ()), *spec["containers"]]
        container = next((each for each in every if each["name"] == named), container)
    kind, _, resource = reference["resource"].partition(".")
    amounts = (container.get("resources") or {}).get(kind) or {}
    amount = amounts.get(resource)
    if amount is None and kind == "limits":
        # A container without a limit may use all of the node's allocatable amount.
        amount = ((known.node.get("status") or {}).get("allocatable") or {}).get(resource)
    divisor = quantity(str(reference.get("divisor") or "1")) or 1
    return str(math.ceil((quantity(str(amount or "0")) or 0) / divisor))


def command(container: Body, made: Mapping[str, str]) -> tuple[str, ...]:
    """Return a container's command and arguments."""
    argv = tuple(expanded(each, made) for each in (*(container.get("command") or ()), *(container.get("args") or ())))
    if not argv:
        why = "no command specified: local images have no default, set `command`"
        raise UnmetError("CreateContainerError", why, container["name"])
    return argv


def _kubernetes(known: PlanInputs) -> dict[str, str]:
    host, port = known.api_server
    return _of_service("kubernetes", host, [{"name": "https", "port": port, "protocol": "TCP"}])


def _of_service(name: str, address: str, ports: Sequence[Body]) -> dict[str, str]:
    prefix = name.upper().replace("-", "_")
    first = ports[0]
    made = {f"{prefix}_SERVICE_HOST": address, f"{prefix}_SERVICE_PORT": str(first["port"])}
    protocol = str(first.get("protocol") or "TCP").lower()
    made[f"{prefix}_PORT"] = f"{protocol}://{address}:{first['port']}"
    for port in ports:
        if port.get("name"):
            made[f"{prefix}_SERVICE_PORT_{port['name'].upper().replace('-', '_')}"] = str(port["port"])
        protocol = str(port.get("protocol") or "TCP")
        start = f"{prefix}_PORT_{port['port']}_{protocol}"
        made |= {
            start: f"{protocol.lower()}://{address}:{port['port']}",
            f"{start}_PROTO": protocol.lower(),
            f"{start}_PORT": str(port["port"]),
            f"{start}_ADDR": address,
        }
    return made


def _all_of(source: Body, container: str, known: PlanInputs) -> dict[str, str]:
    reference = source.get("configMapRef") or source.get("secretRef") or {}
    kind, found = ("configmap", known.config_maps) if "configMapRef" in source else ("secret", known.secrets)
    body = found.get(reference.get("name", ""))
    if body is None:
        if reference.get("optional"):
            return {}
        raise UnmetError("CreateContainerConfigError", f'{kind} "{reference.get("name")}" not found', container)
    return {f"{source.get('prefix') or ''}{key}": text for key, text in texts(body).items()}


def _value_from(source: Body, pod: Body, container: Body, known: PlanInputs) -> str | None:
    if "fieldRef" in source:
        return field_value(source["fieldRef"]["fieldPath"], pod, known)
    if "resourceFieldRef" in source:
        return resource_value(source["resourceFieldRef"], pod, container, known)
    for kind, field, found in (
        ("configmap", "configMapKeyRef", known.config_maps),
        ("secret", "secretKeyRef", known.secrets),
    ):
        if reference := source.get(field):
            return _key(reference, kind, found, container["name"])
    raise UnmetError("CreateContainerConfigError", f"unsupported source: {', '.join(source)}", container["name"])


def _key(reference: Body, kind: str, found: Mapping[str, Body], container: str) -> str | None:
    body = found.get(reference["name"])
    if body is not None and reference["key"] in texts(body):
        return texts(body)[reference["key"]]
    if reference.get("optional"):
        return None
    where = f'{kind} "{reference["name"]}" not found'
    if body is not None:
        where = f"couldn't find key {reference['key']} in {kind.title()} {reference['name']}"
    raise UnmetError("CreateContainerConfigError", where, container)


def texts(body: Body) -> dict[str, str]:
    """Return the data of a ConfigMap or Secret as text."""
    return {key: value.decode(errors="replace") for key, value in contents(body).items()}


def contents(body: Body) -> dict[str, bytes]:
    """Return the data of a ConfigMap or Secret."""
    if body["kind"] == "Secret":
        return {key: base64.b64decode(value) for key, value in (body.get("data") or {}).items()}
    made = {key: str(value).encode() for key, value in (body.get("data") or {}).items()}
    return made | {key: base64.b64decode(value) for key, value in (body.get("binaryData") or {}).items()}


def _lines(values: Mapping[str, Any]) -> str:
    """Return labels or annotations as the downward API writes them."""
    return "\n".join(f"{key}={json.dumps(str(value), ensure_ascii=False)}" for key, value in sorted(values.items()))
