"""WebSockets of a Kubernetes API server, as its ``exec`` and ``portforward`` speak them: enough of RFC 6455 for tests.

Binary messages begin with the number of their channel (``v4.channel.k8s.io``): 1 is standard output, 2 standard error,
3 the end, as a ``Status``. A forwarded port has channel 0 for data and 1 for errors, each begun by the port's number.
"""

import base64
import contextlib
import hashlib
import json
import struct
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler

_MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_BINARY, _CLOSE = 2, 8


class Channel:
    """One connection, on the server's side."""

    def __init__(self, handler: BaseHTTPRequestHandler) -> None:
        self._handler = handler
        key = handler.headers["Sec-WebSocket-Key"]
        accept = base64.b64encode(hashlib.sha1(f"{key}{_MAGIC}".encode()).digest()).decode()
        handler.send_response(101, "Switching Protocols")
        for name, value in (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", accept)):
            handler.send_header(name, value)
        handler.send_header("Sec-WebSocket-Protocol", "v4.channel.k8s.io")
        handler.end_headers()

    def send(self, channel: int, data: bytes) -> None:
        """One message."""
        self._frame(_BINARY, bytes([channel]) + data)

    def close(self) -> None:
        """Says that no more comes."""
        with contextlib.suppress(OSError):
            self._frame(_CLOSE, struct.pack(">H", 1000))

    def received(self) -> Iterator[tuple[int, bytes]]:
        """Messages of the other side: channel and data; until it closes."""
        while True:
            head = self._handler.rfile.read(2)
            if len(head) < 2 or head[0] & 0x0F == _CLOSE:
                return
            size = head[1] & 0x7F
            if size >= 126:
                size = int.from_bytes(self._handler.rfile.read(2 if size == 126 else 8), "big")
            mask = self._handler.rfile.read(4)
            data = bytes(byte ^ mask[at % 4] for at, byte in enumerate(self._handler.rfile.read(size)))
            if data:
                yield data[0], data[1:]

    def _frame(self, kind: int, data: bytes) -> None:
        size = bytes([len(data)]) if len(data) < 126 else b"\x7e" + struct.pack(">H", len(data))
        self._handler.wfile.write(bytes([0x80 | kind]) + size + data)
        self._handler.wfile.flush()


def run_command(lines: list[str], code: int = 0) -> Callable[[Channel], None]:
    """What ``exec`` of a command says that prints these lines and ends with this code."""

    def speak(channel: Channel) -> None:
        for line in lines:
            # Lines are cut anywhere on their way.
            half = len(line) // 2
            channel.send(1, line[:half].encode())
            channel.send(1, f"{line[half:]}\n".encode())
        status: dict[str, object] = {"status": "Success"}
        if code:
            cause = {"reason": "ExitCode", "message": str(code)}
            status = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": [cause]}}
        channel.send(3, json.dumps(status).encode())
        channel.close()

    return speak


def answer_http(body: str, at: int = 6006) -> Callable[[Channel], None]:
    """A forwarded port behind which a web server answers one request."""

    def speak(channel: Channel) -> None:
        port = struct.pack("<H", at)
        channel.send(0, port)
        channel.send(1, port)
        asked = b""
        for number, data in channel.received():
            asked += data if number == 0 else b""
            if asked.endswith(b"\r\n\r\n"):
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                channel.send(0, f"{head}{body}".encode())
                channel.close()
                return

    return speak
