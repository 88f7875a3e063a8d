"""Servers that data sets are staged from: a file server with faults, S3 by moto, and a stub of the Hub."""

import hashlib
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import quote, unquote, urlsplit

from web_server import Handler, serving


def content_of(directory):
    files = (path for path in directory.rglob("*") if path.is_file() and not path.name.startswith(".stage"))
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in files}


@dataclass
class FileServer:
    """Files in memory, and what goes wrong with them."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    """Path, with its slash, to content."""
    ranges: bool = True
    lengths: bool = True
    """Whether a whole file comes with its length."""
    breaks_after: Callable[[str, int], int | None] = lambda *_: None
    """Path and number of the request (from 0) to the bytes after which the connection is cut."""
    status: Callable[[str, int], int] = lambda *_: 200
    """Path and number of the request to a status instead of the file; 200 for the file."""
    seconds_a_piece: float = 0
    asked: Counter[str] = field(default_factory=Counter)
    """Path to the number of its requests, but those for the first byte, which ask for a file's size."""
    seen: list[tuple[str, str, Mapping[str, str]]] = field(default_factory=list)
    """Method, path and headers of each request."""
    sent_bytes: int = 0


@contextmanager
def file_server():
    """A file server; what it does may be changed while it runs."""
    stub = FileServer()
    lock = threading.Lock()

    class Page(Handler):
        def do_GET(self):  # noqa: N802 - the name that the server calls
            body = self.headers.get("Range") != "bytes=0-0"
            path = unquote(urlsplit(self.path).path)
            with lock:
                number = stub.asked[path]
                stub.asked[path] += body
                stub.seen.append((self.command, self.path, dict(self.headers.items())))
            status = stub.status(path, number) if body else 200
            content = stub.files.get(path)
            if content is None or status != 200:
                self.answer(404 if content is None else status)
                return
            wanted = self.headers.get("Range", "") if stub.ranges else ""
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start, stop = int(first or 0), int(last) + 1 if last else len(content)
            if wanted and start >= len(content):
                self.answer(416)
                return
            piece = content[start:stop]
            headers = {"ETag": f'"{hashlib.sha1(content).hexdigest()}"'}
            if wanted:
                headers["Content-Range"] = f"bytes {start}-{start + len(piece) - 1}/{len(content)}"
            # A handler closes its connection after this header.
            headers |= {"Content-Length": len(piece)} if stub.lengths or wanted else {"Connection": "close"}
            self.answer(206 if wanted else 200, headers)
            if body:
                self._send(piece, stub.breaks_after(path, number))
            else:
                self.wfile.write(piece)

        def _send(self, piece, cut):
            piece = piece if cut is None else piece[:cut]
            for at in range(0, len(piece), 16384):
                try:
                    self.wfile.write(piece[at : at + 16384])
                except OSError:
                    self.close_connection = True
                    return
                with lock:
                    stub.sent_bytes += len(piece[at : at + 16384])
                time.sleep(stub.seconds_a_piece)
            if cut is not None:
                self.wfile.flush()
                self.close_connection = True

    with serving(Page) as url:
        stub.url = url
        yield stub


class Seen(list):
    """The requests so far, and the number of answers with bytes that are still to be cut in the middle."""

    cuts = 0


@contextmanager
def moto_server():
    """AWS as moto has it, over HTTP: the URL and the requests so far. moto's own server would want Flask.
    To be used within ``mock_aws``."""
    import requests
    from moto.core.models import botocore_stubber

    seen = Seen()

    class Page(Handler):
        def do_GET(self):  # noqa: N802 - the name that the server calls
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
            # A signature names region and service; a request of S3 may have none.
            scope = re.search(r"Credential=[^/]+/\d+/([^/]+)/(?!s3/)([^/]+)/", headers.get("Authorization", ""))
            host = f"{scope[2]}.{scope[1]}" if scope else "s3"
            url = f"https://{host}.amazonaws.com{self.path}"
            asked = requests.Request(self.command, url, headers, data=body).prepare()
            seen.append(asked)
            try:
                status, found, content = botocore_stubber.process_prepared_request(asked)
            except NotImplementedError:
                status, found, content = 501, {}, ""
            data = content.encode() if isinstance(content, str) else content
            # moto leaves the request's id out, by which S3's own answers are known.
            made = {"x-amz-request-id": "REQUEST"} | {name.lower(): value for name, value in dict(found).items()}
            made["content-length"] = made.get("content-length", len(data)) if self.command == "HEAD" else len(data)
            left_out = ("transfer-encoding", "connection")
            self.answer(status, {name: value for name, value in made.items() if name not in left_out})
            if self.command != "HEAD":
                cut = seen.cuts > 0 and len(data) > 500 and "list-type" not in self.path
                seen.cuts -= cut
                self.wfile.write(data[: len(data) // 2] if cut else data)
                self.close_connection = self.close_connection or cut

        do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

    with serving(Page) as url:
        yield url, seen


@dataclass
class Hub:
    """A stub of the Hugging Face Hub with one repository, in the shapes of its API."""

    url: str = ""
    name: str = "datasets/org/name"
    files: dict[str, bytes] = field(default_factory=dict)
    large: frozenset[str] = frozenset()
    """Paths that are kept by git-lfs."""
    commit: str = "0123456789abcdef0123456789abcdef01234567"
    revisions: tuple[str, ...] = ("main",)
    token: str = ""
    """Wanted in every request but those of the bytes, when not empty."""
    spoiled: frozenset[str] = frozenset()
    """Paths whose bytes come wrong."""
    breaks: int = 0
    """Number of answers with bytes that are cut in the middle."""
    status: int = 200
    """Status of every answer of the API."""
    sent: int = 0
    """Number of answers with bytes."""
    tokens_at_the_bytes: list[str] = field(default_factory=list)
    """Authorization headers that came to where the bytes are, which must not learn any."""


@contextmanager
def hub():
    """The Hub, and another server that the bytes of large files come from."""
    stub = Hub()

    def entry(path):
        content = stub.files[path]
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        if path not in stub.large:
            return {"type": "file", "oid": blob, "size": len(content), "path": path}
        pointer = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
        return {"type": "file", "oid": "f" * 40, "size": len(content), "lfs": pointer, "path": path}

    def content_of(path):
        return stub.files[path][:-1] + b"?" if path in stub.spoiled else stub.files[path]

    def send(handler, content):
        stub.sent += 1
        wanted = handler.headers.get("Range", "").removeprefix("bytes=")
        first, _, last = wanted.partition("-")
        piece = content[int(first or 0) : int(last) + 1 if last else len(content)]
        headers = {"Content-Length": len(piece)}
        if wanted:
            headers["Content-Range"] = f"bytes {first}-{int(first) + len(piece) - 1}/{len(content)}"
        handler.answer(206 if wanted else 200, headers)
        cut, stub.breaks = stub.breaks > 0, max(0, stub.breaks - 1)
        handler.wfile.write(piece[: len(piece) // 2] if cut else piece)
        handler.close_connection = handler.close_connection or cut

    class Storage(Handler):
        def do_GET(self):  # noqa: N802 - the name that the server calls
            stub.tokens_at_the_bytes.append(self.headers.get("Authorization", ""))
            send(self, content_of(unquote(self.path.lstrip("/"))))

    class Page(Handler):
        def do_GET(self):  # noqa: N802 - the name that the server calls
            parts = urlsplit(self.path)
            if stub.status != 200:
                self._json({"error": "busy"}, stub.status)
            elif stub.token and self.headers.get("Authorization") != f"Bearer {stub.token}":
                self._json({"error": "Access is restricted."}, 401, {"X-Error-Code": "GatedRepo"})
            elif parts.path in {f"/api/{stub.name}/revision/{each}" for each in stub.revisions}:
                self._json({"id": "org/name", "sha": stub.commit, "siblings": [{"rfilename": x} for x in stub.files]})
            elif parts.path == f"/api/{stub.name}/tree/{stub.commit}":
                self._list(int(dict(each.split("=") for each in parts.query.split("&")).get("cursor", 0)))
            elif parts.path.startswith(prefix := f"/{stub.name.removeprefix('models/')}/resolve/{stub.commit}/"):
                self._resolve(unquote(parts.path.removeprefix(prefix)))
            else:
                what = "RevisionNotFound" if parts.path.startswith(f"/api/{stub.name}/") else "RepoNotFound"
                self._json({"error": "not found"}, 404, {"X-Error-Code": what})

        def _list(self, start):
            folders = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": "a-directory"}]
            entries = [*folders, *(entry(path) for path in sorted(stub.files))]
            after = start + 2
            link = {}
            if after < len(entries):
                url = f"{stub.url}/api/{stub.name}/tree/{stub.commit}?recursive=true&limit=2&cursor={after}"
                link = {"Link": f'<{url}>; rel="next"'}
            self._json(entries[start:after], 200, link)

        def _resolve(self, path):
            known = entry(path)
            if self.command == "GET" and path not in stub.large:
                send(self, content_of(path))
                return
            headers = {"X-Repo-Commit": stub.commit, "ETag": f'"{known["oid"]}"', "Content-Length": known["size"]}
            if path in stub.large:
                headers |= {"Location": f"{storage}/{quote(path)}", "X-Linked-Size": known["size"]}
                headers |= {"X-Linked-ETag": f'"{known["lfs"]["oid"]}"', "Content-Length": 0}
            self.answer(302 if path in stub.large else 200, headers)

        def _json(self, data, status=200, headers=MappingProxyType({})):
            body = json.dumps(data).encode()
            self.answer(status, {**headers, "Content-Length": len(body)}, body if self.command != "HEAD" else b"")

    with serving(Storage) as storage, serving(Page) as url:
        stub.url = url
        yield stub
