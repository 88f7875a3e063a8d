"""The commands of ``trn image`` and their options. The work is in modules of its own."""

import typer

app = typer.Typer(help="The training image: build, push, mirror.", no_args_is_help=True, add_completion=False)
