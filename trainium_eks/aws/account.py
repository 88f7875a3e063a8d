"""One AWS account in one region, to be read and never written to.

Does I/O, by boto3, with the caller's credentials.
"""

import re
import textwrap
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from trainium_eks.aws.sessions import NO_BOTO3, connect, lacks_credentials, why_not_answered
from trainium_eks.model.catalogue import regions

READS = ("Describe", "Get", "List", "Head", "Simulate")
"""Beginnings of the names of operations that change nothing. All others are stopped before they leave this machine."""

RIGHTS: Mapping[str, str] = {
    "s3:GetBucketEncryption": "s3:GetEncryptionConfiguration",
    "s3:HeadBucket": "s3:ListBucket",
    "ssm:GetParameters": "ssm:GetParameters",
}
"""IAM action of an operation, if its name differs from the operation's."""

_PREFIXES = {
    "service-quotas": "servicequotas",
    "elb": "elasticloadbalancing",
    "elbv2": "elasticloadbalancing",
    "resourcegroupstaggingapi": "tag",
}
"""IAM's prefix of a service, if boto3 has another name for it."""

_DENIED = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthorizationError", "403", "Forbidden")
_THROTTLED = (
    *("Throttling", "ThrottlingException", "ThrottledException", "RequestLimitExceeded", "TooManyRequestsException"),
    *("SlowDown", "RequestThrottled"),
)
_NO_LOGIN = (
    *("ExpiredToken", "ExpiredTokenException", "RequestExpired", "InvalidClientTokenId", "AuthFailure"),
    *("UnrecognizedClientException", "SignatureDoesNotMatch", "InvalidSignatureException", "InvalidAccessKeyId"),
)

Json = Any

T = TypeVar("T")


class NotCheckedError(Exception):
    """AWS could not be queried; the text names the reason and the missing right or tool."""

    def __init__(self, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.headers = headers or {}
        """Headers of AWS' answer, where there was one: S3 tells a bucket's region even to those who may not look
        inside."""


class NoCredentialsError(NotCheckedError):
    """There are no AWS credentials on this machine, or AWS does not take them."""


class RequestError(Exception):
    """AWS answered with an error about the requested resource (``NoSuchEntity``)."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code
        """Error code of AWS."""


class WriteAttemptedError(RuntimeError):
    """An operation outside :data:`READS` was about to be sent. A fault of this library."""


@dataclass(frozen=True)
class Caller:
    """The identity of the credentials."""

    account: str
    """12 digits."""
    arn: str
    """ARN by STS: ``arn:aws:sts::111122223333:assumed-role/deployer/session``."""

    @property
    def role(self) -> str:
        """Return the name of the role, without its path; empty for a user."""
        kind, _, rest = self.arn.rpartition(":")[2].partition("/")
        return rest.split("/")[0] if kind == "assumed-role" else ""


class Account:
    """The account that the credentials here belong to. May be used by several threads."""

    def __init__(self, region: str, session: Any = None) -> None:
        self.region = region
        """Region of the requests."""
        self.partition = regions.partition(region)
        """``aws``, ``aws-cn``, ``aws-us-gov``."""
        self._session = session
        self._clients: dict[tuple[str, str], Any] = {}
        self._lock = threading.RLock()
        self._once: dict[str, _Once] = {}
        self.asked: set[str] = set()
        """Operations sent, with their service: ``ec2:DescribeVpcs``."""

    def caller(self) -> Caller:
        """Return the identity of the credentials."""
        answer = self.once("caller", lambda: self.call("sts", "get_caller_identity"))
        return Caller(answer["Account"], answer["Arn"])

    def call(self, service: str, operation: str, *, region: str = "", **parameters: Json) -> Json:
        """Return one answer; service and operation as boto3 calls them (``service-quotas``, ``describe_vpcs``).

        Raises :class:`NotCheckedError` where AWS could not be queried, and :class:`RequestError` for an error as the
        answer, whose code names the cause.
        """
        return self._send(service, operation, lambda client: getattr(client, operation)(**parameters), region)

    def find(self, service: str, operation: str, *, absent: str, region: str = "", **parameters: Json) -> Json:
        """Return one answer as :meth:`call` does; None for an error whose whole code matches the pattern ``absent``."""
        try:
            return self.call(service, operation, region=region, **parameters)
        except RequestError as error:
            if re.fullmatch(absent, error.code):
                return None
            raise

    def pages(self, service: str, operation: str, key: str, *, region: str = "", **parameters: Json) -> list[Json]:
        """Return all items under a key of all pages of an answer. Raises as :meth:`call` does."""

        def read(client: Any) -> list[Json]:
            if not client.can_paginate(operation):
                return list(getattr(client, operation)(**parameters).get(key, ()))
            pages = client.get_paginator(operation).paginate(**parameters)
            return [item for page in pages for item in page.get(key, ())]

        return self._send(service, operation, read, region)

    def pages_once(self, service: str, operation: str, key: str, **parameters: Json) -> list[Json]:
        """Return the items as :meth:`pages` does, read once for all callers of the operation."""
        return self.once(f"{service}:{operation}", lambda: self.pages(service, operation, key, **parameters))

    def once(self, name: str, read: Callable[[], T]) -> T:
        """Return a value that is read once for all callers of the name; they all get the same error."""
        with self._lock:
            held = self._once.setdefault(name, _Once())
        result: T = held.get(read)
        return result

    def _send(self, service: str, operation: str, ask: Callable[[Any], T], region: str = "") -> T:
        """Send a request, and turn AWS' errors into ours."""
        try:
            from botocore.exceptions import ClientError  # type: ignore[import-untyped]
        except ModuleNotFoundError:
            raise NotCheckedError(NO_BOTO3) from None
        try:
            return ask(self._client(service, region or self.region))
        except ClientError as error:
            raise _judged(service, operation, error.response) from None
        except Exception as error:
            reason = why_not_answered(error)
            if reason is None:
                raise
            raise (NoCredentialsError if lacks_credentials(error) else NotCheckedError)(reason) from None

    def _client(self, service: str, region: str) -> Any:
        with self._lock:
            if (service, region) not in self._clients:
                if self._session is None:
                    import boto3  # type: ignore[import-untyped]

                    self._session = boto3.Session()
                # A check is to end in seconds: a service that has not answered by then is "not checked".
                retries = {"total_max_attempts": 3, "mode": "standard"}
                client = connect(service, region, self._session, connect_timeout=3, read_timeout=8, retries=retries)
                client.meta.events.register_first("before-call", self._guard)
                self._clients[service, region] = client
            return self._clients[service, region]

    def _guard(self, model: Any, **_: object) -> None:
        """Record each operation, of paginators too, and stop operations that do not only read."""
        name = f"{model.service_model.service_name}:{model.name}"
        if not model.name.startswith(READS):
            raise WriteAttemptedError(name)
        self.asked.add(name)


class _Once:
    """A value that the first thread reads and the others wait for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._value: Any = None
        self._error: Exception | None = None
        self._done = False

    def get(self, read: Callable[[], Any]) -> Any:
        with self._lock:
            if not self._done:
                try:
                    self._value = read()
                except (NotCheckedError, RequestError) as error:
                    self._error = error
                self._done = True
        if self._error is not None:
            raise self._error
        return self._value


def right(service: str, operation: str) -> str:
    """Return the IAM action for a service as boto3 calls it and an operation as AWS does (``GetServiceQuota``)."""
    named = f"{service}:{operation}"
    return RIGHTS.get(named, f"{_PREFIXES.get(service, service)}:{operation}")


def _judged(service: str, operation: str, response: Mapping[str, Any]) -> Exception:
    code, message = str(response["Error"].get("Code", "")), str(response["Error"].get("Message", ""))
    if code in _DENIED or "not authorized to perform" in message:
        action = right(service, "".join(part.title() for part in operation.split("_")))
        return NotCheckedError(
            f"the right {action} is missing", response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        )
    if code in _THROTTLED:
        return NotCheckedError("AWS throttled the question: run it again")
    if code in _NO_LOGIN:
        return NoCredentialsError(f"AWS does not take these credentials ({code}): aws sso login, or aws configure")
    if code.startswith("5") and code.isdigit():
        # Not AWS, but something before it.
        return NotCheckedError(f"there came HTTP {code} in place of an answer")
    return RequestError(code, textwrap.shorten(message, 200))
