"""Pods with local images on a real control plane: they run, and are shown as a kubelet would show them."""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import psutil
import pytest

from trainium_eks.local.nodes.simulated import Nodes, pool_of
from trainium_eks.local.objects.api import Api, ApiError
from trainium_eks.local.paths import Paths
from trainium_eks.model.instances import CATALOGUE

WITHIN_SECONDS = 40.0
Body = dict[str, Any]
Spec = Mapping[str, Any]


class Pods:
    """Makes pods in a namespace and looks at them."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace
        self._path = f"/api/v1/namespaces/{namespace}/pods"

    def make(self, script: str | None = None, name: str = "", spec: Spec | None = None, **container: Any) -> str:
        """A pod of one container, which runs a line of shell; its name."""
        name = name or f"pod-{uuid.uuid4().hex[:8]}"
        first = {"name": "c", "image": "local/python", **({"command": ["sh", "-c", script]} if script else {})}
        whole = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 2,
            "containers": [{**first, **container}],
            **(spec or {}),
        }
        metadata = {"name": name, "namespace": self.namespace, "labels": {"app": name}}
        self.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": whole})
        return name

    def get(self, name: str) -> Body | None:
        try:
            return self.api.request("GET", f"{self._path}/{name}")
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    def when(self, name: str, is_so: Callable[[Body], object]) -> Body:
        """The pod, once it is so."""
        deadline = time.monotonic() + WITHIN_SECONDS
        while True:
            pod = self.get(name)
            assert pod is not None, f"{name} is gone"
            if is_so(pod):
                return pod
            assert time.monotonic() < deadline, pod["status"]
            time.sleep(0.05)

    def running(self, name: str) -> Body:
        return self.when(name, lambda pod: phase(pod) == "Running" and "running" in state(pod))

    def ended(self, name: str) -> Body:
        return self.when(name, lambda pod: phase(pod) in ("Succeeded", "Failed"))

    def gone(self, name: str) -> float:
        """Waits until it is; how long that took."""
        begun = time.monotonic()
        while self.get(name) is not None:
            assert time.monotonic() < begun + WITHIN_SECONDS
            time.sleep(0.05)
        return time.monotonic() - begun

    def log(self, name: str, **query: str) -> str:
        return self.api.text("GET", f"{self._path}/{name}/log", query=query)

    def said(self, name: str, text: str) -> str:
        """The log, once the text is in it."""
        deadline = time.monotonic() + WITHIN_SECONDS
        while True:
            try:
                log = self.log(name)
            except ApiError:
                log = ""
            if text in log:
                return log
            assert time.monotonic() < deadline, log
            time.sleep(0.05)

    def delete(self, name: str, **options: Any) -> None:
        self.api.request("DELETE", f"{self._path}/{name}", {"apiVersion": "v1", "kind": "DeleteOptions", **options})

    def outcome(self, script: str | None = None, **given: Any) -> str:
        """What a pod says that ends well."""
        name = self.make(script, **given)
        pod = self.ended(name)
        log = self.log(name)
        assert phase(pod) == "Succeeded", (log, pod["status"])
        return log


def phase(pod: Body) -> str:
    return str((pod.get("status") or {}).get("phase"))


def status(pod: Body, container: int = 0) -> Body:
    found: list[Body] = (pod.get("status") or {}).get("containerStatuses") or [{}]
    return found[container]


def state(pod: Body, container: int = 0) -> Body:
    return status(pod, container).get("state") or {}


def condition(pod: Body, kind: str) -> str:
    return next(each["status"] for each in pod["status"]["conditions"] if each["type"] == kind)


def processes_of(paths: Paths, uid: str) -> list[psutil.Process]:
    """What runs of a pod."""
    found = []
    for process in psutil.process_iter():
        try:
            if f"{paths.pods}/{uid}" in (*process.cmdline(), process.environ().get("TRN_POD_DIRECTORY", "")):
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.fixture(scope="module")
def node(api: Api) -> Iterator[str]:
    """Two CPU nodes; the label by which pods come to them."""
    key = f"cpu-{uuid.uuid4().hex[:8]}"
    inputs = {
        "instanceTypes": ["m7i.4xlarge"],
        "version": "1.35",
        "subnetIds": ["s"],
        "scalingConfig": {"minSize": 0, "maxSize": 4, "desiredSize": 2},
    }
    pool = pool_of(inputs, {"nodeGroupName": key}, zones={"s": "usw2-az4"}, region="us-west-2", catalogue=CATALOGUE)
    nodes = Nodes(api, drivers=[])
    nodes.apply(pool, 60)
    yield key
    nodes.delete(key)


@pytest.fixture
def pods(api: Api, namespace: str, node: str) -> Pods:
    deadline = time.monotonic() + WITHIN_SECONDS
    while True:
        try:
            api.request("GET", f"/api/v1/namespaces/{namespace}/serviceaccounts/default")
            return Pods(api, namespace)
        except ApiError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_pod_runs_and_ends_with_its_exit_code(pods: Pods) -> None:
    name = pods.make("echo hello; sleep 0.3; echo bye >&2; exit 3")
    pod = pods.ended(name)
    assert (phase(pod), state(pod)["terminated"]["exitCode"]) == ("Failed", 3)
    assert state(pod)["terminated"]["reason"] == "Error"
    assert pods.log(name) == "hello\nbye\n"
    assert pod["status"]["podIP"].startswith("100.127.")
    assert pod["status"]["qosClass"]
    assert condition(pod, "Ready") == "False"


def test_other_pods_stay_simulated(pods: Pods) -> None:
    name = pods.make("exit 3", image="example.com/none")
    assert phase(pods.running(name)) == "Running"
    assert pods.log(name) == "This pod is simulated: no container runs, so there is no output.\n"
    mixed = pods.make("exit 3", spec={"initContainers": [{"name": "i", "image": "example.com/none"}]})
    pods.running(mixed)
    pods.delete(name)
    pods.gone(name)


def test_a_log_is_followed_to_its_end(pods: Pods) -> None:
    name = pods.make("for i in 1 2 3 4; do echo $i; sleep 0.4; done")
    pods.running(name)
    begun = time.monotonic()
    lines = list(pods.api.lines(f"/api/v1/namespaces/{pods.namespace}/pods/{name}/log", query={"follow": "true"}))
    assert lines == ["1", "2", "3", "4"]
    assert time.monotonic() - begun < 10


def test_what_is_asked_of_a_log_is_given(pods: Pods) -> None:
    name = pods.make("echo one; echo two; sleep 1.2; echo three; printf four")
    pods.ended(name)
    assert pods.log(name, tailLines="2") == "three\nfour"
    assert pods.log(name, tailLines="0") == ""
    assert pods.log(name, limitBytes="5") == "one\nt"
    stamped = pods.log(name, timestamps="true").splitlines()
    assert [line.split()[1] for line in stamped] == ["one", "two", "three", "four"]
    assert pods.log(name, sinceTime=stamped[2].split()[0]) == "three\nfour"
    with pytest.raises(ApiError, match="previous terminated container"):
        pods.log(name, previous="true")


def test_a_container_is_restarted_and_what_it_said_before_can_be_read(pods: Pods) -> None:
    spec = {"restartPolicy": "OnFailure", "volumes": [{"name": "v", "emptyDir": {}}]}
    mount = [{"name": "v", "mountPath": "/data"}]
    name = pods.make(
        "cd /data; [ -e x ] && echo second && exit 0; touch x; echo first; exit 1", spec=spec, volumeMounts=mount
    )
    pod = pods.ended(name)
    assert (phase(pod), status(pod)["restartCount"]) == ("Succeeded", 1)
    assert status(pod)["lastState"]["terminated"]["exitCode"] == 1
    assert pods.log(name) == "second\n"
    assert pods.log(name, previous="true") == "first\n"


def test_a_container_that_ends_again_and_again_waits_longer_each_time(pods: Pods) -> None:
    name = pods.make("exit 1", spec={"restartPolicy": "Always"})
    pod = pods.when(name, lambda pod: (state(pod).get("waiting") or {}).get("reason") == "CrashLoopBackOff")
    assert (phase(pod), status(pod)["restartCount"]) == ("Running", 2)
    assert "back-off 10s" in state(pod)["waiting"]["message"]


def test_a_command_that_is_not_there_is_a_start_error(pods: Pods) -> None:
    pod = pods.ended(pods.make(command=["no-such-command"]))
    ended = state(pod)["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("StartError", 128)
    assert 'exec: "no-such-command": executable file not found in $PATH' in ended["message"]


def test_a_missing_image_is_named_with_what_makes_it(pods: Pods) -> None:
    name = pods.make("true", image="local/none-such")
    pod = pods.when(name, lambda pod: (state(pod).get("waiting") or {}).get("reason") == "ErrImageNeverPull")
    assert "trn local images make none-such" in state(pod)["waiting"]["message"]
    assert phase(pod) == "Pending"
    pods.delete(name)
    assert pods.gone(name) < 5


def test_a_pod_waits_for_what_it_names(pods: Pods) -> None:
    env = [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "later", "key": "a"}}}]
    name = pods.make('echo "$A"', env=env)
    pod = pods.when(name, lambda pod: (state(pod).get("waiting") or {}).get("reason") == "CreateContainerConfigError")
    assert state(pod)["waiting"]["message"] == 'configmap "later" not found'
    metadata = {"name": "later", "namespace": pods.namespace}
    pods.api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "now"}})
    pods.ended(name)
    assert pods.log(name) == "now\n"


def test_sigterm_comes_first_and_sigkill_after_the_grace_period(pods: Pods, paths: Paths) -> None:
    gentle = pods.make("trap 'echo asked; sleep 0.3; echo done; exit 0' TERM; echo ready; while :; do sleep 0.1; done")
    deaf = pods.make("trap '' TERM; echo ready; while :; do sleep 0.1; done")
    follow = pods.api.lines(f"/api/v1/namespaces/{pods.namespace}/pods/{gentle}/log", query={"follow": "true"})
    pods.said(gentle, "ready")
    pods.said(deaf, "ready")
    uid = (pods.get(deaf) or {})["metadata"]["uid"]
    pods.delete(gentle)
    assert list(follow) == ["ready", "asked", "done"]
    assert pods.gone(gentle) < 2
    pods.delete(deaf)
    assert pods.gone(deaf) > 1.5
    assert processes_of(paths, uid) == []


def test_a_pod_that_is_deleted_by_force_ends_at_once(pods: Pods, paths: Paths) -> None:
    name = pods.make("trap '' TERM; while :; do sleep 0.1; done", spec={"terminationGracePeriodSeconds": 60})
    uid = pods.running(name)["metadata"]["uid"]
    assert processes_of(paths, uid)
    pods.delete(name, gracePeriodSeconds=0)
    pods.gone(name)
    deadline = time.monotonic() + 10
    while processes_of(paths, uid) or (paths.pods / uid).exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
