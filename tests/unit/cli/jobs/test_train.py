"""``trn train`` and ``trn scale`` as they are typed, on an API server that only remembers."""

import json
import shlex
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest
import typer
import yaml
from cluster_snapshots import EFA, NEURON, group, outputs
from outcome import ends, raising
from remembering_api import IMAGE, NOW, RememberingApi, document, take_seat, trn
from typer.testing import CliRunner

from trainium_eks.aws.sessions import Aws, AwsError, GroupSize, NotAllowedError
from trainium_eks.cli.app import app
from trainium_eks.cli.jobs import training
from trainium_eks.client import scaling
from trainium_eks.client.cluster_access import StackAccess
from trainium_eks.diagnose.local_report import LocalReport
from trainium_eks.jobs.objects.identity import JOB_API, PYTORCH_API, TRAINER_API
from trainium_eks.jobs.objects.options import TrainOptions, words
from trainium_eks.jobs.submit.examples import EXAMPLES
from trainium_eks.local.images import images
from trainium_eks.local.images.images import LocalImage
from trainium_eks.local.nodes import resizing
from trainium_eks.local.paths import Paths
from trainium_eks.local.runtime.isolation import Chosen
from trainium_eks.local.spec.plan import Isolation
from trainium_eks.model.outputs import StackOutputs
from trainium_eks.model.validation.problems import Problem

STACK = outputs(
    nodeGroups=[
        group("ng1", NEURON, 8, 2),
        {**group("free", NEURON, 8, None), "minSize": 1},
        {**group("trn2", NEURON, 16, 0), "instanceType": "trn2.48xlarge"},
    ],
    queues={"test": {NEURON: 64, EFA: 32}},
    imageRepository="123456789012.dkr.ecr.us-west-2.amazonaws.com/train",
)


@pytest.fixture
def api(monkeypatch):
    """A deployed stack's API server; ECR holds one image."""
    made = RememberingApi(JOB_API)
    made.statuses["Job"] = {"state": {"phase": "Completed", "lastTransitionTime": NOW}}
    take_seat(monkeypatch, StackAccess("dev", STACK), made)
    return made


@pytest.fixture
def local(monkeypatch, tmp_path):
    """A local cloud's."""
    made = RememberingApi(JOB_API)
    take_seat(monkeypatch, StackAccess("local", STACK, LocalReport(), Paths.of(tmp_path, "local")), made)
    monkeypatch.setattr(images, "find", {"torch": _image("torch"), "python": _image("python")}.get)
    return made


def _image(name):
    return LocalImage(name, "0" * 12, Path("/nowhere"), has_torch=name == "torch")


def _container(job):
    return job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]


# --- train ------------------------------------------------------------------------------------------------------------


def _typed(number, option):
    """Return the words that give an option another value than its default, and that value, no two options the same."""
    kind, described = get_args(option.type)
    name = described.names[0]
    if option.default is True:
        return [name.partition("/")[2]], False
    if kind in (bool, bool | None):
        return [name.partition("/")[0]], True
    if word := next((word for word in words(kind) if word != option.default), ""):
        return [name, word], word
    if option.default == ():
        return [name, f"a{number}=b", name, "c"], (f"a{number}=b", "c")
    value = (get_args(kind) or (kind,))[0](str(number))
    return [name, str(value)], value


def test_each_option_reaches_the_job(monkeypatch):
    arrived = []

    def plan(options):
        arrived.append(options)
        raise typer.Exit

    monkeypatch.setattr(training, "SageMakerTarget", lambda _: SimpleNamespace(plan=plan))
    named = [each for each in fields(TrainOptions) if get_args(each.type)[1].names]
    given = {each.name: _typed(number, each) for number, each in enumerate(named, start=100)}
    line = [word for words_, _ in given.values() for word in words_]
    result = CliRunner().invoke(app, ["train", *line, "--", "x", "--y"])
    assert result.exit_code == 0, result.output
    assert vars(arrived[0]) == {"arguments": ("x", "--y")} | {name: value for name, (_, value) in given.items()}
    assert trn("train --on sagemaker").exit_code == 0
    assert vars(arrived[1]) == vars(TrainOptions(on="sagemaker"))


def test_submitted_job_equals_the_dry_run_with_its_torchx_command(api):
    shown = trn("train --module train --dry-run -- --batch_size 16").stdout
    assert yaml.safe_load(shown)["metadata"]["namespace"] == "training"
    assert "&id" not in shown
    assert "# The same by TorchX: torchx run -s kubernetes -cfg queue=test,namespace=training" in shown
    dry = document("train --module train --name one --dry-run --json")
    assert dry["torchx"][:2] == ["torchx", "run"]
    assert api.objects == []
    told = document("train --module train --name one --json")
    [made] = api.objects
    assert made["spec"] == dry["job"]["spec"]
    assert len(made["spec"]["tasks"]) == 2
    assert (told["job"], told["worldSize"], told["queue"], told["image"]) == ("one", 64, "test", IMAGE)


def test_checkpoint_interval_is_printed(monkeypatch, api):
    volume = {"fileSystemId": "fs-1", "dnsName": "fs-1.fsx", "mountName": "abcde", "capacityGib": 1200, "bucket": ""}
    shared = {"sharedVolume": {**volume, "writeMegabytesPerSecond": 293.0}}
    stack = StackOutputs.parse({**STACK.model_dump(by_alias=True), **shared})
    take_seat(monkeypatch, StackAccess("dev", stack), api)
    every = "  Output: /data/output/one\n  Checkpoints: every 56m (TRN_CHECKPOINT_SECONDS)"
    useful = "each takes 34s, a fault every 131d23h: 99.0 % of the time is useful.\n"
    ends(0, trn("train --module train --name one --state-gb 10 --detach"), f"{every}; {useful}")
    assert document("train --module train --state-gb 10 --json")["checkpointSeconds"] == 3360
    asked = trn("train --module train --name two --checkpoint-seconds 90 --detach")
    assert "Checkpoints:" not in asked.stderr
    assert {"name": "TRN_CHECKPOINT_SECONDS", "value": "90"} in _container(api.objects[-1])["env"]


def test_jobs_on_one_machine_have_their_own_ports(local, tmp_path):
    paths = Paths.of(tmp_path, "local")
    paths.pods.mkdir(parents=True)
    for isolation in Isolation:
        Chosen(isolation).save(paths.pods)
        made = [document("train --module train --dry-run --json")["job"] for _ in range(2)]
        ports = {_container(each)["ports"][1]["containerPort"] for each in made}
        assert len(ports | {9600}) == (1 if isolation is Isolation.NET else 3)


def test_precompile_fills_the_compile_cache_at_the_given_precision(api):
    made = document("train --precompile --module train --name one --model bert --dry-run --json")["job"]
    assert made["metadata"]["labels"]["trainium-eks/kind"] == "compile"
    assert made["metadata"]["annotations"]["trainium-eks/cache-key"] == "bert-64x-bf16-sdk2.30.0"
    for options, precision in (("", "bf16"), ("--no-bf16", "fp32"), ("--precision tf32", "tf32")):
        told = document(f"train --module train --dry-run --json {options}")
        assert {"name": "TRN_PRECISION", "value": precision} in _container(told["job"])["env"]
    result = trn("train --example bert --dry-run --json")
    assert (_arguments(result, EXAMPLES["bert"].module), "A small one" in result.stderr) == ([], False)


def test_absolute_script_path_and_missing_script_are_refused(api, tmp_path, monkeypatch):
    script = tmp_path / "train.py"
    script.write_text("print(1)")
    for workspace in ("", " --workspace /usr"):
        ends(2, trn(f"train --script {script}{workspace}"), f"--workspace {tmp_path} --script train.py")
        assert api.objects == []
    named = document(f"train --script image:{script} --dry-run --json")
    assert "initContainers" not in named["job"]["spec"]["tasks"][0]["template"]["spec"]
    document(f"train --workspace {tmp_path} --script {script} --json")
    assert api.objects[0]["kind"] == "ConfigMap"
    monkeypatch.chdir(tmp_path)
    said = ends(2, trn("train --script none.py --queue tset"), "set --queue to test")
    assert (said.count("--script"), len(api.objects)) == (1, 2)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("train --example gradient-sums", "did you mean gradient-sum?"),
        ("train --module m --backend gpu", "gpu: it is not an allowed value\n    allowed: xla, neuron, cuda, cpu"),
        ("train --script launch.sh --torchx", "fix: trn starts the ranks itself: --script FILE.py"),
        ("train --module torch.distributed.run -- train.py", "it is a launcher, and each rank would start more ranks"),
        ("train --module src/train.py", "a file is named by --script src/train.py"),
        ("train --module team.train --workspace .", "it is used only with a script"),
        ("train --module m --env A", "write it as NAME=VALUE"),
        ("train --module m --env HF_TOKEN=hf_Word", "trn secret hugging-face; then --hf-secret hugging-face"),
        ('train --module m --script-args "\'"', "cannot be read as words of a shell"),
        ("train --module m --env WANDB_API_KEY=hf_Word", "trn secret tracking --track; then --track-secret tracking"),
        ("train --module m --track-secret s:key", "set --track-secret to tracking"),
        ("train --module m --track-secret other", "trn secret other --track"),
        ("train --module m --kind trainjob --torchx", "TorchX submits Volcano jobs alone"),
        ("train --module m --kind pytorchjob --rendezvous etcd", "set --rendezvous to c10d"),
        ("train --module m --kind trainjob --precompile", "set --kind to volcano"),
        ("train --module m --hf-secret s --torchx", "TorchX gives a container no Secret"),
        ("train --module m --track-secret s --torchx", "TorchX gives a container no Secret"),
        ("train --module m --all-or-nothing --no-scale", "--no-scale scales nothing"),
        ("scale ng1 5", "set NODES to 4"),
        ("scale free 0", "set NODES to 1"),
        ("scale gn1 1", "set --group to ng1"),
    ],
)
def test_invalid_train_command_is_refused_before_creation(api, scaled, command, words):
    api.served |= {PYTORCH_API, TRAINER_API}
    api.create(_secret("s"))
    assert "hf_Word" not in ends(2, trn(command), words)
    assert [each["kind"] for each in api.objects] == ["Secret"]
    assert scaled == []


def test_image_that_cannot_run_locally_is_refused(local, monkeypatch):
    for command, fix in (
        ("train --example bert", "trn local images make torch"),
        ("train --example bert --image local/python", "trn local images make torch"),
        ("train --example gradient-sum --image local/none", "make it with "),
        ("train --example gradient-sum --image repo/x:1", "set --image to local/torch"),
    ):
        there = {"python": _image("python"), "local/python": _image("python")}
        there |= {} if "bert" in command else {"torch": _image("torch")}
        monkeypatch.setattr(images, "find", there.get)
        ends(2, trn(command), fix)
        assert local.objects == []


def test_missing_rights_or_volcano_are_reported(api):
    api.is_allowed = False
    refused = "you may not submit Volcano jobs in the namespace training"
    ends(2, trn("train --module m --nodes 9"), refused, "set --nodes to 4")
    api.is_allowed = True
    api.served.remove(JOB_API)
    ends(0, trn("train --module m --dry-run"))
    ends(1, trn("train --module m"), "there is no Volcano in this cluster")


def _arguments(result, module):
    """What the module is given on the last node."""
    [container] = json.loads(result.stdout)["job"]["spec"]["tasks"][-1]["template"]["spec"]["containers"]
    return shlex.split(container["command"][-1].partition(f"-m {module}")[2].partition("&")[0])


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_on_a_local_stack_is_small_unless_arguments_are_given(local, name):
    example, line = EXAMPLES[name], f"train --example {name} --name one --dry-run --json"
    result = trn(line)
    assert _arguments(result, example.module) == list(example.local_arguments)
    said = f"A small one, for this machine: --example {name} -- {shlex.join(example.local_arguments)}"
    assert (said in result.stderr) == bool(example.local_arguments)
    for theirs in ("-- --steps 9", "--script-args '--steps 9'"):
        result = trn(f"{line} {theirs}")
        assert (_arguments(result, example.module), "A small one" in result.stderr) == (["--steps", "9"], False)


def test_exit_code_is_the_jobs_and_a_missing_image_is_refused(api, monkeypatch):
    told = document("train --module m --wait --json")
    assert told["state"] == "Completed"
    api.statuses["Job"]["state"]["phase"] = "Failed"
    assert trn("train --module m --wait").exit_code == 1

    monkeypatch.setattr(Aws, "image_problem", lambda *_: Problem("--image", "the repository has no image x", "push it"))
    ends(2, trn("train --module m --image a/b:x"), "the repository has no image x")
    # An ECR that cannot be asked does not stop a job.
    monkeypatch.setattr(Aws, "image_problem", raising(AwsError("cannot look into ECR")))
    ends(0, trn("train --module m --image a/b:x --detach"), "warning: cannot look into ECR")
    monkeypatch.setattr(Aws, "newest_image", lambda *_: "")
    ends(2, trn("train --module m"), "trn image push")


def test_torchx_names_the_job(api, tmp_path, monkeypatch):
    with monkeypatch.context() as without:
        without.setenv("PATH", "")
        ends(2, trn("train --module m --torchx"), "pip install 'torchx[kubernetes]==0.7.0'")
    torchx = tmp_path / "torchx"
    torchx.write_text('#!/bin/sh\necho "$@" > $0.args\necho kubernetes://torchx/training:m-abc123\n')
    torchx.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    told = document("train --module m --torchx --json")
    assert (told["job"], told["output"]) == ("m-abc123", "/data/output/m-abc123")
    words = (tmp_path / "torchx.args").read_text()
    assert words.startswith("run -s kubernetes -cfg queue=test,namespace=training,service_account=trainer --workspace ")
    assert "torchx_components.py:trainium_ddp" in words
    torchx.write_text("#!/bin/sh\necho why >&2; exit 1\n")
    assert "why" in trn("train --module m --torchx").stderr


def _secret(name):
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "training"}}


def test_job_refers_to_the_token(api):
    api.served |= {PYTORCH_API, TRAINER_API}
    ends(2, trn("train --module m --hf-secret hugging-face"), "trn secret hugging-face")
    api.create(_secret("hugging-face"))
    api.create(_secret("mine"))
    of_tracker = "--track-secret mine --env MLFLOW_TRACKING_URI=http://mlflow:5000 --nodes 1"
    variable = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hugging-face", "key": "hub"}}}
    reference = {"secretKeyRef": {"name": "mine", "key": "WANDB_API_KEY", "optional": True}}
    for form in ("volcano", "pytorchjob", "trainjob"):
        shown = trn(f"train --kind {form} --module m --hf-secret hugging-face:hub {of_tracker} --dry-run").stdout
        made = json.dumps(next(yaml.safe_load_all(shown)))
        assert json.dumps(variable) in made
        assert json.dumps({"name": "WANDB_API_KEY", "valueFrom": reference}) in made
        assert made.count('"MLFLOW_TRACKING_URI"') == 1, "what is given comes before the Secret"


@pytest.mark.parametrize(
    ("form", "served", "kinds"),
    [("pytorchjob", PYTORCH_API, ["PyTorchJob"]), ("trainjob", TRAINER_API, ["TrainingRuntime", "TrainJob"])],
)
def test_job_of_another_kind_is_submitted(api, form, served, kinds):
    shown = trn(f"train --kind {form} --module m --name one --dry-run")
    assert [each["kind"] for each in yaml.safe_load_all(shown.stdout)] == kinds
    assert "TorchX" not in shown.stdout
    setting = f"`gpuAddons.trainers: [{'v1' if form == 'pytorchjob' else 'v2'}]` in the stack's config"
    ends(1, trn(f"train --kind {form} --module m --name one"), setting)
    assert api.objects == []
    api.served.add(served)
    told = document(f"train --kind {form} --module m --name one --json")
    assert [each["kind"] for each in api.objects] == kinds
    assert (told["job"], told["form"]) == ("one", form)
    # The name is taken now, for jobs of all forms.
    assert "there is a job of this name" in trn("train --module m --name one").stderr


# --- scale ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def scaled(monkeypatch):
    """What EKS was asked for."""
    asked = []
    monkeypatch.setattr(Aws, "scale", lambda _, cluster, name, nodes: asked.append((cluster, name, nodes)))
    monkeypatch.setattr(Aws, "group_size", lambda *_: GroupSize(4, 0, 4, "ACTIVE", ("NoCapacity: none left",)))
    monkeypatch.setattr(scaling, "LOOK_SECONDS", 0.01)
    return asked


def test_scale_shows_cost_affected_jobs_and_missing_capacity(api, scaled, monkeypatch):
    dearer = "ng1: 2 to 4 nodes of trn1.32xlarge: +43.00 USD an hour (On-Demand us-"
    ends(0, trn("scale ng1 4 --no-wait"), dearer, "the next `up` sets it back")
    assert scaled == [("trn-dev", "ng1-eks", 4)]
    assert "sets it back" not in trn("scale free 4 --no-wait").stderr
    assert "may run on the nodes" not in trn("scale ng1 0 --no-wait").stderr
    ends(0, trn("train --module m --name going-on --detach"))
    api.objects[-1]["status"] = {"state": {"phase": "Running"}, "running": 2}
    assert "warning: going-on may run on the nodes that go" in trn("scale ng1 0 --no-wait").stderr
    assert "may run on the nodes" not in trn("scale ng1 3 --no-wait").stderr
    monkeypatch.setattr(scaling, "READY_SECONDS", 0.05)
    ends(1, trn("scale ng1 3"), "2 of 3 nodes are Ready after", "NoCapacity: none left")


def test_train_scales_a_group_that_is_too_small(api, scaled, monkeypatch):
    ends(0, trn("train --module m --nodes 3 --detach"))
    assert scaled == [("trn-dev", "ng1-eks", 3)]
    ends(0, trn("train --module m --nodes 2 --detach"))
    ends(0, trn("train --module m --nodes 4 --detach --no-scale"))
    assert len(scaled) == 1
    # Who may not scale submits all the same.
    monkeypatch.setattr(Aws, "scale", raising(NotAllowedError("cannot scale the node group: not authorized")))
    ends(0, trn("train --module m --nodes 3 --detach"), "ask a user who may run")
    assert len(api.objects) == 4


def test_local_stack_scales_its_simulated_nodes(local, monkeypatch):
    asked = []

    def resize(paths, name, nodes, *_):
        asked.append((name, nodes))
        local.nodes = nodes

    monkeypatch.setattr(resizing, "resize", resize)
    ends(0, trn("scale ng1 3 --all-or-nothing"), "simulated", "always has all nodes")
    assert asked == [("ng1-eks", 3)]
    said = "Local cloud: backend cpu, 2 nodes with 1 rank each"
    ends(0, trn("train --example gradient-sum --detach"), said)
    [job] = local.objects
    assert job["metadata"]["annotations"]["trainium-eks/image"] == "local/torch"
    # Without PyTorch on this machine the gang does without.
    monkeypatch.setattr(images, "find", {"python": _image("python")}.get)
    told = document("train --example gradient-sum --json")
    assert (told["image"], told["launcher"]) == ("local/python", "gang")
    local.served.remove(JOB_API)
    ends(1, trn("train --example gradient-sum"), "there is no Volcano in this cluster", "trn doctor` says what runs")
