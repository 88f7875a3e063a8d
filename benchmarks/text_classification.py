"""How fast and how cheaply BERT learns Amazon Polarity: AWS' comparison of Trn1 with P4d on SageMaker, rerun.

    python benchmarks/text_classification.py here     a tiny BERT, as processes of this machine
    python benchmarks/text_classification.py cloud    the same as jobs on a local cloud of its own
    python benchmarks/text_classification.py table --instance-type trn1.32xlarge a/result.json b/result.json

``here`` and ``cloud`` train once to warm up, which does not count, and then ``--runs`` times. ``table`` takes what jobs
on AWS have written (``/data/output/JOB/result.json``, or SageMaker's output): three runs or more of the same training.
Each prints AWS' table, with the published rows and with the best and the median of these runs. What nobody measured is
left empty. Exit code 1 when the runs are not of one whole training.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloud import local_cloud, trn

from trainium_eks.local.images import images
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.model.sizing import training_cost

MODULE = "trainium_workloads.text_classification.train"
NAMESPACE, CLAIM = "training", "fsx-claim"
TINY = ("--size", "tiny", "--length", "64", "--synthetic", "4000", "--steps", "150", "--checkpoint-seconds", "0")
NOTHING = ""
"""What stands in the table for what was not measured."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    model: str
    where: str
    """Instance type, with the number of nodes where there are several."""
    usd_per_hour: float | None
    """Of all nodes."""
    iterations_per_second: float | None
    accuracy: float
    seconds: float
    source: str
    cost_usd: float | None = None
    """As published; otherwise it follows from price and time."""

    @property
    def cells(self) -> tuple[str, ...]:
        """As they are printed."""
        cost = self.cost_usd
        if cost is None and self.usd_per_hour is not None:
            cost = self.usd_per_hour * self.seconds / 3600
        return (
            self.model,
            self.where,
            _shown(self.usd_per_hour, "{:.3f}"),
            _shown(self.iterations_per_second, "{:.2f}"),
            f"{self.accuracy:.3f}",
            f"{self.seconds:.0f}",
            _shown(cost, "{:.2f}"),
            self.source,
        )


HEAD = ("model", "instance type", "$ an hour", "iterations/s", "accuracy", "seconds", "cost, $", "source")
PUBLISHED = tuple(
    Row(
        *("BERT base", each.instance_type, each.hourly_usd, each.iterations_per_second, each.accuracy),
        *(round(each.hours * 3600), "published by AWS, billable time", each.published_usd),
    )
    for each in training_cost.PUBLISHED
)
"""The table in "Maximize performance and reduce your deep learning training cost with AWS Trainium and Amazon
SageMaker": best of several runs, at SageMaker's prices of then."""


class Unlike(Exception):  # noqa: N818 - reads as what it is where it is raised
    """The runs cannot stand in one table; the message says why."""


def rows(results: Sequence[dict[str, Any]], where: str, usd_per_hour: float | None) -> tuple[Row, Row]:
    """The best run and the median ones.

    Args:
        results: of the same training, each from its beginning to its end.
        where: instance type and number.
        usd_per_hour: of all nodes; None where nobody pays by the hour.

    Raises:
        Unlike: they are not.
    """
    if not results:
        raise Unlike("there are no runs")
    for result in results:
        if result["steps_of_run"] < result["steps"]:
            raise Unlike(f"a run began at step {result['steps'] - result['steps_of_run'] + 1}: its time is of a part")
    for name in ("model", "steps", "batch_size", "ranks", "backend", "precision", "reviews", "evaluated"):
        values = {result[name] for result in results}
        if len(values) > 1:
            raise Unlike(f"the runs differ in {name}: {', '.join(map(str, sorted(values, key=str)))}")
    best = min(results, key=lambda result: result["seconds"])
    about = f"{best['backend']}, {best['precision']}, {best['ranks']} ranks, {best['batch_size']} reviews a step"
    runs = f"{len(results)} run{'s' if len(results) > 1 else ''}"
    return (
        _row(best, where, usd_per_hour, f"best of {runs}: {about}"),
        Row(
            best["model"],
            where,
            usd_per_hour,
            _median([result["iterations_per_second"] for result in results]),
            statistics.median(result["accuracy"] for result in results),
            statistics.median(result["seconds"] for result in results),
            f"median of {runs}",
        ),
    )


def table(measured: Sequence[Row]) -> str:
    """All rows, as Markdown."""
    lines = [HEAD, ("---",) * len(HEAD), *(each.cells for each in (*PUBLISHED, *measured))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _row(result: dict[str, Any], where: str, usd_per_hour: float | None, source: str) -> Row:
    rate, accuracy, seconds = (result[name] for name in ("iterations_per_second", "accuracy", "seconds"))
    return Row(result["model"], where, usd_per_hour, rate, accuracy, seconds, source)


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _shown(value: float | None, form: str) -> str:
    return NOTHING if value is None else form.format(value)


# --- Runs -------------------------------------------------------------------------------------------------------------


def _here(asked: argparse.Namespace) -> tuple[Row, Row]:
    image = images.find("torch")
    if image is None:
        raise SystemExit("local/torch is not made: trn local images make torch")
    environment = {**os.environ, "PYTHONPATH": str(images.workloads()), "OMP_NUM_THREADS": "1"}
    results = []
    for number in range(asked.runs + 1):
        with tempfile.TemporaryDirectory(prefix="trn-reviews-") as output, socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
            free.close()
            ranks = ("--nnodes", "1", "--nproc-per-node", str(asked.ranks), "--rdzv-endpoint", f"localhost:{port}")
            launcher = (image.programs / "python", "-m", "trainium_workloads.gang", *ranks, "--rdzv-id", "reviews")
            command = [*launcher, "-m", MODULE, *TINY, *asked.arguments, "--output", output]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"the training failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
            results.append(_told(number, json.loads(Path(output, "result.json").read_text())))
    return rows(results[1:], f"this machine, {os.cpu_count()} CPUs", None)


def _cloud(asked: argparse.Namespace) -> tuple[Row, Row]:
    results = []
    with local_cloud("reviews") as project:
        for number in range(asked.runs + 1):
            job = f"reviews-{number}"
            size = ("--nodes", str(asked.ranks), "--ranks-per-node", "1")
            trn(
                project,
                "train",
                "--example",
                "text-classification",
                "--name",
                job,
                *size,
                "--wait",
                "--",
                *TINY,
                *asked.arguments,
            )
            file = project / f".local/local/claims/{NAMESPACE}/{CLAIM}/output/{job}/result.json"
            results.append(_told(number, json.loads(file.read_text())))
    return rows(results[1:], f"local cloud, {asked.ranks} nodes on {os.cpu_count()} CPUs", None)


def _told(number: int, result: dict[str, Any]) -> dict[str, Any]:
    name = f"run {number}" if number else "warm-up"
    rate = _shown(result["iterations_per_second"], "{:.2f} iterations/s, ")
    print(f"{name}: {rate}accuracy {result['accuracy']:.3f}, {result['seconds']:.1f} s", file=sys.stderr, flush=True)
    return result


def _table(asked: argparse.Namespace) -> tuple[Row, Row]:
    price = asked.price
    if price is None and asked.instance_type.startswith("ml."):
        print("the catalogue has EC2's prices, not SageMaker's: give --price", file=sys.stderr)
    elif price is None:
        kind = CATALOGUE.find(asked.instance_type)
        price = kind.hourly_usd
        if price is not None:
            about = f"On-Demand, {kind.price_region}, {kind.price_date}"
            print(f"{kind.name} at ${price} an hour: {about}", file=sys.stderr)
    many = f"{asked.nodes} x " if asked.nodes > 1 else ""
    results = [json.loads(file.read_text()) for file in asked.results]
    return rows(results, many + asked.instance_type, None if price is None else price * asked.nodes)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    for name, run in (("here", _here), ("cloud", _cloud)):
        command = commands.add_parser(name)
        command.add_argument("--runs", type=int, default=3, help="that count; default: %(default)s")
        command.add_argument("--ranks", type=int, default=2, help="default: %(default)s")
        command.add_argument("arguments", nargs="*", help="further ones of the training, after --")
        command.set_defaults(run=run)
    command = commands.add_parser("table")
    command.add_argument("results", nargs="+", type=Path, metavar="RESULT.json")
    command.add_argument("--instance-type", required=True)
    command.add_argument("--nodes", type=int, default=1, help="default: %(default)s")
    command.add_argument("--price", type=float, help="dollars an hour of a node; default: the catalogue's")
    command.set_defaults(run=_table)
    asked = parser.parse_args()
    try:
        print(table(asked.run(asked)))
    except Unlike as why:
        print(why, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
