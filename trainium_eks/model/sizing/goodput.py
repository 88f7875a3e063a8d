"""Goodput: how much of a gang's time is useful when nodes fail, and how often it should save.

Useful is the time in steps that count. What is not: writing checkpoints, steps that are made again after a fault, and
the wait until the gang runs again. Faults come at random at a constant rate (a Poisson process), any of them stops the
whole gang, and the last complete checkpoint is where it goes on. Formulas, sources and what is assumed stand in
docs/goodput.md. Standard library alone: the TorchX component runs where pydantic is not.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

SECONDS_PER_YEAR = 365.25 * 86_400

LEAST_INTERVAL_SECONDS = 60.0
"""What is proposed for a state that costs nothing to save."""

CHEAP_SHARE = 0.01
"""Share of the time that checkpoints may always take. A small gang would lose less by saving once in hours, but a
process that ends by its own fault loses all since the last one, and no rate tells of those."""

MOST_INTERVAL_SECONDS = 4 * 3600.0
"""Most that is proposed, for the same reason."""

DEFAULT_STATE_GIGABYTES = 100
"""Of a model of 8 billion parameters: 4 bytes each for weights and both moments of Adam."""


# --- faults ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FailureRate:
    """How often a node stops the gang that it is part of."""

    per_node_year: float
    """Faults of one node in a year of training."""
    source: str
    """Where the number comes from, for people."""
    is_assumed: bool = False
    """Whether it is of another kind of accelerator, because none is published for this one."""
    is_configured: bool = False
    """Whether it is the user's own."""


_LLAMA_3 = 419 / (16_384 / 8 * 54 * 86_400 / SECONDS_PER_YEAR)
"""The Llama 3 Herd of Models (2024), section 3.3.4: 419 unexpected interruptions in 54 days on 16,384 H100."""

_RSC_1 = 6.5 / 1000 * 365.25
"""Revisiting Reliability in Large-Scale Machine Learning Research Clusters (HPCA 2025): 6.5 failures in a thousand
node-days of 8 A100 each."""

_RATES: Mapping[str, tuple[float, str]] = MappingProxyType(
    {
        "H100": (_LLAMA_3, "Meta's Llama 3 run on H100"),
        "A100": (_RSC_1, "Meta's A100 cluster RSC-1"),
    }
)


def failure_rate(accelerator: str, configured_per_node_year: float | None = None) -> FailureRate:
    """The rate of a kind of node.

    Args:
        accelerator: as the catalogue calls it: ``Trainium2``, ``H100``, ``A100-40``; empty for a CPU type.
        configured_per_node_year: the user's own, which wins.
    """
    if configured_per_node_year is not None:
        return FailureRate(configured_per_node_year, "the config", is_configured=True)
    kind = accelerator.partition("-")[0]
    per_year, source = _RATES.get(kind, _RATES["H100"])
    return FailureRate(per_year, source, is_assumed=kind not in _RATES)


def seconds_between_faults(nodes: int, per_node_year: float) -> float:
    """Mean time between faults of a gang; infinite without nodes or faults."""
    each_year = nodes * per_node_year
    return SECONDS_PER_YEAR / each_year if each_year > 0 else math.inf


# --- what a fault and a checkpoint cost -----------------------------------------------------------------------------

HARDWARE_SHARE = 0.78
"""Faults after which a node is replaced: 78 % of Llama 3's interruptions were, or were thought to be, of hardware."""

REPAIR_WAIT_SECONDS = 600.0
"""EKS' node repair acts when ``AcceleratedHardwareReady`` has been false for 10 minutes (EKS guide, node repair)."""

NEW_NODE_SECONDS = 270.0
"""Until an accelerator node has joined: 3 to 6 minutes. EC2 is taken to have an instance at hand."""

START_SECONDS = 180.0
"""Assumed: pods end, are placed and start, ranks meet, and graphs come from a compile cache that is whole."""


@dataclass(frozen=True)
class Run:
    """What decides how much of a run is useful. All in seconds."""

    seconds_between_faults: float
    """Mean; infinite where there are none."""
    checkpoint_seconds: float
    """How long training stands still for one checkpoint."""
    down_seconds: float
    """From a fault until the gang starts again, on average. Nothing runs then that a fault could stop."""
    restart_seconds: float
    """From there to the first new step: start and load. A fault during it begins the wait anew."""


def validate(run: Run) -> Iterator[str]:
    """What cannot be, all at once, by field."""
    if not run.seconds_between_faults > 0:
        yield f"seconds_between_faults must be above 0, not {run.seconds_between_faults:g}"
    for field in ("checkpoint_seconds", "down_seconds", "restart_seconds"):
        value = getattr(run, field)
        if not (0 <= value < math.inf):
            yield f"{field} must be 0 or more, and finite, not {value:g}"


def run_on_lustre(
    nodes: int,
    per_node_year: float,
    state_gigabytes: float,
    megabytes_per_second: float,
) -> Run:
    """A gang whose checkpoints go to the shared file system, which is what limits their writing and reading.

    Args:
        nodes: of the gang.
        per_node_year: faults of a node in a year.
        state_gigabytes: size of a checkpoint, GB.
        megabytes_per_second: what the file system takes in all, MB/s.
    """
    copying = state_gigabytes * 1000 / megabytes_per_second
    return Run(
        seconds_between_faults=seconds_between_faults(nodes, per_node_year),
        checkpoint_seconds=copying,
        down_seconds=HARDWARE_SHARE * (REPAIR_WAIT_SECONDS + NEW_NODE_SECONDS),
        restart_seconds=START_SECONDS + copying,
    )


# --- the model ------------------------------------------------------------------------------------------------------


def useful_fraction(run: Run, interval_seconds: float) -> float:
    """Share of the time that is useful in the long run, 0 to 1, when it saves after each so many seconds of training.

    Exact for faults at a constant rate, as a renewal process: the mean time to get one interval and its checkpoint
    done, with every fault, wait and new try between, is ``(M + D) exp(R / M) (exp((T + C) / M) - 1)``. With D = 0 it
    is the complete cost function of Daly (2006); D is taken in as by Bouguerra and others (2010).

    Raises:
        ValueError: for a run that cannot be, or an interval that is not above 0.
    """
    _check(run)
    if not (0 < interval_seconds < math.inf):
        raise ValueError(f"interval_seconds must be above 0, and finite, not {interval_seconds:g}")
    mean, exposed = run.seconds_between_faults, interval_seconds + run.checkpoint_seconds
    if math.isinf(mean):
        return interval_seconds / exposed
    try:
        needed = (mean + run.down_seconds) * math.exp(run.restart_seconds / mean) * math.expm1(exposed / mean)
    except OverflowError:
        return 0.0  # so many faults that none of the intervals is ever done
    return interval_seconds / needed


def young_seconds(run: Run) -> float:
    """Young's interval (1974), ``sqrt(2 C M)``: the first-order optimum, good where C is far below M."""
    _check(run)
    return math.sqrt(2 * run.checkpoint_seconds * run.seconds_between_faults) if run.checkpoint_seconds else 0.0


def daly_seconds(run: Run) -> float:
    """Daly's higher-order estimate (2006) of the optimum: within 1 % for C up to M / 2, 2 % up to M; M from
    C = 2 M on."""
    young, cost, mean = young_seconds(run), run.checkpoint_seconds, run.seconds_between_faults
    if cost >= 2 * mean:
        return mean
    ratio = cost / (2 * mean)
    return young * (1 + math.sqrt(ratio) / 3 + ratio / 9) - cost if math.isfinite(young) else young


def best_seconds(run: Run) -> float:
    """The interval with the largest useful share: what Young and Daly estimate, solved.

    The optimum x = T / M has ``(1 - x) exp(x + C / M) = 1``; waits and restarts have no part in it. 0 where a
    checkpoint costs nothing, infinite where there are no faults.
    """
    _check(run)
    if not run.checkpoint_seconds or math.isinf(run.seconds_between_faults):
        return 0.0 if not run.checkpoint_seconds else math.inf
    cost = run.checkpoint_seconds / run.seconds_between_faults
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:
        # By logarithms, in which nothing cancels where the cost is a millionth of the mean.
        low, high = (middle, high) if math.log1p(-middle) + middle + cost > 0 else (low, middle)
    return low * run.seconds_between_faults


def proposed_seconds(run: Run) -> float:
    """The interval to use: the best one, or a shorter one that costs next to nothing; whole seconds or minutes.

    At least a minute, and at least what the checkpoint itself takes; at most four hours, and at most as long as makes
    checkpoints take :data:`CHEAP_SHARE` of the time.
    """
    cheap = run.checkpoint_seconds / CHEAP_SHARE
    best = max(min(best_seconds(run), cheap, MOST_INTERVAL_SECONDS), LEAST_INTERVAL_SECONDS)
    unit = 60 if best >= 600 else 1
    return max(float(best // unit * unit), float(math.ceil(run.checkpoint_seconds)))


@dataclass(frozen=True)
class Goodput:
    """What to expect of one gang."""

    run: Run
    interval_seconds: float
    """Proposed between two checkpoints."""
    useful_fraction: float
    """With that interval, 0 to 1."""

    def usd_per_useful_hour(self, hourly_usd: float) -> float:
        """What an hour of useful time costs; infinite where nothing ever gets done.

        Args:
            hourly_usd: price of the gang's nodes for an hour.
        """
        return hourly_usd / self.useful_fraction if self.useful_fraction else math.inf


def expect(run: Run) -> Goodput:
    """The proposed interval of a run, and what comes of it.

    Raises:
        ValueError: for a run that cannot be.
    """
    interval = proposed_seconds(run)
    return Goodput(run, interval, useful_fraction(run, interval))


def _check(run: Run) -> None:
    wrong = [*validate(run)]
    if wrong:
        raise ValueError("; ".join(wrong))
