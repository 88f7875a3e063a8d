"""``trn verify``: find the stack's outputs and its cluster, check the cluster, show the result; repeat until no check
fails, if asked. ``trn local up`` ends with the same."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainium_eks.client.cluster_access import StackAccess, find_source, open_kubeconfig
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, WRONG_USAGE, Failure
from trainium_eks.kube.cluster import ReadError
from trainium_eks.kube.errors import ClusterError
from trainium_eks.operate.verify.check import CheckStatus
from trainium_eks.operate.verify.verify import Verification

PAUSE_SECONDS = 5.0
"""Longest pause between two checks; the first pauses are shorter."""


@dataclass(frozen=True)
class VerifyOptions:
    """The options of one call."""

    stack: str
    outputs: Path | None = None
    """The stack's outputs in a file, as ``pulumi stack output --json --show-secrets`` prints them."""
    kubeconfig: Path | None = None
    """File in place of the kubeconfig in the outputs."""
    as_json: bool = False
    no_color: bool = False
    directory: Path | None = None
    timeout_seconds: float = 0
    """Longest wait, with ``wait``."""
    wait: bool = False
    """Look again until nothing fails."""
    compare: bool = True
    """Compare the objects of the stack's state with the cluster."""


Look = Callable[[], Verification]
"""Reads and checks the cluster.

Raises:
    ReadError: when the API server cannot be asked.
"""


def run(asked: VerifyOptions) -> int:
    """Show passed and failed checks; return the exit code: 0, 1 when a check failed, 2 for wrong usage."""
    with _progress(asked) as say:
        found = verification(asked, say)
    if asked.as_json:
        sys.stdout.write(json.dumps(found.to_json(), indent=2, ensure_ascii=False) + "\n")
    else:
        from trainium_eks.cli.environment.check import render_verify

        render_verify.show(found, no_color=asked.no_color)
        if found.failed and asked.wait:
            sys.stdout.write(closing(asked))
    return FAILED if found.failed else 0


def closing(asked: VerifyOptions) -> str:
    """Return the doctor's findings in a cluster that did not become well in time, besides the failed checks; each with
    its end of line."""
    from trainium_eks.cli.environment.check import examine

    cluster = ClusterOptions(asked.stack, None, asked.outputs, asked.kubeconfig, asked.directory)
    found = examine.closing(cluster, with_checks=False)
    return f"{found}\n" if found else ""


def verification(asked: VerifyOptions, say: Callable[[str], None]) -> Verification:
    """Return the results of all checks.

    Args:
        asked: which cluster, and how long to repeat the checks.
        say: receives the reason of each repetition.

    Raises:
        Failure: the outputs or the cluster cannot be read.
    """
    source = find_source(asked.stack, asked.outputs, asked.kubeconfig, asked.directory)
    with open_kubeconfig(source) as kubeconfig:
        return _until_well(asked, _looks(source, kubeconfig, asked), say)


def _looks(source: StackAccess, kubeconfig: Path, asked: VerifyOptions) -> Look:
    """Return a function that reads and checks the cluster."""
    from trainium_eks.cli.environment.check.compare import compared
    from trainium_eks.kube import cluster
    from trainium_eks.kube.api import Api
    from trainium_eks.kube.api_reader import ApiReader
    from trainium_eks.operate.verify import verify
    from trainium_eks.operate.verify.examined import Examined, Made

    try:
        api = Api.connect(kubeconfig)
    except ClusterError as error:
        raise Failure(WRONG_USAGE, str(error)) from None

    def look() -> Verification:
        found = cluster.read(ApiReader(api))
        made = compared(source, api, asked.directory) if asked.compare else Made()
        checks = verify.verify(Examined(source.outputs, found, source.local, made))
        return Verification(source.stack, source.outputs.cluster_name, api.server, source.local, checks)

    return look


def _until_well(asked: VerifyOptions, look: Look, say: Callable[[str], None]) -> Verification:
    """Return the first result, or with ``wait`` the first without a failure, or the last.

    Raises:
        Failure: when the API server could not be asked, at the last attempt.
    """
    deadline = time.monotonic() + (asked.timeout_seconds if asked.wait else 0)
    pause = PAUSE_SECONDS / 8
    while True:
        try:
            found = look()
            if not found.failed:
                return found
            trouble = f"failing: {', '.join(check.id for check in found.checks if check.status is CheckStatus.FAIL)}"
            left = deadline - time.monotonic()
            if left <= 0:
                return found
        except ReadError as error:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Failure(FAILED, str(error)) from None
            trouble = "the API server does not answer"
        say(f"{trouble}; looking again for {left:.0f} s")
        time.sleep(min(pause, left))
        pause = min(2 * pause, PAUSE_SECONDS)


@contextmanager
def _progress(asked: VerifyOptions) -> Iterator[Callable[[str], None]]:
    """Yield a function for progress messages: a spinner at a terminal, lines on stderr elsewhere."""
    if not sys.stderr.isatty():
        yield lambda message: print(message, file=sys.stderr, flush=True)  # noqa: T201
        return
    from rich.console import Console

    with Console(stderr=True, no_color=asked.no_color or None).status("Reading the cluster") as status:
        yield status.update
