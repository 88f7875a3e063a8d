"""Staging and image builds on a real API server, as a researcher of a team under its quota and its policies."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_snapshots import outputs
from running_pods import await_admission
from typer.testing import CliRunner
from waiting import until

from components.training_namespace import TrainingNamespace
from components.volcano_stack import VolcanoStack
from trainium_eks.aws.ecr import Login
from trainium_eks.cli.app import app
from trainium_eks.jobs.images import image_jobs, images
from trainium_eks.jobs.objects import batch_jobs
from trainium_eks.kube.api import Api, ApiError, ObjectReference
from trainium_eks.local.control_plane import researchers
from trainium_eks.local.images.images import workloads
from trainium_eks.local.objects.apply import Objects
from trainium_eks.local.paths import Paths
from trainium_eks.model.outputs import NamespaceOutput
from trainium_eks.plan.graph import Graph

TEAM = "staging-team"
LOGIN = Login("123456789012.dkr.ecr.us-west-2.amazonaws.com", "AWS", "password")
MADE = (
    "core/v1:Namespace",
    "core/v1:ResourceQuota",
    "core/v1:LimitRange",
    "core/v1:ServiceAccount",
    "admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy",
    "admissionregistration.k8s.io/v1:ValidatingAdmissionPolicyBinding",
    "rbac.authorization.k8s.io/v1:Role",
    "rbac.authorization.k8s.io/v1:RoleBinding",
)

Stage = Callable[..., tuple[int, str, str]]


def _program() -> None:
    VolcanoStack("volcano", {"queues": [{"name": "eyes"}]})
    TrainingNamespace(
        TEAM, {"name": TEAM, "queues": ["eyes"], "region": "us-west-2", "cluster_name": "cluster", "volume_gib": 1200}
    )


@pytest.fixture(scope="module")
def team(api: Api, paths: Paths, record: Callable[..., Graph]) -> Iterator[str]:
    """The team's namespace, with its policies in force."""
    objects = Objects(api, waiting=lambda _: None)
    graph = record(_program)
    made = json.loads(json.dumps([dict(each.inputs) for kind in MADE for each in graph.of_type(f"kubernetes:{kind}")]))
    for manifest in made:
        objects.apply(manifest, timeout_seconds=300)
    await_admission(Api.connect(researchers.kubeconfig(paths, TEAM)), _any_job())
    yield TEAM
    for manifest in reversed(made):  # nobody waits for the end of a namespace
        api.delete(api.reference(manifest), propagation="Background")


def _any_job() -> dict[str, Any]:
    """One that a researcher may submit."""
    request = images.ImageRequest("cpu", "public.ecr.aws/docker/library/python:3.13")
    namespace = NamespaceOutput(name=TEAM, queues=("eyes",), service_account="training", claim="fsx-claim")
    job, _ = image_jobs.build_objects(namespace, "any", "r.example/x:a", images.context(request, workloads()), LOGIN)
    return dict(job)


@pytest.fixture
def stage(team: str, paths: Paths, tmp_path: Path) -> Stage:
    """Runs the command as the team's researcher, on a cluster that is none of this machine."""
    namespace = {"name": team, "queues": ["eyes"], "serviceAccount": "training", "claim": "fsx-claim"}
    file = tmp_path / "exported.json"
    file.write_text(outputs(namespaces=[namespace]).model_dump_json(by_alias=True))
    cluster = ("--outputs", str(file), "--kubeconfig", str(researchers.kubeconfig(paths, team)))

    def call(source: str, to: str, *options: str) -> tuple[int, str, str]:
        shown = CliRunner().invoke(app, ["stage", source, "--to", to, *options, *cluster])
        return shown.exit_code, shown.stdout, shown.stderr

    return call


def jobs(api: Api, team: str) -> dict[str, dict[str, Any]]:
    found = api.list("batch/v1", "Job", namespace=team, labels="trainium-eks/kind=stage")
    return {job["metadata"]["annotations"]["trainium-eks/to"]: job for job in found}


def pods_of(api: Api, job: str) -> list[dict[str, Any]]:
    return api.list("v1", "Pod", namespace=TEAM, labels=f"batch.kubernetes.io/job-name={job}")


def test_a_researcher_may_submit_it_and_its_pod_is_made(stage: Stage, api: Api, team: str) -> None:
    code, out, err = stage("s3://bucket/set/", "data/set", "--no-follow")
    assert code == 0, err
    name = jobs(api, team)["data/set"]["metadata"]["name"]
    assert out == f"Job {name} in {team}; the same command again follows it\n"
    config_map = api.get(ObjectReference("v1", "ConfigMap", team, name))
    assert config_map is not None
    assert [owner["name"] for owner in config_map["metadata"]["ownerReferences"]] == [name]
    until(lambda: pods_of(api, name), "the pod is made; the quota or a policy may refuse it")
    [pod] = pods_of(api, name)
    assert pod["spec"]["nodeSelector"] == {"trainium-eks/pool": "cpu"}


def test_what_is_being_staged_is_found_again_and_not_mixed_with_another(stage: Stage, api: Api, team: str) -> None:
    assert stage("s3://bucket/set/", "data/twice", "--no-follow")[0] == 0
    assert stage("s3://bucket/set/", "/data/data/twice", "--no-follow")[0] == 0
    first = jobs(api, team)["data/twice"]["metadata"]["name"]
    assert len([each for each in jobs(api, team) if each == "data/twice"]) == 1
    code, _, err = stage("s3://bucket/other/", "data/twice", "--no-follow")
    assert code == 1
    assert f"data/twice is being staged from s3://bucket/set/ by the Job {first}" in err


def test_a_job_that_ends_badly_ends_the_command_with_its_reason(
    stage: Stage, api: Api, team: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stage("https://host.example/x", "data/failed", "--no-follow")[0] == 0
    name = jobs(api, team)["data/failed"]["metadata"]["name"]
    path = f"/apis/batch/v1/namespaces/{team}/jobs/{name}"
    follow = batch_jobs.follow

    def too_long(*arguments: Any, **options: Any) -> batch_jobs.End:
        change = {"spec": {"activeDeadlineSeconds": 1}}
        api.request("PATCH", path, change, content_type="application/merge-patch+json")
        return follow(*arguments, **options)

    # Not before: a Job that has ended already is not followed, but made anew.
    monkeypatch.setattr(batch_jobs, "follow", too_long)
    code, out, err = stage("https://host.example/x", "data/failed")
    assert (code, out) == (1, "")
    assert f"The Job {name} stages it already" in err
    assert "https://host.example/x is not staged: DeadlineExceeded" in err


def test_a_researcher_may_build_and_copy_images_in_the_cluster(stage: Stage, api: Api, team: str, paths: Paths) -> None:
    """The pods pass the baseline level of Pod Security and the team's policies; the login goes with the Job."""
    researcher = Api.connect(researchers.kubeconfig(paths, team))
    namespace = NamespaceOutput(name=team, queues=("eyes",), service_account="training", claim="fsx-claim")
    request = images.ImageRequest("cpu", "public.ecr.aws/docker/library/python:3.13")
    made_of = images.context(request, workloads())
    for name, (job, needs) in {
        "image-a": image_jobs.build_objects(namespace, "image-a", "r.example/x:a", made_of, LOGIN),
        "mirror-a": image_jobs.mirror_objects(namespace, "mirror-a", "r.example/x:b", "r.example/x:c", LOGIN),
    }.items():
        batch_jobs.submit(researcher, job, needs)
        until(lambda name=name: pods_of(api, name), "the pod is made; Pod Security may refuse it, too")
        secret = ObjectReference("v1", "Secret", team, name)
        assert [owner["name"] for owner in (api.get(secret) or {})["metadata"]["ownerReferences"]] == [name]
        researcher.delete(ObjectReference("batch/v1", "Job", team, name), propagation="Background")
        until(lambda secret=secret: api.get(secret) is None, "the login goes")


def test_what_was_submitted_and_never_started_is_thrown_away(stage: Stage, api: Api, team: str) -> None:
    assert stage("s3://bucket/set/", "data/left", "--no-follow")[0] == 0
    first = jobs(api, team)["data/left"]["metadata"]["name"]
    path = f"/apis/batch/v1/namespaces/{team}/jobs/{first}"
    api.request("PATCH", path, {"spec": {"suspend": True}}, content_type="application/merge-patch+json")
    assert stage("s3://bucket/set/", "data/left", "--no-follow")[0] == 0
    assert jobs(api, team)["data/left"]["metadata"]["name"] == first  # it is being started, for all anybody knows
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_jobs, "LEFT_OVER_SECONDS", 0)
        time.sleep(1)
        assert stage("s3://bucket/set/", "data/left", "--no-follow")[0] == 0
    assert api.get(ObjectReference("batch/v1", "Job", team, first)) is None


def test_a_dry_run_submits_nothing(stage: Stage, api: Api, team: str) -> None:
    code, out, _ = stage("s3://bucket/set/", "data/dry", "--dry-run")
    assert code == 0
    assert '"kind": "ConfigMap"' in out
    assert "data/dry" not in jobs(api, team)


def test_a_refusal_of_the_api_server_is_said(stage: Stage, api: Api, team: str) -> None:
    none = {"spec": {"hard": {"count/jobs.batch": "0"}}}
    path = f"/api/v1/namespaces/{team}/resourcequotas/team"
    api.request("PATCH", path, none, content_type="application/merge-patch+json")
    until(lambda: _is_refused(api), "the quota is in force")
    code, _, err = stage("s3://bucket/set/", "data/refused", "--no-follow")
    assert code == 1
    assert "the Job is refused" in err
    assert "exceeded quota: team, requested: count/jobs.batch=1" in err
    assert not [each for each in api.list("v1", "ConfigMap", namespace=team) if "refused" in each["metadata"]["name"]]


def _is_refused(api: Api) -> bool:
    try:
        api.create(_any_job(), dry_run=True)
    except ApiError as error:
        return "exceeded quota" in error.message
    return False
