"""`trn acceptance` on AWS: what it refuses, what it asks of which command, and what it makes of the answers."""

import json
import signal
import time
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import boto3
import pytest
from cluster_snapshots import outputs
from moto import mock_aws
from outcome import ends, raising
from typer.testing import CliRunner

from trainium_eks.cli.app import app
from trainium_eks.cli.environment import acceptance, acceptance_steps, deploy
from trainium_eks.cli.shared import command, recording
from trainium_eks.kube import api
from trainium_eks.operate.acceptance import run as runs
from trainium_eks.operate.acceptance.commands import Answer, Commands
from trainium_eks.operate.cleanup.state import StackState, StateError, StateResource
from trainium_eks.plan import cost

FAULT = {"id": "nodes/x", "status": "fail", "subject": "node x", "text": "its plugin is gone", "fix": "", "fault": "f"}
SOUND = {"findings": [{"id": "a/b", "status": "pass", "subject": "nodes"}], "summary": {"pass": 3, "fail": 0}}
RUNS = {"job": {"restarts": 1, "ended": None}, "progress": {"checkpointStep": 5, "stalled": True, "quietSeconds": 61}}
STALLED = {"name": "TrainingStalled", "state": "firing", "labels": {"job_name": "acceptance-stalled"}}
KEPT = {
    "id": "KMS key/k",
    "status": "fail",
    "subject": "k",
    "text": "",
    "kind": "KMS key",
    "note": "kept on purpose: x",
}
ECR = {**KEPT, "id": "image repository/r", "kind": "image repository", "note": "with its images"}
LOG = "".join(f'{{"step": {step}, "time": 1.5}}\n' for step in range(1, 26))
ANSWERS = {
    "plan": {"rules": [{"id": "R05", "title": "Age", "status": "pass"}], "resources": [1]},
    "check": {**SOUND, "account": "111122223333"},
    "doctor": SOUND,
    "doctor --alerts": {"alerts": [STALLED]},
    "fabric": {"groups": [SOUND]},
    "status": RUNS,
    "logs": f"[default0]:resumed from step 5 (x)\n{LOG}",
    "orphans": {"findings": [KEPT]},
    "image push": "repository/training:trn1-1 pushed\n",
}
WORDS = ("acceptance", "--stack", "acceptance")
EVERY = "plan preflight up verification image fabric training node logs stall alert scale again destroy leftovers"


class Trn(Commands):
    """Answers each command by ANSWERS, or with nothing; those of ``failing`` end with 1."""

    answers, failing, asked, gone, removed, seconds = ANSWERS, frozenset(), [], [], [], 0

    def remove(self, lines):
        self.removed.extend(lines)

    def run(self, *words, after=(), **_):
        two = " ".join(words[:2])
        two = "logs --since" if "--since" in words else two
        name = two if two in self.answers or words[0] == "deploy" else words[0]
        self.asked.append(" ".join([*words, *after]))
        answer = self.answers.get(name, "")
        if answer is KeyboardInterrupt:
            assert signal.getsignal(signal.SIGTERM) is signal.getsignal(signal.SIGHUP) is signal.default_int_handler
            raise answer
        text = answer if isinstance(answer, str) else json.dumps(answer)
        return Answer(int(name in self.failing), text, "the last line")


@pytest.fixture(scope="module")
def graph():
    from golden import ROOT

    return recording.record(ROOT, "acceptance")


@pytest.fixture
def project(graph, tmp_path, monkeypatch):
    """A project whose program is recorded already, with tools and an empty state."""
    (tmp_path / "Pulumi.yaml").write_text("name: trainium-eks\nruntime: python\n")
    (tmp_path / "__main__.py").write_text("")
    (tmp_path / "Pulumi.acceptance.yaml").write_text("config: {}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(recording, "record", lambda *_: graph)
    monkeypatch.setattr(deploy, "complaints", list)
    monkeypatch.setattr(StackState, "ask", staticmethod(lambda *_: StackState()))
    return tmp_path


@pytest.fixture
def cluster(monkeypatch):
    """A cluster in which each job has a pod on a node, and that node's instance; deletions are noted."""
    clock = SimpleNamespace(now=time.time())
    passing = SimpleNamespace(time=lambda: clock.now, sleep=lambda seconds: setattr(clock, "now", clock.now + seconds))
    monkeypatch.setattr(acceptance_steps, "time", passing)
    monkeypatch.setattr(acceptance, "Commands", Trn)
    for name, value in (("answers", dict(ANSWERS)), ("failing", set()), ("asked", []), ("gone", []), ("removed", [])):
        monkeypatch.setattr(Trn, name, value)
    found = SimpleNamespace(outputs=outputs(region="us-west-2"))

    def find_source(stack, file, *_):
        clock.now += 0 if file else acceptance.Commands.seconds  # pulumi stack output
        Trn.asked.append("pulumi stack output") if not file else None
        return found

    monkeypatch.setattr(acceptance_steps, "find_source", find_source)
    monkeypatch.setattr(acceptance_steps, "open_kubeconfig", lambda _: nullcontext("kubeconfig"))
    with mock_aws():
        ec2 = boto3.client("ec2", region_name="us-west-2")
        [instance] = ec2.run_instances(ImageId="ami-12345678", MinCount=1, MaxCount=1)["Instances"]
        node = {"spec": {"providerID": f"aws:///us-west-2a/{instance['InstanceId']}"}}
        pod = {"metadata": {"name": "p-1", "namespace": "training"}, "spec": {"nodeName": "n"}}
        served = SimpleNamespace(
            list=lambda *_, **__: [pod],
            kind=lambda *_: SimpleNamespace(path=lambda *words: "/".join(words)),
            request=lambda verb, path, body=None: node if verb == "GET" else Trn.gone.append((path, body)),
        )

        def connect(_):
            clock.now += acceptance.Commands.seconds  # aws eks get-token
            return served

        monkeypatch.setattr(api.Api, "connect", staticmethod(connect))
        clock.state = lambda: ec2.describe_instances()["Reservations"][0]["Instances"][0]["State"]["Name"]
        yield clock


class Gang:
    """A gang with a training's options: its pods are back 30 s after a kill, its node after ``replaced`` seconds."""

    def __init__(self, words, clock, replaced):
        self.options = dict(zip(words[::2], map(float, words[1::2]), strict=True))
        self.clock, self.replaced, self.pods = clock, replaced, len(Trn.gone)
        self.node, self.began, self.harmed = clock.state(), clock.now + 60, None

    def look(self):
        """Note a harm, and return the time of the end."""
        pace, steps = self.options["--step-seconds"], self.options["--steps"]
        lost = self.clock.state() != self.node
        if self.harmed is None and (lost or len(Trn.gone) > self.pods):
            # An instance trains on while it shuts down.
            self.harmed = self.clock.now + (40 if lost else 0)
            self.back = self.harmed + (self.replaced if lost else 30)
        whole = self.began + steps * pace
        if self.harmed is None or self.harmed >= whole:
            return whole
        return self.back + pace * min(self.options["--steps-after-resume"], steps - self.saved())

    def saved(self):
        """Return the step of the last checkpoint."""
        made = (min(self.harmed or self.clock.now, self.clock.now) - self.began) / self.options["--step-seconds"]
        every = int(self.options["--checkpoint-every"])
        return int(max(min(made, self.options["--steps"]), 0)) // every * every

    def answers(self):
        end, at = self.look(), self.saved()
        resumed = self.harmed is not None and self.clock.now >= self.back
        job = {"restarts": int(resumed), "ended": "now" if end <= self.clock.now else None}
        steps = range(1, at + 1 + int(self.options["--steps-after-resume"]))
        log = [f'{{"step": {step}, "time": 1.5}}' for step in steps] + [f"resumed from step {at} (x)"] * resumed
        return {
            "status": {"job": job, "progress": {**RUNS["progress"], "checkpointStep": at or None}},
            "logs": "\n".join(log),
        }


class SlowTrn(Trn):
    """Commands that take 5 s each, while a gang goes on."""

    seconds, clock, gang, replaced = 5, None, None, 0

    def run(self, *words, after=(), **more):
        self.clock.now += self.seconds
        if words[0] == "train":
            type(self).gang = Gang(after, self.clock, self.replaced)
        if words[0] == "wait":
            end, limit = self.gang.look(), self.clock.now + float(words[-1][:-1])
            self.clock.now = min(end, limit)
            (self.failing.discard if end <= limit else self.failing.add)("wait")
        if self.gang is not None:
            self.answers |= self.gang.answers()
        return super().run(*words, after=after, **more)


@pytest.mark.parametrize("replaced", [300, 600])
def test_gang_runs_until_it_is_harmed_even_with_slow_answers(project, cluster, monkeypatch, replaced):
    for name, value in {"clock": cluster, "gang": None, "replaced": replaced}.items():
        monkeypatch.setattr(SlowTrn, name, value)
    monkeypatch.setattr(acceptance, "Commands", SlowTrn)
    monkeypatch.setattr(acceptance, "Run", partial(runs.Run, now=lambda: cluster.now))
    run("--max-usd", "30")
    assert outcomes(report(project), "passed") == EVERY, report(project)["steps"]
    assert Trn.asked.count("pulumi stack output") == 1, "every later step reads the file"
    assert not list((project / ".acceptance").rglob("outputs.json")), "it goes with the stack"


RACE = {"id": "log group/l", "status": "fail", "subject": "l", "kind": "log group", "race": "EKS wrote it anew"}


def test_leftovers_of_known_races_are_removed_and_named(project, cluster, monkeypatch):
    late = [{**RACE, "commands": ["aws logs delete-log-group"]}, {**ECR, "race": ""}]
    looks = iter([{"findings": [KEPT, *late]}, {"findings": [KEPT, late[1]]}, {"findings": [KEPT]}])
    real = Trn.run

    def look(self, *words, **more):
        Trn.answers["orphans"] = next(looks) if words[0] == "orphans" else None
        return real(self, *words, **more)

    monkeypatch.setattr(Trn, "run", look)
    run()
    seen = {each["name"]: each["text"] for each in report(project)["steps"]}
    assert seen["leftovers"] == "kept on purpose: KMS key; log group removed: EKS wrote it anew"
    assert Trn.removed == ["aws logs delete-log-group"], "nothing but what a race left"


def run(*words, code=0):
    shown = CliRunner().invoke(app, [*WORDS, "--yes", *words], catch_exceptions=False)
    assert shown.exit_code == code, shown.output
    return shown.output


def report(project):
    [file] = (project / ".acceptance" / "acceptance").glob("*/acceptance.json")
    return json.loads(file.read_text())


def outcomes(found, outcome):
    return " ".join(each["name"] for each in found["steps"] if each["outcome"] == outcome)


def test_every_step_runs_its_own_command(project, cluster):
    run()
    found = report(project)
    assert (outcomes(found, "passed"), found["passed"]) == (EVERY, True), found["steps"]
    seen = {each["name"]: each["text"] for each in found["steps"]}
    assert seen["leftovers"] == "kept on purpose: KMS key"
    assert seen["training"].endswith("after the checkpoint of step 5; restarted, resumed from step 5, ended at 25")
    assert cluster.state() in ("shutting-down", "terminated")
    assert Trn.gone == [("training/p-1", {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0})]
    asked = "\n".join(Trn.asked)
    assert "deploy up --yes --skip-preview --skip-check\n" in asked
    assert "\nscale trn1-2xl 1\nscale trn1-2xl 2\n" in asked
    assert "fabric --group trn1-2xl --nodes 1 --json\n" in asked, "its nodes have no EFA"
    assert "deploy preview --expect-no-changes\n" in asked
    assert asked.endswith("deploy destroy --yes --no-export\norphans --json")
    # Planned from the program: 16 minutes of `up`; and the measured time is next to it.
    up = next(each for each in found["steps"] if each["name"] == "up")
    assert 900 < up["plannedSeconds"] < 1000
    assert up["seconds"] >= 0


@pytest.mark.parametrize(
    ("asked", "answer", "step", "said"),
    [
        ("plan", {"problems": [{"reason": "no such zone"}]}, "plan", "no such zone"),
        ("plan", {"rules": [{"id": "R05", "title": "Age", "status": "fail"}]}, "plan", "R05 Age"),
        ("check", {"account": None}, "preflight", "no AWS credentials"),
        ("check", {**SOUND, "account": "1", "findings": [FAULT]}, "preflight", "`trn check` finds 1 fault"),
        ("deploy up", None, "up", "`trn deploy up` ended with 1: the last line"),
        ("doctor", {"findings": [FAULT], "summary": {"fail": 1}}, "verification", "`trn doctor` finds 1 fault"),
        ("doctor", {"problems": [{"reason": "no outputs"}]}, "verification", "judged nothing: no outputs"),
        ("image push", None, "image", "ended with 1"),
        ("fabric", {"groups": [{"findings": [FAULT]}]}, "fabric", "1 check failed"),
        ("fabric", {"problems": [{"reason": "no image"}]}, "fabric", "the test was not made: no image"),
        ("wait", None, "training", "after a pod was killed: the last line"),
        ("status", {**RUNS, "job": {"restarts": 0}}, "training", "without going on from a checkpoint"),
        ("logs", "", "training", "without going on from a checkpoint"),
        ("logs --since", f"resumed from step 5\n{LOG.partition(chr(10))[2]}", "logs", "without both starts of the job"),
        ("status", {"job": {"ended": "now"}}, "training", "ended before its first checkpoint"),
        ("logs --since", LOG, "logs", "without both starts of the job"),
        ("doctor --alerts", {"alerts": [{**STALLED, "state": "pending"}]}, "alert", "other alerts: TrainingStalled"),
        ("scale", None, "scale", "`trn scale trn1-2xl 1` ended with 1"),
        ("deploy preview", None, "again", "ended with 1"),
        ("deploy destroy", None, "destroy", "ended with 1"),
        ("orphans", {"findings": [KEPT, ECR]}, "leftovers", "1 resource left; not looked at: none"),
        ("orphans", {"findings": [{**KEPT, "status": "not checked"}]}, "leftovers", "not looked at: k"),
    ],
)
def test_bad_answer_fails_its_step_and_runs_the_doctor(project, cluster, asked, answer, step, said):
    if answer is None:
        Trn.failing.add(asked)
    else:
        Trn.answers[asked] = answer
    run(code=1)
    found = report(project)
    failed = {each["name"]: each for each in found["steps"] if each["outcome"] == "failed"}
    assert said in failed[step]["text"]
    doctored = {"fabric", "training", "logs", "alert", "scale"}
    if step in doctored and "image" not in said:
        assert any(each.startswith("doctor") for each in Trn.asked[Trn.asked.index("doctor --wait 300 --json") + 1 :])
    if step not in ("plan", "preflight"):
        assert any(each.startswith("deploy destroy") for each in Trn.asked)


def test_acceptance_on_the_local_cloud_passes_without_two_steps(project, cluster):
    Trn.answers |= {"local up": "Nothing has changed", "local down": "Nothing of acceptance is here"}
    run("--local")
    assert outcomes(report(project), "not reached") == "preflight alert"
    assert report(project)["passed"]
    assert Trn.asked[-2:] == ["local down"] * 2


def test_ctrl_c_destroys_and_exits_with_130(project, cluster):
    Trn.answers["train"] = KeyboardInterrupt
    run(code=130)
    assert outcomes(report(project), "passed").endswith("fabric destroy leftovers")


def test_unaffordable_run_and_foreign_stack_are_refused(project, cluster, graph, monkeypatch):
    said = ends(2, CliRunner().invoke(app, [*WORDS, "--yes", "--max-usd", "1"]), "above the limits")
    assert "--max-usd" in said
    ends(2, CliRunner().invoke(app, list(WORDS)), "--yes confirms it")
    with monkeypatch.context() as patch:
        patch.setattr(cost, "estimate", lambda _: SimpleNamespace(unknown=("trn9.large",), hourly_usd=1))
        ends(2, CliRunner().invoke(app, [*WORDS, "--yes"]), "no price is known for trn9.large")
        patch.setattr(command, "choose", lambda *_, **__: ("acceptance", command.RUNS_HERE))
        ends(2, CliRunner().invoke(app, [*WORDS, "--yes"]), "the local cloud of acceptance runs here")
    with monkeypatch.context() as patch:
        first, *others = graph.resources
        kept = replace(first, custom=True, options=replace(first.options, protect=True))
        patch.setattr(recording, "record", lambda *_: replace(graph, resources=(kept, *others)))
        ends(2, CliRunner().invoke(app, [*WORDS, "--yes"]), "acceptance protects 1 resource")
    made = StackState((StateResource("u", "aws:eks/cluster:Cluster", "c"),))
    monkeypatch.setattr(StackState, "ask", staticmethod(lambda *_: made))
    ends(2, CliRunner().invoke(app, [*WORDS, "--yes"]), "acceptance is there already", "trn deploy destroy")

    monkeypatch.setattr(StackState, "ask", staticmethod(raising(StateError("no stack named 'acceptance' found"))))
    ends(2, CliRunner().invoke(app, [*WORDS, "--yes"]), "pulumi stack init acceptance")
    monkeypatch.setattr(deploy, "complaints", lambda: ["pulumi is not on PATH"])
    ends(2, CliRunner().invoke(app, [*WORDS, "--yes"]), "pulumi is not on PATH")
    assert not (project / ".acceptance").exists()
    assert Trn.asked == []


def test_resumed_run_is_not_mistaken_for_an_existing_stack(project, cluster, monkeypatch):
    run("--keep")
    assert outcomes(report(project), "not reached") == "destroy leftovers"
    made = StackState((StateResource("u", "aws:eks/cluster:Cluster", "c"),))
    monkeypatch.setattr(StackState, "ask", staticmethod(lambda *_: made))
    ends(2, CliRunner().invoke(app, [*WORDS, "--local"]), "without --local")
    Trn.asked.clear()
    ends(0, CliRunner().invoke(app, [*WORDS, "--max-usd", "1"]), "Resumes the run of ")
    assert [each.split()[0] for each in Trn.asked] == ["deploy", "orphans"]
    assert outcomes(report(project), "passed") == EVERY
