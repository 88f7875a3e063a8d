"""The real Karpenter with the real Volcano: CPU nodes up and down, gangs from zero nodes, and what goes wrong.

Times, and what else Karpenter does to gangs, are in docs/decisions/0064-karpenter.md.
"""

import json
import time
from contextlib import contextmanager

import pytest
from local_project import REAL_VOLCANO, ROOT, LocalProject
from manifests import deployment, gang, pod_spec
from waiting import until

from trainium_eks.local import toolchain

pytestmark = pytest.mark.slow

SECONDS = 600.0
"""On a machine that does much else; some seconds otherwise."""
STACK = "local"
GROUP = {"name": "trn1", "instanceType": "trn1.32xlarge", "minSize": 0, "maxSize": 4, "desiredSize": 0}
NODE = {"aws.amazon.com/neuron": 16, "vpc.amazonaws.com/efa": 8}
LIMITS = {"cpu": {"cpu": "64"}, "trn1": {"aws.amazon.com/neuron": "64"}}
"""What each pool may have in all."""

PROGRAM = """
import pulumi_kubernetes as k8s

inside = pulumi.ResourceOptions(provider=stack._base.cluster.provider, depends_on=[stack])
chart = k8s.helm.v3.Release(
    "karpenter",
    chart="oci://public.ecr.aws/karpenter/karpenter",
    version="1.15.0",
    namespace="kube-system",
    opts=inside,
)


def made(kind, name, spec, version="karpenter.sh/v1"):
    options = pulumi.ResourceOptions(provider=stack._base.cluster.provider, depends_on=[chart])
    k8s.apiextensions.CustomResource(
        name + kind.lower(), api_version=version, kind=kind, metadata={"name": name}, spec=spec, opts=options
    )


made("EC2NodeClass", "any", {"amiSelectorTerms": [{"alias": "al2023@latest"}]}, "karpenter.k8s.aws/v1")


def pool(name, requirements, taints, limits, disruption):
    node = {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "any"},
        "requirements": [{"key": key, "operator": "In", "values": values} for key, values in requirements.items()],
        "taints": taints,
    }
    made("NodePool", name, {"template": {"spec": node}, "limits": limits, "disruption": disruption})


pool(
    "cpu",
    {"karpenter.sh/capacity-type": ["on-demand"], "karpenter.k8s.aws/instance-family": ["m7i"]},
    [],
    LIMITS["cpu"],
    {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "5s"},
)
pool(
    "trn1",
    {
        "karpenter.sh/capacity-type": ["on-demand"],
        "node.kubernetes.io/instance-type": ["trn1.32xlarge"],
        "topology.k8s.aws/zone-id": [config.node_groups[0].zone_id or "usw2-az4"],
    },
    [{"key": "aws.amazon.com/neuron", "value": "true", "effect": "NoSchedule"}],
    LIMITS["trn1"],
    {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "5s", "budgets": [{"nodes": "100%"}]},
)
"""
"""What is added to the repository's program: Karpenter's chart, and two pools by hand."""


class Cloud:
    """The local cloud of these tests, and what is looked at in it."""

    def __init__(self, project):
        self.project = project

    def kubectl(self, *arguments):
        return self.project.kubectl(STACK, *arguments)

    def nodes(self, pool):
        return self.project.get(STACK, "nodes", "-l", f"karpenter.sh/nodepool={pool}")

    def claims(self, pool):
        return self.project.get(STACK, "nodeclaims", "-l", f"karpenter.sh/nodepool={pool}")

    def pods(self, app):
        return self.project.get(STACK, "pods", "-n", "default", "-l", f"app={app}")

    def running(self, app):
        return sum(each["status"]["phase"] == "Running" for each in self.pods(app))

    def reasons(self, app):
        """Why each pod is not scheduled, in Volcano's one word."""
        found = [condition for pod in self.pods(app) for condition in pod["status"].get("conditions") or ()]
        return sorted(str(each.get("reason")) for each in found if each["type"] == "PodScheduled")

    def until(self, done, what):
        until(done, what, SECONDS)

    def gang(self, name, nodes):
        amounts = {resource: str(count) for resource, count in NODE.items()}
        self.project.apply(STACK, gang(name, "default", "test", nodes, pod_spec("none", amounts), app=name))

    def change(self, pool, **spec):
        self.kubectl("patch", "nodepool", pool, "--type=merge", "-p", json.dumps({"spec": spec}))

    @contextmanager
    def closed(self, pool):
        """Karpenter buys nothing until the end.

        It buys for those pods that it finds at one look, and a busy machine shows it one at a time.
        """
        self.change(pool, limits=dict.fromkeys(LIMITS[pool], "0"))
        yield
        self.change(pool, limits=LIMITS[pool])

    def until_waiting(self, app, pods):
        self.until(lambda: self.reasons(app) == ["Unschedulable"] * pods, f"{pods} pods wait")

    def without_nodes(self):
        self.until(lambda: not self.claims("trn1") and not self.nodes("trn1"), "the nodes are gone")


@pytest.fixture(scope="module")
def cloud(binaries, volcano_programs, tmp_path_factory, progress):
    """A local cloud with Volcano and Karpenter. Built the first time, which takes minutes: that is shown."""
    try:
        toolchain.provide(toolchain.KARPENTER, progress=progress)
    except toolchain.UnavailableError as error:
        pytest.skip(f"no Karpenter: {error.last}")
    path = tmp_path_factory.mktemp("karpenter")
    project = LocalProject.of_the_repository(path, TRN_KARPENTER="", **REAL_VOLCANO)
    (path / "__main__.py").unlink()
    (path / "__main__.py").write_text(f"{(ROOT / '__main__.py').read_text()}\nLIMITS = {LIMITS}\n{PROGRAM}")
    project.configure(STACK, nodeGroups=[GROUP])
    with project.up(STACK, volcano=True) as said:
        assert "Karpenter runs for real (started)" in said
        yield Cloud(project)
    assert project.processes(STACK) == []


def test_cpu_nodes_come_for_pods_that_wait_and_go_when_they_are_not_needed(cloud):
    resources = {"requests": {"cpu": "3", "memory": "1Gi"}}
    container = {"name": "main", "image": "none", "resources": resources}
    pod = {"nodeSelector": {"karpenter.sh/nodepool": "cpu"}, "containers": [container]}
    with cloud.closed("cpu"):
        cloud.project.apply(STACK, deployment("burst", "default", pod, replicas=10))
        cloud.until_waiting("burst", 10)
    cloud.until(lambda: cloud.running("burst") == 10, "10 pods of 3 CPU run")
    [node] = cloud.nodes("cpu")
    assert node["metadata"]["labels"]["node.kubernetes.io/instance-type"] == "m7i.8xlarge"
    cloud.kubectl("scale", "deployment/burst", "-n", "default", "--replicas=1")

    def types():
        return [each["metadata"]["labels"]["node.kubernetes.io/instance-type"] for each in cloud.nodes("cpu")]

    cloud.until(lambda: types() == ["m7i.xlarge"], "the one pod that is left is on the smallest node")
    cloud.until(lambda: cloud.running("burst") == 1, "it runs there")
    cloud.kubectl("delete", "deployment/burst", "-n", "default")
    cloud.until(lambda: not cloud.nodes("cpu"), "no CPU node without pods")


def test_a_gang_gets_its_nodes_from_zero_and_they_go_after_it(cloud):
    assert cloud.nodes("trn1") == []
    with cloud.closed("trn1"):
        cloud.gang("whole", 2)
        cloud.until_waiting("whole", 2)
    cloud.until(lambda: cloud.running("whole") == 2, "a gang of 2 runs from zero nodes")
    nodes = cloud.nodes("trn1")
    assert len(nodes) == 2
    assert {each["status"]["allocatable"]["vpc.amazonaws.com/efa"] for each in nodes} == {"8"}
    assert len({each["metadata"]["labels"]["topology.kubernetes.io/zone"] for each in nodes}) == 1
    cloud.kubectl("delete", "vcjob", "-n", "default", "whole")
    cloud.without_nodes()


def test_one_leftover_node_keeps_a_larger_gang_pending(cloud):
    """Volcano says Schedulable of the pod that fits there, and Karpenter counts only what is Unschedulable: it sends
    the other pod to that node, again and again, and never takes the node away."""
    cloud.gang("first", 1)
    cloud.until(lambda: cloud.running("first") == 1, "a gang of 1 runs")
    # However long it takes until the second gang is there, its node is not yet gone.
    cloud.change("trn1", disruption={"consolidateAfter": "1h"})
    cloud.kubectl("delete", "vcjob", "-n", "default", "first")
    cloud.gang("second", 2)
    cloud.until(lambda: cloud.reasons("second") == ["Schedulable", "Unschedulable"], "one pod of two has a place")
    cloud.change("trn1", disruption={"consolidateAfter": "5s"})
    [left] = cloud.claims("trn1")
    begun = time.monotonic()
    while time.monotonic() < begun + 25:
        assert (cloud.running("second"), len(cloud.claims("trn1"))) == (0, 1)
        time.sleep(1.0)
    with cloud.closed("trn1"):
        cloud.kubectl("delete", "nodeclaim", left["metadata"]["name"], "--wait=false")
        cloud.without_nodes()
        cloud.until_waiting("second", 2)
    cloud.until(lambda: cloud.running("second") == 2, "the gang of 2 runs after the node was taken away")
    cloud.kubectl("delete", "vcjob", "-n", "default", "second")
    cloud.kubectl("delete", "nodeclaims", "--all", "--wait=false")
    cloud.without_nodes()


def test_karpenter_survives_the_next_up_and_is_removed_with_its_chart(cloud):
    up = cloud.project.trn("local", "up")
    assert up.returncode == 0, up.stderr[-3000:]
    said = up.stdout + up.stderr
    assert "Karpenter runs for real:" in said
    assert cloud.project.processes(STACK).count("karpenter") == 1
    [pool] = [each for each in cloud.project.get(STACK, "nodepools") if each["metadata"]["name"] == "trn1"]
    assert pool["spec"]["template"]["spec"]["nodeClassRef"]["kind"] == "KWOKNodeClass"
    cloud.gang("last", 1)
    cloud.until(lambda: cloud.running("last") == 1, "a gang of 1 runs")
    (cloud.project.path / "__main__.py").write_text((ROOT / "__main__.py").read_text())
    up = cloud.project.trn("local", "up")
    assert up.returncode == 0, up.stderr[-3000:]
    assert "karpenter" not in cloud.project.processes(STACK)
    assert cloud.project.get(STACK, "nodes", "-l", "karpenter.sh/nodepool") == []
