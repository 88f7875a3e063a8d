"""`trn doctor`: what is wrong with a stack or a job, the pages of faults and alerts, and what fires."""

import json
import re
import stat
import sys
from types import SimpleNamespace

import pytest
import recorded_scenes
import watched_team
from cluster_snapshots import NEURON, group, objects, outputs, the, without
from outcome import ends
from stub_api import answer_http, serving

from trainium_eks.cli.environment import doctor as doctor_command
from trainium_eks.cli.local import up as local_up_command
from trainium_eks.cli.shared import examine
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import CommandError
from trainium_eks.local.control_plane.control_plane import StartResult
from trainium_eks.local.deployment import Result as UpResult
from trainium_eks.local.paths import Paths
from trainium_eks.model.finding import Report
from trainium_eks.observe import rules
from trainium_eks.observe.alerts import runbook
from trainium_eks.observe.faults import catalogue
from trainium_eks.plan.graph import Graph

NAME = "prometheus-kube-prometheus-stack-prometheus-0"
POD = {
    "metadata": {"name": NAME, "namespace": "monitoring", "labels": {"app.kubernetes.io/name": "prometheus"}},
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}
PORT = f"{NAME}/portforward"


def alert(name, severity, at, state="firing", **more):
    labels = {"alertname": name, "severity": severity, **more.pop("labels", {})}
    return {"labels": labels, "state": state, "activeAt": f"2026-11-22T{at}:00Z", "value": "1.2e+03", **more}


IDLE_TEXTS = {
    "summary": "Nodes of ng1 are idle",
    "description": "For 30 minutes no pod has asked for a device of them. They cost 43.00 USD an hour.",
    "next": "trn scale ng1 0 --stack prod",
}
IDLE = alert("AcceleratorsIdle", "warning", "10:00", labels={"node_group": "ng1"}, annotations=IDLE_TEXTS)
STALLED = alert("TrainingStalled", "critical", "11:00", annotations={"summary": "alpha of training makes no steps"})
SOON = alert("GangStuck", "warning", "11:30", "pending")
WATCHDOG = alert("Watchdog", "none", "09:00")


def test_doctor_lists_every_alert_with_its_page(trn, monkeypatch):
    shown = ends(0, trn("doctor", "--list"), "An exporter does not answer Prometheus.")
    names = [line.split()[0] for line in shown.splitlines() if line[:1].isalpha()]
    assert [name for name in names if name in rules.severities()] == [*rules.severities()]
    assert [name for name in names if name in catalogue.BY_NAME] == [*catalogue.BY_NAME]
    document = json.loads(trn("doctor", "--list", "--json").stdout)
    assert [each["name"] for each in document["faults"]] == [*catalogue.BY_NAME]
    assert {each["name"]: each["severity"] for each in document["alerts"]} == rules.severities()
    monkeypatch.setattr("trainium_eks.client.failure.shutil.which", lambda _: "/usr/bin/trn")
    page = runbook.page("GangStuck").replace("STACK", "prod")
    assert "- **queue-closed**: A queue starts no jobs." in page, "with the faults behind it"
    shown = trn("doctor", "GangStuck", "--stack", "prod")
    assert (shown.exit_code, shown.stdout) == (0, page)
    document = json.loads(trn("doctor", "gangstuck", "--stack", "prod", "--json").output)
    assert document["alert"] == {"name": "GangStuck", "severity": "warning", "text": page}
    ends(
        0,
        trn("doctor", "queue-closed", "--stack", "prod"),
        "kind: Queue, name: QUEUE, uid: any}}' | kubectl create -f -",
    )
    document = json.loads(trn("doctor", "queue-closed", "--stack", "prod", "--json").stdout)
    assert document["fault"]["name"] == "queue-closed"
    ends(2, trn("doctor", "GangStuk"), "there is no alert, fault or job 'GangStuk': did you mean GangStuck?")
    ends(2, trn("doctor", "XYZ"), "trn doctor --list` lists them")


# --- a job and a team -------------------------------------------------------------------------------------------------


@pytest.fixture
def team(trn, tmp_path):
    """A team with a gang that waits for its queue, and another that has it."""
    with watched_team.cluster(recorded_scenes.snapshot("queue_full")) as stub:
        yield watched_team.researcher(trn, stub, tmp_path), stub


def _failing(document):
    return [each for each in document["findings"] if each["status"] == "fail"]


def test_waiting_job_has_a_finding_with_cause_and_fix(team):
    call, _ = team
    cause, remedy = catalogue.BY_NAME["queue-full"].cause, "wait for alpha, or end it"
    call.ends(
        1,
        "doctor beta --no-color",
        "✗ job beta of training queue test may use 32 aws.amazon.com/neuron",
        f"queue-full: {cause} → {remedy}: ./trn cancel alpha",
        "✗ beta: 1 fault. Looked at",
    )
    document = json.loads(call("doctor", "beta", "--json")[1])
    [finding] = document["findings"]
    assert document["schemaVersion"] == 2
    assert (finding["id"], finding["fault"]) == ("faults/queue-full/job-beta-of-training", "queue-full")
    assert finding["fix"] == f"{remedy}: trn cancel alpha"
    call.ends(0, "doctor alpha", "✓ alpha: no fault found. Looked at")
    nobody = "training has no job 'bata', and no fault or alert of this name: did you mean beta?"
    call.ends(2, "doctor bata", nobody)
    call.ends(2, "doctor queue-full --namespace training", "training has no job 'queue-full'")


def test_doctor_examines_the_stack_and_reports_unreadable_objects(team):
    call, api = team
    code, out = call("doctor", "--json")
    faults = {each["fault"] for each in _failing(json.loads(out))}
    assert code == 1
    assert "nodes-missing" in faults, "the stack has groups without nodes"
    assert "queue-full" not in faults, "a job may wait for its turn"
    api.refuses["/api/v1/pods"] = 403
    assert "Pod" in json.loads(call("doctor", "--json")[1])["lookedAt"], "a researcher sees those of the team"
    api.refuses["/api/v1/nodes"] = 403
    out = call("doctor", "--namespace", "training")[1]
    assert "Not looked at: Node, which your user may not list." in out
    assert "Not compared with the state of the stack: objects of the stack (an administrator's" in " ".join(out.split())
    api.refuses["/version"] = 401
    code, out = call("doctor", "--json")
    assert (code, [each["fault"] for each in json.loads(out)["findings"]]) == (1, ["api-unauthorized"])


def test_timed_out_command_ends_with_findings(team, tmp_path):
    failure = CommandError("beta did not start", detail="after 600 s")
    options = ClusterOptions("", outputs=tmp_path / "outputs.json")
    said = examine.with_closing(failure, options, "training", "beta").text()
    assert said.startswith("beta did not start\nafter 600 s\nThe doctor finds:\n  queue-full: job beta of training: ")
    assert said.endswith("\n  → wait for alpha, or end it: ./trn cancel alpha")
    assert examine.with_closing(failure, options, "no-team", "beta").text() == failure.text()


# --- a stack ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def sound():
    """A cluster that is as its stack says."""
    with serving(objects()) as stub:
        yield stub


def _outputs(api, **changes):
    return {**outputs().model_dump(by_alias=True), "kubeconfig": json.dumps(api.kubeconfig), **changes}


@pytest.fixture
def file(tmp_path, sound):
    """The outputs of the stack that the server is sound for, with a kubeconfig for it."""
    path = tmp_path / "exported.json"
    path.write_text(json.dumps(_outputs(sound)))
    return path


@pytest.fixture
def doctor(trn, monkeypatch):
    monkeypatch.setattr(examine, "PAUSE_SECONDS", 0.05)
    return lambda *arguments: trn("doctor", *arguments)


@pytest.fixture
def local(project, sound):
    """A local cloud of the stack dev, without Volcano's chart, as `trn local up` leaves it."""
    paths = Paths.of(project.path, "dev")
    paths.root.mkdir(parents=True)
    paths.outputs.write_text(json.dumps(_outputs(sound)))
    paths.kubeconfig.write_text(json.dumps(sound.kubeconfig))
    missing = [{"name": "volcano", "reason": "chart repository not reachable"}]
    report = {"schemaVersion": 1, "local": True, "notInstalled": missing, "simulated": ["aws"], "realVolcano": False}
    paths.report.write_text(json.dumps(report))
    for name in ("volcano-scheduler", "volcano-controllers", "volcano-admission"):
        without(sound.objects, "Deployment", name)
    return paths


def test_doctor_shows_all_checks_on_request_and_exits_1_on_a_fault(doctor, file, sound):
    shown = doctor("--outputs", file)
    assert (shown.exit_code, shown.stderr) == (0, "")
    found = "✓ the stack: no fault found; 30 pass, 1 not checked, 12 not applicable. Looked at 5 Nodes"
    assert shown.stdout.startswith(found)
    everything = doctor("--outputs", file, "--all").stdout
    assert everything.startswith("trn-dev\nhttp://")
    assert re.search(r"Nodes\n  ✓  ng1 +2 of 2 Ready, wants 2 \(0 to 4\)", everything)
    assert re.search(r"-  rest +rests at zero nodes", everything)
    the(sound.objects, "Node", "trn1")["status"]["allocatable"]["vpc.amazonaws.com/efa"] = "0"
    wanted, stopped = "trn1: vpc.amazonaws.com/efa has 0 of 8, wants 8", "→ the EFA device plugin on trn1 has stopped"
    shown = ends(1, doctor("--outputs", file), wanted, stopped, "✗ the stack: 1 fault; 29 pass, 1 not checked")
    assert "rests at zero nodes" not in shown
    json_ = doctor("--outputs", file, "--json")
    data = json.loads(json_.stdout)
    assert (json_.exit_code, data["schemaVersion"], data["stack"], data["local"]) == (1, 2, None, False)
    assert (data["server"], data["failed"], data["summary"]["fail"], len(_failing(data))) == (sound.url, True, 1, 1)


def test_only_ten_faulty_objects_are_shown_and_json_has_all(doctor, tmp_path, sound):
    file = tmp_path / "exported.json"
    file.write_text(json.dumps(_outputs(sound, nodeGroups=[group("ng1", NEURON, 8, 12, maxSize=12)])))
    first = the(sound.objects, "Node", "trn0")
    for number in range(2, 12):
        sound.objects["Node"].append({**first, "metadata": {**first["metadata"], "name": f"trn{number}"}})
    first["status"]["allocatable"]["aws.amazon.com/neuron"] = "15"  # the copies share it
    shown = doctor("--outputs", file).stdout
    assert shown.count("aws.amazon.com/neuron has 15 of 16, wants 16") == 9
    assert "and 2 more" in shown
    document = json.loads(doctor("--outputs", file, "--json").stdout)
    [finding] = [each for each in document["findings"] if each["id"] == "devices/ng1/aws.amazon.com/neuron"]
    assert len(finding["details"]) == 11


def test_wait_ends_when_nothing_fails_or_at_its_limit(doctor, file, sound, monkeypatch):
    queue = the(sound.objects, "Queue", "test")
    queue["status"] = {}
    sound.before_look = lambda number: queue.update(status={"state": "Open"} if number == 3 else {})
    shown = ends(0, doctor("--outputs", file, "--wait", "60"))
    assert (shown.count("failing: queues/test; looking again for"), sound.looks) == (2, 3)
    without(sound.objects, "Queue", "test")
    assert (doctor("--outputs", file).exit_code, sound.looks) == (1, 4), "without waiting it looks once"
    slept = []  # by a clock on which nothing else takes time
    monkeypatch.setattr(examine, "time", SimpleNamespace(monotonic=lambda: sum(slept), sleep=slept.append))
    monkeypatch.setattr(examine, "PAUSE_SECONDS", 5)
    assert doctor("--outputs", file, "--wait", "12").exit_code == 1
    assert slept == [0.625, 1.25, 2.5, 5, 2.625]


def test_local_cloud_is_found_by_its_stack_and_bad_outputs_are_refused(doctor, project, local, tmp_path):
    simulated = "nodes and the pods on them are simulated, the answers of aws made up"
    missing = "?  volcano-scheduler    not checked: chart repository not reachable"
    unended = "objects of the stack (an `up` is running, or has failed)"
    shown = doctor("--stack", "dev", "--directory", project.path, "--all")
    ends(0, shown, simulated, missing, "4 not checked", unended)
    assert shown.stdout.startswith("dev · trn-dev · local cloud")
    local.made.write_text('{"deployment": {"resources": []}}')
    assert "3 not checked" in doctor("--stack", "dev", "--directory", project.path).stdout
    data = json.loads(doctor("--outputs", local.outputs, "--json").stdout)
    assert (data["local"], data["summary"]["not checked"]) == (True, 3), "its outputs as a file are known, too"
    file = tmp_path / "exported.json"
    ends(2, doctor("--outputs", file), "cannot read")
    for text, said in (("no json", "is not JSON"), ('{"schemaVersion": 1}', "does not hold a stack's outputs")):
        file.write_text(text)
        ends(2, doctor("--outputs", file), said)
    local.report.write_text("{}")
    ends(2, doctor("--stack", "dev", "--directory", project.path), "trn local up")


def test_local_up_ends_with_the_same_checks(local, project, sound, trn, monkeypatch):
    def up(outputs):
        """What comes after the last resource."""
        graph = Graph("trainium-eks", "dev", (), outputs)
        started = StartResult("https://127.0.0.1:1", "v1.35.4", (), 0.0)
        result = UpResult(graph, outputs, started, {}, {}, (), real_volcano=False, seconds=1.0)
        monkeypatch.setattr("trainium_eks.local.deployment.up", lambda *_: result)
        monkeypatch.setattr(local_up_command, "WELL_WITHIN_SECONDS", 0.0)
        return trn("local", "up", "--stack", "dev", "--directory", project.path)

    ends(0, up(_outputs(sound)), "✓ dev: no fault found; 26 pass")
    the(sound.objects, "Node", "trn1")["status"]["allocatable"]["vpc.amazonaws.com/efa"] = "0"
    wanted = "trn1: vpc.amazonaws.com/efa has 0 of 8, wants 8"
    ends(1, up(_outputs(sound)), wanted, "./trn local up sets them back", "✗ dev: 1 fault")
    assert "fault" not in ends(0, up({"keyArn": "x"})), "another program has no checks"


# --- the way to a stack -----------------------------------------------------------------------------------------------


def test_kubeconfig_of_the_outputs_is_private_and_removed(doctor, file, tmp_path, monkeypatch):
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    seen = []
    connect = examine.Api.connect

    def connected(kubeconfig):
        assert kubeconfig.parent == directory
        seen.append(stat.S_IMODE(kubeconfig.stat().st_mode))
        return connect(kubeconfig)

    monkeypatch.setattr(examine.Api, "connect", connected)
    assert doctor("--outputs", file).exit_code == 0
    assert seen == [0o600]
    assert list(directory.iterdir()) == []


def test_outputs_come_from_pulumi_and_its_refusal_is_shown(doctor, project, sound, tmp_path, monkeypatch):
    program, asked = tmp_path / "pulumi", ("--stack", "dev", "--directory", project.path)
    monkeypatch.setenv("PATH", str(tmp_path))
    ends(2, doctor(*asked), "trn local up --stack dev", "--outputs FILE")
    program.touch(0o755)
    for body, said in (
        ("import sys\nsys.exit('error: no stack named dev found')", "no stack named dev found"),
        ("print('{}')", "has its `up` finished?"),
    ):
        program.write_text(f"#!{sys.executable}\n{body}\n")
        ends(2, doctor(*asked), said)
    ends(2, doctor("--stack", "nobody", "--directory", project.path), "nobody")
    wanted = ["stack", "output", "--json", "--show-secrets", "--stack", "dev"]
    given = f"import sys\nassert sys.argv[1:] == {wanted!r}\nprint({json.dumps(_outputs(sound))!r})"
    program.write_text(f"#!{sys.executable}\n{given}\n")
    assert ends(0, doctor(*asked, "--all")).startswith("Stack dev (--stack)\ndev · trn-dev\n")


def test_given_kubeconfig_overrides_the_one_in_the_outputs(doctor, tmp_path, sound, monkeypatch):
    file, kubeconfig = tmp_path / "exported.json", tmp_path / "config"
    file.write_text(json.dumps(_outputs(sound, kubeconfig="[secret]")))
    kubeconfig.write_text(json.dumps(sound.kubeconfig))
    assert doctor("--outputs", file).exit_code == 2
    assert (doctor("--outputs", file, "--kubeconfig", kubeconfig).exit_code, sound.looks) == (0, 1)
    # A missing command is named before the server refuses.
    monkeypatch.setenv("PATH", "")
    without_aws = {**sound.kubeconfig, "users": [{"name": "u", "user": {"exec": {"command": "aws", "args": []}}}]}
    file.write_text(json.dumps(_outputs(sound, kubeconfig=json.dumps(without_aws))))
    assert ends(2, doctor("--outputs", file)).startswith("aws is not on PATH")
    assert sound.looks == 1


# --- what fires -------------------------------------------------------------------------------------------------------


@pytest.fixture
def api():
    """A cluster with Prometheus, and nothing else."""
    with serving({"Pod": [POD]}) as stub:
        yield stub


@pytest.fixture
def call(trn, api, tmp_path):
    return watched_team.researcher(trn, api, tmp_path)


def says(api, *found):
    """What Prometheus answers."""
    api.channels[PORT] = answer_http(json.dumps({"status": "success", "data": {"alerts": found}}), 9090)


def test_firing_alerts_are_sorted_by_severity(call, api):
    says(api, WATCHDOG, IDLE, SOON, STALLED)
    code, out = call("doctor", "--alerts", "--no-color")
    assert code == 1
    assert out.rstrip().splitlines() == [
        "critical  TrainingStalled  since 2026-11-22T11:00:00Z",
        "  alpha of training makes no steps",
        "",
        "warning  AcceleratorsIdle  since 2026-11-22T10:00:00Z",
        "  Nodes of ng1 are idle",
        "  For 30 minutes no pod has asked for a device of them. They cost 43.00 USD an hour.",
        "  Next: ./trn scale ng1 0 --stack prod",
        "",
        "Will fire if nothing changes: GangStuck",
    ]
    says(api, IDLE, SOON)
    code, out = call("doctor", "--alerts", "--json")
    assert code == 1
    idle, soon = json.loads(out)["alerts"]
    at = {"severity": "warning", "since": "2026-11-22T10:00:00Z", "labels": {"node_group": "ng1"}}
    assert idle == {"name": "AcceleratorsIdle", "state": "firing", **at, **IDLE_TEXTS}
    assert (soon["name"], soon["state"], soon["summary"]) == ("GangStuck", "pending", "GangStuck")
    # What will fire is no failure.
    says(api, WATCHDOG)
    assert call("doctor", "--alerts") == (0, "Nothing fires.\n\n")
    says(api, SOON)
    call.ends(0, "doctor --alerts", "Nothing fires.\nWill fire if nothing changes: GangStuck")


def test_unreachable_missing_or_unready_prometheus_is_reported(call, api):
    for path in (f"pods/{PORT}", "pods"):
        api.refuses = {f"/api/v1/namespaces/monitoring/{path}": 403}
        call.ends(1, "doctor --alerts", "may not reach pods of the namespace monitoring", "--kubeconfig")
    api.refuses = {}
    api.channels[PORT] = answer_http("[]", 9090)
    call.ends(1, "doctor --alerts", "answered something else")
    api.objects["Pod"] = [{**POD, "status": {"phase": "Pending"}}]
    call.ends(1, "doctor --alerts", "kubectl describe pods --namespace monitoring")
    api.objects["Pod"] = []
    remedy = "`observability.metrics` in the config installs it"
    call.ends(1, "doctor --alerts", "there is no Prometheus in the cluster", remedy)


def test_doctor_names_the_stack_on_a_terminal_before_it_reads(monkeypatch, capsys):
    report = Report({"stack": "local"}, ())
    monkeypatch.setattr(examine, "diagnosis", lambda *_: report)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    doctor_command._examined(ClusterOptions("local", as_json=True), "", 0, everything=False)
    assert capsys.readouterr().err == "-- reading local and its cluster\n"
