"""The idle guard against a real API server, with its own service account's rights and no others."""

import base64
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from running_pods import await_account, await_right

from components.idle_guard import CLUSTER_RULES, EVENT_RULES
from trainium_eks.kube.api import Api
from trainium_eks.local.paths import Paths
from trainium_eks.observe.idle import guard
from trainium_eks.topology.api import ApiStatusError, Connection

GROUP = "idle-guard-test"
DEVICE = "example.com/guarded"
"""Of this group alone: pods of other tests, which wait for devices, too, must not keep its node."""
SETTINGS: dict[str, Any] = {
    "groups": {GROUP: {"minimum": 0, "devices": [DEVICE], "removes": True}},
    "warnSeconds": 60,
    "removeSeconds": 120,
}
LONG_AGO = "2026-01-01T00:00:00Z"


@pytest.fixture
def account(api: Api, namespace: str, paths: Paths, tmp_path: Path) -> Iterator[Connection]:
    """The API server as the guard's service account."""
    subject = {"kind": "ServiceAccount", "name": "idle-guard", "namespace": namespace}
    group, rbac = "rbac.authorization.k8s.io", "/apis/rbac.authorization.k8s.io/v1"
    made: list[str] = []

    def make(path: str, kind: str, **body: Any) -> None:
        name = "idle-guard" if kind == "ServiceAccount" else namespace
        api.request("POST", path, {"metadata": {"name": name}, **body})
        made.append(f"{path}/{name}")

    def rules(rows: Any) -> list[dict[str, Any]]:
        return [{"apiGroups": [each[0]], "resources": [*each[1]], "verbs": [*each[2]]} for each in rows]

    make(f"/api/v1/namespaces/{namespace}/serviceaccounts", "ServiceAccount")
    for kind, home, rows in (("ClusterRole", rbac, CLUSTER_RULES), ("Role", f"{rbac}/namespaces/default", EVENT_RULES)):
        make(f"{home}/{kind.lower()}s", kind, rules=rules(rows))
        role = {"apiGroup": group, "kind": kind, "name": namespace}
        make(f"{home}/{kind.lower()}bindings", f"{kind}Binding", roleRef=role, subjects=[subject])
    user = f"system:serviceaccount:{namespace}:idle-guard"
    await_right(api, user, "", "list", "pods")
    await_right(api, user, "default", "create", "events")
    await_account(api, namespace)
    token = api.request(
        "POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/idle-guard/token", {"spec": {"expirationSeconds": 600}}
    )["status"]["token"]
    server = yaml.safe_load(paths.kubeconfig.read_text())["clusters"][0]["cluster"]
    (tmp_path / "ca.crt").write_bytes(_authority(server))
    (tmp_path / "token").write_text(token)
    address = urllib.parse.urlsplit(server["server"])
    try:
        yield Connection(str(address.hostname), address.port or 443, tmp_path)
    finally:
        for path in reversed(made):
            api.request("DELETE", path)


def _authority(server: dict[str, str]) -> bytes:
    if "certificate-authority-data" in server:
        return base64.b64decode(server["certificate-authority-data"])
    return Path(server["certificate-authority"]).read_bytes()


@pytest.fixture
def node(api: Api, namespace: str) -> Iterator[str]:
    """A node of the guarded group that has been idle for long."""
    name = f"{namespace}-node"
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {guard.GROUP_LABEL: GROUP}, "annotations": {guard.SINCE: LONG_AGO}},
        "spec": {"providerID": "aws:///us-west-2d/i-0123456789abcdef0"},
    }
    api.request("POST", "/api/v1/nodes", body)
    yield name
    api.request("DELETE", f"/api/v1/nodes/{name}")


def read(api: Api, node: str) -> dict[str, Any]:
    return dict(api.request("GET", f"/api/v1/nodes/{node}"))


def place(api: Api, namespace: str, node: str) -> None:
    """A pod on the node."""
    container = {"name": "trains", "image": "training"}
    spec = {"nodeName": node, "containers": [container], "tolerations": [{"operator": "Exists"}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "trains"}, "spec": spec}
    api.request("POST", f"/api/v1/namespaces/{namespace}/pods", body)


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "SETTLE_SECONDS", 0.0)


def test_an_idle_node_is_warned_of_held_and_named_for_removal(
    api: Api, account: Connection, node: str, tmp_path: Path
) -> None:
    guard.main(SETTINGS, account, tmp_path / "remove")
    assert (tmp_path / "remove").read_text() == "i-0123456789abcdef0\n"
    found = read(api, node)
    assert found["spec"]["unschedulable"] is True
    assert {guard.SINCE, guard.WARNED, guard.HELD} <= set(found["metadata"]["annotations"])
    events = [
        each for each in api.list("v1", "Event", namespace="default") if each["involvedObject"].get("name") == node
    ]
    said = [each["reason"] for each in events if each["source"].get("component") == "idle-guard"]
    assert said == ["IdleAccelerator"]


def test_work_ends_the_hold_and_the_note(
    api: Api, account: Connection, node: str, namespace: str, tmp_path: Path
) -> None:
    guard.look(SETTINGS, account)
    assert read(api, node)["spec"]["unschedulable"] is True
    place(api, namespace, node)
    guard.main(SETTINGS, account, tmp_path / "remove")
    assert not (tmp_path / "remove").exists()
    found = read(api, node)
    assert "unschedulable" not in found["spec"]
    assert not {guard.SINCE, guard.HELD} & set(found["metadata"].get("annotations") or {})


def test_a_waiting_pod_keeps_the_node(api: Api, account: Connection, node: str, namespace: str, tmp_path: Path) -> None:
    container = {"name": "trains", "image": "training", "resources": {"limits": {DEVICE: "16"}}}
    body = {"metadata": {"name": "waits"}, "spec": {"schedulerName": "nobody", "containers": [container]}}
    api.request("POST", f"/api/v1/namespaces/{namespace}/pods", {"apiVersion": "v1", "kind": "Pod", **body})
    guard.main(SETTINGS, account, tmp_path / "remove")
    assert not (tmp_path / "remove").exists()
    assert "unschedulable" not in read(api, node)["spec"]


def test_a_node_of_another_group_is_left_alone(api: Api, account: Connection, node: str, tmp_path: Path) -> None:
    guard.main({**SETTINGS, "groups": {"another": SETTINGS["groups"][GROUP]}}, account, tmp_path / "remove")
    assert not (tmp_path / "remove").exists()
    assert "unschedulable" not in read(api, node)["spec"]


def test_the_guard_may_do_nothing_else(account: Connection, namespace: str) -> None:
    with pytest.raises(ApiStatusError, match="403"):
        account.items(f"/api/v1/namespaces/{namespace}/secrets")
    with pytest.raises(ApiStatusError, match="403"):
        account.send("POST", f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": "x"}})


def test_a_first_look_notes_since_when(api: Api, account: Connection, node: str) -> None:
    api.request("DELETE", f"/api/v1/nodes/{node}")
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": {guard.GROUP_LABEL: GROUP}}}
    api.request("POST", "/api/v1/nodes", body)
    before = int(time.time())  # the note is in whole seconds
    guard.look(SETTINGS, account)
    (noted,) = guard.read([read(api, node)], [])
    assert noted.idle_since is not None
    assert before <= noted.idle_since <= time.time()
