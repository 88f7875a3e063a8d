"""Look-ups of a program in a cloud or another stack, answered without a call: by its user, or by a placeholder."""

from collections.abc import Mapping
from typing import Any

from trainium_eks.plan.graph import UNKNOWN
from trainium_eks.plan.recording import lookup_answers
from trainium_eks.plan.recording.assumptions import Assumptions
from trainium_eks.plan.recording.lookup_answers import Lookup


class UnknownLookupError(Exception):
    """A look-up without an answer of the user or of the table of placeholders. The message says how to give one."""


class Lookups:
    """Answers for one program. ``placeholders`` has the look-ups that got a placeholder, one line each."""

    def __init__(self, assumptions: Assumptions) -> None:
        self._assumptions = assumptions
        self.placeholders: set[str] = set()

    def function(self, token: str, arguments: Mapping[str, Any], region: str) -> dict[str, Any]:
        """Return the answer of a function (``aws.ec2.get_vpc``). Raise UnknownLookupError when it has none."""
        lookup = Lookup(token, arguments, region)
        given = self._assumptions.of_lookup(token, arguments)
        if given is not None:
            return {**arguments, **given}
        answer = lookup_answers.placeholder(lookup)
        if answer is None:
            raise UnknownLookupError(_how_to_give(f"the program calls {token}", token, lookup_answers.fields(token)))
        if token not in lookup_answers.CERTAIN:
            self.placeholders.add(f"{token}{_shown(arguments)}")
        return answer

    def method(self, token: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the user's answer of a resource's method; without one it is unknown."""
        given = self._given(token, arguments, f"{token}: its answer is unknown")
        return {"answer": UNKNOWN} if given is None else given

    def resource(self, type_: str, name: str, identity: str) -> Mapping[str, Any]:
        """Return the user's attributes of a resource that the program reads (``Vpc.get``); others are unknown."""
        unknown = f"{type_} {name} ({identity}), read: its attributes are unknown"
        return self._given(type_, {"id": identity}, unknown) or {}

    def existing(self, type_: str, identity: str) -> bool:
        """Return whether a resource exists, as the user says; false without an answer."""
        return self._given(type_, {"id": identity}, f"{type_} ({identity}): assumed not to exist") is not None

    def _given(self, token: str, arguments: Mapping[str, Any], without: str) -> Mapping[str, Any] | None:
        """Return the user's answer; keep the line ``without`` where there is none."""
        given = self._assumptions.of_lookup(token, arguments)
        if given is None:
            self.placeholders.add(without)
        return given

    def stack_values(self, stack: str) -> Mapping[str, Any]:
        """Return the outputs of another stack that the program needs as values. Raise UnknownLookupError when the user
        gave none."""
        given = self._assumptions.stack_references.get(stack)
        if given is None:
            raise UnknownLookupError(
                f"the program needs the outputs of the stack {stack}, which a plan does not ask. Give them in "
                f"answers.<stack>.yaml beside the stack's config, or with --stub FILE:\n"
                f"  stackReferences:\n    {stack}: outputs.json\n"
                f"and write outputs.json beside it: pulumi stack output --json --stack {stack} > outputs.json"
            )
        return given

    def stack_outputs(self, stack: str) -> Mapping[str, Any] | None:
        """Return the outputs of another stack; None when they are unknown."""
        given = self._assumptions.stack_references.get(stack)
        if given is None:
            self.placeholders.add(f"stack {stack}: its outputs are unknown")
        return given


def _shown(arguments: Mapping[str, Any]) -> str:
    plain = [f"{name}={value}" for name, value in sorted(arguments.items()) if isinstance(value, str | int | bool)]
    return f" ({', '.join(plain)})" if plain else ""


def _how_to_give(subject: str, token: str, fields: tuple[str, ...]) -> str:
    shown = ", ".join(f"{name}: ..." for name in fields[:8]) or "..."
    return (
        f"{subject}, and a plan makes up no answer to it. Give the answer in answers.<stack>.yaml beside the stack's "
        f"config, or with --stub FILE:\n"
        f"  lookups:\n    {token}: {{{shown}}}"
    )
