"""The Job that stages data: what it asks for, what is refused before, and how it is followed."""

import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import kubernetes_validate
import pip
import pytest
from outcome import raising
from remembering_api import RememberingApi
from rich.console import Console
from trainium_workloads.stage import __main__ as copier
from typer.testing import CliRunner

from trainium_eks.cli.app import app
from trainium_eks.cli.shared.progress import ShownProgress, amount
from trainium_eks.client import staging as command
from trainium_eks.client.failure import CommandError
from trainium_eks.jobs.data import staging
from trainium_eks.jobs.data.presets import PRESETS
from trainium_eks.jobs.data.staging import StageRequest
from trainium_eks.jobs.objects import batch_jobs
from trainium_eks.kube.api import ApiError
from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.images import images
from trainium_eks.local.images.images import LocalImage, workloads
from trainium_eks.local.images.installing import known_recipe
from trainium_eks.model.annotations import MACHINE_PATH
from trainium_eks.model.catalogue.versions import KUBERNETES
from trainium_eks.model.outputs import NamespaceOutput

TEAM = NamespaceOutput(
    name="vision", queues=("eyes",), service_account="training", claim="fsx-claim", training_user_id=2001
)
REQUEST = StageRequest("s3://bucket/set/", "data/set")


def objects(request=REQUEST):
    code = staging.code_files(workloads())
    return staging.objects(request, TEAM, "stage-set-1", region="us-west-2", code=code)


def pod_of(job):
    return job["spec"]["template"]["spec"]


def container_of(job):
    (found,) = pod_of(job)["containers"]
    return found


# --- Objects ----------------------------------------------------------------------------------------------------------


def test_objects_are_valid_and_the_copier_parses_its_arguments():
    hub = StageRequest("hf://d/a/b", "x", True, ("*.x", "z"), ("y",), True, 4, "https://m", "s")
    for each in objects(hub):
        kubernetes_validate.validate(each, KUBERNETES, strict=True)
    asked = vars(copier._parser().parse_args(hub.arguments))
    switches = {"extract": True, "replace": True, "workers": 4, "include": ["*.x", "z"], "exclude": ["y"]}
    assert asked.items() >= ({"source": "hf://d/a/b", "to": "x", "root": Path("/data")} | switches).items()
    env = {each["name"]: each for each in container_of(objects(hub)[1])["env"]}
    assert env["HF_ENDPOINT"]["value"] == "https://m"
    assert env["HF_TOKEN"]["valueFrom"] == {"secretKeyRef": {"name": "s", "key": "token"}}
    s3 = container_of(objects(StageRequest("s3://b/x", "x", endpoint="https://m"))[1])["env"]
    assert {"name": "AWS_ENDPOINT_URL_S3", "value": "https://m"} in s3
    assert "HF_TOKEN" not in [each["name"] for each in s3]
    for to in ("a/B_c.d", "a/" + "y" * 200, "ä/ö"):
        name = staging.job_name(StageRequest("s3://b/k", to), "abc123")
        assert re.fullmatch("[a-z0-9-]{1,56}", name), "five characters and a dash follow"
    same = StageRequest("s3://bucket/set/", "data/set", replace=True, workers=3, image="other")
    others = (replace(REQUEST, source="s3://bucket/set"), replace(REQUEST, extract=True))
    assert same.digest == REQUEST.digest
    assert REQUEST.digest not in {each.digest for each in others}


def test_staging_job_runs_on_the_cpu_pool_with_the_teams_user():
    _, job = objects()
    pod, container = pod_of(job), container_of(job)
    assert pod["nodeSelector"] == {"trainium-eks/pool": "cpu"}
    assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["runAsGroup"] == 2001
    assert pod["serviceAccountName"] == "training"
    assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "fsx-claim"}
    assert container["args"] == ["s3://bucket/set/", "--to", "data/set", "--root", "/data"]
    assert container["image"].startswith("public.ecr.aws/docker/library/python:3.")
    # The libraries write where a read-only image lets them.
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    env = {each["name"]: each["value"] for each in container["env"]}
    (scratch,) = [each["mountPath"] for each in container["volumeMounts"] if each["name"] == "scratch"]
    assert {"name": "scratch", "emptyDir": {"sizeLimit": "2Gi"}} in pod["volumes"]
    assert env["HOME"] == env["TMPDIR"] == scratch
    assert env["TRN_STAGE_PACKAGES"].startswith(f"{scratch}/")
    # A copy that cannot succeed ends the job, and one that may is tried again.
    fail, ignore = job["spec"]["podFailurePolicy"]["rules"]
    assert fail["onExitCodes"]["values"] == [copier.FAILED, 2], "2: arguments that the copier does not know"
    assert ignore == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    unknown_user = TEAM.model_copy(update={"training_user_id": None})
    _, job = staging.objects(REQUEST, unknown_user, "n", region="r", code={})
    assert pod_of(job)["securityContext"]["runAsUser"] == 1000


# --- The image --------------------------------------------------------------------------------------------------------


def image(request=REQUEST, *, is_local, make=True):
    return command._with_image(request, SimpleNamespace(is_local=is_local), make=make).image


def test_staging_image_is_named_suitable_or_built_once(monkeypatch, capsys):
    there = {}
    recipe = known_recipe("stage")
    tag = images.digest(recipe.requirements)

    def make(recipe, progress):
        progress("Making it")
        there[f"stage:{tag}"] = LocalImage("stage", tag, Path("/x"), False, requirements=recipe.requirements)
        return there[f"stage:{tag}"]

    monkeypatch.setattr(images, "find", there.get)
    monkeypatch.setattr(images, "make", raising(ClusterError("local/stage could not be made: pip ended with 1")))
    assert [image(each, is_local=False) for each in (replace(REQUEST, image="mine"), REQUEST)] == ["mine", ""]
    with pytest.raises(CommandError, match=r"(?s)pip ended with 1.*set PIP_INDEX_URL"):
        image(is_local=True)
    monkeypatch.setattr(images, "make", make)
    assert image(is_local=True, make=False) == "local/stage"
    assert [image(is_local=True) for _ in range(2)] == [f"local/stage:{tag}"] * 2
    assert capsys.readouterr().err == "Making it\n"
    for version, more, expected in (("old", "", f"stage:{tag}"), ("new", recipe.requirements, "torch:new")):
        there["torch"] = LocalImage("torch", version, Path("/x"), True, requirements=f"torch==2.9.1\n{more}")
        assert image(is_local=True) == f"local/{expected}"


@pytest.mark.parametrize(
    ("packages", "why"),
    [(True, "No matching distribution found for boto3=="), (False, "TRN_STAGE_PACKAGES names no directory")],
)
def test_missing_packages_are_installed_at_start_or_reported(tmp_path, packages, why):
    """By a pip that reaches no index, in a Python that has neither package."""
    (tmp_path / "pip").symlink_to(Path(pip.__file__).parent)
    start = [sys.executable, "-S", "-m", "trainium_workloads.stage", "s3://a/b", "--to", "x"]
    env = {"PYTHONPATH": f"{workloads()}:{tmp_path}", "PIP_NO_INDEX": "1"}
    env |= {"TRN_STAGE_PACKAGES": str(tmp_path / "packages")} if packages else {}
    done = subprocess.run(start, env=env, capture_output=True, text=True, check=False)
    last = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, last["stage"]) == (1, "failed")
    assert last["message"].startswith("the image has no boto3, and ")
    assert why in last["message"]
    assert "--image" in last["message"]


def test_every_preset_is_listed_without_a_stack_and_can_be_staged():
    shown = CliRunner().invoke(app, ["stage", "--list"])
    assert shown.exit_code == 0
    for name, preset in PRESETS.items():
        assert name in shown.output
        request = StageRequest(preset.source, preset.to, extract=preset.extract, include=preset.include)
        assert staging.problems(request, TEAM, is_local=False) == []
    assert len({preset.to for preset in PRESETS.values()}) == len(PRESETS)
    with pytest.raises(CommandError, match="did you mean wikicorpus-bert-128"):
        command._as_url("wikicorpus-bert128", is_local=False)


# --- Refusals ---------------------------------------------------------------------------------------------------------


NO_CLAIM = TEAM.model_copy(update={"claim": ""})
TOKEN = StageRequest("hf://datasets/a/b", "x", token_secret="hf_AbCd")


def test_invalid_source_is_refused_with_the_allowed_ones():
    for request_, team, path, good, said in (
        *(
            (StageRequest(source, "x"), TEAM, "SOURCE", None, said)
            for source, said in (
                ("file:///tmp", "which the cluster does not see"),
                ("https://host.example:8443/x", "lets pods out to port 443 alone"),
                ("sr3://bucket/x", "neither a source nor a preset"),
            )
        ),
        *(
            (StageRequest("s3://b/k", to), TEAM, "--to", good, "")
            for to, good in (("", "data/<name>"), ("..", "data/<name>"), ("/x", "x"), ("a/../b", "b"), ("a//b", "a/b"))
        ),
        (StageRequest("s3://b/k", "a/.stage-x"), TEAM, "--to", None, "the copier's own"),
        (REQUEST, NO_CLAIM, "--to", None, "has no shared volume"),
        (TOKEN, TEAM, "--hf-secret", None, "not the name of a Secret"),
    ):
        (problem,) = staging.problems(request_, team, is_local=False)
        assert (problem.path, said in str(problem)) == (path, True)
        assert problem.good == good if good else problem.fix or problem.good


def test_reachable_sources_are_accepted_and_local_files_become_paths(tmp_path):
    for source in ("http://minio:9000/x", "http://m.vision.svc/x", "https://host.example/x"):
        assert staging.problems(StageRequest(source, "x"), TEAM, is_local=False) == []
    assert staging.problems(StageRequest("http://127.0.0.1:1/x", "x"), TEAM, is_local=True) == []
    place = tmp_path / "my data"
    place.mkdir()
    request = StageRequest(place.as_uri(), "x")
    assert staging.problems(request, TEAM, is_local=True) == []
    _, job = staging.objects(request, TEAM, "n", region="r", code={})
    assert job["spec"]["template"]["metadata"]["annotations"] == {MACHINE_PATH: str(place)}
    for missing, said in (
        (f"{place.as_uri()}/none", "no such file"),
        ("file:///proc/version", "in whose place a pod has something else"),
    ):
        (problem,) = staging.problems(StageRequest(missing, "x"), TEAM, is_local=True)
        assert said in problem.reason


# --- Following --------------------------------------------------------------------------------------------------------


class Scripted:
    """An API server whose answers are written down: each look at the Job is one step."""

    def __init__(self, *steps):
        self.steps, self.now, self.logs = list(steps), {}, []

    def get(self, reference):
        assert (reference.kind, reference.name) == ("Job", "job")
        self.now = self.steps.pop(0)
        return self.now.get("job", {})

    def list(self, *kind, namespace, labels):
        assert (*kind, labels) == ("v1", "Pod", "batch.kubernetes.io/job-name=job")
        names = ("name", "uid", "creationTimestamp")
        return [
            {"metadata": {"namespace": namespace, **dict.fromkeys(names, name)}, "status": status}
            for name, status in self.now.get("pods", {}).items()
        ]

    def lines(self, path, *, query, quiet_seconds):
        self.logs.append(path.split("/")[-2])
        assert (query["container"], query["follow"]) == ("stage", "true")
        assert quiet_seconds > 60
        for each in self.now.get("log", []):
            if isinstance(each, Exception):
                raise each
            yield each


def finished(kind, reason="", message=""):
    return {"status": {"conditions": [{"type": kind, "status": "True", "reason": reason, "message": message}]}}


def follow(*steps):
    api, lines, waits = Scripted(*steps), [], []
    told = {"line": lines.append, "waiting": waits.append, "pause": lambda _: None}
    return batch_jobs.follow(api, "vision", "job", "stage", **told), lines, waits, api


RUNNING, SUCCEEDED = {"phase": "Running"}, {"phase": "Succeeded"}


def test_staging_is_followed_across_pods_and_broken_logs():
    failed, no_node = {"phase": "Failed"}, "0/5 nodes are available"
    scheduled = {"type": "PodScheduled", "status": "False", "message": no_node}
    pulling = {"waiting": {"reason": "ErrImagePull", "message": "no"}}
    end, lines, waits, api = follow(
        {},
        {"pods": {"1": {"phase": "Pending", "conditions": [scheduled]}}},
        {"pods": {"1": {"phase": "Pending", "containerStatuses": [{"state": pulling}]}}},
        {"pods": {"1": RUNNING}, "log": ["a", "b"]},
        {"pods": {"1": failed}},
        {"pods": {"1": failed, "2": RUNNING}, "log": ["c"]},
        {"pods": {"1": failed, "2": SUCCEEDED}, "job": finished("Complete")},
    )
    assert (end.succeeded, lines, api.logs) == (True, ["a", "b", "c"], ["1", "2"])
    assert waits == ["the Job controller makes its pod", f"no node takes the pod: {no_node}", "ErrImagePull: no"]
    running = {"pods": {"1": RUNNING}}
    end, lines, _, _ = follow(
        {**running, "log": ["a", ClusterError("reset")]},
        {**running, "log": [ApiError.of(400, '{"message": "container is waiting to start"}')]},
        {**running, "log": ["b"]},
        {"pods": {"1": SUCCEEDED}, "job": finished("Complete")},
    )
    assert (end.succeeded, lines) == (True, ["a", "b"])
    with pytest.raises(ApiError, match="forbidden"):
        follow({**running, "log": [ApiError.of(403, '{"message": "forbidden"}')]})


def test_staging_job_owns_its_code_and_reports_its_failure():
    config_map, job = objects()
    api = RememberingApi()
    batch_jobs.submit(api, job, (config_map,))
    made, code = api.objects
    assert (made["kind"], made["spec"]["suspend"], api.patches) == ("Job", True, [{"spec": {"suspend": False}}])
    assert (code["kind"], code["metadata"]["ownerReferences"][0]["uid"]) == ("ConfigMap", "u")

    def refuse(manifest):
        if manifest["kind"] == "ConfigMap":
            raise ApiError.of(403, '{"message": "exceeded quota"}')
        return RememberingApi.create(api, manifest)

    api = RememberingApi()
    api.create = refuse
    with pytest.raises(ApiError, match="exceeded quota"):
        batch_jobs.submit(api, job, (config_map,))
    assert (api.objects, api.patches) == ([], [])
    failed = finished("Failed", "PodFailurePolicy", "exit code 1")
    ends = [follow(step)[0] for step in ({"pods": {}, "job": failed}, {"job": None})]
    assert ends == [batch_jobs.End(False, each) for each in ("PodFailurePolicy: exit code 1", "the Job was deleted")]
    job = {"metadata": {"creationTimestamp": "2026-11-22T00:00:00Z"}, "spec": {"suspend": True}}
    made = 1795305600
    later = ((job, made + 61), (job, made + 1), ({**job, "spec": {}}, made + 61))
    assert [batch_jobs.is_left_over(*each) for each in later] == [True, False, False]


def test_progress_without_a_terminal_is_printed_as_lines():
    out = io.StringIO()
    shown = ShownProgress(Console(file=out, width=200), None)
    line = {"stage": "copying", "bytes": 15e8, "total_bytes": 3e10, "files": 0, "total_files": 1, "rate": 1.053e8}
    for _ in range(2):
        shown.waiting("no node takes the pod")
    for each in (line, line, {**line, "message": "a.bin came with wrong bytes"}):
        shown.line(json.dumps(each))
    shown.line("Traceback (most recent call last):")
    assert out.getvalue().splitlines() == [
        "Waiting: no node takes the pod",
        "copying 1.5 GB of 30.0 GB, 0 of 1 files, 105.3 MB/s",
        "a.bin came with wrong bytes",
        "Traceback (most recent call last):",
    ]
    assert shown.last["message"] == "a.bin came with wrong bytes"
    assert [amount(each) for each in (0, 999, 1000, 3.2e13)] == ["0 B", "999 B", "1.0 kB", "32.0 TB"]
