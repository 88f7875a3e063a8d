"""Training images: what they are made of, the engines that build them (recorded), ECR (canned), Jobs in the cluster."""

import base64
import json
import random
import re
import shutil
import subprocess
import tarfile
from contextlib import nullcontext
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import boto3
import kubernetes_validate
import pytest
from botocore.stub import Stubber
from cluster_snapshots import group, outputs
from typer.testing import CliRunner

from trainium_eks.aws import ecr, sessions
from trainium_eks.aws.ecr import Login, Repository
from trainium_eks.cli import images as commands
from trainium_eks.cli.app import app
from trainium_eks.cli.images import ImageOptions
from trainium_eks.client.cluster_access import StackAccess
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.jobs.data.tree import NotInsideError
from trainium_eks.jobs.images import engines, image_jobs, images
from trainium_eks.jobs.images.engines import EngineError
from trainium_eks.jobs.images.images import ImageRequest
from trainium_eks.jobs.objects import batch_jobs
from trainium_eks.local.images.images import workloads
from trainium_eks.local.paths import Paths
from trainium_eks.model.catalogue import training_images
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.model.catalogue.training_images import BASES
from trainium_eks.model.catalogue.versions import KUBERNETES
from trainium_eks.model.outputs import NamespaceOutput

URL = "123456789012.dkr.ecr.us-west-2.amazonaws.com/trn-dev/training"
TRN1 = BASES["trn1"].image or ""
REQUEST = ImageRequest("trn1", TRN1)
LOGIN = Login("123456789012.dkr.ecr.us-west-2.amazonaws.com", "AWS", "the-password")
TEAM = NamespaceOutput(name="vision", queues=("eyes",), service_account="training", claim="fsx-claim")


# --- What an image is made of -----------------------------------------------------------------------------------------


def test_tag_follows_from_all_inputs_and_the_context_has_only_our_package(tmp_path):
    (tmp_path / "train.py").write_text("1")
    made = [
        images.context(REQUEST, workloads()),
        images.context(replace(REQUEST, base="public.ecr.aws/x/y:1"), workloads()),
        images.context(replace(REQUEST, user_id=2000), workloads()),
        images.context(REQUEST, workloads(), requirements="x==1"),
        images.context(REQUEST, workloads(), dockerfile="FROM scratch"),
        images.context(REQUEST, workloads(), own_files=tmp_path),
    ]
    assert len({images.tag(REQUEST, each) for each in made}) == len(made)
    again = images.context(REQUEST, workloads())
    assert images.tag(REQUEST, made[0]) == images.tag(REQUEST, again)
    assert made[0].archive() == again.archive()
    with tarfile.open(fileobj=BytesIO(again.archive())) as tar:
        assert {each.name: each.mode for each in tar} == dict.fromkeys(again.files, 0o644)
    for name in ("a.py", "__pycache__/a.pyc", ".git/config", "deep/b.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "deep" / "inside").symlink_to("../a.py")
    made = images.context(REQUEST, workloads(), own_files=tmp_path)
    assert {"a.py", "deep/b.txt", "Dockerfile", "requirements.txt", "trainium_workloads/gang.py"} <= set(made.files)
    assert made.files["deep/inside"] == b"x"
    assert not [path for path in made.files if "pycache" in path or ".git" in path]
    (tmp_path / "deep" / "out").symlink_to("/etc/passwd")
    with pytest.raises(NotInsideError, match=r"deep/out is a link out of .*, to /etc/passwd; replace it with a copy"):
        images.context(REQUEST, workloads(), own_files=tmp_path)


def test_every_instance_type_has_a_pinned_base():
    chosen = {name: training_images.target_of(name) for name in CATALOGUE}
    assert (chosen["trn1n.32xlarge"], chosen["trn2.48xlarge"]) == ("trn1", "trn2")
    for name, target in chosen.items():
        assert (target == "cpu") == (CATALOGUE[name].family == "cpu"), name
    for target, base in BASES.items():
        assert base.image is None or training_images.reference_problems(base.image, target) == []


OWN = "registry.example/team/neuron"
USER = {"name": "v", "queues": [], "serviceAccount": "s", "claim": "", "trainingUserId": 2001}
GPUS = {"nodeGroups": [group("g", "nvidia.com/gpu", 4, 1)]}
CONFIGS = {"baseImages": {"trn2": f"{OWN}:2.14"}}


def test_image_request_follows_from_the_stack_and_the_command():
    for stack, target, base, expected in (
        ({}, None, None, REQUEST),
        (GPUS, None, None, ImageRequest("cuda", BASES["cuda"].image or "")),
        (CONFIGS, "trn2", None, ImageRequest("trn2", f"{OWN}:2.14")),
        (CONFIGS, "trn2", f"{OWN}:2.15", ImageRequest("trn2", f"{OWN}:2.15")),
        ({"namespaces": [USER]}, None, None, replace(REQUEST, user_id=2001)),
        ({}, "tnr1", None, "--for: .*did you mean trn1"),
        ({}, "trn2", None, "--base: .*name one: --base IMAGE"),
        ({}, "trn1", "team/base:1.0", "--base: .*not an image with its registry"),
        ({}, "trn1", "registry.example/team/base:latest", "--base: .*means another image tomorrow"),
    ):
        found = images.request_for(outputs(**stack), target, base)
        if isinstance(expected, str):
            assert re.match(expected, f"{found.path}: {found.reason} {found.fix}")
        else:
            assert found == expected


# --- Engines ----------------------------------------------------------------------------------------------------------


class Recorded:
    """Engines that record their commands; the services of ``broken`` do not run, the subcommand ``fails`` fails."""

    def __init__(self, broken=(), fails=""):
        self.broken, self.fails = broken, fails
        self.held, self.ran, self.inputs, self.built = [], [], [], set()

    def run(self, argv, *, stdin=""):
        self.ran.append(list(argv))
        self.inputs.append(stdin)
        if argv[1] == self.fails:
            raise EngineError(f"{argv[0]} {argv[1]} ended with code 125:\ndial tcp: lookup: no such host")
        if argv[1] == "build":
            directory = Path(argv[-1])
            self.built = {path.relative_to(directory).as_posix() for path in directory.rglob("*")}
            self.held.append(argv[argv.index("--tag") + 1])

    def ask(self, argv):
        if argv[1] in ("info", "--version", "version"):
            return (1, "Cannot connect to the daemon") if argv[0] in self.broken else (0, "")
        return (0, "") if argv[-1] in self.held else (125, "no such image")

    def commands(self):
        return [each[1] for each in self.ran]


@pytest.fixture
def installed(monkeypatch):
    """Puts engines on PATH, and returns what notes their commands."""

    def only(*names, **given):
        monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if name in names else None)
        made = Recorded(**given)
        monkeypatch.setattr(engines, "run", made.run)
        monkeypatch.setattr(engines, "ask", made.ask)
        return made

    return only


@pytest.mark.parametrize(
    ("there", "broken", "asked", "found"),
    [
        (("docker", "podman", "finch"), (), "finch", "finch"),
        (("docker", "podman", "finch"), ("docker",), None, "podman"),
        ((), (), None, r"none of docker, podman, finch is on PATH.*--in-cluster"),
        ((), (), "podman", "podman is not on PATH"),
        (("docker",), ("docker",), None, r"(?s)Cannot connect to the daemon .start Docker Desktop.*--in-cluster"),
    ],
)
def test_first_working_engine_builds_or_the_cluster_does(installed, there, broken, asked, found):
    installed(*there, broken=broken)
    if found in engines.ENGINES:
        assert engines.find(asked).name == found
    else:
        with pytest.raises(EngineError, match=found):
            engines.find(asked)


@pytest.mark.parametrize("name", engines.ENGINES)
def test_password_is_never_an_argument(name, tmp_path, installed):
    runner, file = installed(), tmp_path / "auth.json"
    engine = engines.Engine(name, file)
    for _ in ("before the login", "after it"):
        engine.push("s.example/x:1")
        file.write_text("{}")
    told = [[each for each in argv if "auth" in each] for argv in runner.ran]
    assert told == [[], ["--authfile", str(file)] if name == "podman" else []]
    engine.login(LOGIN)
    assert runner.inputs[-1] == "the-password"
    assert not [argument for argv in runner.ran for argument in argv if "the-password" in argument]
    assert ("--authfile" in runner.ran[-1]) is (name == "podman")


def test_program_output_is_shown_and_its_last_lines_are_kept(capfd):
    engines.run(["sh", "-c", "echo begins; cat >&2"], stdin="given")
    assert "begins\ngiven" in capfd.readouterr().err
    with pytest.raises(EngineError, match=r"(?s)sh -c .* ended with code 3:\ntwo\nthree"):
        engines.run(["sh", "-c", "for w in one two three; do echo $w; done; exit 3"])
    assert engines.ask(["sh", "-c", "echo x; exit 4"]) == (4, "x")


# --- ECR --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def canned(monkeypatch):
    """ECR with answers that a test writes down."""
    client = boto3.client("ecr", region_name="us-west-2", aws_access_key_id="x", aws_secret_access_key="x")
    with Stubber(client) as stubber:
        monkeypatch.setattr(sessions, "client", lambda *_: client)
        yield stubber
        stubber.assert_no_pending_responses()


def answers(canned, tag, *kinds):
    asked = {"registryId": "123456789012", "repositoryName": "trn-dev/training", "imageIds": [{"imageTag": tag}]}
    token = base64.b64encode(b"AWS:secret-of-twelve-hours").decode()
    for kind in kinds:
        if kind == "login":
            canned.add_response("get_authorization_token", {"authorizationData": [{"authorizationToken": token}]})
        elif kind == "there":
            canned.add_response("describe_images", {"imageDetails": [{"imageDigest": "sha256:1"}]}, asked)
        else:
            canned.add_client_error("describe_images", "ImageNotFoundException", expected_params=asked)


def test_ecrs_refusal_is_shown_with_the_missing_rights(canned):
    canned.add_client_error("get_authorization_token", "AccessDeniedException", "not authorized")
    with pytest.raises(sessions.NotAllowedError) as caught:
        Repository(URL).login()
    statement = json.loads(str(caught.value).partition("What pushing takes: ")[2])["Statement"][1]
    assert statement["Resource"] == "arn:aws:ecr:us-west-2:123456789012:repository/trn-dev/training"
    assert "ecr:PutImage" in statement["Action"]
    known = boto3.client("ecr", region_name="us-west-2").meta.service_model.operation_names
    assert {action.removeprefix("ecr:") for action in ecr.PUSH_ACTIONS} <= {*known}
    canned.add_client_error("describe_images", "RepositoryNotFoundException", "does not exist")
    with pytest.raises(sessions.AwsError, match="deleted after the stack's last update"):
        Repository(URL).digest("a")
    for ask in (Repository("registry.example/a").login, lambda: Repository("registry.example/a").digest("a")):
        with pytest.raises(sessions.AwsError, match=r"registry\.example/a is no image repository of ECR"):
            ask()


# --- Commands ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def exported(tmp_path):
    file = tmp_path / "exported.json"
    file.write_text(outputs(imageRepository=URL).model_dump_json(by_alias=True))
    return file


@pytest.fixture
def trn(exported):
    def call(*arguments):
        shown = CliRunner().invoke(app, ["image", *arguments, "--outputs", str(exported)])
        return shown.exit_code, shown.stdout, shown.stderr

    return call


def tag_of(exported, options=None):
    return commands.plan(options or ImageOptions(), ClusterOptions(outputs=exported)).tag


def test_an_image_is_built_for_our_nodes_from_a_pulled_base(trn, installed):
    runner = installed("finch")
    code, out, err = trn("build")
    assert code == 0, err
    reference = out.split()[0]
    assert reference.startswith(f"{URL}:trn1-")
    pull, build = runner.ran
    assert pull == ["finch", "pull", "--platform", "linux/amd64", TRN1]
    assert build[:4] == ["finch", "build", "--platform", "linux/amd64"]
    assert f"BASE={TRN1}" in build
    assert build[build.index("--tag") + 1] == reference
    assert {"Dockerfile", "requirements.txt", "trainium_workloads/stage/__main__.py"} <= runner.built
    assert trn("build")[1] == f"{reference} was built already\n"
    assert len(runner.ran) == 2


def test_push_builds_and_pushes_unless_the_repository_has_the_image(trn, exported, canned, installed):
    runner, tag = installed("docker"), tag_of(exported)
    answers(canned, tag, "absent", "login", "there", "there")
    code, out, err = trn("push", "--json")
    assert code == 0, err
    assert json.loads(out) == {"schemaVersion": 1, "image": f"{URL}:{tag}", "state": "pushed", "digest": "sha256:1"}
    assert runner.commands() == ["pull", "build", "login", "push"]
    assert runner.inputs[2] == "secret-of-twelve-hours"
    assert trn("push")[:2] == (0, f"{URL}:{tag} is there already\n")
    answers(canned, "mine", "there")
    code, _, err = trn("push", "--tag", "mine")
    assert (code, "tags of this repository never move: choose another --tag" in err) == (1, True)
    assert len(runner.ran) == 4


@pytest.mark.parametrize("fails", ["pull", "build", "login", "push"])
def test_failed_image_command_is_reported(trn, exported, canned, installed, fails):
    installed("docker", fails=fails)
    answers(canned, tag_of(exported), "absent", *["login"] * (fails in ("login", "push")))
    code, _, err = trn("push")
    assert code == 1
    assert (f"the base {TRN1} cannot be had" if fails == "pull" else f"docker {fails} ended with code 125") in err


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("build --tag a,b", "not a tag"),
        ("build --requirements /none/r.txt", "--requirements /none/r.txt: No such file or directory"),
        ("build --context /none", "--context /none is not a directory"),
        ("push --engine buildah", "is not one of docker, podman, finch"),
        ("push --in-cluster --context {own}", "give a smaller --context, or build with an engine"),
    ],
)
def test_invalid_image_command_is_refused_before_any_change(trn, exported, canned, installed, tmp_path, command, said):
    (own := tmp_path / "own").mkdir()
    (own / "big").write_bytes(random.Random(1).randbytes(800_000))
    installed("docker")
    if not command.startswith("build"):
        options = ImageOptions(context=own) if "--context" in command else ImageOptions()
        answers(canned, tag_of(exported, options), "absent")
    code, out, err = trn(*command.format(own=own).split())
    assert (code, out, said in err) == (2, "", True), err


def test_stack_without_a_repository_builds_no_image(trn, exported, monkeypatch):
    exported.write_text(outputs().model_dump_json(by_alias=True))
    said = [trn("build")]
    local = StackAccess("local", outputs(), paths=Paths(Path("/none")))
    monkeypatch.setattr(commands, "find_stack", lambda *_: local)
    said += [trn("build"), trn("push")]
    assert [code for code, _, _ in said] == [2] * 3
    words = ("the stack has no image repository", *["local images make torch"] * 2)
    assert all(each in err for each, (_, _, err) in zip(words, said, strict=True))


# --- In the cluster ---------------------------------------------------------------------------------------------------


BUILD = image_jobs.build_objects(TEAM, "image-x-1", f"{URL}:x", images.context(REQUEST, workloads()), LOGIN)


def test_build_objects_are_valid_and_only_the_secret_has_the_password():
    objects = [BUILD[0], *BUILD[1]]
    for each in objects:
        kubernetes_validate.validate(each, KUBERNETES, strict=True)
        assert each["metadata"]["labels"]["trainium-eks/kind"] == "image-build"
        assert len(json.dumps(each)) < 1024 * 1024
    (secret,) = [each for each in objects if each["kind"] == "Secret"]
    config = base64.b64decode(secret["data"][".dockerconfigjson"]).decode()
    assert json.loads(config)["auths"][LOGIN.registry]["auth"] == base64.b64encode(b"AWS:the-password").decode()
    others = json.dumps([each for each in objects if each is not secret])
    assert "the-password" not in others
    assert base64.b64encode(b"the-password").decode() not in others


def test_cluster_build_is_within_the_baseline():
    pod = BUILD[0]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    # To forbid escalation would take newuidmap its right; a profile named Unconfined would be refused.
    forbidden = {"privileged", "capabilities", "allowPrivilegeEscalation"}
    assert not forbidden & container.get("securityContext", {}).keys()
    assert ("seccompProfile" in pod["securityContext"], pod["securityContext"]["runAsUser"]) == (False, 1000)
    assert pod["nodeSelector"] == {"trainium-eks/pool": "cpu"}
    shell, flags, script, _, reference, *options = container["command"]
    assert (shell, flags, reference) == ("bash", "-euc", f"{URL}:x")
    assert (f"BASE={TRN1}" in options, URL in script) == (True, False)
    assert subprocess.run(["bash", "-n", "-c", script], check=False).returncode == 0


@pytest.mark.parametrize("ends", [True, False])
def test_cluster_build_is_followed_to_its_end(trn, exported, canned, monkeypatch, ends):
    tag = tag_of(exported)
    answers(canned, tag, "absent", "login", *["there"] * ends)
    submitted = []
    session = nullcontext(SimpleNamespace(namespace=TEAM, api=None))
    monkeypatch.setattr(commands, "open_session", lambda _: session)
    monkeypatch.setattr(batch_jobs, "submit", lambda _, job, needs: submitted.extend([job, *needs]))
    end = batch_jobs.End(ends, "" if ends else "BackoffLimitExceeded")
    monkeypatch.setattr(batch_jobs, "follow", lambda *_, **__: end)
    code, out, err = trn("push", "--in-cluster")
    assert [each["kind"] for each in submitted] == ["Job", "ConfigMap", "Secret"]
    assert (code, out) == ((0, f"{URL}:{tag} pushed\n") if ends else (1, "")), err
    assert ends or f"{URL}:{tag} is not there: BackoffLimitExceeded" in err
