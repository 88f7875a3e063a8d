"""Commands that watch: jobs, status, logs, top, tensorboard, profile, cancel. The work is in modules of their own."""

import typer

app = typer.Typer(add_completion=False)
