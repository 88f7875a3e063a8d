"""Goodput: the useful share of a gang's time when nodes fail, and the checkpoint interval.

Useful is the time in steps that count. The rest is writing checkpoints, steps that are repeated after a fault, and the
wait until the gang runs again. Faults come at random at a constant rate (a Poisson process), any of them stops the
whole gang, and training resumes from the last complete checkpoint. Formulas, sources and assumptions are in
docs/goodput.md. Standard library alone: the TorchX component runs where pydantic is not installed.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

SECONDS_PER_YEAR = 365.25 * 86_400

LEAST_INTERVAL_SECONDS = 60.0
"""Proposed interval for a state that costs nothing to save."""

CHEAP_SHARE = 0.01
"""Share of the time that checkpoints may always take. A small gang would lose less by saving once in hours, but a
process that ends by its own fault loses all steps since the last checkpoint, and the failure rates do not include such
faults."""

BESIDE_SHARE = 0.1
"""Share of the time in which checkpoints may always be written beside the training, for the same reason: hosts and file
system have other work, too."""

MOST_INTERVAL_SECONDS = 4 * 3600.0
"""Longest proposed interval, for the same reason."""

DEFAULT_STATE_GIGABYTES = 100
"""Size of the state of a model of 8 billion parameters: 4 bytes each for weights and both moments of Adam."""


# --- faults ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FailureRate:
    """Rate at which a node stops its gang."""

    per_node_year: float
    """Faults of one node in a year of training."""
    source: str
    """Source of the number, for people."""
    is_assumed: bool = False
    """Whether it is the rate of another accelerator, because none is published for this one."""
    is_configured: bool = False
    """Whether the user's config sets it."""


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
    """Return the failure rate of a kind of node, by the catalogue's name (``Trainium2``, ``H100``; empty for a CPU
    type); a configured rate wins."""
    if configured_per_node_year is not None:
        return FailureRate(configured_per_node_year, "the config", is_configured=True)
    kind = accelerator.partition("-")[0]
    per_year, source = _RATES.get(kind, _RATES["H100"])
    return FailureRate(per_year, source, is_assumed=kind not in _RATES)


def seconds_between_faults(nodes: int, per_node_year: float) -> float:
    """Return the mean time between faults of a gang, seconds; infinite without nodes or faults."""
    each_year = nodes * per_node_year
    return SECONDS_PER_YEAR / each_year if each_year > 0 else math.inf


# --- what a fault and a checkpoint cost -----------------------------------------------------------------------------

STANDSTILL_SHARE = 0.05
"""Share of a checkpoint's writing for which a training of the library stands still: it copies its state, and writes the
copy beside its next steps. Measured by benchmarks/checkpointing.py; docs/trainings.md has the figures."""

HARDWARE_SHARE = 0.78
"""Share of faults after which a node is replaced: 78 % of Llama 3's interruptions were, or were thought to be, of
hardware."""

REPAIR_WAIT_SECONDS = 600.0
"""EKS' node repair acts when ``AcceleratedHardwareReady`` has been false for 10 minutes (EKS guide, node repair)."""

NEW_NODE_SECONDS = 270.0
"""Time until an accelerator node has joined: 3 to 6 minutes. EC2 is assumed to have an instance available."""

START_SECONDS = 180.0
"""Assumed: pods end, are placed and start, ranks meet, and graphs come from a compile cache that is whole."""


@dataclass(frozen=True)
class ModelRun:
    """The inputs for the useful share of a run, all in seconds."""

    seconds_between_faults: float
    """Mean time between faults; infinite without faults."""
    checkpoint_seconds: float
    """Time that training pauses for one checkpoint."""
    down_seconds: float
    """Mean time from a fault until the gang starts again. No fault can stop it during that time."""
    restart_seconds: float
    """Time from the start to the first new step: start and load. A fault during it restarts the wait."""
    beside_seconds: float = 0.0
    """Time from the end of that pause until the checkpoint is complete, beside the training."""

    @property
    def save_seconds(self) -> float:
        """Time that a checkpoint takes, from its beginning until it is complete."""
        return self.checkpoint_seconds + self.beside_seconds


def validate(run: ModelRun) -> Iterator[str]:
    """Yield the invalid values, by field."""
    if not run.seconds_between_faults > 0:
        yield f"seconds_between_faults must be above 0, not {run.seconds_between_faults:g}"
    for field in ("checkpoint_seconds", "down_seconds", "restart_seconds", "beside_seconds"):
        value = getattr(run, field)
        if not (0 <= value < math.inf):
            yield f"{field} must be 0 or more, and finite, not {value:g}"


def run_on_lustre(
    nodes: int,
    per_node_year: float,
    state_gigabytes: float,
    megabytes_per_second: float,
    *,
    is_beside: bool = True,
) -> ModelRun:
    """Return the run of a gang with checkpoints on the shared file system, whose total throughput limits their writing
    and reading. They are written beside the training, or while it stands still."""
    copying = state_gigabytes * 1000 / megabytes_per_second
    return ModelRun(
        seconds_between_faults=seconds_between_faults(nodes, per_node_year),
        checkpoint_seconds=STANDSTILL_SHARE * copying if is_beside else copying,
        down_seconds=HARDWARE_SHARE * (REPAIR_WAIT_SECONDS + NEW_NODE_SECONDS),
        restart_seconds=START_SECONDS + copying,
        beside_seconds=copying if is_beside else 0.0,
    )


# --- the model ------------------------------------------------------------------------------------------------------


def useful_fraction(run: ModelRun, interval_seconds: float) -> float:
    """Return the useful share of the time in the long run, 0 to 1, with a checkpoint after each ``interval_seconds``
    (above 0) of training.

    Exact for faults at a constant rate, as a renewal process: the mean time to get one interval and its checkpoint
    done, with every fault, wait and retry between, is ``(M + D) exp(R / M) (exp((T + C) / M) - 1)``. With D = 0 it is
    the complete cost function of Daly (2006); D is included as by Bouguerra and others (2010). A checkpoint that is
    written for W beside the next interval is safe W later: after a fault R, T + C and W have to pass without another,
    so that W counts as R does.
    """
    _check(run)
    if not (0 < interval_seconds < math.inf):
        raise ValueError(f"interval_seconds must be above 0, and finite, not {interval_seconds:g}")
    mean, exposed = run.seconds_between_faults, interval_seconds + run.checkpoint_seconds
    if math.isinf(mean):
        return interval_seconds / exposed
    try:
        again = math.exp((run.restart_seconds + run.beside_seconds) / mean)
        needed = (mean + run.down_seconds) * again * math.expm1(exposed / mean)
    except OverflowError:
        return 0.0  # so many faults that none of the intervals is ever done
    return interval_seconds / needed


def best_seconds(run: ModelRun) -> float:
    """Return the interval with the largest useful share, which the formulas of Young (1974) and Daly (2006) estimate.

    The optimum x = T / M has ``(1 - x) exp(x + C / M) = 1``; waits and restarts do not affect it. 0 where a checkpoint
    costs nothing, infinite where there are no faults.
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


def proposed_seconds(run: ModelRun) -> float:
    """Return the proposed interval, the best or a shorter interval that costs little, in whole seconds or minutes.

    It is at least a minute and the checkpoint's own time, at most four hours and the interval at which checkpoints take
    :data:`CHEAP_SHARE` of the time, and are written in :data:`BESIDE_SHARE` of it.
    """
    cheap = max(run.checkpoint_seconds / CHEAP_SHARE, run.beside_seconds / BESIDE_SHARE)
    best = max(min(best_seconds(run), cheap, MOST_INTERVAL_SECONDS), LEAST_INTERVAL_SECONDS)
    unit = 60 if best >= 600 else 1
    return max(float(best // unit * unit), float(math.ceil(run.save_seconds)))


@dataclass(frozen=True)
class Goodput:
    """The expected useful share and interval of one gang."""

    run: ModelRun
    interval_seconds: float
    """Proposed time between two checkpoints."""
    useful_fraction: float
    """Useful share of the time with that interval, 0 to 1."""

    def usd_per_useful_hour(self, hourly_usd: float) -> float:
        """Return the cost of an hour of useful time, USD, by the price of the gang's nodes; infinite if no time is
        useful."""
        return hourly_usd / self.useful_fraction if self.useful_fraction else math.inf


def expect(run: ModelRun) -> Goodput:
    """Return the proposed interval of a run, and the useful share with it; ValueError for an invalid run."""
    interval = proposed_seconds(run)
    return Goodput(run, interval, useful_fraction(run, interval))


def _check(run: ModelRun) -> None:
    wrong = [*validate(run)]
    if wrong:
        raise ValueError("; ".join(wrong))
