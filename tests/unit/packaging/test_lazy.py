"""What importing the package costs: a `trn` call must not pay for the components and Pulumi's SDKs."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    "line", ["import trainium_eks", "from trainium_eks import fetched", "import trainium_eks.cli.app"]
)
def test_modules_of_the_package_load_neither_components_nor_pulumi(line: str) -> None:
    program = f"{line}\nimport sys\nprint(sorted({{'components', 'pulumi', 'pulumi_aws'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_the_package_does_not_have_is_said() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import trainium_eks; trainium_eks.Netwrk"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "AttributeError: module 'trainium_eks' has no attribute 'Netwrk'" in done.stderr
