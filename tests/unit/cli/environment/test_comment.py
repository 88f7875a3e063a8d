"""``trn comment``: what it reads, what it writes, and its exit code."""

import json
from dataclasses import replace

import pytest
from hand_built import changed, environment, without
from outcome import ends

from trainium_eks.model.finding import Report, failed, passed

MARKER = "<!-- trn-preview:trainium-eks/dev -->"


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A working directory with saved plans: of a base, and of others."""
    monkeypatch.chdir(tmp_path)
    base = environment()

    def sized(desired, most):
        return changed(base, "trn1", scalingConfig={"minSize": 0, "desiredSize": desired, "maxSize": most})

    plans = {
        "base": base,
        "lost": without(base, "lustre"),
        "more": sized(2, 40),
        "fewer": sized(1, 4),
        "grown": changed(base, "queue-test", spec={"capability": {"aws.amazon.com/neuron": 64}, "weight": 2}),
        "prod": replace(base, stack="prod"),
    }
    for name, graph in plans.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(graph.to_json()))
    return tmp_path


@pytest.fixture
def commented(trn, files, monkeypatch):
    """Calls it with saved plans, whose small environment breaks rules: they are not looked at here."""
    monkeypatch.setattr("trainium_eks.plan.rules.judge", lambda *_: ())
    monkeypatch.setattr("trainium_eks.plan.timeline.check_edges", lambda *_: ())

    return lambda after, *arguments: trn("comment", "--before", "base.json", "--after", f"{after}.json", *arguments)


def test_the_verdict_decides_the_exit_code(commented):
    for after, arguments, code, verdict in (
        ("grown", "", 0, "SAFE"),
        ("lost", "", 1, "BLOCKED"),
        ("lost", "--fail-on never", 0, "BLOCKED"),
        ("lost", "--accept-losses", 1, "BLOCKED"),
        ("lost", "--fail-on review", 1, "BLOCKED"),
        ("more", "", 0, "REVIEW"),
        ("more", "--fail-on review", 1, "REVIEW"),
        ("fewer", "", 1, "BLOCKED"),
        ("fewer", "--accept-losses", 0, "REVIEW"),
    ):
        done = commented(after, *arguments.split())
        assert done.exit_code == code
        assert done.stdout.startswith(MARKER)
        assert f"– {verdict}" in done.stdout.splitlines()[2]
        assert ("What is lost has been accepted." in done.stdout) == (after == "fewer" and code == 0)


def test_failed_checks_and_broken_config_block_in_the_comment(commented, files, trn, project):
    found = (
        passed("zones/offered", "trn1.32xlarge in usw2-az4", "offered"),
        failed("quotas/L-2C3B7624", "vCPUs of Trn instances", "256 of 512", "ask for more"),
    )
    document = Report({"stack": "dev"}, found).to_json()
    document["findings"] += [{"id": "of/tomorrow", "status": "else"}, "x"]
    (files / "checks.json").write_text(json.dumps(document))
    rows = ("| ⛔ fail | vCPUs of Trn instances | 256 of 512 | ask for more |", "| not checked | of/tomorrow |")
    ends(1, commented("base", "--preflight", "checks.json"), "1 pass, 1 fail, 1 not checked", *rows)
    (files / "checks.json").write_text(json.dumps({"problems": [{"path": "", "reason": "no credentials"}]}))
    not_checked = "| not checked | the preflight | no credentials |"
    ends(0, commented("base", "--preflight", "checks.json"), not_checked)
    project.write("__main__.py", "raise SystemExit('no')\n")
    printed = trn("plan", "--directory", project.path, "--json").stdout
    (files / "broken.json").write_text(printed)
    ends(1, commented("broken"), "– BLOCKED", "The program cannot be planned")


def test_usage_error_exits_2_and_writes_nothing(trn, files):
    for arguments, said in (
        ("", "nothing to compare: give one of"),
        ("--before base.json", "nothing to compare: give one of"),
        ("--before base.json --after none.json", "cannot read"),
        ("--before base.json --after prod.json", "of stack prod, not of dev"),
        ("--preview base.json", "is not a preview"),
        ("--before base.json --after base.json --scrub (", "--scrub '('"),
        ("--before base.json --after base.json --preflight base.json", "trn check"),
    ):
        done = trn("comment", *arguments.split())
        ends(2, done, said)
        assert done.stdout == ""


def test_comment_keeps_both_plans_for_a_later_job(trn, project, tmp_path):
    project.git("init", "-q")
    project.commit()
    program = (project.path / "__main__.py").read_text()
    project.write("__main__.py", program.replace("store = Store", 'aws.sns.Topic("q")\nstore = Store'))
    kept, written = tmp_path / "kept", tmp_path / "comment.md"
    done = trn("comment", "--directory", project.path, "--against", "HEAD", "--save", kept, "--output", written)
    assert done.exit_code in (0, 1)
    assert "1 create" in written.read_text()
    again = trn("comment", "--before", kept / "before.json", "--after", kept / "after.json")
    assert again.stdout.splitlines()[2] == written.read_text().splitlines()[2]


def test_request_that_fixes_a_broken_base_is_compared_with_nothing(trn, project, tmp_path, monkeypatch):
    monkeypatch.setattr("trainium_eks.plan.rules.judge", lambda *_: ())
    program = (project.path / "__main__.py").read_text()
    project.git("init", "-q")
    project.write("__main__.py", "raise ValueError('broken')\n")
    project.commit()
    project.write("__main__.py", program)
    done = trn("comment", "--directory", project.path, "--against", "HEAD", "--save", tmp_path / "kept")
    ends(0, done, "1 create", "The base cannot be planned, so everything is shown as new")
    assert "broken" in (tmp_path / "kept" / "before.json").read_text()
