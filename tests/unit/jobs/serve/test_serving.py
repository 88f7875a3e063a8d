"""A model that is served, and a file that is predicted: what the objects ask for, and what is refused before."""

from dataclasses import replace
from typing import get_args

import kubernetes_validate
import pytest
from cluster_snapshots import NEURON, group

from trainium_eks.jobs.objects.job import REFUSED
from trainium_eks.jobs.serve import serving, serving_refusals
from trainium_eks.jobs.serve.engines import Engine
from trainium_eks.jobs.serve.serving import Batch, ModelService, ServingNodes
from trainium_eks.local.images.images import workloads
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.model.catalogue.versions import KUBERNETES
from trainium_eks.model.outputs import NamespaceOutput, NodeGroupOutput

TEAM = NamespaceOutput(
    name="vision", queues=("eyes", "ears"), service_account="training", claim="fsx-claim", training_user_id=2001
)
GROUP = NodeGroupOutput.model_validate(group("inf", NEURON, 0, 1, instanceType="inf2.xlarge"), by_alias=True)
CPU = ServingNodes()


def on(instance_type, devices=1, *, is_local=False):
    return serving.place(GROUP, CATALOGUE[instance_type], devices, is_local=is_local)


def served(place=CPU, **changes):
    return replace(ModelService("serve-x", "output/x/model", "image", place, "eyes", 2), **changes)


def batch(place=CPU, **changes):
    return replace(Batch("predict-x", "output/x/model", "in/a.csv", "out/b.jsonl", "image", place, "eyes"), **changes)


def pod_of(manifest):
    return manifest["spec"]["template"]["spec"]


def deployment_of(place=CPU, **changes):
    return serving.objects(served(place, **changes), TEAM)[0]


def container_of(manifest):
    (found,) = pod_of(manifest)["containers"]
    return found


PLACES = {
    "cpu": CPU,
    "local": ServingNodes(is_local=True),
    "inferentia": on("inf2.xlarge"),
    "trainium": on("trn1.32xlarge", 2),
    "trainium2": on("trn2.48xlarge"),
    "gpu": on("p4d.24xlarge"),
    "local devices": on("trn1.32xlarge", is_local=True),
}


@pytest.mark.parametrize("name", PLACES)
def test_the_objects_are_valid_and_the_programs_know_their_arguments(name):
    """Without PyTorch their parsers cannot run here: their sources must name each option."""
    package = workloads() / "trainium_workloads" / "serving"
    known = "".join((package / f"{each}.py").read_text() for each in ("server", "batch", "served_model"))
    job = serving.job(batch(PLACES[name], field="body", replace=True), TEAM)
    deployments = {each: serving.objects(served(PLACES[name], engine=each), TEAM) for each in get_args(Engine)}
    for each in (job, *(made for both in deployments.values() for made in both)):
        kubernetes_validate.validate(each, KUBERNETES, strict=True)
    for each in (job, *(made for engine, (made, _) in deployments.items() if engine != "vllm")):
        module = container_of(each)["command"][-1].rpartition(".")[2]
        assert (package / f"{module}.py").is_file()
        assert all(f'"{word}"' in known for word in container_of(each)["args"] if word.startswith("--"))


def test_each_type_and_engine_has_its_own_program():
    found = {name: (each.backend, each.devices, each.resource, each.copies) for name, each in PLACES.items()}
    assert found == {
        "cpu": ("cpu", 0, "", 1),
        "local": ("cpu", 0, "", 1),
        # A core a copy: Inferentia2 and Trainium have two in a device.
        "inferentia": ("xla", 1, "aws.amazon.com/neuron", 2),
        "trainium": ("xla", 2, "aws.amazon.com/neuron", 4),
        "trainium2": ("neuron", 1, "aws.amazon.com/neuron", 1),
        "gpu": ("cuda", 1, "nvidia.com/gpu", 1),
        "local devices": ("cpu", 1, "aws.amazon.com/neuron", 1),
    }
    for made, command, arguments in (
        (deployment_of(engine="transformers"), SERVER, ON_CPUS),
        (deployment_of(PLACES["inferentia"]), SERVER, ON_CORES),
        (deployment_of(GPUS, engine="vllm"), "vllm serve", f"/data/output/x/model {VLLM} --tensor-parallel-size 4"),
        (
            serving.job(batch(), TEAM),
            "python3 -m trainium_workloads.serving.batch",
            "/data/output/x/model /data/in/a.csv --to /data/out/b.jsonl --backend cpu --threads 2",
        ),
    ):
        container = container_of(made)
        assert (" ".join(container["command"]), " ".join(container["args"])) == (command, arguments)


def test_readiness_follows_the_model_and_vllm_shards_over_devices():
    deployment, service = serving.objects(served(), TEAM)
    container = container_of(deployment)
    probes = [container[f"{each}Probe"]["httpGet"] for each in ("readiness", "startup", "liveness")]
    assert probes[0] == probes[1]
    assert probes[0]["path"] == probes[2]["path"] == "/health"
    # A pod that ends goes on until all nodes know of it, and has time left for its last answers.
    assert container["lifecycle"] == {"preStop": {"httpGet": {"path": "/drain", "port": 8080}}}
    seconds = int(container["args"][container["args"].index("--linger") + 1])
    assert 0 < seconds <= pod_of(deployment)["terminationGracePeriodSeconds"] - 35
    assert container_of(deployment_of(engine="vllm"))["lifecycle"] == {"preStop": {"sleep": {"seconds": seconds}}}
    (port,) = service["spec"]["ports"]
    assert port["port"] == port["targetPort"] == container["ports"][0]["containerPort"]
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
    assert service["spec"]["selector"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    assert (service["spec"]["type"], deployment["spec"]["replicas"]) == ("ClusterIP", 2)
    deployment = deployment_of(GPUS, engine="vllm")
    container = container_of(deployment)
    assert container["resources"]["limits"] == {"memory": "128Gi", "nvidia.com/gpu": "4"}
    assert {"name": "shared", "mountPath": "/dev/shm"} in container["volumeMounts"]
    assert "shared" in [each["name"] for each in pod_of(deployment)["volumes"]]


@pytest.mark.parametrize(("name", "seconds", "surge", "unavailable"), [("cpu", 600, 1, 0), ("inferentia", 3600, 0, 1)])
def test_rollout_has_no_gap_with_spare_nodes(name, seconds, surge, unavailable):
    deployment = deployment_of(PLACES[name])
    rolling = deployment["spec"]["strategy"]["rollingUpdate"]
    assert rolling == {"maxSurge": surge, "maxUnavailable": unavailable}, "no more devices than before"
    probe = container_of(deployment)["startupProbe"]
    assert probe["failureThreshold"] * probe["periodSeconds"] == seconds


def test_serving_pods_run_as_the_team_with_minimal_rights():
    pod = pod_of(deployment_of())
    assert pod["nodeSelector"] == {"trainium-eks/pool": "cpu"}
    assert pod["securityContext"]["runAsUser"] == 2001
    assert pod["automountServiceAccountToken"] is False
    assert "schedulerName" not in pod
    # A served model is read; on an accelerator graphs are kept, and a batch writes its output.
    made = (deployment_of(), deployment_of(PLACES["inferentia"]), serving.job(batch(), TEAM))
    assert [container_of(each)["volumeMounts"][0].get("readOnly", False) for each in made] == [True, False, False]
    # A batch that would end the same way is not tried again.
    refused, _ = made[-1]["spec"]["podFailurePolicy"]["rules"]
    assert (refused["action"], refused["onExitCodes"]["values"]) == ("FailJob", [REFUSED])


@pytest.mark.parametrize("name", ["inferentia", "gpu", "local devices"])
def test_devices_are_requested_through_the_queue(name):
    place = PLACES[name]
    for each in (deployment_of(place), serving.job(batch(place), TEAM)):
        pod, resources = pod_of(each), container_of(each)["resources"]
        assert pod["schedulerName"] == "volcano"
        annotations = each["spec"]["template"]["metadata"]["annotations"]
        assert annotations == {"scheduling.volcano.sh/queue-name": "eyes"}
        assert resources["requests"][place.resource] == resources["limits"][place.resource] == "1"
        name, kind = place.group.eks_name, place.group.instance_type
        selected = {"eks.amazonaws.com/nodegroup": name, "node.kubernetes.io/instance-type": kind}
        assert pod["nodeSelector"] == selected


VLLM = "--served-model-name serve-x --port 8080"
SERVER = "python3 -m trainium_workloads.serving.server"
ON_CPUS = "/data/output/x/model --backend cpu --threads 2 --name serve-x --port 8080 --linger 5 --engine transformers"
GRAPHS = "--graphs /data/compile-cache/serving"
ON_CORES = f"/data/output/x/model --backend xla {GRAPHS} --name serve-x --port 8080 --linger 5 --copies 2"
GPUS = on("p4d.24xlarge", 4)


def test_default_name_shows_the_model_and_the_digest_follows_the_pods():
    models = ("output/polarity-abcde/model", "models/My_BERT", "model")
    found = [serving.default_name("predict", each, "1a2b3c") for each in models]
    assert found == [f"predict-{each}-1a2b3c" for each in ("polarity-abcde", "my-bert", "model")]
    assert serving.default_name("serve", "model") == "serve-model"
    longest = serving.default_name("predict", f"output/{'x' * 60}/model", "1a2b3c")
    assert len(longest) <= serving_refusals.LONGEST_NAME
    base = served().digest
    assert served(replicas=5, name="other").digest == base
    others = (served(model="y"), served(image="y"), served(PLACES["gpu"]), served(queue="ears"), served(engine="vllm"))
    assert len({base, *(each.digest for each in others)}) == 6


# --- Refusals ---------------------------------------------------------------------------------------------------------


def problems(place=CPU, *, team=TEAM, **changes):
    given = {"name": "serve-x", "queue": "eyes", "instance": None, "devices": None, "may_create": True, **changes}
    places = [given.pop(each) for each in ("name", "queue")] + [place, given.pop("instance")]
    return [str(each) for each in serving_refusals.problems(team, *places, what="deployments", **given)]


def test_unservable_model_or_engine_is_refused_with_the_fix():
    for changes, words in (
        ({"may_create": False}, "you may not create deployments in the namespace vision"),
        ({"team": TEAM.model_copy(update={"claim": ""})}, "no shared volume with models"),
        ({"name": "x" * 46}, "45 at most"),
        ({"queue": "eye"}, "eyes"),
        ({"holder": "Job serve-x"}, "another object (Job serve-x) has a Service of this name"),
        ({"devices": 1}, "the CPU pool has none"),
        ({"place": PLACES["trainium"], "instance": CATALOGUE["trn1.32xlarge"], "devices": 17}, "has 16"),
    ):
        (said,) = problems(**changes)
        assert words in said
        assert problems() == problems(PLACES["inferentia"], instance=CATALOGUE["inf2.xlarge"], devices=1) == []
    for engine, name, has_image, words in (
        *(("vllm", "gpu", False, ""), ("vllm", "trainium2", True, ""), ("vllm", "cpu", True, "")),
        *(("transformers", "gpu", False, ""), ("classifier", "inferentia", False, "")),
        ("vllm", "trainium2", False, "build one from AWS' vLLM image and name it with --image"),
        ("vllm", "inferentia", True, "there is no vLLM for Inferentia2 and Trn1"),
        ("vllm", "cpu", False, "vLLM's public image needs GPUs"),
        ("vllm", "local", True, "--engine transformers, which has the same API"),
        ("transformers", "trainium2", False, "computes on CPUs and GPUs"),
    ):
        found = [str(each) for each in serving_refusals.engine_problems(engine, PLACES[name], has_image=has_image)]
        assert len(found) == bool(words)
        assert words in "".join(found)


def test_model_path_is_on_the_volume_or_the_jobs_output():
    for text, expected in (
        *(("/data/in/a.csv", "in/a.csv"), ("in/../a.csv", "a.csv"), ("../a.csv", None)),
        *(("/etc/passwd", None), ("/data/../etc/passwd", None), (".", None)),
    ):
        assert serving_refusals.path_on_volume(text) == expected
        assert bool(serving_refusals.path_problems("INPUT", text)) is (expected is None)
    (problem,) = serving_refusals.path_problems("--to", "out.parquet", serving_refusals.OUTPUTS)
    assert problem.allowed == ("….jsonl", "….csv")
    package = workloads() / "trainium_workloads" / "serving"
    assert f"SUFFIXES = {serving_refusals.INPUTS!s}".replace("'", '"') in (package / "batch.py").read_text()
    asked = (("x", ""), ("x", "/data/runs/7"), ("/data/models/bert", ""))
    models = ["output/x/model", "runs/7/model", "models/bert"]
    assert [serving_refusals.model_of(*each) for each in asked] == models
