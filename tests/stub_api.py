"""A Kubernetes API server over plain HTTP that serves one snapshot: enough of discovery and lists for `trn verify`."""

import copy
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from trainium_eks.checks.cluster import KINDS

SERVED = {**KINDS, "Pod": "v1"}
NAMESPACED = frozenset({"Pod"})

Objects = dict[str, list[dict[str, Any]]]


class StubApi:
    """What it serves may be changed while it runs."""

    def __init__(self, objects: Objects, url: str) -> None:
        self.objects = copy.deepcopy(objects)
        self.url = url
        self.refuses: dict[str, int] = {}
        """Path to the HTTP status that it is answered with."""
        self.looks = 0
        """How often its version was asked."""
        self.before_look: Callable[[int], object] = lambda _: None
        """Told the number of each look before it is answered."""

    @property
    def kubeconfig(self) -> dict[str, Any]:
        """Without any credential."""
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "stub", "cluster": {"server": self.url}}],
            "users": [{"name": "stub", "user": {}}],
            "contexts": [{"name": "stub", "context": {"cluster": "stub", "user": "stub"}}],
            "current-context": "stub",
        }

    def answer(self, path: str) -> tuple[int, Mapping[str, Any]]:
        """Status and body."""
        if path in self.refuses:
            return self.refuses[path], {"kind": "Status", "reason": "Forbidden", "message": f"{path} is forbidden"}
        if path == "/version":
            self.looks += 1
            self.before_look(self.looks)
            return 200, {"gitVersion": "v1.35.4"}
        if path == "/apis/apiextensions.k8s.io/v1/customresourcedefinitions":
            return 200, {"items": []}
        for kind, api_version in SERVED.items():
            root = f"/{'apis' if '/' in api_version else 'api'}/{api_version}"
            if re.sub("/namespaces/[^/]+/", "/", path) == f"{root}/{kind.lower()}s":
                return 200, {"items": self.objects.get(kind, []), "metadata": {}}
            if path == root:
                served = [each for each, version in SERVED.items() if version == api_version]
                return 200, {
                    "resources": [
                        {"kind": each, "name": f"{each.lower()}s", "namespaced": each in NAMESPACED} for each in served
                    ]
                }
        return 404, {"kind": "Status", "reason": "NotFound", "message": f"{path} is not there"}


@contextmanager
def serving(objects: Objects) -> Iterator[StubApi]:
    """A server on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = stub.answer(self.path.partition("?")[0])
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 64  # all kinds are asked at once; a full queue costs its caller a second

    server = Server(("127.0.0.1", 0), Handler)
    stub = StubApi(objects, f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
