"""What the tests of components read off a recorded graph."""

import json
from pathlib import Path

import yaml

INGRESS, EGRESS = "SecurityGroupIngressRule", "SecurityGroupEgressRule"
IAM_ROLE = "aws:iam/role:Role"

REFUSED = yaml.safe_load(Path(__file__).with_name("refused.yaml").read_text())
LEAST = {name: component["least"] for name, component in REFUSED.items()}
"""The least that each component takes."""

STACK = {
    "region": "us-west-2",
    "owner": "me",
    "allowed_account_ids": ["111122223333"],
    "cluster": {"endpoint": {"public_access_cidrs": ["203.0.113.0/24"]}},
}
"""The least that a TrainingStack takes."""


def of_kind(graph, *kinds):
    """Return the resources of kinds: ``Subnet``, or ``aws:iam/role:Role`` where Kubernetes has one of that name too."""
    return tuple(each for each in graph.resources if each.type in kinds or each.type.rpartition(":")[2] in kinds)


def recorder(component, name, least):
    """Return what records a component: of this name, with these arguments and others."""
    return lambda record, **args: record(lambda: component(name, {**least, **args}))


def one(graph, kind, ending=""):
    """Return the only resource of a kind, among those whose name ends so."""
    (found,) = (each for each in of_kind(graph, kind) if each.name.endswith(ending))
    return found


def releases(graph):
    """Return Helm releases by their name in the cluster."""
    return {each.inputs["name"]: each for each in of_kind(graph, "Release")}


def statements(graph, ending=""):
    """Return the statements of the only inline policy whose name ends so."""
    return json.loads(one(graph, "RolePolicy", ending).inputs["policy"])["Statement"]
