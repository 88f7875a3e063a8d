"""The comparison of a stack's objects with its cluster, for ``trn verify`` and ``trn doctor``."""

from pathlib import Path

from trainium_eks.client.cluster_access import StackAccess
from trainium_eks.client.failure import Failure
from trainium_eks.client.project import find_project
from trainium_eks.kube.api import Api
from trainium_eks.kube.errors import ClusterError
from trainium_eks.model.validation.parsing import MISSHAPEN
from trainium_eks.operate.cleanup.state import StackState, StateError
from trainium_eks.operate.verify.examined import Made
from trainium_eks.operate.verify.made import OBJECTS, compare


def compared(source: StackAccess, api: Api, directory: Path | None) -> Made:
    """Return the comparison; empty, with the reason, where the stack's state cannot be read or changes meanwhile.

    Args:
        source: the stack.
        api: its cluster.
        directory: of the project, in which Pulumi is asked for the state of a stack on AWS.
    """
    try:
        if source.paths is not None:
            text = source.paths.made.read_text(encoding="utf-8")
            found = compare(api, StackState.parse(text, str(source.paths.made)), source.local)
            if source.paths.made.read_text(encoding="utf-8") == text:
                return found
        elif source.stack:
            return compare(api, StackState.ask(source.stack, find_project(directory)), None)
        why = "outputs from a file do not name them"
    except FileNotFoundError:
        why = "an `up` goes on, or did not end well"
    except (StateError, Failure, ClusterError, OSError, *MISSHAPEN) as error:
        why = str(error).partition("\n")[0]
    return Made(unread={OBJECTS: why})
