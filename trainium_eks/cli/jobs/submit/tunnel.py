"""``trn tunnel``: a way to a private Kubernetes API, through an instance of its network, by Session Manager.

AWS Systems Manager, "Starting a session (port forwarding to remote host)": the AWS CLI starts the session, and its
plugin forwards a port of this machine.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from trainium_eks.aws.sessions import Aws
from trainium_eks.cli.jobs.submit.kubeconfig import in_namespace
from trainium_eks.cli.shared.output import write
from trainium_eks.client.cluster_access import find_source, open_kubeconfig
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, WRONG_USAGE, Failure
from trainium_eks.client.notices import notice
from trainium_eks.client.session import find_namespace

DOCUMENT = "AWS-StartPortForwardingSessionToRemoteHost"
TAG = "trainium-eks/tunnel"
"""Tag of instances that tunnels lead through, with any value."""
OPEN_SECONDS = 60.0
"""Longest wait for the session; the plugin itself gives up earlier."""
LOOK_SECONDS = 0.1
END_SECONDS = 5.0
"""Time of the session for its own end, after SIGTERM."""

_PROGRAMS = {
    "aws": "https://docs.aws.amazon.com/cli/latest/userguide/getting-started-install.html",
    "session-manager-plugin": (
        "https://docs.aws.amazon.com/systems-manager/latest/userguide/session-manager-working-with-install-plugin.html"
    ),
}


@dataclass(frozen=True)
class TunnelOptions:
    """The options of one call."""

    cluster: ClusterOptions
    target: str = ""
    """Instance (``i-…``); empty for the one with :data:`TAG` in the cluster's VPC."""
    port: int = 0
    """Port of this machine; 0 for a free one."""
    minutes: float = 480.0
    command: tuple[str, ...] = ()
    """Command that uses the tunnel, which ends with it."""


def run(asked: TunnelOptions) -> int:
    """Run ``trn tunnel``; return the exit code, that of the command where there is one."""
    cluster = asked.cluster
    source = find_source(cluster.stack, cluster.outputs, cluster.kubeconfig, cluster.directory)
    if source.paths is not None:
        raise Failure(WRONG_USAGE, "the local cloud's API is on this machine: it needs no tunnel")
    for program, where in _PROGRAMS.items():
        if shutil.which(program) is None:
            raise Failure(WRONG_USAGE, f"{program} is not on PATH, and opens the tunnel.\n  Install: {where}")
    outputs = source.outputs
    namespace = find_namespace(outputs, cluster.namespace, cluster.outputs).name if outputs.namespaces else "default"
    with open_kubeconfig(source) as file:
        document = in_namespace(file.read_text(encoding="utf-8"), namespace)
    host = _host(document)
    target = asked.target or Aws(outputs.region).tunnel_instance(outputs.cluster_name, TAG)
    port = asked.port or _free_port()
    with _session(outputs.region, target, host, port) as session, _kubeconfig(document, host, port) as file:
        if asked.command:
            return _command(asked.command, file)
        notice(f"{host} is at port {port} of this machine, through {target}, for {asked.minutes:g} minutes")
        write(f"export KUBECONFIG={file}\n")
        return _await_end(session, asked.minutes * 60)


def _host(document: Mapping[str, Any]) -> str:
    server = str(_cluster(document).get("server") or "")
    found = urlsplit(server)
    if found.scheme != "https" or not found.hostname:
        raise Failure(WRONG_USAGE, f"the kubeconfig's server is {server!r}, and no https:// address")
    return found.hostname


def _cluster(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cluster of the current context, to be read or changed."""
    try:
        [context] = [each for each in document["contexts"] if each["name"] == document["current-context"]]
        [found] = [each for each in document["clusters"] if each["name"] == context["context"]["cluster"]]
        return found["cluster"]  # type: ignore[no-any-return]
    except (KeyError, TypeError, ValueError):
        raise Failure(WRONG_USAGE, "the kubeconfig's current context names no cluster of the file") from None


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@contextmanager
def _session(region: str, target: str, host: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Open the session, and end it with its plugin on the way out, SIGTERM included.

    Raises:
        Failure: the session does not open, with the AWS CLI's words.
    """
    parameters = {"host": [host], "portNumber": ["443"], "localPortNumber": [str(port)]}
    command = ["aws", "ssm", "start-session", "--region", region, "--target", target, "--document-name", DOCUMENT]
    command += ["--parameters", json.dumps(parameters)]
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryFile() as said:
        # A group of its own: Ctrl-C reaches this process alone, which ends both, the CLI and its plugin.
        session = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True)
        try:
            if not _opens(session, port):
                said.seek(0)
                words = said.read().decode(errors="replace").strip()[-2000:]
                title = f"no session to {target} opens: it needs ssm:StartSession on the instance and {DOCUMENT}"
                raise Failure(FAILED, title, detail=words)
            yield session
        finally:
            _end(session)
            signal.signal(signal.SIGTERM, before)


def _opens(session: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until the port takes connections; return whether it does."""
    deadline = time.monotonic() + OPEN_SECONDS
    while session.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(LOOK_SECONDS)
        else:
            return True
    return False


def _end(session: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(session.pid, number)
        except ProcessLookupError:
            return
        try:
            session.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            continue


@contextmanager
def _kubeconfig(document: Mapping[str, Any], host: str, port: int) -> Iterator[Path]:
    """Yield a kubeconfig for the tunnel, for its owner alone. The server's certificate is checked for its real name."""
    _cluster(document).update({"server": f"https://127.0.0.1:{port}", "tls-server-name": host})
    with tempfile.TemporaryDirectory(prefix="trn-tunnel-") as directory:  # 0700
        file = Path(directory) / "kubeconfig.json"
        file.write_text(json.dumps(document), encoding="utf-8")
        yield file


def _command(command: tuple[str, ...], kubeconfig: Path) -> int:
    try:
        return subprocess.run(command, env={**os.environ, "KUBECONFIG": str(kubeconfig)}, check=False).returncode
    except OSError as error:
        raise Failure(WRONG_USAGE, f"{command[0]} cannot be run: {error.strerror}") from None


def _await_end(session: subprocess.Popen[bytes], seconds: float) -> int:
    """Wait for the end of the time; fail when the session ends before."""
    try:
        session.wait(seconds)
    except subprocess.TimeoutExpired:
        notice("the tunnel's time is over")
        return 0
    raise Failure(FAILED, "the session ended: Session Manager ends idle ones after 20 minutes (its preferences say so)")
