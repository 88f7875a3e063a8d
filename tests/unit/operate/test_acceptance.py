"""An acceptance run: its order, its limits, its crashes, and a report without names."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from waiting import until

from trainium_eks.operate.acceptance import commands as processes
from trainium_eks.operate.acceptance.commands import Commands
from trainium_eks.operate.acceptance.report import document, markdown, public
from trainium_eks.operate.acceptance.run import Limits, Outcome, Run, RunError, State, Step, StepError

PYTHON = sys.executable
FOUND = [{"subject": "trn i-0123456789abcdef0", "text": "0 of 16 at 10.0.0.1", "fix": "", "id": "q/10.0.0.2"}]
POLICY = "identity-based policy"
DENIED = {"command": "trn deploy", "action": "logs:PutLogEvents", "policy": POLICY, "remedy": "allow it"}
FACTS = {"region": "us-west-2", "nodes": "2 x trn1.2xlarge", "kubernetes": "1.35", "version": "1", "hourlyUsd": 6.0}
FACTS |= {"denied": [DENIED]}


class Trial:
    """Steps of ten minutes each on a fake clock: plan, up (billed), train, scale; destroy and leftovers close."""

    def __init__(self, folder, **acts):
        folder.mkdir(exist_ok=True)
        self.file = folder / "run.json"
        self.acts, self.done, self.now, self.untils = acts, [], 0.0, {}

    def run(self, max_usd=60.0, *, minutes=10, closing=0.0):
        names = {"plan": (), "up": ("plan",), "train": ("up",), "scale": ("up",), "destroy": (), "leftovers": ()}
        steps = [
            Step(
                name,
                f"{name} works.",
                60.0,
                lambda until, name=name: self._act(name, until, minutes),
                needs,
                closes=name in ("destroy", "leftovers"),
                bills=name == "up",
            )
            for name, needs in names.items()
        ]
        state = State.load(self.file) if self.file.exists() else State("dev", local=False, began=0.0)
        limits = Limits(max_usd, 86_400, 6.0, closing)
        made = Run(self.file, state, steps, limits, now=lambda: self.now)
        self.steps = steps
        return made

    def _act(self, name, until, minutes):
        self.done.append(name)
        self.untils[name] = until
        self.now += 60 * minutes
        act = self.acts.pop(name, None)
        if act is not None:
            raise act
        return f"{name} seen"


def outcomes(run):
    short = {Outcome.PASSED: "+", Outcome.FAILED: "x", Outcome.NOT_REACHED: "-"}
    return " ".join(f"{short[each.outcome]}{each.name}" for each in run.state.results)


def test_failed_step_skips_its_dependents_and_everything_is_destroyed(tmp_path):
    trial = Trial(tmp_path, up=StepError("no quota", FOUND))
    run = trial.run()
    run.go()
    assert outcomes(run) == "+plan xup -train -scale +destroy +leftovers"
    assert run.state.result("train").text == "`up` has not passed"
    assert run.state.ended == trial.now
    assert run.usd == pytest.approx(6 * 20 / 60), "up and destroy, not the plan before or the search after"
    found = document(run, trial.steps, FACTS)
    assert (found["passed"], found["usd"]) == (False, 2.0)
    assert "- **trn [instance]**: 0 of 16 at [address]\n" in markdown(found)
    assert "10.0.0" not in str(found)
    assert "- `logs:PutLogEvents` in `trn deploy`, by the identity-based policy: allow it\n" in markdown(found)


def test_run_without_up_destroys_nothing(tmp_path):
    trial = Trial(tmp_path, plan=StepError("R05 fails"))
    run = trial.run()
    run.go()
    assert outcomes(run) == "xplan -up -train -scale -destroy -leftovers"
    assert (trial.done, run.usd, run.state.ended is None) == (["plan"], 0.0, False)


def test_run_ends_below_its_cost_limit_with_time_to_destroy(tmp_path):
    trial = Trial(tmp_path)
    run = trial.run(max_usd=2.5, closing=600)  # 25 minutes, 10 of them to destroy
    run.go()
    # `up` begins at minute 10: the others must have ended at 25, and none begins after it.
    assert trial.untils == {
        "plan": 900, "up": 25 * 60, "train": 25 * 60, "destroy": 30 * 60 + 900, "leftovers": 40 * 60 + 900,
    }  # fmt: skip
    assert outcomes(run) == "+plan +up +train -scale +destroy +leftovers"
    assert run.state.result("scale").text == "the limit was reached: 2.5 USD or 24 hours"


def test_killed_run_resumes_with_its_current_step(tmp_path):
    trial = Trial(tmp_path, train=SystemExit())
    with pytest.raises(SystemExit):
        trial.run().go()
    assert trial.run().state.current == "train"
    run = trial.run()
    run.go()
    assert outcomes(run) == "+plan +up +train +scale +destroy +leftovers"
    assert trial.done == ["plan", "up", "train", "train", "scale", "destroy", "leftovers"]
    assert run.state.billed_since == 600, "what the crash took is paid, too"
    cut = Trial(tmp_path / "cut", up=SystemExit())
    with pytest.raises(SystemExit):
        cut.run().go()
    cut.run().go()
    assert (cut.done[1:3], cut.run().state.billed_since) == (["up", "up"], 600)


def test_ctrl_c_destroys_and_a_second_defers_to_the_next_run(tmp_path):
    trial = Trial(tmp_path, train=KeyboardInterrupt(), destroy=KeyboardInterrupt())
    run = trial.run()
    with pytest.raises(KeyboardInterrupt):
        run.go()
    assert (trial.done[-1], run.state.ended) == ("destroy", None)
    again = trial.run()
    again.go()
    assert outcomes(again) == "+plan +up -train -scale +destroy +leftovers"
    assert again.state.result("train").text == "Ctrl-C ended it"
    assert trial.done == ["plan", "up", "train", "destroy", "destroy", "leftovers"]
    # Once is enough where it destroys.
    once = Trial(tmp_path / "once", train=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        once.run().go()
    assert once.run().state.ended is not None


def test_kept_run_is_destroyed_by_the_next_one(tmp_path):
    trial = Trial(tmp_path)
    run = trial.run()
    run.go(keep=True)
    assert (outcomes(run), run.state.ended) == ("+plan +up +train +scale", None)
    assert "the environment is kept" in markdown(document(run, trial.steps, FACTS))
    trial.run().go()
    assert trial.done[-2:] == ["destroy", "leftovers"]
    # Ctrl-C keeps it, too, and the step under way.
    cut = Trial(tmp_path / "cut", train=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        cut.run().go(keep=True)
    assert (outcomes(cut.run()), cut.run().state.current) == ("+plan +up", "train")


def test_failed_destroy_is_repeated_by_the_next_run_alone(tmp_path):
    # An unexpected error counts like another.
    trial = Trial(tmp_path, train=KeyError("restarts"), destroy=StepError("a subnet is in use"))
    run = trial.run()
    run.go()
    assert (outcomes(run), run.state.ended) == ("+plan +up xtrain +scale xdestroy +leftovers", None)
    again = trial.run()
    again.go()
    assert (trial.done[-1], again.state.ended is None) == ("destroy", False)


@pytest.mark.parametrize("text", ["", "{", '{"schemaVersion": 0, "results": []}', '{"schemaVersion": 1}'])
def test_foreign_state_file_is_refused_before_creation(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(RunError, match="is not an acceptance run of this release"):
        State.load(tmp_path / "run.json")


@pytest.mark.parametrize(
    "private",
    [
        *(
            "arn:aws:iam::111122223333:role/ci",
            "arn:aws-us-gov:eks:us-gov-west-1:111122223333:cluster/x",
            "111122223333",
        ),
        *("10.0.12.34", "2600:1f13:abc:de00::1", "ip-10-0-12-34.us-west-2.compute.internal", "i-0123456789abcdef0"),
        *("ABCDEF0123.gr7.us-west-2.eks.amazonaws.com", "111122223333.dkr.ecr.us-west-2.amazonaws.com/team/training"),
        *("s3://trn-dev-data-1a2b/checkpoints", "subnet-0b1c2d3e4f5a60711", "fs-0123456789abcdef0.fsx.us-west-2.x"),
        *("ana@example.com", "/home/ana/stack/Pulumi.dev.yaml", "AKIAIOSFODNN7EXAMPLE", "cr-0123456789abcdef0"),
    ],
)
def test_report_contains_no_account_machine_or_person(private):
    shown = public(f"could not reach {private}, at 13:50:15 for step 12 of trn1.32xlarge (v1.35.8-20260930)")
    assert private not in shown
    assert shown.endswith("at 13:50:15 for step 12 of trn1.32xlarge (v1.35.8-20260930)")
    assert not [part for part in ("111122223333", "0123456789abcdef0", "ABCDEF", "ana") if part in shown]


# --- Commands ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Puts a program in the place of `trn`, which gets its arguments."""
    monkeypatch.setattr(processes, "STOP_SECONDS", 20)

    def put(text, seconds=60):
        (tmp_path / "trn.py").write_text(f"import json, signal, sys, time\nasked = sys.argv[3:]\n{text}")
        (tmp_path / "python").write_text(f'#!/bin/sh\nexec {PYTHON} {tmp_path}/trn.py "$@"\n')
        (tmp_path / "python").chmod(0o755)
        monkeypatch.setattr(processes.sys, "executable", str(tmp_path / "python"))
        return Commands(tmp_path, "dev", tmp_path, until=time.time() + seconds)

    return put


def test_command_gets_its_stack_first_and_its_answers_are_kept_apart(program, tmp_path):
    trn = program("print(json.dumps({'asked': asked}))\nsys.stderr.write('a\\n b\\n')\nsys.exit(len(asked) % 2)")
    for _ in range(2):
        answer = trn.run("deploy", "up", after=("--yes",))
        where = ["--stack", "dev", "--directory", str(tmp_path)]
        assert answer.document == {"asked": ["deploy", "up", *where, "--", "--yes"]}
        assert (answer.code, answer.complaint) == (0, "a / b")
    with pytest.raises(StepError, match=r"`trn check` ended with 1: a / b"):
        trn.must("check")
    with pytest.raises(StepError, match="not JSON"):
        program("print('no')").ask("check")


DENIES = """
print("AccessDenied: User: arn:aws:sts::111122223333:assumed-role/r/s is not authorized to perform: "
      "eks:CreateCluster on resource: arn:aws:eks:us-west-2:111122223333:cluster/x "
      "because no identity-based policy allows the eks:CreateCluster action", file=sys.stderr)
print(" ".join(asked))
"""


def test_commands_read_outputs_of_a_file_and_denied_calls_are_kept(program, tmp_path):
    trn = program(DENIES)
    assert "--outputs" not in trn.run("status", "j").output
    trn.outputs.write_text("{}")
    assert f"--outputs {tmp_path}/outputs.json" in trn.run("status", "j").output
    assert "--outputs" not in trn.run("doctor").output, "it reads the state anyway"
    seen = [(each["command"], each["action"], each["policy"]) for each in trn.denied()]
    assert seen == [(f"trn {name}", "eks:CreateCluster", POLICY) for name in ("status j", "doctor")]
    assert "111122223333" not in str(trn.denied())
    (tmp_path / "aws").write_text(f"#!/bin/sh\necho $* >> {tmp_path}/removed\n")
    (tmp_path / "aws").chmod(0o755)
    trn.remove([f"{tmp_path}/aws logs delete-log-group --log-group-name /aws/eks/x/cluster"])
    assert (tmp_path / "removed").read_text() == "logs delete-log-group --log-group-name /aws/eks/x/cluster\n"


ENDS = """
def end(*_):
    open("ended", "w").close()
    sys.exit(0)
signal.signal(signal.SIGINT, end)
open("begun", "w").close()
time.sleep(60)
"""


def test_command_out_of_time_is_interrupted_and_may_clean_up(program, tmp_path):
    with pytest.raises(StepError, match=r"`trn deploy up` was stopped: its time"):
        program(ENDS, seconds=3).run("deploy", "up")
    assert (tmp_path / "begun").exists()
    assert (tmp_path / "ended").exists()


def test_ctrl_c_ends_the_command_and_the_next_run_waits_for_it(program, tmp_path, monkeypatch):
    trn = program(ENDS)

    class Interrupted(subprocess.Popen):
        def wait(self, timeout=None):
            if timeout and timeout > 30:
                until((tmp_path / "begun").exists)
                raise KeyboardInterrupt
            return super().wait(timeout)

    monkeypatch.setattr(processes.subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        trn.run("deploy", "up")
    assert (tmp_path / "ended").exists()
    monkeypatch.undo()
    began = time.monotonic()
    left = subprocess.Popen([PYTHON, "-c", "import time; time.sleep(1)", "trainium_eks.cli"])
    until(lambda: b"trainium_eks.cli" in Path(f"/proc/{left.pid}/cmdline").read_bytes())  # a moment after its start
    (tmp_path / "child").write_text(str(left.pid))
    reaper = threading.Thread(target=left.wait)
    reaper.start()
    trn.await_last()
    assert time.monotonic() - began > 1
    (tmp_path / "child").write_text("1")  # another program has the number now
    trn.await_last()
    reaper.join()
