"""Container images made by hand, and two registries for them: one of a few lines, and Debian's ``docker-registry``."""

import gzip
import hashlib
import io
import json
import shutil
import socket
import subprocess
import tarfile
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from waiting import until

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIG = "application/vnd.oci.image.config.v1+json"


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def layer(**entries: bytes | str) -> bytes:
    """A layer: contents by name, ``link=->target`` for a symbolic link; ``__`` in a name stands for a slash."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as files:
        for name, content in entries.items():
            info = tarfile.TarInfo(name.replace("__", "/"))
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                files.addfile(info)
            else:
                info.size = len(content)
                files.addfile(info, io.BytesIO(content))
    return gzip.compress(data.getvalue(), mtime=0)


@dataclass
class Pushed:
    """What a repository holds."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    """Digest or tag to media type and content."""

    def image(self, *layers: bytes, architecture: str = "amd64") -> dict[str, Any]:
        """Adds an image of one platform; its descriptor for an index."""
        config = json.dumps({"os": "linux", "architecture": architecture, "rootfs": {"type": "layers"}}).encode()
        for blob in (config, *layers):
            self.blobs[digest_of(blob)] = blob
        content = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": _descriptor(CONFIG, config),
                "layers": [_descriptor(LAYER, blob) for blob in layers],
            }
        ).encode()
        self.manifests[digest_of(content)] = (MANIFEST, content)
        return {**_descriptor(MANIFEST, content), "platform": {"os": "linux", "architecture": architecture}}

    def index(self, tag: str, *images: Mapping[str, Any]) -> str:
        """Adds an image for several platforms under a tag; its digest."""
        content = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": images}).encode()
        self.manifests[digest_of(content)] = self.manifests[tag] = (INDEX, content)
        return digest_of(content)


def _descriptor(media_type: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest_of(content), "size": len(content)}


class Registry:
    """A registry as Docker Hub is: it wants anonymous tokens, and redirects to a store of layers that refuses them."""

    def __init__(self) -> None:
        self.repositories: dict[str, Pushed] = {}
        self.token = "t0k3n"
        self.challenge = 'Bearer realm="{url}/token",service="registry.example",scope="repository:{name}:pull"'
        self.answers: dict[str, int] = {}
        """Part of a path to the status that it is answered with."""
        self.asked: list[str] = []
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry._answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        # Another name, so that redirects lead to another host.
        self.store = f"http://localhost:{self._http.server_port}/store"
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path
        self.asked.append(path)
        status = next((status for part, status in self.answers.items() if part in path), 0)
        authorization = request.headers.get("Authorization", "")
        parts = path.split("/")
        if status:
            self._send(request, status, b"")
        elif path.startswith("/token?"):
            told = urllib.parse.parse_qs(path.partition("?")[2])
            right = told["service"] == ["registry.example"] and told["scope"][0].endswith(":pull")
            self._send(request, 200 if right else 400, json.dumps({"token": self.token}).encode())
        elif path.startswith("/store/"):
            # As a store whose addresses are signed does.
            held = next((each.blobs[parts[-1]] for each in self.repositories.values() if parts[-1] in each.blobs), b"")
            self._send(request, 400 if authorization else 200, held)
        elif authorization != "Bearer t0k3n":
            name = "/".join(parts[2:-2])
            wanted = self.challenge.format(url=self.url, name=name)
            self._send(request, 401, b"", {"WWW-Authenticate": wanted})
        else:
            self._serve(request, "/".join(parts[2:-2]), parts[-2], parts[-1])

    def _serve(self, request: BaseHTTPRequestHandler, name: str, kind: str, reference: str) -> None:
        pushed = self.repositories.get(name, Pushed())
        if kind == "blobs" and reference in pushed.blobs:
            self._send(request, 307, b"", {"Location": f"{self.store}/{reference}"})
        elif kind == "manifests" and reference in pushed.manifests:
            media_type, content = pushed.manifests[reference]
            acceptable = media_type in request.headers.get("Accept", "")
            self._send(request, 200 if acceptable else 406, content, {"Content-Type": media_type})
        else:
            self._send(request, 404, b"")

    @staticmethod
    def _send(
        request: BaseHTTPRequestHandler, status: int, content: bytes, headers: Mapping[str, str] | None = None
    ) -> None:
        request.send_response(status)
        for name, value in (headers or {}).items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)


PROGRAM = "docker-registry"


@contextmanager
def docker_registry(directory: Path) -> Iterator[str]:
    """A real registry, which keeps its files in the directory: its URL."""
    program = shutil.which(PROGRAM)
    assert program is not None
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    configuration = directory / "registry.yml"
    configuration.write_text(
        "version: 0.1\n"
        "log: {accesslog: {disabled: true}, level: error}\n"
        f"storage: {{filesystem: {{rootdirectory: {directory / 'files'}}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'}}\n"
    )
    with (directory / "log").open("w") as log:
        process = subprocess.Popen([program, "serve", str(configuration)], stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        until(lambda: process.poll() is not None or _is_up(url), "an answer of the registry")
        assert process.poll() is None, (directory / "log").read_text()
        yield url
    finally:
        process.kill()
        process.wait()


def push(url: str, name: str, pushed: Pushed) -> None:
    """Uploads a repository, as the protocol says: blobs, images, then what names them."""
    for digest, content in pushed.blobs.items():
        with _ask("POST", f"{url}/v2/{name}/blobs/uploads/") as started:
            location = urllib.parse.urljoin(url, started.headers["Location"])
        separator = "&" if "?" in location else "?"
        upload = f"{location}{separator}digest={urllib.parse.quote(digest)}"
        _ask("PUT", upload, content, "application/octet-stream").close()
    for reference, (media_type, content) in sorted(pushed.manifests.items(), key=lambda item: item[1][0] == INDEX):
        _ask("PUT", f"{url}/v2/{name}/manifests/{reference}", content, media_type).close()


def _ask(method: str, url: str, content: bytes = b"", media_type: str = "") -> Any:
    headers = {"Content-Type": media_type} if media_type else {}
    return urllib.request.urlopen(urllib.request.Request(url, data=content, method=method, headers=headers))


def _is_up(url: str) -> bool:
    try:
        _ask("GET", f"{url}/v2/").close()
    except OSError:
        return False
    return True
