"""Commands after a broken or destroyed stack, and their options."""

from pathlib import Path
from typing import Annotated

import typer

from trainium_eks.cli.shared.command import ENVIRONMENT, App
from trainium_eks.cli.shared.options import Directory, NoColor, Stack

app = App(panel=ENVIRONMENT)

State = Annotated[
    Path | None,
    typer.Option("--state", help="What `pulumi stack export` wrote, - for standard input; default: ask pulumi."),
]
Region = Annotated[str | None, typer.Option("--region", help="AWS region; default: the stack's.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]


@app.command(example="trn orphans --stack dev")
def orphans(
    stack: Stack = "",
    state: State = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="Look for what belongs to this EKS cluster; needs no state.")
    ] = None,
    region: Region = None,
    as_json: AsJson = False,
    no_color: NoColor = False,
    directory: Directory = None,
) -> None:
    """List the resources that a stack left in the account, node groups first, with costs and removing commands. Only
    reads.

    Exit code: 0 when nothing is left and everything was looked at; 1 otherwise; 2 for wrong usage.
    """
    from trainium_eks.cli.environment.cleanup import orphans as command

    asked = command.OrphansOptions(
        stack, state=state, cluster=cluster, region=region, as_json=as_json, no_color=no_color, directory=directory
    )
    raise typer.Exit(command.run(asked))


@app.command(example="trn recover --stack dev --state state.json")
def recover(
    stack: Stack = "",
    state: State = None,
    region: Region = None,
    as_json: AsJson = False,
    no_color: NoColor = False,
    directory: Directory = None,
) -> None:
    """Advise on each operation that an interrupted update left open: import, clear or refresh. Only reads.

    Exit code: 0; 1 when something is left to you; 2 for wrong usage.
    """
    from trainium_eks.cli.environment.cleanup import recover as command

    asked = command.RecoverOptions(
        stack, state=state, region=region, as_json=as_json, no_color=no_color, directory=directory
    )
    raise typer.Exit(command.run(asked))
