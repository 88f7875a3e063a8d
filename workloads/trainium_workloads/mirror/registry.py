"""A registry, asked by the OCI distribution protocol: manifests, blobs, uploads, and the tokens that they take."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

from trainium_workloads.stage.files import Interrupted, StageError, as_expected, lowered
from trainium_workloads.stage.web import BROKEN, Answer, Web, connection_to, target_of

INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)

_REFERENCE = re.compile(
    r"(?P<host>[^/@]+)/(?P<name>[^:@]+)(:(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?(@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_UPLOAD_SECONDS = 300.0
"""How long a registry may take for what was sent: it hashes a layer of gigabytes."""


@dataclass(frozen=True)
class Reference:
    """One image."""

    host: str
    name: str
    """Repository in the registry."""
    what: str
    """Digest, or tag."""

    @staticmethod
    def parse(text: str) -> "Reference":
        """From what people write.

        Raises:
            StageError: no registry, or neither tag nor digest.
        """
        found = _REFERENCE.fullmatch(text)
        if not found or not ("." in found["host"] or ":" in found["host"] or found["host"] == "localhost"):
            raise StageError(f"{text!r} is no image with its registry: <registry>/<repository>:<tag>")
        if not (found["digest"] or found["tag"]):
            raise StageError(f"{text} names no tag and no digest")
        host, name = found["host"], found["name"]
        if host in ("docker.io", "index.docker.io"):
            host, name = "registry-1.docker.io", name if "/" in name else f"library/{name}"
        return Reference(host, name, found["digest"] or found["tag"])


class Repository:
    """One repository.

    Args:
        host: of the registry; a loopback one is spoken to without TLS, as engines do.
        name: of the repository.
        web: connections for what is read.
        logins: of docker's ``config.json``: host to base64 of ``user:password``.
    """

    def __init__(self, host: str, name: str, web: Web, logins: Mapping[str, str]) -> None:
        self.host = host
        self.name = name
        plain = (urlsplit(f"//{host}").hostname or "") in _LOOPBACK
        self._root = f"{'http' if plain else 'https'}://{host}/v2/{name}"
        self._web = web
        self._login = logins.get(host, "")
        self._authorization = ""
        self._lock = threading.Lock()

    # --- Reading --------------------------------------------------------------------------------------------------

    def manifest(self, what: str) -> tuple[bytes, str, str]:
        """Bytes, media type and digest of a manifest or an index; the digest is computed from the bytes.

        Raises:
            StageError: not there, or no right to it, or other bytes than the digest asked for.
            Interrupted: the registry does not answer.
        """
        accept = {"Accept": ", ".join((*INDEXES, *MANIFESTS))}
        with self._open("GET", f"{self._root}/manifests/{what}", accept) as answer:
            body = _whole(answer)
            if answer.status != 200:
                raise StageError(f"{self.host}/{self.name}: {what}: {_why(answer.status, body)}")
            kind = answer.headers.get("content-type", "").partition(";")[0]
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        if what.startswith("sha256:") and what != digest:
            raise StageError(f"{self.host}/{self.name} answers {what} with {digest}")
        with as_expected(f"{self.host}/{self.name}: the manifest {what}"):
            return body, str(json.loads(body).get("mediaType") or kind), digest

    def digest(self, tag: str) -> str:
        """The digest of a tag; empty where there is none."""
        accept = {"Accept": ", ".join((*INDEXES, *MANIFESTS))}
        with self._open("HEAD", f"{self._root}/manifests/{tag}", accept) as answer:
            answer.read(1)
            return answer.headers.get("docker-content-digest", "") if answer.status == 200 else ""

    def has_blob(self, digest: str) -> bool:
        """Whether a blob is there."""
        with self._open("HEAD", f"{self._root}/blobs/{digest}", {}) as answer:
            answer.read(1)
            return answer.status == 200

    @contextmanager
    def blob(self, digest: str, start: int) -> Iterator[Answer]:
        """A blob's bytes from some point on.

        Raises:
            StageError: not there.
        """
        also = {"Range": f"bytes={start}-"} if start else {}
        with self._open("GET", f"{self._root}/blobs/{digest}", also) as answer:
            if answer.status not in (200, 206):
                raise StageError(f"{self.host}/{self.name}: blob {digest}: {_why(answer.status, _whole(answer))}")
            yield answer

    # --- Writing --------------------------------------------------------------------------------------------------

    def mount(self, digest: str, name: str) -> str:
        """Takes a blob over from another repository of the registry. Where to upload it if that did not work; empty
        if it did."""
        query = urlencode({"mount": digest, "from": name}) if name else ""
        status, headers, body = self._send("POST", f"{self._root}/blobs/uploads/" + (f"?{query}" if query else ""))
        if status == 201:
            return ""
        if status != 202:
            raise StageError(f"{self.host}/{self.name} takes no upload: {_why(status, body)}")
        return urljoin(self._root, headers["location"])

    def upload(self, location: str, digest: str, size: int, pieces: Iterable[bytes]) -> None:
        """Sends a blob to where :meth:`mount` said.

        Raises:
            Interrupted: it broke off; a new upload is needed.
            StageError: refused.
        """
        kind = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        status, headers, body = self._send("PATCH", location, kind, pieces)
        if status != 202:
            raise Interrupted(f"{self.host}/{self.name}: blob {digest}: {_why(status, body)}")
        end = urljoin(location, headers.get("location", location))
        joint = "&" if "?" in end else "?"
        status, _, body = self._send("PUT", f"{end}{joint}{urlencode({'digest': digest})}", {"Content-Length": "0"})
        if status != 201:
            raise Interrupted(f"{self.host}/{self.name}: blob {digest} is not taken: {_why(status, body)}")

    def put_manifest(self, tag: str, body: bytes, kind: str) -> str:
        """Puts a manifest under a tag or its digest; the digest that the registry has for it.

        Raises:
            StageError: refused, as for a tag that is taken and does not move.
        """
        headers = {"Content-Type": kind, "Content-Length": str(len(body))}
        status, answered, said = self._send("PUT", f"{self._root}/manifests/{tag}", headers, [body])
        if status != 201:
            raise StageError(f"{self.host}/{self.name}:{tag} is refused: {_why(status, said)}")
        return answered.get("docker-content-digest", "")

    def _send(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, pieces: Iterable[bytes] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """One request with a body, on a connection of its own; asked again once with a token where there was none."""
        pieces = [] if pieces is None else pieces
        for again in (False, True):
            parts = urlsplit(url)
            connection = connection_to(url, _UPLOAD_SECONDS)
            try:
                is_own = self._authorization and parts.netloc == self.host
                own = {"Authorization": self._authorization} if is_own else {}
                given = {"Content-Length": "0", "User-Agent": "trainium-eks", **own, **(headers or {})}
                connection.request(method, target_of(url), body=iter(pieces), headers=given, encode_chunked=False)
                answer = connection.getresponse()
                status, found, body = answer.status, lowered(dict(answer.getheaders())), answer.read()
            except BROKEN as error:
                raise Interrupted(f"{url}: {error or type(error).__name__}") from error
            finally:
                connection.close()
            # A stream can be sent once; uploads come after a POST, which has brought the token.
            if status != 401 or again or not isinstance(pieces, list) or not self._authorize(found, "pull,push"):
                return status, found, body
        raise AssertionError("unreachable")

    # --- Tokens ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _open(self, method: str, url: str, also: Mapping[str, str]) -> Iterator[Answer]:
        used = self._authorization
        with self._web.open(method, url, self._headers, also) as answer:
            if answer.status != 401 or not self._authorize(answer.headers, "pull", used):
                yield answer
                return
            _whole(answer)
        with self._web.open(method, url, self._headers, also) as answer:
            yield answer

    def _headers(self, method: str, url: str) -> dict[str, str]:
        del method, url
        return {"Authorization": self._authorization} if self._authorization else {}

    def _authorize(self, headers: Mapping[str, str], actions: str, used: str | None = None) -> bool:
        """Does as a challenge says; whether there is something new to try.

        Args:
            headers: of the answer with the challenge.
            actions: that a token must be for.
            used: what was tried, where another thread may have something newer by now.
        """
        with self._lock:
            if used is not None and used != self._authorization:
                return True
            scheme, _, rest = headers.get("www-authenticate", "").partition(" ")
            if scheme.lower() == "basic" and self._login:
                new = f"Basic {self._login}"
            elif scheme.lower() == "bearer":
                told = dict(re.findall(r'(\w+)="([^"]*)"', rest))
                new = f"Bearer {self._token(told, actions)}"
            else:
                return False
            changed = new != self._authorization
            self._authorization = new
            return changed

    def _token(self, told: dict[str, str], actions: str) -> str:
        realm = told.get("realm", "")
        if urlsplit(realm).scheme != "https" and (urlsplit(realm).hostname or "") not in _LOOPBACK:
            raise StageError(f"{self.host} wants a token from {realm or 'nowhere'}, which is not encrypted")
        scope = told.get("scope") or f"repository:{self.name}:{actions}"
        query = [*parse_qsl(urlsplit(realm).query), ("service", told.get("service", "")), ("scope", scope)]
        own = {"Authorization": f"Basic {self._login}"} if self._login else {}
        address = f"{realm.partition('?')[0]}?{urlencode([each for each in query if each[1]])}"
        with self._web.open("GET", address, lambda *_: own) as answer:
            body = _whole(answer)
            if answer.status != 200:
                raise StageError(f"{self.host} gives no token for {self.name}: {_why(answer.status, body)}")
        with as_expected(f"the token that {self.host} gives for {self.name}"):
            data: Any = json.loads(body)
            return str(data.get("token") or data["access_token"])


def logins_of(text: str) -> dict[str, str]:
    """Host to base64 of ``user:password``, from docker's ``config.json`` (also the content of a Kubernetes Secret)."""
    found: dict[str, str] = {}
    with as_expected("the file of logins"):
        for host, each in (json.loads(text).get("auths") or {}).items():
            plain = f"{each.get('username', '')}:{each.get('password', '')}"
            known = str(each.get("auth") or base64.b64encode(plain.encode()).decode())
            found[urlsplit(f"//{host.rpartition('//')[2]}").netloc] = known
    return found


def _whole(answer: Answer) -> bytes:
    pieces = []
    while piece := answer.read(65536):
        pieces.append(piece)
    return b"".join(pieces)


def _why(status: int, body: bytes) -> str:
    """A registry's own words (OCI distribution spec, error codes), else the status."""
    try:
        first = json.loads(body)["errors"][0]
        text = first.get("message") or first["code"]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        text = ""
    hint = {401: "a login is needed, or not good", 403: "not allowed", 404: "not there"}.get(status, "")
    return f"{status} {text or hint}".strip()
