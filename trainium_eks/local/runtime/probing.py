"""Probes and hooks, each in a separate process: they may take their time and run in the container's namespaces."""

import contextlib
import os
import signal
import socket
import ssl
import time

from trainium_eks.local import linux
from trainium_eks.local.runtime.sandbox import enter, execute, wait_as
from trainium_eks.local.spec.plan import Action, Container, Isolation, PodPlan


def begin(container: Container, action: Action, pid: int, plan: PodPlan, timeout_seconds: float) -> tuple[int, int]:
    """Start the action of a probe or hook.

    Return the process to wait for, which ends with 0 on success, and a descriptor to read its output from. A command is
    ended by the process that waits for it.
    """
    said, saying = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.close(said)
            os.dup2(saying, 1)
            os.dup2(saying, 2)
            _act(container, action, pid, plan, timeout_seconds)
        os._exit(1)
    os.close(saying)
    os.set_blocking(said, False)
    return child, said


def _act(container: Container, action: Action, pid: int, plan: PodPlan, timeout_seconds: float) -> None:
    if linux.AVAILABLE:
        linux.die_with_parent(signal.SIGKILL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if action.sleep_seconds:
        time.sleep(action.sleep_seconds)
        os._exit(0)
    try:
        enter(pid, plan.isolation)
        if action.command:
            _command(container, action, plan)
        _connect(action, plan, timeout_seconds)
    except (OSError, ValueError) as error:
        os.write(1, f"{error}\n".encode())
        os._exit(1)
    os._exit(0)


def _command(container: Container, action: Action, plan: PodPlan) -> None:
    if plan.isolation is not Isolation.PLAIN:
        # A process namespace is entered by children.
        child = os.fork()
        if child:
            wait_as(child)
        linux.die_with_parent(signal.SIGKILL)
    os.setsid()
    execute(action.command, container.environment, container.directory)


def _connect(action: Action, plan: PodPlan, timeout_seconds: float) -> None:
    host = action.host or (plan.address if plan.isolation is Isolation.NET else "127.0.0.1")
    with socket.create_connection((host, action.port), timeout=timeout_seconds) as connection:
        if action.http_path:
            status = _status(connection, action, host, timeout_seconds)
            if not 200 <= status < 400:
                raise ValueError(f"HTTP probe failed with statuscode: {status}")


def _status(connection: socket.socket, action: Action, host: str, timeout_seconds: float) -> int:
    """Return the status of the answer. By hand: importing an HTTP client takes longer than the request."""
    if action.scheme == "HTTPS":
        # As the kubelet: it does not know the authority of a container's certificate.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = context.wrap_socket(connection)
    named = {name.lower() for name, _ in action.headers}
    headers = [] if "host" in named else [("Host", f"{host}:{action.port}")]
    headers += [("Connection", "close"), ("Accept", "*/*"), *action.headers]
    lines = [f"GET {action.http_path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers), "", ""]
    connection.sendall("\r\n".join(lines).encode())
    deadline, answer = time.monotonic() + timeout_seconds, b""
    while b"\r\n" not in answer and time.monotonic() < deadline:
        data = connection.recv(4096)
        if not data:
            break
        answer += data
    parts = answer.split(b"\r\n", 1)[0].split()
    if len(parts) < 2 or not parts[1].isdigit():
        raise ValueError("HTTP probe failed: no HTTP answer")
    return int(parts[1])
