"""The idle guard against a real API server, with its own service account's rights and no others."""

import base64
import urllib.parse

import pytest
import yaml
from manifests import live, manifest, path, pod_spec, role
from running_pods import await_right

from components.idle_guard import CLUSTER_RULES, EVENT_RULES
from trainium_eks.observe.idle import guard
from trainium_eks.topology.api import ApiStatusError, Connection

GROUP = "idle-guard-test"
DEVICE = "example.com/guarded"
"""Of this group alone: pods of other tests, which wait for devices, too, must not keep its node."""
SETTINGS = {
    "groups": {GROUP: {"minimum": 0, "devices": [DEVICE], "removes": True}},
    "warnSeconds": 60,
    "removeSeconds": 120,
}


@pytest.fixture
def account(api, namespace, paths, tmp_path):
    """The API server as the guard's service account."""
    subject = {"kind": "ServiceAccount", "name": "idle-guard", "namespace": namespace}

    def rules(rows):
        return [{"apiGroups": [each[0]], "resources": [*each[1]], "verbs": [*each[2]]} for each in rows]

    guards = manifest("ServiceAccount", "idle-guard", namespace)
    made = [
        guards,
        *role(namespace, "", rules(CLUSTER_RULES), subject),
        *role(namespace, "default", rules(EVENT_RULES), subject),
    ]
    for each in made:
        api.create(each)
    user = f"system:serviceaccount:{namespace}:idle-guard"
    await_right(api, user, "", "list", "pods")
    await_right(api, user, "default", "create", "events")
    asked = {"spec": {"expirationSeconds": 600}}
    token = api.request("POST", path(api, guards, "/token"), asked)["status"]["token"]
    server = yaml.safe_load(paths.kubeconfig.read_text())["clusters"][0]["cluster"]
    (tmp_path / "ca.crt").write_bytes(base64.b64decode(server["certificate-authority-data"]))
    (tmp_path / "token").write_text(token)
    address = urllib.parse.urlsplit(server["server"])
    try:
        yield Connection(str(address.hostname), address.port or 443, tmp_path)
    finally:
        for each in reversed(made):
            api.delete(api.reference(each), propagation="Background")


@pytest.fixture
def idle(api, namespace):
    """A node of the guarded group that has been idle for long."""
    metadata = {"labels": {guard.GROUP_LABEL: GROUP}, "annotations": {guard.SINCE: "2026-01-01T00:00:00Z"}}
    spec = {"providerID": "aws:///us-west-2d/i-0123456789abcdef0"}
    made = manifest("Node", f"{namespace}-node", metadata=metadata, spec=spec)
    api.create(made)
    yield made
    api.delete(api.reference(made))


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch):
    monkeypatch.setattr(guard, "SETTLE_SECONDS", 0.0)


def test_idle_node_is_reported_held_and_marked_for_removal(api, account, idle, tmp_path):
    guard.main(SETTINGS, account, tmp_path / "remove")
    assert (tmp_path / "remove").read_text() == "i-0123456789abcdef0\n"
    found = live(api, idle)
    assert found["spec"]["unschedulable"] is True
    assert {guard.SINCE, guard.WARNED, guard.HELD} <= set(found["metadata"]["annotations"])
    name = idle["metadata"]["name"]
    events = api.list("v1", "Event", namespace="default", fields=f"involvedObject.name={name}")
    said = [each["reason"] for each in events if each["source"].get("component") == "idle-guard"]
    assert said == ["IdleAccelerator"]


def test_work_on_a_node_ends_its_hold(api, account, idle, namespace, tmp_path):
    guard.look(SETTINGS, account)
    assert live(api, idle)["spec"]["unschedulable"] is True
    there = {"nodeName": idle["metadata"]["name"], "tolerations": [{"operator": "Exists"}]}
    api.create(manifest("Pod", "trains", namespace, spec=pod_spec(**there)))
    guard.main(SETTINGS, account, tmp_path / "remove")
    assert not (tmp_path / "remove").exists()
    found = live(api, idle)
    assert "unschedulable" not in found["spec"]
    assert not {guard.SINCE, guard.HELD} & set(found["metadata"].get("annotations") or {})


def test_a_waiting_pod_keeps_the_node(api, account, idle, namespace, tmp_path):
    waits = pod_spec("x", {DEVICE: "16"}, schedulerName="nobody")
    api.create(manifest("Pod", "waits", namespace, spec=waits))
    guard.main(SETTINGS, account, tmp_path / "remove")
    assert not (tmp_path / "remove").exists()
    assert "unschedulable" not in live(api, idle)["spec"]


def test_guard_has_no_other_rights(account, namespace):
    with pytest.raises(ApiStatusError, match="403"):
        account.items(f"/api/v1/namespaces/{namespace}/secrets")
    with pytest.raises(ApiStatusError, match="403"):
        account.send("POST", f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": "x"}})
