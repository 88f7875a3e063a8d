"""Training jobs on a real API server, as a researcher: admitted under the namespace's policies, field by field."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from cluster_snapshots import group
from manifests import definition, is_refused, manifest
from running_pods import await_admission
from team_rooms import in_force
from training_jobs import job
from waiting import until

from trainium_eks.jobs.data.workspace import pack
from trainium_eks.jobs.objects import forms, pod, volcano_job
from trainium_eks.jobs.objects.identity import TRAINER_API
from trainium_eks.jobs.objects.job import CompileCache, Program, Topology
from trainium_eks.jobs.objects.options import TrainOptions
from trainium_eks.jobs.objects.resources import local_share
from trainium_eks.jobs.serve import serving
from trainium_eks.jobs.serve.serving import Batch, ModelService, ServingNodes
from trainium_eks.jobs.submit import cluster_facts, submission
from trainium_eks.kube.api import Api, ApiError, ObjectReference
from trainium_eks.local.control_plane import researchers
from trainium_eks.local.nodes import resizing
from trainium_eks.local.objects.apply import Objects
from trainium_eks.local.toolchain import TRAINING_OPERATOR, go_command, sources
from trainium_eks.model.catalogue import versions
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.model.outputs import NamespaceOutput, NodeGroupOutput
from trainium_eks.model.policies.admission import GROUP_ANNOTATION

TEAM, QUEUE = "launching", "launchers"
TYPES = [name for name, kind in CATALOGUE.items() if kind.family != "cpu"]


def _job(instance_type="trn1.32xlarge", **changes):
    wiring = {"namespace": TEAM, "queue": QUEUE, "service_account": "training", "user_id": 1000}
    return job(instance_type, **{**wiring, **changes})


JOBS = {
    "two nodes": _job(),
    "one task": _job(nodes=500),
    "everything": _job(has_workspace=True, topology=Topology("hard", 1), priority="training-high",
                       cache=CompileCache("k", {"a": "1"}), capacity_ends="2026-12-01T11:30:00Z", data=("bert",),
                       env={"A": "$HOME"}),
    "a compilation": _job(kind="compile", cache=CompileCache("k")),
    "the local cloud's": _job(backend="cpu", resources=local_share(CATALOGUE["trn1.32xlarge"]), launcher="gang"),
    "another image's user": _job(user_id=None),
    **{name: _job(name) for name in TYPES},
}  # fmt: skip


def _definition():
    """Volcano's own definition of jobs from its chart, which refuses unknown fields; without the chart any is taken."""
    file = Path(os.environ.get("TRN_TEST_CHARTS", "/nonexistent"), "volcano/crd/bases/batch.volcano.sh_jobs.yaml")
    if file.is_file():
        return dict(yaml.safe_load(file.read_text()))
    return definition("Job", "jobs", "batch.volcano.sh", "v1alpha1")


@pytest.fixture(scope="module")
def team(api, paths, record):
    defined = _definition()
    with in_force(api, record, {TEAM: QUEUE}, [defined]):
        until(lambda: _is_served(api, defined), "Volcano's jobs are served")
        # A policy is in force a moment after it is there.
        for refused in (volcano_job.manifest(_job(queue="no")), _pod(volcano_job.manifest(_job()), nodeName="n")):
            until(lambda refused=refused: is_refused(api, refused), "the policies are in force")
        await_admission(api, _pod(volcano_job.manifest(_job())))
        await_admission(Api.connect(researchers.kubeconfig(paths, TEAM)), volcano_job.manifest(_job()))
        yield


@pytest.fixture(scope="module")
def researcher(team, paths):
    return Api.connect(researchers.kubeconfig(paths, TEAM))


TRAINER = "github.com/kubeflow/trainer/v2"
TRAINER_SUMS = (
    f"{TRAINER} v2.3.0 h1:Je+e7zvTLzB4qW09J1fB7pZrqvPtWuGng2NqdN5p5QU=\n"
    f"{TRAINER} v2.3.0/go.mod h1:7R2Eib9BHAbPniXQR11CuMAF72/847Ogznj7od5q6DY=\n"
)


@pytest.fixture(scope="module")
def kubeflow(api, team, tmp_path_factory):
    """The definitions of PyTorchJobs, TrainJobs and runtimes, as their projects have them at the stacks' versions."""
    scratch = tmp_path_factory.mktemp("modules")
    (scratch / "sums").mkdir()
    (scratch / "sums" / "sources.sum").write_text(TRAINER_SUMS)
    version = versions.CHARTS["kubeflow-trainer"].version
    try:
        operator = sources.source(TRAINING_OPERATOR, scratch, os.environ)
        trainer = go_command.source(TRAINER, version, scratch / "sums", scratch, os.environ)
    except go_command.GoError as error:
        pytest.skip(f"Kubeflow's Go modules are not here: {str(error).splitlines()[0]}")
    names = ("trainer.kubeflow.org_trainjobs", "trainer.kubeflow.org_trainingruntimes")
    files = [
        operator / "manifests/base/crds/kubeflow.org_pytorchjobs.yaml",
        *(trainer / f"manifests/base/crds/{name}.yaml" for name in names),
    ]
    objects = Objects(api, waiting=lambda _: None)
    definitions = [yaml.safe_load(file.read_text()) for file in files]
    for each in definitions:
        objects.apply(each, timeout_seconds=300)
        # A researcher may not read definitions: of a kind that is not served yet they are told that there is none.
        until(lambda each=each: _is_served(api, each), "Kubeflow's kinds are served")
    yield
    for each in definitions:
        objects.delete(api.reference(each), timeout_seconds=300)


def _is_served(api, defined):
    """Whether the API server reports a kind's definition as established."""
    spec = defined["spec"]
    versions = [each["name"] for each in spec["versions"] if each["served"]]
    try:
        found = [api.request("GET", f"/apis/{spec['group']}/{version}") for version in versions]
    except ApiError:
        return False
    return all(any(kind["kind"] == spec["names"]["kind"] for kind in each["resources"]) for each in found)


def _pod_of(template, **spec):
    """A pod as a controller makes it of a template."""
    template = json.loads(json.dumps(template))
    annotations = {**template["metadata"].get("annotations", {}), GROUP_ANNOTATION: "group"}
    metadata = {**template["metadata"], "annotations": annotations}
    return manifest("Pod", "pod", TEAM, metadata=metadata, spec={**template["spec"], **spec})


def _pod(made, **spec):
    """A job's last pod, as Volcano's controller makes it."""
    return _pod_of(made["spec"]["tasks"][-1]["template"], schedulerName="volcano", **spec)


@pytest.mark.parametrize("name", JOBS)
def test_job_and_its_pods_are_admitted(api, researcher, name):
    """Pod Security, quota, limits and policies judge pods; a refusal would show in a controller's events alone."""
    submission.validate(researcher, forms.objects(JOBS[name]))
    api.create(_pod(volcano_job.manifest(JOBS[name])), dry_run=True)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["pytorchjob", "trainjob"])
@pytest.mark.parametrize("name", ["two nodes", "everything", "the local cloud's", "p4d.24xlarge"])
def test_kubeflows_objects_and_their_pods_are_admitted(kubeflow, api, researcher, name, form):
    """Their definitions check each field, with CEL rules, too; the namespace's policies judge the pods."""
    made = forms.objects(replace(JOBS[name], form=form, options=TrainOptions(hf_secret="hugging-face:hub"), retries=3))
    for each in made:
        assert researcher.create(each, dry_run=True)["spec"].keys() >= each["spec"].keys()
    if form == "pytorchjob":
        template = made[0]["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    else:
        [nodes] = made[0]["spec"]["template"]["spec"]["replicatedJobs"]
        template = nodes["template"]["spec"]["template"]
    api.create(_pod_of(template), dry_run=True)


@pytest.mark.parametrize("name", ["two nodes", "a compilation"])
def test_torchx_job_is_admitted(api, researcher, name):
    made = volcano_job.torchx_job(JOBS[name])
    made["metadata"]["namespace"] = TEAM
    submission.validate(researcher, [made])
    api.create(_pod(made), dry_run=True)


@pytest.mark.parametrize("instance_type", ["", "inf2.xlarge", "trn1.32xlarge", "p4d.24xlarge"])
def test_serving_objects_and_their_pods_are_admitted(researcher, instance_type):
    team = NamespaceOutput(name=TEAM, queues=(QUEUE,), service_account="training", claim="fsx-claim")
    where = ServingNodes()
    if instance_type:
        nodes = NodeGroupOutput.model_validate(group("ng", "", 0, 1, instanceType=instance_type), by_alias=True)
        where = serving.place(nodes, CATALOGUE[instance_type], 1, is_local=False)
    made = serving.objects(ModelService("serve-x", "output/x/model", "image", where, QUEUE), team)
    batch = serving.job(Batch("predict-x", "m", "a.csv", "b.csv", "image", where, QUEUE), team)
    for each in (*made, batch):
        researcher.create(each, dry_run=True)
    for each in (made[0], batch):
        template = each["spec"]["template"]
        pod = manifest("Pod", "pod", TEAM, metadata=dict(template["metadata"]), spec=template["spec"])
        researcher.create(pod, dry_run=True)


def _submitted_with(researcher, wanted, beside, archive=""):
    """Submits a job; what is made beside it belongs to it, and stays untouched when its name is taken."""
    made = submission.submit(researcher, wanted, forms.objects(wanted), archive)
    found = researcher.get(beside)
    [owner] = found["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == (made["kind"], made["metadata"]["uid"])
    assert cluster_facts.jobs(researcher, TEAM)[wanted.name] == "Submitted"
    with pytest.raises(ApiError, match="already exists"):
        submission.submit(researcher, wanted, forms.objects(wanted), archive)
    assert researcher.get(beside) == found
    researcher.delete(researcher.reference(made))
    return found


@pytest.mark.slow
def test_a_runtime_belongs_to_its_trainjob(kubeflow, researcher):
    runtime = ObjectReference(TRAINER_API, "TrainingRuntime", TEAM, "trained")
    _submitted_with(researcher, _job(name="trained", form="trainjob"), runtime)


def test_files_are_deleted_with_their_job_and_a_refused_job_leaves_none(researcher, tmp_path):
    (tmp_path / "train.py").write_text("print('trained')")
    packed = pack("train.py", tmp_path)
    files = ObjectReference("v1", "ConfigMap", TEAM, "with-files-workspace")
    wanted = _job(name="with-files", has_workspace=True, program=Program(packed.script))
    found = _submitted_with(researcher, wanted, files, packed.archive)
    assert found["binaryData"] == {pod.ARCHIVE: packed.archive}
    refused = _job(name="refused", has_workspace=True, queue="theirs")
    with pytest.raises(ApiError, match=r"spec\.queue"):
        submission.submit(researcher, refused, forms.objects(refused), packed.archive)
    assert researcher.get(replace(files, name="refused-workspace")) is None


def test_rights_and_a_running_cache_fill_are_read(researcher):
    assert cluster_facts.may_submit(researcher, TEAM)
    assert not cluster_facts.may_submit(researcher, "default")
    wanted = replace(_job(kind="compile", cache=CompileCache("bert-64x")), name="filling")
    submission.submit(researcher, wanted, forms.objects(wanted))
    assert cluster_facts.compiling(cluster_facts.volcano_jobs(researcher, TEAM)) == {"bert-64x": "filling"}
    researcher.delete(ObjectReference(volcano_job.JOB_API, "Job", TEAM, "filling"))


def test_group_is_resized_between_two_ups(api, paths):
    sizes = {"desiredSize": 0, "minSize": 0, "maxSize": 4}
    inputs = {"instanceTypes": ["trn1.32xlarge"], "scalingConfig": sizes}
    known = {"inputs": inputs, "computed": {"nodeGroupName": "sized"}}
    resizing.record(paths, "sized", {**known, "zones": {}, "region": "us-west-2", "template": None}, ())

    def names(size):
        resizing.resize(paths, "sized", size, CATALOGUE)
        found = api.list("v1", "Node", labels="eks.amazonaws.com/nodegroup=sized")
        return sorted(each["metadata"]["name"] for each in found)

    two, three = names(2), names(3)
    assert (len(two), len(three), three[:2]) == (2, 3, two)
    assert names(0) == []
