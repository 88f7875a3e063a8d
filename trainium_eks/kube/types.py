"""Terms of the Kubernetes API server: kinds, names of objects, and reasons of its refusals."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from trainium_eks.kube.errors import ClusterError
from trainium_eks.model.validation.parsing import parse_json

# The API server shows a value that it refuses whole, and a pod template that is refused is pages long.
_LONG_VALUE = re.compile(r"(Invalid value: .{80}).{200,}([}\]\"]: )", re.DOTALL)


@dataclass(frozen=True)
class Cause:
    """One of several faults that an answer names."""

    field: str
    """Path in the object, as the API server writes it (``spec.ports[0].port``); may be empty."""
    reason: str
    """``FieldValueInvalid``, ``FieldValueForbidden``, ``FieldManagerConflict``, ..."""
    message: str

    def __str__(self) -> str:
        message = _LONG_VALUE.sub(r"\1 ... \2", self.message)
        return f"{self.field}: {message}" if self.field else message


class ApiError(ClusterError):
    """The API server refused a request. The text is the server's own: its message, with each fault on a line."""

    def __init__(self, status: int, reason: str, message: str, causes: Sequence[Cause] = ()) -> None:
        self.status = status
        """HTTP status."""
        self.reason = reason
        """``NotFound``, ``Invalid``, ``AlreadyExists``, ...; empty when the server gave none."""
        self.message = message
        self.causes = tuple(causes)
        super().__init__(self._text())

    def _text(self) -> str:
        faults = list(dict.fromkeys(str(cause) for cause in self.causes if cause.field))
        # The message of an invalid object is its name, "is invalid: " and all faults on one line.
        start, invalid, _ = self.message.partition(" is invalid: ")
        if self.reason != "Invalid" or not invalid or not faults:
            return self.message
        return f"{start}{invalid}{faults[0]}" if len(faults) == 1 else "\n  ".join([f"{start} is invalid:", *faults])

    @staticmethod
    def of(status: int, body: str) -> "ApiError":
        """Return the error that an answer's body (a ``Status`` object, or text) describes."""
        try:
            answer = parse_json(body)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            first = body.strip().partition("\n")[0] or "no explanation"
            return ApiError(status, "", f"the API server answered HTTP {status}: {first}")
        details = answer.get("details")
        causes = details.get("causes") if isinstance(details, dict) else None
        return ApiError(
            status,
            str(answer.get("reason") or ""),
            str(answer.get("message") or f"the API server answered HTTP {status} without a message"),
            [
                Cause(*(str(each.get(field) or "") for field in ("field", "reason", "message")))
                for each in (causes if isinstance(causes, list) else ())
                if isinstance(each, dict)
            ],
        )


class NoSuchKindError(ClusterError):
    """The API server does not serve this kind."""


@dataclass(frozen=True)
class ApiKind:
    """A kind, as discovery describes it."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of the kind's collection (in all namespaces when none is given), or of one object, or of its
        subresource."""
        parts = [f"/{'apis' if '/' in self.api_version else 'api'}/{self.api_version}"]
        if self.namespaced and namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts += [part for part in (self.plural, quote(name, safe=":"), subresource) if part]
        return "/".join(parts)


@dataclass(frozen=True)
class ObjectReference:
    """The name of one object."""

    api_version: str
    kind: str
    namespace: str
    """Empty for a kind outside namespaces."""
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace + '/' if self.namespace else ''}{self.name}"

    def to_json(self) -> dict[str, str]:
        """Return the reference as JSON."""
        return {"apiVersion": self.api_version, "kind": self.kind, "namespace": self.namespace, "name": self.name}

    @staticmethod
    def from_json(data: Mapping[str, str]) -> "ObjectReference":
        """Return the reference of :meth:`to_json`'s JSON."""
        return ObjectReference(data["apiVersion"], data["kind"], data["namespace"], data["name"])
