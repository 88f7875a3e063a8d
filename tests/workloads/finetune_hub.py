"""A Hugging Face Hub with one repository."""

import hashlib
import json
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

COMMIT = "0" * 40


@dataclass
class Hub:
    name: str
    files: Mapping[str, bytes]
    url: str = ""
    token: str = ""
    """That only may read; empty for everybody."""
    asked: list[str] = field(default_factory=list)


@contextmanager
def hub(name, files):
    """Serve a repository, with any revision."""
    served = Hub(name, files)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            served.asked.append(f"{self.command} {self.path}")
            path = self.path.partition("?")[0].removeprefix("/api/models")
            if not path.startswith(f"/{served.name}/"):
                self._answer(404, b"{}", {"X-Error-Code": "RepoNotFound", "X-Error-Message": "no such repository"})
            elif served.token and self.headers.get("Authorization") != f"Bearer {served.token}":
                self._answer(401, b"{}", {"X-Error-Code": "GatedRepo", "X-Error-Message": "gated"})
            elif "/resolve/" in path:
                content = served.files[path.rpartition("/")[2]]
                sha = hashlib.sha256(content).hexdigest()
                self._answer(200, content, {"ETag": f'"{sha}"', "X-Repo-Commit": COMMIT})
            elif "/tree/" in path:
                entries = [{"type": "file", "path": name, "size": len(x), "oid": "0"} for name, x in files.items()]
                self._answer(200, json.dumps(entries).encode(), {})
            else:
                siblings = [{"rfilename": each} for each in served.files]
                found = {"id": served.name, "sha": COMMIT, "siblings": siblings}
                self._answer(200, json.dumps(found).encode(), {})

        do_HEAD = do_GET  # noqa: N815 - as the server looks for it

        def _answer(self, status, body, headers):
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *_):
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
