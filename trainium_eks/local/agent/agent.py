"""The agent: the kubelet of all pods with local images, one process for each stack.

It watches pods, services and nodes, keeps a worker for each pod that is run here, and answers the API server's requests
for logs. All of it runs in one thread. The pods end with the agent, as with a node that is lost; the next agent starts
those again that may be.

``python -m trainium_eks.local.agent.agent --root=.local/<stack> --server=HOST:PORT --listen=HOST:PORT``
"""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from trainium_eks.kube.async_client import ApiClient, ApiStatusError, UnreachableError
from trainium_eks.local.agent import log_retention
from trainium_eks.local.agent.log_server import ContainerRun, LogServer, NoLogError
from trainium_eks.local.agent.worker import Worker
from trainium_eks.local.control_plane import kubelet, processes
from trainium_eks.local.control_plane.programs import AGENT, NETWORK, SHIM, program, python_environment
from trainium_eks.local.images import images
from trainium_eks.local.network import gateway, network
from trainium_eks.local.network.gateway import Gateway
from trainium_eks.local.paths import Paths
from trainium_eks.local.runtime import isolation
from trainium_eks.local.runtime.isolation import Chosen
from trainium_eks.local.runtime.shim import AGENT_SOCKET, AGENT_VARIABLE
from trainium_eks.local.spec import hosts
from trainium_eks.local.spec.hosts import Host
from trainium_eks.local.spec.known import Body
from trainium_eks.local.spec.plan import Isolation, PodDirectory, read
from trainium_eks.local.spec.planning import is_ours

_LOG = logging.getLogger("pods")

# The system's namespace holds the stand-ins for add-ons, six pods on each node; none of them is run here.
_WATCHED_PODS = "spec.nodeName!=,metadata.namespace!=kube-system"
_MARK = f'"image":"{images.PREFIX}'.encode()
_AGAIN_SECONDS = 1.0
_NETWORK_SECONDS = 10.0


class Agent:
    """The agent of a stack."""

    def __init__(self, paths: Paths, client: ApiClient, server: tuple[str, int], asked: str) -> None:
        self.client = client
        self.proxy = ""
        self._paths = paths
        self._asked = asked
        self._workers: dict[str, Worker] = {}
        self._last_address = network.GATEWAY
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._services: dict[str, Body] = {}
        self._hosts_due = False
        self._prune_due = False
        self.network_pid = 0
        self.api_server = self._server = server
        self.isolation = self._choose()

    # --- Isolation ------------------------------------------------------------------------------------------------

    def _choose(self) -> Isolation:
        refused: dict[str, str] = {}
        for way in isolation.candidates(self._asked):
            try:
                if way is Isolation.NET:
                    self._holder = self._network()
                    self.network_pid = self._holder.pid
                why = isolation.attempt(way, self.network_pid, python_environment())
            except OSError as error:
                why = str(error)
            if not why:
                Chosen(way, refused).save(self._paths.pods)
                _LOG.info("isolation %s%s", way, "".join(f"; not {name}: {said}" for name, said in refused.items()))
                return way
            refused[way] = why
        _LOG.error("no isolation works: %s", refused)
        Chosen(Isolation.PLAIN, refused).save(self._paths.pods)
        return Isolation.PLAIN

    def _network(self) -> "subprocess.Popen[bytes]":
        """Start the process that holds the pods' network."""
        log = processes.log_file(self._paths, NETWORK)
        with log.open("ab") as errors:
            holder = subprocess.Popen(
                [program(self._paths, NETWORK), "-S", "-s", "-m", network.__name__, str(self._paths.root)],
                env=python_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        assert holder.stdout is not None
        # It says one line or ends.
        said = holder.stdout.readline()
        holder.stdout.close()
        if said.strip() != b"ready":
            holder.wait(_NETWORK_SECONDS)
            raise OSError(processes.last_lines(self._paths, NETWORK, 1).strip())
        return holder

    # --- For workers ----------------------------------------------------------------------------------------------

    def directory(self, uid: str) -> PodDirectory:
        """Return the directory of a pod."""
        return PodDirectory(self._paths.pods / uid)

    def claims(self, namespace: str) -> Path:
        """Return the directory of a namespace's claims."""
        return self._paths.claims / namespace

    def free_address(self) -> str:
        """Return an address that no pod has."""
        self._last_address = network.free_address([each.address for each in self._workers.values()], self._last_address)
        return self._last_address

    def services(self) -> Sequence[Body]:
        """Return all known services."""
        return list(self._services.values())

    def hosts_of(self, own: Host) -> str:
        """Return the hosts file of a pod."""
        return hosts.text(own, [host for each in self._workers.values() if (host := each.host)], self.services())

    def hosts_changed(self) -> None:
        """Schedule new hosts files after a pod has come, gone, or become ready."""
        if not self._hosts_due:
            # Many changes at once are written once.
            self._hosts_due = True
            asyncio.get_running_loop().call_later(0.01, self._write_hosts)

    def _write_hosts(self) -> None:
        self._hosts_due = False
        for each in self._workers.values():
            each.write_hosts()

    def start_shim(self, directory: PodDirectory) -> "subprocess.Popen[bytes]":
        """Start a shim."""
        command = [program(self._paths, SHIM), "-S", "-s", "-m", "trainium_eks.local.runtime.shim", str(directory.path)]
        with directory.shim_log.open("ab") as log:
            return subprocess.Popen(
                command,
                env={**python_environment(), AGENT_VARIABLE: str(os.getpid())},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def when_ended(self, process: "subprocess.Popen[bytes]", then: Callable[[], None]) -> None:
        """Call back when a child of this process ends."""
        loop = asyncio.get_running_loop()
        if process.poll() is not None:
            loop.call_soon(then)
            return
        if not hasattr(os, "pidfd_open"):
            loop.call_later(_AGAIN_SECONDS, self.when_ended, process, then)
            return
        descriptor = os.pidfd_open(process.pid)  # a child is there until it is reaped

        def ended() -> None:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            then()

        loop.add_reader(descriptor, ended)

    def forget(self, uid: str) -> None:
        """Remove the directory of a deleted pod with no running process, and keep its logs."""
        self._workers.pop(uid, None)
        self._tasks.pop(uid, None)
        self._clear(self.directory(uid))

    def _clear(self, directory: PodDirectory) -> None:
        log_retention.keep(directory, self._paths.kept)
        shutil.rmtree(directory.path, ignore_errors=True)
        if not self._prune_due:
            # The pods of a gang that end together are pruned once.
            self._prune_due = True
            asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._prune)

    def _prune(self) -> None:
        self._prune_due = False
        with contextlib.suppress(OSError):
            log_retention.prune(self._paths.kept)

    # --- Running --------------------------------------------------------------------------------------------------

    async def run(self, listen: tuple[str, int], tls: ssl.SSLContext) -> None:
        """Run the agent until it gets a signal to end."""
        loop = asyncio.get_running_loop()
        ending = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ending.set)
        heard = self._hear_shims()
        server = await LogServer(self._find_run).serve(*listen, tls)
        if self.isolation is Isolation.NET:
            try:
                await Gateway(self.network_pid, self._server, self._holder_of).serve()
            except OSError as error:
                _LOG.error("pods have no way out of their network: %s", error)
            else:
                self.proxy, self.api_server = gateway.PROXY, gateway.API_SERVER
            self.when_ended(self._holder, lambda: _end("the pods' network is gone: its holder has ended"))
        watches = [
            asyncio.create_task(each) for each in (self._watch_services(), self._watch_pods(), self._watch_nodes())
        ]
        for each in watches:
            each.add_done_callback(_end_if_failed)
        await ending.wait()
        for task in (*watches, *self._tasks.values()):
            task.cancel()
        server.close()
        heard.close()

    def _holder_of(self, address: str) -> int:
        """Return the id of a process in the network of the pod with an address."""
        for each in self._workers.values():
            if each.address == address and each.host is not None:
                return int(_read_state(each.directory).get("holder") or 0)
        return 0

    def _hear_shims(self) -> socket.socket:
        """Listen for shims that report a change of their pods."""
        os.chdir(self._paths.pods)  # a socket's path is limited to some 100 characters
        with contextlib.suppress(FileNotFoundError):
            os.unlink(AGENT_SOCKET)
        heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        heard.setblocking(False)
        heard.bind(AGENT_SOCKET)

        def hear() -> None:
            with contextlib.suppress(BlockingIOError):
                while uid := heard.recv(256).decode():
                    if worker := self._workers.get(uid):
                        worker.look()

        asyncio.get_running_loop().add_reader(heard, hear)
        return heard

    # --- Watching -------------------------------------------------------------------------------------------------

    async def _watch_pods(self) -> None:
        async for known, events in _rounds(self.client, "/api/v1/pods", {"fieldSelector": _WATCHED_PODS}):
            there = {pod["metadata"]["uid"]: pod for pod in known if is_ours(pod)}
            for uid, worker in list(self._workers.items()):
                if uid not in there:
                    worker.remove()
            self._drop_unknown(there)
            for pod in there.values():
                self._pod_changed("MODIFIED", pod)
            async for line in events:
                # A thousand simulated nodes send many events: events of pods that are not run here are not even parsed.
                if _MARK in line:
                    event = json.loads(line)
                    if is_ours(event["object"]):
                        self._pod_changed(event["type"], event["object"])

    def _pod_changed(self, kind: str, pod: dict[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        worker = self._workers.get(uid)
        if kind == "DELETED":
            if worker is not None:
                worker.remove()
        elif worker is not None:
            worker.update(pod)
        else:
            worker = self._workers[uid] = Worker(pod, self)
            task = self._tasks[uid] = asyncio.create_task(worker.run())
            task.add_done_callback(_end_if_failed)

    def _drop_unknown(self, there: Mapping[str, Body]) -> None:
        """Remove directories of pods that were deleted while no agent ran."""
        for each in self._paths.pods.iterdir():
            if (each / "plan.json").exists() and each.name not in there and each.name not in self._workers:
                asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._clear, PodDirectory(each))

    async def _watch_services(self) -> None:
        async for known, events in _rounds(self.client, "/api/v1/services", {}):
            self._services = {each["metadata"]["uid"]: each for each in known}
            self.hosts_changed()
            async for line in events:
                event = json.loads(line)
                if event["type"] == "DELETED":
                    self._services.pop(event["object"]["metadata"]["uid"], None)
                elif event["type"] in ("ADDED", "MODIFIED"):
                    self._services[event["object"]["metadata"]["uid"]] = event["object"]
                self.hosts_changed()

    async def _watch_nodes(self) -> None:
        async for _, events in _rounds(self.client, "/api/v1/nodes", {}, whole=False):
            for node in {each.node for each in self._workers.values()}:
                try:
                    await self.client.request("GET", f"/api/v1/nodes/{quote(node)}")
                except ApiStatusError as error:
                    if error.status == 404:
                        self._end_pods_of(node)
            async for line in events:
                if line.startswith(b'{"type":"DELETED"'):
                    self._end_pods_of(json.loads(line)["object"]["metadata"]["name"])

    def _end_pods_of(self, name: str) -> None:
        for each in self._workers.values():
            if each.node == name and each.host is not None:
                _LOG.info("node %s is gone, and with it %s", name, each.directory.path.name)
                each.lose_node()

    # --- Logs -----------------------------------------------------------------------------------------------------

    def _find_run(self, namespace: str, name: str, container: str, previous: bool) -> ContainerRun | None:
        found = [
            each
            for each in self._workers.values()
            if each.pod["metadata"]["namespace"] == namespace and each.pod["metadata"]["name"] == name
        ]
        if not found:
            return None
        worker = max(found, key=lambda each: str(each.pod["metadata"]["creationTimestamp"]))
        told = _read_state(worker.directory).get("containers", {}).get(container)
        if told is None:
            raise NoLogError(f'container "{container}" in pod "{name}" is waiting to start: ContainerCreating')
        restart = int(told["restartCount"]) - (told["state"] == "waiting") - previous
        if restart < 0 or (previous and not worker.directory.log(container, restart).exists()):
            if previous:
                raise NoLogError(f'previous terminated container "{container}" in pod "{name}" not found')
            raise NoLogError(f'container "{container}" in pod "{name}" is waiting to start: {told["reason"]}')

        def is_running() -> bool:
            now = _read_state(worker.directory).get("containers", {}).get(container) or {}
            return not previous and now.get("state") == "running" and now.get("restartCount") == restart

        return ContainerRun(worker.directory, container, restart, is_running)


async def _rounds(
    client: ApiClient, path: str, query: Mapping[str, str], *, whole: bool = True
) -> AsyncGenerator[tuple[list[dict[str, Any]], AsyncGenerator[bytes, None]], None]:
    """Yield the existing objects and their events, again and again: a watch ends when the API server does.

    Without ``whole`` only the first object of the list is there.
    """
    while True:
        try:
            known, version = await _listed(client, path, query, whole=whole)
            yield known, _events(client, path, query, version)
        except (ApiStatusError, UnreachableError) as error:
            _LOG.warning("%s: %s", path, error)
            await asyncio.sleep(_AGAIN_SECONDS)


async def _listed(
    client: ApiClient, path: str, query: Mapping[str, str], *, whole: bool
) -> tuple[list[dict[str, Any]], str]:
    found: list[dict[str, Any]] = []
    after = ""
    while True:
        asked = {**query, "limit": "500" if whole else "1", **({"continue": after} if after else {})}
        page = await client.request("GET", path, query=asked)
        found += page.get("items") or []
        after = page["metadata"].get("continue") or ""
        if not after or not whole:
            return found, page["metadata"]["resourceVersion"]


async def _events(client: ApiClient, path: str, query: Mapping[str, str], version: str) -> AsyncGenerator[bytes, None]:
    asked = {**query, "resourceVersion": version}
    try:
        async for line in client.watch(path, asked):
            if line.startswith(b'{"type":"ERROR"'):
                return  # too old: from the beginning
            yield line
    except (ApiStatusError, UnreachableError) as error:
        _LOG.info("watch of %s: %s", path, error)
        await asyncio.sleep(_AGAIN_SECONDS)


def _read_state(directory: PodDirectory) -> dict[str, Any]:
    return read(directory.state) or {}


def _end_if_failed(task: "asyncio.Task[None]") -> None:
    """End the agent when one of its tasks fails, so that the error is seen; the next `up` starts the agent again."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _end("failed", error)


def _end(why: str, error: BaseException | None = None) -> None:
    _LOG.error(why, exc_info=error)
    os.kill(os.getpid(), signal.SIGTERM)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def main(arguments: Sequence[str]) -> None:
    """Run the agent."""
    parser = argparse.ArgumentParser(prog=AGENT)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--server", type=_address, required=True)
    parser.add_argument("--listen", type=_address, required=True)
    parser.add_argument("--isolation", default="auto")
    parser.add_argument("--code", help="digest of the agent's code, so that a new one is started after a change")
    given = parser.parse_args(arguments)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO, stream=sys.stderr)
    paths = Paths(given.root)
    paths.pods.mkdir(exist_ok=True, mode=0o700)
    # Of an agent before this one, where the system does not end them with it.
    processes.stop(paths, [SHIM, NETWORK])
    client_tls = ssl.create_default_context(cafile=str(paths.pki / "ca.crt"))
    client_tls.load_cert_chain(paths.pki / f"{AGENT}.crt", paths.pki / f"{AGENT}.key")
    server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_tls.load_cert_chain(paths.pki / f"{kubelet.CERTIFICATE}.crt", paths.pki / f"{kubelet.CERTIFICATE}.key")
    server_tls.load_verify_locations(paths.pki / "ca.crt")
    server_tls.verify_mode = ssl.CERT_REQUIRED
    agent = Agent(paths, ApiClient(given.server[0], given.server[1], client_tls), given.server, given.isolation)
    asyncio.run(agent.run(given.listen, server_tls))


if __name__ == "__main__":
    main(sys.argv[1:])
