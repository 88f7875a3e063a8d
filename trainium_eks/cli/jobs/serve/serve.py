"""``trn serve``: start, change and end a service that answers with a trained model."""

import sys
import time
from collections.abc import Mapping
from typing import Any

from trainium_eks.cli.jobs.serve.serving import ServingOptions, find, warn_of_no_nodes
from trainium_eks.cli.shared.output import write, write_json
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, INTERRUPTED, WRONG_USAGE, Failure, as_typed
from trainium_eks.client.notices import notice
from trainium_eks.client.session import Session, open_session
from trainium_eks.jobs.explain.cluster_snapshot import is_running
from trainium_eks.jobs.objects import batch_jobs
from trainium_eks.jobs.objects.identity import KIND_LABEL
from trainium_eks.jobs.objects.job import REFUSED
from trainium_eks.jobs.serve import serving
from trainium_eks.jobs.serve.serving import Served
from trainium_eks.kube.api import Api, ApiError, ObjectReference
from trainium_eks.kube.cluster import name_of
from trainium_eks.model.validation.problems import nearest

SCHEMA_VERSION = 1
"""Version of the documents of ``--json``."""
LOOK_SECONDS = 0.5
_TRIES = 3
"""Starts of a container that fails for an unknown reason, after which the command stops waiting."""

Json = dict[str, Any]


def run(cluster: ClusterOptions, wanted: ServingOptions, *, replicas: int, wait: bool, dry_run: bool) -> int:
    """Serve a model; return the exit code."""
    with open_session(cluster) as session:
        found = find(session, wanted, serving.SERVE)
        served = Served(found.name, found.model, found.image, found.place, found.queue, replicas, wanted.engine)
        objects = serving.objects(served, session.namespace)
        if dry_run:
            write_json({"apiVersion": "v1", "kind": "List", "items": list(objects)})
            return 0
        warn_of_no_nodes(session, found.place)
        try:
            _apply(session.api, *objects)
        except ApiError as error:
            raise Failure(FAILED, f"{served.name} is refused: {error}") from None
        return _await(session, cluster, served) if wait else _tell(session, cluster, served, "submitted")


def stop(cluster: ClusterOptions, name: str, *, is_also_asked: bool) -> int:
    """End a service; return the exit code.

    Args:
        cluster: options of the command.
        name: of the service.
        is_also_asked: whether a model to serve was given as well, which is refused.
    """
    if is_also_asked:
        raise Failure(WRONG_USAGE, "either a model to serve, or --stop NAME")
    with open_session(cluster) as session:
        deployment = session.api.get(_reference(session, name))
        if deployment is None or not _is_ours(deployment):
            raise Failure(WRONG_USAGE, _no_service(session, name))
        # The Service goes with it, as its owner.
        session.api.delete(_reference(session, name), propagation="Background")
        if cluster.as_json:
            write_json({"schemaVersion": SCHEMA_VERSION, "name": name, "state": "stopped"})
        else:
            write(f"{name} is ended\n")
        return 0


def _apply(api: Api, deployment: Json, service: Json) -> None:
    """Create the Deployment and its Service, or change the Deployment."""
    reference = api.reference(deployment)
    there = api.get(reference)
    if there is not None and not _is_ours(there):
        raise Failure(WRONG_USAGE, f"a Deployment {reference.name} is there, and not of trn serve: choose a --name")
    if there is None:
        made = api.create(deployment)
    else:
        path = api.kind(reference.api_version, reference.kind).path(reference.namespace, reference.name)
        changes = {"metadata": {"annotations": deployment["metadata"]["annotations"]}, "spec": deployment["spec"]}
        # Settings of an earlier request that this one has not must go, too.
        changes["spec"] = _without_leftovers(there["spec"], changes["spec"])
        made = api.request("PATCH", path, changes, content_type="application/merge-patch+json")
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": reference.name, "uid": made["metadata"]["uid"]}
    if api.get(api.reference(service)) is None:
        api.create({**service, "metadata": {**service["metadata"], "ownerReferences": [owner]}})


def _without_leftovers(there: Mapping[str, Any], wanted: Json) -> Json:
    """Return the spec as a merge patch that takes away another place's settings: nodes, queue and scheduler."""
    pod, wanted_pod = there["template"]["spec"], wanted["template"]["spec"]
    selector = dict.fromkeys(pod.get("nodeSelector") or {}) | wanted_pod["nodeSelector"]
    annotations = there["template"]["metadata"].get("annotations") or {}
    metadata = wanted["template"]["metadata"]
    metadata = {**metadata, "annotations": dict.fromkeys(annotations) | metadata.get("annotations", {})}
    changed = {**wanted_pod, "nodeSelector": selector, "schedulerName": wanted_pod.get("schedulerName")}
    return {**wanted, "template": {"metadata": metadata, "spec": changed}}


def _await(session: Session, cluster: ClusterOptions, served: Served) -> int:
    said = ""
    try:
        while True:
            deployment = session.api.get(_reference(session, served.name))
            if deployment is None:
                raise Failure(FAILED, f"{served.name} was ended")
            pods = _pods(session, served.name)
            if _is_ready(deployment):
                return _tell(session, cluster, served, "ready")
            newest = max(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default=None)
            why = _why_not(newest)
            if why.ended:
                last = f"\n{why.text}" if why.text else ""
                from trainium_eks.cli.environment.check import examine

                title = f"{served.name} does not answer; trn serve --stop {served.name} ends it{last}"
                raise examine.with_closing(Failure(FAILED, title), cluster, session.namespace.name, served.name)
            if why.text != said and not cluster.as_json:
                said = why.text
                notice(said)
            time.sleep(LOOK_SECONDS)
    except KeyboardInterrupt:
        sys.stderr.write(as_typed(f"\n{served.name} goes on; trn serve --stop {served.name} ends it\n"))
        return INTERRUPTED


def _pods(session: Session, name: str) -> list[Json]:
    labels = f"{serving.NAME_LABEL}={name},{KIND_LABEL}={serving.SERVE}"
    return session.api.list("v1", "Pod", namespace=session.namespace.name, labels=labels)


def _is_ready(deployment: Mapping[str, Any]) -> bool:
    """Return whether all pods are of the newest generation, and answer."""
    status, wanted = deployment.get("status") or {}, deployment["spec"]["replicas"]
    if status.get("observedGeneration", 0) < deployment["metadata"]["generation"]:
        return False
    return all(
        status.get(name, 0) == wanted for name in ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    )


class _Why:
    """Reason why a pod does not answer yet."""

    def __init__(self, text: str, *, ended: bool = False) -> None:
        self.text = text
        self.ended = ended


def _why_not(pod: Mapping[str, Any] | None) -> _Why:
    if pod is None:
        return _Why("waiting for its pods")
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        states = (status.get("state") or {}, status.get("lastState") or {})
        end = next((each["terminated"] for each in states if "terminated" in each), None)
        if end is not None:
            refused = end.get("exitCode") == REFUSED
            text = str(end.get("message") or f"its container ended with {end.get('exitCode')}").strip()
            return _Why(text, ended=refused or status.get("restartCount", 0) >= _TRIES)
    return _Why(batch_jobs.why_waiting(pod) or "the model is being loaded")


def _tell(session: Session, cluster: ClusterOptions, served: Served, state: str) -> int:
    url = served.url(session.namespace.name)
    if cluster.as_json:
        shown = {"name": served.name, "namespace": session.namespace.name, "state": state, "url": url}
        more = {"model": served.model, "image": served.image, "replicas": served.replicas, "port": serving.PORT}
        write_json({"schemaVersion": SCHEMA_VERSION, **shown, **more})
        return 0
    lines = [f"{served.name} {'answers' if state == 'ready' else 'is being started'} in the namespace at {url}"]
    if session.is_local:
        # kubectl port-forward is refused there, and pods' addresses are not of this machine.
        pod = next((name_of(pod) for pod in _pods(session, served.name) if is_running(pod)), "POD")
        before = f"trn local exec {pod} --namespace {session.namespace.name} -- "
    else:
        lines.append(f"  from here: kubectl port-forward service/{served.name} {serving.PORT}")
        before, url = "", f"http://127.0.0.1:{serving.PORT}"
    if served.engine in ("auto", "classifier"):
        lines.append(f'  a classifier: {before}curl --json \'{{"texts": ["…"]}}\' {url}/predict')
    if served.engine != "classifier":
        said = f'{{"model": "{served.name}", "messages": [{{"role": "user", "content": "…"}}], "max_tokens": 50}}'
        lines.append(f"  a chat: {before}curl --json '{said}' {url}/v1/chat/completions")
    lines.append(f"  its end: trn serve --stop {served.name}")
    write(as_typed("\n".join(lines)) + "\n")
    return 0


def _reference(session: Session, name: str) -> ObjectReference:
    return ObjectReference("apps/v1", "Deployment", session.namespace.name, name)


def _is_ours(deployment: Mapping[str, Any]) -> bool:
    return (deployment["metadata"].get("labels") or {}).get(KIND_LABEL) == serving.SERVE


def _no_service(session: Session, name: str) -> str:
    labels = f"{KIND_LABEL}={serving.SERVE}"
    there = session.api.list("apps/v1", "Deployment", namespace=session.namespace.name, labels=labels)
    names = [each["metadata"]["name"] for each in there]
    near = nearest(name, names)
    meant = f"did you mean {near}?" if near else f"there are {', '.join(names)}" if names else "there is none"
    return f"nothing of the name {name!r} is served in {session.namespace.name}: {meant}"
