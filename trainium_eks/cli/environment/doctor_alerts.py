"""``trn doctor --alerts``: a query of a stack's Prometheus for firing alerts.

It uses a forwarded port, as `kubectl port-forward` does: that ends on the pod's own node. The API server's proxy would
come from an address of the control plane, which the network policy of the namespace does not let in.
"""

import json
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPException

from rich.console import Group, RenderableType
from rich.text import Text

from trainium_eks.cli.shared.console import answer
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, CommandError, as_typed
from trainium_eks.client.session import Session, open_session
from trainium_eks.kube import pod_channels
from trainium_eks.kube.api import ApiError
from trainium_eks.kube.cluster import is_ready, name_of
from trainium_eks.kube.errors import ClusterError
from trainium_eks.model.config.namespaces import MONITORING
from trainium_eks.observe.alerts import firing as answers
from trainium_eks.observe.alerts.firing import Firing

LABELS = "app.kubernetes.io/name=prometheus"
"""Labels that the operator gives to Prometheus' pods."""
PORT = 9090
ANSWER_SECONDS = 15

SEVERITIES = {"critical": "bold red", "warning": "yellow"}


def run(cluster: ClusterOptions) -> int:
    """Show the alerts that fire in a stack, the most urgent first; return the exit code."""
    found = _firing(cluster)
    answer(cluster, {"stack": cluster.stack, "alerts": [each.to_json() for each in found]}, _section(found))
    return FAILED if any(each.state == "firing" for each in found) else 0


def _section(found: Sequence[Firing]) -> RenderableType:
    """Return the firing alerts with their summaries and next steps; then the names of the pending alerts."""
    now = [each for each in found if each.state == "firing"]
    soon = sorted({each.name for each in found if each.state != "firing"})
    lines = [line for each in now for line in _lines(each)] or [Text("Nothing fires.")]
    if soon:
        lines.append(Text(f"Will fire if nothing changes: {', '.join(soon)}", "dim"))
    return Group(*lines)


def _lines(alert: Firing) -> Iterator[Text]:
    severity = Text(alert.severity or "-", SEVERITIES.get(alert.severity, ""))
    yield Text.assemble(severity, "  ", (alert.name, "bold"), f"  since {alert.since}")
    yield Text(f"  {alert.summary}")
    if alert.annotations.get("description", alert.summary) != alert.summary:
        yield Text(f"  {alert.annotations['description']}", "dim")
    if alert.annotations.get("next"):
        yield Text(f"  Next: {as_typed(alert.annotations['next'])}")
    yield Text("")


def _firing(cluster: ClusterOptions) -> list[Firing]:
    try:
        with open_session(cluster) as session:
            pod = _pod(session)
            with _forwarded(session, pod) as url:
                return _ask(url, pod)
    except ClusterError as error:
        raise CommandError(str(error)) from error


def _pod(session: Session) -> str:
    """Return the name of a ready Prometheus pod: all copies compute the same alerts."""
    try:
        found = session.api.list("v1", "Pod", namespace=MONITORING, labels=LABELS)
    except ApiError as error:
        if error.status not in (401, 403):
            raise
        raise CommandError(f"{_refused(session)}: {error}") from None
    if not found:
        title = f"there is no Prometheus in the cluster (no pod {LABELS} in the namespace {MONITORING})"
        where = "the local cloud runs none" if session.is_local else "`observability.metrics` in the config installs it"
        raise CommandError(f"{title}: {where}")
    ready = [pod for pod in found if is_ready(pod)]
    if not ready:
        names = ", ".join(map(name_of, found))
        raise CommandError(f"Prometheus is not ready ({names}): kubectl describe pods --namespace {MONITORING}")
    return name_of(ready[0])


def _refused(session: Session) -> str:
    return (
        f"{session.kubeconfig} may not reach pods of the namespace {MONITORING}, which are the administrators'; "
        "give one that may with --kubeconfig"
    )


@contextmanager
def _forwarded(session: Session, pod: str) -> Iterator[str]:
    """Yield the address on this machine that leads to the pod."""
    place = pod_channels.Place(session.kubeconfig, MONITORING, pod)
    try:
        pod_channels.check_port_forward(place, PORT)
    except pod_channels.NoChannelError as error:
        raise CommandError(f"{_refused(session)}: {error}") from None
    forwarding = pod_channels.Forwarding(place, PORT, 0)
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
        raise CommandError(f"{pod} does not answer: {error}") from None
    except ValueError as error:
        raise CommandError(f"{pod} answered something else: {error}") from None
