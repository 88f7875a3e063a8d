"""The command ``python -m trainium_eks.local.toolchain``, which provides the tools and shows them."""

import argparse
import re
import sys
import threading
import time

from trainium_eks.local.toolchain import (
    OPERATOR,
    SCALER,
    Binary,
    Unavailable,
    provide,
    provide_part,
    provide_prometheus,
    provide_volcano,
)
from trainium_eks.model.catalogue.versions import KUBERNETES


def main() -> int:
    """Return 0 when all tools but Volcano's are provided, and always with ``--try``; 1 when a tool is missing."""
    parser = argparse.ArgumentParser(
        prog="python -m trainium_eks.local.toolchain",
        description="Finds, downloads or builds the programs of the local cloud, and shows where they are.",
    )
    parser.add_argument("--kubernetes", default=KUBERNETES, metavar="MINOR", help="minor version; default: %(default)s")
    parser.add_argument(
        "--try",
        action="store_true",
        dest="attempt",
        help="show only progress, and exit with 0 even if something is missing",
    )
    parser.add_argument(
        "--training-operator",
        action="store_true",
        help="also Kubeflow's Training Operator, which only stacks with GPU nodes run",
    )
    parser.add_argument(
        "--prometheus", action="store_true", help="also Prometheus and promtool, which the tests of dashboards run"
    )
    parser.add_argument("--karpenter", action="store_true", help="also Karpenter, which only stacks with it run")
    asked = parser.parse_args()
    minor = asked.kubernetes
    if not re.fullmatch(r"1\.\d+", minor):
        parser.error(f"{minor!r} is not a minor version of Kubernetes such as {KUBERNETES}")
    began = time.monotonic()
    try:
        binaries, why_no_volcano = _provided(minor)
        for part, wanted in ((OPERATOR, asked.training_operator), (SCALER, asked.karpenter)):
            if wanted:
                binaries.append(provide_part(part, progress=_say))
        if asked.prometheus:
            binaries += provide_prometheus(progress=_say).values()
    except Unavailable as error:
        if asked.attempt:
            return 0
        sys.stderr.write(f"{error}\n")
        return 1
    if asked.attempt:
        return 0
    rows = [("NAME", "VERSION", "ORIGIN", "PATH")]
    rows += [(binary.name, binary.version, binary.origin, str(binary.path)) for binary in binaries]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        sys.stdout.write("  ".join([*cells, row[3]]) + "\n")
    if why_no_volcano:
        sys.stderr.write(f"{why_no_volcano}\n")
    besides = "; without Volcano, jobs are validated but not scheduled" if why_no_volcano else ""
    sys.stderr.write(f"Kubernetes {minor}: everything is there after {time.monotonic() - began:.1f} s{besides}\n")
    return 0


def _provided(minor: str) -> tuple[list[Binary], str]:
    """Return all available tools, and why Volcano is missing. Downloads run side by side; Kubernetes is compiled first.

    Raises:
        Unavailable: a tool is missing that the local cloud cannot do without.
    """
    kubernetes = threading.Event()
    volcano: list[Binary] = []
    reasons: list[str] = []

    def provide_beside() -> None:
        try:
            volcano.extend(provide_volcano(progress=_say, before_building=lambda: _await(kubernetes)).values())
        except Unavailable as error:
            reasons.append(str(error))

    # A daemon: the process does not wait for it when this thread is interrupted or fails.
    beside = threading.Thread(target=provide_beside, daemon=True)
    beside.start()
    binaries = list(provide(minor, progress=_say).values())
    kubernetes.set()
    beside.join()
    return [*binaries, *volcano], "".join(reasons)


def _await(event: threading.Event) -> None:
    event.wait()


def _say(message: str) -> None:
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
