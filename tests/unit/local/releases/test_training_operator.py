"""Kubeflow's Training Operator in a stack: left out where it is not wanted, and asked on this machine."""

from trainium_eks.local.releases.training_operator import TrainingOperator, _objects
from trainium_eks.plan.graph import Graph, Resource


def test_it_can_be_left_out() -> None:
    def provided(*resources: Resource) -> str:
        graph = Graph(project="p", stack="s", resources=resources, outputs={})
        found = TrainingOperator.provided(graph, lambda _: None, {"TRN_TRAINING_OPERATOR": "off", "PATH": ""})
        assert found.program is None
        return found.missing

    assert provided() == ""
    urn = "urn:pulumi:s::p::kubernetes:kustomize/v2:Directory::x-training-operator"
    installed = Resource(
        urn=urn, type="kubernetes:kustomize/v2:Directory", name="x-training-operator", custom=False, inputs={}
    )
    assert provided(installed) == "TRN_TRAINING_OPERATOR is off"


def test_its_webhook_is_asked_on_this_machine() -> None:
    def webhook(resource: str) -> dict[str, object]:
        service = {"name": "webhook-service", "namespace": "system", "path": f"/validate-{resource}"}
        return {"name": resource, "clientConfig": {"service": service}, "rules": [{"resources": [resource]}]}

    webhooks = {"apiVersion": "v1", "kind": "W", "webhooks": [webhook("tfjobs"), webhook("pytorchjobs")]}
    upstream = ({"kind": "CustomResourceDefinition"}, webhooks)
    *_, service, configuration = _objects(upstream, 31000)
    assert service["spec"] == {"type": "ExternalName", "externalName": "localhost"}
    [only] = configuration["webhooks"]
    asked = {"name": "training-operator", "namespace": "kubeflow", "path": "/validate-pytorchjobs", "port": 31000}
    assert only["clientConfig"] == {"service": asked}
