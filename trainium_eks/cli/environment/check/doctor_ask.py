"""Queries of a stack's Prometheus for firing alerts.

They use a forwarded port, as `kubectl port-forward` does: it ends on the pod's own node. The API server's proxy would
come from an address of the control plane, which the network policy of the namespace does not let in.
"""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPException

from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, Failure
from trainium_eks.client.session import Session, open_session
from trainium_eks.kube.cluster import Object, name_of
from trainium_eks.kube.errors import ClusterError
from trainium_eks.model.config import namespaces
from trainium_eks.model.outputs import NamespaceOutput
from trainium_eks.observe.alerts import firing as answers
from trainium_eks.observe.alerts.firing import Firing

NAMESPACE = NamespaceOutput(name=namespaces.MONITORING, queues=(), service_account="", claim="")
LABELS = "app.kubernetes.io/name=prometheus"
"""Labels that the operator gives to Prometheus' pods."""
PORT = 9090
ANSWER_SECONDS = 15


def firing(cluster: ClusterOptions) -> list[Firing]:
    """Return the alerts that fire in a stack, the most urgent first.

    Raises:
        Failure: there is no Prometheus, it may not be asked, or it does not answer.
    """
    try:
        with open_session(cluster) as team:
            session = replace(team, namespace=NAMESPACE)
            pod = _pod(session)
            with _forwarded(session, pod) as url:
                return _ask(url, pod)
    except ClusterError as error:
        raise Failure(FAILED, str(error)) from error


def _pod(session: Session) -> str:
    """Return the name of a ready Prometheus pod: all copies compute the same alerts."""
    from trainium_eks.kube.api import ApiError

    try:
        found = session.api.list("v1", "Pod", namespace=NAMESPACE.name, labels=LABELS)
    except ApiError as error:
        if error.status not in (401, 403):
            raise
        raise Failure(FAILED, f"{_refused(session)}: {error}") from None
    if not found:
        title = f"there is no Prometheus in the cluster (no pod {LABELS} in the namespace {NAMESPACE.name})"
        where = "the local cloud runs none" if session.is_local else "`observability.metrics` in the config installs it"
        raise Failure(FAILED, f"{title}: {where}")
    ready = [pod for pod in found if _is_ready(pod)]
    if not ready:
        names = ", ".join(map(name_of, found))
        raise Failure(FAILED, f"Prometheus is not ready ({names}): kubectl describe pods --namespace {NAMESPACE.name}")
    return name_of(ready[0])


def _refused(session: Session) -> str:
    return (
        f"{session.kubeconfig} may not reach pods of the namespace {NAMESPACE.name}, which are the administrators'; "
        "give one that may with --kubeconfig"
    )


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


@contextmanager
def _forwarded(session: Session, pod: str) -> Iterator[str]:
    """Yield the address on this machine that leads to the pod."""
    from trainium_eks.kube import pod_channels

    try:
        pod_channels.check_port_forward(session, pod, PORT)
    except pod_channels.NoWay as error:
        raise Failure(FAILED, f"{_refused(session)}: {error}") from None
    forwarding = pod_channels.Forwarding(session, pod, PORT, 0)
    try:
        yield f"http://127.0.0.1:{forwarding.local_port}"
    finally:
        forwarding.close()


def _ask(url: str, pod: str) -> list[Firing]:
    # Not by a proxy of the environment: none reaches this machine's own loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/api/v1/alerts", timeout=ANSWER_SECONDS) as answer:
            return answers.read(json.load(answer))
    except (OSError, HTTPException) as error:
        raise Failure(FAILED, f"{pod} does not answer: {error}") from None
    except ValueError as error:
        raise Failure(FAILED, f"{pod} answered something else: {error}") from None
