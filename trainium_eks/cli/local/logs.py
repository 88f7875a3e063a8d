"""``trn local logs``: the log of a process of the local cloud."""

import sys
import time
from typing import Annotated

import typer

from trainium_eks.cli.local.target import paths_of
from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.options import Directory, Stack
from trainium_eks.client.failure import UsageError

app = App(otherwise="local")


@app.command(example="trn local logs kube-apiserver --follow")
def logs(
    process: Annotated[str | None, typer.Argument(help="kube-apiserver, etcd, kwok, …; default: list them.")] = None,
    stack: Stack = "",
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="Number of lines, from the end.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new lines.")] = False,
    directory: Directory = None,
) -> None:
    """Show the log of a process."""
    files = {file.stem: file for file in sorted(paths_of(stack, directory).logs.glob("*.log"))}
    if not files:
        raise UsageError(f"{stack} has no logs here: it was not started (`trn local up`)")
    if process is None:
        sys.stdout.write("".join(f"{name}\n" for name in files))
        return
    if process not in files:
        raise UsageError(f"no log of {process!r}; there are {', '.join(files)}")
    with files[process].open(encoding="utf-8", errors="replace") as log:
        sys.stdout.write("".join(log.readlines()[-lines:]))
        while follow:
            sys.stdout.write(log.read())
            sys.stdout.flush()
            time.sleep(0.2)
