"""The wheel: built from the tree, installed without its heavy dependencies, used from somewhere else."""

import json
import subprocess
import sys
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

PARTS = """
from trainium_eks.components._charts import CHARTS_DIRECTORY as charts
from trainium_eks.local.images.images import workloads
parts = (charts / "neuron-monitor", charts / "torchx-etcd", workloads() / "trainium_workloads")
print(*(part.is_dir() for part in parts))
"""


def _run(installed: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(installed), "PATH": "/usr/bin:/bin", "HOME": str(cwd)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def test_wheel_holds_components_charts_and_type_marker(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = [f"local/toolchain/{name}" for name in ("volcano", "training_operator", "karpenter")]
    wanted = [
        *("py.typed", "components/network.py", "docs/alerts.md", "observe/rules/alerts.yaml"),
        *("charts/neuron-monitor/Chart.yaml", "charts/torchx-etcd/Chart.yaml", "observe/rules/recording.yaml"),
        *("local/control_plane/kwok_stages.yaml", "local/images/torch-requirements.txt"),
        *("workloads/pyproject.toml", "workloads/trainium_workloads/gang.py"),
        *(f"{module}/{file}" for module in ("local/toolchain", *modules) for file in ("go.mod", "go.sum")),
        *(f"{module}/sources.sum" for module in modules),
    ]
    assert [name for name in wanted if f"trainium_eks/{name}" not in names] == []
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


def test_wheel_finds_its_charts_and_what_runs_in_containers(installed: Path, tmp_path: Path) -> None:
    shown = _run(installed, tmp_path, "-c", PARTS)
    assert (shown.stdout, shown.stderr) == ("True True True\n", "")


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
