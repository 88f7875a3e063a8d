"""Script of each rank: checks of the node, collectives, the search for a slow node, the report.

Exit code: 0 when everything is as expected; 78 when something is not, which no restart mends; 1 when the test itself
could not end.
"""

import argparse
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Never

from trainium_workloads.fabric import node, report
from trainium_workloads.fabric.collectives import OPERATIONS, SIZES, Collectives, CollectiveTime, Floor
from trainium_workloads.fabric.heartbeats import Heartbeats, hold_sigterm
from trainium_workloads.fabric.node import TOOLS, Finding
from trainium_workloads.fabric.report import Report
from trainium_workloads.fabric.slow_node_search import Pair, judge, rounds
from trainium_workloads.training import backends
from trainium_workloads.training.options import Options
from trainium_workloads.training.refusal import EXIT_CODE, RefusalError, guarded

FAULTS = ("slow", "dead", "hang")
_FAULT_SIZE = 1 << 20
"""Least size at which an injected slow rank is slow."""


def main(arguments: list[str] | None = None) -> int:
    """Run a rank of the test; the heartbeats end the process with the gang's exit code. Refusal: an option is wrong, or
    the backend's device or package is not here."""
    hold_sigterm()
    asked = _parser().parse_args(arguments)
    per_node = asked.ranks_per_node or int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    expected = json.loads(asked.expect)
    try:
        backend = backends.start(Options(backend=asked.backend))
    except Exception as error:
        # There are no heartbeats yet: the rank whose device fails reports for its node.
        number = int(os.environ.get("RANK", "0")) // per_node
        said = f"node {number} ({node.node_name()}) has no backend {asked.backend}: {_line(error)}"
        findings = [*node.inspect(expected, number), Finding("error", False, said, number)]
        Report.begin(asked, asked.backend, per_node, expected).finish(findings)
        raise
    if backend.world_size % per_node:
        raise RefusalError(f"--ranks-per-node {per_node} does not divide {backend.world_size} ranks")
    rank = _Rank(asked, backend, per_node, expected)
    try:
        rank.run()
    except Exception as error:  # noqa: BLE001 - of the backend's network, whose errors have no common class
        rank.heartbeats.fail(_line(error))


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"[:300]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fabric", description="Test of a gang's nodes and network.")
    parser.add_argument(
        "--backend", choices=("cpu", "cuda", "xla", "neuron"), default=os.environ.get("TRN_BACKEND", "cpu")
    )
    parser.add_argument("--expect", default="{}", metavar="JSON", help="facts that each node must show, and the floors")
    parser.add_argument("--reports", type=Path, default=_reports(), metavar="DIR", help="default: %(default)s")
    parser.add_argument("--label", default="gang", help="name of the node group; reports of one label are compared")
    parser.add_argument("--max-bytes", type=int, default=SIZES[-1], help="largest collective; default: 1 GiB")
    parser.add_argument("--probe-bytes", type=int, default=256 << 20, help="file of the storage test; default: 256 MiB")
    parser.add_argument("--tool", choices=sorted(TOOLS), help="tool within each node, in place of the collectives")
    parser.add_argument("--silent-seconds", type=float, default=60.0, help="silence of a rank that counts as gone")
    parser.add_argument(
        "--stage-seconds",
        type=float,
        default=900.0,
        help="longest collective, with its compilation; default: %(default)s",
    )
    parser.add_argument("--ranks-per-node", type=int, help="default: LOCAL_WORLD_SIZE; fewer play several nodes on one")
    parser.add_argument(
        "--inject", type=_fault, action="append", default=[], metavar="slow|dead|hang:RANK", help="self-test: a fault"
    )
    return parser


def _reports() -> Path:
    """Return the directory beside the output of the volume's jobs, which each run finds again."""
    output = os.environ.get("TRN_OUTPUT_DIR")
    return Path(output).parent / "fabric-reports" if output else Path("fabric-reports")


def _fault(text: str) -> tuple[str, int]:
    kind, _, rank = text.partition(":")
    if kind not in FAULTS or not rank.isdecimal():
        raise argparse.ArgumentTypeError(f"must be slow:RANK, dead:RANK or hang:RANK, not {text}")
    return kind, int(rank)


class _Rank:
    """One rank of the test."""

    def __init__(
        self, asked: argparse.Namespace, backend: backends.Backend, per_node: int, expected: dict[str, Any]
    ) -> None:
        self._asked, self._backend, self._per_node, self._expected = asked, backend, per_node, expected
        self._node, self._is_first = backend.rank // per_node, backend.rank % per_node == 0
        self._nodes = backend.world_size // per_node
        self._faults = {kind for kind, rank in asked.inject if rank == backend.rank}
        self._report = Report.begin(asked, backend.name, per_node, expected)
        floor = expected.get("floor")
        self._floor = Floor(**floor) if floor else None
        self._found: list[Finding] = []
        sizes = (backend.rank, backend.world_size, per_node)
        self.heartbeats = Heartbeats(*sizes, backend.share, asked.silent_seconds, self._conclude)

    def run(self) -> Never:
        """Run all stages."""
        self._found += self._check_nodes()
        if self._asked.tool is None:
            self._found += self._check_collectives()
        self.heartbeats.end([])

    def _enter(self, name: str) -> None:
        if name.startswith("all-gather") and "dead" in self._faults:
            os.kill(os.getpid(), 9)
        while name.startswith("all-gather") and "hang" in self._faults:
            time.sleep(60)
        benchmark = len(OPERATIONS) * node.BENCHMARK_SECONDS if self._asked.tool else 0.0
        self.heartbeats.enter(name, self._asked.stage_seconds + benchmark)

    # Nodes

    def _check_nodes(self) -> list[Finding]:
        """Let the first rank of each node check it; return all nodes' findings in rank 0."""
        if self._is_first:
            self.heartbeats.post(f"name/{self._node}", node.node_name())
        self._enter("the checks of the nodes")
        if self._is_first:
            self.heartbeats.post(f"node/{self._node}", json.dumps(self._inspect()))
        self._enter("the wait for the checks of the nodes")
        told = [json.loads(text) for text in self.heartbeats.collect([f"node/{each}" for each in range(self._nodes)])]
        names = self.heartbeats.collect([f"name/{each}" for each in range(self._nodes)])
        self._report.nodes = [{"name": name, **each["facts"]} for name, each in zip(names, told, strict=True)]
        findings = [Finding(**found) for each in told for found in each["findings"]]
        if self._asked.tool:
            figures = {
                place: each["facts"]["benchmark"] for place, each in enumerate(told) if each["facts"].get("benchmark")
            }
            findings += node.compare_nodes(figures, self._asked.tool)
        return findings

    def _inspect(self) -> dict[str, Any]:
        """Return this node's facts and findings."""
        findings = node.inspect(self._expected, self._node)
        facts: dict[str, Any] = {}
        storage = self._expected.get("storage")
        if storage:
            found, figures = report.check_storage(storage, self._asked, self._node, self._nodes)
            findings += found
            facts["storage"] = figures
        if self._asked.tool:
            try:
                facts["benchmark"] = node.run_benchmark(self._asked.tool, int(self._expected.get("cores", 1)))
            except node.ToolError as error:
                findings.append(Finding("benchmark", False, str(error), self._node))
        return {"facts": facts, "findings": [asdict(each) for each in findings]}

    # Collectives

    def _check_collectives(self) -> list[Finding]:
        collectives = Collectives(self._backend, self._per_node, self._delay)
        measured: list[CollectiveTime] = []
        for operation in OPERATIONS:
            for size in SIZES:
                if size <= self._asked.max_bytes:
                    self._enter(f"{operation} of {report.size_text(size)}")
                    measured.append(collectives.measure(operation, size, self._floor))
                    self._report.collectives = measured
        # Each rank decides by the same numbers: they are sums over the ranks.
        slow = [each for each in measured if not each.ok]
        findings = [report.floor_finding(operation, measured) for operation in OPERATIONS]
        if slow:
            findings += self._search(collectives, max(each.size for each in slow))
        return findings

    def _search(self, collectives: Collectives, size: int) -> list[Finding]:
        """Test pairs of nodes, and return the findings about them."""
        assert self._floor is not None
        seconds: dict[Pair, float] = {}
        for number, pairs in enumerate(rounds(self._nodes), start=1):
            self._enter(f"round {number} of pairs of nodes")
            seconds |= collectives.measure_pairs(pairs, size)
        self._report.pairs = seconds
        what = f"all-reduce of {report.size_text(size)}"
        limit = self._floor.limit("all-reduce", size, 2 * self._per_node)
        return judge(seconds, limit, [each["name"] for each in self._report.nodes], what)

    def _delay(self, operation: str, size: int, ranks: int) -> float:
        """Return the seconds that this rank is to hold a collective up: an injected fault, or 0."""
        if "slow" not in self._faults or size < _FAULT_SIZE or self._floor is None:
            return 0.0
        return 1.5 * self._floor.limit(operation, size, ranks)

    def _conclude(self, findings: list[Finding]) -> int:
        return 0 if self._report.finish([*self._found, *findings]) else EXIT_CODE


if __name__ == "__main__":
    sys.exit(guarded(main))
