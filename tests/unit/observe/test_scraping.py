"""Of a training's pods the one is asked that serves metrics, whatever form the job has."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
from training_jobs import job
from trainium_workloads import scraped

from trainium_eks.jobs.objects import forms
from trainium_eks.jobs.objects.identity import COMPLETION_INDEX_LABEL, REPLICA_INDEX_LABEL, TASK_INDEX_LABEL
from trainium_eks.jobs.objects.options import Form
from trainium_eks.observe.series.scraping import SCRAPES, TRAININGS


def _is_asked(labels: Mapping[str, str]) -> bool:
    """As Prometheus decides it: by the selector, and then by each step that keeps."""
    if not TRAININGS.selector.items() <= labels.items():
        return False
    known = {f"__meta_kubernetes_pod_label_{re.sub('[^a-zA-Z0-9_]', '_', name)}": each for name, each in labels.items()}
    return all(
        re.fullmatch(step["regex"], step["separator"].join(known.get(name, "") for name in step["sourceLabels"]))
        for step in TRAININGS.relabelings
        if step.get("action") == "keep"
    )


def _pods(form: Form, nodes: int) -> list[dict[str, str]]:
    """Labels of a job's pods, with the number that its controller gives each."""
    made: dict[str, Any] = forms.objects(job(form=form, nodes=nodes))[0]["spec"]
    if form == "volcano":
        return [
            {**task["template"]["metadata"]["labels"], TASK_INDEX_LABEL: str(index)}
            for task in made["tasks"]
            for index in range(task["replicas"])
        ]
    if form == "pytorchjob":
        labels, number = made["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"]["labels"], REPLICA_INDEX_LABEL
    else:
        [part] = made["template"]["spec"]["replicatedJobs"]
        labels, number = part["template"]["spec"]["template"]["metadata"]["labels"], COMPLETION_INDEX_LABEL
    return [{**labels, number: str(index)} for index in range(nodes)]


@pytest.mark.parametrize(
    ("form", "nodes"), [("volcano", 1), ("volcano", 12), ("volcano", 500), ("pytorchjob", 12), ("trainjob", 12)]
)
def test_one_pod_of_a_gang_is_asked(form: Form, nodes: int) -> None:
    asked = [_is_asked(labels) for labels in _pods(form, nodes)]
    assert asked == [True] + [False] * (nodes - 1)


def test_what_a_team_answers_is_bounded() -> None:
    """A team's pods write what Prometheus takes in; a bound on targets would leave out those of other teams."""
    open_to_teams = [each for each in SCRAPES if not each.namespace]
    assert open_to_teams == [TRAININGS]
    spec = TRAININGS.spec()
    assert len(scraped.SERIES) <= spec["sampleLimit"] <= 100
    assert {"bodySizeLimit", "labelLimit", "labelValueLengthLimit"} <= spec.keys()
    assert "targetLimit" not in spec
