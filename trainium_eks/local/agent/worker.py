"""The agent's worker for one pod: brings the processes in line with the object, and its status in line with them.

Level-triggered like a kubelet's pod worker: after a signal of a possible change, it inspects the whole state, takes the
next steps, and keeps in memory nothing that it could not read again.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from trainium_eks import whole_file
from trainium_eks.kube.async_client import ApiStatusError, UnreachableError
from trainium_eks.local.agent import statuses
from trainium_eks.local.images import images
from trainium_eks.local.images.images import LocalImage
from trainium_eks.local.runtime import beneath
from trainium_eks.local.spec import volumes
from trainium_eks.local.spec.hosts import Host
from trainium_eks.local.spec.known import Body, PlanInputs, UnmetError
from trainium_eks.local.spec.plan import Isolation, Mount, PodDirectory, RestartPolicy, read
from trainium_eks.local.spec.planning import StartablePod, hostname, planned
from trainium_eks.local.spec.volumes import TokenRequest

if TYPE_CHECKING:
    from trainium_eks.local.agent.agent import Agent

_LOG = logging.getLogger("pods")
_UNMET_SECONDS = 3.0
_TROUBLE_SECONDS = 2.0
_NEW_SANDBOX_SECONDS = 10.0
_STRATEGIC_MERGE = "application/strategic-merge-patch+json"
_REFRESH_SECONDS = 60.0
"""Time after which a running pod's ConfigMaps are read again (kubelet, ``syncFrequency``)."""
_TOKEN_SECONDS = 366 * 86400
"""Lifetime of service account tokens, which are not renewed. They end with their pod."""
# No server answers there, and the failure comes at once: names missing from /etc/hosts are unknown without a wait.
_NO_NAMES = "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"
_HOST_NAMES = Path("/etc/resolv.conf")


class Worker:
    """The worker of one pod that is bound to a node."""

    def __init__(self, pod: dict[str, Any], around: "Agent") -> None:
        self.pod = pod
        self._around = around
        self._shim: subprocess.Popen[bytes] | None = None
        self.directory = around.directory(pod["metadata"]["uid"])
        self._changed = asyncio.Event()
        self._changed.set()
        self._gone = False
        self._node_gone = False
        self._unmet: UnmetError | None = None
        self._image_ids: dict[str, str] = {}
        self._node: Body = {}
        self.address = str((read(self.directory.plan) or {}).get("address") or "")
        """Address in the pods' network; empty before the pod has one."""
        self._deletion_sent = False
        self._ready = False
        self._refreshed = time.monotonic()

    # --- For the agent --------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Wake the worker, because the pod's state may have changed."""
        self._changed.set()

    def update(self, pod: dict[str, Any]) -> None:
        """Take a newer version of the object."""
        if _version(pod) >= _version(self.pod):
            self.pod = pod
            self.look()

    def remove(self) -> None:
        """End all processes at once, because the object is deleted."""
        self._gone = True
        self.look()

    def lose_node(self) -> None:
        """End all processes, as the node is deleted. Kubernetes collects the object, unless the node comes back."""
        self._node_gone = True
        self.look()

    @property
    def host(self) -> Host | None:
        """Return the pod's entry for hosts files; None when it has no address or is over."""
        if not self.address or self._is_over:
            return None
        metadata, spec = self.pod["metadata"], self.pod["spec"]
        return Host(
            namespace=metadata["namespace"],
            hostname=hostname(self.pod),
            subdomain=spec.get("subdomain") or "",
            labels=metadata.get("labels") or {},
            address=self.address if self._around.isolation is Isolation.NET else "127.0.0.1",
            ready=self._ready,
        )

    @property
    def node(self) -> str:
        """Return the name of the pod's node."""
        return str(self.pod["spec"].get("nodeName") or "")

    def write_hosts(self) -> None:
        """Update the pod's hosts file."""
        own = self.host
        if own is None or not self.directory.path.is_dir():
            return
        text = self._around.hosts_of(own).encode()
        with contextlib.suppress(OSError):
            if not self.directory.hosts.exists() or self.directory.hosts.read_bytes() != text:
                # In place: containers see this very file.
                self.directory.hosts.write_bytes(text)

    # --- The work -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until the pod is gone."""
        while True:
            again: float | None
            # Read before the look: a pod that is removed during it needs another look, which cleans up.
            gone = self._gone
            try:
                again = await self._sync()
            except (UnreachableError, OSError) as error:
                _LOG.warning("%s: %s", self._name, error)
                again = _TROUBLE_SECONDS
            except ApiStatusError as error:
                if error.status in (404, 409) and self._gone:
                    again = 0.0
                else:
                    _LOG.warning("%s: %s", self._name, error)
                    again = _TROUBLE_SECONDS
            if again is None and gone:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), again)
            self._changed.clear()

    @property
    def _name(self) -> str:
        return f"{self.pod['metadata']['namespace']}/{self.pod['metadata']['name']}"

    @property
    def _is_over(self) -> bool:
        return (self.pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")

    @property
    def _is_deleted(self) -> bool:
        return bool(self.pod["metadata"].get("deletionTimestamp"))

    async def _sync(self) -> float | None:
        """Bring the pod up to date once; return the seconds until the next look without a signal, None for no limit."""
        if self._shim is not None and self._shim.poll() is not None:
            _LOG.info("%s: shim %d has ended", self._name, self._shim.pid)
            self._shim = None
        if self._gone or self._node_gone:
            left = await self._end_at_once()
            if self._gone or self._node_gone:
                return left
        state = read(self.directory.state)
        if state is not None and state.get("problem"):
            return await self._no_sandbox(state["problem"])
        if self._shim is None and not (state or {}).get("ended") and not self._is_over:
            if self._is_deleted and state is None:
                await self._finish_deletion()
                return None
            started = await self._begin(state)
            if started is not None:
                return started
            state = read(self.directory.state)
        if self._is_deleted and self._shim is not None:
            self._ask_to_stop()
        await self._report(state)
        if self._is_deleted and self._shim is None:
            await self._finish_deletion()
        return await self._refresh() if self._shim is not None else None

    async def _refresh(self) -> float | None:
        """Write files of ConfigMaps that changed, and return the time of the next look; None for a pod without any."""
        shown = volumes.config_map_volumes(self.pod)
        if not shown:
            return None
        if (left := self._refreshed + _REFRESH_SECONDS - time.monotonic()) > 0:
            return left
        self._refreshed = time.monotonic()
        found = await self._get("ConfigMap", "configmaps", [each["name"] for each in shown.values()])
        for name, source in shown.items():
            with contextlib.suppress(UnmetError):  # it is gone, and the files stay
                for file in volumes.config_map_files(source, self.directory.volume(name), found):
                    _write(file)
        return _REFRESH_SECONDS

    async def _end_at_once(self) -> float | None:
        if self._shim is not None:
            # Not SIGKILL: the shim ends its containers, and at once.
            self._shim.send_signal(signal.SIGTERM)
            return 0.1
        if self._gone:
            self._around.forget(self.pod["metadata"]["uid"])
            self._around.hosts_changed()
            return None
        if not await self._find_node():
            return _UNMET_SECONDS
        # There is a node of that name again, so Kubernetes does not collect the pod. Continue as after a restart.
        self._node_gone = False
        return None

    async def _begin(self, state: Mapping[str, Any] | None) -> float | None:
        """Start a shim, for the first time or again; return the seconds to wait when it cannot be started yet."""
        was_running = (self.pod.get("status") or {}).get("phase") == "Running"
        policy = RestartPolicy(self.pod["spec"].get("restartPolicy") or "Always")
        if (state is not None or was_running) and (policy is RestartPolicy.NEVER or self._is_deleted):
            told = statuses.lost_state(state or statuses.unknown(self.pod), time.time())
            self.directory.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            whole_file.write(self.directory.state, json.dumps(told))
            return None
        try:
            if not await self._find_node():
                return _UNMET_SECONDS
            self.address = self.address or self._around.free_address()
            made = await self._plan()
            _prepare(self.directory, made)
            self.write_hosts()
            # Last: with it the directory is a pod's.
            whole_file.write(self.directory.plan, made.plan.to_json())
        except UnmetError as unmet:
            return await self._wait_for(unmet)
        except (LookupError, TypeError, ValueError, ArithmeticError) as error:
            # No pod's request may end the agent of all the others.
            _LOG.exception("%s", self._name)
            return await self._wait_for(
                UnmetError("CreateContainerConfigError", f"the local cloud cannot run it: {error}")
            )
        self._unmet = None
        self._around.hosts_changed()
        self._shim = self._around.start_shim(self.directory)
        self._around.when_ended(self._shim, self.look)
        _LOG.info("%s: shim %d started, at %s", self._name, self._shim.pid, self.address)
        return None

    async def _wait_for(self, unmet: UnmetError) -> float:
        self._unmet = unmet
        await self._report(None)
        return _UNMET_SECONDS

    async def _find_node(self) -> bool:
        """Read the node, and return whether it exists. A pod of a deleted node never starts: Kubernetes collects it."""
        try:
            self._node = await self._around.client.request("GET", f"/api/v1/nodes/{quote(self.node)}")
        except ApiStatusError as error:
            if error.status != 404:
                raise
            return False
        return True

    async def _plan(self) -> StartablePod:
        pod, around = self.pod, self._around
        namespace = pod["metadata"]["namespace"]
        named = volumes.references(pod)
        known = PlanInputs(
            directory=self.directory,
            claims=around.claims(namespace),
            isolation=around.isolation,
            address=self.address,
            node=self._node,
            config_maps=await self._get("ConfigMap", "configmaps", named.config_maps),
            secrets=await self._get("Secret", "secrets", named.secrets),
            services=around.services(),
            find_image=self._image,
            workloads=images.workloads(),
            api_server=around.api_server,
            tokens=await self._get_tokens(named.tokens),
            network_pid=around.network_pid,
            proxy=around.proxy,
        )
        return planned(pod, known)

    def _image(self, reference: str) -> LocalImage | None:
        image = images.find(reference)
        if image is None:
            return None
        self._image_ids[reference] = image.reference
        return images.ensure(image)

    async def _get(self, kind: str, resource: str, names: Sequence[str]) -> dict[str, Body]:
        found: dict[str, Body] = {}
        for name in names:
            path = f"/api/v1/namespaces/{self.pod['metadata']['namespace']}/{resource}/{quote(name)}"
            try:
                found[name] = {"kind": kind, **await self._around.client.request("GET", path)}
            except ApiStatusError as error:
                if error.status != 404:
                    raise
        return found

    async def _get_tokens(self, wanted: Sequence[TokenRequest]) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        metadata = self.pod["metadata"]
        account = self.pod["spec"].get("serviceAccountName") or "default"
        path = f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{quote(account)}/token"
        bound = {"kind": "Pod", "apiVersion": "v1", "name": metadata["name"], "uid": metadata["uid"]}
        for each in wanted:
            spec: dict[str, Any] = {"expirationSeconds": _TOKEN_SECONDS, "boundObjectRef": bound}
            spec["audiences"] = [each.audience] if each.audience else []
            body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
            try:
                answer = await self._around.client.request("POST", path, body)
            except ApiStatusError as error:
                raise UnmetError(
                    "ContainerCreating", f'MountVolume.SetUp failed for volume "{each.volume}": {error}'
                ) from None
            found.setdefault(each.volume, {})[each.path] = answer["status"]["token"]
        return found

    # --- Ending ---------------------------------------------------------------------------------------------------

    def _ask_to_stop(self) -> None:
        """Tell the shim to stop, unless it has an order to stop as early as that."""
        metadata = self.pod["metadata"]
        grace = float(metadata.get("deletionGracePeriodSeconds") or 0)
        before = read(self.directory.stop)
        if before is None or float(before["graceSeconds"]) > grace:
            order = {"at": time.time(), "graceSeconds": grace, "reason": "", "message": ""}
            whole_file.write(self.directory.stop, json.dumps(order))
            assert self._shim is not None
            self._shim.send_signal(signal.SIGHUP)

    async def _finish_deletion(self) -> None:
        """Delete the object, once no process runs."""
        if self._deletion_sent:
            return
        metadata = self.pod["metadata"]
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        options["preconditions"] = {"uid": metadata["uid"]}
        try:
            await self._around.client.request("DELETE", self._path(), options)
        except ApiStatusError as error:
            # The API server removes pods that have ended itself; or another pod has the name by now.
            if error.status not in (404, 409):
                raise
        self._deletion_sent = True

    async def _no_sandbox(self, problem: str) -> float:
        _LOG.warning("%s: %s", self._name, problem)
        if self._is_deleted:
            await self._finish_deletion()
            return _TROUBLE_SECONDS
        self._unmet = UnmetError("FailedCreatePodSandBox", problem)
        await self._report(None)
        await asyncio.sleep(_NEW_SANDBOX_SECONDS)
        self.directory.state.unlink(missing_ok=True)
        return 0.0

    # --- Status ---------------------------------------------------------------------------------------------------

    async def _report(self, state: Mapping[str, Any] | None) -> None:
        if self._is_over:
            return
        if not self._node:
            await self._find_node()
        addresses = (self._node.get("status") or {}).get("addresses") or ()
        host_ip = next((each["address"] for each in addresses if each["type"] == "InternalIP"), "")
        made = statuses.status(
            self.pod, state, host_ip=host_ip, address=self.address, image_ids=self._image_ids, unmet=self._unmet
        )
        ready = any(each["type"] == "Ready" and each["status"] == "True" for each in made["conditions"])
        if ready != self._ready:
            self._ready = ready
            self._around.hosts_changed()
        if statuses.is_reported(made, self.pod.get("status") or {}):
            return
        body = {"metadata": {"uid": self.pod["metadata"]["uid"]}, "status": made}
        try:
            answer = await self._around.client.request(
                "PATCH", f"{self._path()}/status", body, content_type=_STRATEGIC_MERGE
            )
        except ApiStatusError as error:
            if error.status in (404, 409):
                return  # it is gone, or another one has its name: the watch reports it
            raise
        self.update(answer)
        if self._is_over:
            self._around.hosts_changed()

    def _path(self) -> str:
        metadata = self.pod["metadata"]
        return f"/api/v1/namespaces/{metadata['namespace']}/pods/{quote(metadata['name'])}"


def _version(pod: Body) -> int:
    return int(pod["metadata"].get("resourceVersion") or 0)


def _prepare(place: PodDirectory, made: StartablePod) -> None:
    """Write the files and directories that the containers of a pod use, except its hosts file and its plan."""
    place.path.mkdir(parents=True, exist_ok=True, mode=0o700)
    place.stop.unlink(missing_ok=True)
    for file in made.files:
        _write(file)
    for directory in made.directories:
        if not os.path.lexists(directory):
            os.makedirs(directory, exist_ok=True)
    for container in made.plan.all_containers:
        place.container(container.name).mkdir(parents=True, exist_ok=True)
        for mount in container.mounts:
            # Directories of memory volumes are made with the pod's sandbox.
            if mount.below and mount.source not in made.plan.memory_volumes:
                _make_below(mount, container.name)
    (place.path / "hostname").write_text(f"{made.plan.hostname}\n", encoding="utf-8")
    is_shared = made.plan.isolation is not Isolation.NET and _HOST_NAMES.is_file()
    (place.path / "resolv.conf").write_text(_HOST_NAMES.read_text() if is_shared else _NO_NAMES, encoding="utf-8")


def _write(file: volumes.File) -> None:
    """Write a file that is not there as it should be; a reader sees the old file or the new one."""
    if not file.path.exists() or file.path.read_bytes() != file.content:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        whole_file.write(file.path, file.content, file.mode)


def _make_below(mount: Mount, container: str) -> None:
    try:
        os.close(beneath.open_or_create(mount.source, mount.below))
    except OSError as error:
        why = f"failed to prepare subPath {mount.below!r} for {mount.target}: {error.strerror}"
        raise UnmetError("CreateContainerConfigError", why, container) from None
