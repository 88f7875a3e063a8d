"""Recognizers of faults of the cluster: nodes, webhooks, namespaces, claims."""

from collections.abc import Iterator, Mapping
from datetime import timedelta

from trainium_eks.diagnose.cluster_state import ClusterState
from trainium_eks.diagnose.findings import found
from trainium_eks.kube.cluster import Object, condition, labels_of, moment, name_of, namespace_of
from trainium_eks.model.finding import Finding
from trainium_eks.observe.faults.catalogue import in_message
from trainium_eks.observe.faults.fault import Speaker

PATIENCE = timedelta(seconds=60)
"""Time that controllers may take for what they do by themselves."""

_PRESSURES = ("DiskPressure", "MemoryPressure", "PIDPressure")
_ILL: Mapping[str, str] = {"AcceleratedHardwareReady": "False", "NeuronHealth": "True"}
"""Condition of a node to its status for broken accelerators."""


def findings(cluster: ClusterState) -> Iterator[Finding]:
    """Yield the faults that no check looks for."""
    for node in cluster.readable("Node"):
        yield from _of_node(node)
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        for configuration in cluster.readable(kind):
            yield from _of_webhooks(cluster, kind, configuration)
    for claim in cluster.readable("NodeClaim"):
        launched = condition(claim, "Launched")
        words = f"{launched.get('reason')}: {launched.get('message')}"
        if launched.get("status") == "False":
            known = in_message(words, Speaker.EC2)
            names = {"region": cluster.outputs.region, "deploy": cluster.deploy}
            yield found(known.name if known else "launch-refused", f"node claim {name_of(claim)}", words, **names)
    own = {each.name for each in cluster.outputs.namespaces}
    for namespace in cluster.readable("Namespace"):
        ending = namespace["metadata"].get("deletionTimestamp")
        if ending and name_of(namespace) not in own and cluster.now - moment(ending) > PATIENCE:
            name = name_of(namespace)
            yield found("namespace-terminating", f"namespace {name}", f"is Terminating since {ending}", namespace=name)
    # An administrator's checks look at the stack's own claims.
    checked = {(each.name, each.claim) for each in cluster.outputs.namespaces if not cluster.namespace}
    for claim in cluster.readable("PersistentVolumeClaim"):
        if (namespace_of(claim), name_of(claim)) not in checked:
            yield from _of_claim(cluster, claim)


def _of_node(node: Object) -> Iterator[Finding]:
    name = name_of(node)
    for type_ in _PRESSURES:
        if condition(node, type_).get("status") == "True":
            words = condition(node, type_).get("message") or type_
            yield found("node-pressure", f"node {name}", f"{type_}: {words}", node=name)
    for type_, status in _ILL.items():
        if condition(node, type_).get("status") == status:
            ill = condition(node, type_)
            sentence = f"{type_} is {status}: {ill.get('reason')} {ill.get('message', '')}"
            yield found("accelerator-unhealthy", f"node {name}", sentence, node=name)


def _of_webhooks(cluster: ClusterState, kind: str, configuration: Object) -> Iterator[Finding]:
    """Yield a fault for webhooks that refuse everything because nothing answers behind their service."""
    if not {"Service", "EndpointSlice"} <= cluster.objects.keys():
        return
    for webhook in configuration.get("webhooks") or ():
        service = webhook["clientConfig"].get("service")
        if service is None or webhook.get("failurePolicy", "Fail") != "Fail":
            continue
        name, namespace = service["name"], service["namespace"]
        where = f"{namespace}/{name}"
        names = {"namespace": namespace, "kind": kind.lower(), "webhook": name_of(configuration)}
        if name not in cluster.names("Service", namespace):
            sentence = f"{name_of(configuration)} calls the service {where}, which does not exist"
            yield found("webhook-not-answering", f"webhook {webhook['name']}", sentence, **names)
        elif not any(_is_ready_slice(each, name, namespace) for each in cluster.readable("EndpointSlice")):
            sentence = f"{name_of(configuration)} calls the service {where}, behind which no pod is ready"
            yield found("webhook-not-answering", f"webhook {webhook['name']}", sentence, **names)


def _is_ready_slice(each: Object, service: str, namespace: str) -> bool:
    if namespace_of(each) != namespace or labels_of(each).get("kubernetes.io/service-name") != service:
        return False
    return any((endpoint.get("conditions") or {}).get("ready") is not False for endpoint in each.get("endpoints") or ())


def _of_claim(cluster: ClusterState, claim: Object) -> Iterator[Finding]:
    """Yield a fault for a claim that nothing will bind: a lost one, or one of a class that does not exist. Any other
    one may wait for its first pod."""
    phase = (claim.get("status") or {}).get("phase")
    named = (claim.get("spec") or {}).get("storageClassName")
    is_readable = "StorageClass" in cluster.objects
    without = is_readable and phase == "Pending" and named and named not in cluster.names("StorageClass")
    if phase == "Lost" or without:
        why = f"there is no storage class {named}" if without else "its volume is gone"
        deploy = cluster.deploy
        names = {"namespace": namespace_of(claim), "claim": name_of(claim), "deploy": deploy}
        about = f"claim {name_of(claim)} of {namespace_of(claim)}"
        yield found("claim-not-bound", about, f"is {phase}: {why}", **names)
