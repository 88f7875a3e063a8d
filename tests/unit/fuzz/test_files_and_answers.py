"""Damaged files and answers: each reader reports them in a sentence with their name, or works without."""

import json

import pytest
from cluster_snapshots import outputs
from hand_built import environment
from hostile import JSON, NASTY, TEXT, as_text, budget, damaged
from hypothesis import given
from hypothesis import strategies as st
from trainium_workloads.graph_cache import Cache
from trainium_workloads.stage import destination
from trainium_workloads.stage.files import StageError
from typer.testing import CliRunner

from trainium_eks.aws.account import NotCheckedError
from trainium_eks.aws.sessions import AwsError
from trainium_eks.cli.app import app
from trainium_eks.cli.jobs import kubeconfig
from trainium_eks.cli.shared import programs
from trainium_eks.client import cluster_access, kubeconfig_variable
from trainium_eks.client.failure import TRACEBACK, CommandError, UsageError
from trainium_eks.diagnose.local_report import LocalReport, ReportError
from trainium_eks.kube.errors import ClusterError
from trainium_eks.kube.requests import Requests
from trainium_eks.kube.types import ApiError
from trainium_eks.local import inventory, lock
from trainium_eks.local.control_plane.ports import Settings
from trainium_eks.local.images import images
from trainium_eks.local.nodes import resizing
from trainium_eks.local.paths import Paths
from trainium_eks.local.runtime.isolation import Chosen
from trainium_eks.local.spec.plan import read
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.observe.alerts import firing
from trainium_eks.operate.cleanup.state import StackState, StateError
from trainium_eks.operate.review import preview, review
from trainium_eks.plan.recording import assumptions
from trainium_eks.plan.recording.project import ProjectError, load_project
from trainium_eks.plan.resource_types import access

pytestmark = pytest.mark.slow

SAID = (CommandError, ClusterError, AwsError, ReportError, StateError, ProjectError, assumptions.AssumptionsError)
SAID += (StageError, NotCheckedError)
"""Errors whose text is a sentence for people."""

KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}],
    "users": [{"name": "u", "user": {"exec": {"command": "aws", "args": []}}}],
    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
    "current-context": "x",
}
OUTPUTS = {**outputs().model_dump(by_alias=True), "kubeconfig": json.dumps(KUBECONFIG)}
PLAN = {**environment().to_json(), "resources": environment().to_json()["resources"][:6]}
REPORT = {"schemaVersion": 1, "local": True, "server": "https://127.0.0.1:1", "kubernetes": "v1.35.4"}
REPORT |= {"notInstalled": [{"name": "a", "reason": "b"}], "simulated": ["aws"], "realVolcano": True}
BUCKET = "aws:s3/bucket:Bucket"
PENDING = {"type": "creating", "resource": {"urn": "u", "type": "t"}}
RESOURCE = {"urn": f"urn:pulumi:dev::p::{BUCKET}::b", "type": BUCKET, "id": "b"}
STATE = {"version": 3, "deployment": {"resources": [RESOURCE], "pending_operations": [PENDING]}}
STEP = {"op": "update", "urn": RESOURCE["urn"], "oldState": {"type": "t"}}
PREVIEW = {"config": {"p:a": "b"}, "steps": [STEP], "changeSummary": {"same": 1}, "diagnostics": []}
MADE_RESOURCE = {**RESOURCE, "kind": "object", "reference": {"kind": "Pod"}, "inputs": {}, "outputs": {}}
MADE_RESOURCE |= {"ignore_changes": [], "replaced_with": [], "deleted_with": "", "protect": False, "retain": False}
MADE = {"version": 3, "deployment": {"resources": [{**MADE_RESOURCE, "whole": True}]}}
POOL = {"pool": {"inputs": {"instanceTypes": ["m7i.4xlarge"]}}, "drivers": []}
IMAGE = {"name": "torch", "tag": "0123456789ab", "hasTorch": True, "sizeBytes": 1, "made": 1.5, "requirements": ""}
ALERT = {"labels": {"alertname": "A", "severity": "critical"}, "state": "firing", "activeAt": "2026-11-22T05:33:00Z"}
MARK = {"files": {"a": {"bytes": 1, "sha256": "0"}}, "compilations": [{"options": {}, "command": [], "time": ""}]}
STAGED = {"schemaVersion": 1, "path": "a", "size": 1, "sha256": "0", "checksum": ""}


def _connect(file):
    cluster_access.check_commands(text(file))
    return Requests.connect(file)


def text(file):
    return file.read_text(errors="replace")


def placed(file, *places):
    """The directory of the file, whose content is also at these places."""
    for place in places:
        there = file.parent / place
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_bytes(file.read_bytes())
    return file.parent


def paths(file, name):
    """The files of a local cloud of which one is that file."""
    return Paths(placed(file, getattr(Paths(file.parent), name)))


def _resize(file):
    pool = Paths(file.parent).pools / f"{resizing.pool_key({'nodeGroupName': 'g'})}.json"
    return resizing.resize(Paths(placed(file, pool)), "g", 1, CATALOGUE, lambda _: None)


def _project(file):
    folder = placed(file, "project/Pulumi.dev.yaml") / "project"
    (folder / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    return load_project(folder).stack("dev")


def _staged(file):
    place = placed(file, *(f"staged/{name}" for name in (destination.MARKER, destination.MANIFEST))) / "staged"
    request = {"source": "s3://a/b", "extract": False, "include": [], "exclude": []}
    return destination.Destination(place, request).complete(replace=False)


FILES = {
    "a stack's outputs": (OUTPUTS, cluster_access._read),
    "kubeconfig of --kubeconfig": (KUBECONFIG, _connect),
    "kubeconfig of the variable": (KUBECONFIG, lambda file: kubeconfig_variable.merge_files([file])),
    "kubeconfig that is printed": (KUBECONFIG, lambda file: kubeconfig._in_namespace(text(file), "n")),
    "saved plan": (PLAN, lambda file: programs.saved(file, "dev")),
    "stub answers": ({"lookups": {"aws:a": {"id": "x"}}, "stackReferences": {"a": {}}}, assumptions.load),
    "stack's config": ({"config": {"p:a": "b", "p:c": [1]}}, _project),
    "state": (STATE, lambda file: StackState.parse(text(file), file.name)),
    "report of a local cloud": (REPORT, LocalReport.load),
    "list of made resources": (MADE, lambda file: inventory.load(paths(file, "made"))),
    "ports": ({"ports": {"etcd": 1}, "complete": True}, lambda file: Settings.load(paths(file, "settings"))),
    "lock": ({"pid": 1, "doing": "up", "since": 1.5}, lambda file: lock._held(paths(file, "lock"))),
    "node pool": (POOL, _resize),
    "image": (IMAGE, images._read),
    "isolation": ({"isolation": "net", "refused": {}}, lambda file: Chosen.load(placed(file, "isolation.json"))),
    "state of a pod": ({"containers": {"c": {"state": "running", "pid": 1}}}, read),
    "compile cache": (
        MARK,
        lambda file: Cache(placed(file, "caches/key/complete.json") / "caches", "key").check({"batch": 1}),
    ),
    "staged data": (STAGED, _staged),
}

CAUSE = {"field": "f", "reason": "r", "message": "m"}

ANSWERS = {
    "Kubernetes' refusal": ({"message": "m", "reason": "Invalid", "details": {"causes": [CAUSE]}},
                            lambda body: str(ApiError.of(422, as_text(body)))),
    "policy": ({"Statement": [{"Effect": "Allow", "Action": ["s3:*"], "Resource": "*"}]},
               lambda document: access._statements(as_text(document))),
    "Prometheus": ({"data": {"alerts": [ALERT]}}, lambda answer: _or_value_error(lambda: firing.read(answer))),
    "preview of pulumi": (PREVIEW, lambda document: _or_value_error(lambda: preview.parse(document, "dev"))),
    "preflight": ({"findings": [{"id": "a", "status": "fail"}]},
                  lambda document: _or_value_error(lambda: review.findings(document))),
}  # fmt: skip


def outcome_of(read):
    """The message of a reader, which succeeds or raises one of the exceptions that are sentences."""
    try:
        return f"read: {type(read())}"
    except SAID as error:
        return str(error)


def _or_value_error(read):
    """What callers turn into a sentence with the source's name."""
    try:
        return read()
    except ValueError as error:
        raise UsageError(str(error)) from None


@pytest.mark.parametrize("name", FILES)
def test_damaged_file_is_read_or_refused_in_a_sentence(name, tmp_path):
    document, read = FILES[name]
    file = tmp_path / "damaged.json"
    texts = st.one_of(damaged(document).map(as_text), TEXT, JSON.map(as_text), st.sampled_from(NASTY))
    content = st.one_of(texts.map(lambda each: each.encode(errors="surrogatepass")), st.binary(max_size=40))

    @budget(60)
    @given(content)
    def run(data):
        file.write_bytes(data)
        assert outcome_of(lambda: read(file)).strip()

    run()


@pytest.mark.parametrize("name", ANSWERS)
def test_damaged_answer_is_read_or_refused_in_a_sentence(name):
    document, read = ANSWERS[name]

    @budget(60)
    @given(st.one_of(damaged(document), JSON))
    def run(answer):
        assert outcome_of(lambda: read(answer)).strip()

    run()


COMMANDS = {
    "jobs --outputs {file}": OUTPUTS,
    "comment --stack prod --before {file} --after {file}": PLAN,
    "comment --stack dev --preview {file}": PREVIEW,
    "kubeconfig --outputs {file}": OUTPUTS,
}


@pytest.mark.parametrize("command", COMMANDS)
def test_command_names_the_damaged_file(command, tmp_path, monkeypatch):
    file = tmp_path / "damaged.json"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Requests, "connect", lambda _: (_ for _ in ()).throw(ClusterError("nobody answers")))

    @budget(15)
    @given(st.one_of(damaged(COMMANDS[command]).map(as_text), TEXT))
    def run(content):
        file.write_text(content, errors="replace")
        result = CliRunner().invoke(app, command.format(file=file).split())
        assert result.exception is None or isinstance(result.exception, SystemExit)
        assert result.exit_code in (0, 1, 2)
        assert "Traceback" not in result.output
        if result.exit_code == 2:
            assert "damaged.json" in "".join(result.output.split()) or "kubeconfig" in result.output

    run()


def test_unexpected_error_is_reported_in_one_sentence(monkeypatch):
    monkeypatch.setattr(cluster_access, "_read", lambda _: int("foreseen"))
    for extra in ([], ["--json"]):
        result = CliRunner().invoke(app, ["jobs", "--outputs", "x", *extra])
        assert result.exit_code == 1
        assert "ValueError" in result.output
        assert "line" in result.output
        if extra:
            assert json.loads(result.stdout)["problems"]
    monkeypatch.setenv(TRACEBACK, "1")
    assert isinstance(CliRunner().invoke(app, ["jobs", "--outputs", "x"]).exception, ValueError)
