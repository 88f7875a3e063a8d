"""A recorded environment in which every rule passes, and a program of its resources that a test may change."""

import base64
import copy
import json
import re
import runpy
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import dotted
import yaml
from golden import ROOT

from trainium_eks.model.config import karpenter
from trainium_eks.plan.graph import STACK_TYPE, Graph, Options, Resource
from trainium_eks.plan.recording.program import record_program

STACK_URN = f"urn:pulumi:test::trainium-eks::{STACK_TYPE}::trainium-eks-test"
STACK = Resource(STACK_URN, STACK_TYPE, "trainium-eks-test", custom=False)

CONFIG = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
DROP = dotted.DROP


class Entry(SimpleNamespace):
    """One resource that a test may still change."""

    def __init__(self, resource):
        held = {name: copy.deepcopy(getattr(resource, name)) for name in ("inputs", "outputs", "property_dependencies")}
        options, dependencies = dict(vars(resource.options)), list(resource.dependencies)
        super().__init__(**{**vars(resource), **held, "options": options, "dependencies": dependencies})

    def resource(self):
        return Resource(**{**vars(self), "dependencies": tuple(self.dependencies), "options": Options(**self.options)})


class Program:
    """A program that a test changes; ``graph()`` is what a rule sees of it."""

    def __init__(self, graph=Graph("trainium-eks", "test", (STACK,), {})):  # noqa: B008 - frozen
        self.config = copy.deepcopy(dict(graph.config))
        self.outputs = dict(graph.outputs)
        names = Counter(map(short, graph.resources))
        self.entries = {
            f"{each.type.rpartition(':')[2]} {name}" if names[name] > 1 else name: each
            for each in graph.resources
            for name in (short(each),)
        }

    def add(self, name, type_, inputs=None, **rest):
        """Adds a resource; AWS and Kubernetes get an explicit provider, which has their name."""
        provider = self.entries.get(type_.partition(":")[0])
        rest = {"parent": STACK_URN, "provider": provider.urn if provider else "", **rest}
        urn = f"urn:pulumi:test::trainium-eks::{type_}::{name}"
        self.entries[name] = Resource(urn, type_, name, inputs=inputs or {}, **rest)
        return self[name]

    def __getitem__(self, name):
        """Returns what may be changed; most resources stay as they were recorded, which takes no time."""
        if isinstance(found := self.entries[name], Resource):
            found = self.entries[name] = Entry(found)
        return found

    def drop(self, *names):
        for name in names:
            del self.entries[name]

    def put(self, name, path, value):
        """Sets an input at a dotted path; DROP removes it, a function gets the old one."""
        dotted.put(self[name].inputs, path, value)
        # A value of the test's comes from no resource.
        self[name].property_dependencies.pop(path, None)

    def edit(self, name, path, change):
        """Changes keys of a JSON document that an input holds as text."""
        self[name].inputs[path] = json.dumps({**json.loads(self[name].inputs[path]), **change})

    def graph(self):
        made = (each if isinstance(each, Resource) else each.resource() for each in self.entries.values())
        resources = sorted(made, key=lambda each: each.urn)
        return Graph("trainium-eks", "test", tuple(resources), outputs=self.outputs, config=self.config)


def short(resource):
    return re.sub("^trn-test-(cluster-|network-)?", "", resource.name)


def environment():
    """A production environment with a reservation, a Capacity Block and every optional part, as it should be."""
    return Program(_recorded())


@cache
def _recorded():
    """The environment with readable ids and images by digest. The config lets a stack have one autoscaler; here
    Karpenter's nodes are in one program with a group of Cluster Autoscaler, so that it has every type."""
    config = {
        f"trainium-eks:{key}": each if isinstance(each, str) else json.dumps(each) for key, each in CONFIG.items()
    }
    with mock.patch.object(karpenter, "validate", return_value=[]):
        graph = record_program(lambda: runpy.run_path(str(ROOT / "__main__.py"), run_name="__main__"), config=config)
    graph = replace(graph, resources=tuple(each for each in graph.resources if "autoscaler-cpu" not in each.name))
    text = json.dumps(graph.to_json())
    for each in graph.resources:
        identity = str(each.outputs.get("id"))
        if prefix := re.fullmatch(r"(.+)-sim-[0-9a-f]{8}", identity):
            text = text.replace(identity, f"{prefix[1]}-{short(each)}" if len(prefix[1]) < 9 else prefix[1])
    text = re.sub(r"(public\.ecr\.aws/docker/library/\w+:[\w.-]+)(?!@)\b", rf"\1@sha256:{'0' * 64}", text)
    return Graph.from_json(json.loads(text))


def policy(*statements):
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


_PODS = {"Principal": {"Service": "pods.eks.amazonaws.com"}, "Action": ["sts:AssumeRole", "sts:TagSession"]}
POD_TRUST = policy({"Effect": "Allow", **_PODS})


def user_data(*parts):
    lines = ["MIME-Version: 1.0", 'Content-Type: multipart/mixed; boundary="=="', ""]
    for part in parts:
        lines += ["--==", 'Content-Type: text/x-shellscript; charset="us-ascii"', "", part]
    return base64.b64encode("\n".join([*lines, "--==--", ""]).encode()).decode()


def kubeconfig(**user):
    exec_ = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "aws", "args": ["eks", "get-token"]}
    users = [{"name": "aws", "user": user or {"exec": exec_}}]
    return json.dumps({"apiVersion": "v1", "kind": "Config", "users": users})


def node_group(program, name, type_, *, ami="AL2023_x86_64_NEURON", efa=0):
    """Adds a managed node group and its launch template, like the group `base`."""
    like, own = (program[f"base-{each}"] for each in ("template", "nodes"))
    made = {"id": f"lt-{name}", "latestVersion": 1}
    template = program.add(f"{name}-template", like.type, copy.deepcopy(like.inputs), outputs=made)
    first, other, *_ = template.inputs.pop("networkInterfaces")
    if efa:
        template.inputs["networkInterfaces"] = [first, *({**other, "networkCardIndex": n} for n in range(1, efa))]
    del template.inputs["placement"]
    group = program.add(name, own.type, copy.deepcopy(own.inputs))
    group.options = own.options
    group.property_dependencies["launchTemplate"] = (template.urn,)
    group.inputs.update(amiType=ami, instanceTypes=[type_], launchTemplate={"id": f"lt-{name}", "version": "1"})
    if not ami.endswith("NEURON"):
        group.inputs["taints"][0]["key"] = "nvidia.com/gpu"
        group.inputs["labels"]["nvidia.com/gpu.present"] = "true"
    return group


def release(program, chart, namespace, values, version):
    inputs = {"chart": chart, "namespace": namespace, "values": values, "name": chart, "version": version}
    return program.add(chart, "kubernetes:helm.sh/v3:Release", inputs)
