"""What importing the package costs: a `trn` call must not pay for the components and Pulumi's SDKs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import components

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    "line", ["import trainium_eks", "from trainium_eks import fetched", "import trainium_eks.cli.app"]
)
def test_modules_of_the_package_load_neither_components_nor_pulumi(line: str) -> None:
    program = f"{line}\nimport sys\nprint(sorted({{'components', 'pulumi', 'pulumi_aws'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_command_line_loads_what_a_command_needs_when_it_runs() -> None:
    heavy = ("kubernetes", "pulumi", "pydantic", "rich.table", "trainium_eks.client.session")
    code = f"import sys, trainium_eks.cli.app; print([name for name in {heavy!r} if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"


def test_one_component_does_not_load_what_the_others_need() -> None:
    program = (
        "from trainium_eks import VolcanoStack\nimport sys\nprint({'pulumi_aws.ec2', 'pulumi_eks'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_every_name_is_the_one_that_type_checkers_see() -> None:
    tree = ast.parse((ROOT / "components" / "__init__.pyi").read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.name: f"components.{node.module}" for node in imports for alias in node.names}
    assert sorted(seen) == sorted(components.__all__)
    assert {name: getattr(components, name).__module__ for name in seen} == seen
    assert set(components.__all__) <= set(dir(components))
    with pytest.raises(AttributeError, match="Netwrk"):
        components.Netwrk  # noqa: B018


def test_a_star_binds_the_public_names() -> None:
    found: dict[str, object] = {}
    exec("from trainium_eks import *", found)
    assert {name for name in found if not name.startswith("__")} == set(components.__all__)


def test_what_the_package_does_not_have_is_said() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import trainium_eks; trainium_eks.Netwrk"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "AttributeError: module 'trainium_eks' has no attribute 'Netwrk'" in done.stderr
