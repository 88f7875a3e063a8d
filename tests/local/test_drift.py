"""What was made, compared with what is there, on a real API server."""

import base64
import gzip
import json
from typing import Any

import pytest
import yaml

from trainium_eks.kube import drift
from trainium_eks.kube.api import Api, ObjectReference
from trainium_eks.model.validation.unseen import UNSEEN
from trainium_eks.operate.cleanup.state import StackState
from trainium_eks.operate.verify import made
from trainium_eks.operate.verify.examined import ObjectComparison

Body = dict[str, Any]


def body(kind: str, api_version: str = "v1", **fields: Any) -> Body:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, **fields}


PORTS = [{"name": "b", "port": 80, "targetPort": "http"}, {"name": "a", "port": 81}]
PEERS = [{"from": [{"podSelector": {}}], "ports": [{"port": 53}]}]
RULES = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
SUBJECTS = [{"kind": "Group", "name": "team", "apiGroup": "rbac.authorization.k8s.io"}]
ROLE = {"kind": "Role", "name": "x", "apiGroup": "rbac.authorization.k8s.io"}
RBAC = "rbac.authorization.k8s.io/v1"
BODIES = {
    "quota": body("ResourceQuota", spec={"hard": {"pods": "2000m", "requests.memory": "1024Mi", "cpu": 4}}),
    "limits": body(
        "LimitRange", spec={"limits": [{"type": "Container", "default": {"cpu": "500m", "memory": "1024Ki"}}]}
    ),
    "policy": body("NetworkPolicy", "networking.k8s.io/v1", spec={"podSelector": {}, "ingress": PEERS, "egress": []}),
    "service": body("Service", spec={"selector": {"app": "x"}, "ports": PORTS}),
    "role": body("Role", RBAC, rules=RULES),
    "binding": body("RoleBinding", RBAC, subjects=SUBJECTS, roleRef=ROLE),
    "account": body("ServiceAccount", automountServiceAccountToken=False, metadata={"name": "x", "labels": {"a": "b"}}),
    "secret": body("Secret", stringData={"token": UNSEEN}, data={"key": "a2V5"}),
}
CHANGES: list[tuple[str, Body, str]] = [
    ("quota", {"spec": {"hard": {"pods": "0"}}}, "spec.hard.pods is 0, was made as 2"),
    ("limits", {"spec": {"limits": []}}, "spec.limits is missing, was made as [{"),
    ("policy", {"spec": {"ingress": [{"ports": [{"port": 53}]}]}}, "spec.ingress.0.from is missing, was made as ["),
    ("policy", {"spec": {"ingress": None}}, "spec.ingress is missing, was made as ["),
    ("service", {"spec": {"selector": {"app": "y"}}}, "spec.selector.app is y, was made as x"),
    (
        "role",
        {"rules": [*RULES, {**RULES[0], "resources": ["secrets"]}]},
        'rules is [{"verbs": ["get"], "apiGroups": [""], ',
    ),
    ("role", {"rules": [{**RULES[0], "verbs": ["*"]}]}, "rules.0.verbs.0 is *, was made as get"),
    ("binding", {"subjects": None}, "subjects is missing, was made as ["),
    ("account", {"automountServiceAccountToken": True}, "automountServiceAccountToken is true, was made as false"),
    ("account", {"metadata": {"labels": {"a": None}}}, "metadata.labels is missing, was made as "),
    ("secret", {"data": {"key": "b3RoZXI="}}, "data.key differs"),
    ("secret", {"data": {"token": None}}, "data.token differs"),
]


@pytest.mark.parametrize("how", ["applied", "created"])
@pytest.mark.parametrize("name", BODIES)
def test_what_is_as_it_was_made_has_no_difference(api: Api, namespace: str, name: str, how: str) -> None:
    """Quantities, defaults and nothings are in the server's form, whoever made it."""
    (api.apply if how == "applied" else api.create)(drift.placed(api, BODIES[name], namespace))
    api.request(
        "PATCH", path(api, name, namespace), {"metadata": {"labels": {"o": "p"}, "annotations": {"o": "p"}}}, **MERGE
    )
    about = f"{BODIES[name]['kind']} {namespace}/x"
    assert drift.differences(api, BODIES[name], namespace) == (about, ())
    reference = api.reference(drift.placed(api, BODIES[name], namespace))
    before, _, after = api.get(reference), drift.differences(api, BODIES[name], namespace), api.get(reference)
    for each in (before, after):
        assert each is not None
        each.pop("status", None)  # a quota's controller may write it meanwhile
        each["metadata"] = {
            key: each["metadata"][key] for key in each["metadata"].keys() - {"resourceVersion", "managedFields"}
        }
    assert before == after, "a comparison changes nothing"


@pytest.mark.parametrize(("name", "change", "said"), CHANGES)
def test_a_change_is_named_with_both_values(api: Api, namespace: str, name: str, change: Body, said: str) -> None:
    api.apply(drift.placed(api, BODIES[name], namespace))
    api.request("PATCH", path(api, name, namespace), change, **MERGE)
    [line] = drift.differences(api, BODIES[name], namespace)[1]
    assert line.startswith(said), line


MERGE: Body = {"content_type": "application/merge-patch+json"}


def path(api: Api, name: str, namespace: str) -> str:
    return api.kind(BODIES[name]["apiVersion"], BODIES[name]["kind"]).path(namespace, "x")


def test_an_object_that_is_gone_or_ends_or_was_made_anew(api: Api, namespace: str) -> None:
    assert drift.differences(api, BODIES["binding"], namespace)[1] == (drift.GONE,)
    assert drift.differences(api, body("Nothing", "example.org/v1")) == ("Nothing x", (drift.GONE,))
    other = {**BODIES["binding"], "roleRef": {**ROLE, "name": "other"}}
    api.apply(drift.placed(api, other, namespace))
    assert "cannot change roleRef" in drift.differences(api, BODIES["binding"], namespace)[1][0]
    kept = body("ConfigMap", metadata={"name": "x", "finalizers": ["example.org/kept"]})
    api.apply(drift.placed(api, kept, namespace))
    api.delete(ObjectReference("v1", "ConfigMap", namespace, "x"), propagation="Background")
    assert drift.differences(api, kept, namespace)[1] == (drift.ENDING,)
    api.request("PATCH", f"/api/v1/namespaces/{namespace}/configmaps/x", {"metadata": {"finalizers": None}}, **MERGE)


def test_what_a_person_adds_is_no_restart(api: Api, namespace: str) -> None:
    policy = body("NetworkPolicy", "networking.k8s.io/v1", spec={"podSelector": {}, "policyTypes": ["Ingress"]})
    api.apply(drift.placed(api, policy, namespace))
    where = f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies/x"

    def found(manager: str) -> tuple[str, ...]:
        change = {"spec": {"ingress": None}}
        api.request("PATCH", where, change, **MERGE)
        api.request("PATCH", where, {"spec": {"ingress": [{}]}}, query={"fieldManager": manager}, **MERGE)
        return drift.differences(api, policy, namespace)[1]

    assert found("kubectl-edit") == ("spec.ingress was added by kubectl-edit",)
    assert found("kubectl-rollout") == found("some-controller") == ()
    edited = {**policy, "spec": {**policy["spec"], "ingress": drift.IGNORED}}
    assert found("kubectl-patch") == ("spec.ingress was added by kubectl-patch",)
    assert drift.differences(api, edited, namespace)[1] == ()


def test_a_stacks_state_and_its_releases(api: Api, namespace: str) -> None:
    chart = body("ConfigMap", data={"of": "chart"}, metadata={"name": "chart"})
    text = gzip.compress(json.dumps({"manifest": yaml.safe_dump_all([chart, None])}).encode())
    labels = {"owner": "helm", "name": "rel", "status": "deployed"}

    def deployed(version: int, status: str) -> None:
        name = {
            "name": f"v{version}",
            "namespace": namespace,
            "labels": {**labels, "version": f"{version}", "status": status},
        }
        packed = base64.b64encode(base64.b64encode(text)).decode()
        api.create(body("Secret", metadata=name, data={"release": packed}))

    def found(**changes: Any) -> ObjectComparison:
        objects = [
            {
                "id": "a",
                "type": "kubernetes:core/v1:ResourceQuota",
                "inputs": drift.placed(api, BODIES["quota"], namespace),
            },
            {"id": "b", "type": made._RELEASE, "outputs": {"name": "rel", "namespace": namespace}},
            {"id": "s", "type": "kubernetes:core/v1:Secret", "inputs": sealed},
            # Of a replacement that waits for its deletion.
            {"id": "c", "type": "kubernetes:core/v1:Namespace", "inputs": body("Namespace"), "delete": True},
        ]
        deployment = {
            "resources": [{"urn": "u", **objects[0], **changes}, *({"urn": "u", **each} for each in objects[1:])]
        }
        return made.compare(api, StackState.parse(json.dumps({"deployment": deployment}), "state"), None)

    api.create(drift.placed(api, body("Secret", stringData={"a": "b"}), namespace))
    sealed = drift.placed(api, body("Secret", stringData={drift._PULUMIS_SECRET: "1", "ciphertext": "2"}), namespace)
    gone: dict[str, Any] = {f"ResourceQuota {namespace}/x": (drift.GONE,)}
    assert found().drifted == gone | {f"Helm release {namespace}/rel": ("is not deployed",)}
    deployed(9, "superseded")
    deployed(10, "deployed")
    assert found().drifted == {
        f"ResourceQuota {namespace}/x": (drift.GONE,),
        f"ConfigMap {namespace}/chart": (drift.GONE,),
    }
    quota = {**BODIES["quota"], "spec": {"hard": {**BODIES["quota"]["spec"]["hard"], "pods": "7"}}}
    api.apply(drift.placed(api, quota, namespace))
    api.apply(drift.placed(api, {**chart, "data": {"of": "somebody"}}, namespace))
    said = {
        f"ConfigMap {namespace}/chart": ("data.of is somebody, was made as chart",),
        f"ResourceQuota {namespace}/x": ("spec.hard.pods is 7, was made as 2",),
    }
    assert found().drifted == said
    assert found(ignoreChanges=["spec.hard.pods"]).drifted.keys() == {f"ConfigMap {namespace}/chart"}
    assert found().commands == {
        f"ConfigMap {namespace}/chart": f"helm get manifest rel --namespace {namespace} | kubectl apply --server-side "
        f"--force-conflicts --namespace {namespace} -f -"
    }
    refused = {**BODIES["quota"], "metadata": {"name": "x", "namespace": namespace}, "spec": {"hard": "no"}}
    assert [*found(inputs=refused).unread] == ["values of secrets", "ResourceQuota objects"]
