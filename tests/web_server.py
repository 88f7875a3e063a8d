"""A web server on a free port of this machine, as which tests let others' servers appear."""

import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self.do_GET()

    def log_message(self, *_):
        pass

    def answer(self, status, headers=MappingProxyType({"Content-Length": 0}), body=b""):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving(handler):
    class Server(ThreadingHTTPServer):
        request_queue_size = 64  # a full queue costs its caller a second
        daemon_threads = True

        def handle_error(self, *client):
            if not isinstance(sys.exception(), ConnectionError):  # a client may go away
                super().handle_error(*client)

    server = Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
