"""Channels into pods, and the pod agent's own client: the bytes that pass, and how an end or a refusal is reported."""

import asyncio
import contextlib
import json
import socket
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from kubernetes.client.exceptions import ApiException
from staging_servers import Handler, serving

from trainium_eks.kube import pod_channels
from trainium_eks.kube.async_client import ApiClient, ApiStatusError, UnreachableError
from trainium_eks.kube.pod_channels import Forwarding, NoChannelError, Place

PLACE = Place(Path("kubeconfig"), "n", "p")


@pytest.fixture
def run(monkeypatch):
    """The lines of a command, and why it ended badly; its channel is closed afterwards."""
    monkeypatch.setattr(pod_channels, "_core", lambda _: SimpleNamespace(connect_get_namespaced_pod_exec="exec"))

    def ran(end, complaint):
        pieces, channel, found, why = ["a\nb", "c\n", "d"], Mock(), [], ""
        channel.is_open.side_effect = lambda: bool(pieces)
        channel.read_stdout.side_effect = lambda: pieces.pop(0)
        channel.peek_stderr.side_effect = [bool(complaint), False, False]
        channel.read_stderr.return_value = complaint
        channel.read_channel.side_effect = {pod_channels.ERROR_CHANNEL: end}.get
        monkeypatch.setattr("kubernetes.stream.stream", lambda *_, **__: channel)
        try:
            for line in pod_channels.lines(PLACE, "c", ["x"]):
                found.append(line)
        except NoChannelError as error:
            why = str(error)
        channel.close.assert_called_once()
        return found, why

    return ran


EXIT_3 = {"status": "Failure", "message": "m", "details": {"causes": [{"reason": "ExitCode", "message": "3"}]}}


@pytest.mark.parametrize(
    ("end", "complaint", "why"),
    [
        ("", "a warning", ""),
        ('{"status": "Success"}', "", ""),
        (json.dumps(EXIT_3), "", "the command ended with exit code 3"),
        (json.dumps(EXIT_3), " no such file\n", "no such file"),
        ('{"status": "Failure", "message": "m", "details": {"causes": "x"}}', "", "m"),
        ('{"status": "Failure"}', "", "it failed"),
        ('{"message": "no commands here"}', "", "no commands here"),
        ("no commands here\n", "", "no commands here"),
    ],
)
def test_channel_yields_whole_lines_and_the_exit_reason(run, end, complaint, why):
    assert run(end, complaint) == (["a", "bc", "d"], why)


def test_refused_channel_is_reported_without_its_headers(monkeypatch):
    def refused(*_, **__):
        raise ApiException(status=0, reason="Handshake status 403 Forbidden -+-+- {'date': 'now'} -+-+- body")

    monkeypatch.setattr(pod_channels, "_core", lambda _: SimpleNamespace(connect_get_namespaced_pod_portforward=""))
    monkeypatch.setattr("kubernetes.stream.portforward", refused)
    with pytest.raises(NoChannelError, match=r"^Handshake status 403 Forbidden$"):
        pod_channels.check_port_forward(PLACE, 80)


def test_a_forwarded_port_passes_bytes_both_ways_until_one_side_closes(monkeypatch):
    near, far = socket.socketpair()
    monkeypatch.setattr(pod_channels, "_port", lambda *_: SimpleNamespace(socket=lambda _: near))
    forwarding = Forwarding(PLACE, 80, 0)
    with socket.create_connection(("127.0.0.1", forwarding.local_port), timeout=60) as browser, far:
        far.settimeout(60)
        browser.sendall(b"asks")
        assert far.recv(9) == b"asks"
        far.sendall(b"answers")
        assert browser.recv(9) == b"answers"
        far.shutdown(socket.SHUT_RDWR)
        assert browser.recv(9) == b""
    forwarding.close()


class ApiServer(Handler):
    """Tells what it was asked; refuses /refused, and streams /watched."""

    def do_GET(self):  # noqa: N802 - the server's names
        asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
        kind, port = self.headers["Content-Type"], self.client_address[1]
        said = {"message": "no", "asked": [self.command, self.path, asked, kind], "port": port}
        if self.path.startswith("/watched"):
            self.answer(200, {"Transfer-Encoding": "chunked"})
            self.wfile.write(b'5\r\n{"a":\r\n6;x=y\r\n1}\n{}\n\r\n0\r\n\r\n')
            return
        body = json.dumps(said).encode()
        self.answer(409 if self.path == "/refused" else 200, {"Content-Length": len(body)})
        self.wfile.write(body)

    do_PATCH = do_GET  # noqa: N815


def test_agents_client_reuses_its_connection_and_raises_refusals():
    async def ask(port):
        client = ApiClient("127.0.0.1", port, None)
        first = await client.request("GET", "/a", query={"b": "c d"})
        second = await client.request("PATCH", "/a", {}, content_type="application/x")
        with pytest.raises(ApiStatusError, match=r"^409 no$"):
            await client.request("GET", "/refused")
        watched = [line async for line in client.watch("/watched", {})]
        client.close()
        return first, second, watched

    async def ask_closed_port(port):
        await ApiClient("127.0.0.1", port, None).request("GET", "/a")

    # Not asyncio.run, which would leave this thread without a loop.
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        with serving(ApiServer) as url:
            port = int(url.rpartition(":")[2])
            first, second, watched = loop.run_until_complete(ask(port))
        with pytest.raises(UnreachableError):
            loop.run_until_complete(ask_closed_port(port))
    assert first["asked"] == ["GET", "/a?b=c+d", "", None]
    assert second["asked"] == ["PATCH", "/a", "{}", "application/x"]
    assert first["port"] == second["port"]
    assert watched == [b'{"a":1}', b"{}"]
