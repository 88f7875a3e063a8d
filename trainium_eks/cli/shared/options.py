"""Options of many commands."""

from pathlib import Path
from typing import Annotated

import typer

Stack = Annotated[
    str,
    typer.Option(
        "--stack",
        "-s",
        show_default=False,
        help="Environment: reads Pulumi.<stack>.yaml. Default: TRN_STACK, else the local cloud that runs here, else "
        "dev (trn local: local).",
    ),
]
Directory = Annotated[
    Path | None,
    typer.Option(
        "--directory", "-C", help="Project directory; default: the nearest one upwards from here with a Pulumi.yaml."
    ),
]
Stub = Annotated[Path | None, typer.Option("--stub", help="YAML file with answers for the program's look-ups.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="Plain text; NO_COLOR does the same.")]
