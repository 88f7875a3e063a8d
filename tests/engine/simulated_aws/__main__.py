"""``python -m engine.simulated_aws``: server of the simulated clouds, until it is stopped."""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from engine.simulated_aws.inventory import InventoryError
from engine.simulated_aws.server import FAILURE, CannotServe, serving

from trainium_eks.plan.backend import SimulationError


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or Ctrl-C; return the exit code."""
    given = _parser().parse_args(arguments)
    stopped = threading.Event()

    def stop(_signal: int, _frame: FrameType | None) -> None:
        stopped.set()

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, stop)
    try:
        with serving(given.state, failing=given.fail, forgetful=given.forgetful) as environment:
            for name, value in environment.items():
                sys.stdout.write(f"{name}={value}\n")
            sys.stdout.flush()
            stopped.wait()
    except (CannotServe, InventoryError, SimulationError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m engine.simulated_aws",
        description="Serves simulated AWS, EKS and Kubernetes providers for a Pulumi CLI on this machine. Prints the "
        "environment variable by which `pulumi` finds them; ends on SIGTERM or Ctrl-C.",
    )
    parser.add_argument("--state", type=Path, required=True, metavar="FILE", help="JSON state file; created if missing")
    parser.add_argument(
        "--fail",
        default=os.environ.get(FAILURE, ""),
        metavar="TYPE",
        help=f"the first creation of this resource type fails, once for the state file (default: ${FAILURE})",
    )
    parser.add_argument(
        "--forgetful",
        action="store_true",
        help="in the preview of a cluster's update its endpoint is unknown (pulumi-eks#352)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
