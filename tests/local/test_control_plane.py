"""A real control plane: started, killed, stopped and started again."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys

import psutil
import pytest
from local_project import ROOT
from manifests import live, manifest, pod_spec, simulated_node
from running_pods import may
from waiting import until

from trainium_eks.kube.api import Api
from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.control_plane import credentials, processes
from trainium_eks.local.control_plane.control_plane import ControlPlane
from trainium_eks.local.control_plane.flags import PORTS
from trainium_eks.local.control_plane.loopback import Loopback
from trainium_eks.local.control_plane.ports import Settings
from trainium_eks.local.control_plane.programs import NETWORK
from trainium_eks.local.paths import Paths
from trainium_eks.local.toolchain.tools import CONTROL_PLANE
from trainium_eks.model.catalogue.versions import KUBERNETES

pytestmark = pytest.mark.slow

ALL = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "trn-pod-agent")
SECONDS = 600
"""A process that starts it ends within, however busy the machine is."""
STOPPED = [*reversed(ALL)]

START = """
import json, sys
from pathlib import Path
from trainium_eks.local.control_plane.control_plane import ControlPlane
from trainium_eks.local.paths import Paths
binaries = {name: Path(path) for name, path in json.loads(sys.argv[2]).items()}
ControlPlane(Paths(Path(sys.argv[1])), binaries).start(lambda line: print(line, flush=True))
"""


@pytest.fixture
def own(tmp_path):
    paths = Paths.of(tmp_path, "own")
    yield paths
    processes.stop(paths, timeout_seconds=2)


@pytest.fixture(scope="module")
def ran(tmp_path_factory, binaries):
    """State of a control plane that runs, of which tests kill processes, and in which something is kept."""
    paths = Paths.of(tmp_path_factory.mktemp("ran"), "ran")
    ControlPlane(paths, binaries).start()
    Api.connect(paths.kubeconfig).create(KEPT)
    yield paths
    processes.stop(paths, timeout_seconds=2)


def start_elsewhere(paths, binaries, prelude=""):
    names = json.dumps({name: str(path) for name, path in binaries.items()})
    command = [sys.executable, "-c", prelude + START, str(paths.root), names]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def pids(paths):
    """Of the control plane. The pods' network is held only where the machine allows it."""
    return {each.name: each.pid for each in processes.running(paths) if each.name != NETWORK}


def stopped(plane):
    return [name for name in plane.stop() if name != NETWORK]


def answers(paths):
    ready = Loopback(paths, Settings.load(paths).ports["kube-apiserver"]).has("/readyz")
    return ready and {*pids(paths)} == {*ALL}


def remove(root):
    until(lambda: shutil.rmtree(root, ignore_errors=True) or not root.exists())


KEPT = manifest("ConfigMap", "kept", "default")
NEURON = {"aws.amazon.com/neuron": "1"}


def devices(name):
    taint = {"key": "aws.amazon.com/neuron", "effect": "NoSchedule"}
    return simulated_node(name, [taint], **{"aws.amazon.com/neuron": "16"})


def training_pod(name, namespace, where, metadata=None, **spec):
    spec = pod_spec("example", NEURON, nodeSelector={"for": where}, **spec)
    return manifest("Pod", name, namespace, metadata=metadata, spec=spec)


def until_so(api, wanted, kind="Ready"):

    def conditions():
        return {each["type"]: each["status"] for each in live(api, wanted)["status"].get("conditions") or ()}

    until(lambda: conditions().get(kind) == "True", conditions)
    return live(api, wanted)


@pytest.fixture
def trainium_node(api):
    made = devices(f"trn-{os.urandom(4).hex()}")
    api.create(made)
    yield made["metadata"]["name"]
    api.delete(api.reference(made))


def test_only_loopback_is_listened_on_and_files_belong_to_their_owner(control_plane, paths):
    found = [psutil.Process(each.pid).net_connections("tcp") for each in processes.running(paths)]
    listening = [each.laddr for those in found for each in those if each.status == psutil.CONN_LISTEN]
    assert {each.ip for each in listening} == {"127.0.0.1"}
    assert {each.port for each in listening} == {Settings.load(paths).ports[name] for name in PORTS}
    until(lambda: _etcd_answers(paths, "etcd-client"), "etcd is well")
    assert not _etcd_answers(paths, "kube-scheduler")
    files = (paths.root, paths.kubeconfig, paths.logs / "etcd.log")
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o700, 0o600, 0o600]


def _etcd_answers(paths, client):
    context = ssl.create_default_context(cafile=str(credentials.certificate(paths, "etcd-ca")))
    context.load_cert_chain(credentials.certificate(paths, client), credentials.key(paths, client))
    port = Settings.load(paths).ports["etcd"]
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=120, context=context)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except TimeoutError:
        raise  # that is no refusal
    except OSError:
        return False
    finally:
        connection.close()


def test_pod_with_a_device_tolerates_its_taint_runs_and_is_deleted(api, namespace, trainium_node):
    """ExtendedResourceToleration, which EKS has and upstream's defaults do not."""
    assert not may(api, "somebody", namespace, "list", "pods"), "users without a role may do nothing"
    inits = [{"name": "once", "image": "example"}, {"name": "aside", "image": "example", "restartPolicy": "Always"}]
    made = training_pod("p", namespace, trainium_node, {"finalizers": ["example.com/held"]}, initContainers=inits)
    api.create(made)
    pod = until_so(api, made)
    assert pod["status"]["phase"] == "Running"
    assert pod["spec"]["nodeName"] == trainium_node
    assert [list(each["state"]) for each in pod["status"]["initContainerStatuses"]] == [["terminated"], ["running"]]
    api.delete(api.reference(made))
    until(lambda: not live(api, made))


def test_job_pods_succeed_and_other_pods_keep_running(api, namespace, trainium_node):
    """Volcano's is called Job, too. Here it is of an API group that is not served: of one that is served, Kubernetes
    would look for the owner, and collect the pod as garbage."""
    owner = {"apiVersion": "batch.example.com/v1alpha1", "kind": "Job", "name": "train", "uid": "1", "controller": True}
    trainer = training_pod("trainer-0", namespace, trainium_node, {"ownerReferences": [owner]})
    api.create(trainer)
    until_so(api, trainer)
    template = {"spec": training_pod("", "", trainium_node, restartPolicy="Never")["spec"]}
    job = manifest("Job", "j", namespace, spec={"completions": 2, "parallelism": 2, "template": template})
    api.create(job)
    assert until_so(api, job, "Complete")["status"]["succeeded"] == 2
    assert live(api, trainer)["status"]["phase"] == "Running"


def test_control_plane_starts_restarts_and_is_deleted(own, binaries):
    """Start; kill processes; stop; find a port taken; start again with what was stored; leave nothing."""
    plane = ControlPlane(own, binaries, service_range="172.20.0.0/16")
    first = plane.start()
    assert first.started == ALL
    api = Api.connect(own.kubeconfig)
    assert live(api, manifest("Service", "kubernetes", "default"))["spec"]["clusterIP"] == "172.20.0.1"
    before = pids(own)
    again = plane.start()
    assert (again.started, again.server) == ((), first.server)
    assert pids(own) == before
    for asked, said in (
        ({"service_range": "10.100.0.0/16"}, r"range is 172\.20\.0\.0/16, and the program asks for 10\.100\.0\.0/16"),
        ({"service_range": "172.20.0.0/16", "kubernetes_minor": "1.36"}, "1.35, and the program asks for 1.36"),
    ):
        with pytest.raises(ClusterError, match=f"{said}: .*`trn local down` removes it"):
            ControlPlane(own, binaries, **asked).start()
    assert pids(own) == before
    api.create(KEPT)

    for name in ("etcd", "kube-apiserver", "kube-scheduler"):  # the others go the last one's way
        before = pids(own)
        os.kill(before[name], signal.SIGKILL)
        until(lambda name=name: name not in pids(own))
        again = plane.start()
        assert again.started == (name,)
        assert again.server == first.server
        after = pids(own)
        assert after.pop(name) != before.pop(name)
        assert after == before
    until(lambda: answers(own))
    assert live(api, KEPT)

    assert stopped(plane) == STOPPED
    assert pids(own) == {}
    assert plane.stop() == []

    port = Settings.load(own).ports["kube-apiserver"]
    with socket.create_server(("127.0.0.1", port)):
        said = rf"Port {port} of kube-apiserver is in use by \S+ \(process {os.getpid()}\)"
        with pytest.raises(ClusterError, match=said):
            plane.start()
        assert pids(own) == {}
    assert plane.start().server == first.server
    assert live(Api.connect(own.kubeconfig), KEPT)

    remove(own.root)
    assert stopped(plane) == STOPPED


def test_killed_kwok_is_restarted_at_once(ran, binaries):
    """kwok holds nodes by leases of 160 s, which one that was killed does not give back."""
    api = Api.connect(ran.kubeconfig)
    api.create(devices("n"))
    until_so(api, devices("n"))
    lease = manifest("Lease", "n", "kube-node-lease", api_version="coordination.k8s.io/v1")
    held = live(api, lease)["metadata"]["uid"]
    os.kill(pids(ran)["kwok"], signal.SIGKILL)
    until(lambda: "kwok" not in pids(ran))
    ControlPlane(ran, binaries).start()
    pod = training_pod("p", "default", "n")
    api.create(pod)
    until_so(api, pod)
    # One that had waited for its end would have gone on with the same lease.
    assert live(api, lease)["metadata"]["uid"] != held


@pytest.mark.parametrize("spawned", [1, 4])
def test_killed_start_is_completed_by_the_next(own, binaries, spawned):
    """Killed right after so many processes were started."""
    prelude = (
        "import os\n"
        "from trainium_eks.local.control_plane import processes\n"
        f"left, spawn = [{spawned}], processes.start\n"
        "def killing(*arguments):\n"
        "    if not left[0]: os.kill(os.getpid(), 9)\n"
        "    running = spawn(*arguments)\n"
        "    left[0] -= 1\n"
        "    if not left[0]: os.kill(os.getpid(), 9)\n"
        "    return running\n"
        "processes.start = killing\n"
    )
    with start_elsewhere(own, binaries, prelude) as killed:
        assert killed.wait(SECONDS) == -signal.SIGKILL
    assert len(pids(own)) == spawned
    plane = ControlPlane(own, binaries)
    assert len(plane.start().started) == len(ALL) - spawned
    until(lambda: answers(own))


def test_half_made_etcd_data_is_replaced_and_foreign_data_is_kept(own, binaries):
    (own.etcd / "member" / "wal").mkdir(parents=True)
    (own.etcd / "member" / "wal" / "0000000000000000-0000000000000000.wal").write_bytes(b"cut off")
    plane = ControlPlane(own, binaries)
    plane.start()
    plane.stop()
    data = own.etcd / "member" / "snap" / "db"
    data.write_bytes(b"\xff" * 65536)
    with pytest.raises(ClusterError, match=r"etcd ended while starting \(.*\)\. The end of .*etcd\.log:\n") as failure:
        plane.start()
    assert "`trn local down` removes it" in str(failure.value)
    assert data.read_bytes() == b"\xff" * 65536
    assert pids(own) == {}


def test_lost_certificates_and_state_directory_are_recreated(own, binaries):
    plane = ControlPlane(own, binaries)
    plane.start()
    api = Api.connect(own.kubeconfig)
    api.create(KEPT)
    (own.pki / "ca.key").write_text("")
    assert plane.start().started == ALL
    assert live(Api.connect(own.kubeconfig), KEPT)

    before = set(pids(own).values())
    remove(own.root)
    assert plane.start().started == ALL
    running = pids(own)
    assert len(running) == len(ALL)
    assert not before & set(running.values())


@pytest.mark.parametrize(
    ("instead", "minor", "said"),
    [
        ({"kube-apiserver": "kube-scheduler"}, KUBERNETES, "kube-apiserver ended while starting"),
        ({"kube-controller-manager": "kube-scheduler"}, KUBERNETES, "kube-controller-manager ended while starting"),
        ({}, "1.36", r"is Kubernetes v1\.35\.\d+, and the stack asks for 1\.36"),
    ],
    ids=["no API server", "no controller manager", "another version"],
)
def test_failed_start_names_the_program_and_leaves_no_process(own, binaries, tmp_path, instead, minor, said):
    """A program under another's name knows none of its flags."""
    links = {name: tmp_path / name for name in CONTROL_PLANE}
    for name, link in links.items():
        link.symlink_to(binaries[instead.get(name, name)])
    with pytest.raises(ClusterError, match=said):
        ControlPlane(own, {**binaries, **links}, kubernetes_minor=minor).start()
    assert pids(own) == {}


def test_missing_program_is_named_before_anything_starts(own, binaries, tmp_path):
    with pytest.raises(ClusterError, match=f"kwok cannot be started: there is no file {tmp_path}/none"):
        ControlPlane(own, {**binaries, "kwok": tmp_path / "none"}).start()
    assert not own.root.exists()


def test_full_disk_is_reported_with_etcds_log_or_the_certificates_path(own, binaries):
    """A limit on files' size fails as a full disk does, and for root, too: etcd asks for 64 MB in advance."""

    def start_with_full_disk(most):
        limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, {most}))\n"
        with start_elsewhere(own, binaries, limit) as limited:
            _, said = limited.communicate(timeout=SECONDS)
        assert limited.returncode == 1
        assert pids(own) == {}
        return said

    assert re.search(r"LocalCloudError: .*cannot be written: .*/pki.*: File too large", start_with_full_disk(0))
    assert re.search(r"(?s)LocalCloudError: etcd ended while starting.*etcd\.log:", start_with_full_disk(1 << 20))
    assert ControlPlane(own, binaries).start().started == ALL  # space was freed
