"""What the API's client does when the server is away, busy, or refuses; against a server that is played."""

import json
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import urllib3
import yaml
from kubernetes.client.exceptions import ApiException

from trainium_eks.kube import api as api_module
from trainium_eks.kube import pod_logs
from trainium_eks.kube import requests as requests_module
from trainium_eks.kube.api import Api, ApiError, ApiKind, NoSuchKindError, ObjectReference, in_parallel
from trainium_eks.kube.errors import ClusterError

CONFIG_MAPS = {"resources": [{"name": "configmaps", "kind": "ConfigMap", "namespaced": True}]}
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "ns"}}


def refusal(status: int, reason: str = "", message: str = "") -> ApiException:
    error = ApiException(status=status)
    error.body = json.dumps({"kind": "Status", "reason": reason, "message": message})
    error.headers = {}
    return error


class Played:
    """Stands for the official client: gives its answers in turn, and notes what was asked."""

    def __init__(self, answers: Sequence[object], host: str = "https://127.0.0.1:6443") -> None:
        self.configuration = SimpleNamespace(host=host)
        self.asked: list[tuple[str, str]] = []
        self._answers = list(answers)

    def update_params_for_auth(self, headers: dict[str, str], queries: list[str], settings: list[str]) -> None:
        assert settings == ["BearerToken"]
        assert not queries
        headers["authorization"] = "Bearer t"

    def request(self, method: str, url: str, **rest: Any) -> Any:
        assert rest["headers"]["authorization"] == "Bearer t"
        query = "&".join(f"{key}={value}" for key, value in rest["query_params"])
        self.asked.append((method, url.removeprefix(self.configuration.host) + (f"?{query}" if query else "")))
        assert self._answers, f"one request too many: {method} {url}"
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(data=json.dumps(answer).encode())


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Api, Played]]:
    """An API over answers; pauses take no time, but the clock goes on by them."""
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
    for module in (api_module, requests_module):
        monkeypatch.setattr(module, "time", clock)

    def played(*answers: object, host: str = "https://127.0.0.1:6443") -> tuple[Api, Played]:
        client = Played(answers, host)
        return Api(client, Path("/stack/kubeconfig")), client

    return played


MODIFIED = refusal(
    409, "Conflict", 'Operation cannot be fulfilled on resourcequotas "team": the object has been modified'
)
PASSING = [
    refusal(429, "TooManyRequests", "storage is (re)initializing"),
    refusal(503, "ServiceUnavailable", "apiserver is shutting down"),
    refusal(500, "InternalError", "etcdserver: leader changed"),
    MODIFIED,
    refusal(500, "", "rpc error: code = Unavailable desc = etcdserver: request timed out"),
    urllib3.exceptions.NewConnectionError(None, "Connection refused"),  # type: ignore[arg-type]
    urllib3.exceptions.ProtocolError("Connection aborted."),
]


@pytest.mark.parametrize("trouble", PASSING, ids=lambda each: str(getattr(each, "body", each))[:60])
def test_a_trouble_that_passes_is_waited_out(play: Any, trouble: Exception) -> None:
    api, client = play(trouble, trouble, {"ok": 1})
    assert api.request("GET", "/version") == {"ok": 1}
    assert client.asked == [("GET", "/version")] * 3


def test_the_server_says_how_long_it_is_busy(play: Any) -> None:
    busy = refusal(429)
    busy.headers = {"Retry-After": "7"}
    api, _ = play(busy, {"ok": 1})
    api.request("GET", "/version")
    assert api_module.time.monotonic() == 7


@pytest.mark.parametrize(
    ("method", "error"),
    [
        ("PATCH", refusal(500, "", "failed to create typed patch object: .dat: field not declared in schema")),
        ("PATCH", refusal(500, "InternalError", "etcdserver: mvcc: database space exceeded")),
        ("PATCH", refusal(422, "Invalid", "ConfigMap is invalid")),
        ("PATCH", refusal(403, "Forbidden", "denied")),
        ("PUT", MODIFIED),
    ],
    ids=["schema", "space", "invalid", "denied", "a quota that another has written"],
)
def test_a_refusal_is_told_at_once(play: Any, method: str, error: ApiException) -> None:
    api, client = play(error)
    with pytest.raises(ApiError) as caught:
        api.request(method, "/api/v1/namespaces/team/resourcequotas/team", {})
    assert caught.value.message == json.loads(error.body)["message"]
    assert len(client.asked) == 1


def test_a_server_that_stays_busy_is_given_up(play: Any) -> None:
    api, client = play(*[refusal(429, "TooManyRequests", "too many requests")] * 1000)
    with pytest.raises(ApiError, match="too many requests"):
        api.request("GET", "/version")
    assert 20 < len(client.asked) < 60


def test_a_local_server_that_is_away_is_named_with_what_to_do(play: Any) -> None:
    refused = urllib3.exceptions.NewConnectionError(None, "[Errno 111] Connection refused")  # type: ignore[arg-type]
    api, client = play(*[refused] * 100)
    with pytest.raises(ClusterError, match=r"(?s)/stack/kubeconfig.*`trn local up`") as caught:
        api.request("GET", "/version")
    first = (
        "the API server https://127.0.0.1:6443 (/stack/kubeconfig) cannot be reached: [Errno 111] Connection refused"
    )
    assert str(caught.value).startswith(f"{first}\n")
    assert 3 < len(client.asked) < 20


def test_a_cluster_that_is_away_is_not_looked_for_on_this_machine(play: Any) -> None:
    gone = urllib3.exceptions.NameResolutionError("abc.eks.amazonaws.com", None, socket.gaierror("unknown"))  # type: ignore[arg-type]
    api, _ = play(*[gone] * 100, host="https://abc.eks.amazonaws.com")
    with pytest.raises(ClusterError, match="check that the cluster exists") as caught:
        api.request("GET", "/version")
    assert "trn local up" not in str(caught.value)


@pytest.mark.parametrize(
    ("method", "error", "said"),
    [
        (
            *("GET", ApiException(status=0, reason="SSLError\ncertificate verify failed")),
            "cannot be reached: SSLError\ncertificate verify failed",
        ),
        (
            *("GET", urllib3.exceptions.ReadTimeoutError(None, "/version", "Read timed out.")),  # type: ignore[arg-type]
            r"did not answer GET /version within 5 s",
        ),
        # It may have been made.
        ("POST", urllib3.exceptions.ProtocolError("Connection aborted."), "Connection aborted"),
    ],
    ids=["a TLS error", "a request that ends in time", "a creation whose answer was lost"],
)
def test_what_waiting_does_not_mend_is_not_repeated(play: Any, method: str, error: Exception, said: str) -> None:
    api, client = play(error)
    with pytest.raises(ClusterError, match=said):
        api.request(method, "/version", timeout_seconds=5)
    assert len(client.asked) == 1


def test_an_answer_that_is_no_json_is_refused(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    api, client = play()
    monkeypatch.setattr(client, "request", lambda *_, **__: SimpleNamespace(data=b"<html>"))
    with pytest.raises(ClusterError, match="answered GET /version with something other than JSON"):
        api.request("GET", "/version")
    assert api.text("GET", "/version") == "<html>"


# --- Refusals -----------------------------------------------------------------------------------------------------


def invalid(*causes: tuple[str, str]) -> ApiError:
    message = 'Deployment.apps "a" is invalid: all in one line'
    shown = [{"field": field, "reason": "FieldValueInvalid", "message": text} for field, text in causes]
    return ApiError.of(422, json.dumps({"reason": "Invalid", "message": message, "details": {"causes": shown}}))


def test_the_faults_of_an_invalid_object_are_listed_once_each() -> None:
    error = invalid(("spec.replicas", "too few"), ("spec.selector", "wrong"), ("spec.replicas", "too few"))
    assert str(error) == 'Deployment.apps "a" is invalid:\n  spec.replicas: too few\n  spec.selector: wrong'
    assert str(invalid(("spec.replicas", "too few"))) == 'Deployment.apps "a" is invalid: spec.replicas: too few'


def test_a_value_of_pages_is_cut() -> None:
    value = json.dumps({"Containers": ["x" * 2000]})
    text = str(invalid(("spec.template", f"Invalid value: {value}: field is immutable")))
    assert text.startswith('Deployment.apps "a" is invalid: spec.template: Invalid value: {"Containers": ["xxx')
    assert text.endswith(" ... }: field is immutable")
    assert len(text) < 250


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            '{"reason": "Forbidden", "message": "webhook denied the request: weight"}',
            "webhook denied the request: weight",
        ),
        ("upstream gone\nmore", "the API server answered HTTP 502: upstream gone"),
        ("", "the API server answered HTTP 502: no explanation"),
        ("{}", "the API server answered HTTP 502 without a message"),
    ],
)
def test_an_answer_is_told_with_or_without_a_status(body: str, text: str) -> None:
    assert str(ApiError.of(502, body)) == text


# --- Kinds --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "arguments", "path"),
    [
        (ApiKind("v1", "ConfigMap", "configmaps", True), ("ns", "a"), "/api/v1/namespaces/ns/configmaps/a"),
        (ApiKind("v1", "ConfigMap", "configmaps", True), (), "/api/v1/configmaps"),
        (ApiKind("apps/v1", "Deployment", "deployments", True), ("ns",), "/apis/apps/v1/namespaces/ns/deployments"),
        (ApiKind("v1", "Node", "nodes", False), ("", "n", "status"), "/api/v1/nodes/n/status"),
        (ApiKind("v1", "Node", "nodes", False), ("ns", "n"), "/api/v1/nodes/n"),
        (ApiKind("a/v1", "Role", "roles", False), ("", "system:x/../y"), "/apis/a/v1/roles/system:x%2F..%2Fy"),
    ],
)
def test_a_kind_knows_its_paths(kind: ApiKind, arguments: tuple[str, ...], path: str) -> None:
    assert kind.path(*arguments) == path


def test_a_kind_is_asked_for_once(play: Any) -> None:
    api, client = play(CONFIG_MAPS)
    assert api.kind("v1", "ConfigMap") == api.kind("v1", "ConfigMap") == ApiKind("v1", "ConfigMap", "configmaps", True)
    assert client.asked == [("GET", "/api/v1")]


def test_a_kind_whose_definition_is_new_is_awaited(play: Any) -> None:
    names = {"kind": "Queue"}
    spec = {"group": "x.io", "names": names, "versions": [{"name": "v1", "served": True}]}
    queues = {"resources": [{"name": "queues", "kind": "Queue", "namespaced": False}]}
    not_found = refusal(404, "NotFound", "the server could not find the requested resource")
    api, client = play(not_found, {"items": [{"spec": spec}]}, not_found, queues)
    assert api.kind("x.io/v1", "Queue").plural == "queues"
    assert [path for _, path in client.asked].count("/apis/x.io/v1") == 3


def test_a_kind_without_definition_is_refused_at_once(play: Any) -> None:
    api, client = play(CONFIG_MAPS, {"items": []})
    with pytest.raises(NoSuchKindError, match=r"serves no Queue in v1; there it serves ConfigMap"):
        api.kind("v1", "Queue")
    assert len(client.asked) == 2
    api, _ = play({"resources": []}, refusal(403, "Forbidden", "researcher cannot list customresourcedefinitions"))
    with pytest.raises(NoSuchKindError, match=r"serves no PyTorchJob in kubeflow.org/v1"):
        api.kind("kubeflow.org/v1", "PyTorchJob")


# --- Objects ------------------------------------------------------------------------------------------------------


def test_an_apply_is_strict_forced_and_in_our_name(play: Any) -> None:
    api, client = play(CONFIG_MAPS, CONFIG_MAP)
    api.apply(CONFIG_MAP)
    path = "/api/v1/namespaces/ns/configmaps/a?fieldManager=trn&force=true&fieldValidation=Strict"
    assert client.asked[1:] == [("PATCH", path)]


def test_an_apply_that_met_another_write_is_repeated(play: Any) -> None:
    conflict = refusal(409, "Conflict", "the object has been modified")
    api, _ = play(CONFIG_MAPS, conflict, conflict, {"done": True})
    assert api.apply(CONFIG_MAP) == {"done": True}
    api, _ = play(CONFIG_MAPS, conflict)
    pinned = {**CONFIG_MAP, "metadata": {**CONFIG_MAP["metadata"], "resourceVersion": "1"}}  # type: ignore[dict-item]
    with pytest.raises(ApiError, match="has been modified"):
        api.apply(pinned)


@pytest.mark.parametrize(
    "answer", [refusal(409, "AlreadyExists", "it exists"), refusal(504, "Timeout", "request did not complete")]
)
def test_what_exists_or_may_exist_is_applied_and_what_is_refused_is_not(play: Any, answer: ApiException) -> None:
    api, client = play(CONFIG_MAPS, answer, {"done": True}, refusal(403, "Forbidden", "no"))
    assert api.create_or_apply(CONFIG_MAP) == {"done": True}
    with pytest.raises(ApiError, match="no"):
        api.create_or_apply(CONFIG_MAP)
    assert [method for method, _ in client.asked[1:]] == ["POST", "PATCH", "POST"]


def test_a_manifest_without_name_or_kind_is_refused(play: Any) -> None:
    api, _ = play()
    for manifest, field in (
        ({"kind": "ConfigMap", "metadata": {"name": "a"}}, "apiVersion"),
        ({"apiVersion": "v1", "metadata": {"name": "a"}}, "kind"),
        ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "a-"}}, r"metadata\.name"),
    ):
        with pytest.raises(ClusterError, match=f"an object without {field} cannot be applied"):
            api.apply(manifest)


def test_without_a_namespace_an_object_is_in_default(play: Any) -> None:
    api, _ = play(CONFIG_MAPS)
    reference = api.reference({**CONFIG_MAP, "metadata": {"name": "a"}})
    assert reference == ObjectReference("v1", "ConfigMap", "default", "a")
    assert str(reference) == "ConfigMap default/a"
    assert ObjectReference.from_json(json.loads(json.dumps(reference.to_json()))) == reference, "as the ledger keeps it"


def test_a_list_that_grew_too_old_starts_again(play: Any) -> None:
    def page(name: str, after: str) -> dict[str, Any]:
        return {"items": [{"metadata": {"name": name}}], "metadata": {"continue": after}}

    api, client = play(CONFIG_MAPS, page("a", "x"), refusal(410, "Expired", "too old"), page("a", "y"), page("b", ""))
    assert [each["metadata"]["name"] for each in api.list("v1", "ConfigMap")] == ["a", "b"]
    asked = [path for _, path in client.asked[1:]]
    first = "/api/v1/configmaps?limit=500"
    assert asked == [first, f"{first}&continue=x", first, f"{first}&continue=y"]


def test_what_is_absent_is_nothing_to_get_or_delete(play: Any) -> None:
    gone = refusal(404, "NotFound", "not found")
    api, _ = play(CONFIG_MAPS, gone, gone, CONFIG_MAPS, {"items": []}, CONFIG_MAPS, {"items": []})
    for reference in (ObjectReference("v1", "ConfigMap", "ns", "a"), ObjectReference("v1", "Queue", "", "q")):
        assert api.get(reference) is None
        assert api.delete(reference) is False


def test_nothing_is_deleted_without_saying_which(play: Any) -> None:
    api, client = play(CONFIG_MAPS)
    with pytest.raises(ValueError, match="only with labels"):
        api.delete_all("v1", "ConfigMap", labels="", namespace="ns")
    with pytest.raises(ValueError, match="in one namespace"):
        api.delete_all("v1", "ConfigMap", labels="a=b")
    assert client.asked == [("GET", "/api/v1")]


# --- Kubeconfig and bulk ------------------------------------------------------------------------------------------


def write_kubeconfig(path: Path, server: str) -> Path:
    named = [("clusters", "cluster", {"server": server}), ("users", "user", {"token": "t"})]
    config: dict[str, Any] = {kind: [{"name": "c", key: value}] for kind, key, value in named}
    config["contexts"] = [{"name": "c", "context": {"cluster": "c", "user": "c"}}]
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": "c", **config}))
    return path


def test_a_proxy_is_not_asked_for_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example.com:3128")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    local = Api.connect(write_kubeconfig(tmp_path / "local", "https://127.0.0.1:6443"))
    remote = Api.connect(write_kubeconfig(tmp_path / "remote", "https://abc.eks.amazonaws.com"))
    assert local.server == "https://127.0.0.1:6443"
    assert not isinstance(local._client.rest_client.pool_manager, urllib3.ProxyManager)
    assert isinstance(remote._client.rest_client.pool_manager, urllib3.ProxyManager)


def test_a_quiet_connection_is_kept_alive(tmp_path: Path) -> None:
    """Else a load balancer may forget it, and a log that is followed has no more lines."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        api = Api.connect(write_kubeconfig(tmp_path / "config", f"http://127.0.0.1:{server.getsockname()[1]}"))
        answer = pool.submit(api.request, "GET", "/version")
        peer, _ = server.accept()
        peer.recv(65536)
        peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        assert answer.result() == {}
        used = api._client.rest_client.pool_manager.connection_from_url(api.server).pool.queue[-1].sock
        assert used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
        assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        peer.close()


@pytest.mark.parametrize("text", ["", "clusters: [", "apiVersion: v1\nkind: Config\n"])
def test_a_broken_kubeconfig_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(ClusterError, match=f"the kubeconfig {path} cannot be used: "):
        Api.connect(path)


def test_a_missing_kubeconfig_says_what_makes_it(tmp_path: Path) -> None:
    said = r"there is no kubeconfig .*/none: the local cloud makes it with `trn local up`"
    with pytest.raises(ClusterError, match=said):
        Api.connect(tmp_path / "none")


def test_bulk_work_keeps_the_order_and_ends_with_the_first_error() -> None:
    assert in_parallel(lambda each: each * 2, range(100), threads=8) == [each * 2 for each in range(100)]
    assert in_parallel(str, []) == []
    begun: list[int] = []

    def work(each: int) -> None:
        begun.append(each)
        if each == 3:
            raise ClusterError("no")
        time.sleep(0.01)

    with pytest.raises(ClusterError, match="no"):
        in_parallel(work, range(10_000), threads=2)
    assert len(begun) < 5_000


# --- Logs of pods -----------------------------------------------------------------------------------------------------


FAILED = {"state": {"terminated": {"exitCode": 3}}}
DONE = {"state": {"terminated": {"exitCode": 0}}, "ready": True}


@pytest.mark.parametrize(
    ("phase", "init", "own", "previous", "asked"),
    [
        ("Running", [DONE], [{}, {}], False, "a"),
        ("Failed", [DONE], [DONE, FAILED], False, "b"),
        ("Failed", [FAILED], [{}, {}], False, "i"),
        ("Running", [DONE], [FAILED, {}], True, "a"),
        ("Running", [DONE], [{}, {"lastState": FAILED["state"]}], True, "b"),
    ],
)
def test_the_log_is_that_of_the_container_that_failed(
    phase: str, init: list[Any], own: list[Any], previous: bool, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def text(*_: object, query: dict[str, str], **__: object) -> str:
        return query["container"]

    api = Api.__new__(Api)
    monkeypatch.setattr(api, "text", text)
    statuses = {
        "initContainerStatuses": [{"name": "i", **each} for each in init],
        "containerStatuses": [{"name": name, **each} for name, each in zip("ab", own, strict=True)],
    }
    spec = {"containers": [{"name": "a"}, {"name": "b"}]}
    pod = {"metadata": {"name": "p"}, "spec": spec, "status": {"phase": phase, **statuses}}
    assert pod_logs.tail(api, "lab", pod, previous=previous) == [asked]
