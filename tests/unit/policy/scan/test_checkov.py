"""checkov over this repository's environments: nothing stands, and it sees what is planted."""

import json
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from rule_programs import Program
from security_mutations import KINDS

from policy.scan import checkov
from policy.scan.__main__ import WAIVERS, all_seen, main, scanned
from policy.scan.manifests import Manifests, manifests
from policy.scan.terraform import plan
from policy.scan.waivers import judge, read
from trainium_eks.plan.graph import Graph
from trainium_eks.plan.recording.process import record
from trainium_eks.plan.recording.project import StackSettings

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[4]
PROGRAM = checkov.find()
needs_checkov = pytest.mark.skipif(
    PROGRAM is None, reason=f"no checkov: `make security` installs it, or name it in {checkov.VARIABLE}"
)

PLANTED = {
    "a public bucket": "CKV_AWS_70",
    "blockPublicAcls off": "CKV_AWS_53",
    "blockPublicPolicy off": "CKV_AWS_54",
    "no rotation": "CKV_AWS_7",
    "logs in plain text": "CKV_AWS_158",
    "logs kept a week": "CKV_AWS_338",
    "secrets in plain text": "CKV_AWS_58",
    "no audit log": "CKV_AWS_37",
    "IMDSv1": "CKV_AWS_79",
    "every action": "CKV_AWS_62",
    "open ingress": "CKV_AWS_24",
    "a subnet of nodes with public addresses": "CKV_AWS_130",
    "Lustre with AWS' key": "CKV_AWS_190",
    "tags that move": "CKV_AWS_51",
    "images not scanned": "CKV_AWS_163",
    "a privileged container": "CKV_K8S_16",
    "the host's network": "CKV_K8S_19",
    "a role for everything": "CKV_K8S_49",
}
"""What is planted (kinds of tests/security_mutations.py) and the check that must see it."""


def planted(graph: Graph) -> Graph:
    """All of them at once, each at its first place."""
    kinds = {kind.name: kind for kind in KINDS}
    for name in PLANTED:
        graph = kinds[name].at(graph, next(iter(kinds[name].places(graph)))).graph
    return graph


@cache
def production() -> Graph:
    """Production with a network of its own, for the faults of networks."""

    def own_network(settings: StackSettings) -> StackSettings:
        kept = {key: value for key, value in settings.config.items() if not key.endswith(":existingNetwork")}
        given = {
            "network": {"natGateways": "per-zone"},
            "cluster": {
                "endpoint": {"publicAccessCidrs": ["203.0.113.0/24"]},
                "cpuNodes": {"ignoreDesiredSize": True},
            },
        }
        return replace(settings, config={**kept, **{f"trainium-eks:{key}": json.dumps(given[key]) for key in given}})

    return record(ROOT, "prod", adjust=own_network)


def test_every_planted_fault_is_known() -> None:
    assert set(PLANTED) <= {kind.name for kind in KINDS}


@needs_checkov
def test_planted_faults_are_seen_and_only_where_they_are_planted() -> None:
    assert PROGRAM
    graphs = {"sound": production(), "faulty": planted(production())}
    environments = [
        checkov.Environment(name, plan(graph), manifests(graph, ROOT, None)) for name, graph in graphs.items()
    ]
    found = checkov.scan(PROGRAM, environments).findings
    seen = {name: {each.check for each in found if each.resource.startswith(name)} for name in graphs}
    assert {name: check for name, check in PLANTED.items() if check not in seen["faulty"]} == {}
    assert set(PLANTED.values()) & seen["sound"] == set()


@needs_checkov
def test_nothing_stands_and_no_waiver_is_stale() -> None:
    assert PROGRAM
    environments = scanned(ROOT, ["dev", "prod", "gpu"])
    judged = judge(
        checkov.scan(PROGRAM, environments).findings, read(ROOT / WAIVERS), everything_seen=all_seen(environments)
    )
    assert (judged.standing, judged.stale) == ((), ())


def test_without_checkov_one_sentence_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checkov, "find", lambda: None)
    assert main(["dev"]) == 2
    assert "`make security` installs it" in capsys.readouterr().err


def test_a_stack_that_cannot_be_recorded_is_said_in_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checkov, "find", lambda: Path("checkov"))
    assert main(["nowhere"]) == 2
    said = capsys.readouterr().err
    assert "nowhere" in said
    assert "`trn plan` says more." in said


def test_the_pinned_version_is_the_one_that_is_installed() -> None:
    assert f"checkov=={checkov.VERSION}" in (ROOT / "requirements-security.txt").read_text().splitlines()


def _fake(tmp_path: Path, answer: str, errors: str = "") -> Path:
    program = tmp_path / "checkov"
    program.write_text(f"#!{sys.executable}\nimport sys\nprint({answer!r})\nsys.stderr.write({errors!r})\n")
    program.chmod(0o755)
    return program


def one_bucket() -> checkov.Environment:
    program = Program()
    program.add("data", "aws:s3/bucket:Bucket")
    return checkov.Environment("dev", plan(program.graph()), Manifests((), (), {}))


REPORT = (
    '[{{"check_type": "terraform_plan", "results": {{"failed_checks": []}}, "summary": {{"passed": 1,'
    ' "parsing_errors": {errors}, "resource_count": {read}, "checkov_version": "{version}"}}}},'
    ' {{"check_type": "kubernetes", "results": {{"failed_checks": []}}, "summary": {{"passed": 1,'
    ' "parsing_errors": 0, "resource_count": 0, "checkov_version": "{version}"}}}}]'
)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("Traceback", "Expecting value"),
        ('{"passed": 0}', "could not read"),
        (REPORT.format(errors=1, read=1, version=checkov.VERSION), "could not read"),
        (REPORT.format(errors=0, read=0, version=checkov.VERSION), "read 0 of 1 resources"),
        (REPORT.format(errors=0, read=1, version="3.0.0"), "this is checkov 3.0.0"),
    ],
)
def test_a_scan_that_did_not_read_everything_is_no_success(answer: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(checkov.CheckovFailed, match=said):
        checkov.scan(_fake(tmp_path, answer), [one_bucket()])


def test_a_check_that_broke_off_is_no_pass(tmp_path: Path) -> None:
    """checkov itself passes over the resource."""
    answer = REPORT.format(errors=0, read=1, version=checkov.VERSION)
    broke = "2026 [ERROR] Failed to run check CKV_AWS_37 on /plan.json:aws_eks_cluster.x"
    assert checkov.scan(_fake(tmp_path, answer), [one_bucket()]).findings == ()
    with pytest.raises(checkov.CheckovFailed, match="CKV_AWS_37"):
        checkov.scan(_fake(tmp_path, answer, broke), [one_bucket()])


def test_charts_of_others_and_charts_without_helm_are_said_to_be_left_out() -> None:
    program = Program()
    program.add("ours", "kubernetes:helm.sh/v3:Release", {"chart": "./charts/torchx-etcd", "name": "etcd"})
    program.add("theirs", "kubernetes:helm.sh/v3:Release", {"chart": "volcano", "name": "volcano"})
    program.add("quota", "kubernetes:core/v1:ResourceQuota", {"kind": "ResourceQuota"})
    made = manifests(program.graph(), ROOT, None)
    assert made.objects == ({"kind": "ResourceQuota"},)
    assert set(made.left_out) == {"ours", "theirs"}
    assert "helm is not on PATH" in made.left_out["ours"]


def test_it_is_a_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "policy.scan", "--help"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "STACK" in done.stdout.upper()
