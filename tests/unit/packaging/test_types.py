"""What type checkers see of the installed wheel: every mistake in a user's program, and none where there is none."""

import json
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typed_dicts

from components import _dicts

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
        "vpc_id": "vpc-1",
        "cidr_block": "10.0.0.0/16",
        "private_subnets": [{"id": "subnet-1", "zone_id": "usw2-az4", "cidr_block": "10.0.0.0/18"}],
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

Checker = Callable[[Path, Path], Iterator[tuple[str, int, str]]]
"""File, line and message of each error."""

# Without this mypy reads the 3,000 modules of the AWS SDK, for a minute and a half.
MYPY = """\
[mypy]
strict = True
[mypy-pulumi_aws.*]
follow_imports = skip
"""


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[int]]:
    """A right program and the same with mistakes at its end; and the lines of those."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "right.py").write_text(RIGHT)
    (folder / "wrong.py").write_text(RIGHT + "".join(f"{line}\n" for line in MISTAKES.values()))
    (folder / "mypy.ini").write_text(MYPY)
    first = len(RIGHT.splitlines()) + 1
    return folder, set(range(first, first + len(MISTAKES)))


@pytest.fixture(scope="session")
def interpreter(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel installed; the wheel's dependencies are those of the tests."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    (site / "dependencies.pth").write_text(f"{installed}\n{sysconfig.get_path('purelib')}\n")
    return folder / "bin" / "python"


def checked(folder: Path, *command: str) -> str:
    command = (sys.executable, "-m", *command, "right.py", "wrong.py")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def mypy(folder: Path, python: Path) -> Iterator[tuple[str, int, str]]:
    command = ("mypy", "--config-file", "mypy.ini", "--output", "json", "--python-executable", str(python))
    for line in checked(folder, *command).splitlines():
        if line.startswith("{") and (found := json.loads(line))["severity"] == "error":
            yield found["file"], found["line"], found["message"]


def pyright(folder: Path, python: Path) -> Iterator[tuple[str, int, str]]:
    said = checked(folder, "pyright", "--pythonpath", str(python), "--outputjson")
    for found in json.loads(said)["generalDiagnostics"]:
        if found["severity"] == "error":
            yield Path(found["file"]).name, found["range"]["start"]["line"] + 1, found["message"]


@pytest.mark.slow
@pytest.mark.parametrize("checker", [mypy, pyright])
def test_a_right_program_has_no_errors_and_each_mistake_is_found(
    program: tuple[Path, set[int]], interpreter: Path, checker: Checker
) -> None:
    folder, mistaken = program
    found = list(checker(folder, interpreter))
    assert [each for each in found if each[0] != "wrong.py"] == []
    assert {line for _, line, _ in found} == mistaken, found


def test_the_typed_dicts_and_the_stub_are_current() -> None:
    assert typed_dicts.stale() == [], "run make docs"


def test_every_field_of_a_model_is_in_its_typed_dict() -> None:
    for model in typed_dicts._models():
        fields = getattr(_dicts, f"{model.__name__}Dict").__annotations__
        assert fields.keys() == model.model_fields.keys(), model.__name__
