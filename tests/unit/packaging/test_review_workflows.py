"""The scripts of the workflows for pull requests, run as a runner would, in a clone with a request's changes."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
WORKFLOWS = ROOT / ".github" / "workflows"


def script(workflow, job, name):
    """The ``run`` of a step."""
    steps = yaml.safe_load((WORKFLOWS / workflow).read_text())["jobs"][job]["steps"]
    [found] = [step["run"] for step in steps if step.get("name", "").startswith(name)]
    return str(found)


@dataclass(frozen=True)
class Runner:
    """A checkout, and a ``trn`` that needs no set-up."""

    path: Path
    trn: Path

    def git(self, *arguments):
        who = {f"GIT_{role}_{key}": "t@t" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
        command = ["git", "-C", str(self.path), *arguments]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, **who})

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-qm", "x", "--allow-empty")

    def run(self, text, **variables):
        given = {"TRN": str(self.trn), "GITHUB_STEP_SUMMARY": str(self.path / "summary"), **variables}
        command = ["bash", "-e", "-o", "pipefail", "-c", text]
        return subprocess.run(
            command, cwd=self.path, env={**os.environ, **given}, check=False, capture_output=True, text=True
        )


def program(path, text):
    path.write_text(f"#!{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """The repository's program as a base branch."""
    folder = tmp_path_factory.mktemp("base") / "repository"
    folder.mkdir()
    for name in ("charts", "components", "trainium_eks"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
    for name in ("Pulumi.yaml", "Pulumi.dev.yaml", "Pulumi.prod.yaml", "__main__.py"):
        shutil.copy2(ROOT / name, folder)
    runner = Runner(folder, folder)
    runner.git("init", "-q", "-b", "main")
    runner.commit()
    return folder


@pytest.fixture
def runner(base, tmp_path):
    """A fresh clone of the base branch, as the runner's checkout of the merge."""
    clone = tmp_path / "checkout"
    subprocess.run(["git", "clone", "-q", str(base), str(clone)], check=True)
    call = f'/bin/sh\nPYTHONPATH="{clone}" exec "{sys.executable}" -m trainium_eks.cli "$@"'
    return Runner(clone, program(tmp_path / "trn", call))


def _plan(runner, stack, old="", new="", **more):
    """The exit code and the comment of a request that changes a text of a stack's config."""
    file = runner.path / f"Pulumi.{stack}.yaml"
    if old:
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new, 1))
    runner.commit()
    given = {"STACK": stack, "FAIL_ON": "blocked", "ACCEPT": "", "COMMIT": "0123456789abcdef", "LINK": "https://x/1"}
    done = runner.run(script("review.yaml", "plan", "plan "), **{**given, **more})
    comment = runner.path / "comment.md"
    return done.returncode, comment.read_text() if comment.exists() else done.stderr


QUEUES = "trainium-eks:queues:\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stack", "old", "new", "code", "said"),
    [
        (*("dev", QUEUES, f"{QUEUES}    - name: nightly\n", 0),
         ("`dev`: 1 create, 0 update, 0 replace, 0 delete – SAFE", "Queue trn-dev-volcano-nightly")),
        (*("prod", "storageCapacityGib: 9600", "storageCapacityGib: 4800", 1),
         ("– BLOCKED", "storageCapacity: 9600 → 4800", "protected: Pulumi refuses")),
        (*("dev", "instanceType: trn1.32xlarge", "instanceType: trn1.3xlarge", 1),
         ("– BLOCKED", "The program cannot be planned", "`nodeGroups[0].instanceType`", "`trn1.3xlarge`")),
    ],
    ids=["queue", "FSx shrink", "broken config"],
)  # fmt: skip
def test_a_request_gets_the_right_comment_and_exit_code(runner, stack, old, new, code, said):
    found, text = _plan(runner, stack, old, new)
    assert [each for each in said if each not in text] == [], text
    assert found == code
    assert text.startswith(f"<!-- trn-preview:trainium-eks/{stack} -->\n")
    assert (runner.path / "summary").read_text() == text
    assert {each.name for each in (runner.path / "plans").iterdir()} == {"before.json", "after.json"}


@pytest.mark.slow
def test_new_environment_is_all_created_and_a_label_accepts_losses(runner):
    shutil.copy2(runner.path / "Pulumi.dev.yaml", runner.path / "Pulumi.stage.yaml")
    code, text = _plan(runner, "stage")
    assert code == 0, text
    assert "create, 0 update, 0 replace, 0 delete – REVIEW" in text
    assert "$44.23 an hour" in text

    code, text = _plan(runner, "dev", "instanceType: trn1.", "instanceType: trn1n.", ACCEPT="--accept-losses")
    assert (code, "What is lost has been accepted" in text) == (0, True)


@pytest.mark.slow
def test_missing_stack_is_reported_in_the_summary(runner):
    assert _plan(runner, "nowhere")[0] == 2
    assert "no stack 'nowhere'" in (runner.path / "summary").read_text()


GH = f"""{sys.executable}
import os, subprocess, sys
with open(os.environ["CALLED"], "a") as file:
    print(*(word.replace(os.linesep, " ") for word in sys.argv[1:]), file=file)
if "--jq" in sys.argv:
    filter = sys.argv[sys.argv.index("--jq") + 1]
    sys.exit(subprocess.run(["jq", "-r", filter, os.environ["COMMENTS"]]).returncode)"""
"""``gh`` that notes its calls, and has the comments of a file."""


@pytest.fixture
def recorder(tmp_path):
    """A checkout whose ``trn`` writes the marker of a comment, and notes its calls as ``gh`` does."""
    programs, checkout = tmp_path / "bin", tmp_path / "checkout"
    for folder in (programs, checkout):
        folder.mkdir()
    trn = program(
        programs / "trn",
        f'/bin/sh\necho "$@" >> "{tmp_path}/called"\ncase "$*" in *" bad "*) exit 3 ;; esac\n'
        'for file do :; done\necho "<!-- trn-preview:trainium-eks/$3 -->" > "$file"',
    )
    program(programs / "gh", GH)
    (tmp_path / "comments.json").write_text("[]")
    return Runner(checkout, trn)


def _comment(runner, *stacks):
    """The step's end for the plans of these stacks, and the calls of ``trn`` and ``gh``."""
    if shutil.which("jq") is None:
        pytest.skip("needs jq, which gh has inside")
    for stack in stacks:
        (runner.path / f"artifacts/plans-{stack}").mkdir(parents=True)
    folder = runner.path.parent
    given = {"NUMBER": "7", "ACCEPT": "", "COMMIT": "c0ffee", "LINK": "https://x/1", "GITHUB_REPOSITORY": "org/repo"}
    given |= {"PATH": f"{folder}/bin:{os.environ['PATH']}", "CALLED": f"{folder}/called"}
    done = runner.run(script("comment.yaml", "comment", "comment"), **given, COMMENTS=f"{folder}/comments.json")
    called = folder / "called"
    return done, called.read_text().splitlines() if called.exists() else []


def test_each_stacks_plans_become_a_comment(recorder):
    (recorder.path / "artifacts/preview-prod").mkdir(parents=True)
    for name in ("preview", "checks"):
        (recorder.path / f"artifacts/preview-prod/{name}.json").write_text("{}")
    done, (dev, _, dev_posted, prod, _, prod_posted) = _comment(recorder, "dev", "prod")
    assert done.returncode == 0, done.stderr
    tail = "--commit c0ffee --link https://x/1 --fail-on never --output comment-"
    plans, previews = "artifacts/plans-", "artifacts/preview-"
    assert dev == f"comment --stack dev --after {plans}dev/after.json --before {plans}dev/before.json {tail}dev.md"
    asked = f"--preview {previews}prod/preview.json --preflight {previews}prod/checks.json"
    assert prod == f"comment --stack prod --after {plans}prod/after.json {asked} {tail}prod.md"
    for stack, posted in (("dev", dev_posted), ("prod", prod_posted)):
        assert posted == f"pr comment 7 --repo org/repo --body-file comment-{stack}.md"


def test_later_run_replaces_only_its_own_comment(recorder):
    marker = "<!-- trn-preview:trainium-eks/dev -->"
    comments = [
        (1, "stranger", f"{marker}\nSAFE"),
        (2, "github-actions[bot]", "<!-- trn-preview:trainium-eks/dev2 -->\nof another stack"),
        (3, "github-actions[bot]", f"{marker}\nours"),
        (4, "github-actions[bot]", f"{marker}\nours, too"),
    ]
    listed = [{"id": id_, "user": {"login": login}, "body": body} for id_, login, body in comments]
    (recorder.path.parent / "comments.json").write_text(json.dumps(listed))
    done, (_, _, posted) = _comment(recorder, "dev")
    assert done.returncode == 0, done.stderr
    assert posted == "api --method PATCH repos/org/repo/issues/comments/3 --silent -F body=@comment-dev.md"


@pytest.mark.parametrize("name", ["$(touch pwned)", "-x", "a b", "a;b"])
def test_foreign_artifact_cannot_run_a_command(recorder, name):
    done, called = _comment(recorder, name)
    assert (done.returncode, called) == (1, [])
    assert "no stack" in done.stderr
    assert not (recorder.path / "pwned").exists()


def test_failing_stack_does_not_stop_the_others_comments(recorder):
    done, called = _comment(recorder, "bad", "good")
    assert done.returncode == 3
    assert called[-1].endswith("--body-file comment-good.md")


def test_the_preview_takes_its_role_from_the_runners_token(recorder, tmp_path):
    programs = tmp_path / "bin"
    for name, body in {
        "curl": 'echo "$@" > "$RUNNER_TEMP/curl"; echo \'{"value": "jwt"}\'',
        "jq": "sed 's/.*: \"//; s/\".*//'",
        "pulumi": 'echo "$@ $(cat "$AWS_WEB_IDENTITY_TOKEN_FILE") $AWS_ROLE_ARN" > "$RUNNER_TEMP/pulumi"; echo "{}"',
    }.items():
        program(programs / name, f"/bin/sh\n{body}")
    asked = "ACTIONS_ID_TOKEN_REQUEST"
    given = {"PATH": f"{programs}:{os.environ['PATH']}", "RUNNER_TEMP": str(tmp_path), "STACK": "dev"}
    given |= {"AWS_ROLE_ARN": "arn:r", f"{asked}_TOKEN": "request-token", f"{asked}_URL": "https://t.example/?x=1"}
    done = recorder.run(script("preview.yaml", "preview", "preview "), **given)
    assert done.returncode == 0, done.stderr
    wanted = "preview --non-interactive --json --show-sames --stack dev jwt arn:r"
    assert (tmp_path / "pulumi").read_text().strip() == wanted
    assert "https://t.example/?x=1&audience=sts.amazonaws.com" in (tmp_path / "curl").read_text()
    assert (recorder.path / "preview" / "preview.json").read_text() == "{}\n"
    assert "jwt" not in done.stdout + done.stderr
