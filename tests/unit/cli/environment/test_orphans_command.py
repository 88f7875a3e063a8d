"""`trn orphans`: where it gets the state from, its text, its JSON and its exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from trainium_eks.aws.account import Account, Caller
from trainium_eks.cli.app import app
from trainium_eks.cli.environment.cleanup.render_orphans import shell_lines
from trainium_eks.operate.cleanup import orphans
from trainium_eks.operate.cleanup.left_over import LeftOver, NotLookedAt, Result
from trainium_eks.operate.cleanup.marks import Marks
from trainium_eks.operate.cleanup.state import StackState

DELETE = "aws eks delete-nodegroup --cluster-name c --nodegroup-name g --region us-west-2"
GROUP = LeftOver("node group", "g", "of the cluster c", 43.0, (DELETE,), note="2 instances")
BUCKET = LeftOver("bucket", "b", "tagged Environment=dev", None, ("aws s3 rb s3://b",))
DENIED = NotLookedAt("volumes", "the right ec2:DescribeVolumes is missing")
PROVIDER = {"urn": "urn:p", "type": "pulumi:providers:aws", "id": "x", "inputs": {"region": "eu-west-1"}}
STATE = json.dumps({"version": 3, "deployment": {"resources": [PROVIDER]}})


class Asked:
    """What was looked for."""

    def __init__(self) -> None:
        self.marks = Marks()
        self.region = ""
        self.state: StackState | None = None


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Asked:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    return Asked()


def run(
    monkeypatch: pytest.MonkeyPatch, asked: Asked, *arguments: str, found: Any = (), unseen: Any = (), text: str = STATE
) -> Any:
    def look(account: Any, marks: Marks, state: StackState | None) -> Result:
        asked.marks, asked.region, asked.state = marks, account.region, state
        return Result(tuple(found), tuple(unseen), has_state=state is not None)

    monkeypatch.setattr(orphans, "look", look)
    monkeypatch.setattr(Account, "caller", lambda _: Caller("111122223333", "arn:aws:iam::111122223333:user/me"))
    return CliRunner().invoke(app, ["orphans", *arguments], input=text)


@pytest.mark.parametrize(
    ("found", "unseen", "code"), [((), (), 0), ((GROUP,), (), 1), ((), (DENIED,), 1), ((BUCKET,), (DENIED,), 1)]
)
def test_only_a_clean_account_that_was_wholly_looked_at_is_no_exit_code(
    monkeypatch: pytest.MonkeyPatch, asked: Asked, found: Any, unseen: Any, code: int
) -> None:
    assert run(monkeypatch, asked, "--state", "-", found=found, unseen=unseen).exit_code == code


def test_the_state_comes_from_standard_input_and_names_the_region(
    monkeypatch: pytest.MonkeyPatch, asked: Asked
) -> None:
    shown = run(monkeypatch, asked, "--state", "-", "--no-color", found=(GROUP, BUCKET), unseen=(DENIED,)).output
    assert (asked.region, asked.marks) == ("eu-west-1", Marks(stack="dev"))
    assert "node group (1)\n  g  $43.00 an hour\n    of the cluster c; 2 instances\n" in shown
    assert "    aws eks delete-nodegroup --cluster-name c --nodegroup-name g \\\n      --region us-west-2\n" in shown
    assert "not looked at: volumes: the right ec2:DescribeVolumes is missing" in shown
    assert "2 things are left: about $43.00 an hour (us-east-1's list prices), and bucket" in shown


def test_an_empty_state_is_said_first(monkeypatch: pytest.MonkeyPatch) -> None:
    from trainium_eks.cli.environment.cleanup.orphans import Orphans
    from trainium_eks.cli.environment.cleanup.render_orphans import show

    written: list[str] = []
    monkeypatch.setattr("trainium_eks.cli.shared.output.write", written.append)
    show(Orphans("dev", "us-west-2", Result((GROUP,), (), empty_state=True, live=("c",))), no_color=True)
    text = " ".join("".join(written).split())
    assert text.index("The state of dev is empty") < text.index("c is in service") < text.index("node group (1)")
    assert "trn orphans --cluster c --region us-west-2" in text
    assert "read each command" not in text


def test_a_cluster_needs_no_state(monkeypatch: pytest.MonkeyPatch, asked: Asked) -> None:
    shown = run(monkeypatch, asked, "--cluster", "c", "--region", "us-west-2").output
    assert (asked.region, asked.marks, asked.state) == ("us-west-2", Marks(cluster="c"), None)
    assert "There is no state to compare with" in shown
    assert "Nothing is left" in shown


def test_without_pulumi_it_says_what_to_do_instead(
    monkeypatch: pytest.MonkeyPatch, asked: Asked, tmp_path: Path
) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    result = run(monkeypatch, asked)
    assert result.exit_code == 2
    assert "pulumi, which knows the stack's state, is not on PATH" in result.stderr
    assert "--state state.json" in result.stderr
    assert "orphans --cluster NAME" in result.stderr


@pytest.mark.parametrize("text", ["", "[]", '{"deployment": {"resources": [{}]}}', "{}"])
def test_another_file_than_a_state_is_said(monkeypatch: pytest.MonkeyPatch, asked: Asked, text: str) -> None:
    result = run(monkeypatch, asked, "--state", "-", "--json", text=text)
    assert result.exit_code == 2
    assert "does not hold what `pulumi stack export` prints" in json.loads(result.output)["problems"][0]["reason"]


def test_no_region_is_wrong_usage(monkeypatch: pytest.MonkeyPatch, asked: Asked) -> None:
    result = run(monkeypatch, asked, "--cluster", "c")
    assert result.exit_code == 2
    assert "name it with --region" in result.stderr


def test_the_json_is_one_document(monkeypatch: pytest.MonkeyPatch, asked: Asked) -> None:
    data = json.loads(run(monkeypatch, asked, "--state", "-", "--json", found=(GROUP,), unseen=(DENIED,)).output)
    assert data["hourlyUsd"] == 43.0
    assert data["found"][0]["commands"] == [DELETE]
    assert data["notLookedAt"] == [{"what": "volumes", "reason": "the right ec2:DescribeVolumes is missing"}]


def test_a_long_command_is_broken_where_a_shell_goes_on() -> None:
    lines = shell_lines(f"{DELETE} --one {'x' * 40} --two y")
    assert lines[0].endswith(" \\")
    assert " ".join(line.removesuffix("\\").strip() for line in lines) == f"{DELETE} --one {'x' * 40} --two y"
