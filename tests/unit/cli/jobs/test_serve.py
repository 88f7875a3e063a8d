"""``trn serve`` and ``trn predict`` as they are typed, on an API server that only remembers."""

import json
from pathlib import Path

import pytest
from cluster_snapshots import GPU, NEURON, group, outputs
from outcome import ends
from remembering_api import IMAGE, NOW, RememberingApi, document, take_seat, trn
from training_jobs import job

from trainium_eks.cli.jobs import serve
from trainium_eks.client.cluster_access import StackAccess
from trainium_eks.diagnose.local_report import LocalReport
from trainium_eks.jobs.objects import volcano_job
from trainium_eks.jobs.objects.identity import JOB_API
from trainium_eks.local.images import images
from trainium_eks.local.images.images import LocalImage
from trainium_eks.local.paths import Paths
from trainium_eks.model.catalogue import versions

STACK = outputs(
    nodeGroups=[
        group("inf", NEURON, 0, 1, instanceType="inf2.xlarge"),
        group("ng1", NEURON, 8, 2),
        group("gpu", GPU, 4, 1),
    ]
)


class Cluster(RememberingApi):
    """Its Deployments have the configured readiness, and its Jobs end at once."""

    def __init__(self):
        super().__init__()
        self.log = '{"predict": "complete", "rows": 3}\n'
        self.is_ready()
        self.job_ends("Complete")

    def is_ready(self, pods=1):
        counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
        self.statuses["Deployment"] = {"observedGeneration": 1, **dict.fromkeys(counts, pods)}

    def job_ends(self, kind):
        self.statuses["Job"] = {"conditions": [{"type": kind, "status": "True", "lastTransitionTime": NOW}]}


def pod(**container):
    status = {"phase": "Running", "containerStatuses": [{"name": "model", "restartCount": 0, **container}]}
    metadata = {"name": "p", "uid": "p", "namespace": "training", "creationTimestamp": NOW}
    return {"metadata": metadata, "status": status}


@pytest.fixture(autouse=True)
def _installed(monkeypatch):
    monkeypatch.setattr("trainium_eks.client.failure.shutil.which", lambda name: f"/bin/{name}")


@pytest.fixture
def cluster(monkeypatch):
    """A deployed stack's; ECR holds one image."""
    made = Cluster()
    take_seat(monkeypatch, StackAccess("dev", STACK), made)
    monkeypatch.setattr(serve, "LOOK_SECONDS", 0)
    return made


def test_serve_refuses_a_name_with_a_foreign_service(cluster):
    cluster.served.add(JOB_API)
    held = volcano_job.manifest(job(name="serve-polarity-1"))
    cluster.create(held)
    ends(2, trn("serve polarity-1"), "another object (Job serve-polarity-1) has a Service of this name")
    owner = {"apiVersion": JOB_API, "kind": "Job", "name": "gang", "uid": "g"}
    about = {"name": "chat", "namespace": "training", "ownerReferences": [owner]}
    cluster.create({"apiVersion": "v1", "kind": "Service", "metadata": about})
    ends(2, trn("serve polarity-1 --name chat"), "another object (Job gang) has a Service of this name")
    assert [each["kind"] for each in cluster.objects] == ["Job", "Service"]


def test_one_command_makes_a_deployment_and_its_service(cluster):
    cluster.is_ready(2)
    said = trn("serve polarity-1 --replicas 2").stdout
    [deployment, service] = cluster.objects
    assert (deployment["kind"], service["kind"]) == ("Deployment", "Service")
    assert deployment["spec"]["replicas"] == 2
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert (container["image"], container["args"][0]) == (IMAGE, "/data/output/polarity-1/model")
    # It is deleted with the Deployment, by its owner reference.
    assert service["metadata"]["ownerReferences"][0]["uid"] == deployment["metadata"]["uid"]
    for line in (
        "answers in the namespace at http://serve-polarity-1.training.svc:8080\n",
        "kubectl port-forward service/serve-polarity-1 8080",
        """curl --json '{"texts": ["…"]}' http://127.0.0.1:8080/predict""",
        '"model": "serve-polarity-1", "messages": [',
    ):
        assert line in said


def test_vllm_uses_its_public_image_and_warns_of_an_empty_group(cluster):
    for options, image in (("", versions.IMAGES["vllm"]), (f" --image {IMAGE}", IMAGE)):
        deployment, _ = document(f"serve one --engine vllm --group gpu --dry-run{options}")["items"]
        assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == image
    assert cluster.objects == []
    assert "/predict" not in trn("serve one --engine vllm --group gpu").stdout
    assert "no nodes" not in trn("serve one --group inf").stderr
    cluster.nodes = 0
    for command in ("serve two --group inf --no-wait", "predict one a.csv --to b.csv --group inf --no-follow"):
        assert "inf has no nodes, and its pods wait until it has: trn scale inf 1" in trn(command).stderr
    assert "no nodes" not in trn("serve three").stderr


def test_second_model_replaces_the_first(cluster):
    trn("serve one --name s --group inf")
    assert trn("serve two --name s").exit_code == 0
    (patch,) = cluster.patches
    spec = patch["spec"]["template"]["spec"]
    assert spec["containers"][0]["args"][0] == "/data/output/two/model"
    # What the first asked for is taken away: its nodes, its queue, its scheduler.
    before = dict.fromkeys(("eks.amazonaws.com/nodegroup", "node.kubernetes.io/instance-type"))
    assert spec["nodeSelector"] == {**before, "trainium-eks/pool": "cpu"}
    assert spec["schedulerName"] is None
    assert patch["spec"]["template"]["metadata"]["annotations"] == {"scheduling.volcano.sh/queue-name": None}
    assert [each["kind"] for each in cluster.objects] == ["Deployment", "Service"]


def test_foreign_deployment_is_not_changed(cluster):
    other = {"metadata": {"name": "serve-one", "namespace": "training"}, "spec": {"replicas": 1}}
    cluster.create({"apiVersion": "apps/v1", "kind": "Deployment", **other})
    theirs = "a Deployment serve-one is there, and not of trn serve: choose a --name"
    ends(2, trn("serve one"), theirs)
    assert "nothing of the name 'serve-one' is served" in trn("serve --stop serve-one").stderr
    assert cluster.patches == []
    trn("serve two --no-wait")
    assert trn("serve --stop serve-two").stdout == "serve-two is ended\n"
    assert cluster.named("Deployment", "serve-two") is None


def test_serve_reports_its_progress_and_stops_waiting_on_a_refusal(cluster):
    cluster.is_ready(0)
    ended = {"terminated": {"exitCode": 78, "message": "refused: not a model directory\n"}}
    cluster.pods = [pod(state=ended)]
    stops = "serve --stop serve-one ends it\nrefused: not a model directory"
    ends(1, trn("serve one"), "serve-one does not answer", stops)
    # Another error may pass; after some tries the wait ends.
    failed = {"terminated": {"exitCode": 1, "message": "broken"}}
    cluster.pods = [pod(state={"waiting": {"reason": "CrashLoopBackOff"}}, lastState=failed, restartCount=3)]
    assert "broken" in trn("serve one").stderr


def test_serving_takes_whole_nodes_where_the_namespace_does(monkeypatch):
    team = {"name": "training", "queues": ["test"], "serviceAccount": "t", "claim": "c", "wholeNodes": True}
    groups = [each.model_dump(by_alias=True) for each in STACK.node_groups]
    cluster = Cluster()
    take_seat(monkeypatch, StackAccess("dev", outputs(namespaces=[team], nodeGroups=groups)), cluster)
    refused = trn("serve one --group ng1 --devices 1")
    ends(2, refused, "pods of this namespace take all devices of their nodes", "set --devices to 16", "partialNodes")
    for name, devices in (("ng1", "16"), ("inf", "1")):
        trn(f"serve {name} --group {name} --no-wait")
        (container,) = cluster.named("Deployment", f"serve-{name}")["spec"]["template"]["spec"]["containers"]
        assert container["resources"]["limits"][NEURON] == devices


def test_unservable_requests_are_refused_with_all_reasons_before_creation(cluster):
    for command, words in (
        ("serve", "give a job's name"),
        ("serve one --stop two", "either a model to serve, or --stop NAME"),
        ("serve one --group ng", "no node group has this name"),
        ("serve one --engine vllm", "vLLM's public image needs GPUs"),
        ("predict one /data/a.txt --to b.csv", "the name does not say which format it is"),
        ("predict one a.csv --to b.parquet", "….jsonl, ….csv"),
    ):
        ends(2, trn(command), words)
        assert cluster.objects == []
    cluster.served.add(JOB_API)
    cluster.create(volcano_job.manifest(job(name="one")))
    ends(2, trn("serve one"), "the job one has not ended, and writes its model at its end")
    cluster.is_allowed = False
    wrong = ("may not create deployments", "not on the team's volume", "--name", "--queue", "--devices")
    ends(2, trn("serve /etc/x --name A --queue q --devices 9"), *wrong)


def test_local_serve_checks_the_model_and_the_image(monkeypatch, tmp_path):
    api, paths = Cluster(), Paths.of(tmp_path, "local")
    take_seat(monkeypatch, StackAccess("local", STACK, LocalReport(), paths), api)
    plain = LocalImage("python", "0" * 12, Path("/nowhere"), has_torch=False)
    monkeypatch.setattr(images, "find", {"python": plain}.get)
    ends(2, trn("serve one"), "a model needs an image with PyTorch", "there is no model at /data/output/one/model")
    model = paths.claims / "training" / "fsx-claim" / "output" / "one" / "model"
    model.mkdir(parents=True)
    (model / "adapter_config.json").touch()
    torch = LocalImage("torch", "0" * 12, Path("/nowhere"), has_torch=True)
    monkeypatch.setattr(images, "find", {"torch": torch}.get)
    ends(0, trn("serve one --group ng1"))
    (container,) = api.objects[0]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "local/torch"
    assert container["args"][1:3] == ["--backend", "cpu"]
    assert container["resources"]["limits"]["aws.amazon.com/neuron"] == "1"


def test_prediction_is_followed_and_a_failed_one_shows_its_reason(cluster):
    cluster.pods = [pod(state={"running": {}})]
    done = trn("predict one /data/in/a.csv --to out/b.csv --field body")
    assert (done.exit_code, done.stdout) == (0, "/data/out/b.csv: 3 predictions\n"), done.stderr
    (job,) = cluster.objects
    assert job["metadata"]["name"].startswith("predict-one-")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["args"][:4] == ["/data/output/one/model", "/data/in/a.csv", "--to", "/data/out/b.csv"]
    # It was made suspended, and let run once all was there.
    assert cluster.patches == [{"spec": {"suspend": False}}]
    cluster.pods = [pod(state={"running": {}})]
    cluster.job_ends("Failed")
    cluster.log = "refused: there is no /data/in/a.csv\n"
    refused = "refused: there is no /data/in/a.csv"
    ends(1, trn("predict one in/a.csv --to b.csv"), f"/data/in/a.csv is not predicted: {refused}")
    done = trn("predict one in/a.csv --to b.csv --json")
    assert (done.exit_code, json.loads(done.stdout)["message"]) == (1, refused)


def test_prediction_can_run_without_follow(cluster):
    done = trn("predict one in/a.csv --to b.csv --no-follow --name mine")
    assert done.stdout == "Job mine in training; trn logs mine follows it\n"
    assert document("predict one in/a.csv --to b.csv --dry-run --group inf")["kind"] == "Job"
    assert len(cluster.objects) == 1
