"""What was compared becomes checks, each fault once; the local cloud's report is read or refused."""

import json

import pytest
from cluster_snapshots import NEURON, accelerated, group, outputs

from trainium_eks.kube.cluster import Cluster
from trainium_eks.operate.cleanup.state import StateResource
from trainium_eks.operate.finding import Status, failed
from trainium_eks.operate.verify.check_input import CheckInput, ObjectComparison
from trainium_eks.operate.verify.comparison import checks, untold
from trainium_eks.operate.verify.local_report import LocalReport, ReportError


def test_each_object_is_a_failure_with_its_remedy_and_what_was_not_compared_is_said():
    drifted = {
        "Queue test": ("spec.weight is 2, was made as 1", "spec.reclaimable is missing, was made as true"),
        "ConfigMap v/c": ("does not exist",),
        "NetworkPolicy a/b": ("spec.ingress was added by kubectl-edit",),
    }
    hidden, mended = {"values of secrets": "the state hides them"}, {"ConfigMap v/c": "helm get manifest"}
    made = ObjectComparison(drifted, 9, hidden, mended)
    found = {each.subject: each for each in checks(CheckInput(outputs(), Cluster("v1"), None, made))}
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
        found = checks(CheckInput(outputs(), Cluster("v1", {"Node": (node,)}), None, made))
        return [(each.subject, " ".join([each.text, *each.details])) for each in found]

    taint = f"taint {NEURON}=true:NoSchedule is missing"
    two = "2 fields are not as made"
    assert lines({"pool": "a"}) == [("Node n", f"{two} label pool is missing, was made as a {taint}")]
    assert lines({f"{NEURON}.present": "true"}) == [("Node n", taint)]


def test_a_fault_that_a_check_of_its_own_names_is_told_once():
    def drifted(about):
        account = failed("namespaces/training", "training", "has no service account trainer", "up")
        found = [account, failed(f"objects/{about}", about, "does not exist", "up")]
        return [each.subject for each in untold(found)]

    assert drifted("ServiceAccount training/trainer") == ["training"]
    for other in ("RoleBinding training/trainer", "ServiceAccount training/train", "Queue other"):
        assert drifted(other) == ["training", other]


MISSING = {"notInstalled": [{"name": "volcano", "reason": "no chart"}], "simulated": ["aws"]}
REPORT = {"schemaVersion": 1, "local": True, "realVolcano": False, **MISSING}


def test_a_report_is_read_and_what_is_none_is_refused(tmp_path):
    file = tmp_path / "report.json"
    with pytest.raises(ReportError, match="cannot read"):
        LocalReport.load(file)
    file.write_text(json.dumps(REPORT))
    report = LocalReport.load(file, {"etcd"})
    assert report == LocalReport({"volcano": "no chart"}, ("aws",), real_volcano=False, running=frozenset({"etcd"}))
    assert (report.missing("volcano"), report.missing("neuron")) == ("no chart", "")
    wrong = [json.dumps({**REPORT, **each}) for each in ({"schemaVersion": 2}, {"local": False})]
    for text in ("", "[]", "{}", *wrong):
        file.write_text(text)
        with pytest.raises(ReportError, match=r"report\.json is not the report"):
            LocalReport.load(file)
