"""Helm releases on a real API server: what the real ``helm`` makes of them, and what is left after a kill."""

import http.server
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import psutil
import pytest
from waiting import until

from components.volcano_stack import VolcanoStackArgs, volcano_values
from trainium_eks.kube.api import Api, ApiError, ObjectReference
from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.changes import ApplyResult, Change
from trainium_eks.local.control_plane import processes
from trainium_eks.local.objects.placeholders import LABEL
from trainium_eks.local.paths import Paths
from trainium_eks.local.releases import charts
from trainium_eks.local.releases.helm import Releases
from trainium_eks.local.releases.volcano import DEPLOYMENTS, Programs
from trainium_eks.model.alerts import AlertSettings
from trainium_eks.model.catalogue.versions import CHARTS
from trainium_eks.observe import rules
from trainium_eks.observe.series import scraping

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
NOBODY = "http://127.0.0.1:9"
SECONDS = 600.0
DEFINITIONS = "apiextensions.k8s.io/v1"
QUEUES = ObjectReference(DEFINITIONS, "CustomResourceDefinition", "", "queues.scheduling.volcano.sh")

CONFIG_MAP = """
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: it}
    data: {value: "{{ .Values.value }}"}
"""
JOB = """
    apiVersion: batch/v1
    kind: Job
    metadata:
      name: before
      annotations: {helm.sh/hook: pre-install}
    spec:
      template:
        spec:
          restartPolicy: Never
          nodeSelector: {for: "{{ .Values.node }}"}
          containers: [{name: main, image: x}]
"""
DEPLOYMENT = """
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: web}
    spec:
      selector: {matchLabels: {app: web}}
      template:
        metadata: {labels: {app: web}}
        spec:
          nodeSelector: {for: "{{ .Values.node }}"}
          containers: [{name: main, image: x}]
"""
WEBHOOK = """
    apiVersion: admissionregistration.k8s.io/v1
    kind: ValidatingWebhookConfiguration
    metadata:
      name: "{{ .Release.Namespace }}-NAME"
      annotations: ANNOTATIONS
    webhooks:
      - name: refuses.example.com
        admissionReviewVersions: [v1]
        sideEffects: None
        namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: "{{ .Release.Namespace }}"}}
        clientConfig: {service: {name: nobody, namespace: "{{ .Release.Namespace }}"}}
        rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [secrets]}]
"""
API_SERVICE = """
    apiVersion: apiregistration.k8s.io/v1
    kind: APIService
    metadata: {name: v1.nobody.example.com}
    spec:
      group: nobody.example.com
      version: v1
      groupPriorityMinimum: 100
      versionPriority: 100
      insecureSkipTLSVerify: true
      service: {name: nobody, namespace: "{{ .Release.Namespace }}"}
"""
QUEUE_DEFINITION = """
    apiVersion: apiextensions.k8s.io/v1
    kind: CustomResourceDefinition
    metadata: {name: queues.scheduling.volcano.sh}
    spec:
      group: scheduling.volcano.sh
      scope: Cluster
      names: {kind: Queue, plural: queues, singular: queue, listKind: QueueList}
      versions:
        - name: v1beta1
          served: true
          storage: true
          schema:
            openAPIV3Schema:
              type: object
              properties:
                spec: {type: object, properties: {real: {type: string}, weight: {type: integer}}}
"""


def write_chart(directory: Path, version: str = "1.0.0", **templates: str) -> Path:
    (directory / "templates").mkdir(parents=True, exist_ok=True)
    (directory / "Chart.yaml").write_text(f"apiVersion: v2\nname: {directory.name}\nversion: {version}\n")
    for name, text in templates.items():
        (directory / "templates" / f"{name}.yaml").write_text(dedent(text))
    return directory


class Place:
    """A project, and the releases of one namespace on the shared control plane."""

    def __init__(self, api: Api, paths: Paths, helm: Path, namespace: str, root: Path) -> None:
        self.api, self.paths, self.helm, self.namespace, self.root = api, paths, helm, namespace, root
        self.told: list[str] = []

    def releases(self, volcano: Programs | None = None, **environment: str) -> Releases:
        ours = {"TRN_CHARTS": "", "TRN_CACHE": str(self.root / "cache"), "TRN_VOLCANO": "off"}
        full = {**os.environ, **ours, **environment}
        return Releases(
            self.paths, self.helm, self.api, self.root, environment=full, volcano=volcano, waiting=self.told.append
        )

    def inputs(self, chart: str = "./thing", **inputs: Any) -> dict[str, Any]:
        values = {"node": self.namespace, "value": "a", **inputs.pop("values", {})}
        return {"name": "r", "namespace": self.namespace, "chart": chart, "values": values, "atomic": True, **inputs}

    def apply(
        self,
        chart: str = "./thing",
        *,
        environment: Mapping[str, str] | None = None,
        volcano: Programs | None = None,
        **inputs: Any,
    ) -> ApplyResult:
        releases = self.releases(volcano, **(environment or {}))
        return releases.apply(self.inputs(chart, **inputs), timeout_seconds=SECONDS)

    def helm_says(self, *arguments: str) -> str:
        command = [str(self.helm), *arguments, "--kubeconfig", str(self.paths.kubeconfig), "-n", self.namespace]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def get(self, kind: str, name: str, api_version: str = "v1") -> dict[str, Any] | None:
        return self.api.get(ObjectReference(api_version, kind, self.namespace, name))


@pytest.fixture
def place(
    api: Api,
    paths: Paths,
    binaries: Mapping[str, Path],
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Place]:
    # Repositories are on this machine, or nowhere.
    monkeypatch.setattr(charts, "PULL_SECONDS", SECONDS)
    room = {"cpu": "8", "memory": "8Gi", "pods": "20"}
    metadata = {"name": namespace, "labels": {"for": namespace}, "annotations": {"kwok.x-k8s.io/node": "fake"}}
    status = {"capacity": room, "allocatable": room}
    api.create({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status})
    made = Place(api, paths, binaries["helm"], namespace, tmp_path)
    yield made
    for name in ("r", "volcano"):
        made.releases().delete(name, namespace)
    processes.stop(paths, list(DEPLOYMENTS))
    api.delete(ObjectReference("v1", "Node", "", namespace), propagation="Background")


# --- Changes ------------------------------------------------------------------------------------------------------


def test_a_release_is_installed_with_its_hooks_and_a_second_time_nothing_is_run(place: Place) -> None:
    write_chart(place.root / "thing", hook=JOB, it=CONFIG_MAP, web=DEPLOYMENT)
    first = place.apply()
    assert (first.change, first.outputs["status"]["revision"]) == (Change.CREATED, 1)
    job = place.get("Job", "before", "batch/v1")
    assert job is not None
    assert job["status"]["succeeded"] == 1
    web = place.get("Deployment", "web", "apps/v1")
    assert web is not None
    assert web["status"]["readyReplicas"] == 1
    second = place.apply()
    assert (second.change, second.outputs["status"]["revision"]) == (Change.SAME, 1)


@pytest.mark.parametrize("what", ["value", "template", "option"])
def test_what_changed_is_upgraded(place: Place, what: str) -> None:
    chart = write_chart(place.root / "thing", it=CONFIG_MAP)
    place.apply()
    if what == "template":
        write_chart(chart, it=CONFIG_MAP.replace("data: {", "data: {more: m, "))
    inputs: dict[str, Any] = {"value": {"values": {"value": "b"}}, "option": {"waitForJobs": True}}.get(what, {})
    assert place.apply(**inputs).change is Change.UPDATED
    found = place.get("ConfigMap", "it")
    assert found is not None
    expected = {"value": {"value": "b"}, "template": {"more": "m", "value": "a"}, "option": {"value": "a"}}
    assert found["data"] == expected[what]


def test_an_object_that_somebody_deleted_comes_back(place: Place) -> None:
    write_chart(place.root / "thing", it=CONFIG_MAP)
    place.apply()
    place.api.delete(ObjectReference("v1", "ConfigMap", place.namespace, "it"))
    assert place.apply().change is Change.UPDATED
    assert place.get("ConfigMap", "it") is not None


def test_a_deleted_release_leaves_nothing_and_one_that_is_absent_is_fine(place: Place) -> None:
    write_chart(place.root / "thing", it=CONFIG_MAP)
    place.apply()
    for _ in range(2):
        place.releases().delete("r", place.namespace)
        assert place.get("ConfigMap", "it") is None
        assert place.helm_says("list", "--all", "--short") == ""


@pytest.mark.parametrize("chart", ["neuron-monitor", "torchx-etcd"])
def test_the_charts_of_this_repository_install(place: Place, chart: str) -> None:
    shutil.copytree(REPOSITORY / "charts" / chart, place.root / chart)
    taint = {"key": "k", "operator": "Exists", "effect": "NoSchedule"}
    values = {
        "image": "i:1",
        "instanceTypes": ["trn1.32xlarge"],
        "tolerations": [taint],
        "clientNamespaces": ["default"],
    }
    assert place.apply(f"./{chart}", values=values).change is Change.CREATED


def test_the_users_own_helm_does_not_matter(place: Place, tmp_path: Path) -> None:
    """Neither a namespace nor a kubeconfig nor a driver of the environment."""
    write_chart(place.root / "thing", it=CONFIG_MAP)
    place.apply(environment={"HELM_NAMESPACE": "other", "HELM_DRIVER": "memory", "KUBECONFIG": "/nowhere"})
    assert "r" in place.helm_says("list", "--short")


# --- Failures -----------------------------------------------------------------------------------------------------


def test_helms_own_words_say_what_is_wrong_and_nothing_is_left(place: Place) -> None:
    write_chart(
        place.root / "thing", it=CONFIG_MAP, bad="apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Bad_Name}\n"
    )
    with pytest.raises(
        ClusterError, match=rf"(?s)Helm release {place.namespace}/r: .*Bad_Name.*must consist of lower case"
    ):
        place.apply()
    assert place.get("ConfigMap", "it") is None


def test_a_template_that_fails_is_named(place: Place) -> None:
    write_chart(place.root / "thing", it='{{ fail "values.value is missing" }}')
    with pytest.raises(ClusterError, match=r"it\.yaml.*values\.value is missing"):
        place.apply()


def test_a_pod_that_waits_is_named_with_its_reason(place: Place) -> None:
    write_chart(place.root / "thing", web=DEPLOYMENT)
    until_named(place, r"pod web-\S+: 0/\d+ nodes are available", values={"node": "none"})
    assert any("pod web-" in line for line in place.told)


def until_named(place: Place, reason: str, **inputs: Any) -> None:
    """A release fails, and says why. It is given more time where a busy machine did not come to that."""
    for timeout in (8, 30, 120, 480):
        with pytest.raises(ClusterError) as caught:
            place.apply(timeout=timeout, **inputs)
        if re.search(reason, str(caught.value)) and place.told:
            return
    raise AssertionError(f"not {reason}: {caught.value}; told: {place.told}")


def test_a_pod_that_may_not_be_made_is_told_with_its_reason(place: Place) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place.namespace, "labels": labels}}
    place.api.apply(namespace)
    write_chart(place.root / "thing", web=DEPLOYMENT)
    until_named(place, r"web-\S+: .*violates PodSecurity")


def test_a_failed_release_is_tried_again(place: Place) -> None:
    write_chart(place.root / "thing", web=DEPLOYMENT)
    with pytest.raises(ClusterError):
        place.apply(values={"node": "none"}, timeout=3, atomic=False)
    assert place.apply(atomic=False).outputs["status"]["status"] == "deployed"


def test_all_that_is_stopped_ends_helm(place: Place) -> None:
    write_chart(place.root / "thing", web=DEPLOYMENT)
    stopping = threading.Event()
    stopping.set()
    releases = Releases(place.paths, place.helm, place.api, place.root, stopping=stopping)
    started = time.monotonic()
    with pytest.raises(ClusterError, match="everything was stopped"):
        releases.apply(place.inputs(values={"node": "none"}), timeout_seconds=SECONDS)
    assert time.monotonic() - started < SECONDS / 2


@pytest.mark.parametrize(("installed", "helm_too"), [(False, True), (True, True), (False, False)])
def test_a_kill_is_recovered(place: Place, installed: bool, helm_too: bool) -> None:
    """Whether or not Helm goes with ``trn``: one that is left behind must not go on beside the next."""
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
    killed = subprocess.Popen([sys.executable, "-c", program, *arguments], cwd=REPOSITORY)
    until(lambda: "pending-" in place.helm_says("list", "--all"), "Helm is at work")
    helms = [child for child in psutil.Process(killed.pid).children() if child.name() == "helm"]
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert helms
    if helm_too:
        for helm in helms:
            helm.kill()
    told: list[tuple[str, bool]] = []
    releases = Releases(
        place.paths, place.helm, place.api, place.root, waiting=lambda line: told.append((line, any(map(_runs, helms))))
    )
    applied = releases.apply(place.inputs(), timeout_seconds=SECONDS)
    assert applied.outputs["status"]["status"] == "deployed"
    # Before anything of the release is touched, nobody else works on it any more.
    assert [(line.partition(" was left pending-")[0], runs) for line, runs in told[:1]] == [
        (f"{place.namespace}/r", False)
    ]
    found = place.get("ConfigMap", "it")
    assert found is not None
    assert found["data"] == {"value": "a"}


def _runs(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


# --- Repositories -------------------------------------------------------------------------------------------------


@pytest.fixture
def repository(place: Place) -> Iterator[str]:
    """A chart repository with ``thing`` 1.0.0, over HTTP."""
    chart = write_chart(place.root / "source" / "thing", it=CONFIG_MAP)
    served = place.root / "served"
    served.mkdir()
    place.helm_says("package", str(chart), "--destination", str(served))
    handler = partial(_Quiet, directory=str(served))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    url = f"http://127.0.0.1:{server.server_port}"
    place.helm_says("repo", "index", str(served), "--url", url)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield url
    server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_chart_of_a_repository_is_pulled_and_kept_for_when_it_is_away(place: Place, repository: str) -> None:
    inputs = {"repositoryOpts": {"repo": repository}, "version": "1.0.0"}
    applied = place.apply("thing", **inputs)
    assert applied.change is Change.CREATED
    assert applied.notes == (f"r: chart from {repository}",)
    shutil.rmtree(place.root / "served")
    assert place.apply("thing", **inputs).change is Change.SAME
    assert place.apply("thing", **inputs, values={"value": "b"}).change is Change.UPDATED


def test_a_version_that_the_repository_does_not_have_is_an_error(place: Place, repository: str) -> None:
    with pytest.raises(ClusterError, match=r"does not have thing 9\.9\.9"):
        place.apply("thing", repositoryOpts={"repo": repository}, version="9.9.9")


def test_a_chart_that_cannot_be_had_is_not_installed_and_no_failure(place: Place) -> None:
    applied = place.apply("thing", repositoryOpts={"repo": NOBODY}, version="1.0.0")
    assert applied.change is Change.SAME
    assert applied.not_installed.startswith(f"chart repository not reachable: {NOBODY} (")
    assert "thing-1.0.0.tgz" in applied.not_installed
    assert place.helm_says("list", "--all", "--short") == ""


def test_a_release_stays_when_its_chart_cannot_be_had_any_more(place: Place) -> None:
    write_chart(place.root / "charts" / "thing", it=CONFIG_MAP)
    inputs = {"repositoryOpts": {"repo": NOBODY}, "version": "1.0.0"}
    assert place.apply("thing", environment={"TRN_CHARTS": str(place.root / "charts")}, **inputs).not_installed == ""
    kept = place.apply("thing", **inputs)
    assert (kept.change, kept.not_installed) == (Change.SAME, "")
    other = place.apply("thing", **inputs, values={"value": "b"})
    assert other.change is Change.SAME
    assert other.not_installed.startswith("kept without the new settings: chart repository not reachable")
    assert place.get("ConfigMap", "it") is not None


# --- Placeholders -------------------------------------------------------------------------------------------------


def queue(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "q"}, "spec": spec}


def test_placeholders_stand_in_until_the_chart_can_be_had(place: Place) -> None:
    inputs = {"name": "volcano", "repositoryOpts": {"repo": NOBODY}, "version": "1.0.0"}
    applied = place.apply("volcano", **inputs)
    assert applied.not_installed
    assert applied.notes == ("volcano: placeholder definitions: queues.scheduling.volcano.sh",)
    again = place.apply("volcano", **inputs)
    assert (again.change, again.notes) == (Change.SAME, ())

    place.api.apply(queue(weight=1, reclaimable=True, capability={"cpu": 2, "memory": "4Gi"}, parent="root"))
    for wrong, words in (
        ({"wieght": 1}, "wieght"),
        ({"weight": 0}, "greater than or equal to 1"),
        ({"parent": "A_"}, "should match"),
    ):
        with pytest.raises(ApiError, match=words):
            place.api.apply(queue(**wrong))

    write_chart(place.root / "charts" / "volcano", definition=QUEUE_DEFINITION, it=CONFIG_MAP)
    real = place.apply("volcano", environment={"TRN_CHARTS": str(place.root / "charts")}, **inputs)
    assert real.change is Change.CREATED
    assert any("took the place of placeholders: queues.scheduling.volcano.sh" in note for note in real.notes)
    definition = place.api.get(QUEUES)
    assert definition is not None
    assert LABEL not in definition["metadata"]["labels"]
    until(lambda: _accepts(place.api, queue(real="yes")))


def test_monitors_and_rules_are_held_to_placeholders_by_a_real_api_server(place: Place) -> None:
    stack = {"name": "kube-prometheus-stack", "repositoryOpts": {"repo": NOBODY}, "version": "1.0.0"}
    assert place.apply("kube-prometheus-stack", **stack).not_installed
    groups = {"recording": rules.recording({"trn1.32xlarge": 21.5}), "alerts": rules.alerts(AlertSettings(), "dev")}
    made = [(each.kind, each.name, each.spec()) for each in scraping.SCRAPES]
    made += [("PrometheusRule", name, {"groups": each}) for name, each in groups.items()]
    for kind, name, spec in made:
        metadata = {"name": name, "namespace": place.namespace}
        manifest = {"apiVersion": scraping.API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
        place.api.apply(manifest)
        with pytest.raises(ApiError, match="misspelt"):
            place.api.apply({**manifest, "spec": {**spec, "misspelt": True}})


def test_placeholders_go_with_their_release(place: Place) -> None:
    place.apply("volcano", name="volcano", repositoryOpts={"repo": NOBODY}, version="1.0.0")
    assert place.api.get(QUEUES) is not None
    place.releases().delete("volcano", place.namespace)
    assert place.api.get(QUEUES) is None


# --- Webhooks -----------------------------------------------------------------------------------------------------


def test_a_webhook_without_a_process_stops_nobody_and_is_told(place: Place) -> None:
    hook = WEBHOOK.replace("ANNOTATIONS", "{helm.sh/hook: post-install}")
    write_chart(
        place.root / "thing",
        it=CONFIG_MAP,
        plain=WEBHOOK.replace("NAME", "plain").replace("ANNOTATIONS", "{}"),
        hook=hook.replace("NAME", "hook"),
        service=API_SERVICE,
    )
    applied = place.apply()
    left_out = f"APIService v1.nobody.example.com, ValidatingWebhookConfiguration {place.namespace}-plain"
    assert f"r: 2 left out, because simulated pods cannot answer: {left_out}" in applied.notes
    assert any(
        f"deleted, because simulated pods cannot answer: ValidatingWebhookConfiguration {place.namespace}-hook" in note
        for note in applied.notes
    )
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": place.namespace}}
    until(lambda: _accepts(place.api, secret))
    again = place.apply()
    assert again.change is Change.SAME
    assert any(left_out in note for note in again.notes)


def _accepts(api: Api, manifest: Mapping[str, Any]) -> bool:
    try:
        api.apply(manifest)
    except ClusterError:
        return False
    return True


# --- Volcano ------------------------------------------------------------------------------------------------------

ADMISSION = """
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: volcano-admission}
    spec:
      selector: {matchLabels: {app: admission}}
      template:
        metadata: {labels: {app: admission}}
        spec:
          nodeSelector: {for: "{{ .Values.node }}"}
          containers: [{name: main, image: x, args: [-I, -S, "-cimport time; time.sleep(3600)"]}]
"""


def test_volcanos_processes_go_on_and_no_webhook_outlives_its_process(place: Place) -> None:
    """Played by Python, in a chart that is missing the second time."""
    programs = place.root / "bin"
    programs.mkdir()
    for name in DEPLOYMENTS:
        (programs / name).symlink_to(Path(sys.executable).resolve())
    volcano = Programs({name: programs / name for name in DEPLOYMENTS})

    def running() -> list[str]:
        return list(running_pids())

    def running_pids() -> dict[str, int]:
        return {each.name: each.pid for each in processes.running(place.paths) if each.name in DEPLOYMENTS}

    webhook = WEBHOOK.replace("NAME", "it").replace("ANNOTATIONS", "{}")
    webhook = webhook.replace("service: {name: nobody", "service: {name: volcano-admission-service")
    write_chart(place.root / "charts" / "volcano", queue=QUEUE_DEFINITION, admission=ADMISSION, webhook=webhook)
    inputs = {"name": "volcano", "repositoryOpts": {"repo": NOBODY}, "version": "1.0.0"}
    configuration = ObjectReference(
        "admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "", f"{place.namespace}-it"
    )
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": place.namespace}}

    place.apply("volcano", environment={"TRN_CHARTS": str(place.root / "charts")}, volcano=volcano, **inputs)
    assert running() == ["vc-webhook-manager"]
    assert place.api.get(configuration)
    before = running_pids()
    kept = place.apply("volcano", volcano=volcano, **inputs)
    assert any("runs for real" in note for note in kept.notes)
    assert running_pids() == before
    assert place.api.get(configuration)

    gone = place.apply("volcano", volcano=Programs(missing="there is none"), **inputs)
    assert any(f"deleted, because simulated pods cannot answer: {configuration.kind}" in note for note in gone.notes)
    assert "volcano: Volcano's pods are simulated, and nothing schedules its jobs: there is none" in gone.notes
    assert running() == []
    until(lambda: _accepts(place.api, secret))

    place.apply("volcano", volcano=volcano, **inputs)
    assert running() == ["vc-webhook-manager"]
    assert place.api.get(configuration)


def test_volcanos_processes_start_a_gang_in_a_queue_and_end_with_the_release(
    place: Place, volcano_programs: Mapping[str, Path]
) -> None:
    """With the real programs and the real chart, where a machine has them."""
    volcano = Programs(volcano_programs)
    inputs = {
        "name": "volcano",
        "repositoryOpts": {"repo": CHARTS["volcano"].repository},
        "version": CHARTS["volcano"].version,
        "values": volcano_values(VolcanoStackArgs()),
    }
    environment = {"TRN_CHARTS": os.environ.get("TRN_CHARTS", ""), "TRN_VOLCANO": ""}
    applied = place.apply("volcano", environment=environment, volcano=volcano, **inputs)
    if applied.not_installed:
        pytest.skip(applied.not_installed)
    assert any("runs for real (started" in note for note in applied.notes)
    place.api.apply(queue(weight=1, reclaimable=True))
    with pytest.raises(ApiError, match="validatequeue"):
        place.api.apply(queue(weight=1, parent="nowhere"))
    pod = {
        "restartPolicy": "Never",
        "nodeSelector": {"for": place.namespace},
        "containers": [{"name": "c", "image": "x"}],
    }
    task = {"name": "w", "replicas": 2, "template": {"spec": pod}}
    job = ObjectReference("batch.volcano.sh/v1alpha1", "Job", place.namespace, "gang")
    metadata = {"name": "gang", "namespace": place.namespace}
    spec = {"queue": "q", "minAvailable": 2, "schedulerName": "volcano", "tasks": [task]}
    place.api.apply({"apiVersion": job.api_version, "kind": "Job", "metadata": metadata, "spec": spec})
    until(lambda: ((place.api.get(job) or {}).get("status") or {}).get("running") == 2, lambda: place.api.get(job))

    scheduler = next(each for each in processes.running(place.paths) if each.name == "vc-scheduler")
    os.kill(scheduler.pid, signal.SIGKILL)
    until(lambda: scheduler.pid not in {each.pid for each in processes.running(place.paths)}, "it ends")
    again = place.apply("volcano", environment=environment, volcano=volcano, **inputs)
    assert again.change is Change.SAME
    assert any("(started vc-scheduler)" in note for note in again.notes)
    place.releases().delete("volcano", place.namespace)
    assert not [each.name for each in processes.running(place.paths) if each.name in DEPLOYMENTS]
