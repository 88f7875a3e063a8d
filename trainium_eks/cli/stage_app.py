"""The command that brings data to the shared volume: stage. The work is in a module of its own."""

import typer

app = typer.Typer(add_completion=False)
