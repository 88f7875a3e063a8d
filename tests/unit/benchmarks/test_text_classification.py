"""How benchmarks/text_classification.py fills AWS' table, and which runs it takes."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from trainium_eks.model.catalogue.instances import CATALOGUE

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.delitem(sys.modules, "text_classification", raising=False)
    import text_classification as module  # type: ignore[import-not-found]

    return module  # type: ignore[no-any-return]


def result(**changes: Any) -> dict[str, Any]:
    run = {"model": "BERT base", "accuracy": 0.98, "evaluated": 400_000, "reviews": 3_600_000, "steps": 28125}
    speed = {"iterations_per_second": 6.0, "seconds": 6000.0, "steps_of_run": 28125}
    return {**run, **speed, "ranks": 32, "batch_size": 256, "backend": "xla", "precision": "bf16", **changes}


def test_the_published_costs_follow_from_price_and_time(benchmark: ModuleType) -> None:
    for row in benchmark.PUBLISHED:
        assert row.cost_usd == pytest.approx(row.usd_per_hour * row.seconds / 3600, rel=0.002)


def test_the_best_and_the_median_run_stand_beside_the_published_ones(benchmark: ModuleType) -> None:
    runs = [result(seconds=seconds, iterations_per_second=40_000 / seconds) for seconds in (8000.0, 7200.0, 9000.0)]
    best, median = benchmark.rows(runs, "trn1.32xlarge", 21.5)
    text = benchmark.table((best, median))
    assert [line.split(" | ")[-1] for line in text.splitlines()[2:]] == [
        "published by AWS, billable time |",
        "published by AWS, billable time |",
        "best of 3 runs: xla, bf16, 32 ranks, 256 reviews a step |",
        "median of 3 runs |",
    ]
    assert best.cells[:-1] == ("BERT base", "trn1.32xlarge", "21.500", "5.56", "0.980", "7200", "43.00")
    assert median.cells[3:7] == ("5.00", "0.980", "8000", "47.78")


def test_what_was_not_measured_is_left_empty(benchmark: ModuleType) -> None:
    best, _ = benchmark.rows([result(iterations_per_second=None)], "this machine", None)
    assert best.cells[2:7] == ("", "", "0.980", "6000", "")


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ([], "there are no runs"),
        ([result(), result(steps_of_run=100)], "began at step 28026: its time is of a part"),
        ([result(), result(batch_size=128)], "the runs differ in batch_size: 128, 256"),
        ([result(), result(evaluated=1000)], "the runs differ in evaluated: 1000, 400000"),
    ],
)
def test_runs_that_are_not_alike_are_not_compared(benchmark: ModuleType, runs: Any, words: str) -> None:
    with pytest.raises(benchmark.Unlike, match=words):
        benchmark.rows(runs, "x", None)


def test_the_price_is_the_catalogues(
    benchmark: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "result.json"
    file.write_text(json.dumps(result()))

    def call(*options: str) -> int:
        monkeypatch.setattr("sys.argv", ["text_classification", "table", *options, str(file)])
        return benchmark.main()  # type: ignore[no-any-return]

    assert call("--instance-type", "trn1.32xlarge", "--nodes", "2") == 0
    shown = capsys.readouterr()
    price = CATALOGUE["trn1.32xlarge"]
    assert price.hourly_usd is not None
    assert f"| 2 x trn1.32xlarge | {2 * price.hourly_usd:.3f} |" in shown.out
    assert price.price_date in shown.err
    # SageMaker has prices of its own.
    assert call("--instance-type", "ml.trn1.32xlarge") == 0
    shown = capsys.readouterr()
    assert "| ml.trn1.32xlarge |  | 6.00 | 0.980 | 6000 |  |" in shown.out
    assert "give --price" in shown.err
    assert call("--instance-type", "ml.trn1.32xlarge", "--price", "24.725") == 0
    assert "| 24.725 | 6.00 | 0.980 | 6000 | 41.21 |" in capsys.readouterr().out
    file.write_text(json.dumps(result(steps_of_run=1)))
    assert call("--instance-type", "trn1.32xlarge") == 1


def test_the_page_has_the_costs_that_follow_from_the_catalogue(benchmark: ModuleType) -> None:
    page = (ROOT / "docs" / "examples-text-classification.md").read_text()
    for row in benchmark.PUBLISHED:
        price = CATALOGUE[row.where.removeprefix("ml.")].hourly_usd
        assert price is not None
        assert f"${price * row.seconds / 3600:.2f}" in page
        assert " | ".join(row.cells) in page
        assert f"| {price:.3f} |" in page
    small = CATALOGUE["inf2.xlarge"].hourly_usd
    assert small is not None
    assert f"| {small:.2f} | ${small * 730:.0f} a month |" in page
