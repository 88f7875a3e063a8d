"""The gate of accelerator nodes, by its own pod and the real fabric test: nodes join closed, open when the test passes,
close with a reboot, and no restart opens one."""

import json
import os
import signal

import psutil
import pytest
import yaml
from local_project import repository_cloud
from manifests import manifest, pod_spec
from waiting import until

from trainium_eks.local.images import images
from trainium_eks.model.catalogue.instances import FABRIC_UNTESTED
from trainium_eks.topology.gate import CONDITION, PASSED

pytestmark = pytest.mark.slow

DEPLOYMENT = ("-n", "fabric-gate", "deployment/fabric-gate")


class Cloud:
    def __init__(self, project):
        self.project = project

    def nodes(self):
        found = self.project.get("local", "nodes", "-l", "trainium-eks/pool=trn1-32xl-ng1")
        return {each["metadata"]["name"]: each for each in found}

    def closed(self):
        return {
            name
            for name, each in self.nodes().items()
            if any(taint["key"] == FABRIC_UNTESTED.key for taint in each["spec"].get("taints", ()))
        }

    def reboot(self, name, boot):
        status = {"status": {"nodeInfo": {"bootID": boot}}}
        self.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", json.dumps(status))

    def controller_log(self):
        return self.kubectl("logs", *DEPLOYMENT)

    def opened(self):
        until(lambda: not self.closed(), self.controller_log)

    def change(self, edit, inject=""):
        """Change the gate's settings, which starts it anew; the test gets a fault, or none."""
        made = json.loads(self.kubectl("get", *DEPLOYMENT, "-o", "json"))
        variables = made["spec"]["template"]["spec"]["containers"][0]["env"]
        (own,) = [each for each in variables if each["name"] == "SETTINGS"]
        settings = {**json.loads(own["value"]), **edit}
        command = settings["pools"]["trn1-32xl-ng1"]["template"]["spec"]["containers"][0]["command"]
        command[-1] = command[-1].partition(" --inject ")[0] + (f" --inject {inject}" if inject else "")
        own["value"] = json.dumps(settings)
        self.kubectl("replace", "-f", "-", given=json.dumps(made))
        self.kubectl("rollout", "status", *DEPLOYMENT, "--timeout=300s")

    def kubectl(self, *arguments, given=""):
        return self.project.kubectl("local", *arguments, given=given)


@pytest.fixture(scope="module")
def cloud(binaries, tmp_path_factory):
    if images.find("torch") is None:
        pytest.skip("no image local/torch on this machine: `trn local images make torch` makes it")
    gate = {"images": {"trn1": "local/torch"}}
    folder = tmp_path_factory.mktemp("gate")
    with repository_cloud(folder, environment={}, volcano=False, fabricGate=gate) as project:
        yield Cloud(project)


def test_passing_test_opens_the_nodes(cloud):
    cloud.opened()
    for each in cloud.nodes().values():
        assert each["metadata"]["labels"][PASSED] == each["status"]["nodeInfo"]["bootID"]
        assert {one["type"]: one["status"] for one in each["status"]["conditions"]}[CONDITION] == "True"
    until(lambda: not cloud.project.get("local", "jobs", "-n", "fabric-gate"), "the test's Job goes")


def test_nodes_are_closed_on_join_and_reboot_and_a_restart_opens_none(cloud):
    cloud.change({"settleSeconds": 3600})
    assert not cloud.closed()
    for name in cloud.nodes():
        cloud.reboot(name, "second")
    until(lambda: cloud.closed() == set(cloud.nodes()), cloud.controller_log)
    cloud.kubectl("rollout", "restart", *DEPLOYMENT)
    cloud.kubectl("rollout", "status", *DEPLOYMENT, "--timeout=300s")
    assert len(cloud.closed()) == 2
    for process in psutil.process_iter(["name", "cmdline"]):
        words = " ".join(process.info["cmdline"] or ())
        is_ours = process.info["name"] in ("kube-apiserver", "etcd") or "agent.agent" in words
        if is_ours and str(cloud.project.path) in words:
            os.kill(process.pid, signal.SIGKILL)
    up = cloud.project.trn("local", "up", "--nodes", "3")
    assert up.returncode == 0, up.stderr[-3000:]
    assert len(cloud.closed()) == 3


def test_failing_node_is_cordoned_and_the_other_opens(cloud):
    cloud.change({"settleSeconds": 3600})
    *pair, third = sorted(cloud.nodes())
    cloud.kubectl("cordon", third)
    for name in cloud.nodes():
        cloud.reboot(name, "third")
    until(lambda: len(cloud.closed()) == 3, cloud.controller_log)
    cloud.change({"settleSeconds": 1}, inject="dead:1")
    until(lambda: len(cloud.closed()) == 2, cloud.controller_log, seconds=600)
    # A node that a person holds is not tested.
    (bad,) = cloud.closed() - {third}
    node = cloud.nodes()[bad]
    assert node["spec"].get("unschedulable"), cloud.controller_log()
    (shown,) = [each for each in node["status"]["conditions"] if each["type"] == CONDITION]
    assert (shown["status"], "rank 1 on node 1" in shown["message"]) == ("False", True)
    events = cloud.project.get("local", "events", "--field-selector", f"involvedObject.name={bad}")
    assert "FabricTestFailed" in {each["reason"] for each in events}
    (good,) = {*pair} - {bad}
    assert not cloud.nodes()[good]["spec"].get("unschedulable")

    cloud.change({"settleSeconds": 1})
    cloud.kubectl("uncordon", third)
    until(lambda: cloud.closed() == {bad}, cloud.controller_log)
    tests = [each.partition(" tests ")[2] for each in cloud.controller_log().splitlines() if " tests " in each]
    assert tests == [f"{third}, {good}"], "an idle open node is the partner of a single one"


def test_a_team_cannot_tolerate_the_gate(cloud):
    researcher = cloud.project.researcher()
    for tolerated in ({"key": FABRIC_UNTESTED.key, "operator": "Exists"}, {"operator": "Exists"}):
        pod = manifest("Pod", "early", spec=pod_spec("local/python", tolerations=[tolerated]))
        with pytest.raises(AssertionError, match="must not tolerate all taints"):
            cloud.kubectl("create", *researcher, "-f", "-", given=yaml.safe_dump(pod))
