"""`make preview|up|destroy` and `trn deploy`: what they check and say before they hand over to pulumi."""

import json
import re
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import typer
from cleanup_accounts import state
from cluster_snapshots import outputs
from outcome import ends, raising
from stub_api import serving
from typer.testing import CliRunner

from trainium_eks.aws import sessions
from trainium_eks.cli.app import app
from trainium_eks.cli.environment import check, claims, deploy, destroy
from trainium_eks.cli.environment.claims import Claim, Holder, deleted_claims, holders
from trainium_eks.client.failure import CommandError
from trainium_eks.model.catalogue import lustre
from trainium_eks.model.finding import Finding, Report, Status
from trainium_eks.model.outputs import StackOutputs
from trainium_eks.operate.cleanup import exporting, monitoring_volumes
from trainium_eks.operate.cleanup.state import StackState, StateError
from trainium_eks.plan.graph import Graph, Options, Resource

FILES = "aws:fsx/lustreFileSystem:LustreFileSystem"
AWS = "pulumi:providers:aws"
PROVIDER = Resource(f"urn:pulumi:dev::p::{AWS}::aws", AWS, "aws", inputs={"region": "us-west-2"})


def _tool(directory, name, output):
    (directory / name).touch(0o755)
    (directory / name).write_text(f"#!/bin/sh\necho '{output}'\n")


@pytest.fixture
def path(tmp_path, monkeypatch):
    """The only directory of programs but for the shell's, with a pulumi that works."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.chdir(tmp_path)  # `run` changes the directory; this brings it back for the tests after
    _tool(tmp_path, "pulumi", "v3.260.0")
    return tmp_path


@pytest.fixture
def handed(path, monkeypatch):
    """What pulumi was called with."""
    commands = []
    monkeypatch.setattr(deploy.os, "execvp", lambda _, command: commands.append(command))
    monkeypatch.setattr(deploy, "run_up", lambda command: commands.append(command) or 0)
    return commands


DENIED = (
    "User: arn:aws:sts::1:a/b is <{{%reset%}}>not authorized to perform: {} on resource: arn:aws:kms:us-west-2:1:key/1"
)
EVENTS = {
    "new key": [
        {"resourcePreEvent": {"metadata": {"type": "aws:kms/key:Key", "op": "create", "urn": "urn:key"}}},
        {"diagnosticEvent": {"severity": "error", "message": DENIED.format("kms:PutKeyPolicy")}},
    ],
    "old key": [{"diagnosticEvent": {"severity": "error", "message": DENIED.format("kms:PutKeyPolicy")}}],
    "new key and more": [
        {"resourcePreEvent": {"metadata": {"type": "aws:kms/key:Key", "op": "create", "urn": "urn:key"}}},
        {"diagnosticEvent": {"severity": "error", "message": DENIED.format("kms:PutKeyPolicy")}},
        {"diagnosticEvent": {"severity": "error", "message": DENIED.format("logs:CreateLogStream")}},
    ],
    "no denial": [{"diagnosticEvent": {"severity": "error", "message": "quota exceeded"}}],
}


@pytest.mark.parametrize(
    ("events", "codes", "code", "waits"),
    [
        ("new key", [255, 0], 0, [300]),
        ("new key", [255, 255, 0], 255, [300]),
        ("old key", [255, 0], 255, []),
        ("new key and more", [255, 0], 255, []),
        ("no denial", [255, 0], 255, []),
        ("new key", [0], 0, []),
    ],
)
def test_up_lists_denied_calls_and_runs_once_more_after_a_race(path, monkeypatch, capfd, events, codes, code, waits):
    slept = []
    monkeypatch.setattr(deploy.time, "sleep", slept.append)
    (path / "events").write_text("\n".join(map(json.dumps, EVENTS[events])) + "\n{")
    (path / "codes").write_text("".join(f"{each}\n" for each in codes))
    (path / "pulumi").write_text(
        '#!/bin/sh\necho "$PULUMI_DEBUG_COMMANDS $1 $2"\n[ "$3" = --event-log ] && /bin/cp events "$4"\n'
        "read -r code < codes; /bin/sed -i 1d codes; exit $code\n"
    )
    assert (deploy.run_up(["pulumi", "up", "--yes"]), slept) == (code, waits)
    said = capfd.readouterr()
    assert said.out == "true up --yes\n" * (1 + len(waits))
    is_denied = "no" not in events and codes[0]
    assert ("denied: kms:PutKeyPolicy on arn:aws:kms:us-west-2:1:key/1" in said.err) is bool(is_denied)
    assert ('"Action": "logs:CreateLogStream"' in said.err) is (events == "new key and more")


def test_missing_and_old_tools_are_reported_before_pulumi_starts(path):
    for version in ("1.24.0", "2.7.0", "3.0.1", "0.9.0", "1.23.9", "2.6.9"):
        _tool(path, "aws", f"aws-cli/{version} Python/3.13")
        too_old = f"aws {version} is too old, 1.24.0 or 2.7.0 or newer is needed.\n  Install: {deploy.TOOLS[1].install}"
        assert deploy.complaints() == ([] if version in ("1.24.0", "2.7.0", "3.0.1") else [too_old])
    # A broken tool is shown with its own words.
    (path / "pulumi").write_text("#!/bin/sh\necho 'cannot start 3.300.0'\nexit 3\n")
    assert deploy.complaints()[0].endswith("version failed: cannot start 3.300.0")
    for name in ("pulumi", "aws"):
        (path / name).unlink()
    (path / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    (path / "Pulumi.dev.yaml").write_text("config: {}\n")
    (path / "__main__.py").write_text("")
    said = ends(2, CliRunner().invoke(app, ["deploy", "up", "--stack", "dev"]), "pulumi is not on PATH")
    assert said.count("Install: https://") == 2


BUCKET, KEY = "aws:s3/bucket:Bucket", "aws:kms/key:Key"


def test_destroy_shows_the_fate_of_data_and_remaining_costs():
    for type_, inputs, options, fate in (
        (FILES, {}, Options(protect=True), "protected"),
        (FILES, {"skipFinalBackup": False, "automaticBackupRetentionDays": 7}, Options(), "DELETED, after a final"),
        (FILES, {}, Options(), "is lost"),
        (BUCKET, {}, Options(retain_on_delete=True), "kept in the account"),
        (BUCKET, {"forceDestroy": True}, Options(), "with its contents"),
        (BUCKET, {"skipDestroy": True}, Options(), "kept in the account"),
        (BUCKET, {}, Options(), "deleted if empty"),
        (KEY, {"deletionWindowInDays": 7}, Options(), "in 7 days"),
    ):
        [line] = destroy.data_lines(Graph("p", "s", (Resource("u", type_, "n", inputs=inputs, options=options),), {}))
        assert fate in line
    kept, plain = Options(retain_on_delete=True), Options()
    backed = {"skipFinalBackup": False}
    resources = (
        Resource("u1", KEY, "key", options=kept),
        Resource("u2", BUCKET, "bucket", options=Options(protect=True)),
        Resource("u3", destroy.LUSTRE, "files", inputs=backed),
        Resource("u4", KEY, "other", options=plain),
        Resource("u5", destroy.LUSTRE, "scratch", options=plain),
    )
    lines = list(destroy.remaining_costs(Graph("p", "dev", resources, {})))
    told = ("key: $1.00 a", "bucket: $0.023 a", "the last backup of files: $0.05 a")
    assert [line.split(" month")[0].strip() for line in lines] == [*told]


@pytest.fixture
def run(path, handed, monkeypatch, capsys):
    """Hands a command over, whose check has this result, unless it stops first; its output, and the error that stopped
    it."""

    def call(command, *arguments, outcome=Status.PASS, kept=()):
        facts = {"stack": "dev", "region": "us-west-2", "account": "1"}
        found = Report(facts, (Finding(outcome, "VPCs", "1 needed", "ask for more", "quotas/L-1"),))
        monkeypatch.setattr(check, "look", lambda _: found)
        handed.clear()
        stopped, code = "", 0
        try:
            deploy.run(command, Graph("p", "dev", (PROVIDER, *kept), {}), path, list(arguments))
        except CommandError as failure:
            stopped, code = failure.title, failure.code
        except typer.Exit as ended:
            code = ended.exit_code
        assert (code, bool(handed)) == ((1, False) if stopped else (0, True))
        return capsys.readouterr().out + stopped

    return call


@pytest.mark.parametrize("arguments", [[], ["--yes", "-f"]])
def test_destroy_of_a_protected_stack_is_not_started(run, arguments):
    said = run("destroy", *arguments, kept=[Resource("u", FILES, "files", options=Options(protect=True))])
    assert "files: protected" in said
    assert re.search(r"dev protects 1 resource \(files(.|\n)*production: false", said)
    assert ("-f would also bypass" in said) is bool(arguments)


def test_only_up_is_stopped_by_a_failed_check(run, handed):
    for command, outcome, given in (
        ("up", Status.PASS, []),
        ("up", Status.NOT_CHECKED, []),
        ("up", Status.FAIL, ["--skip-check"]),
        ("up", Status.PASS, ["--parallel", "4"]),
        ("preview", Status.FAIL, ["--diff"]),
        ("destroy", Status.FAIL, []),
    ):
        run(command, *given, outcome=outcome)
        kept = [each for each in given if each != "--skip-check"]
        parallel = [] if "--parallel" in given else ["--parallel", "32"]
        assert handed == [["pulumi", command, "--stack", "dev", *kept, *parallel]]
    said = run("up", "--yes", outcome=Status.FAIL)
    assert ("ask for more" in said, "--skip-check" in said, handed) == (True, True, [])


def test_hourly_cost_is_confirmed_when_pulumi_would_ask(run, handed, monkeypatch):
    questions = []
    monkeypatch.setattr(deploy.typer, "confirm", lambda text: questions.append(text) or False)
    for terminal, given, variable in ((True, "-y", ""), (True, "", "true"), (False, "", ""), (True, "", "")):
        monkeypatch.setattr(deploy.sys, "stdin", SimpleNamespace(isatty=lambda terminal=terminal: terminal))
        monkeypatch.setattr("sys.stdout.isatty", lambda terminal=terminal: terminal)
        monkeypatch.setenv("PULUMI_SKIP_CONFIRMATIONS", variable)
        is_asked = terminal and not given + variable
        assert ("Nothing was changed" in run("up", *given.split())) is is_asked
        assert (len(questions), len(handed)) == ((1, 0) if is_asked else (0, 1))
    assert "$0.00 an hour" in questions[0]


# --- Claims that an update takes away, and the pods that hold them ----------------------------------------------------

TEAM = Claim("training", lustre.CLAIM)
JOB = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "bert", "controller": True}


def step(operation, type_, name, namespace="", **state):
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    old = {"type": type_, "inputs": {"metadata": metadata}, **state}
    return {"op": operation, "urn": f"urn:{type_}::{namespace}/{name}", "oldState": old}


def pod(name, *, node="n1", phase="Running", claim=lustre.CLAIM, **metadata):
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    spec = {"volumes": volumes, **({"nodeName": node} if node else {})}
    known = {"metadata": {"name": name, "namespace": "training", **metadata}, "spec": spec, "status": {"phase": phase}}
    return {"apiVersion": "v1", "kind": "Pod", **known}


def test_deleted_claims_are_named_once_and_awaited_until_their_pods_end(monkeypatch):
    own = step("replace", claims.CLAIM, lustre.CLAIM, "lustre-setup")
    steps = [
        step("delete-replaced", claims.CLAIM, lustre.CLAIM, "training"),
        step("replace", claims.CLAIM, lustre.CLAIM, "training"),
        step("delete", claims.CLAIM, lustre.CLAIM, "vision"),
        step("same", claims.CLAIM, lustre.CLAIM, "speech"),
        step("delete", "aws:s3/bucket:Bucket", "b"),
        own,  # the claim of the stack's own job is not a team's
        step("replace", "kubernetes:batch/v1:Job", "directories", propertyDependencies={"spec": [own["urn"]]}),
    ]
    assert deleted_claims({"steps": steps}) == (TEAM, Claim("vision", lustre.CLAIM))
    pods = [
        pod("b", phase="Succeeded", ownerReferences=[JOB]),
        pod("a", ownerReferences=[JOB]),
        pod("c", phase="Failed", ownerReferences=[{**JOB, "controller": False}]),
        pod("waiting", node="", phase="Pending"),
        pod("other", claim="scratch"),
        {"metadata": {"name": "plain"}, "spec": {"nodeName": "n1"}},
    ]
    assert [(each.pod, each.phase, each.owner) for each in holders(TEAM, pods)] == [
        ("a", "Running", "job.batch.volcano.sh/bert"),
        ("b", "Succeeded", "job.batch.volcano.sh/bert"),
        ("c", "Failed", "pod/c"),
    ]
    monkeypatch.setattr(claims, "PAUSE_SECONDS", 0)
    one, two = (Holder(TEAM, name, "Running", f"pod/{name}") for name in "ab")
    answers = iter([(one, two), (one, two), (one,), ()])
    said = []
    claims.wait([TEAM], lambda _: next(answers), said.append)
    assert [line.count("(Running)") for line in said] == [2, 1]


@pytest.fixture
def hand_over(path, handed, monkeypatch):
    """Runs `trn deploy up`; the commands that it hands over to."""
    monkeypatch.setattr(claims, "PAUSE_SECONDS", 0.01)

    def call(*arguments, steps, held=True, shown=None):
        exported = {"deployment": {"resources": [{"urn": "urn:c", "type": claims.CLAIM, "id": "c"}] if held else []}}
        answers = {"stack export": exported, "preview --json": {"steps": list(steps)}, "stack output": shown}
        for name, answer in answers.items():
            text = answer if isinstance(answer, str) else json.dumps(answer)
            (path / name.replace(" ", "-")).write_text("" if answer is None else text)
        (path / "pulumi").write_text(f'#!/bin/sh\necho "$@" >> {path}/calls\nexec cat "{path}/$1-$2"\n')
        deploy.run("up", Graph("p", "dev", (), {}), path, list(arguments))
        return handed

    return call


REPLACED = [step("replace", claims.CLAIM, lustre.CLAIM, "training")]


def outputs_of(kubeconfig):
    return json.dumps({**outputs().model_dump(by_alias=True), "kubeconfig": json.dumps(kubeconfig)})


def test_up_waits_until_finished_pods_release_a_deleted_claim(hand_over, path, capsys):
    pods = [pod(f"bert-{index}", phase="Succeeded", ownerReferences=[JOB]) for index in range(7)]
    with serving({"Pod": pods}) as api:
        shown = outputs_of(api.kubeconfig)
        with pytest.raises(CommandError) as stopped:
            hand_over(steps=REPLACED, shown=shown)
        api.objects["Pod"] = [pod("waiting", node="")]
        hand_over("--yes", "--target", "x", steps=REPLACED, shown=shown)
        handed = hand_over("--wait-for-pods", steps=REPLACED, shown=shown)
    assert stopped.value.code == 1
    ended = "    kubectl -n training delete job.batch.volcano.sh/bert\n"
    for words in ("training/fsx-claim: bert-0 (Succeeded), ", "and 2 more", ended, "--wait-for-pods"):
        assert words in stopped.value.title
    assert "  training/fsx-claim\n" in capsys.readouterr().out
    up, parallel = ["pulumi", "up", "--stack", "dev"], ["--parallel", "32"]
    assert handed == [[*up, "--yes", "--target", "x", *parallel], [*up, *parallel]]
    assert "preview --json --stack dev --target x\n" in (path / "calls").read_text()


def test_claims_are_named_without_waiting_and_no_claims_need_no_preview(hand_over, capsys, path):
    assert len(hand_over(steps=REPLACED, shown="no outputs")) == 1
    said = capsys.readouterr()
    assert ("training/fsx-claim" in said.out, "Cannot ask the cluster" in said.err) == (True, True)
    # A namespace is deleted with its claims and pods.
    gone = [step("delete", claims.CLAIM, lustre.CLAIM, "training"), step("delete", claims.NAMESPACE, "training")]
    with serving({"Pod": [pod("bert-0")]}) as api:
        assert len(hand_over(steps=gone, shown=outputs_of(api.kubeconfig))) == 2
    assert "(with its namespace and pods)" in capsys.readouterr().out
    (path / "calls").unlink()
    hand_over(steps=REPLACED, held=False)
    assert (path / "calls").read_text() == "stack export --stack dev\n"
    (path / "pulumi").write_text("#!/bin/sh\necho 'error: no stack named dev' >&2\nexit 1\n")
    with pytest.raises(CommandError, match="pulumi stack export --stack dev: error: no stack named dev"):
        claims.preview_claims(path, "dev", [])


# --- What a destroy says and does first -------------------------------------------------------------------------------

FILE_SYSTEM = "fs-0123456789abcdef0"
LINKED = state((exporting.ASSOCIATION, "dra-1", {"fileSystemId": FILE_SYSTEM}))
GRAPH = Graph("p", "prod", (Resource("u1", exporting.ASSOCIATION, "link"),), {})


@pytest.fixture
def exported(monkeypatch):
    """File systems that were exported, with the seconds that it might take."""
    done = []

    def run(self):
        assert self._region == "us-west-2"
        done.append((self._file_system, self._patience.seconds))

    monkeypatch.setattr(exporting.Export, "run", run)
    monkeypatch.setattr(exporting.Export, "resume", lambda _: "  aws fsx update-data-repository-association")
    monkeypatch.setattr(sessions, "client", lambda *_: None)
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    return done


@pytest.fixture
def prepare(monkeypatch, tmp_path):
    """Prepares the destroy of a stack whose file system is linked."""
    (tmp_path / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    monkeypatch.setattr(StackState, "ask", staticmethod(lambda *_: LINKED))
    return lambda *arguments: destroy.prepare(GRAPH, tmp_path, list(arguments))


def test_destroy_exports_linked_file_systems_first_unless_disabled(prepare, exported, capsys, monkeypatch):
    assert prepare("--preview-only") == ["--preview-only"]
    assert "is lost" not in capsys.readouterr().out
    assert prepare("--no-export") == []
    assert (f"what S3 lacks of {FILE_SYSTEM} is lost" in capsys.readouterr().out, exported) == (True, [])
    assert prepare("--yes", "--export-minutes=30") == ["--yes"]
    assert exported == [(FILE_SYSTEM, 1800)]
    shown = capsys.readouterr().out
    assert f"Exporting {FILE_SYSTEM} to S3 before anything is destroyed (at most 30 minutes" in shown
    assert "If you do not destroy the stack now" in shown
    monkeypatch.setattr(exporting.Export, "run", raising(exporting.NotExportedError("2 files were not written")))
    with pytest.raises(CommandError, match="2 files were not written"):
        prepare()


def test_unreadable_state_stops_destroy_and_minutes_must_be_a_number(prepare, tmp_path, monkeypatch):
    def refuse(stack, project):
        raise StateError("no stack named 'prod' found")

    monkeypatch.setattr(StackState, "ask", staticmethod(refuse))
    with pytest.raises(CommandError, match="no stack named 'prod' found") as stopped:
        prepare()
    assert "--no-export. What S3 lacks is lost then" in stopped.value.title
    assert prepare("--no-export") == []
    assert destroy.prepare(Graph("p", "dev", (), {}), tmp_path, ["-y"]) == ["-y"]
    for minutes in ("0", "soon", "20000", "nan"):
        with pytest.raises(CommandError, match="a number of minutes, more than 0 and at most 10080"):
            destroy.export_minutes([f"--export-minutes={minutes}"])


@pytest.mark.parametrize(
    ("jobs", "confirmed", "stops"),
    [(["training/bert"], False, True), (["a/b", "a/c"], True, False), ([], False, False), (None, False, False)],
)
def test_running_jobs_are_named_and_a_script_must_confirm(jobs, confirmed, stops, capsys):
    with pytest.raises(CommandError, match="Nothing was destroyed") if stops else nullcontext():
        destroy.confirm_job_end(jobs, confirmed=confirmed)
    [said, *_] = capsys.readouterr().out.splitlines() or [""]
    assert said == (f"{'1 job has' if stops else '2 jobs have'} not ended: {', '.join(jobs)}" if jobs else "")


def test_running_jobs_are_read_from_the_stacks_own_cluster(monkeypatch, tmp_path, capsys):
    jobs = [_job("training", "bert", "Running"), _job("research", "old", "Completed"), _job("research", "q", "Pending")]
    with serving({"Job": jobs}) as api:
        known = SimpleNamespace(kubeconfig=json.dumps(api.kubeconfig))
        monkeypatch.setattr(StackOutputs, "load", lambda *_, **__: known)
        assert destroy.running_jobs("dev", tmp_path) == ["research/q", "training/bert"]
    with monkeypatch.context() as patch, serving({}) as api:
        known.kubeconfig = json.dumps(api.kubeconfig)
        patch.setattr(monitoring_volumes, "delete_claims", lambda _: ["pvc-1"])
        destroy.delete_claims("dev", tmp_path)
    assert "Volumes that outlive their claims: pvc-1 (trn orphans" in capsys.readouterr().err
    assert destroy.running_jobs("dev", tmp_path) is None
    assert "Cannot ask the cluster which jobs run" in capsys.readouterr().err


def _job(namespace, name, phase):
    when = "2026-11-22T10:00:00Z"
    metadata = {"name": name, "namespace": namespace, "creationTimestamp": when}
    status = {"state": {"phase": phase, "lastTransitionTime": when}}
    return {"apiVersion": JOB["apiVersion"], "kind": "Job", "metadata": metadata, "spec": {}, "status": status}
