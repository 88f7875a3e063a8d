"""A registry that is written to, as ECR is: it wants a login (Basic), mounts blobs, takes uploads, and tags stay."""

import hashlib
import threading
import uuid
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


class Target:
    """What it holds and was asked; what it does may be changed while it runs."""

    def __init__(self, login: str = "") -> None:
        self.login = login
        """``Basic ...`` that each request must bring; empty for none."""
        self.blobs: dict[str, dict[str, bytes]] = {}
        """Repository to digest to content."""
        self.manifests: dict[str, tuple[str, bytes]] = {}
        """``name:tag`` to media type and content."""
        self.asked: list[str] = []
        self.cuts_upload: Callable[[int], bool] = lambda _: False
        """Number of the upload to whether its connection is cut."""
        self._uploads: dict[str, bytes] = {}
        self._patches = 0
        self._lock = threading.Lock()
        target = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                target._answer(self)

            def do_GET(self) -> None:
                target._answer(self)

            def do_POST(self) -> None:
                target._answer(self)

            def do_PATCH(self) -> None:
                target._answer(self)

            def do_PUT(self) -> None:
                target._answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.host = f"127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(request.path)
        with self._lock:
            self.asked.append(f"{request.command} {parts.path}")
        length = int(request.headers.get("Content-Length") or 0)
        if request.command == "PATCH":
            with self._lock:
                self._patches += 1
                cut = self.cuts_upload(self._patches - 1)
            if cut:
                request.rfile.read(length // 2)
                request.close_connection = True
                return
        body = request.rfile.read(length)
        if self.login and request.headers.get("Authorization") != self.login:
            self._send(request, 401, {"WWW-Authenticate": 'Basic realm="https://ecr.example/",service="ecr.example"'})
            return
        name, _, rest = parts.path.removeprefix("/v2/").partition("/blobs/")
        if rest:
            self._blob(request, name, rest, {key: values[0] for key, values in parse_qs(parts.query).items()}, body)
        else:
            name, _, tag = parts.path.removeprefix("/v2/").partition("/manifests/")
            self._manifest(request, f"{name}:{tag}", body)

    def _blob(
        self, request: BaseHTTPRequestHandler, name: str, rest: str, query: Mapping[str, str], body: bytes
    ) -> None:
        held = self.blobs.setdefault(name, {})
        if request.command == "HEAD":
            self._send(request, 200 if rest in held else 404)
        elif request.command == "POST":
            other = self.blobs.get(query.get("from", ""), {})
            if query.get("mount") in other:
                held[query["mount"]] = other[query["mount"]]
                self._send(request, 201)
                return
            upload = uuid.uuid4().hex
            self._uploads[upload] = b""
            self._send(request, 202, {"Location": f"/v2/{name}/blobs/uploads/{upload}?state=1"})
        elif request.command == "PATCH":
            upload = rest.rpartition("/")[2]
            self._uploads[upload] += body
            self._send(request, 202, {"Location": f"/v2/{name}/blobs/uploads/{upload}?state=2"})
        else:
            content = self._uploads.pop(rest.rpartition("/")[2])
            good = f"sha256:{hashlib.sha256(content).hexdigest()}" == query["digest"]
            if good:
                held[query["digest"]] = content
            self._send(request, 201 if good else 400)

    def _manifest(self, request: BaseHTTPRequestHandler, reference: str, body: bytes) -> None:
        if request.command == "PUT":
            if reference in self.manifests:
                said = (
                    b'{"errors": [{"code": "TAG_INVALID", "message": "The image tag already exists and is immutable"}]}'
                )
                self._send(request, 400, body=said)
                return
            self.manifests[reference] = (request.headers["Content-Type"], body)
        if reference not in self.manifests:
            self._send(request, 404)
            return
        kind, content = self.manifests[reference]
        headers = {"Content-Type": kind, "Docker-Content-Digest": f"sha256:{hashlib.sha256(content).hexdigest()}"}
        made = request.command == "PUT"
        self._send(request, 201 if made else 200, headers, b"" if made else content)

    def _send(
        self, request: BaseHTTPRequestHandler, status: int, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> None:
        request.send_response(status)
        for name, value in (headers or {}).items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)
