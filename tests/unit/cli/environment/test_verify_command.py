"""``trn verify`` from its options to its exit code, over HTTP against a server that serves a snapshot."""

import json
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cluster_snapshots import objects, outputs, the, without
from exit_codes import exit_code
from small_project import Project
from stub_api import StubApi, serving

from trainium_eks.cli.environment.check import verify
from trainium_eks.cli.environment.check.verify import VerifyOptions, run
from trainium_eks.cli.local import local as local_commands
from trainium_eks.local.control_plane.control_plane import Started
from trainium_eks.local.deployment import Result
from trainium_eks.local.paths import Paths
from trainium_eks.plan.graph import Graph

Answer = tuple[int, str, str]
Verify = Callable[..., Answer]


@pytest.fixture(autouse=True)
def _screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(verify, "PAUSE_SECONDS", 0.05)


@pytest.fixture
def api() -> Iterator[StubApi]:
    with serving(objects()) as stub:
        yield stub


@pytest.fixture
def file(tmp_path: Path, api: StubApi) -> Path:
    """The outputs of the stack that the server is sound for, with a kubeconfig for it."""
    path = tmp_path / "exported.json"
    path.write_text(json.dumps(_outputs(api)))
    return path


def _outputs(api: StubApi, **changes: Any) -> dict[str, Any]:
    return {**outputs().model_dump(by_alias=True), "kubeconfig": json.dumps(api.kubeconfig), **changes}


@pytest.fixture
def trn_verify(capsys: pytest.CaptureFixture[str]) -> Verify:
    def call(stack: str = "dev", **options: Any) -> Answer:
        code = exit_code(lambda: run(VerifyOptions(stack, **options)))
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


@pytest.fixture
def local(project: Project, api: StubApi) -> Paths:
    """A local cloud of the stack dev, without Volcano's chart, as `trn local up` leaves it."""
    paths = Paths.of(project.path, "dev")
    paths.root.mkdir(parents=True)
    paths.outputs.write_text(json.dumps(_outputs(api)))
    paths.kubeconfig.write_text(json.dumps(api.kubeconfig))
    reason = "chart repository not reachable: https://volcano-sh.github.io (no such host)"
    report = {
        "schemaVersion": 1,
        "local": True,
        "notInstalled": [{"name": "volcano", "reason": reason}],
        "simulated": ["aws"],
        "realVolcano": False,
    }
    paths.report.write_text(json.dumps(report))
    for name in ("volcano-scheduler", "volcano-controllers", "volcano-admission"):
        without(api.objects, "Deployment", name)
    return paths


def test_a_sound_cluster_exits_with_zero_and_ends_with_the_summary(trn_verify: Verify, file: Path) -> None:
    code, out, err = trn_verify(outputs=file)
    assert (code, err) == (0, "")
    assert out.rstrip().endswith("✓ trn-dev is as its stack says: 33 pass, 14 do not apply.")
    assert max(map(len, out.splitlines())) <= 80
    assert "\x1b" not in out


def test_a_failure_exits_with_one_and_shows_what_has_what_and_what_to_do(
    trn_verify: Verify, file: Path, api: StubApi
) -> None:
    the(api.objects, "Node", "trn1")["status"]["allocatable"]["vpc.amazonaws.com/efa"] = "0"
    code, out, _ = trn_verify(outputs=file)
    assert code == 1
    assert "trn1: vpc.amazonaws.com/efa has 0 of 8, wants 8" in out
    assert "→ the EFA device plugin on trn1 has stopped" in out
    assert out.rstrip().endswith("✗ trn-dev is not as its stack says: 1 check fails; 32 pass, 14 do not apply.")


def test_json_is_all_that_is_printed(trn_verify: Verify, file: Path, api: StubApi) -> None:
    without(api.objects, "Node", "trn1")
    code, out, _ = trn_verify(outputs=file, as_json=True)
    data = json.loads(out)
    assert code == 1
    assert (data["schemaVersion"], data["stack"], data["local"], data["server"]) == (1, None, False, api.url)
    assert data["summary"]["fail"] == len([each for each in data["checks"] if each["status"] == "fail"]) == 1


def test_the_kubeconfig_of_the_outputs_is_the_owners_alone_and_removed(
    trn_verify: Verify, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    seen: list[int] = []
    looks = verify._looks

    def look(source: Any, kubeconfig: Path, asked: VerifyOptions) -> Any:
        assert kubeconfig.parent == directory
        seen.append(stat.S_IMODE(kubeconfig.stat().st_mode))
        return looks(source, kubeconfig, asked)

    monkeypatch.setattr(verify, "_looks", look)
    assert trn_verify(outputs=file)[0] == 0
    assert seen == [0o600]
    assert list(directory.iterdir()) == []


def test_a_given_kubeconfig_goes_before_the_outputs_own(trn_verify: Verify, tmp_path: Path, api: StubApi) -> None:
    file, kubeconfig = tmp_path / "exported.json", tmp_path / "config"
    file.write_text(json.dumps(_outputs(api, kubeconfig="[secret]")))
    kubeconfig.write_text(json.dumps(api.kubeconfig))
    assert trn_verify(outputs=file)[0] == 2
    assert trn_verify(outputs=file, kubeconfig=kubeconfig)[0] == 0


def test_an_unreachable_server_is_one_message_and_no_table(trn_verify: Verify, tmp_path: Path, api: StubApi) -> None:
    file = tmp_path / "exported.json"
    config = api.kubeconfig
    config["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:1"
    file.write_text(json.dumps(_outputs(api, kubeconfig=json.dumps(config))))
    code, out, err = trn_verify(outputs=file)
    assert (code, out) == (1, "")
    assert "http://127.0.0.1:1" in err.splitlines()[0]
    assert "cannot be reached" in err.splitlines()[0]
    assert len(err.splitlines()) <= 2


def test_a_server_that_refuses_the_credentials_says_so(trn_verify: Verify, file: Path, api: StubApi) -> None:
    api.refuses["/version"] = 401
    code, out, err = trn_verify(outputs=file)
    assert (code, out) == (1, "")
    assert "refuses this machine's credentials" in err


def test_a_kind_that_may_not_be_listed_fails_alone(trn_verify: Verify, file: Path, api: StubApi) -> None:
    api.refuses["/apis/scheduling.volcano.sh/v1beta1/queues"] = 403
    code, out, _ = trn_verify(outputs=file, as_json=True)
    failing = [each["id"] for each in json.loads(out)["checks"] if each["status"] == "fail"]
    assert (code, failing) == (1, ["queues/unread"])


def test_a_cluster_without_volcanos_definitions_is_judged(trn_verify: Verify, file: Path, api: StubApi) -> None:
    api.refuses["/apis/scheduling.volcano.sh/v1beta1"] = 404
    code, out, _ = trn_verify(outputs=file, as_json=True)
    [queue] = [each for each in json.loads(out)["checks"] if each["id"] == "queues/test"]
    assert (code, queue["detail"]) == (1, "the cluster knows no queues")


def test_a_local_cloud_is_found_by_its_stack_and_says_what_it_lacks(
    trn_verify: Verify, project: Project, local: Paths
) -> None:
    code, out, _ = trn_verify(directory=project.path)
    assert code == 0
    assert out.startswith("dev · trn-dev · local cloud")
    assert "nodes and the pods on them are simulated" in out
    assert "~  volcano-scheduler    not installed: chart repository not reachable:" in out
    assert out.count("(no such host)") == 1
    assert "3 not installed here" in out.splitlines()[-2]
    assert "not compared: an `up` goes on, or did not end well" in out
    local.made.write_text('{"deployment": {"resources": []}}')
    assert "not compared" not in trn_verify(directory=project.path)[1]


def test_a_local_clouds_outputs_given_as_a_file_are_known_for_what_they_are(trn_verify: Verify, local: Paths) -> None:
    code, out, _ = trn_verify(outputs=local.outputs, as_json=True)
    data = json.loads(out)
    assert (code, data["local"], data["summary"]["notInstalled"]) == (0, True, 3)


def test_what_a_local_cloud_lacks_fails_on_aws(trn_verify: Verify, local: Paths, file: Path) -> None:
    assert trn_verify(outputs=file)[0] == 1


def test_a_damaged_report_is_wrong_usage(trn_verify: Verify, project: Project, local: Paths) -> None:
    local.report.write_text("{}")
    code, _, err = trn_verify(directory=project.path)
    assert code == 2
    assert "trn local up" in err


def test_without_local_cloud_and_pulumi_it_says_how_to_go_on(
    trn_verify: Verify, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    code, _, err = trn_verify(directory=project.path)
    assert code == 2
    assert "trn local up --stack dev" in err
    assert "--outputs FILE" in err


def _program(directory: Path, name: str, body: str) -> None:
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(f"#!{sys.executable}\n{body}\n")
    path.chmod(0o755)


def test_a_deployed_stack_is_asked_from_pulumi(
    trn_verify: Verify, project: Project, api: StubApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    wanted = ["stack", "output", "--json", "--show-secrets", "--stack", "dev"]
    exported = json.dumps(_outputs(api))
    _program(tmp_path / "bin", "pulumi", f"import sys\nassert sys.argv[1:] == {wanted!r}\nprint({exported!r})")
    code, out, _ = trn_verify(directory=project.path)
    assert code == 0
    assert out.startswith("dev · trn-dev\n")


@pytest.mark.parametrize(
    ("pulumi", "words"),
    [
        ("import sys\nsys.exit('error: no stack named dev found')", "no stack named dev found"),
        ("print('{}')", "has its `up` finished?"),
    ],
    ids=["refusal", "no outputs"],
)
def test_why_pulumi_gives_no_outputs_is_shown(
    trn_verify: Verify, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pulumi: str, words: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    _program(tmp_path / "bin", "pulumi", pulumi)
    code, _, err = trn_verify(directory=project.path)
    assert code == 2
    assert words in err


def test_an_unknown_stack_is_wrong_usage(trn_verify: Verify, project: Project) -> None:
    assert trn_verify(stack="nobody", directory=project.path)[0] == 2


def test_a_missing_aws_command_is_named_before_the_server_refuses(
    trn_verify: Verify, tmp_path: Path, api: StubApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    config = api.kubeconfig
    config["users"][0]["user"] = {"exec": {"command": "aws", "args": []}}
    file = tmp_path / "exported.json"
    file.write_text(json.dumps(_outputs(api, kubeconfig=json.dumps(config))))
    code, _, err = trn_verify(outputs=file)
    assert code == 2
    assert err.startswith("aws is not on PATH")
    assert api.looks == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [(None, "cannot read"), ("no json", "is not JSON"), ('{"schemaVersion": 1}', "does not hold a stack's outputs")],
)
def test_unusable_outputs_are_wrong_usage(trn_verify: Verify, tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "exported.json"
    if text is not None:
        file.write_text(text)
    code, _, err = trn_verify(outputs=file)
    assert code == 2
    assert said in err


def test_a_missing_kubeconfig_is_wrong_usage(trn_verify: Verify, file: Path, tmp_path: Path) -> None:
    assert trn_verify(outputs=file, kubeconfig=tmp_path / "none")[0] == 2


def test_waiting_ends_when_nothing_fails_any_more(trn_verify: Verify, file: Path, api: StubApi) -> None:
    queue = the(api.objects, "Queue", "test")
    queue["status"] = {}
    api.before_look = lambda number: queue.update(status={"state": "Open"} if number == 3 else {})
    code, out, err = trn_verify(outputs=file, wait=True, timeout_seconds=60)
    assert (code, out.count("API server\n")) == (0, 1)
    assert err.count("failing: queues/test/state; looking again for") == 2
    assert api.looks == 3


def test_waiting_ends_with_the_time_given(
    trn_verify: Verify, file: Path, api: StubApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(api.objects, "Queue", "test")
    slept: list[float] = []  # by a clock on which nothing else takes time
    monkeypatch.setattr(verify, "time", SimpleNamespace(monotonic=lambda: sum(slept), sleep=slept.append))
    monkeypatch.setattr(verify, "PAUSE_SECONDS", 5)
    assert trn_verify(outputs=file, wait=True, timeout_seconds=12)[0] == 1
    assert slept == [0.625, 1.25, 2.5, 5, 2.625]
    assert api.looks == 7, "six of its own, and the doctor's"


def test_without_waiting_it_looks_once(trn_verify: Verify, file: Path, api: StubApi) -> None:
    without(api.objects, "Queue", "test")
    assert trn_verify(outputs=file, timeout_seconds=20)[0] == 1
    assert api.looks == 1


def test_only_five_faulty_objects_are_shown_and_json_has_all(
    trn_verify: Verify, tmp_path: Path, api: StubApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = outputs().node_groups[0].model_copy(update={"desired_size": 9, "max_size": 9})
    file = tmp_path / "exported.json"
    file.write_text(json.dumps(_outputs(api, nodeGroups=[group.model_dump(by_alias=True)])))
    monkeypatch.setenv("COLUMNS", "160")
    first = the(api.objects, "Node", "trn0")
    for number in range(2, 9):
        api.objects["Node"].append({**first, "metadata": {**first["metadata"], "name": f"trn{number}"}})
    first["status"]["allocatable"]["aws.amazon.com/neuron"] = "15"  # the copies share it
    _, out, _ = trn_verify(outputs=file)
    assert out.count("aws.amazon.com/neuron has 15 of 16, wants 16") == 4
    assert "and 4 more" in out
    _, out, _ = trn_verify(outputs=file, as_json=True)
    [check] = [each for each in json.loads(out)["checks"] if each["id"] == "devices/ng1/aws.amazon.com/neuron"]
    assert len(check["faults"]) == 8


def test_colors_follow_the_screen_and_no_color(trn_verify: Verify, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    green = "\x1b[32m"
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert green in trn_verify(outputs=file)[1]
    assert green not in trn_verify(outputs=file, no_color=True)[1]
    monkeypatch.setenv("NO_COLOR", "1")
    assert green not in trn_verify(outputs=file)[1]


@pytest.fixture
def local_up(
    local: Paths, project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Answer]:
    """`trn local up` of a stack that is up: what comes after the last resource."""

    def call(outputs: Mapping[str, Any]) -> Answer:
        graph = Graph("trainium-eks", "dev", (), outputs)
        started = Started("https://127.0.0.1:1", "v1.35.4", (), (), 0.0)
        result = Result(graph, outputs, started, {}, {}, (), real_volcano=False, seconds=1.0)
        monkeypatch.setattr("trainium_eks.local.deployment.up", lambda *_: result)
        monkeypatch.setattr(local_commands, "WELL_WITHIN_SECONDS", 0.0)
        code = local_commands.up(local_commands.Target("dev", project.path), None)
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    assert local.outputs.is_file()
    return call


def test_up_on_this_machine_ends_with_the_same_checks(local_up: Callable[..., Answer], api: StubApi) -> None:
    code, out, _ = local_up(_outputs(api))
    assert code == 0
    assert "✓ dev is as its stack says: 29 pass" in out
    the(api.objects, "Node", "trn1")["status"]["allocatable"]["vpc.amazonaws.com/efa"] = "0"
    code, out, _ = local_up(_outputs(api))
    assert code == 1
    assert "trn1: vpc.amazonaws.com/efa has 0 of 8, wants 8" in out
    assert "./trn local up sets them back" in out
    assert "✗ dev is not as its stack says: 1 check fails" in out


def test_up_of_another_program_has_no_checks(local_up: Callable[..., Answer]) -> None:
    code, out, _ = local_up({"keyArn": "arn:aws:kms:us-west-2:111122223333:key/1"})
    assert code == 0
    assert "as its stack says" not in out
