"""Commands that submit: train, compile, scale, kubeconfig. The work is in modules of their own."""

import typer

app = typer.Typer(add_completion=False)
