"""What TorchX makes of the component is what ``trn`` submits, but for what TorchX cannot say."""

import ast
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from training_jobs import job

from trainium_eks.jobs.objects import pod, torchx_app, volcano_job
from trainium_eks.jobs.objects.job import CompileCache, Program
from trainium_eks.jobs.objects.options import TrainOptions
from trainium_eks.jobs.objects.resources import local_share
from trainium_eks.model.catalogue.instances import CATALOGUE

ROOT = Path(__file__).resolve().parents[4]
COMPONENT = ROOT / "trainium_eks" / "client" / "torchx_components.py"

_PROGRAM = """
import json, sys
from torchx.runner import get_runner
from torchx.schedulers import kubernetes_scheduler as kubernetes
component, options, settings, name = json.load(sys.stdin)
kubernetes.make_unique = lambda _: name
if hasattr(kubernetes, "Opts"):  # the nightly asks the API server otherwise
    settings["validate_spec"] = False
with get_runner("torchx") as runner:
    made = runner.dryrun_component(component, options, "kubernetes", settings)
json.dump(kubernetes.sanitize_for_serialization(made.request.resource), sys.stdout)
"""


def _pythons():
    """Interpreter of each TorchX that is here, by its version."""
    named = [Path(each) for each in os.environ.get("TRN_TORCHX", "").split(os.pathsep) if Path(each).is_file()]
    found = {}
    for program in [*named, *filter(None, [shutil.which("torchx")])]:
        python = str(Path(program).parent / "python")
        said = _ran([python, "-c", "import torchx; print(torchx.__version__)"])
        if said.returncode == 0:
            found[said.stdout.strip()] = python
    return found


def _ran(command, **settings):
    return subprocess.run(command, capture_output=True, text=True, check=False, **settings)


PYTHONS = _pythons()
needs_torchx = pytest.mark.skipif(
    not PYTHONS, reason="no torchx: put 0.7.0 on PATH, or name its program in TRN_TORCHX (several: separated by colons)"
)


def _torchx(version, wanted):
    """The Volcano job that TorchX makes from the command that ``trn train`` prints."""
    words = torchx_app.run_command(wanted, str(COMPONENT))
    settings = dict(pair.split("=") for pair in words[words.index("-cfg") + 1].split(","))
    options = words[words.index(f"{COMPONENT}:trainium_ddp") + 1 :]
    told = json.dumps([f"{COMPONENT}:trainium_ddp", options, settings, wanted.name])
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = _ran([PYTHONS[version], "-W", "ignore", "-c", _PROGRAM], input=told, env=env)
    assert result.returncode == 0, result.stderr
    made = json.loads(result.stdout)
    for task in made["spec"]["tasks"]:
        container = task["template"]["spec"]["containers"][0]
        # The nightly's number of the command that asked.
        container["env"] = [each for each in container["env"] if each["name"] != "TORCHX_INTERNAL_SESSION_ID"]
    return made


def _as_nightly(wanted, version):
    """What the nightly adds to 0.7.0's object: the image's name for the program, and the overlay."""
    made = json.loads(json.dumps(volcano_job.torchx_job(wanted)).replace('"0.7.0"', json.dumps(version)))
    for task in made["spec"]["tasks"]:
        spec = task["template"]["spec"]
        overlay = pod.pod_overlay(wanted)["spec"]
        spec["volumes"][0] = overlay.pop("__join__:volumes:name")[0]
        spec |= overlay
        spec["containers"][0]["env"].append({"name": "TORCHX_IMAGE", "value": wanted.image})
    return made


READ = {bool: "True".__eq__, dict: lambda text: dict(each.split("=", 1) for each in text.split(","))}
JOBS = {
    "bert": job(),
    "a GPU type": job("p4d.24xlarge"),
    "TorchNeuron": job("trn2.48xlarge", precision="fp32"),
    "local": job(
        backend="cpu", ranks_per_node=1, resources=local_share(CATALOGUE.find("trn1.32xlarge")), launcher="gang"
    ),
    "a precision": job(precision="tf32"),
    "a module": job(program=Program(module="trainium_workloads.gradient_sum", arguments=("--steps", "3")), nodes=1),
    "a cache": job(cache=CompileCache("bert-64-bf16", {"batch": "16"}), data=("bert/train",)),
    "a compilation": job(kind="compile", cache=CompileCache("bert-64-bf16", {}), retries=3),
    "etcd": job(rendezvous="etcd-server.torchx-etcd.svc.cluster.local:2379", priority="training-high"),
    "variables": job(
        env={"NEURON_CC_FLAGS": "--model-type transformer", "A": "$HOME"}, max_restarts=2, failed_starts="5:1"
    ),
    "no metrics": job(metrics_port=0),
    "no volume": job(claim="", service_account=""),
}


@pytest.mark.slow
@needs_torchx
@pytest.mark.parametrize("version", PYTHONS)
@pytest.mark.parametrize("name", JOBS)
def test_torchx_builds_the_same_job(name, version):
    wanted = JOBS[name]
    expected = volcano_job.torchx_job(wanted) if version == "0.7.0" else _as_nightly(wanted, version)
    assert _torchx(version, wanted) == expected


@pytest.mark.slow
@needs_torchx
@pytest.mark.parametrize("version", PYTHONS)
def test_the_printed_command_works_from_anywhere(version, tmp_path):
    program = Path(PYTHONS[version]).parent / "torchx"
    words = torchx_app.run_command(job(), str(COMPONENT))
    words[words.index("-cfg") + 1] += "" if version == "0.7.0" else ",validate_spec=False"
    command = shlex.join([str(program), "run", "--dryrun", *words[2:]])
    bare = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    result = _ran(["bash", "-c", command], cwd=tmp_path, env=bare)
    assert result.returncode == 0, result.stderr
    assert "kind: Job" in result.stdout
    assert "aws.amazon.com/neuron: '16'" in result.stdout


@pytest.mark.parametrize("name", JOBS)
def test_printed_options_and_defaults_rebuild_the_job(name):
    """As TorchX reads them, which need not be here."""
    wanted = JOBS[name]
    functions = [each for each in ast.parse(COMPONENT.read_text()).body if isinstance(each, ast.FunctionDef)]
    [component] = [each.args for each in functions if each.name == "trainium_ddp"]
    defaults = map(ast.literal_eval, component.defaults)
    given = dict(zip([each.arg for each in component.args][-len(component.defaults) :], defaults, strict=True))
    words = torchx_app.run_command(wanted, str(COMPONENT))
    words = words[words.index(f"{COMPONENT}:trainium_ddp") + 1 :]
    for option, text in zip(words[::2], words[1::2], strict=True):
        default = given.get(option[2:], "")
        given[option[2:]] = READ.get(type(default), type(default))(text)
    asked = wanted.options
    kept = TrainOptions(data=asked.data, failed_starts=asked.failed_starts, max_restarts=asked.max_restarts)
    expected = torchx_app._application(replace(wanted, name=torchx_app._NAME, options=kept))
    assert torchx_app.application(**given) == expected


def test_torchx_component_imports_no_other_package_and_refuses_bad_values():
    """Neither Pulumi nor pydantic is where TorchX is."""
    check = (
        f"import sys; sys.path.append({str(ROOT)!r}); from trainium_eks.jobs.objects import torchx_app; "
        "print(*{name.partition('.')[0] for name in sys.modules} & {'pulumi', 'pydantic', 'yaml', 'kubernetes'})"
    )
    result = _ran([shutil.which("python3") or "python3", "-I", "-S", "-c", check])
    assert (result.stdout.strip(), result.stderr) == ("", "")
    for changes, said in (
        ({"script": "/opt/launch.sh"}, r"launch\.sh: it is a script of a shell.*trn starts the ranks itself"),
        ({"script": "t.py", "nproc_per_node": 3}, r"--nproc_per_node 3: a trn1\.32xlarge has 1, 2, 8, 32"),
        ({"script": "t.py", "precision": "fp61"}, r"--precision fp61: xla has "),
        ({"script": "t.py", "module": "m"}, "give either --script or --module"),
        ({"script": "t.py", "instance_type": "trn1.32xl"}, r"--instance_type: .*trn1\.32xlarge"),
    ):
        names = inspect.signature(torchx_app.application).parameters
        given = dict.fromkeys(names, "") | {"instance_type": "trn1.32xlarge", **changes}
        with pytest.raises(ValueError, match=said):
            torchx_app.application(**given)


# --- Without any cluster: TorchX's local_cwd scheduler ----------------------------------------------------------------


@pytest.mark.slow
@needs_torchx
@pytest.mark.parametrize("version", PYTHONS)
def test_two_nodes_agree_on_the_sum(version, tmp_path):
    """With the launcher that needs no torch, which this machine may not have."""
    words = f"--image {tmp_path} --module trainium_workloads.gradient_sum --nnodes 2 --nproc_per_node 1".split()
    words += ["--script_args", f"--steps 3 --step-seconds 0 --output {tmp_path / 'output'}"]
    words += ["--backend", "cpu", "--launcher", "gang", "--claim", ""]
    program, settings = str(Path(PYTHONS[version]).parent / "torchx"), f"log_dir={tmp_path / 'logs'}"
    command = [program, "run", "--wait", "-s", "local_cwd", "-cfg", settings, f"{COMPONENT}:trainium_ddp", *words]
    (tmp_path / "python3").symlink_to(sys.executable)
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "workloads"), "LOGLEVEL": "INFO"}
    environment.pop("VC_TRAINER_0_HOSTS", None)
    result = _ran(command, cwd=tmp_path, env=environment)
    said = "\n".join(file.read_text() for file in (tmp_path / "logs").rglob("*.log") if file.is_file())
    assert result.returncode == 0, f"{result.stderr}\n{said}"
    agreed = re.findall(r"rank \d: the gradients' sum is 3; 2 of 2 ranks agree", result.stderr + result.stdout + said)
    assert len(agreed) >= 2
