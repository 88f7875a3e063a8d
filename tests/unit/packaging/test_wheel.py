"""The wheel: built from the tree, installed without its heavy dependencies, used from somewhere else, and what type
checkers see of it: every mistake in a user's program, and accept a correct one."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

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

RIGHT = """\
import pulumi
import pulumi_aws as aws
from trainium_eks import AcceleratorNodeGroup, ExistingNetwork, FsxLustre, Network, NetworkArgs, TrainiumCluster

key = aws.kms.Key("key")
network = Network(
    "net",
    {"region": "us-west-2", "zone_ids": ["usw2-az4", "usw2-az1"], "kms_key_arn": key.arn, "tags": {"Team": "a"}},
    pulumi.ResourceOptions(protect=True),
)
same = Network("same", NetworkArgs(region="us-west-2", zone_ids=("usw2-az4", "usw2-az1"), cidr_block="10.0.0.0/16"))
shared = ExistingNetwork(
    "shared",
    {
        "region": "us-west-2",
        "vpc_id": "vpc-00000001",
        "cidr_block": "10.0.0.0/16",
        "private_subnets": [{"id": "subnet-00000001", "zone_id": "usw2-az4", "cidr_block": "10.0.0.0/18"}],
    },
)


def subnets(of: Network) -> pulumi.Output[int]:
    return of.private_subnet_ids.apply(len)


vpc_id: pulumi.Output[str] = network.vpc_id
pulumi.export("vpcId", vpc_id)
pulumi.export("subnets", subnets(network))
pulumi.export("components", [each.__name__ for each in (AcceleratorNodeGroup, FsxLustre, TrainiumCluster)])
"""

MISTAKES = {
    "an argument that there is not": """Network("a", NetworkArgs(region="us-west-2", cidr="10.0.0.0/16"))""",
    "a wrong type in a dictionary": """Network("b", {"region": "us-west-2", "zone_ids": 4})""",
    "an output that there is not": """pulumi.export("c", network.vpc_idd)""",
    "a missing argument": """Network("d", {"zone_ids": ["usw2-az4"]})""",
    "a wrong name inside": (
        """ExistingNetwork("e", {"region": "r", "vpc_id": "v", "cidr_block": "c", """
        """"private_subnets": [{"id": "s", "zone": "z", "cidr_block": "c"}]})"""
    ),
    "an Output where there is text": """text: str = network.vpc_id""",
    "a result used as something else": """number: pulumi.Output[int] = subnets(network).apply(lambda n: str(n))""",
}


# Without this mypy reads the 3,000 modules of the AWS SDK, for a minute and a half.
MYPY = """\
[mypy]
strict = True
[mypy-pulumi_aws.*]
follow_imports = skip
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A folder with the wheel's content alone; its dependencies come from the interpreter running the tests."""
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(wheel)]
    subprocess.run(command, check=True)
    return target


def _run(installed, cwd, *arguments):
    environment = {"PYTHONPATH": str(installed), "PATH": "/usr/bin:/bin", "HOME": str(cwd)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def test_wheel_holds_components_charts_and_type_marker(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = [f"local/toolchain/{name}" for name in ("volcano", "training_operator")]
    wanted = [
        *("py.typed", "components/network.py", "docs/alerts.md", "docs/bootstrap.yaml", "observe/rules/alerts.yaml"),
        *("charts/neuron-monitor/Chart.yaml", "charts/torchx-etcd/Chart.yaml", "observe/rules/recording.yaml"),
        *("local/control_plane/kwok_stages.yaml", "local/images/torch-requirements.txt"),
        *("workloads/pyproject.toml", "workloads/trainium_workloads/gang.py"),
        *(f"{module}/{file}" for module in ("local/toolchain", *modules) for file in ("go.mod", "go.sum")),
        *(f"{module}/sources.sum" for module in modules),
    ]
    assert [name for name in wanted if f"trainium_eks/{name}" not in names] == []
    assert not [name for name in names if name.startswith(("components/", "tests/", "charts/", "workloads/"))]


def test_installed_wheel_plans_a_program_that_imports_a_component(installed, tmp_path):
    (tmp_path / "Pulumi.yaml").write_text("name: other\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config: {}\n")
    (tmp_path / "__main__.py").write_text(PROGRAM)
    shown = _run(installed, tmp_path, "-m", "trainium_eks.cli", "plan", "--stack", "dev", "--json")
    assert shown.stdout, shown.stderr
    plan = json.loads(shown.stdout)
    assert plan["outputs"]["module"] == "trainium_eks.components.network"
    assert Path(plan["outputs"]["where"]).is_relative_to(installed)
    assert "aws:ec2/vpc:Vpc" in {resource["type"] for resource in plan["resources"]}


def test_wheel_contains_charts_and_container_code(installed, tmp_path):
    shown = _run(installed, tmp_path, "-c", PARTS)
    assert (shown.stdout, shown.stderr) == ("True True True\n", "")


def test_documented_user_tests_pass_with_the_installed_wheel(installed, tmp_path):
    text = (ROOT / "docs" / "testing.md").read_text()
    (tmp_path / "test_mine.py").write_text(text.partition("```python\n")[2].partition("```")[0])
    shown = _run(installed, tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py")
    assert "2 passed" in shown.stdout, shown.stdout + shown.stderr


@pytest.fixture(scope="module")
def user(installed, tmp_path_factory):
    """A right program and the same with mistakes at its end; and an interpreter with the wheel, whose dependencies are
    those of the tests."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "right.py").write_text(RIGHT)
    (folder / "wrong.py").write_text(RIGHT + "".join(f"{line}\n" for line in MISTAKES.values()))
    (folder / "mypy.ini").write_text(MYPY)
    base = str(folder / "environment")
    venv.create(base, symlinks=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": base, "platbase": base}))
    (site / "dependencies.pth").write_text(f"{installed}\n{sysconfig.get_path('purelib')}\n")
    return folder, folder / "environment" / "bin" / "python"


def checked(folder, *command):
    command = (sys.executable, "-m", *command, "right.py", "wrong.py")
    # Without the checkout, which the tests' own variable names.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def mypy(folder, python):
    command = ("mypy", "--config-file", "mypy.ini", "--output", "json", "--python-executable", str(python))
    for line in checked(folder, *command).splitlines():
        if line.startswith("{") and (found := json.loads(line))["severity"] == "error":
            yield found["file"], found["line"], found["message"]


def pyright(folder, python):
    said = checked(folder, "pyright", "--pythonpath", str(python), "--outputjson")
    for found in json.loads(said)["generalDiagnostics"]:
        if found["severity"] == "error":
            yield Path(found["file"]).name, found["range"]["start"]["line"] + 1, found["message"]


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_type_checkers_accept_the_program_and_find_each_mistake(user, checker):
    found = list(checker(*user))
    assert [each for each in found if each[0] != "wrong.py"] == []
    first = len(RIGHT.splitlines()) + 1
    assert {line for _, line, _ in found} == set(range(first, first + len(MISTAKES))), found
