"""Recording a project's own program in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
from waiting import SECONDS, out_of_time, until

from trainium_eks.model.validation.problems import Problem, Severity
from trainium_eks.plan.recording import process
from trainium_eks.plan.recording.process import (
    InvalidConfigError,
    Live,
    ProgramFailedError,
    ProgramTimeoutError,
    ProjectError,
    record,
)

ROOT = Path(__file__).resolve().parents[4]


def project(directory: Path, program: str, stack: str = "config: {}") -> Path:
    (directory / "Pulumi.yaml").write_text("name: proj\nruntime: python\n")
    (directory / "Pulumi.dev.yaml").write_text(stack)
    (directory / "__main__.py").write_text(textwrap.dedent(program))
    return directory


def pending(directory: Path, told: str) -> tuple[str, ...]:
    """What a program waits for that does not end; ``told`` is in it when the program has come so far."""

    def attempt(seconds: float) -> tuple[str, ...]:
        with pytest.raises(ProgramTimeoutError) as caught:
            record(directory, "dev", timeout_seconds=seconds)
        return caught.value.pending

    return out_of_time(attempt, told)


def runs(pid: int) -> bool:
    """Whether a process goes on; what has ended may still be listed until somebody has asked for its exit code."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_program_is_recorded_with_its_config_and_its_own_modules(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("SIZE = 2\n")
    program = """
        import pulumi, pulumi_aws as aws, parts
        config = pulumi.Config()
        for index in range(parts.SIZE):
            aws.ec2.Eip(f"ip{index}")
        pulumi.export("region", config.require("region"))
        pulumi.export("secret", config.require("token"))
        print("prints", "do", "not", "matter", '{"status": "failed"}')
    """
    graph = record(project(tmp_path, program, "config: {region: eu-west-1, token: {secure: v1:x}}"), "dev")
    assert (graph.project, graph.stack) == ("proj", "dev")
    assert [eip.name for eip in graph.of_type("aws:ec2/eip:Eip")] == ["ip0", "ip1"]
    assert graph.outputs == {"region": "eu-west-1", "secret": "[secret]"}
    assert graph.config == {"region": "eu-west-1", "token": "[secret]"}


def test_two_recordings_in_processes_with_other_hashes_are_byte_identical(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_what_the_shell_holds_does_not_reach_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "mars-north-1")
    monkeypatch.setenv("PULUMI_CONFIG", '{"proj:x": "ambient"}')
    program = """
        import pulumi, pulumi_aws as aws
        aws.Provider("p")
        pulumi.export("x", pulumi.Config().get("x") or "unset")
    """
    graph = record(project(tmp_path, program), "dev")
    (provider,) = graph.of_type("pulumi:providers:aws")
    assert "region" not in provider.inputs
    assert graph.outputs == {"x": "unset"}


def test_refused_arguments_come_back_as_problems_without_traceback(tmp_path: Path) -> None:
    program = """
        import pulumi
        from trainium_eks.model.validation.problems import Problem, Severity

        class ArgumentError(pulumi.RunError, ValueError):
            first = Problem("a.b", "too big", "use 3", severity=Severity.ACKNOWLEDGE, rule="R29")
            problems = (first, Problem("c", "no"))

        raise ArgumentError("2 problems")
    """
    with pytest.raises(InvalidConfigError) as caught:
        record(project(tmp_path, program), "dev")
    first, second = caught.value.problems
    assert (first.path, first.reason, first.fix) == ("a.b", "too big", "use 3")
    assert (first.severity, first.rule) == (Severity.ACKNOWLEDGE, "R29")
    assert (second.path, second.reason) == ("c", "no")
    assert "Traceback" not in str(caught.value)


def test_a_config_of_the_wrong_type_is_refused_before_anything_runs(tmp_path: Path) -> None:
    directory = project(tmp_path, "raise SystemExit(3)")
    (tmp_path / "Pulumi.yaml").write_text("name: proj\nruntime: python\nconfig: {n: {type: integer}}\n")
    with pytest.raises(InvalidConfigError) as caught:
        record(directory, "dev")
    assert [problem.path for problem in caught.value.problems] == ["n"]


def test_a_run_error_is_a_message_alone(tmp_path: Path) -> None:
    with pytest.raises(ProgramFailedError) as caught:
        record(project(tmp_path, 'import pulumi\nraise pulumi.RunError("think again")\n'), "dev")
    assert (caught.value.message, caught.value.traceback) == ("think again", "")


def test_an_exception_comes_with_the_programs_own_frames_and_what_it_printed(tmp_path: Path) -> None:
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


def test_an_exception_in_an_apply_is_found_too(tmp_path: Path) -> None:
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


def test_a_syntax_error_and_a_missing_module_are_the_programs_failures(tmp_path: Path) -> None:
    with pytest.raises(ProgramFailedError, match="SyntaxError"):
        record(project(tmp_path, "def ("), "dev")
    with pytest.raises(ProgramFailedError, match="No module named 'nowhere'"):
        record(project(tmp_path, "import nowhere"), "dev")


def test_what_cannot_be_recorded_fails_with_its_place(tmp_path: Path) -> None:
    program = 'import pulumi_aws as aws\naws.ivs.Channel("q")\n'
    with pytest.raises(ProgramFailedError, match=r"aws:ivs/channel:Channel.*\(__main__\.py:2\)") as caught:
        record(project(tmp_path, program), "dev")
    assert caught.value.traceback == ""


def test_an_exit_is_a_failure_unless_it_is_a_success(tmp_path: Path) -> None:
    with pytest.raises(ProgramFailedError, match="exited with 3"):
        record(project(tmp_path, "raise SystemExit(3)"), "dev")
    program = 'import pulumi, sys\npulumi.export("a", 1)\nsys.exit(0)\n'
    assert record(project(tmp_path, program), "dev").outputs == {"a": 1}


def test_what_hangs_is_named(tmp_path: Path) -> None:
    program = """
        import asyncio, pulumi
        never = asyncio.get_event_loop().create_future()
        pulumi.CustomResource("aws:ec2/vpc:Vpc", "v", {"cidr_block": pulumi.Output.from_input(never)})
    """
    assert pending(project(tmp_path, program), "Vpc v") == ("aws:ec2/vpc:Vpc v (waiting for: cidr_block)",)


def test_a_program_that_computes_without_end_is_stopped_and_says_where_it_was(tmp_path: Path) -> None:
    program = "import pulumi\ndef spin():\n    while True:\n        pass\nspin()\n"
    (place,) = pending(project(tmp_path, program), "in spin")  # one that was killed says nothing
    assert place.startswith("running __main__.py:")
    assert place.endswith("in spin")


@pytest.mark.slow
def test_a_process_that_cannot_even_say_so_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_GRACE_SECONDS", 0.0)
    program = "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\n"
    with pytest.raises(ProgramTimeoutError, match="did not say"):
        record(project(tmp_path, program), "dev", timeout_seconds=8)


def test_a_killed_process_names_the_signal(tmp_path: Path) -> None:
    program = "import os, signal\nprint('last words', flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    with pytest.raises(ProgramFailedError, match="killed by SIGKILL") as caught:
        record(project(tmp_path, program), "dev")
    assert "last words" in caught.value.output


def test_a_process_that_ends_without_answer_names_its_exit_code(tmp_path: Path) -> None:
    with pytest.raises(ProgramFailedError, match="exit code 7 and no answer"):
        record(project(tmp_path, "import os\nos._exit(7)\n"), "dev")


def test_a_process_left_behind_does_not_keep_the_recording_waiting(tmp_path: Path) -> None:
    program = """
        import pulumi, subprocess
        left = subprocess.Popen(['sleep', '600'])  # longer than a program may take
        pulumi.export('left', left.pid)
    """
    left = record(project(tmp_path, program), "dev").outputs["left"]
    until(lambda: not runs(int(left)), "the end of what was left behind")


@pytest.mark.parametrize("left_behind", ["executed", "forked"])
def test_a_daemon_that_a_backend_starts_does_not_keep_the_recording_waiting(tmp_path: Path, left_behind: str) -> None:
    """One that is forked without being executed keeps every pipe of this process, whatever is done about it."""
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
    events: list[Mapping[str, Any]] = []
    outcome: list[object] = []
    live = Live("daemons:make", {}, events.append)
    recording = threading.Thread(
        target=lambda: outcome.append(record(directory, "dev", live=live).outputs), daemon=True
    )
    recording.start()
    recording.join(SECONDS)
    told = [event["event"] for event in events]
    os.kill(events[-1]["pid"], signal.SIGKILL)
    assert (outcome, told) == ([{"done": 1}], ["before", "daemon"])


def test_an_interrupt_ends_the_program_too(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    directory = project(
        tmp_path, f"import os, time\nopen({str(mark)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    # Tests that a shell runs in the background have inherited that interrupts are ignored.
    call = (
        "import sys, pathlib, signal, trainium_eks.plan.recording.process as r\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "r.record(pathlib.Path(sys.argv[1]), 'dev')"
    )
    caller = subprocess.Popen([sys.executable, "-c", call, str(directory)], cwd=ROOT, stderr=subprocess.PIPE)
    until(lambda: mark.is_file() and mark.read_text())
    caller.send_signal(signal.SIGINT)
    _, printed = caller.communicate(timeout=SECONDS)
    assert b"KeyboardInterrupt" in printed
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


def test_an_old_checkout_is_recorded_by_its_own_package(tmp_path: Path) -> None:
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


def test_a_problem_keeps_what_is_allowed_and_the_fix_across_processes(tmp_path: Path) -> None:
    program = """
        import pulumi
        from trainium_eks.model.validation.problems import Problem
        class Bad(pulumi.RunError):
            problems = (Problem("a", "too big", value=3, allowed=("1", "2"), good=2),)
        raise Bad("too big")
    """
    with pytest.raises(InvalidConfigError) as caught:
        record(project(tmp_path, program), "dev")
    assert caught.value.problems == (Problem("a", "too big", value=3, allowed=("1", "2"), good=2),)


def test_declared_types_and_the_program_are_heard_together(tmp_path: Path) -> None:
    program = """
        import pulumi
        from trainium_eks.model.validation.problems import Problem
        class Bad(pulumi.RunError):
            problems = (Problem("node_count", "said before"), Problem("zone", "no such zone"))
        raise Bad("two problems")
    """
    directory = project(tmp_path, program)
    (directory / "Pulumi.yaml").write_text("name: demo\nruntime: python\nconfig:\n  nodeCount: {type: integer}\n")
    (directory / "Pulumi.dev.yaml").write_text("config:\n  demo:nodeCount: many\n")
    with pytest.raises(InvalidConfigError) as caught:
        record(directory, "dev")
    assert [problem.path for problem in caught.value.problems] == ["nodeCount", "zone"]


def test_a_program_whose_caller_is_killed_ends_too(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    directory = project(
        tmp_path, f"import os, time\nopen({str(mark)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    call = "import sys, pathlib, trainium_eks.plan.recording.process as r; r.record(pathlib.Path(sys.argv[1]), 'dev')"
    caller = subprocess.Popen([sys.executable, "-c", call, str(directory)], cwd=ROOT)
    until(lambda: mark.is_file() and mark.read_text())
    caller.kill()
    caller.wait()
    until(lambda: not runs(int(mark.read_text())), "its end")
