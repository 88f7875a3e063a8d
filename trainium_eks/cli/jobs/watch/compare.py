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
from trainium_eks.cli.shared.failure import WRONG_USAGE, Failure
from trainium_eks.model.catalogue.instances import UnknownInstanceType
from trainium_eks.model.sizing import training_cost
from trainium_eks.model.sizing.training_cost import Claim, HourlyPrice, PublishedRun, Run


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
    own = [(each, _price_of(each.instance_type, given)) for each in _runs(asked)]
    published = [(each, _ec2_price(each, given)) for each in training_cost.PUBLISHED]
    claims = training_cost.claims()
    if asked.as_json:
        output.write_json(
            {
                "schemaVersion": 1,
                "benchmark": [_published_json(each, price) for each, price in published],
                "claims": [_claim_json(each) for each in claims],
                "runs": [_run_json(each, price) for each, price in own],
            }
        )
        return 0
    sections = [_benchmark(published), _now(published), _claims(claims)]
    show_sections([*sections, *([_own(own)] if own else [])], no_color=asked.no_color)
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


def _ec2_price(each: Run, given: Mapping[str, float]) -> HourlyPrice:
    """Return the present price of a published run's instance in EC2, or the price that was given for SageMaker's."""
    name = each.instance_type if each.instance_type in given else training_cost.ec2_name(each.instance_type)
    return _price_of(name, given)


def _benchmark(rows: Sequence[tuple[PublishedRun, HourlyPrice]]) -> Table:
    table = _table(
        "AWS' benchmark: BERT base on Amazon Polarity, SageMaker's prices of 2023",
        *("instance type", "$ an hour", "iterations/s", "accuracy", "seconds", "cost, $", "price x time, $"),
    )
    for each, _ in rows:
        table.add_row(
            each.instance_type,
            f"{each.hourly_usd:.3f}",
            f"{each.iterations_per_second:.2f}",
            f"{each.accuracy:.3f}",
            f"{each.hours * 3600:,.0f}",
            f"{each.published_usd:.2f}",
            f"{each.cost_usd(each.hourly_usd):.2f}",
        )
    return table


def _now(rows: Sequence[tuple[PublishedRun, HourlyPrice]]) -> Table:
    table = _table("The same seconds at present prices", "instance type", "$ an hour", "cost, $", "price of")
    for each, price in rows:
        name = each.instance_type.removeprefix(training_cost.SAGEMAKER_PREFIX)
        table.add_row(name, f"{price.usd:.3f}", f"{each.cost_usd(price.usd):.2f}", price.source)
    (trn1, p4d) = (each.cost_usd(price.usd) for each, price in rows)
    less = training_cost.less_percent(trn1, p4d)
    table.caption = f"Trn1 is {abs(less):.1f} % {'cheaper' if less >= 0 else 'dearer'} than P4d."
    return table


def _claims(claims: Sequence[Claim]) -> Table:
    table = _table("The text's claims about Trn1, and the table", "claim", "text", "table", "", "reason")
    for each in claims:
        verdict = Text("follows", "green") if each.follows else Text("does not follow", "yellow")
        table.add_row(each.subject, f"{each.said_percent:g} %", f"{each.found_percent:.1f} %", verdict, each.reason)
    return table


def _own(rows: Sequence[tuple[Run, HourlyPrice]]) -> Table:
    table = _table(
        "Your runs; percentages are against the first",
        *("run", "instance type", "count", "hours", "$ an hour", "cost, $", "less time", "less cost", "price of"),
    )
    first, first_price = rows[0]
    for each, price in rows:
        cost = each.cost_usd(price.usd)
        time = training_cost.less_percent(each.hours, first.hours)
        money = training_cost.less_percent(cost, first.cost_usd(first_price.usd))
        own = ("", "") if each is first else (f"{time:.1f} %", f"{money:.1f} %")
        table.add_row(
            each.name,
            each.instance_type,
            str(each.count),
            f"{each.hours:.3f}",
            f"{price.usd:.3f}",
            f"{cost:.2f}",
            *own,
            price.source,
        )
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(
        title=Text(title, "bold"),
        title_justify="left",
        caption_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    for name in columns:
        table.add_column(name, overflow="fold")
    return table


def _published_json(each: PublishedRun, price: HourlyPrice) -> dict[str, Any]:
    return {
        "instanceType": each.instance_type,
        "seconds": round(each.hours * 3600),
        "iterationsPerSecond": each.iterations_per_second,
        "accuracy": each.accuracy,
        "publishedHourlyUsd": each.hourly_usd,
        "publishedUsd": each.published_usd,
        "computedUsd": round(each.cost_usd(each.hourly_usd), 4),
        "nowHourlyUsd": round(price.usd, 5),
        "nowUsd": round(each.cost_usd(price.usd), 4),
        "priceSource": price.source,
    }


def _claim_json(each: Claim) -> dict[str, Any]:
    return {
        "claim": each.subject,
        "textPercent": each.said_percent,
        "tablePercent": round(each.found_percent, 1),
        "follows": each.follows,
        "reason": each.reason,
    }


def _run_json(each: Run, price: HourlyPrice) -> dict[str, Any]:
    return {
        "name": each.name,
        "instanceType": each.instance_type,
        "count": each.count,
        "hours": round(each.hours, 6),
        "hourlyUsd": round(price.usd, 5),
        "usd": round(each.cost_usd(price.usd), 4),
        "priceSource": price.source,
    }
