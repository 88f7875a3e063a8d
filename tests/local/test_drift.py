"""What was made, compared with what is there, on a real API server."""

import base64
import gzip
import json

import pytest
import yaml
from manifests import RBAC, live, manifest, patch, volume

from trainium_eks.kube import drift
from trainium_eks.model.validation.unseen import UNSEEN
from trainium_eks.operate.cleanup.state import StackState
from trainium_eks.operate.verify import comparison


def body(kind, **fields):
    return manifest(kind, "x", **fields)


PORTS = [{"name": "b", "port": 80, "targetPort": "http"}, {"name": "a", "port": 81}]
PEERS = [{"from": [{"podSelector": {}}], "ports": [{"port": 53}]}]
RULES = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
SUBJECTS = [{"kind": "Group", "name": "team", "apiGroup": RBAC}]
ROLE = {"kind": "Role", "name": "x", "apiGroup": RBAC}
BODIES = {
    "quota": body("ResourceQuota", spec={"hard": {"pods": "2000m", "requests.memory": "1024Mi", "cpu": 4}}),
    "limits": body(
        "LimitRange", spec={"limits": [{"type": "Container", "default": {"cpu": "500m", "memory": "1024Ki"}}]}
    ),
    "policy": body("NetworkPolicy", spec={"podSelector": {}, "ingress": PEERS, "egress": []}),
    "service": body("Service", spec={"selector": {"app": "x"}, "ports": PORTS}),
    "role": body("Role", rules=RULES),
    "binding": body("RoleBinding", subjects=SUBJECTS, roleRef=ROLE),
    "account": body("ServiceAccount", automountServiceAccountToken=False, metadata={"labels": {"a": "b"}}),
    "secret": body("Secret", stringData={"token": UNSEEN}, data={"key": "a2V5"}),
}
CHANGES = [
    ("quota", {"spec": {"hard": {"pods": "0"}}}, "spec.hard.pods is 0, was made as 2"),
    ("limits", {"spec": {"limits": []}}, "spec.limits is missing, was made as [{"),
    ("policy", {"spec": {"ingress": [{"ports": [{"port": 53}]}]}}, "spec.ingress.0.from is missing, was made as ["),
    ("policy", {"spec": {"ingress": None}}, "spec.ingress is missing, was made as ["),
    ("policy", {"spec": {"ingress": [{**PEERS[0], "ports": [{"port": 53, "endPort": 99}]}]}},
     "spec.ingress.0.ports.0.endPort is 99, was made without"),
    ("service", {"spec": {"selector": {"app": "y"}}}, "spec.selector.app is y, was made as x"),
    ("service", {"spec": {"selector": {"more": "y"}}}, "spec.selector.more is y, was made without"),
    ("policy", {"spec": {"podSelector": {"matchLabels": {"a": "b"}}}}, "spec.podSelector"),
    ("service", {"spec": {"ports": [{**PORTS[0], "protocol": "UDP"}, PORTS[1]]}},
     'spec.ports[1].name: Duplicate value: "b"'),
    ("role", {"rules": [*RULES, {**RULES[0], "resources": ["secrets"]}]},
     'rules has 2 entries, was made with 1: with [{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}]'),
    ("role", {"rules": [{**RULES[0], "verbs": ["*"]}]}, "rules.0.verbs.0 is *, was made as get"),
    ("role", {"rules": [{**RULES[0], "verbs": ["get", "list"]}]},
     'rules.0.verbs is ["get", "list"], was made as ["get"]'),
    ("binding", {"subjects": None}, "subjects is missing, was made as ["),
    ("account", {"automountServiceAccountToken": True}, "automountServiceAccountToken is true, was made as false"),
    ("account", {"metadata": {"labels": {"a": None}}}, "metadata.labels is missing, was made as "),
    ("secret", {"data": {"key": "b3RoZXI="}}, "data.key differs"),
    ("secret", {"data": {"token": None}}, "data.token differs"),
]  # fmt: skip


@pytest.mark.parametrize("how", ["applied", "created"])
@pytest.mark.parametrize("name", BODIES)
def test_unchanged_object_has_no_difference(api, namespace, name, how):
    """Quantities, defaults and nothings are in the server's form, whoever made it."""
    made = drift.with_namespace(api, BODIES[name], namespace)
    (api.apply if how == "applied" else api.create)(made)
    patch(api, made, {"metadata": {"labels": {"o": "p"}, "annotations": {"o": "p"}}})

    def seen():
        found = live(api, made)
        found.pop("status", None)  # a quota's controller may write it meanwhile
        metadata = found["metadata"]
        return {
            **found,
            "metadata": {key: metadata[key] for key in metadata.keys() - {"resourceVersion", "managedFields"}},
        }

    before = seen()
    assert drift.differences(api, BODIES[name], namespace) == (f"{BODIES[name]['kind']} {namespace}/x", ())
    assert before == seen(), "a comparison changes nothing"


@pytest.mark.parametrize(("name", "change", "said"), CHANGES)
def test_change_is_reported_with_both_values(api, namespace, name, change, said):
    made = drift.with_namespace(api, BODIES[name], namespace)
    api.apply(made)
    patch(api, made, change)
    [line] = drift.differences(api, BODIES[name], namespace)[1]
    assert line.startswith(said), line


def test_whole_file_systems_volume_is_no_teams_volume(api, namespace):
    """Every other team's data, too; it is a field that the API server does not change."""
    source = {
        "driver": "fsx.csi.aws.com",
        "volumeHandle": "fs-1::team",
        "volumeAttributes": {"mountname": "abcde/team"},
    }
    made = volume(namespace, csi=source)
    api.apply(made)
    assert drift.differences(api, made)[1] == ()
    assert drift.differences(api, body("Nothing", api_version="example.org/v1")) == ("Nothing x", (drift.GONE,))
    whole = volume(namespace, csi={**source, "volumeAttributes": {"mountname": "abcde"}})
    [said] = drift.differences(api, whole)[1]
    assert "persistentvolumesource" in said
    api.delete(api.reference(made))


def test_drift_of_a_stacks_state_and_releases_is_found(api, namespace):
    chart = body("ConfigMap", data={"of": "chart"}, metadata={"name": "chart"})
    text = gzip.compress(json.dumps({"manifest": yaml.safe_dump_all([chart, None])}).encode())
    labels = {"owner": "helm", "name": "rel", "status": "deployed"}

    def deployed(version, status):
        told = {**labels, "version": f"{version}", "status": status}
        packed = base64.b64encode(base64.b64encode(text)).decode()
        api.create(manifest("Secret", f"v{version}", namespace, metadata={"labels": told}, data={"release": packed}))

    def found(teams=(), **changes):
        quota = drift.with_namespace(api, BODIES["quota"], namespace)
        objects = [
            {"id": "a", "type": "kubernetes:core/v1:ResourceQuota", "inputs": quota, **changes},
            {"id": "b", "type": comparison._RELEASE, "outputs": {"name": "rel", "namespace": namespace}},
            {"id": "s", "type": "kubernetes:core/v1:Secret", "inputs": sealed},
            # Of a replacement that waits for its deletion.
            {"id": "c", "type": "kubernetes:core/v1:Namespace", "inputs": body("Namespace"), "delete": True},
        ]
        deployment = {"resources": [{"urn": "u", **each} for each in objects]}
        return comparison.compare(api, StackState.parse(json.dumps({"deployment": deployment}), "state"), None, teams)

    api.create(drift.with_namespace(api, body("Secret", stringData={"a": "b"}), namespace))
    sealed = drift.with_namespace(
        api, body("Secret", stringData={drift._PULUMIS_SECRET: "1", "ciphertext": "2"}), namespace
    )
    gone = {f"ResourceQuota {namespace}/x": (drift.GONE,)}
    assert found().drifted == gone | {f"Helm release {namespace}/rel": ("is not deployed",)}
    deployed(9, "superseded")
    deployed(10, "deployed")
    assert found().drifted == {
        f"ResourceQuota {namespace}/x": (drift.GONE,),
        f"ConfigMap {namespace}/chart": (drift.GONE,),
    }
    quota = {**BODIES["quota"], "spec": {"hard": {**BODIES["quota"]["spec"]["hard"], "pods": "7"}}}
    api.apply(drift.with_namespace(api, quota, namespace))
    api.apply(drift.with_namespace(api, {**chart, "data": {"of": "somebody"}}, namespace))
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
    theirs = body("ResourceQuota", spec={"hard": {"pods": "0"}}, metadata={"name": "theirs"})
    api.create(drift.with_namespace(api, theirs, namespace))
    everybody = {**SUBJECTS[0], "name": "system:authenticated"}
    role = {**ROLE, "kind": "ClusterRole", "name": "cluster-admin"}
    binding = manifest("ClusterRoleBinding", namespace, subjects=[everybody], roleRef=role)
    api.create(binding)
    assert found(teams=[namespace]).added == {
        f"ResourceQuota {namespace}/theirs": '{"hard": {"pods": "0"}}',
        f"ClusterRoleBinding {namespace}": "gives ClusterRole cluster-admin to Group system:authenticated",
    }
    api.delete(api.reference(binding))
    refused = {**BODIES["quota"], "metadata": {"name": "x", "namespace": namespace}, "spec": {"hard": "no"}}
    assert [*found(inputs=refused).unread] == ["values of secrets", "ResourceQuota objects"]
