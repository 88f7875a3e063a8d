"""``trn secret``: a token for gated models in the namespace. The token is read from a hidden source, and is not written
to a command line, into a job's object, or to the output."""

import getpass
import os
import sys
from dataclasses import dataclass

from trainium_eks.cli.shared.output import write, write_json
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, WRONG_USAGE, Failure
from trainium_eks.client.session import Session, open_session
from trainium_eks.jobs.data import tokens
from trainium_eks.jobs.objects.token_reference import DEFAULT_SECRET, NAME, TOKEN_VARIABLES, reference_problem
from trainium_eks.kube.api import ApiError, ObjectReference

SCHEMA_VERSION = 1
"""Version of the documents of ``--json``."""


@dataclass(frozen=True)
class SecretOptions:
    """The options of one call."""

    cluster: ClusterOptions
    name: str = DEFAULT_SECRET
    from_aws: str = ""
    """Name or ARN of a secret of Secrets Manager."""
    json_key: str = ""
    delete: bool = False


def run(options: SecretOptions) -> int:
    """Create or delete the Secret; return the exit code."""
    if not NAME.fullmatch(options.name):
        problem = reference_problem(options.name)
        raise Failure(WRONG_USAGE, "no Secret was made", [problem] if problem else [], spell=str)
    with open_session(options.cluster) as session:
        return _delete(options, session) if options.delete else _put(options, session)


def _put(options: SecretOptions, session: Session) -> int:
    namespace = session.namespace.name
    try:
        replaced = tokens.put(session.api, namespace, options.name, _token(options, session))
    except tokens.NoToken as error:
        raise Failure(WRONG_USAGE, f"no Secret was made: {error}") from None
    except ApiError as error:
        raise Failure(FAILED, f"the Secret {options.name} of {namespace} was not made: {error.message}") from None
    by_itself = "; trn stage takes it for hf:// by itself" if options.name == DEFAULT_SECRET else ""
    verb = "has another token now" if replaced else "holds the token"
    sentence = f"The Secret {options.name} {verb}: --hf-secret {options.name}{by_itself}"
    _tell(options, namespace, "replaced" if replaced else "created", sentence)
    return 0


def _delete(options: SecretOptions, session: Session) -> int:
    namespace = session.namespace.name
    there = session.api.delete(ObjectReference("v1", "Secret", namespace, options.name), propagation="Background")
    state = "deleted" if there else "absent"
    _tell(options, namespace, state, f"The Secret {options.name} is {'deleted' if there else 'not there'}")
    return 0


def _token(options: SecretOptions, session: Session) -> str:
    """Return the token from Secrets Manager, the environment, a pipe, or a hidden prompt."""
    if options.from_aws:
        return tokens.from_secrets_manager(options.from_aws, session.outputs.region, options.json_key)
    if given := os.environ.get(TOKEN_VARIABLES[0]):
        return tokens.cleaned(given)
    if not sys.stdin.isatty():
        given = sys.stdin.read()
        if not given.strip():
            where = f"export {TOKEN_VARIABLES[0]}, or pipe it in (trn secret {options.name} < FILE), or --from-aws ID"
            raise Failure(WRONG_USAGE, f"no Secret was made: there is no token; {where}")
        return tokens.cleaned(given)
    return tokens.cleaned(getpass.getpass("Token (not shown): "))


def _tell(options: SecretOptions, namespace: str, state: str, sentence: str) -> None:
    if options.cluster.as_json:
        write_json({"schemaVersion": SCHEMA_VERSION, "namespace": namespace, "secret": options.name, "state": state})
    else:
        write(f"{sentence}\n")
