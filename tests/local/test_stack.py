"""The whole dev environment on this machine, by the command line, as a user has it."""

import json

import pytest
import yaml
from local_project import ROOT, repository_cloud
from typer.testing import CliRunner
from waiting import until

from trainium_eks.cli.app import app
from trainium_eks.kube.api import Api
from trainium_eks.local.images import images

CONTROL_PLANE = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "trn-pod-agent"]

# What runs besides where the machine can: the pods' network, the pods (the keeper of HyperNodes' is one) and Volcano.
BESIDES = ("trn-pod-network", "trn-pod-shim", "vc-controller-manager", "vc-scheduler", "vc-webhook-manager")

TRN1 = ("nodes", "-l", "node.kubernetes.io/instance-type=trn1.32xlarge")
GROUPS = yaml.safe_load((ROOT / "Pulumi.local.yaml").read_text())["config"]["trainium-eks:nodeGroups"]


@pytest.fixture(scope="module")
def project(binaries, tmp_path_factory):
    with repository_cloud(tmp_path_factory.mktemp("stack") / "project", volcano=False) as project:
        yield project


def trn(project, *words):
    """What a command does in this process: starting a process takes a second, and these commands are short."""
    where = ["--stack", "local", "--directory", str(project.path)]
    return CliRunner().invoke(app, [*words, *where], catch_exceptions=False)


@pytest.fixture
def volcano(project):
    if "vc-scheduler" not in project.processes("local"):
        pytest.skip("no Volcano on this machine: put its programs on PATH, or let it be built (docs/local-cloud.md)")


def test_local_stack_has_the_objects_of_dev():
    dev, local = (yaml.safe_load((ROOT / f"Pulumi.{stack}.yaml").read_text()) for stack in ("dev", "local"))
    assert dev == local


def test_up_prints_outputs_and_a_working_kubeconfig(project, tmp_path):
    outputs = project.outputs("local")
    assert outputs["queueNames"] == ["test"]
    assert [group["name"] for group in outputs["nodeGroups"]] == ["trn1-32xl-ng1", "trn1n-32xl-ng"]
    shown = (project.path / "up.txt").read_text()
    assert "queueNames" in shown
    assert "simulated" in shown
    assert "BEGIN" not in shown, "the administrator's key is not for terminals"
    (tmp_path / "kubeconfig").write_text(outputs["kubeconfig"])
    version = Api.connect(tmp_path / "kubeconfig").request("GET", "/version")
    assert (version["major"], version["minor"]) == ("1", "35")


def test_device_agents_run_only_on_trainium_nodes(project):
    nodes = {node["metadata"]["name"] for node in project.get("local", *TRN1)}

    def there():
        pods = project.get("local", "pods", "-A")
        return {pod["metadata"]["namespace"] for pod in pods if pod["spec"].get("nodeName") in nodes}

    # On a machine that stands still for a while, `up` leaves the last of them to themselves.
    until(lambda: there() == {"kube-system", "neuron-monitor"}, there)


def test_doctor_finds_no_fault_and_names_uninstalled_controllers(project):
    shown = trn(project, "doctor", "--json", "--wait", "200")
    assert shown.exit_code == 0, shown.stdout + shown.stderr
    found = json.loads(shown.stdout)["findings"]
    assert {f"server/{name}" for name in CONTROL_PLANE} <= {each["id"] for each in found if each["status"] == "pass"}
    assert "fail" not in {each["status"] for each in found}
    missing = json.loads((project.path / ".local" / "local" / "report.json").read_text())["notInstalled"]
    unknown = [each for each in found if each["status"] == "not checked" and not each["id"].startswith("objects/")]
    assert bool(unknown) == bool(missing), unknown


def test_second_up_reports_no_change_and_logs_are_shown_by_process(project):
    shown = project.trn("local", "up")
    assert shown.returncode == 0, shown.stderr
    assert "Nothing has changed" in shown.stdout
    assert "is already running" in shown.stderr
    assert "kube-apiserver" in trn(project, "local", "logs").stdout.split()
    assert trn(project, "local", "logs", "etcd", "-n", "3").stdout.count("\n") == 3
    assert "no log of 'nothing'" in trn(project, "local", "logs", "nothing").stderr


def test_user_can_act_as_a_researcher_of_a_team(project):
    researcher, *_ = project.researcher()
    assert project.kubectl("local", "auth", "can-i", "list", "pods", researcher) == "yes\n"
    assert "No resources found in training" in project.trn("local", "kubectl", researcher, "get", "pods").stderr
    with pytest.raises(AssertionError, match="Forbidden"):
        project.kubectl("local", "get", "secrets", "-A", researcher)
    shown = trn(project, "kubeconfig", "--namespace", "kube-system")
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert "not one of the stack's namespaces (training)" in shown.stderr


def test_gang_trains_to_completion(project, volcano):
    asked = ("--example", "gradient-sum", "--image", "local/python", "--nodes", "2", "--name", "gang")
    trained = project.trn("train", *asked, "--", "--steps", "20")
    assert trained.returncode == 0, trained.stdout + trained.stderr
    status = json.loads(trn(project, "status", "gang", "--json").stdout)
    assert status["job"]["state"] == "Completed"
    assert [pod["status"]["phase"] for pod in project.get("local", "pods", "-n", "training")] == ["Succeeded"] * 2


@pytest.mark.slow
def test_fabric_test_names_a_dead_rank(project, volcano):
    if images.find("torch") is None:
        pytest.skip("no image local/torch on this machine: `trn local images make torch` makes it")
    asked = ("fabric", "--group", "trn1-32xl-ng1", "--nodes", "2", "--json", "--against", "last")
    good = project.trn(*asked)
    assert good.returncode == 0, good.stdout + good.stderr
    (tested,) = json.loads(good.stdout)["groups"]
    assert {each["status"] for each in tested["findings"]} == {"pass", "not applicable"}
    bad = project.trn(*asked, "--", "--inject", "dead:1")
    assert bad.returncode == 1, bad.stdout + bad.stderr
    (tested,) = json.loads(bad.stdout)["groups"]
    (fault,) = [each for each in tested["findings"] if each["status"] == "fail" and "against" not in each["id"]]
    assert fault["id"] == "fabric/trn1-32xl-ng1/dead-rank"
    assert "rank 1 on node 1 (" in fault["text"]
    assert tested["report"]["before"]["ok"]


@pytest.mark.slow
def test_failed_gang_restarts_and_names_the_first_failed_node(project, volcano, tmp_path):
    (tmp_path / "fails.py").write_text(
        "import os, sys, time\nprint('loss 1', flush=True)\n"
        "if int(os.environ['TRN_ATTEMPT']) < 3: sys.exit(1)\n"
        "time.sleep(1 if os.environ['RANK'] == '1' else 600)\nsys.exit('no disk')\n"
    )
    script = ("--workspace", str(tmp_path), "--script", "fails.py", "--image", "local/python", "--nodes", "2")
    failed = project.trn("train", *script, "--name", "fails", "--retries", "4")
    assert failed.returncode == 1
    assert "fails restarts (4 of 4)" in failed.stderr
    assert "-- fails: node 1 (fails-trainer-1-0) ended first with exit code 1\n" in failed.stderr
    assert "trn logs fails --node 1\n" in failed.stderr
    (tmp_path / "fails.py").write_text("import no_such_module\n")
    broken = project.trn("train", *script, "--name", "broken")
    assert "broken restarts (2 of 50)\n" in broken.stderr
    assert "broken has terminated\n" in broken.stderr
    said = broken.stdout + project.trn("logs", "broken", "--node", "1").stdout  # whichever ends first says it
    assert "exit code 1 before a step, 3 times in a row: no restart mends that" in said


@pytest.mark.slow
def test_up_adds_nodes_to_a_changed_group_and_deletes_a_removed_queue(project):
    def queues():
        return {queue["metadata"]["name"] for queue in project.get("local", "queues.scheduling.volcano.sh")}

    project.configure("local", queues=[{"name": "test"}, {"name": "second"}])
    shown = project.trn("local", "up", "--nodes", "3")
    assert shown.returncode == 0, shown.stderr
    assert len(project.get("local", *TRN1)) == 3
    assert queues() >= {"second"}

    # An object deleted by a user is recreated.
    project.kubectl("local", "delete", "limitrange", "-n", "training", "defaults")
    project.configure("local", nodeGroups=[{**GROUPS[0], "desiredSize": 1}, *GROUPS[1:]])
    shown = project.trn("local", "up")
    assert shown.returncode == 0, shown.stderr
    assert "1 created" in shown.stdout
    assert "1 deleted" in shown.stdout
    assert "trn-local-volcano-second" in shown.stderr
    assert project.get("local", "limitranges", "-n", "training")
    assert len(project.get("local", *TRN1)) == 1
    assert queues() >= {"test"}
    assert "second" not in queues()


@pytest.mark.slow
def test_second_stack_killed_during_up_is_completed_and_deleted_alone(project):
    project.configure("other", queues=[{"name": "elsewhere"}], namespaces=[{"name": "team", "queues": ["elsewhere"]}])
    try:
        project.kill_when("+ Release", "local", "up", "--stack", "other")
        shown = project.trn("local", "up", "--stack", "other")
        assert shown.returncode == 0, shown.stderr
        assert [name for name in project.processes("other") if name not in BESIDES] == CONTROL_PLANE
        assert project.outputs("other")["queueNames"] == ["elsewhere"]
        assert {each["metadata"]["name"] for each in project.get("local", "namespaces")} >= {"training"}
        assert "training" not in {each["metadata"]["name"] for each in project.get("other", "namespaces")}
    finally:
        down = project.trn("local", "down", "--stack", "other")
    assert down.returncode == 0
    assert project.processes("other") == []
    assert [name for name in project.processes("local") if name not in BESIDES] == CONTROL_PLANE
    found = json.loads(trn(project, "doctor", "--json").stdout)["findings"]
    # Faults are those of the jobs that other tests have left.
    assert not [each for each in found if each["status"] == "fail" and not each["id"].startswith("faults/")]


def test_down_leaves_no_process_and_no_file(project):
    down = project.trn("local", "down")
    assert down.returncode == 0, down.stderr
    assert all(name in down.stdout for name in CONTROL_PLANE)
    until(lambda: not project.processes("local"), lambda: project.processes("local"))
    assert not (project.path / ".local").exists()
    assert "Nothing of local" in trn(project, "local", "down").stdout
