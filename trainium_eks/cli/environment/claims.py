"""Volume claims that an update deletes, and the pods that still hold them.

Kubernetes keeps a deleted claim for as long as a pod that mounts it exists. The engine waits five minutes for that and
fails; the claim is then marked as deleted for good. So ``trn deploy up`` looks ahead and does not start.
"""

import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainium_eks.client.cluster_access import open_stack
from trainium_eks.client.failure import CommandError
from trainium_eks.client.notices import Say, unrepeated
from trainium_eks.kube.cluster import find_volume_users
from trainium_eks.model.validation.parsing import parse_json
from trainium_eks.operate.cleanup.state import StackState, StateError

CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"
NAMESPACE = "kubernetes:core/v1:Namespace"

TAKES_AWAY = ("delete", "replace", "delete-replaced")
"""Steps of a preview after which the old object is gone."""

NOT_FOR_PREVIEW = ("--yes", "-y", "--skip-preview", "-f", "--json", "-j")
"""Arguments of ``pulumi up`` that do not affect the changes."""

PAUSE_SECONDS = 5.0

_SHOWN = 5
"""Pods of a claim that are named; the others are counted."""


@dataclass(frozen=True)
class Claim:
    """A claim that an update deletes."""

    namespace: str
    name: str
    with_namespace: bool = False
    """Whether its whole namespace goes, which ends the pods too."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Holder:
    """A pod that holds a claim."""

    claim: Claim
    pod: str
    phase: str
    """``Running``, or ``Succeeded`` and ``Failed`` for a finished one."""
    owner: str
    """Controller of the pod, as kubectl takes it: ``job.batch.volcano.sh/bert``; ``pod/…`` without a controller."""


Ask = Callable[[Iterable[Claim]], tuple[Holder, ...]]


def deleted_claims(preview: Mapping[str, Any]) -> tuple[Claim, ...]:
    """Return the claims that an update deletes and that a team's pods may hold, by ``pulumi preview --json``.

    A claim that another deleted resource depends on is left out: that resource is the stack's own job, and the engine
    deletes it first.
    """
    gone = {
        step["urn"]: step["oldState"]
        for step in preview.get("steps") or ()
        if step.get("op") in TAKES_AWAY and step.get("oldState")
    }
    own = {
        urn
        for state in gone.values()
        for urns in (state.get("propertyDependencies") or {}).values()
        for urn in urns or ()
    }
    namespaces = {_metadata(state).get("name") for state in gone.values() if state.get("type") == NAMESPACE}
    found = []
    for urn, state in gone.items():
        if state.get("type") == CLAIM and urn not in own:
            metadata = _metadata(state)
            namespace = str(metadata.get("namespace", "default"))
            found.append(Claim(namespace, str(metadata.get("name", "")), namespace in namespaces))
    return tuple(sorted(found, key=str))


def _metadata(state: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = (state.get("inputs") or {}).get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}


def preview_claims(project: Path, stack: str, arguments: Sequence[str]) -> tuple[Claim, ...]:
    """Return the claims that ``pulumi up`` would delete; empty where the stack has no claims yet."""
    try:
        if not any(StackState.ask(stack, project).of_type(CLAIM)):
            return ()
    except StateError as error:
        raise CommandError(str(error)) from None
    passed = [each for each in arguments if each not in NOT_FOR_PREVIEW]
    command = ["pulumi", "preview", "--json", "--stack", stack, *passed]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    try:
        return deleted_claims(parse_json(done.stdout[done.stdout.index("{") :]))
    except ValueError:
        said = (done.stderr or done.stdout).strip()[-500:] or "no answer"
        raise CommandError(f"pulumi preview: {said}") from None


def find_holders(project: Path, stack: str, claims: Iterable[Claim]) -> tuple[Holder, ...]:
    """Return the pods of the stack's cluster that hold claims. CommandError: the cluster cannot be asked."""
    with open_stack(stack, project) as api:
        pods = {name: api.list("v1", "Pod", namespace=name) for name in {each.namespace for each in claims}}
    return tuple(holder for claim in claims for holder in holders(claim, pods[claim.namespace]))


def holders(claim: Claim, pods: Iterable[Mapping[str, Any]]) -> tuple[Holder, ...]:
    """Return the pods of the claim's namespace that hold the claim, by name."""
    found = []
    for pod in find_volume_users(pods, claim.name):
        metadata = pod["metadata"]
        owner = next((each for each in metadata.get("ownerReferences") or () if each.get("controller")), None)
        phase = str((pod.get("status") or {}).get("phase", "Unknown"))
        found.append(Holder(claim, metadata["name"], phase, _for_kubectl(owner) or f"pod/{metadata['name']}"))
    return tuple(sorted(found, key=lambda each: each.pod))


def _for_kubectl(owner: Mapping[str, Any] | None) -> str:
    """Return ``job.batch.volcano.sh/bert`` for an owner reference; empty for None."""
    if owner is None:
        return ""
    group = str(owner.get("apiVersion", "")).rpartition("/")[0]
    kind = str(owner.get("kind", "")).lower()
    return f"{kind}.{group}/{owner.get('name')}" if group else f"{kind}/{owner.get('name')}"


def format_claims(claims: Sequence[Claim]) -> str:
    """Return a message that lists the claims an update deletes."""
    lines = [f"  {claim}{' (with its namespace and pods)' if claim.with_namespace else ''}" for claim in claims]
    return "\n".join(["This update deletes claims of the shared file system:", *lines])


def refusal(found: Sequence[Holder]) -> str:
    """Return the message that refuses the update and lists the commands that free the claims."""
    lines = ["Pods hold them, so the update is not started. Finished pods hold claims too."]
    lines += [f"  {line}" for line in _listed(found)]
    lines.append("  Let the jobs finish, then delete them (what they wrote stays as long as the file system):")
    for namespace in sorted({each.claim.namespace for each in found}):
        owners = sorted({each.owner for each in found if each.claim.namespace == namespace})
        lines.append(f"    kubectl -n {namespace} delete {' '.join(owners)}")
    lines.append("  Then run this again, or run it with --wait-for-pods to wait for that.")
    return "\n".join(lines)


def wait(claims: Sequence[Claim], ask: Ask, say: Say) -> None:
    """Wait until no pod holds the claims; report the pods whenever they change."""
    say = unrepeated(say)
    while found := ask(claims):
        title = "Waiting for the pods that hold them (Ctrl-C stops; nothing has been changed):"
        say("\n".join([title, *_listed(found)]))
        time.sleep(PAUSE_SECONDS)


def _listed(found: Sequence[Holder]) -> list[str]:
    """Return one line for each claim."""
    lines = []
    for claim in dict.fromkeys(each.claim for each in found):
        pods = [f"{each.pod} ({each.phase})" for each in found if each.claim == claim]
        more = f" and {len(pods) - _SHOWN} more" if len(pods) > _SHOWN else ""
        lines.append(f"{claim}: {', '.join(pods[:_SHOWN])}{more}")
    return lines
