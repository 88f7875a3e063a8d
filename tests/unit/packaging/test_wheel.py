"""The wheel: built from the tree, installed without its heavy dependencies, used from somewhere else."""

import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from trainium_eks.plan.recording import assumptions

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]

PROGRAM = """
import pulumi
import pulumi_aws as aws
import trainium_eks
from trainium_eks import Network

provider = aws.Provider("aws", region="us-west-2")
network = Network(
    "net",
    {"region": "us-west-2", "zone_ids": ["usw2-az4", "usw2-az1"]},
    pulumi.ResourceOptions(providers=[provider]),
)
pulumi.export("vpcId", network.vpc_id)
pulumi.export("where", trainium_eks.__file__)
pulumi.export("module", Network.__module__)
"""

CHARTS = """
from trainium_eks.components import _charts
import json, pathlib
print(json.dumps(sorted(path.name for path in _charts.CHARTS_DIRECTORY.iterdir())))
"""


def _run(installed: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(installed), "PATH": "/usr/bin:/bin", "HOME": str(cwd)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def test_wheel_holds_components_charts_and_type_marker(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        "trainium_eks/py.typed",
        "trainium_eks/components/network.py",
        "trainium_eks/charts/neuron-monitor/Chart.yaml",
        "trainium_eks/charts/torchx-etcd/Chart.yaml",
        "trainium_eks/local/control_plane/kwok_stages.yaml",
        "trainium_eks/docs/alerts.md",
        "trainium_eks/observe/rules/alerts.yaml",
        "trainium_eks/observe/rules/recording.yaml",
        "trainium_eks/local/toolchain/go.mod",
        "trainium_eks/local/toolchain/go.sum",
        "trainium_eks/local/toolchain/volcano/go.mod",
        "trainium_eks/local/toolchain/volcano/go.sum",
        "trainium_eks/local/toolchain/volcano/sources.sum",
        "trainium_eks/local/toolchain/training_operator/go.mod",
        "trainium_eks/local/toolchain/training_operator/go.sum",
        "trainium_eks/local/toolchain/training_operator/sources.sum",
        "trainium_eks/local/toolchain/karpenter/go.mod",
        "trainium_eks/local/toolchain/karpenter/go.sum",
        "trainium_eks/local/toolchain/karpenter/sources.sum",
        "trainium_eks/local/images/torch-requirements.txt",
        "trainium_eks/workloads/pyproject.toml",
        "trainium_eks/workloads/trainium_workloads/gang.py",
    }
    assert wanted <= names
    assert not [name for name in names if name.startswith(("components/", "tests/", "charts/", "workloads/"))]


def test_wheel_installed_elsewhere_plans_a_program_that_imports_a_component(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: other\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config: {}\n")
    (tmp_path / "__main__.py").write_text(PROGRAM)
    shown = _run(installed, tmp_path, "-m", "trainium_eks.cli", "plan", "--stack", "dev", "--json")
    assert shown.stdout, shown.stderr
    plan = json.loads(shown.stdout)
    assert plan["outputs"]["module"] == "trainium_eks.components.network"
    assert Path(plan["outputs"]["where"]).is_relative_to(installed)
    assert "aws:ec2/vpc:Vpc" in {resource["type"] for resource in plan["resources"]}


def test_wheel_finds_its_charts(installed: Path, tmp_path: Path) -> None:
    shown = _run(installed, tmp_path, "-c", CHARTS)
    assert shown.returncode == 0, shown.stderr
    assert {"neuron-monitor", "torchx-etcd"} <= set(json.loads(shown.stdout))


def test_wheel_finds_what_runs_in_containers(installed: Path, tmp_path: Path) -> None:
    code = "from trainium_eks.local.images import images; print((images.workloads() / 'trainium_workloads').is_dir())"
    shown = _run(installed, tmp_path, "-c", code)
    assert (shown.stdout, shown.stderr) == ("True\n", "")


def test_dependencies_of_the_wheel_are_those_of_the_requirements_files() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = declared["optional-dependencies"]
    assert sorted(declared["dependencies"] + extras["cli"]) == sorted(_required("requirements.txt"))
    assert extras["local"] == ["trainium-eks[cli]", *_required("requirements-local.txt")]
    every = [*declared["dependencies"], *extras["cli"], *extras["local"][1:]]
    assert all("<" in dependency for dependency in every), "every dependency has an upper bound"


def _required(name: str) -> list[str]:
    lines = (ROOT / name).read_text().splitlines()
    return [line for line in lines if line and not line.startswith(("#", "-r"))]


def test_the_documented_tests_of_a_user_pass_with_the_installed_wheel(installed: Path, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "testing.md").read_text()
    (tmp_path / "test_mine.py").write_text(text.partition("```python\n")[2].partition("```")[0])
    shown = _run(installed, tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py")
    assert "2 passed" in shown.stdout, shown.stdout + shown.stderr


def test_the_documented_answers_can_be_read(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "testing.md").read_text()
    (tmp_path / "answers.yaml").write_text(text.partition("```yaml\n")[2].partition("```")[0])
    found = assumptions.load(tmp_path / "answers.yaml")
    assert found.of_lookup("aws:ec2/getSubnet:getSubnet", {"id": "subnet-0123456789abcdef0"}) is not None
    assert list(found.stack_references) == ["acme/network/prod"]
