"""Every replacement and deletion that loses data or running work is reported, and nothing else: over all types and all
inputs of their rows."""

import copy
from dataclasses import replace

import pytest
from hand_built import PREFIX, STACK

from trainium_eks.operate.review import comment, review
from trainium_eks.operate.review.comment import PLATFORMS
from trainium_eks.operate.review.review import Outcome, Review
from trainium_eks.operate.review.scrubbing import Scrubber
from trainium_eks.plan.graph import STACK_TYPE, Graph, Options, Resource
from trainium_eks.plan.resource_types import registry
from trainium_eks.plan.resource_types.resource_type import When

HOLDS = {
    "kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition",
    "kubernetes:kustomize/v2:Directory",
    "aws:fsx/lustreFileSystem:LustreFileSystem",
    "aws:s3/bucket:Bucket",
    "aws:kms/key:Key",
    "aws:eks/cluster:Cluster",
    "aws:eks/nodeGroup:NodeGroup",
    "aws:ec2/instance:Instance",
    "aws:ec2/vpc:Vpc",
    "aws:ec2/subnet:Subnet",
    "aws:ecr/repository:Repository",
    "aws:amp/workspace:Workspace",
    "aws:grafana/workspace:Workspace",
    "aws:sagemaker/endpoint:Endpoint",
    "aws:cloudwatch/logGroup:LogGroup",
    "kubernetes:core/v1:PersistentVolume",
    "kubernetes:karpenter.sh/v1:NodePool",
    "kubernetes:core/v1:PersistentVolumeClaim",
}
"""What section 4d of the comment's design calls stateful, written out by hand: the rows must agree."""

_BEFORE = {"scalingConfig": {"desiredSize": 2, "minSize": 0, "maxSize": 4}, "storageCapacity": 4800}
_OTHERS = ("description", "someOtherInput", "scalingConfig.maxSize")


def _graph(*resources):
    stack = Resource(STACK, STACK_TYPE, "trainium-eks-dev", custom=False)
    bystander = Resource(f"{PREFIX}aws:iam/role:Role::other", "aws:iam/role:Role", "other", parent=STACK)
    return Graph("trainium-eks", "dev", tuple(sorted((stack, bystander, *resources), key=lambda each: each.urn)), {})


def _resource(token, path="", value=None, **options):
    inputs = copy.deepcopy(_BEFORE)
    at, (*above, last) = inputs, path.split(".")
    for step in above:
        at = at.setdefault(step, {})
    if path:
        at[last] = value
    return Resource(f"{PREFIX}{token}::it", token, "it", parent=STACK, inputs=inputs, options=Options(**options))


def _edits(token):
    """Yield a path and two values for every path that replaces the type and for some that do not."""
    for each in registry.ROWS[token].replaced_by:
        path = each.path if isinstance(each, When) else each
        pairs = [(4800, 2400), (2400, 4800), ({"a": 1}, None)] if isinstance(each, When) else [("old", "new")]
        yield from ((path, old, new) for old, new in pairs)
    yield from ((path, 3, 4) for path in _OTHERS)


def _reviewed(before, after):
    compared = review.of_plans(before, after)
    judged = Review("trainium-eks", "dev", "offline", "main", comparison=compared)
    text = comment.render(judged, PLATFORMS["github"], Scrubber())
    return compared, judged, text.partition("**Risks**")[2].partition("\n\n**")[0]


@pytest.mark.parametrize("token", sorted(registry.ROWS))
def test_review_reports_exactly_the_replacements_and_deletions_with_losses(token):
    for path, old, new in _edits(token):
        before, after = (_resource(token, path, value) for value in (old, new))
        compared, judged, risks = _reviewed(_graph(before), _graph(after))
        replaced = [change for change in compared.changes.replaced if change.resource.name == "it"]
        told = "REPLACED; lost with it" in risks
        assert told is (bool(replaced) and token in HOLDS), (path, old, new)
        if told:
            assert "1 resource with data or running work is lost" in judged.blockers, (path, old, new)
            assert f"{token.rpartition(':')[2]} it" in risks, (path, old, new)
    _, judged, risks = _reviewed(_graph(_resource(token)), _graph())
    assert ("DELETED; lost with it" in risks) is (token in HOLDS)
    assert judged.outcome is not Outcome.SAFE
    _, _, risks = _reviewed(_graph(), _graph(_resource(token)))
    assert "lost" not in risks
    _, judged, risks = _reviewed(_graph(_resource(token, protect=True)), _graph())
    assert "to be deleted, but protected: Pulumi refuses" in risks
    accepted = replace(judged, losses_accepted=True)
    assert accepted.outcome is Outcome.BLOCKED, "a label does not unprotect"
