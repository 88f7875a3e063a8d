"""Staging and image builds on a real API server, as a researcher of a team under its quota and its policies."""

import time

import pytest
from cluster_snapshots import outputs
from manifests import is_refused, live, manifest, patch
from running_pods import await_admission
from team_rooms import in_force
from typer.testing import CliRunner
from waiting import until

from trainium_eks.aws.ecr import Login
from trainium_eks.cli.app import app
from trainium_eks.jobs.images import image_jobs, images
from trainium_eks.jobs.objects import batch_jobs
from trainium_eks.kube.api import Api
from trainium_eks.local.control_plane import researchers
from trainium_eks.local.images.images import workloads
from trainium_eks.model.outputs import NamespaceOutput

TEAM = "staging-team"
NAMESPACE = NamespaceOutput(name=TEAM, queues=("eyes",), service_account="training", claim="fsx-claim")
LOGIN = Login("123456789012.dkr.ecr.us-west-2.amazonaws.com", "AWS", "password")
REQUEST = images.ImageRequest("cpu", "public.ecr.aws/docker/library/python:3.13")


@pytest.fixture(scope="module")
def team(api, paths, record):
    with in_force(api, record, {TEAM: "eyes"}):
        await_admission(Api.connect(researchers.kubeconfig(paths, TEAM)), _any_job())
        yield TEAM


def _built(name, tag):
    return image_jobs.build_objects(NAMESPACE, name, tag, images.context(REQUEST, workloads()), LOGIN)


def _any_job():
    return dict(_built("any", "r.example/x:a")[0])


@pytest.fixture
def stage(team, paths, tmp_path):
    """Runs the command as the team's researcher, on a cluster that counts as remote."""
    namespace = {"name": team, "queues": ["eyes"], "serviceAccount": "training", "claim": "fsx-claim"}
    file = tmp_path / "exported.json"
    file.write_text(outputs(namespaces=[namespace]).model_dump_json(by_alias=True))
    cluster = ("--outputs", str(file), "--kubeconfig", str(researchers.kubeconfig(paths, team)))

    def call(source, to, *options):
        shown = CliRunner().invoke(app, ["stage", source, "--to", to, *options, *cluster])
        return shown.exit_code, shown.stdout, shown.stderr

    return call


def staging(api):
    found = api.list("batch/v1", "Job", namespace=TEAM, labels="trainium-eks/kind=stage")
    return {job["metadata"]["annotations"]["trainium-eks/to"]: job for job in found}


def pods_of(api, job):
    return api.list("v1", "Pod", namespace=TEAM, labels=f"batch.kubernetes.io/job-name={job}")


def test_researcher_can_submit_staging_and_a_dry_run_submits_nothing(stage, api, team):
    code, out, _ = stage("s3://bucket/set/", "data/set", "--dry-run")
    assert (code, '"kind": "ConfigMap"' in out) == (0, True)
    assert "data/set" not in staging(api)
    code, out, err = stage("s3://bucket/set/", "data/set", "--no-follow")
    assert code == 0, err
    name = staging(api)["data/set"]["metadata"]["name"]
    assert out == f"Job {name} in {team}; the same command again follows it\n"
    config_map = live(api, manifest("ConfigMap", name, team))
    assert [owner["name"] for owner in config_map["metadata"]["ownerReferences"]] == [name]
    until(lambda: pods_of(api, name), "the pod is made; the quota or a policy may refuse it")
    [pod] = pods_of(api, name)
    assert pod["spec"]["nodeSelector"] == {"trainium-eks/pool": "cpu"}


def test_running_staging_is_reused_and_another_source_is_refused(stage, api, team):
    assert stage("s3://bucket/set/", "data/twice", "--no-follow")[0] == 0
    assert stage("s3://bucket/set/", "/data/data/twice", "--no-follow")[0] == 0
    first = staging(api)["data/twice"]["metadata"]["name"]
    assert len([each for each in staging(api) if each == "data/twice"]) == 1
    code, _, err = stage("s3://bucket/other/", "data/twice", "--no-follow")
    assert code == 1
    assert f"data/twice is being staged from s3://bucket/set/ by the Job {first}" in err


def test_failed_staging_job_ends_the_command_with_its_reason(stage, api, team, monkeypatch):
    assert stage("https://host.example/x", "data/failed", "--no-follow")[0] == 0
    job = staging(api)["data/failed"]
    follow = batch_jobs.follow

    def too_long(*arguments, **options):
        patch(api, job, {"spec": {"activeDeadlineSeconds": 1}})
        return follow(*arguments, **options)

    # Not before: a Job that has ended already is not followed, but recreated.
    monkeypatch.setattr(batch_jobs, "follow", too_long)
    code, out, err = stage("https://host.example/x", "data/failed")
    assert (code, out) == (1, "")
    assert f"The Job {job['metadata']['name']} stages it already" in err
    assert "https://host.example/x is not staged: DeadlineExceeded" in err


def test_researcher_may_build_images_in_the_cluster(stage, api, team, paths):
    """The pod passes the baseline level of Pod Security and the team's policies; the login is deleted with the Job."""
    researcher = Api.connect(researchers.kubeconfig(paths, team))
    job, needs = _built("image-a", "r.example/x:a")
    batch_jobs.submit(researcher, job, needs)
    until(lambda: pods_of(api, "image-a"), "the pod is made; Pod Security may refuse it, too")
    secret = manifest("Secret", "image-a", team)
    assert [owner["name"] for owner in live(api, secret)["metadata"]["ownerReferences"]] == ["image-a"]
    researcher.delete(api.reference(manifest("Job", "image-a", team)), propagation="Background")
    until(lambda: not live(api, secret), "the login goes")


def test_unstarted_staging_job_is_deleted(stage, api, team):
    assert stage("s3://bucket/set/", "data/left", "--no-follow")[0] == 0
    first = staging(api)["data/left"]
    patch(api, first, {"spec": {"suspend": True}})
    assert stage("s3://bucket/set/", "data/left", "--no-follow")[0] == 0
    assert (
        staging(api)["data/left"]["metadata"]["name"] == first["metadata"]["name"]
    )  # it is being started, for all anybody knows
    with pytest.MonkeyPatch.context() as short:
        short.setattr(batch_jobs, "LEFT_OVER_SECONDS", 0)
        time.sleep(1)
        assert stage("s3://bucket/set/", "data/left", "--no-follow")[0] == 0
    assert not live(api, first)


def test_api_servers_refusal_of_staging_is_shown(stage, api, team):
    patch(api, manifest("ResourceQuota", "team", team), {"spec": {"hard": {"count/jobs.batch": "0"}}})
    until(lambda: is_refused(api, _any_job(), "exceeded quota"), "the quota is in force")
    code, _, err = stage("s3://bucket/set/", "data/refused", "--no-follow")
    assert code == 1
    assert "the Job is refused" in err
    assert "exceeded quota: team, requested: count/jobs.batch=1" in err
    assert not [each for each in api.list("v1", "ConfigMap", namespace=team) if "refused" in each["metadata"]["name"]]
