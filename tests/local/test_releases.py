"""Helm releases on a real API server: what the real ``helm`` makes of them, and what is left after a kill."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
import yaml
from local_project import ROOT
from manifests import definition, deployment, is_taken, live, manifest, pod_spec
from staging_servers import file_server
from waiting import until

from trainium_eks.kube.api import ApiError, ObjectReference
from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.changes import Change
from trainium_eks.local.control_plane import processes
from trainium_eks.local.objects.placeholders import LABEL
from trainium_eks.local.releases import charts
from trainium_eks.local.releases.helm import Releases
from trainium_eks.local.releases.volcano import DEPLOYMENTS, Programs
from trainium_eks.model.alerts import AlertSettings
from trainium_eks.observe import rules
from trainium_eks.observe.series import scraping

pytestmark = pytest.mark.slow

AWAY = {"repositoryOpts": {"repo": "http://127.0.0.1:9"}, "version": "1.0.0"}
"""A chart in a repository that nobody reaches."""
SECONDS = 600.0
THERE = {"for": "{{ .Values.node }}"}

CONFIG_MAP = manifest("ConfigMap", "it", data={"value": "{{ .Values.value }}"})
DEPLOYMENT = deployment("web", "", pod_spec(nodeSelector=THERE))
JOB = manifest(
    "Job",
    "before",
    metadata={"annotations": {"helm.sh/hook": "pre-install"}},
    spec={"template": {"spec": pod_spec(restartPolicy="Never", nodeSelector=THERE)}},
)
API_SERVICE = manifest(
    "APIService",
    "v1.nobody.example.com",
    api_version="apiregistration.k8s.io/v1",
    spec={"group": "nobody.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
          "insecureSkipTLSVerify": True, "service": {"name": "nobody", "namespace": "{{ .Release.Namespace }}"}},
)  # fmt: skip
_QUEUE = {"type": "object", "properties": {"real": {"type": "string"}, "weight": {"type": "integer"}}}
QUEUES = definition(
    "Queue",
    "queues",
    "scheduling.volcano.sh",
    "v1beta1",
    scope="Cluster",
    schema={"type": "object", "properties": {"spec": _QUEUE}},
)


def webhook(name, service="nobody", **annotations):
    """Of secrets of the release's namespace."""
    here = "{{ .Release.Namespace }}"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]}
    one = {
        "name": "refuses.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": here}},
        "clientConfig": {"service": {"name": service, "namespace": here}},
    }
    metadata = {"annotations": annotations}
    return manifest("ValidatingWebhookConfiguration", f"{here}-{name}", metadata=metadata, webhooks=[one])


def write_chart(directory, version="1.0.0", **templates):
    (directory / "templates").mkdir(parents=True, exist_ok=True)
    (directory / "Chart.yaml").write_text(f"apiVersion: v2\nname: {directory.name}\nversion: {version}\n")
    for name, template in templates.items():
        text = template if isinstance(template, str) else yaml.safe_dump(template)
        (directory / "templates" / f"{name}.yaml").write_text(text)
    return directory


class Place:
    """A project, and the releases of one namespace on the shared control plane."""

    def __init__(self, api, paths, helm, namespace, root, node):
        self.api, self.paths, self.helm, self.namespace, self.root, self.node = api, paths, helm, namespace, root, node
        self.told = []

    def releases(self, volcano=None, **options):
        # The user's own settings of Helm, which must not matter, and a cloud's.
        theirs = {"HELM_NAMESPACE": "other", "HELM_DRIVER": "memory", "KUBECONFIG": "/nowhere"}
        ours = {"TRN_CHARTS": str(self.root / "charts"), "TRN_CACHE": str(self.root / "cache"), "TRN_VOLCANO": "off"}
        full = {**os.environ, **theirs, **ours}
        told = {"waiting": self.told.append, **options}
        return Releases(self.paths, self.helm, self.api, self.root, environment=full, volcano=volcano, **told)

    def inputs(self, chart="./thing", **inputs):
        values = {"node": self.node, "value": "a", **inputs.pop("values", {})}
        return {"name": "r", "namespace": self.namespace, "chart": chart, "values": values, "atomic": True, **inputs}

    def apply(self, chart="./thing", *, volcano=None, **inputs):
        return self.releases(volcano).apply(self.inputs(chart, **inputs), timeout_seconds=SECONDS)

    def helm_says(self, *arguments):
        command = [str(self.helm), *arguments, "--kubeconfig", str(self.paths.kubeconfig), "-n", self.namespace]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def live(self, wanted):
        return live(self.api, {**wanted, "metadata": {**wanted["metadata"], "namespace": self.namespace}})


@pytest.fixture
def place(api, paths, binaries, namespace, node, tmp_path, monkeypatch):
    # Repositories are on this machine, or nowhere.
    monkeypatch.setattr(charts, "PULL_SECONDS", SECONDS)
    (tmp_path / "charts").mkdir()
    made = Place(api, paths, binaries["helm"], namespace, tmp_path, node)
    yield made
    for name in ("r", "volcano"):
        made.releases().delete(name, namespace)
    processes.stop(paths, list(DEPLOYMENTS))


def test_release_is_installed_with_its_hooks_once(place):
    write_chart(place.root / "thing", hook=JOB, it=CONFIG_MAP, web=DEPLOYMENT)
    first = place.apply()
    assert (first.change, first.outputs["status"]["revision"]) == (Change.CREATED, 1)
    assert place.live(JOB)["status"]["succeeded"] == 1
    assert place.live(DEPLOYMENT)["status"]["readyReplicas"] == 1
    second = place.apply()
    assert (second.change, second.outputs["status"]["revision"]) == (Change.SAME, 1)


def test_release_is_upgraded_repaired_and_deleted_completely(place):
    chart = write_chart(place.root / "thing", it=CONFIG_MAP)
    place.apply()
    changed = {"values": {"value": "b"}}
    assert place.apply(**changed).change is Change.UPDATED
    assert place.live(CONFIG_MAP)["data"] == {"value": "b"}
    changed["waitForJobs"] = True
    assert place.apply(**changed).change is Change.UPDATED
    write_chart(chart, it={**CONFIG_MAP, "data": {"more": "m", **CONFIG_MAP["data"]}})
    assert place.apply(**changed).change is Change.UPDATED
    assert place.live(CONFIG_MAP)["data"] == {"more": "m", "value": "b"}
    place.api.delete(ObjectReference("v1", "ConfigMap", place.namespace, "it"))
    assert place.apply(**changed).change is Change.UPDATED
    assert place.live(CONFIG_MAP)
    for _ in range(2):
        place.releases().delete("r", place.namespace)
        assert place.live(CONFIG_MAP) == {}
        assert place.helm_says("list", "--all", "--short") == ""


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (manifest("ConfigMap", "Bad_Name"), r"(?s)Helm release NS/r: .*Bad_Name.*must consist of lower case"),
        ('{{ fail "values.value is missing" }}', r"bad\.yaml.*values\.value is missing"),
    ],
    ids=["object", "template"],
)
def test_invalid_template_fails_with_helms_message_and_leaves_nothing(place, template, said):
    write_chart(place.root / "thing", it=CONFIG_MAP, bad=template)
    with pytest.raises(ClusterError, match=said.replace("NS", place.namespace)):
        place.apply()
    assert place.live(CONFIG_MAP) == {}


def test_waiting_or_refused_pod_is_named_with_its_reason(place):
    write_chart(place.root / "thing", web=DEPLOYMENT)
    until_named(place, r"1 pod: not scheduled: Unschedulable: 0/\d+ nodes are available", values={"node": "none"})
    assert any("1 pod: not scheduled" in line for line in place.told)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    place.api.apply(manifest("Namespace", place.namespace, metadata={"labels": labels}))
    until_named(place, r"web-\S+: .*violates PodSecurity")


def until_named(place, reason, **inputs):
    """A release fails, and says why. It is given more time where a busy machine did not come to that."""
    for timeout in (8, 30, 120, 480):
        with pytest.raises(ClusterError) as caught:
            place.apply(timeout=timeout, **inputs)
        if re.search(reason, str(caught.value)) and place.told:
            return
    raise AssertionError(f"not {reason}: {caught.value}; told: {place.told}")


def test_a_failed_release_is_tried_again(place):
    write_chart(place.root / "thing", web=DEPLOYMENT)
    with pytest.raises(ClusterError):
        place.apply(values={"node": "none"}, timeout=3, atomic=False)
    assert place.apply(atomic=False).outputs["status"]["status"] == "deployed"


def test_stopping_everything_ends_helm(place):
    write_chart(place.root / "thing", web=DEPLOYMENT)
    stopping = threading.Event()
    stopping.set()
    releases = place.releases(stopping=stopping)
    started = time.monotonic()
    with pytest.raises(ClusterError, match="everything was stopped"):
        releases.apply(place.inputs(values={"node": "none"}), timeout_seconds=SECONDS)
    assert time.monotonic() - started < SECONDS / 2


@pytest.mark.parametrize(("installed", "helm_too"), [(False, True), (True, True), (False, False)])
def test_killed_helm_is_recovered(place, installed, helm_too):
    """Whether or not Helm ends with ``trn``: one that is left behind must not go on beside the next."""
    write_chart(place.root / "thing", it=CONFIG_MAP, web=DEPLOYMENT)
    if installed:
        place.apply()
    program = (
        "import json, sys; from pathlib import Path; from trainium_eks.kube.api import Api;"
        "from trainium_eks.local.releases.helm import Releases; from trainium_eks.local.paths import Paths;"
        "root, helm, project, inputs = sys.argv[1:]; paths = Paths(Path(root));"
        "releases = Releases(paths, Path(helm), Api.connect(paths.kubeconfig), Path(project));"
        "releases.apply(json.loads(inputs), timeout_seconds=600)"
    )
    inputs = place.inputs(values={"node": "none", "value": "b"})
    arguments = [str(place.paths.root), str(place.helm), str(place.root), json.dumps(inputs)]
    killed = subprocess.Popen([sys.executable, "-c", program, *arguments], cwd=ROOT)
    until(lambda: "pending-" in place.helm_says("list", "--all"), "Helm is at work")
    helms = [child for child in psutil.Process(killed.pid).children() if child.name() == "helm"]
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert helms
    if helm_too:
        for helm in helms:
            helm.kill()
    told = []
    releases = place.releases(waiting=lambda line: told.append((line, any(map(_runs, helms)))))
    applied = releases.apply(place.inputs(), timeout_seconds=SECONDS)
    assert applied.outputs["status"]["status"] == "deployed"
    # Before anything of the release is touched, no other process works on it.
    assert [(line.partition(" was left pending-")[0], runs) for line, runs in told[:1]] == [
        (f"{place.namespace}/r", False)
    ]
    assert place.live(CONFIG_MAP)["data"] == {"value": "a"}


def _runs(process):
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


@pytest.fixture
def repository(place):
    chart = write_chart(place.root / "source" / "thing", it=CONFIG_MAP)
    served = place.root / "served"
    place.helm_says("package", str(chart), "--destination", str(served))
    with file_server() as server:
        place.helm_says("repo", "index", str(served), "--url", server.url)
        server.files |= {f"/{file.name}": file.read_bytes() for file in served.iterdir()}
        yield server


def test_pulled_chart_is_kept_for_an_unreachable_repository(place, repository):
    with pytest.raises(ClusterError, match=r"does not have thing 9\.9\.9"):
        place.apply("thing", repositoryOpts={"repo": repository.url}, version="9.9.9")
    inputs = {"repositoryOpts": {"repo": repository.url}, "version": "1.0.0"}
    applied = place.apply("thing", **inputs)
    assert applied.change is Change.CREATED
    assert applied.notes == (f"r: chart from {repository.url}",)
    repository.files.clear()
    assert place.apply("thing", **inputs).change is Change.SAME
    assert place.apply("thing", **inputs, values={"value": "b"}).change is Change.UPDATED


def test_release_is_kept_when_its_chart_is_unreachable(place):
    applied = place.apply("thing", **AWAY)
    assert applied.change is Change.SAME
    assert applied.not_installed.startswith("chart repository not reachable: http://127.0.0.1:9 (")
    assert "thing-1.0.0.tgz" in applied.not_installed
    assert place.helm_says("list", "--all", "--short") == ""
    chart = write_chart(place.root / "charts" / "thing", it=CONFIG_MAP)
    assert place.apply("thing", **AWAY).not_installed == ""
    shutil.rmtree(chart)
    kept = place.apply("thing", **AWAY)
    assert (kept.change, kept.not_installed) == (Change.SAME, "")
    other = place.apply("thing", **AWAY, values={"value": "b"})
    assert other.change is Change.SAME
    assert other.not_installed.startswith("kept without the new settings: chart repository not reachable")
    assert place.live(CONFIG_MAP)


def queue(**spec):
    return manifest("Queue", "q", spec=spec)


def test_placeholders_are_used_until_the_chart_is_reachable(place):
    applied = place.apply("volcano", name="volcano", **AWAY)
    assert applied.not_installed
    assert applied.notes == ("volcano: placeholder definitions: queues.scheduling.volcano.sh",)
    again = place.apply("volcano", name="volcano", **AWAY)
    assert (again.change, again.notes) == (Change.SAME, ())

    place.api.apply(queue(weight=1, reclaimable=True, capability={"cpu": 2, "memory": "4Gi"}, parent="root"))
    for wrong, words in (
        ({"wieght": 1}, "wieght"),
        ({"weight": 0}, "greater than or equal to 1"),
        ({"parent": "A_"}, "should match"),
    ):
        with pytest.raises(ApiError, match=words):
            place.api.apply(queue(**wrong))

    write_chart(place.root / "charts" / "volcano", definition=QUEUES, it=CONFIG_MAP)
    real = place.apply("volcano", name="volcano", **AWAY)
    assert real.change is Change.CREATED
    assert any("took the place of placeholders: queues.scheduling.volcano.sh" in note for note in real.notes)
    assert LABEL not in live(place.api, QUEUES)["metadata"]["labels"]
    until(lambda: is_taken(place.api, {**queue(real="yes"), "metadata": {"name": "other"}}))


def test_monitors_and_rules_are_checked_against_placeholder_definitions(place):
    stack = {"name": "kube-prometheus-stack", **AWAY}
    assert place.apply("kube-prometheus-stack", **stack).not_installed
    groups = {"recording": rules.recording({"trn1.32xlarge": 21.5}), "alerts": rules.alerts(AlertSettings(), "dev")}
    made = [(each.kind, each.name, each.spec()) for each in scraping.SCRAPES]
    made += [("PrometheusRule", name, {"groups": each}) for name, each in groups.items()]
    for kind, name, spec in made:
        wanted = manifest(kind, name, place.namespace, api_version=scraping.API_VERSION, spec=spec)
        place.api.apply(wanted)
        with pytest.raises(ApiError, match="misspelt"):
            place.api.apply({**wanted, "spec": {**spec, "misspelt": True}})
    defined = manifest("CustomResourceDefinition", "prometheusrules.monitoring.coreos.com")
    assert live(place.api, defined)
    place.releases().delete("kube-prometheus-stack", place.namespace)
    assert live(place.api, defined) == {}


def test_webhook_without_a_process_is_left_out_and_reported(place):
    hook = webhook("hook", **{"helm.sh/hook": "post-install"})
    write_chart(place.root / "thing", it=CONFIG_MAP, plain=webhook("plain"), hook=hook, service=API_SERVICE)
    applied = place.apply()
    left_out = f"APIService v1.nobody.example.com, ValidatingWebhookConfiguration {place.namespace}-plain"
    assert f"r: 2 left out, because simulated pods cannot answer: {left_out}" in applied.notes
    assert any(
        f"deleted, because simulated pods cannot answer: ValidatingWebhookConfiguration {place.namespace}-hook" in note
        for note in applied.notes
    )
    until(lambda: is_taken(place.api, manifest("Secret", "s", place.namespace)))
    again = place.apply()
    assert again.change is Change.SAME
    assert any(left_out in note for note in again.notes)


def test_volcano_processes_survive_and_webhooks_end_with_them(place):
    """Played by Python, in a chart that is missing the second time."""
    programs = place.root / "bin"
    programs.mkdir()
    for name in DEPLOYMENTS:
        (programs / name).symlink_to(Path(sys.executable).resolve())
    volcano = Programs({name: programs / name for name in DEPLOYMENTS})

    def running():
        return {each.name: each.pid for each in processes.running(place.paths) if each.name in DEPLOYMENTS}

    container = {"name": "main", "image": "x", "args": ["-I", "-S", "-cimport time; time.sleep(3600)"]}
    admission = deployment("volcano-admission", "", {"nodeSelector": THERE, "containers": [container]})
    hook = webhook("it", "volcano-admission-service")
    chart = write_chart(place.root / "charts" / "volcano", queue=QUEUES, admission=admission, webhook=hook)
    configuration = {**hook, "metadata": {"name": f"{place.namespace}-it"}}

    place.apply("volcano", name="volcano", volcano=volcano, **AWAY)
    before = running()
    assert list(before) == ["vc-webhook-manager"]
    assert live(place.api, configuration)
    shutil.rmtree(chart)
    kept = place.apply("volcano", name="volcano", volcano=volcano, **AWAY)
    assert any("runs for real" in note for note in kept.notes)
    assert running() == before
    assert live(place.api, configuration)

    gone = place.apply("volcano", name="volcano", volcano=Programs(missing="there is none"), **AWAY)
    assert any(f"deleted, because simulated pods cannot answer: {configuration['kind']}" in note for note in gone.notes)
    assert "volcano: Volcano's pods are simulated, and nothing schedules its jobs: there is none" in gone.notes
    assert running() == {}
    until(lambda: is_taken(place.api, manifest("Secret", "s", place.namespace)))

    place.apply("volcano", name="volcano", volcano=volcano, **AWAY)
    assert list(running()) == ["vc-webhook-manager"]
    assert live(place.api, configuration)
