"""Signed requests for S3, for buckets that are not public: AWS' Signature Version 4 for requests without a body.

In plain Python because the copier runs in any Python image, and a package to install at every start would be one more
thing to fail. Compared with botocore's own signer in the tests.
"""

import calendar
import hashlib
import hmac
import json
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlsplit

from trainium_workloads.stage.files import Interrupted

_EMPTY = hashlib.sha256(b"").hexdigest()
_RENEWED_SECONDS = 300
"""Time before their end at which credentials are renewed."""
_SECONDS = 5.0


@dataclass(frozen=True)
class Credentials:
    """AWS credentials."""

    key_id: str
    secret: str
    token: str = ""
    """Of temporary credentials."""
    ends: float = float("inf")
    """Seconds since 1970."""


class CredentialSource:
    """Credentials of the environment, or of EKS Pod Identity, with renewal before they end."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._environment = environment
        self._lock = threading.Lock()
        self._known: Credentials | None = None

    def get(self) -> Credentials | None:
        """Return the credentials; None without any.

        Raises:
            Interrupted: the Pod Identity agent does not answer.
        """
        with self._lock:
            if self._known is None or self._known.ends - time.time() < _RENEWED_SECONDS:
                self._known = self._ask()
            return self._known

    def _ask(self) -> Credentials | None:
        env = self._environment
        if env.get("AWS_ACCESS_KEY_ID") and env.get("AWS_SECRET_ACCESS_KEY"):
            return Credentials(env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"], env.get("AWS_SESSION_TOKEN", ""))
        address = env.get("AWS_CONTAINER_CREDENTIALS_FULL_URI", "")
        if not address:
            return None
        try:
            token = Path(env["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"]).read_text(encoding="utf-8").strip()
            request = urllib.request.Request(address, headers={"Authorization": token})
            # Straight to the agent on this node, without a proxy of the environment.
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(request, timeout=_SECONDS) as answer:
                data = json.load(answer)
            return Credentials(
                data["AccessKeyId"], data["SecretAccessKey"], data["Token"], _instant(data["Expiration"])
            )
        except (OSError, KeyError, ValueError, urllib.error.URLError) as error:
            raise Interrupted(f"the Pod Identity agent ({address}) gives no credentials: {error}") from None


def sign(
    method: str, url: str, headers: Mapping[str, str], credentials: Credentials, region: str, now: float | None = None
) -> dict[str, str]:
    """Return the headers of a request with its signature.

    Args:
        method: ``GET`` or ``HEAD``.
        url: with its path escaped as it is sent.
        headers: that are to be signed; others may be added by the sender.
        credentials: of the caller.
        region: of the bucket.
        now: seconds since 1970; None for this moment.
    """
    moment = time.gmtime(now)
    stamp, day = time.strftime("%Y%m%dT%H%M%SZ", moment), time.strftime("%Y%m%d", moment)
    parts = urlsplit(url)
    sent = {
        **{name.lower(): value for name, value in headers.items()},
        "host": parts.netloc,
        "x-amz-date": stamp,
        "x-amz-content-sha256": _EMPTY,
        **({"x-amz-security-token": credentials.token} if credentials.token else {}),
    }
    names = ";".join(sorted(sent))
    query = sorted((_escaped(name), _escaped(value)) for name, value in parse_qsl(parts.query, keep_blank_values=True))
    canonical = "\n".join(
        (
            method,
            parts.path or "/",
            "&".join(f"{name}={value}" for name, value in query),
            *(f"{name}:{' '.join(sent[name].split())}" for name in sorted(sent)),
            "",
            names,
            _EMPTY,
        )
    )
    scope = f"{day}/{region}/s3/aws4_request"
    text = "\n".join(("AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()))
    key = f"AWS4{credentials.secret}".encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.new(key, text.encode(), "sha256").hexdigest()
    claim = f"AWS4-HMAC-SHA256 Credential={credentials.key_id}/{scope}, SignedHeaders={names}, Signature={signature}"
    del sent["host"]  # the client sends its own
    return {**sent, "authorization": claim}


def _escaped(text: str) -> str:
    return quote(text, safe="-_.~")


def _instant(text: str) -> float:
    return float(calendar.timegm(time.strptime(text.partition(".")[0].rstrip("Z"), "%Y-%m-%dT%H:%M:%S")))
