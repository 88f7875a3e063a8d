"""The committed environments, each recorded from the very program that `pulumi up` runs. What the rules and the golden
plan see (who protects data, which network is adopted, which zone holds the files) is tested there."""

import json

import full_environments
import golden
import pytest
from golden import recorded
from kubernetes_schemas import schema_faults

from trainium_eks.model.config import namespaces
from trainium_eks.model.config import stack_config as model
from trainium_eks.model.outputs import StackOutputs
from trainium_eks.model.sizing import bill
from trainium_eks.model.validation.config_model import read
from trainium_eks.plan import cost, timeline
from trainium_eks.plan.graph import UNKNOWN
from trainium_eks.plan.reading import leaves
from trainium_eks.plan.rules import judge


def _config(graph):
    return read(model.StackConfig, graph.config)


def test_every_failed_rule_has_a_reasoned_waiver(graph):
    verdicts = judge(graph)
    assert {verdict.id: verdict.findings for verdict in verdicts if verdict.status == "fail"} == {}
    assert {verdict.reason != "" for verdict in verdicts if verdict.status == "waived"} == {True}
    assert [problem for problem in model.validate(_config(graph)) if ".guarantee" in problem.path] == []


def test_team_cannot_use_a_namespace_of_the_stack(graph):
    teams = {namespace.name for namespace in _config(graph).namespaces}
    made = {each.inputs["metadata"]["name"] for each in graph.of_type("kubernetes:core/v1:Namespace")}
    released = {each.inputs["namespace"] for each in graph.of_type("kubernetes:helm.sh/v3:Release")}
    assert made - teams
    assert made - teams <= set(namespaces.STACK)
    assert released <= {*namespaces.STACK, "kube-system"}


def test_time_to_ready_is_within_five_percent_of_the_bound(graph):
    modelled = timeline.model(graph)
    assert (modelled.forbidden_edges, modelled.missing_edges) == ((), ())
    assert modelled.seconds <= 1.05 * modelled.lower_bound_seconds
    assert modelled.serial_seconds >= 2 * modelled.seconds


def test_outputs_parse_and_contain_the_graphs_cost(graph):
    outputs = StackOutputs.parse(graph.outputs)
    config = _config(graph)
    assert outputs.queue_names == tuple(queue.name for queue in config.queues)
    assert [group.name for group in outputs.node_groups] == [group.name for group in config.node_groups]
    assert outputs.kubeconfig == "[secret]"
    assert cost.estimate(graph).hourly_usd == pytest.approx(bill.of_config(_config(graph)).hourly_usd, abs=0.005)
    assert graph.outputs["hourlyUsd"] == pytest.approx(cost.estimate(graph).hourly_usd, abs=0.005)


def test_kubernetes_objects_satisfy_their_schemas(graph):
    assert schema_faults(graph) == []


def test_plan_equals_the_golden_plan(graph):
    expected = json.loads((golden.FOLDER / f"{graph.stack}.json").read_text())
    changes = list(golden.changes(expected, json.loads(golden.text(graph))))
    assert not changes, "\n".join(["if that is meant, `make golden`; see tests/golden.py", *changes])


@pytest.mark.parametrize("stack", ["dev", *(pytest.param(each, marks=pytest.mark.slow) for each in ("prod", "gpu"))])
def test_first_preview_registers_the_same_resources_as_up(stack):
    preview, graph = recorded(stack, dry_run=True), recorded(stack)
    assert {each.inputs["clusterName"] for each in preview.of_type("aws:eks/nodeGroup:NodeGroup")} == {UNKNOWN}
    for before, after in zip(preview.resources, graph.resources, strict=True):
        assert (before.urn, before.type, before.options) == (after.urn, after.type, after.options)
        for name, value in before.inputs.items():
            if UNKNOWN not in str(value):
                assert value == after.inputs[name], f"{before.urn} {name}"


def test_launched_instances_have_all_tags_and_a_new_tag_replaces_none(graph):
    """The provider's default tags do not reach instances, volumes and interfaces."""
    (provider,) = graph.of_type("pulumi:providers:aws")
    tags = json.loads(str(provider.inputs["defaultTags"]))["tags"]
    assert {"Environment", "Owner", "CostCenter", "ManagedBy"} <= set(tags)
    templates = graph.of_type("aws:ec2/launchTemplate:LaunchTemplate")
    assert templates
    for template in templates:
        specifications = {each["resourceType"]: each["tags"] for each in template.inputs["tagSpecifications"]}
        assert set(specifications) == {"instance", "volume", "network-interface"}
        assert all(set(tags.items()) < set(each.items()) for each in specifications.values())
    # Another tag is ignored by the launch template, and is on the Auto Scaling group of every node group.
    for template in templates:
        assert template.options.ignore_changes == ("tagSpecifications",)
    handed_on = {}
    for tag in graph.of_type("aws:autoscaling/tag:Tag"):
        if tag.inputs["tag"]["propagateAtLaunch"]:
            handed_on.setdefault(tag.inputs["autoscalingGroupName"], set()).add(tag.inputs["tag"]["key"])
    assert len(handed_on) == len(graph.of_type("aws:eks/nodeGroup:NodeGroup"))
    assert all(keys >= {"Owner", "CostCenter"} for keys in handed_on.values())


@pytest.mark.slow
@pytest.mark.parametrize("dry_run", [True, False])
def test_cache_transform_changes_only_images(dry_run):
    """On a whole environment."""
    without, given = (
        full_environments.changed(
            "prod", lambda config, cache=cache: {**config, "trainium-eks:imageCache": cache}, dry_run=dry_run
        )
        for cache in ("null", "{}")
    )
    direct = {each.urn: each for each in without.resources}
    cached = [each for each in given.resources if each.urn in direct]
    assert len(cached) == len(direct)
    other = {
        value
        for each in cached
        for path, value in leaves(each.inputs)
        if value != dict(leaves(direct[each.urn].inputs)).get(path)
    }
    assert len(other) > 5
    assert [each for each in other if not str(each).startswith("123456789012.dkr.ecr.us-west-2.amazonaws.com/")] == []
    for each in cached:
        before = direct[each.urn]
        assert (each.options, each.property_dependencies) == (before.options, before.property_dependencies)
        assert {path for path, _ in leaves(before.inputs)} <= {path for path, _ in leaves(each.inputs)}
