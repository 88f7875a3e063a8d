"""What kube-state-metrics is told of PodGroups."""

import re

from trainium_eks.model.alerts import AlertSettings
from trainium_eks.model.annotations import annotation
from trainium_eks.observe.alerts import alerts
from trainium_eks.observe.series import gangs, recording, scraping

SERIES = {f"{gangs.PREFIX}_{each['name']}" for each in gangs.custom_resources()["spec"]["resources"][0]["metrics"]}


def test_every_series_of_gangs_that_rules_read_is_asked_for() -> None:
    rules = [rule["expr"] for group in recording.groups({}) for rule in group["rules"]]
    rules += [alert.expr for alert in alerts.alerts(AlertSettings())]
    read = {name for text in rules for name in re.findall(r"\btrn_gang_\w+", text)}
    assert read <= SERIES
    assert {"trn_gang_phase", "trn_gang_min_devices"} <= read


def test_the_end_of_a_capacity_block_is_what_trn_writes_on_jobs() -> None:
    (podgroups,) = gangs.custom_resources()["spec"]["resources"]
    ends = next(each for each in podgroups["metrics"] if "capacity_block" in each["name"])
    assert ends["each"]["gauge"]["path"] == ["metadata", "annotations", annotation("capacity-block-ends")]


def test_a_resource_is_spelt_as_kube_state_metrics_spells_it() -> None:
    assert gangs.resource_label("aws.amazon.com/neuron") == "aws_amazon_com_neuron"
    assert gangs.resource_label("trainium-eks/pool") == "trainium_eks_pool"


def test_nodes_are_known_by_labels_that_kube_state_metrics_shows() -> None:
    (rule,) = [rule for group in recording.groups({}) for rule in group["rules"] if rule["record"] == "trn:node_info"]
    read = {*re.findall(r"\blabel_(?!replace)\w+", rule["expr"])}
    assert read == {f"label_{gangs.resource_label(label)}" for label in scraping.NODE_LABELS}
