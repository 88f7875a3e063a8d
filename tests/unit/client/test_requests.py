"""What becomes of errors, options and sizes on the way to a cluster: failures, programs, and the nodes of a group."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from cluster_snapshots import group, outputs
from training_jobs import job

from trainium_eks.aws.sessions import GroupSize
from trainium_eks.client import reading, scaling, submitting, team, train_facts, whole_scaling
from trainium_eks.client.failure import CommandError, failure_of
from trainium_eks.client.submitting import request_of
from trainium_eks.jobs.objects.job import Program
from trainium_eks.jobs.objects.options import TrainOptions
from trainium_eks.jobs.submit.requests import Submission


def test_missing_package_is_named_and_an_error_of_the_code_is_no_failure():
    found = failure_of(ModuleNotFoundError("no", name="boto3.session"))
    assert found.code == 2
    assert found.title == "the Python package boto3.session is missing: pip install 'trainium-eks[local]' brings it"
    foreign = ModuleNotFoundError("theirs", name="theirs.urllib3")
    assert failure_of(foreign) is failure_of(ValueError("no")) is None


@pytest.mark.parametrize(
    ("given", "program", "wrong"),
    [
        ({"module": "m", "script_args": "--a 'b c'", "arguments": ("d",)}, Program("", "m", ("--a", "b c", "d")), ""),
        ({"script": "image:train.py"}, Program("train.py"), ""),
        ({"module": "m", "workspace": Path()}, Program("", "m"), "--workspace"),
        ({"script": "/opt/train.py"}, Program("/opt/train.py"), ""),
        ({"script": __file__}, Program(__file__), "--script"),
        ({"script": "/opt/train.py", "workspace": Path()}, Program("/opt/train.py"), "--script"),
        ({"script": "none.py"}, Program("none.py"), "--script"),
    ],
)
def test_program_is_the_images_or_a_workspace(given, program, wrong):
    request, workspace, problem = request_of(TrainOptions(**given))
    assert (request.program, workspace, problem.path if problem else "") == (program, None, wrong)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ((), "there is none; `trn jobs` lists them"),
        (("x",), "there is x;"),
        (("x", "y"), "there are x, y;"),
        (("u", "v", "w", "x", "y", "z"), "there are u, v, w, x, y and more;"),
        (("x", "trail-8"), "did you mean trail-8?"),
    ],
)
def test_missing_job_is_reported_with_the_existing_ones(names, said):
    session = SimpleNamespace(namespace=SimpleNamespace(name="team"))
    found = reading.missing_job_error(session, "trial-8", [SimpleNamespace(name=name) for name in names])
    assert found.title.startswith(f"namespace team has no job 'trial-8': {said}")


GROUP = outputs().node_groups[0].model_copy(update={"name": "g", "min_size": 1, "max_size": 4})


def test_size_outside_the_groups_limits_names_the_limit():
    said = {nodes: [each.reason for each in scaling.size_problems(GROUP, nodes)] for nodes in (0, 1, 4, 5)}
    assert said == {0: ["g has at least 1 node"], 1: [], 4: [], 5: ["g has at most 4 nodes"]}


@pytest.mark.parametrize(
    ("is_local", "changes", "said"),
    [
        (True, {}, r", simulated\."),
        (False, {}, r": \+43\.00 USD an hour \(On-Demand us-east-1, [\d-]+\)\."),
        (False, {"capacity": "capacity-block"}, r": .*; paid with the Capacity Block\."),
        (False, {"instance_type": "trn2.48xlarge"}, "; their price is not known."),
    ],
)
def test_cost_of_another_size_is_shown(is_local, changes, said):
    group = GROUP.model_copy(update={"instance_type": "trn1.32xlarge", "capacity": "on-demand", **changes})
    line = scaling.cost(SimpleNamespace(is_local=is_local, outputs=outputs()), group, 1, 3)
    assert re.fullmatch(rf"g: 1 to 3 nodes of {group.instance_type}{said}", line)


@pytest.mark.parametrize(
    ("form", "missing", "said"),
    [
        ("volcano", None, "there is no Volcano in this cluster, which starts gangs; `trn doctor` says what else is"),
        ("volcano", "left out", "there is no Volcano in this cluster, which starts gangs: left out; `trn doctor` says"),
        ("pytorchjob", None, "in this cluster, which runs PyTorchJobs; `"),
        ("pytorchjob", "left out", "in this cluster, which runs PyTorchJobs (left out); `"),
    ],
)
def test_missing_controller_is_named_with_the_fix(form, missing, said):
    report = SimpleNamespace(missing=lambda _: missing) if missing else None
    session = SimpleNamespace(is_local=missing is not None, source=SimpleNamespace(local=report))
    assert said in submitting.no_controller(form, session)


def test_group_scales_to_the_limit_for_a_gang_of_several_groups(monkeypatch):
    sizes = []
    monkeypatch.setattr(scaling.cluster_facts, "nodes_of", lambda *_: [{}])
    monkeypatch.setattr(scaling, "resize", lambda _session, _group, nodes, _say: sizes.append(nodes))
    whole_scaling.for_gang(SimpleNamespace(api=None, is_local=True, outputs=outputs()), GROUP, 8, print, None)
    assert sizes == [4]


def test_scaling_waits_for_its_nodes_and_reports_eks_issues_once(monkeypatch):
    def nodes(*ready):
        return [{"status": {"conditions": [{"type": "Ready", "status": str(each)}]}} for each in ready]

    clock, said = [0.0], []
    looks = iter([nodes(True, False), nodes(True, False), nodes(True, True, False), nodes(True, True)])
    monkeypatch.setattr(scaling.cluster_facts, "nodes_of", lambda *_: next(looks, nodes(True)))
    monkeypatch.setattr(scaling.Aws, "group_size", lambda *_: GroupSize(2, 0, 4, "DEGRADED", ("no capacity",)))
    sleep = SimpleNamespace(monotonic=lambda: clock[0], sleep=lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    monkeypatch.setattr(scaling, "time", sleep)
    session = SimpleNamespace(api=None, is_local=False, outputs=SimpleNamespace(region="us-west-2", cluster_name="c"))
    scaling.await_nodes(session, GROUP, 2, said.append)
    assert said == ["  1 of 2 nodes are Ready", "  no capacity", "  2 of 2 nodes are Ready"]
    with pytest.raises(CommandError, match="g: 1 of 2 nodes are Ready after 1800 s") as failed:
        scaling.await_nodes(session, GROUP, 2, said.append)
    assert (failed.value.detail, clock[0]) == ("no capacity", 3 * scaling.LOOK_SECONDS + 1810)


def test_group_of_a_coming_block_is_not_scaled_for_a_gang(monkeypatch):
    said = []
    coming = GROUP.model_copy(update={"starts": "2999-01-11T11:30:00Z"})
    whole_scaling.for_gang(None, coming, 2, said.append, None)
    assert said == ["g gets its nodes when its Capacity Block starts, at 2999-01-11T11:30:00Z; the job waits for them."]
    monkeypatch.setattr(scaling.cluster_facts, "nodes_of", lambda *_: [{}, {}])
    began = GROUP.model_copy(update={"starts": "2026-01-11T11:30:00Z"})
    whole_scaling.for_gang(SimpleNamespace(api=None), began, 2, said.append, None)
    assert len(said) == 1


def test_end_of_a_block_is_the_configs_else_ec2s(monkeypatch):
    monkeypatch.setattr(train_facts.Aws, "capacity_ends", lambda _, reservation: f"EC2's of {reservation}")
    block = {**group("b", "aws.amazon.com/neuron", 0, 0), "capacity": "capacity-block", "reservation": "cr-1"}
    for is_local, ends, known in ((False, "", "EC2's of cr-1"), (False, "E", "E"), (True, "E", "E"), (True, "", None)):
        session = SimpleNamespace(is_local=is_local, outputs=outputs(nodeGroups=[{**block, "ends": ends}]))
        assert train_facts._capacity_ends(TrainOptions(), session).get("cr-1") == known


def test_submission_into_a_block_updates_its_end_for_running_jobs(monkeypatch):
    applied, submitted = [], []
    monkeypatch.setattr(submitting, "validate", lambda *_: None)
    monkeypatch.setattr(submitting, "submit", lambda *given: submitted.append(given))
    session = SimpleNamespace(api=SimpleNamespace(apply=applied.append, reference=lambda made: made))
    for block, of_stack in (("", ""), ("cr-1", ""), ("cr-2", "a group whose end the stack keeps")):
        ends, options = block and "2026-12-01T11:30:00Z", TrainOptions(scale=False)
        made = job(capacity_ends=ends, capacity_block=block, capacity_group=of_stack, options=options)
        team.Team(session).create(Submission(made, GROUP))
    assert [(each["metadata"]["name"], each["data"]) for each in applied] == [
        ("capacity-block-cr-1", {"ends": "2026-12-01T11:30:00Z"})
    ]
    assert len(submitted) == 3
