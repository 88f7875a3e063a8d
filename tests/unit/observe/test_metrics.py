"""The catalogue of series, and how queries are held to it."""

import re

import pytest
from trainium_workloads.scraped import SERIES

from trainium_eks.observe.queries import Selector, expand, selectors, unknown
from trainium_eks.observe.series import file_system
from trainium_eks.observe.series.cluster_metrics import CLUSTER_METRICS
from trainium_eks.observe.series.device_metrics import DEVICE_METRICS
from trainium_eks.observe.series.exporters import FSX, TRAINING
from trainium_eks.observe.series.metrics import METRICS


def test_every_name_is_one_that_an_exporter_may_use() -> None:
    for name, metric in METRICS.items():
        assert re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name)
        assert all(re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", label) for label in metric.labels)
        assert metric.about
        assert metric.exporter.source


def test_no_series_stands_twice() -> None:
    assert len(METRICS) == len(DEVICE_METRICS) + len(CLUSTER_METRICS)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("up", [Selector("up")]),
        (
            'sum by (node) (rate(node_cpu_seconds_total{mode!="idle", node=~"a{2}"}[5m]))',
            [Selector("node_cpu_seconds_total", ("mode", "node"))],
        ),
        ("a / on (node) group_left (node_group) b", [Selector("a"), Selector("b")]),
        ("max_over_time(trn:cores:busy_ratio[1h:5m] offset 1d) > bool 1e-3", [Selector("trn:cores:busy_ratio")]),
        ("histogram_quantile(0.9, sum by (le) (a_bucket)) or vector(0)", [Selector("a_bucket")]),
        ("time() - a @ end() # by the clock", [Selector("a")]),
        ('label_replace(a{x="}"}, "b", "$1", "c", "(.*)") unless b', [Selector("a", ("x",)), Selector("b")]),
        ("predict_linear(a[6h], 24 * 3600) < 0 and a + Inf > 0", [Selector("a"), Selector("a")]),
    ],
)
def test_the_series_of_a_query(query: str, expected: list[Selector]) -> None:
    assert list(selectors(query)) == expected


def test_a_query_for_what_nobody_serves() -> None:
    assert unknown('neuroncore_utilization{node="a"}', ()) == [
        "neuroncore_utilization: neither in trainium_eks/observe/series/metrics.py nor recorded"
    ]
    assert unknown('neuroncore_utilization_ratio{pod="a", node="b"}', ()) == [
        "neuroncore_utilization_ratio has no label pod"
    ]
    assert unknown("trn:cores:busy_ratio + up", {"trn:cores:busy_ratio"}) == []


def test_variables_of_a_dashboard() -> None:
    query = 'rate(a{node=~"$node", x="${namespace:regex}"}[$__rate_interval])'
    values = {"node": "n1|n2", "namespace": ".*", "__rate_interval": "1m"}
    assert expand(query, values) == 'rate(a{node=~"n1|n2", x=".*"}[1m])'
    with pytest.raises(KeyError):
        expand("$other", values)


def test_the_file_systems_series_are_those_that_are_read() -> None:
    read = {**file_system.METRICS, **file_system.EXPORT_METRICS}
    made = {f"aws_fsx_{_snake(metric)}_{statistic.lower()}" for metric, statistic in read.items()}
    assert {name for name, metric in METRICS.items() if metric.exporter is FSX} <= made


def test_the_trainings_series_are_those_that_they_serve() -> None:
    listed = {name: metric.kind for name, metric in METRICS.items() if metric.exporter is TRAINING}
    assert listed == {series.name: series.kind for series in SERIES}


def _snake(words: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", words).lower()
