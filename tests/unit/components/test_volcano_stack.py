from kubernetes_schemas import object_faults
from unit.components.parts import of_kind, one, recorder, releases
from unit.model.config.test_config import FULL

from components._pods import Program
from components.volcano_stack import VolcanoStack, queue_spec
from trainium_eks.model.sizing.queues import QUEUE_API, QueueConfig
from trainium_eks.model.validation.config_model import read

QUEUE = "kubernetes:scheduling.volcano.sh/v1beta1:Queue"
NEURON, EFA = "aws.amazon.com/neuron", "vpc.amazonaws.com/efa"
POOL = {NEURON: 64, EFA: 32}
built = recorder(VolcanoStack, "volcano", {"pool": POOL})


def queues(graph):
    return {resource.inputs["metadata"]["name"]: resource for resource in of_kind(graph, QUEUE)}


def test_hypernode_controller_restarts_only_with_changed_code(record, plain, monkeypatch):
    again = built(record)
    monkeypatch.setattr(Program, "sources", lambda _: dict.fromkeys(("tree.py", "controller.py", "api.py"), ""))
    before, same, other = (
        one(each, "Deployment").inputs["spec"]["template"]["metadata"]["annotations"]
        for each in (plain, again, built(record))
    )
    assert before == same != other


def test_queues_wait_for_volcanos_webhook(plain):
    """Row 45: before its webhook answers, the API server refuses every queue."""
    queue = queues(plain)["test"]
    assert releases(plain)["volcano"].urn in queue.dependencies
    # It has every setting under Volcano's name.
    (given,) = FULL["queues"]
    spec = queue_spec(read(QueueConfig, given))
    assert spec.keys() == given.keys() - {"name"}
    assert object_faults({"apiVersion": QUEUE_API, "kind": "Queue", "metadata": {"name": "q"}, "spec": spec}) == []
