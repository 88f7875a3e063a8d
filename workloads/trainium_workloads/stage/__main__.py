"""``python -m trainium_workloads.stage SOURCE --to DIRECTORY``.

Exit codes: 0 the data set is there; 1 it cannot be copied, however often it is tried; 75 it could not be copied now,
and another try resumes from there (``EX_TEMPFAIL`` of sysexits.h); 2 wrong usage.
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from trainium_workloads.stage.copying import WORKERS, Settings, stage
from trainium_workloads.stage.destination import Destination, StageRequest
from trainium_workloads.stage.files import RESERVED, Interrupted, StageError
from trainium_workloads.stage.progress import Progress
from trainium_workloads.stage.transfer import CHUNK_BYTES
from trainium_workloads.stage.web import Web

FAILED = 1
TRY_AGAIN = 75


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the copy and return the exit code."""
    asked = _parser().parse_args(arguments)
    # As process 1 of a container it would otherwise not hear of SIGTERM: there is no default action for that one.
    signal.signal(signal.SIGTERM, _end)
    # The team's group reads and writes the data sets of each member.
    os.umask(0o007)
    request = StageRequest(asked.source, asked.list, asked.extract, tuple(asked.include), tuple(asked.exclude))
    settings = Settings(max(1, asked.workers), asked.chunk_mib * 1024 * 1024, asked.replace)
    with Progress() as progress:
        try:
            directory = below(asked.root, asked.to)
            marker, did = stage(Destination(directory, request), Web(), progress, settings)
        except StageError as error:
            progress.tell(str(error), "failed")
            return FAILED
        except Interrupted as error:
            progress.tell(str(error), "interrupted")
            return TRY_AGAIN
        progress.tell(_summary(directory, marker, did=did), "complete" if did else "unchanged")
    return 0


def below(root: Path, to: str) -> Path:
    """Return the directory ``to`` below the volume's root; ``to`` may begin with the root.

    Raises:
        StageError: it is the root itself, outside it, or one of the copier's own.
    """
    inside = os.path.relpath(to, root) if os.path.isabs(to) else os.path.normpath(to)
    parts = Path(inside).parts
    if not parts or ".." in parts or parts[-1].startswith(RESERVED):
        raise StageError(f"--to {to} must be a directory below {root}, of a name of your own")
    directory = Path(root, inside)
    # A link on the way could lead out of the volume.
    if not directory.parent.resolve().is_relative_to(root.resolve()):
        raise StageError(f"--to {to} leads out of {root}, to {directory.parent.resolve()}")
    return directory


def _summary(directory: Path, marker: dict[str, object], *, did: bool) -> str:
    began = f"{directory} is complete" if did else f"{directory} was complete already (staged {marker['finished']})"
    text = f"{began}: {marker['files']:,} files, {marker['bytes']:,} bytes"
    without = int(str(marker["unverified"]))
    return f"{text}; of {without:,} the source tells no checksum, and sizes were compared" if without else text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="stage", description="Copies a data set to a directory, whole or not at all.")
    parser.add_argument("source", help="s3://…, https://…, hf://datasets/ORG/NAME[@rev] or file:///…")
    parser.add_argument("--to", required=True, help="directory below the root")
    parser.add_argument("--root", type=Path, default=Path("/data"), help="where the volume is mounted")
    parser.add_argument("--list", action="store_true", help="the source is a list of files")
    parser.add_argument("--extract", action="store_true", help="unpack archives")
    parser.add_argument("--include", action="append", default=[], metavar="PATTERN")
    parser.add_argument("--exclude", action="append", default=[], metavar="PATTERN")
    parser.add_argument("--replace", action="store_true", help="copy anew what was staged there")
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--chunk-mib", type=int, default=CHUNK_BYTES // 1024**2)
    return parser


def _end(number: int, frame: FrameType | None) -> None:
    del frame
    # At once: an interrupted copy loses nothing that is noted, and the grace period is for others.
    sys.stdout.write('{"stage": "interrupted", "message": "asked to end; the next try goes on from here"}\n')
    sys.stdout.flush()
    os._exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
