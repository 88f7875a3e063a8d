import pulumi_kubernetes as k8s
import pytest
from unit.components.parts import LEAST, of_kind, one, releases

from components.gpu_addons import GpuAddons
from trainium_eks.model.catalogue import versions


@pytest.mark.parametrize("trainers", [("v2",), ("v1", "v2")])
def test_trainers_come_after_volcano_and_start_gangs_with_it(record, trainers):
    """A namespace refuses pods with GPUs that go past Volcano, and the operator ends where there are no PodGroups."""

    def program():
        scheduler = k8s.core.v1.Namespace("scheduler")  # in Volcano's place
        GpuAddons("gpu", {**LEAST["GpuAddons"], "volcano": scheduler, "trainers": trainers})

    graph = record(program)
    trainer, chart = releases(graph)["kubeflow-trainer"], versions.CHARTS["kubeflow-trainer"]
    assert (trainer.inputs["chart"], trainer.inputs["version"]) == (chart.chart, "2.3.0")
    assert trainer.inputs["values"]["runtimes"]["defaultEnabled"] is True
    assert trainer.inputs["atomic"] is True
    waited = {each.name for each in of_kind(graph, "Namespace") if each.urn in trainer.dependencies}
    assert waited == {"scheduler", "gpu-trainer"}
    operators = of_kind(graph, "Directory")
    assert len(operators) == ("v1" in trainers)
    for operator in operators:
        assert operator.inputs["directory"].endswith("/training-operator-volcano")
        assert one(graph, "Namespace", "scheduler").urn in operator.dependencies
