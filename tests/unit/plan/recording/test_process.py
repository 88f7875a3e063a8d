"""Recording of a project's program in a separate process."""

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import textwrap
import threading
import venv
from pathlib import Path

import psutil
import pytest
from waiting import SECONDS, out_of_time, until

from trainium_eks.model.validation.problems import Problem, Severity
from trainium_eks.plan.recording import process
from trainium_eks.plan.recording.assumptions import Assumptions
from trainium_eks.plan.recording.process import (
    InvalidConfigError,
    Live,
    ProgramFailedError,
    ProgramTimeoutError,
    ProjectError,
    record,
)
from trainium_eks.plan.recording.protocol import Answer, LiveBackend, RecordingRequest, UnknownProtocolError

ROOT = Path(__file__).resolve().parents[4]


def project(directory, program, stack="config: {}"):
    (directory / "Pulumi.yaml").write_text("name: proj\nruntime: python\n")
    (directory / "Pulumi.dev.yaml").write_text(stack)
    (directory / "__main__.py").write_text(textwrap.dedent(program))
    return directory


def runs(pid):
    """Whether a process goes on; an ended process may still be listed until its exit code was read."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_program_is_recorded_with_its_config_and_its_own_modules(tmp_path, monkeypatch):
    """Variables of the shell do not reach the program."""
    monkeypatch.setenv("AWS_REGION", "mars-north-1")
    monkeypatch.setenv("PULUMI_CONFIG", '{"proj:x": "ambient"}')
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("SIZE = 2\n")
    program = """
        import pulumi, pulumi_aws as aws, parts
        config = pulumi.Config()
        for index in range(parts.SIZE):
            aws.ec2.Eip(f"ip{index}")
        aws.Provider("p")
        pulumi.export("region", config.require("region"))
        pulumi.export("secret", config.require("token"))
        pulumi.export("x", config.get("x") or "unset")
        print("prints", "do", "not", "matter", '{"status": "failed"}')
    """
    graph = record(project(tmp_path, program, "config: {region: eu-west-1, token: {secure: v1:x}}"), "dev")
    assert (graph.project, graph.stack) == ("proj", "dev")
    assert [eip.name for eip in graph.of_type("aws:ec2/eip:Eip")] == ["ip0", "ip1"]
    assert graph.outputs == {"region": "eu-west-1", "secret": "[secret]", "x": "unset"}
    assert graph.config == {"region": "eu-west-1", "token": "[secret]"}
    assert "region" not in graph.of_type("pulumi:providers:aws")[0].inputs


def test_two_recordings_in_processes_with_other_hashes_are_byte_identical(tmp_path, monkeypatch):
    program = """
        import pulumi, pulumi_aws as aws
        ips = [aws.ec2.Eip(name) for name in "abcdefgh"]
        late = pulumi.ResourceOptions(depends_on=ips)
        vpc = aws.ec2.Vpc("v", cidr_block=pulumi.Output.all(*[ip.id for ip in ips]).apply(str), opts=late)
        pulumi.export("v", vpc.id)
    """
    directory = project(tmp_path, program)
    texts = set()
    for seed in ("1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        texts.add(json.dumps(record(directory, "dev").to_json()))
    assert len(texts) == 1


def test_refused_arguments_come_back_as_problems_without_traceback(tmp_path):
    """The problems of Pulumi.yaml's types come with them: a wrong type may end the program."""
    program = """
        import pulumi
        from trainium_eks.model.validation.problems import Problem, Severity

        class ArgumentError(pulumi.RunError, ValueError):
            first = Problem("a.b", "too big", "use 3", severity=Severity.ACKNOWLEDGE, rule="R29")
            second = Problem("c", "no", value=3, allowed=("1", "2"), good=2)
            problems = (Problem("node_count", "said before"), first, second)

        raise ArgumentError("3 problems")
    """
    directory = project(tmp_path, program)
    first = Problem("a.b", "too big", "use 3", severity=Severity.ACKNOWLEDGE, rule="R29")
    second = Problem("c", "no", value=3, allowed=("1", "2"), good=2)
    (tmp_path / "Pulumi.yaml").write_text("name: demo\nruntime: python\nconfig:\n  nodeCount: {type: integer}\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config:\n  demo:nodeCount: many\n")
    with pytest.raises(InvalidConfigError) as caught:
        record(directory, "dev")
    assert caught.value.problems[0].path == "nodeCount"
    assert caught.value.problems[1:] == (first, second)
    assert "Traceback" not in str(caught.value)
    project(tmp_path, "raise SystemExit(3)", "config: {nodeCount: many}")
    (tmp_path / "Pulumi.yaml").write_text("name: proj\nruntime: python\nconfig: {nodeCount: {type: integer}}\n")
    with pytest.raises(InvalidConfigError, match="nodeCount"):
        record(directory, "dev")


def with_environment(directory, *packages, options="virtualenv: own"):
    """Make the project's own virtual environment, with links to packages of this one."""
    venv.create(directory / "own", symlinks=True)
    [site] = (directory / "own").glob("lib/python3*/site-packages")
    here = Path(sysconfig.get_path("purelib"))
    (site / "acme.py").write_text("NAME = 'ours'")
    (site / "others.pth").write_text(f"{here}\n")
    for name in packages:
        (site / name).symlink_to(here / name)
    made = project(directory, "import acme, sys, pulumi\npulumi.export('prefix', sys.prefix)")
    (directory / "Pulumi.yaml").write_text(f"name: proj\nruntime: {{name: python, options: {{{options}}}}}\n")
    return made


def test_program_runs_in_its_projects_environment(tmp_path):
    graph = record(with_environment(tmp_path, "pulumi", "pydantic", "yaml"), "dev")
    assert (graph.outputs["prefix"], graph.warnings) == (str(tmp_path / "own"), ())


def test_failure_names_the_placeholder_answers(tmp_path):
    """Of a program's own error, and of args that a component refuses."""
    names = r"made-up or empty answers(.|\n)*answers\.dev\.yaml, or with --stub FILE(.|\n)*getCluster \(name=shared\)"
    cluster = "import pulumi_aws as aws\ncluster = aws.eks.get_cluster(name='shared')\n"
    failing = project(tmp_path, f"{cluster}cluster.vpc_config.subnet_ids[0]")
    with pytest.raises(ProgramFailedError, match=f"IndexError(.|\n)*{names}"):
        record(failing, "dev", assumptions=Assumptions())
    refused = project(tmp_path, f"{cluster}from components import EncryptionKey\nEncryptionKey('k', {{'region': 'r'}})")
    with pytest.raises(InvalidConfigError) as caught:
        record(refused, "dev", assumptions=Assumptions())
    assert re.search(names, caught.value.note)


@pytest.mark.parametrize(
    ("options", "names"),
    [("virtualenv: own", "own environment .*/own .*lacks pydantic, yaml"), ("toolchain: poetry", "poetry run trn")],
)
def test_unusable_environment_is_named(tmp_path, options, names):
    made = with_environment(tmp_path, "pulumi", options=options)
    with pytest.raises(ProgramFailedError, match=f"No module named 'acme'(.|\n)*{names}"):
        record(made, "dev")
    (tmp_path / "__main__.py").write_text("")
    [warning] = record(made, "dev").warnings
    assert re.search(names, warning)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ('import pulumi\nraise pulumi.RunError("think again")\n', "think again$"),
        ("def (", "SyntaxError"),
        ("import nowhere", "No module named 'nowhere'"),
        ("import pulumi_aws as aws\naws.ivs.Channel('q')\n", r"aws:ivs/channel:Channel.*\(__main__\.py:2\)"),
        ("raise SystemExit(3)", "exited with 3"),
        ("import os\nos._exit(7)\n", "exit code 7 and no answer"),
    ],
)
def test_failing_program_shows_its_reason(tmp_path, program, said):
    with pytest.raises(ProgramFailedError) as caught:
        record(project(tmp_path, program), "dev")
    assert re.search(said, caught.value.message)
    assert bool(caught.value.traceback) == ("nowhere" in said)


def test_exception_has_the_programs_frames_and_its_output(tmp_path):
    (tmp_path / "parts.py").write_text("def build():\n    return {}['missing']\n")
    program = "import parts, pulumi\nprint('so far so good')\nparts.build()\n"
    with pytest.raises(ProgramFailedError) as caught:
        record(project(tmp_path, program), "dev")
    error = caught.value
    assert error.message == "KeyError: 'missing'"
    assert [line.strip() for line in error.traceback.splitlines() if "File" in line] == [
        f'File "{tmp_path}/__main__.py", line 3, in <module>',
        f'File "{tmp_path}/parts.py", line 2, in build',
    ]
    assert "so far so good" in str(error)


def test_exception_in_an_apply_is_reported(tmp_path):
    program = """
        import pulumi, pulumi_aws as aws
        def shout(text):
            raise ValueError("in an apply")
        pulumi.export("x", aws.ec2.Eip("e").id.apply(shout))
    """
    with pytest.raises(ProgramFailedError, match="in an apply") as caught:
        record(project(tmp_path, program), "dev")
    assert "in shout" in caught.value.traceback
    assert "site-packages" not in caught.value.traceback


def test_endless_program_is_stopped_with_its_position(tmp_path):
    directory = project(tmp_path, "import pulumi\ndef spin():\n    while True:\n        pass\nspin()\n")

    def attempt(seconds):
        with pytest.raises(ProgramTimeoutError) as caught:
            record(directory, "dev", timeout_seconds=seconds)
        return caught.value.pending

    (place,) = out_of_time(attempt, "in spin")  # one that was killed says nothing
    assert place.startswith("running __main__.py:")
    assert place.endswith("in spin")


@pytest.mark.slow
def test_unresponsive_process_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "_LIMITS", 1)
    program = "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\n"
    with pytest.raises(ProgramTimeoutError, match="did not say"):
        record(project(tmp_path, program), "dev", timeout_seconds=8)


def test_a_killed_process_names_the_signal(tmp_path):
    program = "import os, signal\nprint('last words', flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    with pytest.raises(ProgramFailedError, match="killed by SIGKILL") as caught:
        record(project(tmp_path, program), "dev")
    assert "last words" in caught.value.output


def test_leftover_process_does_not_delay_the_recording(tmp_path):
    """And an exit may be a success."""
    program = """
        import pulumi, subprocess, sys
        left = subprocess.Popen(['sleep', '600'])  # longer than a program may take
        pulumi.export('left', left.pid)
        sys.exit(0)
    """
    left = record(project(tmp_path, program), "dev").outputs["left"]
    until(lambda: not runs(int(left)), "the end of what was left behind")


@pytest.mark.parametrize("left_behind", ["executed", "forked"])
def test_daemon_started_by_a_backend_does_not_delay_the_recording(tmp_path, left_behind):
    """A daemon that is forked without exec keeps every pipe of this process open."""
    backend = f"""
        import os, time
        from trainium_eks.plan.resource_types.simulation import Simulation

        def make(options, region, emit):
            emit({{"event": "before"}})
            if {left_behind!r} == "executed":
                daemon = os.posix_spawn("/bin/sleep", ["sleep", "600"], {{}}, setsid=True)
            elif (daemon := os.fork()) == 0:
                os.setsid()
                time.sleep(600)
                os._exit(0)
            emit({{"event": "daemon", "pid": daemon}})
            return Simulation("us-west-2")
    """
    directory = project(tmp_path, "import pulumi\npulumi.export('done', 1)\n")
    (directory / "daemons.py").write_text(textwrap.dedent(backend))
    events = []
    outcome = []
    live = Live("daemons:make", {}, events.append)
    recording = threading.Thread(target=lambda: outcome.append(record(directory, "dev", live=live).outputs))
    recording.daemon = True
    recording.start()
    recording.join(SECONDS)
    os.kill(events[-1]["pid"], signal.SIGKILL)
    assert (outcome, [event["event"] for event in events]) == ([{"done": 1}], ["before", "daemon"])


def asleep(directory, before=""):
    """The caller of a program that sleeps, and the program's own process."""
    mark = directory / "pid"
    program = f"import os, time\nopen({str(mark)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    call = "import sys, pathlib, signal, trainium_eks.plan.recording.process as r\n"
    call += f"{before}\nr.record(pathlib.Path(sys.argv[1]), 'dev')"
    command = [sys.executable, "-c", call, str(project(directory, program))]
    caller = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE)
    until(lambda: mark.is_file() and mark.read_text())
    return caller, int(mark.read_text())


def test_interrupt_ends_the_program(tmp_path):
    # Tests that a shell runs in the background have inherited that interrupts are ignored.
    caller, pid = asleep(tmp_path, "signal.signal(signal.SIGINT, signal.default_int_handler)")
    caller.send_signal(signal.SIGINT)
    _, printed = caller.communicate(timeout=SECONDS)
    assert b"KeyboardInterrupt" in printed
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_recording_ends_when_its_caller_is_killed(tmp_path):
    caller, pid = asleep(tmp_path)
    caller.kill()
    caller.communicate()
    until(lambda: not runs(pid), "its end")


def test_an_old_checkout_is_recorded_by_its_own_package(tmp_path):
    package = tmp_path / "trainium_eks" / "plan" / "recording"
    package.mkdir(parents=True)
    for place in (package, package.parent, package.parent.parent):
        (place / "__init__.py").write_text("")
    directory = project(tmp_path, "")
    with pytest.raises(ProjectError, match="too old to be recorded"):
        record(directory, "dev")
    answer = {"protocol": 99, "status": "protocol"}
    (package / "__main__.py").write_text(
        "import json, sys\nrequest = json.load(sys.stdin)\n"
        f"open(request['answer'], 'w').write({json.dumps(json.dumps(answer))})\n"
    )
    with pytest.raises(ProjectError, match="version 99 of the recording protocol"):
        record(directory, "dev")


def request(**given):
    return RecordingRequest("p", "dev", "/p/__main__.py", {"p:a": "1"}, ("p:a",), False, 3.5, **given)


def test_request_arrives_unchanged_and_another_version_is_refused(tmp_path):
    asked = request(answer="/a", assumptions=Assumptions({"a:b:c": {"x": 1}}, {"s": {"y": [2]}}))
    live = request(live=LiveBackend("module:function", {"z": 1}, 7))
    for each in (request(), asked, live):
        assert RecordingRequest.from_json(each.to_json()) == each
    # Who does not know of backends must not simulate instead.
    assert [json.loads(each.to_json())["protocol"] for each in (request(), live)] == [1, 2]
    with pytest.raises(UnknownProtocolError) as caught:
        RecordingRequest.from_json(json.dumps({**json.loads(request().to_json()), "protocol": 99}))
    assert caught.value.version == 99
    (tmp_path / "answer.json").write_text(json.dumps({"protocol": 99, "status": "recorded", "graph": {}}))
    with pytest.raises(UnknownProtocolError):
        Answer.read(tmp_path / "answer.json")
