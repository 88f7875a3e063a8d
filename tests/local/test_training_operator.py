"""The repository's GPU environment on the local cloud: PyTorchJobs by the real Training Operator and gangs by the real
Volcano, submitted as a researcher on simulated p4d nodes."""

import json
import re

import pytest
import yaml
from local_project import REAL_VOLCANO, ROOT, TIMEOUT_SECONDS, LocalProject
from waiting import until

from trainium_eks.local import toolchain
from trainium_eks.local.images import images

pytestmark = pytest.mark.slow

SUM = ("train", "--kind", "pytorchjob", "--example", "gradient-sum", "--image", "local/python")

WAITS_TO_BE_KILLED = """
import os, pathlib, time
from trainium_workloads import allreduce
gang = allreduce.join()
output = pathlib.Path(os.environ["TRN_OUTPUT_DIR"])
output.mkdir(parents=True, exist_ok=True)
starts = len([*output.glob(f"{gang.rank}-*")]) + 1
(output / f"{gang.rank}-{starts}").touch()
print(f"rank {gang.rank} of {gang.world_size}: start {starts}", flush=True)
while starts == 1:
    gang.sum([1.0])
    time.sleep(0.1)
gang.sum([1.0])
gang.close()
"""
"""The first time it goes on for ever, the second time it ends."""


class Team:
    def __init__(self, project):
        self.project = project
        self._researcher = project.researcher("gpu")

    def trn(self, *arguments):
        shown = self.project.trn(*arguments)
        assert shown.returncode == 0, (arguments, shown.stderr, shown.stdout)
        return shown.stdout

    def kubectl(self, *arguments, given=""):
        return self.project.kubectl("gpu", *self._researcher, *arguments, given=given)

    def get(self, *arguments):
        return self.project.get("gpu", *self._researcher, *arguments)

    def pods(self, job):
        found = self.get("pods", "-l", f"training.kubeflow.org/job-name={job}")
        return {each["metadata"]["name"]: each for each in found}

    def log(self, job):
        """Of all its nodes, as far as there is one."""
        return self.project.trn("logs", job, "--all").stdout

    def state(self, job):
        return str(json.loads(self.project.trn("status", job, "--json").stdout)["job"]["state"])


@pytest.fixture(scope="module")
def team(binaries, volcano_programs, tmp_path_factory, progress):
    """A local cloud with Volcano and the operator. Built the first time, which takes a minute or two: that is shown."""
    try:
        toolchain.provide(toolchain.TRAINING_OPERATOR, progress=progress)
    except toolchain.UnavailableError as error:
        pytest.skip(f"no Training Operator: {error.last}")
    folder = tmp_path_factory.mktemp("operator")
    project = LocalProject.of_the_repository(folder, TRN_TRAINING_OPERATOR="", **REAL_VOLCANO)
    (project.path / "Pulumi.gpu.yaml").symlink_to(ROOT / "Pulumi.gpu.yaml")
    with project.up("gpu", volcano=True) as said:
        assert "The Training Operator runs for real (started)" in said
        yield Team(project)
    assert project.processes("gpu") == []


def test_training_job_completes_and_its_log_is_followed(team):
    shown = team.trn(*SUM, "--name", "whole", "--", "--steps", "10")
    assert "rank 1: the gradients' sum is 3; 2 of 2 ranks agree" in team.trn("logs", "whole", "--all")
    assert '"step": 10' in shown
    assert "10/10" in team.trn("jobs")
    assert team.state("whole") == "Completed"
    assert "has ended and is removed" in team.trn("cancel", "whole")
    assert team.pods("whole") == {}


def test_model_is_tuned_fully_sharded_by_torchrun(team):
    if images.find("torch") is None:
        pytest.skip("no local/torch here: `trn local images make torch`")
    small = ("--model", "tiny", "--seq-len", "64", "--synthetic", "256", "--steps", "12", "--warmup-steps", "2")
    asked = (*SUM[:3], "--example", "finetune", "--image", "local/torch", "--name", "tuned")
    shown = team.trn(*asked, "--", *small, "--learning-rate", "0.003")
    losses = [float(found) for found in re.findall(r'"step": \d+.*?"loss": ([\d.]+)', shown)]
    assert len(losses) == 12
    assert losses[-1] < losses[0]
    assert "2 ranks on cpu" in shown
    assert team.state("tuned") == "Completed"


def test_training_job_is_a_gang_in_its_queue_and_restarts_after_a_kill(team):
    (team.project.path / "waits.py").write_text(WAITS_TO_BE_KILLED)
    team.trn(*SUM[:3], "--script", "waits.py", *SUM[5:], "--name", "gang", "--detach")
    until(lambda: "rank 1 of 2: start 1" in team.log("gang"), "the gang runs", TIMEOUT_SECONDS)
    [group] = [each for each in team.get("podgroups.scheduling.volcano.sh") if each["metadata"]["name"] == "gang"]
    assert (group["spec"]["queue"], group["spec"]["minMember"]) == ("test", 2)
    assert group["spec"]["minResources"]["nvidia.com/gpu"] == "16"
    before = team.pods("gang")
    assert {each["spec"]["schedulerName"] for each in before.values()} == {"volcano"}
    assert len({each["spec"]["nodeName"] for each in before.values()}) == 2
    kill = "pkill -9 -f -- '-u [w]aits.py'"
    team.project.trn("local", "exec", "gang-worker-1", "-n", "training", "--", "sh", "-c", kill)
    until(lambda: team.state("gang") == "Completed", "the gang starts anew and ends well", TIMEOUT_SECONDS)
    now = team.pods("gang")
    assert len(now) == 2
    assert all(now[name]["metadata"]["uid"] != before[name]["metadata"]["uid"] for name in now)
    assert "rank 0 of 2: start 2" in team.log("gang")


def test_refused_job_ends_without_restart(team):
    team.trn(*SUM, "--name", "refused", "--detach", "--data", "nothing/here")
    until(lambda: team.state("refused") == "Failed", "the job fails")
    assert "nothing/here is not on the shared volume" in team.trn("logs", "refused")
    # The other node, which waited for the first, does not wait on.
    until(lambda: list(team.pods("refused")) == ["refused-worker-0"], "the other pod goes")


def test_faults_of_the_training_job_are_counted(team):
    shown = team.project.trn(
        *SUM[:3], "--module", "nothing.here", *SUM[5:], "--name", "faulty", "--retries", "2", "--wait"
    )
    assert shown.returncode == 1
    assert "fault 2 of this node; --retries 2: the job ends" in team.trn("logs", "faulty", "--all")


def test_pytorch_job_without_its_teams_queue_is_refused(team):
    """A PyTorchJob that names no queue, or another's, is refused."""
    made = yaml.safe_load(team.trn(*SUM, "--name", "stray", "--dry-run"))
    own = made["spec"]["runPolicy"]["schedulingPolicy"]
    for policy in ({}, {"queue": "default"}):
        made["spec"]["runPolicy"]["schedulingPolicy"] = policy
        with pytest.raises(AssertionError, match="queue must be one of this namespace's queues: test"):
            team.kubectl("create", "-f", "-", given=yaml.safe_dump(made))
    made["spec"]["runPolicy"]["schedulingPolicy"] = own
    made["metadata"]["name"] = "Not-A-Name"
    with pytest.raises(AssertionError, match=r"admission webhook|Invalid value"):
        team.kubectl("create", "-f", "-", given=yaml.safe_dump(made))
