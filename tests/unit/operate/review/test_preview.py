"""``pulumi preview --json --show-sames`` as the engine printed it for the dev stack over the simulated AWS, without the
stack traces; and what it would print for a provider that is not known."""

import copy
import gzip
import json
from pathlib import Path

import pytest

from trainium_eks.operate.review import comment, preview, review
from trainium_eks.operate.review.comment import PLATFORMS
from trainium_eks.operate.review.preview import COMPUTED
from trainium_eks.operate.review.review import Outcome, Review
from trainium_eks.operate.review.scrubbing import scrubber
from trainium_eks.plan.graph import UNKNOWN

FOLDER = Path(__file__).parent / "previews"
CLUSTER = "aws:eks/cluster:Cluster"


def _document(name):
    return json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))


def _text(parsed):
    judged = Review("trainium-eks", "dev", "preview", "the account", comparison=review.of_preview(parsed))
    return judged, comment.render(judged, PLATFORMS["github"], scrubber([parsed.before, parsed.after]))


def test_changed_instance_type_replaces_its_group():
    parsed = preview.parse(_document("instance-type"), "dev")
    assert parsed.whole
    assert parsed.phantom == frozenset()
    judged, text = _text(parsed)
    assert judged.outcome is Outcome.BLOCKED
    for said in ("0 create, 4 update, 5 replace, 0 delete", "+$6.56 an hour", "0 broken"):
        assert said in text
    assert "REPLACED; lost with it: what runs on its nodes | `instanceTypes[0]: trn1.32xlarge → trn1n.32xlarge`" in text
    assert "| `NodeGroup trn-dev-cluster-trn1-32xl-ng1-nodes` | `launchTemplate.version` |" in text


def test_many_edits_are_parsed_at_once():
    _, text = _text(preview.parse(_document("many-edits"), "dev"))
    assert "44 create, 83 update, 1 replace, 0 delete" in text
    for said in ("may grow to many more nodes", "backups are kept for a shorter time", "rights in the whole cluster"):
        assert said in text
    assert "tags alone on 62 resources" in text
    assert "spec.hard.requests.cpu" in text, "quoted keys of paths"
    assert "stale waiver: R02" in text


def test_unknown_values_do_not_block_and_a_plan_decides_them():
    parsed = preview.parse(_document("environment-new"), "dev")
    inputs = [resource.inputs for resource in parsed.after.of_type("aws:ec2/subnet:Subnet")]
    assert {each["vpcId"] for each in inputs} == {UNKNOWN}
    assert COMPUTED not in json.dumps([dict(each.inputs) for each in parsed.after.resources])
    judged, text = _text(parsed)
    assert judged.outcome is Outcome.REVIEW
    assert "rules may be broken" in text
    assert "$44.23" in text.replace("+", "")
    compared = review.of_preview(parsed, preview.parse(_document("instance-type"), "dev").before)
    assert compared.certain
    assert compared.after.failed == ()


def test_preview_without_sames_skips_cost_and_rules():
    document = _document("instance-type")
    document["steps"] = [step for step in document["steps"] if step["op"] != "same"]
    parsed = preview.parse(document, "dev")
    assert not parsed.whole
    _, text = _text(parsed)
    assert "**Cost**: not judged" in text
    assert "**Policy**: not judged" in text
    # A preview that failed is blocked.
    words = "unable to replace resource marked for protection"
    document.setdefault("diagnostics", []).append({"severity": "error", "message": words})
    assert preview.parse(document, "dev").errors == (words,)


def _with_unknown_provider(*, cluster_replaced=False):
    """A tag of the cluster changes: the kubeconfig, made from its outputs, is unknown, so the engine replaces the
    provider and all that it made (pulumi-eks#338)."""
    document = copy.deepcopy(_document("instance-type"))
    for step in document["steps"]:
        urn, state = step["urn"], step.get("newState") or {}
        if urn.endswith("$pulumi:providers:kubernetes::trn-dev-cluster-kubernetes"):
            source = next(each["urn"] for each in document["steps"] if f"{CLUSTER}::" in each["urn"])
            step.update(op="replace", replaceReasons=["kubeconfig"], diffReasons=["kubeconfig"])
            step["detailedDiff"] = {"kubeconfig": {"kind": "update-replace", "inputDiff": True}}
            state["inputs"]["kubeconfig"] = COMPUTED
            state["propertyDependencies"] = {"kubeconfig": [source]}
        elif "trn-dev-cluster-kubernetes" in str(state.get("provider")):
            step.update(op="replace", replaceReasons=["provider"], diffReasons=["provider"], detailedDiff=None)
        elif f"{CLUSTER}::" in urn:
            replaces = cluster_replaced
            step.update(
                op="replace" if replaces else "update", diffReasons=["tags"], replaceReasons=["roleArn"] * replaces
            )
            kind = "update-replace" if replaces else "update"
            step["detailedDiff"] = {"roleArn" if replaces else "tags.Owner": {"kind": kind, "inputDiff": True}}
    return document


def test_seeming_replacements_are_folded():
    parsed = preview.parse(_with_unknown_provider(), "dev")
    assert len(parsed.phantom) > 30
    judged, text = _text(parsed)
    assert "PersistentVolumeClaim" not in text.split("**Cost**")[0]
    assert f"(and {len(parsed.phantom)} that only seem to)" in text
    assert f"follows from provider unknown: {len(parsed.phantom) - 1} objects only seem to be replaced" in text
    lost = [risk.resource.type for risk in judged.comparison.risks if risk.weight == "loss"]
    assert lost == ["aws:eks/nodeGroup:NodeGroup"], "the request's own"
    # Those of a cluster that is replaced are really replaced.
    parsed = preview.parse(_with_unknown_provider(cluster_replaced=True), "dev")
    assert parsed.phantom == frozenset()
    _, text = _text(parsed)
    assert "`Cluster trn-dev-cluster-eks-eksCluster` | REPLACED; lost with it: everything in Kubernetes" in text
    assert "`PersistentVolumeClaim trn-dev-training-claim` | REPLACED" in text


@pytest.mark.parametrize("document", [None, [], {}, {"steps": 1}, {"steps": []}, {"resources": []}])
def test_document_that_is_no_preview_is_refused(document):
    with pytest.raises(ValueError, match="--show-sames"):
        preview.parse(document, "dev")
