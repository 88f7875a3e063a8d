"""Channels into a team's pods: a command's output, and a port. Both are WebSockets of the API server, as the
researcher.

The official client's own: ``kubernetes.stream``. It changes the client that it is given, so each has one to itself.
"""

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from trainium_eks.kube.pod_text import REPORT_CHARACTERS, json_object, mapping

CHUNK = 65536

ERROR_CHANNEL = 3
"""Channel of ``exec`` for the command's end, as a ``Status``."""


@dataclass(frozen=True)
class Place:
    """A pod in its namespace, and the file with the credentials to reach it."""

    kubeconfig: Path
    namespace: str
    pod: str


class NoChannelError(Exception):
    """The pod cannot be reached by a channel; the message gives the reason."""


def lines(place: Place, container: str, command: Sequence[str]) -> Iterator[str]:
    """Yield the lines that a command in a container prints, as they come, until it ends or the iterator is closed.
    NoChannelError: the command cannot be run, or ended with an error."""
    exec_ = _core(place.kubeconfig).connect_get_namespaced_pod_exec
    wanted = {"command": list(command), "container": container, "stdout": True, "stderr": True}
    unwanted = {"stdin": False, "tty": False, "_preload_content": False}
    channel = _opened(lambda: _kubernetes().stream.stream(exec_, place.pod, place.namespace, **wanted, **unwanted))
    try:
        rest, complaint = "", ""
        while channel.is_open():
            channel.update(timeout=1)
            complaint += channel.read_stderr() if channel.peek_stderr() else ""
            *whole, rest = (rest + (channel.read_stdout() if channel.peek_stdout() else "")).split("\n")
            yield from whole
            rest = rest if len(rest) <= REPORT_CHARACTERS else ""  # nothing that is read here is so long
        if rest:
            yield rest
        why = _ending(channel.read_channel(ERROR_CHANNEL))
        if why:
            raise NoChannelError(complaint.strip() or why)
    finally:
        channel.close()


class Forwarding:
    """A port of this machine that leads to a pod's port; every connection has a separate WebSocket."""

    def __init__(self, place: Place, port: int, local_port: int) -> None:
        self._place = place
        self._port = port
        self._socket = socket.create_server(("127.0.0.1", local_port))
        self.local_port = int(self._socket.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._pass, args=(here,), daemon=True).start()

    def _pass(self, here: socket.socket) -> None:
        with here:
            try:
                way = _port(self._place, self._port)
            except NoChannelError:
                return  # the browser sees a closed connection; the next one tries again
            there = way.socket(self._port)
            with contextlib.suppress(OSError), contextlib.closing(there):
                _pump(here, there)


def _pump(here: socket.socket, there: socket.socket) -> None:
    """Copy in both directions, until one side has closed."""
    while True:
        ready, _, _ = select.select([here, there], [], [])
        for each in ready:
            data = each.recv(CHUNK)
            if not data:
                return
            (there if each is here else here).sendall(data)


def check_port_forward(place: Place, port: int) -> None:
    """Raise NoChannelError unless ports of the pod can be reached."""
    _port(place, port).close()


def _port(place: Place, port: int) -> Any:
    forward = _core(place.kubeconfig).connect_get_namespaced_pod_portforward
    return _opened(lambda: _kubernetes().stream.portforward(forward, place.pod, place.namespace, ports=str(port)))


def _kubernetes() -> Any:
    """Return the official client, which is imported here because it takes longer than a help text."""
    import kubernetes.stream  # type: ignore[import-untyped]

    return kubernetes


def _opened(open_: Callable[[], Any]) -> Any:
    """Return the opened channel. NoChannelError: it was refused, or the server does not answer."""
    refused = _kubernetes().client.ApiException
    try:
        return open_()
    except refused as error:
        raise NoChannelError(_why(error)) from None
    except AttributeError as error:
        # Version 36 of the client stumbles over a refusal, which has no body, and hides it.
        if isinstance(error.__context__, refused):
            raise NoChannelError(_why(error.__context__)) from None
        raise


def _ending(text: str) -> str:
    """Return the reason why a command ended badly; empty where it ended well.

    A kubelet that runs no commands refuses with its own message: the API server has opened the channel by then.
    """
    status = json_object(text) if text else {"status": "Success"}
    if status is None or "status" not in status:
        return str((status or {}).get("message") or text).strip()
    if status["status"] == "Success":
        return ""
    causes = mapping(status.get("details")).get("causes")
    found = map(mapping, causes if isinstance(causes, list) else ())
    code = next((each.get("message") for each in found if each.get("reason") == "ExitCode"), None)
    return f"the command ended with exit code {code}" if code else str(status.get("message") or "it failed")


def _core(kubeconfig: Path) -> Any:
    official = _kubernetes()
    settings = official.client.Configuration()
    client = official.config.new_client_from_config(
        str(kubeconfig), client_configuration=settings, persist_config=False
    )
    if urlsplit(str(settings.host)).hostname in ("127.0.0.1", "localhost", "::1"):
        settings.proxy = None  # of the environment; a proxy does not reach this machine's own loopback
    return official.client.CoreV1Api(client)


def _why(error: Any) -> str:
    """Return ``Handshake status 403 Forbidden -+-+- {headers} -+-+- body`` without headers and body."""
    text = str(error.reason or error.body or error)
    return text.partition(" -+-+-")[0].strip()
