"""What was compared becomes checks, each fault once; the local cloud's report is read or refused."""

import json
from pathlib import Path

import pytest
import yaml
from cluster_snapshots import NEURON, REAL, accelerated, group, objects, outputs

from trainium_eks.diagnose.cluster_state import ClusterState
from trainium_eks.diagnose.local_report import LocalReport, ReportError
from trainium_eks.model.finding import Status, failed
from trainium_eks.operate.cleanup.state import StateResource
from trainium_eks.operate.verify.additions import Teams, added
from trainium_eks.operate.verify.comparison import ObjectComparison, checks, without_repeats
from trainium_eks.operate.verify.verify import verify


def test_each_drifted_object_fails_and_uncompared_kinds_are_reported():
    drifted = {
        "Queue test": ("spec.weight is 2, was made as 1", "spec.reclaimable is missing, was made as true"),
        "ConfigMap v/c": ("does not exist",),
        "NetworkPolicy a/b": ("spec.ingress was added by kubectl-edit",),
    }
    hidden, mended = {"values of secrets": "the state hides them"}, {"ConfigMap v/c": "helm get manifest"}
    made = ObjectComparison(drifted, 9, hidden, mended)
    found = {each.subject: each for each in checks(ClusterState(outputs()), made)}
    assert found["Queue test"].details == drifted["Queue test"]
    assert found["ConfigMap v/c"].text == "does not exist"
    assert {name: each.fix for name, each in found.items() if each.fix} == {
        "Queue test": "pulumi up --refresh sets it back",
        "ConfigMap v/c": "helm get manifest sets it back",
        "NetworkPolicy a/b": "kubectl edit networkpolicy b --namespace a sets it back",
    }
    assert found["objects"].text == "6 as the stack made them"
    assert found["values of secrets"].status is Status.NOT_CHECKED


def test_a_node_has_the_labels_and_taints_of_its_group():
    """The gate's taint is taken off again."""
    keys = (NEURON, "trainium-eks/fabric-untested")
    taints = [{"key": key, "value": "true", "effect": "NO_SCHEDULE"} for key in keys]

    def lines(labels):
        node = accelerated("n", group("ng1", NEURON, 8, 1))
        node["spec"]["taints"] = [{"key": NEURON, "value": "true", "effect": "NoExecute"}]
        of = StateResource("u", "t", "i", {"labels": labels, "taints": taints}, {"nodeGroupName": "ng1-eks"})
        made = ObjectComparison(groups=[of])
        found = checks(ClusterState(outputs(), objects={"Node": (node,)}), made)
        return [(each.subject, " ".join([each.text, *each.details])) for each in found]

    taint = f"taint {NEURON}=true:NoSchedule is missing"
    two = "2 fields are not as made"
    assert lines({"pool": "a"}) == [("Node n", f"{two} label pool is missing, was made as a {taint}")]
    assert lines({f"{NEURON}.present": "true"}) == [("Node n", taint)]


def test_lost_object_is_reported_once_beside_a_changed_one():
    def subjects(about, text, *lines):
        lost = ("ServiceAccount victim/trainer", "Deployment kube-system/coredns")
        checked = failed("queues/victim", "victim", "is Closed, trainer and coredns are not ready", "up", objects=lost)
        found = [checked, failed(f"objects/{about}", about, text, "up", lines)]
        return [each.subject for each in without_repeats(found)]

    assert subjects("ServiceAccount victim/trainer", "does not exist") == ["victim"]
    assert subjects("Deployment kube-system/coredns", "spec.replicas is 0, was made as 2") == ["victim"]
    image = "spec.template.spec.containers.0.image is a, was made as b"
    assert subjects("Deployment kube-system/coredns", image) == ["victim", "Deployment kube-system/coredns"]
    for other in ("Namespace victim", "RoleBinding victim/trainer", "ServiceAccount other/trainer", "Queue victim"):
        assert subjects(other, "does not exist") == ["victim", other]
    held = {kind: tuple(found) for kind, found in objects().items() if kind != "ServiceAccount"}
    made = ObjectComparison({"ServiceAccount training/trainer": ("does not exist",)}, 1)
    found = verify(ClusterState(outputs(), "v1.35.4", held), made)
    assert [each.subject for each in found if each.status is Status.FAIL and "trainer" in each.text + each.subject] == [
        "training"
    ]


RESEARCHERS = {"kind": "Group", "name": "trainium-eks:team:researchers"}
TEAM = {"kubernetes.io/metadata.name": "team"}
ADDED = yaml.safe_load((Path(__file__).parent / "additions.yaml").read_text())


@pytest.mark.parametrize(("kind", "namespace", "body", "said"), ADDED)
def test_foreign_object_that_affects_a_team_is_named(kind, namespace, body, said):
    place = {"namespace": namespace} if namespace else {}
    role = {"roleRef": {"kind": "ClusterRole", "name": "cluster-admin"}}
    each = {"kind": kind, **role, **body, "metadata": {"name": "theirs", **place, **body.get("metadata", {})}}
    teams = Teams({"team": TEAM}, {RESEARCHERS["name"]}, {"arn:aws:iam::1:role/people/ml"})
    about = f"{kind} {f'{namespace}/' if namespace else ''}theirs"
    found = dict(added([each], {"ClusterRoleBinding viewer"}, teams))
    assert found.keys() == ({about} if said else set())
    assert said in found.get(about, "")
    made = ObjectComparison(added={"RoleBinding a/b": "gives"})
    [finding] = [each for each in checks(ClusterState(outputs()), made) if each.fault]
    assert "kubectl delete rolebinding b -n a; to keep it: kubectl annotate rolebinding b -n a" in finding.fix


def test_nodes_huge_pages_equal_its_user_data():
    nodes = [accelerated(name, group("ng1", NEURON, 8, 1)) for name in ("n", "without")]
    nodes[0]["status"]["capacity"] = {"hugepages-2Mi": "5Gi"}
    nodes[1]["status"]["capacity"] = {"hugepages-2Mi": "0"}
    made = ObjectComparison(huge_pages={"ng1-eks": 2560})
    found = [*checks(ClusterState(outputs(), objects={"Node": tuple(nodes)}), made)]
    assert [(each.subject, each.fault, each.text) for each in found] == [
        ("Node without", "hugepages-missing", "hugepages-2Mi is 0, was made as 5120Mi")
    ]


MISSING = {"notInstalled": [{"name": "volcano", "reason": "no chart"}], "simulated": ["aws"]}
REPORT = {"schemaVersion": 1, "local": True, "realVolcano": False, **MISSING}


def test_local_report_is_read_and_a_malformed_one_is_refused(tmp_path):
    file = tmp_path / "report.json"
    with pytest.raises(ReportError, match="cannot read"):
        LocalReport.load(file)
    file.write_text(json.dumps(REPORT))
    report = LocalReport.load(file, {"etcd"})
    assert report == LocalReport({"volcano": "no chart"}, ("aws",), real_volcano=False, running=frozenset({"etcd"}))
    assert (report.missing("volcano"), report.missing("neuron")) == ("no chart", "")
    assert (report.unscheduled, REAL.unscheduled) == ("no chart", "")
    wrong = [json.dumps({**REPORT, **each}) for each in ({"schemaVersion": 2}, {"local": False})]
    for text in ("", "[]", "{}", *wrong):
        file.write_text(text)
        with pytest.raises(ReportError, match=r"report\.json is not the report"):
            LocalReport.load(file)
