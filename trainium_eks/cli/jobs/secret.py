"""``trn secret``: a token for gated models or of a tracker, in the namespace. It comes from a hidden source, and is not
written to a command line, into a job's object, or to the output."""

import os
import sys
from getpass import getpass
from typing import Annotated

import typer

from trainium_eks.cli.shared import output
from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.with_cluster_options import with_cluster_options
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import CommandError, UsageError
from trainium_eks.client.session import Session, open_session
from trainium_eks.jobs.data import tokens
from trainium_eks.jobs.objects import token_reference
from trainium_eks.jobs.objects.token_reference import DEFAULT_SECRET, TOKEN_KEY, TOKEN_VARIABLES, TRACKING_VARIABLES
from trainium_eks.kube.api import ApiError, ObjectReference

app = App()


@app.command(example="trn secret --from-aws ml/hugging-face")
@with_cluster_options
def secret(
    name: Annotated[str, typer.Argument(help="Name of the Secret.")] = "hugging-face",
    from_aws: Annotated[
        str, typer.Option("--from-aws", metavar="ID", help="Name or ARN of a secret of AWS Secrets Manager.")
    ] = "",
    json_key: Annotated[str, typer.Option("--json-key", help="Key of the token in a JSON object of several.")] = "",
    track: Annotated[
        bool, typer.Option("--track", help="Store the MLflow and Weights & Biases variables of your shell.")
    ] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the Secret.")] = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Store a token for gated models in a Secret: from the variable HF_TOKEN, a pipe, or a hidden prompt.

    It is never printed, and no job contains it: `trn stage` and `trn train --hf-secret` refer to it by its name. With
    --track it holds the variables for `trn train --track-secret`: MLFLOW_TRACKING_URI, WANDB_API_KEY and the like.

    Exit code: 0; 1 when it is refused; 2 when there is no token.
    """
    if track and name == DEFAULT_SECRET:
        name = token_reference.TRACKING_SECRET
    if track and from_aws:
        raise UsageError("--track takes variables of your environment, and no --from-aws")
    if not token_reference.NAME.fullmatch(name):
        raise UsageError("no Secret was made", filter(None, [token_reference.reference_problem(name)]), spell=str)
    with open_session(cluster) as session:
        namespace = session.namespace.name
        if delete:
            there = session.api.delete(ObjectReference("v1", "Secret", namespace, name), propagation="Background")
            state = "deleted" if there else "absent"
            text = f"The Secret {name} is {'deleted' if there else 'not there'}"
        else:
            try:
                values = _tracking() if track else {TOKEN_KEY: _token(name, from_aws, json_key, session)}
                replaced = tokens.put(session.api, namespace, name, values)
            except tokens.NoTokenError as error:
                raise UsageError(f"no Secret was made: {error}") from None
            except ApiError as error:
                raise CommandError(f"the Secret {name} of {namespace} was not made: {error.message}") from None
            state = "replaced" if replaced else "created"
            by_itself = "; trn stage takes it for hf:// by itself" if name == DEFAULT_SECRET else ""
            verb = "has another token now" if replaced else "holds the token"
            of_hub = f"The Secret {name} {verb}: --hf-secret {name}{by_itself}"
            text = f"The Secret {name} holds {', '.join(values)}: --track-secret {name}" if track else of_hub
    output.answer(cluster, {"namespace": namespace, "secret": name, "state": state}, text)


def _tracking() -> dict[str, str]:
    """Return the variables of trackers that the environment has."""
    found = {key: os.environ[key].strip() for key in TRACKING_VARIABLES if os.environ.get(key, "").strip()}
    if not found:
        raise UsageError(f"no Secret was made: export one or more of {', '.join(TRACKING_VARIABLES)}")
    return found


def _token(name: str, from_aws: str, json_key: str, session: Session) -> str:
    """Return the token from Secrets Manager, the environment, a pipe, or a hidden prompt."""
    if from_aws:
        return tokens.from_secrets_manager(from_aws, session.outputs.region, json_key)
    if given := os.environ.get(TOKEN_VARIABLES[0]):
        return tokens.cleaned(given)
    if not sys.stdin.isatty():
        given = sys.stdin.read()
        if not given.strip():
            where = f"export {TOKEN_VARIABLES[0]}, or pipe it in (trn secret {name} < FILE), or --from-aws ID"
            raise UsageError(f"no Secret was made: there is no token; {where}")
        return tokens.cleaned(given)
    return tokens.cleaned(getpass("Token (not shown): "))
