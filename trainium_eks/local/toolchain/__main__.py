"""The command ``python -m trainium_eks.local.toolchain``, which provides the tools and shows them."""

import argparse
import re
import sys
import time

from trainium_eks.local.toolchain import PROMETHEUS, TRAINING_OPERATOR, VOLCANO, UnavailableError, kubernetes, provide
from trainium_eks.model.catalogue.versions import KUBERNETES

_OPTIONS = {
    "--training-operator": (TRAINING_OPERATOR, "Kubeflow's Training Operator, which only stacks with GPU nodes run"),
    "--prometheus": (PROMETHEUS, "Prometheus and promtool, which the tests of dashboards run"),
}


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
    for option, (bundle, words) in _OPTIONS.items():
        parser.add_argument(
            option, dest="besides", action="append_const", const=bundle, default=[], help=f"also {words}"
        )
    asked = parser.parse_args()
    minor = asked.kubernetes
    if not re.fullmatch(r"1\.\d+", minor):
        parser.error(f"{minor!r} is not a minor version of Kubernetes such as {KUBERNETES}")
    began = time.monotonic()
    why_no_volcano = ""
    try:
        binaries = [*provide(*kubernetes(minor), progress=_say).values()]
        try:
            binaries += provide(VOLCANO, progress=_say).values()
        except UnavailableError as error:
            why_no_volcano = str(error)
        binaries += provide(*asked.besides, progress=_say).values()
    except UnavailableError as error:
        if not asked.attempt:
            sys.stderr.write(f"{error}\n")
        return 0 if asked.attempt else 1
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


def _say(message: str) -> None:
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
