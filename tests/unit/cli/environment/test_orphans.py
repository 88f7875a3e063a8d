"""`trn orphans`: where it gets the state from, its text, its JSON and its exit codes."""

import json

import pytest
from cleanup_accounts import creating
from outcome import ends
from typer.testing import CliRunner

from trainium_eks.aws.account import Account, Caller
from trainium_eks.cli.app import app
from trainium_eks.operate.cleanup import orphans
from trainium_eks.operate.cleanup.left_over import LeftOver
from trainium_eks.operate.cleanup.recovery import Advice

DELETE = "aws eks delete-nodegroup --cluster-name c --nodegroup-name g --region us-west-2"
GROUP = LeftOver("node group", "g", "of the cluster c", 43.0, (DELETE,), note="2 instances")
BUCKET = LeftOver("bucket", "b", "tagged Environment=dev", None, ("aws s3 rb s3://b",))
DENIED = orphans._unseen("volumes", Exception("the right ec2:DescribeVolumes is missing"))
CREATING = creating("aws:eks/nodeGroup:NodeGroup", {"clusterName": "c", "nodeGroupName": "workers-1"})
IMPORT = Advice(CREATING, "import", "AWS has it", "c:workers-1")
LOOK = Advice(CREATING, "look", "several may be it")
STATE = {"urn": "urn:p", "type": "pulumi:providers:aws", "id": "x", "inputs": {"region": "eu-west-1"}}
TEXT = json.dumps({"version": 3, "deployment": {"resources": [STATE]}})


@pytest.fixture
def run(monkeypatch, tmp_path):
    """The command in an empty directory without pulumi, with results of its searches."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(Account, "caller", lambda _: Caller("111122223333", "arn:aws:iam::111122223333:user/me"))

    def invoke(*options, found=(), unseen=(), advice=(), text=TEXT):
        monkeypatch.setattr(orphans, "_search", lambda *_: (list(found), list(unseen)))
        monkeypatch.setattr(orphans.recovery, "advise", lambda *_: list(advice))
        return CliRunner().invoke(app, ["orphans", *options], input=text)

    return invoke


@pytest.mark.parametrize(
    ("results", "code"), [({"unseen": (DENIED,)}, 1), ({"advice": (IMPORT,)}, 0), ({"advice": (LOOK,)}, 1)]
)
def test_only_a_fully_searched_clean_account_exits_0(run, results, code):
    assert run("--state", "-", **results).exit_code == code


def test_state_is_read_from_standard_input_with_its_region(run):
    ends(
        1,
        run("--state", "-", "--no-color", found=(GROUP, BUCKET), unseen=(DENIED,)),
        "dev · eu-west-1",
        "node group\n  ✗  g  $43.00 an hour; of the cluster c; 2 instances\n\n",
        "  aws eks delete-nodegroup --cluster-name c --nodegroup-name g \\\n    --region us-west-2\n\n",
        "the right ec2:DescribeVolumes is missing",
        "2 things are left: about $43.00 an hour (us-east-1's list prices), and bucket",
    )


def test_pending_operations_are_listed_first_and_json_is_one_document(run):
    shown = run("--state", "-", "--no-color", advice=(IMPORT,), found=(GROUP,)).output
    assert shown.index("pulumi cancel --stack dev") < shown.index("import c:workers-1:") < shown.index("node group")
    assert shown.index("pulumi import aws:eks/nodeGroup:NodeGroup r0 c:workers-1 ") < shown.index("delete-nodegroup")
    assert "  pulumi refresh --stack dev --clear-pending-creates\n" in shown
    assert "1 of 2 are left to you" in run("--state", "-", "--no-color", advice=(IMPORT, LOOK)).output
    data = json.loads(run("--state", "-", "--json", advice=(IMPORT,), found=(GROUP,), unseen=(DENIED,)).output)
    assert (data["schemaVersion"], data["failed"], data["hourlyUsd"]) == (2, True, 43.0)
    operation, group, volumes = data["findings"]
    assert (operation["action"], operation["importId"]) == ("import", "c:workers-1")
    assert operation["urn"] == CREATING.resource.urn
    assert (group["id"], group["kind"], group["commands"]) == ("node group/g", "node group", [DELETE])
    assert (volumes["status"], volumes["subject"]) == ("not checked", "volumes")
    assert data["recovery"][-1] == "pulumi refresh --stack dev --clear-pending-creates"


def test_orphans_needs_a_stack_or_file_and_prints_no_command_without_any(run, tmp_path):
    nothing = "There is no state to compare with"
    ends(0, run("--cluster", "c", "--region", "us-west-2"), "c · us-west-2", nothing, "Nothing is left")
    ends(2, run("--cluster", "c"), "name it with --region")
    (tmp_path / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    missing = "pulumi, which knows the stack's state, is not on PATH"
    ends(2, run(), missing, "--state state.json", "--cluster NAME")
    cluster = LeftOver("EKS cluster", "c", "of the cluster c", 0.1, (DELETE,), live=True)
    shown = run("--state", "-", "--region", "us-west-2", found=(cluster, GROUP)).output
    text = " ".join(shown.split())
    assert text.index("The state of dev is empty") < text.index("c is in service") < text.index("node group")
    assert "trn orphans --cluster c --region us-west-2" in text
    assert "delete-nodegroup" not in text


@pytest.mark.parametrize("text", ["", "[]", '{"deployment": {"resources": [{}]}}'])
def test_file_that_is_no_state_is_refused(run, text):
    result = run("--state", "-", "--json", text=text)
    assert result.exit_code == 2
    assert "does not hold what `pulumi stack export` prints" in json.loads(result.output)["problems"][0]["reason"]
