"""``trn kubeconfig``: a researcher's kubeconfig, with its context in their namespace; of a local cloud also the
administrator's."""

import copy
import json
from pathlib import Path
from typing import Annotated

import typer
import yaml

from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.output import write
from trainium_eks.cli.shared.with_cluster_options import Directory, Json, Namespace, Outputs, Stack
from trainium_eks.client.cluster_access import find_source, find_stack
from trainium_eks.client.failure import UsageError
from trainium_eks.client.session import find_namespace
from trainium_eks.local import access
from trainium_eks.model.validation.parsing import parse_yaml

app = App()


@app.command(example="trn kubeconfig --namespace training > kubeconfig.yaml")
def kubeconfig(
    stack: Stack = "",
    namespace: Namespace = None,
    admin: Annotated[
        bool, typer.Option("--admin", help="Print the administrator's kubeconfig of a local cloud.")
    ] = False,
    path: Annotated[bool, typer.Option("--path", help="Print the path of a local cloud's kubeconfig.")] = False,
    outputs: Outputs = None,
    as_json: Json = False,
    directory: Directory = None,
) -> None:
    """Print a kubeconfig with your namespace in its context: trn kubeconfig > kubeconfig.yaml."""
    own = admin or path  # not another file that the variable KUBECONFIG names
    source = find_stack(stack, outputs, directory) if own else find_source(stack, outputs, None, directory)
    if own and source.paths is None:
        option = "--admin" if admin else "--path"
        raise UsageError(
            f"{option} is for a local cloud, and {stack or 'this stack'} does not run here (`trn local up`)",
        )
    team = "" if admin else find_namespace(source.outputs, namespace, outputs).name
    if source.paths is not None and source.has_own_kubeconfig:
        file: Path | None = source.paths.kubeconfig if admin else access.make_kubeconfig(source.paths, team)
        if path:
            write(f"{file}\n")
            return
    else:
        file = source.kubeconfig
    text = file.read_text(encoding="utf-8") if file else source.merged or source.outputs.kubeconfig
    document = _in_namespace(text, team)
    write(json.dumps(document, indent=2) + "\n" if as_json else yaml.safe_dump(document, sort_keys=False))


def _in_namespace(text: str, namespace: str) -> dict[str, object]:
    """Return a kubeconfig, YAML or JSON, with its current context in a namespace; empty leaves the context."""
    try:
        document = copy.deepcopy(parse_yaml(text))
        current = document["current-context"]
        [context] = [each for each in document["contexts"] if each["name"] == current]
        if namespace:
            context["context"]["namespace"] = namespace
    except (KeyError, TypeError, ValueError):
        title = "the outputs hold no kubeconfig (pulumi shows it only with --show-secrets); give one with --kubeconfig"
        raise UsageError(title) from None
    return dict(document)
