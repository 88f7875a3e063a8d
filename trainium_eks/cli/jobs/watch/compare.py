"""``trn compare``: AWS' benchmark of Trn1 against P4d at its own and at present prices, and the cost of other runs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from trainium_eks.cli.environment.plan.render import show_sections
from trainium_eks.cli.shared import output
from trainium_eks.client.failure import WRONG_USAGE, Failure
from trainium_eks.model.catalogue.instances import UnknownInstanceType
from trainium_eks.model.sizing import training_cost
from trainium_eks.model.sizing.training_cost import HourlyPrice, PublishedRun, Run, less_percent

Row = dict[str, Any]
"""A row as plain data, which JSON and tables show."""


@dataclass(frozen=True)
class CompareOptions:
    """The options of one call."""

    runs: Sequence[str] = ()
    """Runs as ``NAME=HOURS:INSTANCE[:COUNT]``."""
    jobs: Path | None = None
    """File with the output of ``trn jobs --json``."""
    prices: Sequence[str] = ()
    """Prices as ``INSTANCE=USD``."""
    as_json: bool = False
    no_color: bool = False


def run(asked: CompareOptions) -> int:
    """Show the benchmark, its claims and the given runs; return the exit code.

    Raises:
        Failure: a run, a price or the jobs' file cannot be read, or no price is known for a run's instance type.
    """
    given = _prices(asked.prices)
    own = [_own(each, _price_of(each.instance_type, given)) for each in _runs(asked)]
    published = [_published(each, given) for each in training_cost.PUBLISHED]
    claims = [
        {
            "claim": each.subject,
            "textPercent": each.said_percent,
            "tablePercent": round(each.found_percent, 1),
            "follows": each.follows,
            "reason": each.reason,
        }
        for each in training_cost.claims()
    ]
    if asked.as_json:
        output.write_json({"schemaVersion": 1, "benchmark": published, "claims": claims, "runs": own})
    else:
        tables = [*_benchmark_tables(published), _claim_table(claims), *([_own_table(own)] if own else [])]
        show_sections(tables, no_color=asked.no_color)
    return 0


def _prices(texts: Sequence[str]) -> dict[str, float]:
    found = {}
    for text in texts:
        name, _, usd = text.partition("=")
        try:
            found[name] = float(usd)
        except ValueError:
            raise Failure(WRONG_USAGE, f"--price {text}: write INSTANCE=USD, as in trn1.32xlarge=21.50") from None
        if not 0 < found[name] < float("inf"):
            raise Failure(WRONG_USAGE, f"--price {text}: it must be more than 0")
    return found


def _runs(asked: CompareOptions) -> list[Run]:
    try:
        found = [training_cost.read_run(text) for text in asked.runs]
    except ValueError as error:
        raise Failure(WRONG_USAGE, f"--run {error}") from None
    if asked.jobs is None:
        return found
    try:
        document = json.loads(asked.jobs.read_text(encoding="utf-8"))
        return [*found, *training_cost.runs_of_jobs(document)]
    except OSError as error:
        raise Failure(WRONG_USAGE, f"--jobs {asked.jobs}: {error.strerror}") from None
    except ValueError as error:
        raise Failure(WRONG_USAGE, f"--jobs {asked.jobs}: {error}") from None


def _price_of(instance_type: str, given: Mapping[str, float]) -> HourlyPrice:
    try:
        price = training_cost.hourly_price(instance_type, given)
    except UnknownInstanceType as error:
        raise Failure(WRONG_USAGE, f"{error}; or give its price: --price {instance_type}=USD") from None
    if price is None:
        raise Failure(WRONG_USAGE, f"no price is known for {instance_type}: give it by --price {instance_type}=USD")
    return price


def _published(each: PublishedRun, given: Mapping[str, float]) -> Row:
    """Return a published run with the present price of EC2's type, or a given price of SageMaker's."""
    name = each.instance_type if each.instance_type in given else training_cost.ec2_name(each.instance_type)
    price = _price_of(name, given)
    return {
        "instanceType": each.instance_type,
        "publishedHourlyUsd": each.hourly_usd,
        "iterationsPerSecond": each.iterations_per_second,
        "accuracy": each.accuracy,
        "seconds": round(each.hours * 3600),
        "publishedUsd": each.published_usd,
        "computedUsd": round(each.cost_usd(each.hourly_usd), 6),
        "nowInstanceType": name,
        "nowHourlyUsd": round(price.usd, 5),
        "nowUsd": round(each.cost_usd(price.usd), 4),
        "priceSource": price.source,
    }


def _own(each: Run, price: HourlyPrice) -> Row:
    return {
        "name": each.name,
        "instanceType": each.instance_type,
        "count": each.count,
        "hours": round(each.hours, 6),
        "hourlyUsd": round(price.usd, 5),
        "usd": round(each.cost_usd(price.usd), 4),
        "priceSource": price.source,
    }


def _benchmark_tables(rows: Sequence[Row]) -> tuple[Table, Table]:
    then = _table(
        "AWS' benchmark: BERT base on Amazon Polarity, SageMaker's prices of 2023",
        *("instance type", "$ an hour", "iterations/s", "accuracy", "seconds", "cost, $", "price x time, $"),
    )
    now = _table("The same seconds at present prices", "instance type", "$ an hour", "cost, $", "price of")
    for row in rows:
        *words, usd, computed = list(row.values())[:7]
        then.add_row(*map(str, words), f"{usd:.2f}", f"{computed:.2f}")
        now.add_row(
            row["nowInstanceType"], f"{row['nowHourlyUsd']:.3f}", f"{row['nowUsd']:.2f}", str(row["priceSource"])
        )
    less = less_percent(rows[0]["nowUsd"], rows[1]["nowUsd"])
    now.caption = f"Trn1 is {abs(less):.1f} % {'cheaper' if less >= 0 else 'dearer'} than P4d."
    return then, now


def _claim_table(rows: Sequence[Row]) -> Table:
    table = _table("The text's claims about Trn1, and the table", "claim", "text", "table", "", "reason")
    for row in rows:
        verdict = Text("follows", "green") if row["follows"] else Text("does not follow", "yellow")
        table.add_row(row["claim"], f"{row['textPercent']} %", f"{row['tablePercent']} %", verdict, row["reason"])
    return table


def _own_table(rows: Sequence[Row]) -> Table:
    table = _table(
        "Your runs; percentages are against the first",
        *("run", "instance type", "count", "hours", "$ an hour", "cost, $", "less time", "less cost", "price of"),
    )
    for row in rows:
        less = (
            f"{less_percent(row[key], rows[0][key]):.1f} %" if row is not rows[0] else "" for key in ("hours", "usd")
        )
        figures = (f"{row['hours']:.3f}", f"{row['hourlyUsd']:.3f}", f"{row['usd']:.2f}")
        table.add_row(row["name"], row["instanceType"], str(row["count"]), *figures, *less, row["priceSource"])
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), title=Text(title, "bold"), title_justify="left")
    table.caption_justify = "left"
    for name in columns:
        table.add_column(name, overflow="fold")
    return table
