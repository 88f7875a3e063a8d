"""What the API's client does when the server is away, busy, or refuses; against a server that is played."""

import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import urllib3
import yaml
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import NameResolutionError, NewConnectionError, ProtocolError, ReadTimeoutError

from trainium_eks.kube import api as api_module
from trainium_eks.kube import drift, pod_logs
from trainium_eks.kube import requests as requests_module
from trainium_eks.kube.api import Api, ApiError, ApiKind, NoSuchKindError, ObjectReference, in_parallel
from trainium_eks.kube.errors import ClusterError

CONFIG_MAPS = {"resources": [{"name": "configmaps", "kind": "ConfigMap", "namespaced": True}]}
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "ns"}}


def refusal(status, reason="", message=""):
    error = ApiException(status=status)
    error.body = json.dumps({"kind": "Status", "reason": reason, "message": message})
    error.headers = {}
    return error


class Played:
    """Stands for the official client: gives its answers in turn, and notes what was asked."""

    def __init__(self, answers, host):
        self.configuration = SimpleNamespace(host=host)
        self.asked = []
        self._answers = list(answers)

    def update_params_for_auth(self, headers, queries, settings):
        assert (queries, settings) == ([], ["BearerToken"])
        headers["authorization"] = "Bearer t"

    def request(self, method, url, **rest):
        assert rest["headers"]["authorization"] == "Bearer t"
        query = "&".join(f"{key}={value}" for key, value in rest["query_params"])
        self.asked.append((method, url.removeprefix(self.configuration.host) + (f"?{query}" if query else "")))
        assert self._answers, f"one request too many: {method} {url}"
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(data=answer if isinstance(answer, bytes) else json.dumps(answer).encode())


@pytest.fixture
def play(monkeypatch):
    """An API over answers; pauses take no time, but the clock goes on by them."""
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
    for module in (api_module, requests_module):
        monkeypatch.setattr(module, "time", clock)

    def played(*answers, host="https://127.0.0.1:6443"):
        client = Played(answers, host)
        return Api(client, Path("/stack/kubeconfig")), client

    return played


NOBODY = None  # in place of a connection, which errors of urllib3 keep
REFUSED = NewConnectionError(NOBODY, "[Errno 111] Connection refused")
MODIFIED = "Operation cannot be fulfilled on resourcequotas: the object has been modified"


@pytest.mark.parametrize(
    "trouble",
    [
        refusal(429, "TooManyRequests", "storage is (re)initializing"),
        refusal(503, "ServiceUnavailable", "apiserver is shutting down"),
        refusal(500, "InternalError", "etcdserver: leader changed"),
        refusal(409, "Conflict", MODIFIED),
        refusal(500, "", "rpc error: code = Unavailable desc = etcdserver: request timed out"),
        REFUSED,
        ProtocolError("Connection aborted."),
    ],
    ids=lambda each: str(getattr(each, "body", each))[:60],
)
def test_temporary_error_is_retried(play, trouble):
    api, client = play(trouble, trouble, {"ok": 1})
    assert api.request("GET", "/version") == {"ok": 1}
    assert client.asked == [("GET", "/version")] * 3


def test_retry_after_of_the_server_is_respected(play):
    busy = refusal(429)
    busy.headers = {"Retry-After": "7"}
    api, _ = play(busy, {"ok": 1})
    api.request("GET", "/version")
    assert api_module.time.monotonic() == 7


QUOTA = "/api/v1/namespaces/team/resourcequotas/team"


@pytest.mark.parametrize(
    ("method", "path", "answer", "said"),
    [
        ("PATCH", "/a", refusal(500, "", "failed to create typed patch object"), "failed to create typed patch object"),
        ("PATCH", "/a", refusal(500, "InternalError", "etcdserver: mvcc: no space"), "etcdserver: mvcc: no space"),
        ("PATCH", "/a", refusal(422, "Invalid", "ConfigMap is invalid"), "ConfigMap is invalid"),
        ("PATCH", "/a", refusal(403, "Forbidden", "denied"), "denied"),
        # Another has written the quota itself.
        ("PUT", QUOTA, refusal(409, "Conflict", MODIFIED), MODIFIED),
        ("GET", "/a", ApiException(status=0, reason="SSLError\nbad cert"), "cannot be reached: SSLError\nbad cert"),
        ("GET", "/a", ReadTimeoutError(NOBODY, "/a", "timed out"), "did not answer GET /a within 5 s"),
        # It may have been made.
        ("POST", "/a", ProtocolError("Connection aborted."), "Connection aborted"),
        ("GET", "/a", b"<html>", "answered GET /a with something other than JSON"),
    ],
)
def test_permanent_error_is_raised_without_retry(play, method, path, answer, said):
    api, client = play(answer)
    with pytest.raises(ClusterError, match=said):
        api.request(method, path, {}, timeout_seconds=5)
    assert len(client.asked) == 1


EKS = "https://abc.eks.amazonaws.com"
LOCAL = r"^the API server https://127.0.0.1:6443 \(/stack/kubeconfig\) cannot be reached: \[Errno 111\] Connection "


@pytest.mark.parametrize(
    ("trouble", "host", "said", "tries"),
    [
        (refusal(429, "TooManyRequests", "too many requests"), EKS, "^too many requests$", range(21, 60)),
        (REFUSED, "https://127.0.0.1:6443", rf"{LOCAL}refused\n.*`trn local up`", range(4, 20)),
        # A cluster elsewhere is not looked for on this machine.
        (
            *(NameResolutionError("abc", NOBODY, socket.gaierror("unknown")), EKS),
            *("\n  check that the cluster exists", range(4, 20)),
        ),
    ],
)
def test_unreachable_server_is_given_up_after_its_retries(play, trouble, host, said, tries):
    api, client = play(*[trouble] * 100, host=host)
    with pytest.raises(ClusterError, match=said):
        api.request("GET", "/version")
    assert len(client.asked) in tries


PAGES = json.dumps({"Containers": ["x" * 2000]})
FEW, WRONG = ("spec.replicas", "too few"), ("spec.selector", "wrong")


@pytest.mark.parametrize(
    ("causes", "text"),
    [
        ([FEW, WRONG, FEW], "\n  spec.replicas: too few\n  spec.selector: wrong"),
        ([FEW], " spec.replicas: too few"),
        (
            [("spec.template", f"Invalid value: {PAGES}: field is immutable")],
            ' spec.template: Invalid value: {"Containers": ["' + "x" * 63 + " ... }: field is immutable",
        ),
    ],
    ids=["each once", "one", "a value of pages"],
)
def test_the_faults_of_an_invalid_object_are_listed(causes, text):
    shown = [{"field": field, "reason": "FieldValueInvalid", "message": message} for field, message in causes]
    answer = {"reason": "Invalid", "message": 'Job "a" is invalid: all in one line', "details": {"causes": shown}}
    assert str(ApiError.of(422, json.dumps(answer))) == f'Job "a" is invalid:{text}'


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ('{"reason": "Forbidden", "message": "webhook denied it"}', "webhook denied it"),
        ("upstream gone\nmore", "the API server answered HTTP 502: upstream gone"),
        ("", "the API server answered HTTP 502: no explanation"),
        ("{}", "the API server answered HTTP 502 without a message"),
    ],
)
def test_api_error_has_a_text_with_or_without_a_status(body, text):
    assert str(ApiError.of(502, body)) == text


def test_kind_has_its_paths_and_the_default_namespace(play):
    deployment, node = (ApiKind("apps/v1", "Deployment", "deployments", True), ApiKind("v1", "Node", "nodes", False))
    assert deployment.path("ns") == "/apis/apps/v1/namespaces/ns/deployments"
    assert node.path("", "n", "status") == "/api/v1/nodes/n/status"
    assert node.path("ns", "n") == "/api/v1/nodes/n"
    assert node.path("", "system:x/../y") == "/api/v1/nodes/system:x%2F..%2Fy"
    reference = play(CONFIG_MAPS)[0].reference({**CONFIG_MAP, "metadata": {"name": "a"}})
    assert reference == ObjectReference("v1", "ConfigMap", "default", "a")
    assert str(reference) == "ConfigMap default/a"
    assert ObjectReference.from_json(json.loads(json.dumps(reference.to_json()))) == reference


def test_new_kind_is_awaited_until_it_is_served(play):
    spec = {"group": "x.io", "names": {"kind": "Queue"}, "versions": [{"name": "v1", "served": True}]}
    queues = {"resources": [{"name": "queues", "kind": "Queue", "namespaced": False}]}
    not_found = refusal(404, "NotFound", "the server could not find the requested resource")
    api, client = play(not_found, {"items": [{"spec": spec}]}, not_found, queues)
    assert api.kind("x.io/v1", "Queue").plural == "queues"
    assert [path for _, path in client.asked].count("/apis/x.io/v1") == 3


@pytest.mark.parametrize(
    ("served", "definitions", "said"),
    [(CONFIG_MAPS, {"items": []}, r"serves no Queue in x/v1; there it serves ConfigMap"),
     ({"resources": []}, refusal(403, "Forbidden", "a researcher cannot list them"), r"serves no Queue in x/v1, nor")],
)  # fmt: skip
def test_a_kind_without_definition_is_refused_at_once(play, served, definitions, said):
    api, _ = play(served, definitions)
    with pytest.raises(NoSuchKindError, match=said):
        api.kind("x/v1", "Queue")


def test_conflicting_apply_is_repeated(play):
    conflict = refusal(409, "Conflict", "the object has been modified")
    api, client = play(CONFIG_MAPS, conflict, conflict, {"done": True}, conflict, {"done": True})
    assert api.apply(CONFIG_MAP) == {"done": True}
    path = "/api/v1/namespaces/ns/configmaps/a?fieldManager=trn&force=true&fieldValidation=Strict"
    assert client.asked[1:] == [("PATCH", path)] * 3
    with pytest.raises(ApiError, match="has been modified"):
        api.apply({**CONFIG_MAP, "metadata": {**CONFIG_MAP["metadata"], "resourceVersion": "1"}})
    api.apply(CONFIG_MAP, dry_run=True)
    assert client.asked[-1] == ("PATCH", f"{path}&dryRun=All")


@pytest.mark.parametrize(
    "answer", [refusal(409, "AlreadyExists", "it exists"), refusal(504, "Timeout", "request did not complete")]
)
def test_create_or_apply_updates_existing_objects_and_raises_refusals(play, answer):
    api, client = play(CONFIG_MAPS, answer, {"done": True}, refusal(403, "Forbidden", "no"))
    assert api.create_or_apply(CONFIG_MAP) == {"done": True}
    with pytest.raises(ApiError, match="no"):
        api.create_or_apply(CONFIG_MAP)
    # The kind was asked for once.
    assert [method for method, _ in client.asked] == ["GET", "POST", "PATCH", "POST"]


@pytest.mark.parametrize("field", ["apiVersion", "kind", "metadata.name"])
def test_a_manifest_without_name_or_kind_is_refused(play, field):
    manifest = {**CONFIG_MAP, field.partition(".")[0]: None}
    with pytest.raises(ClusterError, match=f"an object without {field} cannot be applied"):
        play()[0].apply(manifest)


def test_expired_list_starts_again(play):
    def page(name, after):
        return {"items": [{"metadata": {"name": name}}], "metadata": {"continue": after}}

    api, client = play(CONFIG_MAPS, page("a", "x"), refusal(410, "Expired", "too old"), page("a", "y"), page("b", ""))
    assert [each["metadata"]["name"] for each in api.list("v1", "ConfigMap")] == ["a", "b"]
    first = "/api/v1/configmaps?limit=500"
    assert [path for _, path in client.asked[1:]] == [first, f"{first}&continue=x", first, f"{first}&continue=y"]


def test_absent_object_is_none_to_get_and_false_to_delete(play):
    gone = refusal(404, "NotFound", "not found")
    api, _ = play(CONFIG_MAPS, gone, gone, CONFIG_MAPS, {"items": []}, CONFIG_MAPS, {"items": []})
    for reference in (ObjectReference("v1", "ConfigMap", "ns", "a"), ObjectReference("v1", "Queue", "", "q")):
        assert api.get(reference) is None
        assert api.delete(reference) is False
    assert play(CONFIG_MAPS, {})[0].delete(ObjectReference("v1", "ConfigMap", "ns", "a")) is True


def test_watch_yields_changes_until_its_version_expires(play, monkeypatch):
    events = [{"type": "ADDED", "object": {"a": 1}}, {"type": "ERROR", "object": {"code": 410, "message": "too old"}}]
    asked = []
    monkeypatch.setattr(Api, "lines", lambda _, path, query: asked.append((path, query)) or map(json.dumps, events))
    watched = play(CONFIG_MAPS)[0].watch("v1", "ConfigMap", since="7", labels="a=b")
    assert next(watched) == ("ADDED", {"a": 1})
    with pytest.raises(ApiError, match="too old") as old:
        next(watched)
    assert old.value.status == 410
    query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": "7", "labelSelector": "a=b"}
    assert asked == [("/api/v1/configmaps", query)]


def test_delete_needs_a_name(play):
    api, client = play(CONFIG_MAPS)
    for labels, namespace in (("", "ns"), ("a=b", "")):
        with pytest.raises(ValueError, match="only with labels, and in one namespace"):
            api.delete_all("v1", "ConfigMap", labels=labels, namespace=namespace)
    assert client.asked == [("GET", "/api/v1")]
    api, client = play(CONFIG_MAPS, {"items": [{}, {}], "metadata": {"continue": "x"}}, {"items": [{}]})
    assert api.delete_all("v1", "ConfigMap", labels="a=b", namespace="ns") == 3
    page = "/api/v1/namespaces/ns/configmaps?labelSelector=a=b&limit=500&propagationPolicy=Background"
    assert client.asked[1:] == [("DELETE", page), ("DELETE", f"{page}&continue=x")]


def drifted(play, live, after, **manifest):
    answers = [live] if after is None else [live, after]
    api, _ = play(CONFIG_MAPS, *answers)
    return drift.differences(api, {**CONFIG_MAP, **manifest})


def live_object(**more):
    return {**CONFIG_MAP, "metadata": {**CONFIG_MAP["metadata"], **more.pop("metadata", {})}, **more}


@pytest.mark.parametrize(
    ("data", "live", "after", "lines"),
    [
        ({"a": "1"}, refusal(404, "NotFound"), None, (drift.GONE,)),
        ({"a": "1"}, live_object(metadata={"deletionTimestamp": "now"}), None, (drift.ENDING,)),
        ({"a": "1"}, live_object(data={"a": "1", "b": "theirs"}), live_object(data={"a": "1", "b": "theirs"}), ()),
        ({"a": "1", "b": ["x", "y"], "c": "[secret]"}, live_object(data={"a": "2" * 50, "b": ["x"], "c": "z"}),
         live_object(data={"a": "1", "b": ["x", "y"], "c": "z"}),
         (f"data.a is {'2' * 50}, was made as 1", 'data.b is ["x"], was made as ["x", "y"]')),
        ({"a": [*"abcdefghijklmnopqrst"]}, live_object(data={"a": ["z", *"bcdefghijklmnopqrstt"]}),
         live_object(data={"a": [*"abcdefghijklmnopqrst"]}),
         ('data.a has 21 entries, was made with 20: without ["a"] and with ["z"] beside them',)),
        ({"a": "1"}, live_object(), live_object(data={"a": "1"}), ('data is missing, was made as {"a": "1"}',)),
        ({"a": {"b": "1"}}, live_object(data={"a": {"b": "x" * 200}}), live_object(data={"a": {"b": "1"}}),
         (f"data.a.b is {'x' * 100}..., was made as 1",)),
    ],
    ids=["gone", "ending", "of others", "changed", "long list", "missing", "inside"],
)  # fmt: skip
def test_each_drifted_field_is_a_line(play, data, live, after, lines):
    assert drifted(play, live, after, data=data) == ("ConfigMap ns/a", lines)


def test_kubectl_edit_is_drift_and_a_restart_is_not(play):
    def wrote(manager, **more):
        return {"manager": manager, "fieldsV1": {"f:data": {"f:a": {}, "f:b": {}}, "f:status": {}}, **more}

    managers = [wrote("kubectl-edit"), wrote("kubectl-rollout"), wrote("kubectl", subresource="status"), wrote("helm")]
    live = live_object(data={"a": "1", "b": "2"}, metadata={"managedFields": managers})
    assert drifted(play, live, live, data={"a": "1"}) == ("ConfigMap ns/a", ("data.b was added by kubectl-edit",))


def test_drift_hides_secret_values_and_reports_immutable_fields(play):
    live = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "namespace": "lab"}, "data": {"k": "b2xk"}}
    manifest = {**live, "metadata": {"name": "a"}, "data": {"k": "bmV3"}}
    secrets = {"resources": [{"name": "secrets", "kind": "Secret", "namespaced": True}]}
    api, _ = play(secrets, live, {**live, "data": manifest["data"]})
    assert drift.differences(api, manifest, "lab") == ("Secret lab/a", ("data.k differs",))
    invalid = refusal(422)
    cause = {"field": "data", "reason": "FieldValueForbidden", "message": "is immutable\nand long"}
    invalid.body = json.dumps({"reason": "Invalid", "message": "m", "details": {"causes": [cause]}})
    assert drifted(play, live_object(), invalid, data={"a": "1"}) == ("ConfigMap ns/a", ("data: is immutable",))
    with pytest.raises(ApiError, match="a webhook"):
        drifted(play, live_object(), refusal(403, "Forbidden", "a webhook denied it"), data={"a": "1"})


NAMED = {"f:spec": {"f:ports": {'k:{"name":"a"}': {"f:name": {}, "f:at": {}}}}}


@pytest.mark.parametrize(
    ("wanted", "live", "fields", "is_asked"),
    [
        ({"x": {"y": 1}}, {"x": {"y": 1, "z": 2}, "w": 3}, {"f:spec": {"f:x": {"f:y": {}}}}, False),
        ({"x": {"y": 1}}, {"x": {"y": 1, "z": 2}}, {"f:spec": {"f:x": {}}}, True),
        ({"x": {"y": 1}}, {"x": {"y": 2}}, {}, True),
        ({"x": {"y": None, "z": 1}}, {"x": {"z": 1}}, {"f:spec": {"f:x": {}}}, False),
        ({"x": "1000m"}, {"x": "1"}, {}, True),
        ({"ports": [{"at": 1}]}, {"ports": [{"at": 1}]}, {}, False),
        ({"ports": [{"at": 1}]}, {"ports": [{"at": 1, "end": 9}]}, {}, True),
        ({"ports": [{"name": "a", "at": 1}]}, {"ports": [{"name": "a", "at": 1, "by": "server"}]}, NAMED, False),
        ({"ports": [{"name": "a", "at": {}}]}, {"ports": [{"name": "a", "at": {"b": 1}}]}, NAMED, True),
        ({"ports": [{"at": 1}]}, {"ports": [{"at": 1, "name": "a"}]}, NAMED, True),
        ({"ports": [{"name": "a"}]}, {"ports": [{"name": "a"}, {"name": "b"}]}, NAMED, True),
    ],
)
def test_object_that_surely_holds_its_manifest_is_not_dry_run(play, wanted, live, fields, is_asked):
    managers = [{"manager": "trn", "apiVersion": "v1", "fieldsV1": fields}]
    there = live_object(spec=live, metadata={"managedFields": managers})
    api, client = play(CONFIG_MAPS, there, there)
    drift.differences(api, {**CONFIG_MAP, "spec": wanted})
    assert [method for method, _ in client.asked[1:]] == ["GET", *(["PATCH"] if is_asked else [])]


def connected(path, server):
    named = [("clusters", "cluster", {"server": server}), ("users", "user", {"token": "t"})]
    config = {kind: [{"name": "c", key: value}] for kind, key, value in named}
    config["contexts"] = [{"name": "c", "context": {"cluster": "c", "user": "c"}}]
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": "c", **config}))
    return Api.connect(path)


@pytest.mark.parametrize(("server", "by_proxy"), [("https://127.0.0.1:6443", False), (EKS, True)])
def test_loopback_requests_bypass_the_proxy(tmp_path, monkeypatch, server, by_proxy):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example.com:3128")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    api = connected(tmp_path / "config", server)
    assert api.server == server
    assert isinstance(api._client.rest_client.pool_manager, urllib3.ProxyManager) == by_proxy


def test_a_quiet_connection_is_kept_alive(tmp_path):
    """Else a load balancer may forget it, and a log that is followed has no more lines."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        api = connected(tmp_path / "config", f"http://127.0.0.1:{server.getsockname()[1]}")
        answer = pool.submit(api.request, "GET", "/version")
        with server.accept()[0] as peer:
            peer.recv(65536)
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            assert answer.result() == {}
            used = api._client.rest_client.pool_manager.connection_from_url(api.server).pool.queue[-1].sock
            assert used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
            assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *(
            (text, "the kubeconfig {} cannot be used: ")
            for text in ("", "clusters: [", "apiVersion: v1\nkind: Config\n")
        ),
        (None, "there is no kubeconfig {}: the local cloud makes it with `trn local up`"),
    ],
)
def test_a_broken_or_missing_kubeconfig_is_named(tmp_path, text, said):
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ClusterError, match=said.format(path)):
        Api.connect(path)


def test_parallel_requests_keep_the_order_and_stop_at_the_first_error():
    assert in_parallel(lambda each: each * 2, range(100), threads=8) == [each * 2 for each in range(100)]
    assert in_parallel(str, []) == []
    begun = []

    def work(each):
        begun.append(each)
        if each == 3:
            raise ClusterError("no")
        time.sleep(0.01)

    with pytest.raises(ClusterError, match="no"):
        in_parallel(work, range(10_000), threads=2)
    assert len(begun) < 5_000


FAILED = {"state": {"terminated": {"exitCode": 3}}}
DONE = {"state": {"terminated": {"exitCode": 0}}, "ready": True}


@pytest.mark.parametrize(
    ("phase", "init", "own", "previous", "asked"),
    [
        ("Running", DONE, [{}, {}], False, "a"),
        ("Failed", DONE, [DONE, FAILED], False, "b"),
        ("Failed", FAILED, [{}, {}], False, "i"),
        ("Running", DONE, [FAILED, {}], True, "a"),
        ("Running", DONE, [{}, {"lastState": FAILED["state"]}], True, "b"),
    ],
)
def test_log_is_the_failed_containers(phase, init, own, previous, asked, monkeypatch):
    api = Api.__new__(Api)
    monkeypatch.setattr(api, "text", lambda *_, query, **__: query["container"] + query.get("previous", ""))
    own = [{"name": name, **each} for name, each in zip("ab", own, strict=True)]
    status = {"phase": phase, "initContainerStatuses": [{"name": "i", **init}], "containerStatuses": own}
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]}, "status": status}
    assert pod_logs.tail(api, "lab", pod, previous=previous) == [asked + "true" * previous]
