"""Costs of trainings: AWS' published benchmark of Trn1 against P4d, its claims, and runs of one's own.

The benchmark stands in "Maximize performance and reduce your deep learning training cost with AWS Trainium and Amazon
SageMaker" (AWS Machine Learning Blog): BERT base, fine-tuned on Amazon Polarity as SageMaker training jobs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainium_eks.model.catalogue import prices
from trainium_eks.model.catalogue.instances import CATALOGUE, Catalogue, Price

SAGEMAKER_PREFIX = "ml."
"""Beginning of an instance type's name in SageMaker."""


@dataclass(frozen=True)
class Run:
    """One training run."""

    name: str
    instance_type: str
    """As EC2 calls it, or SageMaker (``ml.trn1.32xlarge``)."""
    hours: float
    """Duration that is paid for."""
    count: int = 1
    """Instances."""

    def __post_init__(self) -> None:
        """Raise a :class:`ValueError` for a duration or a count that is not positive."""
        if not 0 < self.hours < float("inf") or self.count < 1:
            raise ValueError(f"{self.name}: {self.hours:g} hours on {self.count} instances cannot be")

    def cost_usd(self, hourly_usd: float) -> float:
        """Return the cost at a price of one instance for an hour."""
        return self.hours * self.count * hourly_usd


@dataclass(frozen=True)
class PublishedRun(Run):
    """A row of the published table."""

    hourly_usd: float = 0.0
    """SageMaker's price when the table was made."""
    published_usd: float = 0.0
    """Cost as printed."""
    iterations_per_second: float = 0.0
    accuracy: float = 0.0


TRN1 = PublishedRun("BERT base, Trn1", "ml.trn1.32xlarge", 6033 / 3600, 1, 24.725, 41.47, 6.64, 0.984)
P4D = PublishedRun("BERT base, P4d", "ml.p4d.24xlarge", 6553 / 3600, 1, 37.69, 68.6, 5.44, 0.984)
PUBLISHED = (TRN1, P4D)
"""The published table."""


@dataclass(frozen=True)
class Claim:
    """A sentence of the benchmark's text, beside the figure of its table."""

    subject: str
    said_percent: float
    """Percentage in the text."""
    found_percent: float
    """Percentage by the table."""
    reason: str
    """Calculation, and the likely origin of another figure in the text."""

    @property
    def follows(self) -> bool:
        """Whether the table rounds to the text's figure."""
        return round(self.found_percent) == round(self.said_percent)


def claims() -> tuple[Claim, ...]:
    """Return the text's claims about Trn1 against P4d, each with the table's figure."""
    rate = 100 * (TRN1.iterations_per_second / P4D.iterations_per_second - 1)
    return (
        Claim(
            "lower cost",
            50,
            less_percent(TRN1.published_usd, P4D.published_usd),
            f"${TRN1.published_usd:.2f} against ${P4D.published_usd:.2f}",
        ),
        Claim(
            "faster time to train",
            22,
            less_percent(TRN1.hours, P4D.hours),
            f"{_seconds(TRN1)} s against {_seconds(P4D)} s of billable time; {rate:.0f} % is the gain in iterations a "
            "second, which leaves out start, compilation and evaluation",
        ),
    )


def less_percent(value: float, reference: float) -> float:
    """Return by how many percent a value is below a reference; negative where it is above."""
    return 100 * (1 - value / reference)


@dataclass(frozen=True)
class HourlyPrice:
    """The price of one instance for an hour."""

    usd: float
    source: str
    """List, region and day; or that it is an estimate; or that it was given."""


def hourly_price(
    instance_type: str, given: Mapping[str, float] | None = None, catalogue: Catalogue = CATALOGUE
) -> HourlyPrice | None:
    """Return the present On-Demand price of an instance type; None where none is known.

    SageMaker's prices are in no public table of this library: they are EC2's with the published surcharge, and say so.

    Args:
        instance_type: as EC2 or SageMaker calls it.
        given: prices that the caller knows better, by instance type.
        catalogue: with EC2's prices.

    Raises:
        UnknownInstanceType: for a type that the catalogue does not have.
    """
    if given and instance_type in given:
        return HourlyPrice(given[instance_type], "given")
    price: Price | None = catalogue.price(ec2_name(instance_type, catalogue))
    if price is None:
        return None
    source = f"EC2 On-Demand, {price.region}, {price.date}"
    if not instance_type.startswith(SAGEMAKER_PREFIX):
        return HourlyPrice(price.hourly_usd, source)
    percent = round(100 * (prices.SAGEMAKER_FACTOR - 1))
    return HourlyPrice(price.hourly_usd * prices.SAGEMAKER_FACTOR, f"estimate: {source}, and {percent} %")


def ec2_name(instance_type: str, catalogue: Catalogue = CATALOGUE) -> str:
    """Return EC2's name of an instance type.

    Raises:
        UnknownInstanceType: for a type that the catalogue does not have.
    """
    return catalogue.find(instance_type.removeprefix(SAGEMAKER_PREFIX)).name


def read_run(text: str) -> Run:
    """Return a run from ``NAME=HOURS:INSTANCE[:COUNT]``.

    Raises:
        ValueError: the text has another form, or a number that cannot be.
    """
    name, _, rest = text.partition("=")
    parts = rest.split(":")
    if not name or len(parts) not in (2, 3) or not parts[1]:
        raise ValueError(f"{text}: write NAME=HOURS:INSTANCE or NAME=HOURS:INSTANCE:COUNT")
    try:
        hours, count = float(parts[0]), int(parts[2]) if len(parts) == 3 else 1
    except ValueError:
        raise ValueError(f"{text}: HOURS is a number such as 1.5, and COUNT a whole number") from None
    return Run(name, parts[1], hours, count)


def runs_of_jobs(document: Any) -> tuple[Run, ...]:
    """Return the completed trainings of ``trn jobs --json``.

    Args:
        document: the parsed JSON.

    Raises:
        ValueError: the document is none of ``trn jobs``.
    """
    jobs = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
        raise ValueError("it has no list `jobs`: write it by `trn jobs --all --json`")
    try:
        return tuple(
            Run(str(job["name"]), str(job["instanceType"]), float(job["seconds"]) / 3600, int(job["nodes"]))
            for job in jobs
            if job.get("state") == "Completed" and job.get("instanceType") and job.get("seconds")
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"a job lacks a field of `trn jobs --json`: {error}") from None


def _seconds(run: Run) -> int:
    return round(run.hours * 3600)
