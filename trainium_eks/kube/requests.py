"""Requests to a Kubernetes API server: retries with their limits, and streamed answers.

A thin layer over the official client's connection handling (kubeconfig, certificates, tokens of ``aws eks get-token``).
"""

import socket
import time
from collections.abc import Generator, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import urllib3
import yaml

from trainium_eks.kube import light_import
from trainium_eks.kube.errors import ClusterError
from trainium_eks.kube.types import ApiError
from trainium_eks.model.machine_faults import machine_fault
from trainium_eks.model.validation.parsing import MISSHAPEN, parse_json

FIELD_MANAGER = "trn"
"""Owner of the fields that are applied (``metadata.managedFields``)."""
REQUEST_SECONDS = 65
"""A little more than the API server's own limit (``--request-timeout``, 60 s): its answer says more than ours."""
CONNECT_SECONDS = 10.0
"""Time that a connection, TLS included, may take to a server elsewhere; one on this machine may only be busy."""
UNREACHABLE_SECONDS = 3.0
"""Time of retries for a server that refuses connections."""
BUSY_SECONDS = 60.0
"""Time of retries for a server that answers "later" (429, 503, etcd electing a leader)."""

_KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 9}
"""Seconds and counts as kubectl has them; the second name is macOS's for the first. Load balancers and NAT gateways
forget a connection without traffic, such as a log while a job compiles, and tell neither side (AWS' after 350 s).
Newer clients have ``Configuration.keep_alive`` for the same."""

# etcd's passing troubles, which the API server passes on as 500 (etcd api/v3/v3rpc/rpctypes/error.go).
_ETCD_PASSING = ("etcdserver: leader changed", "etcdserver: no leader", "etcdserver: request timed out")


class Requests:
    """Client of one API server. Safe to use from many threads. ``kubeconfig`` is the client's origin, for messages."""

    def __init__(self, client: Any, kubeconfig: Path) -> None:
        self._client = client
        self._kubeconfig = kubeconfig

    @classmethod
    def connect(cls, kubeconfig: Path) -> Self:
        """Read a kubeconfig and its current context; make no request yet. ClusterError: the file is not there, or no
        kubeconfig."""
        if not kubeconfig.is_file():
            raise ClusterError(f"there is no kubeconfig {kubeconfig}: the local cloud makes it with `trn local up`")
        make, configuration, config = light_import.api_client()
        settings = configuration()
        settings.connection_pool_maxsize = 64
        settings.retries = False  # requests are repeated here, where it is known which may be
        settings.socket_options = _socket_options()
        try:
            client = config.new_client_from_config(str(kubeconfig), client_configuration=settings, persist_config=False)
        except (config.ConfigException, yaml.YAMLError, OSError, *MISSHAPEN) as error:
            why = machine_fault(error) or error
            raise ClusterError(f"the kubeconfig {kubeconfig} cannot be used: {why}") from error
        if _is_loopback(settings.host) and settings.proxy:
            settings.proxy = None  # of the environment; a proxy does not reach this machine's own loopback
            client = make(configuration=settings)
        return cls(client, kubeconfig)

    @property
    def server(self) -> str:
        """Return the server's URL."""
        return str(self._client.configuration.host)

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        timeout_seconds: float = REQUEST_SECONDS,
    ) -> dict[str, Any]:
        """Send JSON to an escaped path and return the JSON answered.

        Repeated until they pass, within limits: connections refused or dropped, and answers that say "later". A dropped
        ``POST`` is not repeated: it may have been carried out. ``timeout_seconds`` is for one try. ApiError: the server
        refused. ClusterError: it cannot be reached, or does not answer in time.
        """
        text = self.text(method, path, body, query=query, content_type=content_type, timeout_seconds=timeout_seconds)
        try:
            answer = parse_json(text)
        except ValueError as error:
            raise ClusterError(f"{self.server} answered {method} {path} with something other than JSON") from error
        return answer if isinstance(answer, dict) else {"value": answer}

    def text(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        timeout_seconds: float = REQUEST_SECONDS,
    ) -> str:
        """Send as :meth:`request` does, and return an answer that is no JSON (``/healthz``, logs)."""
        from kubernetes.client.exceptions import ApiException  # type: ignore[import-untyped]

        started, tries = time.monotonic(), 0
        while True:
            spent = time.monotonic() - started
            pause = min(0.1 * 2**tries, 2.0)
            tries += 1
            try:
                return self._once(method, path, body, query or {}, content_type, timeout_seconds)
            except ApiException as error:
                if error.status == 0:  # the client's wrapping of a TLS error
                    raise self._unreachable(str(error.reason).strip(), error) from error
                refused = ApiError.of(error.status, _decoded(error.body))
                if spent > BUSY_SECONDS or not _is_passing(refused, path):
                    raise refused from error
                later = (error.headers or {}).get("Retry-After", "")
                pause = max(pause, min(float(later), 10.0) if later.isdigit() else 0.0)
            except (urllib3.exceptions.NewConnectionError, urllib3.exceptions.NameResolutionError) as error:
                if spent > UNREACHABLE_SECONDS:
                    raise self._unreachable(_last_words(error), error) from error
            except urllib3.exceptions.TimeoutError as error:
                raise ClusterError(
                    f"{self.server} did not answer {method} {path} within {timeout_seconds:g} s"
                ) from error
            except urllib3.exceptions.HTTPError as error:  # reset or closed by the other side
                if method == "POST" or spent > UNREACHABLE_SECONDS:
                    raise self._unreachable(_last_words(error), error) from error
            time.sleep(pause)

    def lines(
        self, path: str, *, query: Mapping[str, str] | None = None, quiet_seconds: float = 3600.0
    ) -> Generator[str, None, None]:
        """Yield the lines of a streamed answer (a watch, a log that is followed), as they come; closing the iterator
        ends it.

        Not repeated: where it breaks off, the caller knows from where to continue. ApiError: the server refused.
        ClusterError: it cannot be reached, breaks off, or sends nothing for ``quiet_seconds``.
        """
        headers = {"Accept": "application/json, */*", "User-Agent": FIELD_MANAGER}
        self._client.update_params_for_auth(headers, [], ["BearerToken"])
        try:
            answer = self._client.rest_client.pool_manager.request(
                "GET",
                self.server + path,
                fields=dict(query or {}),
                headers=headers,
                preload_content=False,
                timeout=urllib3.Timeout(connect=self._connect_seconds(quiet_seconds), read=quiet_seconds),
                retries=False,
            )
            try:
                if answer.status >= 400:
                    raise ApiError.of(answer.status, _decoded(answer.read()))
                rest = b""
                for chunk in answer.stream(65536, decode_content=True):
                    *whole, rest = (rest + chunk).split(b"\n")
                    yield from map(_decoded, whole)
                if rest:
                    yield _decoded(rest)
            finally:
                answer.close()  # not given back to the pool: more of it may be on its way
        except urllib3.exceptions.HTTPError as error:
            raise self._unreachable(_last_words(error), error) from error

    def _once(
        self, method: str, path: str, body: object, query: Mapping[str, str], content_type: str, timeout_seconds: float
    ) -> str:
        headers = {"Accept": "application/json, */*", "Content-Type": content_type, "User-Agent": FIELD_MANAGER}
        # Computed again for each request: a token of `aws eks get-token` ends after 15 minutes.
        self._client.update_params_for_auth(headers, [], ["BearerToken"])
        answer = self._client.request(
            method,
            self.server + path,
            query_params=list(query.items()),
            headers=headers,
            body=body,
            _request_timeout=(self._connect_seconds(timeout_seconds), timeout_seconds),
        )
        return _decoded(answer.data)

    def _connect_seconds(self, timeout_seconds: float) -> float:
        return timeout_seconds if _is_loopback(self.server) else min(CONNECT_SECONDS, timeout_seconds)

    def _unreachable(self, why: str, error: Exception) -> ClusterError:
        if fault := machine_fault(error):
            return ClusterError(f"the API server {self.server} was not asked: {fault}")
        todo = (
            "start the local cloud with `trn local up`; `trn local logs` says why it ended, if it did"
            if _is_loopback(self.server)
            else "check that the cluster exists and that this machine reaches it (VPN, endpoint access, credentials)"
        )
        return ClusterError(f"the API server {self.server} ({self._kubeconfig}) cannot be reached: {why}\n  {todo}")


def _is_passing(error: ApiError, path: str) -> bool:
    """Return whether the same request can be expected to pass a little later."""
    if error.status == 409 and "fulfilled on resourcequotas" in error.message:
        # Other pods or jobs of the namespace were counted at the same moment: nothing was made (Kubernetes, quota
        # admission). A quota that was itself written meanwhile is the caller's to read again.
        return "/resourcequotas/" not in path
    return error.status in (429, 503) or (
        error.status >= 500 and any(trouble in error.message for trouble in _ETCD_PASSING)
    )


def _socket_options() -> list[tuple[int, int, int]]:
    """Return urllib3's options of a socket, and those that keep a quiet connection alive."""
    found = [
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in _KEEP_ALIVE.items()
        if hasattr(socket, name)
    ]
    defaults = urllib3.connection.HTTPConnection.default_socket_options
    return [*defaults, (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *found]


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _decoded(data: bytes | str | None) -> str:
    return data.decode("utf-8", "replace") if isinstance(data, bytes) else data or ""


def _last_words(error: Exception) -> str:
    """Return the text of an error of urllib3, without the objects that it prints first."""
    return str(error.__cause__ or error).rpartition(": ")[2]
