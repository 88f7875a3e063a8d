"""The scrape configuration of Prometheus: series of gangs, of the file system, and of one pod of each training."""

import re

import pytest
from served_series import EXPORTERS, unknown
from training_jobs import job
from trainium_workloads import scraped

from trainium_eks.jobs.objects import forms
from trainium_eks.jobs.objects.identity import COMPLETION_INDEX_LABEL, REPLICA_INDEX_LABEL, TASK_INDEX_LABEL
from trainium_eks.model.annotations import annotation
from trainium_eks.observe import rules
from trainium_eks.observe.series import file_system, gangs, scraping
from trainium_eks.observe.series.scraping import SCRAPES, TRAININGS

[PODGROUPS] = gangs.custom_resources()["spec"]["resources"]


def test_every_queried_gang_series_is_scraped():
    made = {f"{gangs.PREFIX}_{each['name']}" for each in PODGROUPS["metrics"]}
    assert {name for name in EXPORTERS if name.startswith("trn_gang_")} <= made
    ends = next(each for each in PODGROUPS["metrics"] if "capacity_block" in each["name"])
    path = ends["each"]["gauge"]["path"]
    assert path == ["metadata", "annotations", annotation("capacity-block-ends")], "what trn writes on jobs"


def test_queried_node_labels_and_file_system_series_are_exported():
    assert gangs.resource_label("aws.amazon.com/neuron") == "aws_amazon_com_neuron"
    expressions = {rule["record"]: rule["expr"] for group in rules.recording({}) for rule in group["rules"]}
    read = {*re.findall(r"\blabel_(?!replace)\w+", expressions["trn:node_info"])}
    assert read == {f"label_{gangs.resource_label(label)}" for label in scraping.NODE_LABELS}
    read = {**file_system.METRICS, **file_system.EXPORT_METRICS}
    names = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", metric).lower(): read[metric].lower() for metric in read}
    asked = {name for name, exporter in EXPORTERS.items() if exporter == "fsx-exporter"}
    assert asked <= {f"aws_fsx_{name}_{statistic}" for name, statistic in names.items()}


def test_query_of_an_unserved_series_is_noticed(server):
    query = 'rate(kube_node_labelz[5m]) + neuroncore_utilization_ratio{pod="a", node="b"} + trn:gang:waits{c="d"}'
    said = ["kube_node_labelz: no series of tests/served_series.py, and not recorded"]
    assert unknown(server, query) == [*said, "neuroncore_utilization_ratio has no label pod"]


def _is_asked(labels):
    """As Prometheus decides it: by the selector, and then by each step that keeps."""
    if not TRAININGS.selector.items() <= labels.items():
        return False
    known = {f"__meta_kubernetes_pod_label_{re.sub('[^a-zA-Z0-9_]', '_', name)}": each for name, each in labels.items()}
    return all(
        re.fullmatch(step["regex"], step["separator"].join(known.get(name, "") for name in step["sourceLabels"]))
        for step in TRAININGS.relabelings
        if step.get("action") == "keep"
    )


def _pods(form, nodes):
    """Labels of a job's pods, with the number that its controller gives each."""
    made = forms.objects(job(form=form, nodes=nodes))[0]["spec"]
    if form == "volcano":
        return [
            {**task["template"]["metadata"]["labels"], TASK_INDEX_LABEL: str(index)}
            for task in made["tasks"]
            for index in range(task["replicas"])
        ]
    if form == "pytorchjob":
        template, number = made["pytorchReplicaSpecs"]["Worker"]["template"], REPLICA_INDEX_LABEL
    else:
        [part] = made["template"]["spec"]["replicatedJobs"]
        template, number = part["template"]["spec"]["template"], COMPLETION_INDEX_LABEL
    return [{**template["metadata"]["labels"], number: str(index)} for index in range(nodes)]


@pytest.mark.parametrize(
    ("form", "nodes"), [("volcano", 1), ("volcano", 12), ("volcano", 500), ("pytorchjob", 12), ("trainjob", 12)]
)
def test_one_pod_of_a_gang_is_scraped(form, nodes):
    asked = [_is_asked(labels) for labels in _pods(form, nodes)]
    assert asked == [True] + [False] * (nodes - 1)


def test_scrape_of_a_teams_pods_is_bounded():
    """A team's pods write what Prometheus takes in; a bound on targets would leave out those of other teams."""
    open_to_teams = [each for each in SCRAPES if not each.namespace]
    assert open_to_teams == [TRAININGS]
    spec = TRAININGS.spec()
    assert len(scraped.SERIES) <= spec["sampleLimit"] <= 100
    assert {"bodySizeLimit", "labelLimit", "labelValueLengthLimit"} <= spec.keys()
    assert "targetLimit" not in spec
