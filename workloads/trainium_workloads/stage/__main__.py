"""``python -m trainium_workloads.stage SOURCE --to DIRECTORY``.

Exit codes: 0 the data set is there; 1 it cannot be copied, however often it is tried; 75 it could not be copied now,
and another try resumes from there (``EX_TEMPFAIL`` of sysexits.h); 2 wrong usage.
"""

import argparse
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from trainium_workloads.stage.files import RESERVED, CopyInterruptedError, Source, StageError
from trainium_workloads.stage.progress import Progress

FAILED = 1
TRY_AGAIN = 75

_PACKAGES = {"s3": "boto3", "hf": "huggingface_hub", "http": "urllib3", "https": "urllib3"}
"""Scheme of a source to the package that fetches it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the copy and return the exit code."""
    asked = _parser().parse_args(arguments)
    # As process 1 of a container it would otherwise not hear of SIGTERM: there is no default action for that one.
    signal.signal(signal.SIGTERM, _end)
    # The team's group reads and writes the data sets of each member.
    os.umask(0o007)
    with Progress() as progress:
        try:
            install(asked.source.partition("://")[0], progress)
            from trainium_workloads.stage.copying import Copy
            from trainium_workloads.stage.destination import Destination

            directory = below(asked.root, asked.to)
            request = {name: getattr(asked, name) for name in ("source", "extract", "include", "exclude")}
            source = source_of(asked.source, asked.workers)
            copy = Copy(Destination(directory, request), source, progress, asked.workers)
            marker, did = copy.run(replace=asked.replace)
        except StageError as error:
            progress.tell(str(error), "failed")
            return FAILED
        except CopyInterruptedError as error:
            progress.tell(str(error), "interrupted")
            return TRY_AGAIN
        state = "is complete" if did else f"was complete already (staged {marker['finished']})"
        text = f"{directory} {state}: {marker['files']:,} files, {marker['bytes']:,} bytes"
        if marker["unverified"]:
            text += f"; of {marker['unverified']:,} the source tells no checksum, and sizes were compared"
        progress.tell(text, "complete" if did else "unchanged")
    return 0


def install(scheme: str, progress: Progress) -> None:
    """Install the packages into the directory that ``TRN_STAGE_PACKAGES`` names, unless a source's own is there."""
    target, missing = os.environ.get("TRN_STAGE_PACKAGES", ""), _PACKAGES.get(scheme)
    sys.path += [target] if target else []
    if missing is None or importlib.util.find_spec(missing):
        return
    why = "TRN_STAGE_PACKAGES names no directory to install it in"
    if target:
        progress.tell(f"installing {missing}, which this image does not have", "waiting")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--disable-pip-version-check"]
        command += ["--target", target, "--requirement", str(Path(__file__).with_name("requirements.txt"))]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if not done.returncode:
            importlib.invalidate_caches()
            return
        why = f"pip cannot install it: {done.stderr.strip().rpartition(chr(10))[2]}"
    raise StageError(
        f"the image has no {missing}, and {why}. Name an image that has it with --image (trn image push makes one), or "
        "let pods reach a package index on port 443"
    )


def source_of(url: str, workers: int) -> Source:
    """Return the source of a URL; StageError: it is of no kind of source. Each library is imported for its own sources
    alone."""
    scheme = url.partition("://")[0]
    if scheme in ("http", "https"):
        from trainium_workloads.stage.web import Web

        return Web(url)
    if scheme == "s3":
        from trainium_workloads.stage.s3 import S3

        return S3(url, workers)
    if scheme == "hf":
        from trainium_workloads.stage.hub import Hub

        return Hub(url)
    if scheme == "file":
        from trainium_workloads.stage.here import Here

        return Here(url)
    raise StageError(f"{url!r} is not a source: it must begin with s3://, https://, http://, hf://, file://")


def below(root: Path, to: str) -> Path:
    """Return the directory ``to`` below the volume's root; ``to`` may begin with the root. StageError: the directory is
    the root itself, outside it, or one of the copier's own."""
    inside = os.path.relpath(to, root) if os.path.isabs(to) else os.path.normpath(to)
    parts = Path(inside).parts
    if not parts or ".." in parts or parts[-1].startswith(RESERVED):
        raise StageError(f"--to {to} must be a directory below {root}, of a name of your own")
    directory = Path(root, inside)
    # A link on the way could lead out of the volume.
    if not directory.parent.resolve().is_relative_to(root.resolve()):
        raise StageError(f"--to {to} leads out of {root}, to {directory.parent.resolve()}")
    return directory


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="stage", description="Copies a data set to a directory, whole or not at all.")
    parser.add_argument("source", help="s3://…, https://…, hf://datasets/ORG/NAME[@rev] or file:///…")
    parser.add_argument("--to", required=True, help="directory below the root")
    parser.add_argument("--root", type=Path, default=Path("/data"), help="where the volume is mounted")
    parser.add_argument("--extract", action="store_true", help="unpack archives")
    parser.add_argument("--include", action="append", default=[], metavar="PATTERN")
    parser.add_argument("--exclude", action="append", default=[], metavar="PATTERN")
    parser.add_argument("--replace", action="store_true", help="copy staged files again")
    parser.add_argument("--workers", type=int, default=16, help="files or pieces that are fetched at once")
    return parser


def _end(*_: object) -> None:
    # At once: an interrupted copy loses nothing that is noted, and the grace period is for others.
    os.write(1, b'{"stage": "interrupted", "message": "asked to end; the next try goes on from here"}\n')
    os._exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
