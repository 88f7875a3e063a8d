"""What importing the package costs and brings: a `trn` call must not pay for the components and Pulumi's SDKs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import typed_dicts

import components
import trainium_eks

ROOT = Path(__file__).resolve().parents[3]
SDKS = ("components", "pulumi", "pulumi_aws")
HELP = "from typer.testing import CliRunner; from trainium_eks.cli.app import app; CliRunner().invoke(app, '--help')"
LIST_JOBS = (
    "import trainium_eks.cli.jobs.jobs, trainium_eks.local.access; from trainium_eks.kube import light_import; "
    "light_import.api_client()"
)
UNLISTED = (
    "client.logs",
    "jobs.submit",
    "local.control_plane.pki",
    "local.images",
    "local.nodes",
    "operate",
    "plan.sdk",
)


@pytest.mark.parametrize(
    ("line", "heavy"),
    [
        ("import trainium_eks", SDKS),
        ("from trainium_eks import fetched", SDKS),
        # The command line loads what a command needs when it runs.
        (
            "import trainium_eks.cli.app",
            (*SDKS, "http.client", "kubernetes", "pydantic", "rich.table", "trainium_eks.client.session", "yaml"),
        ),
        (HELP, (*SDKS, "pydantic", "pygments", "rich.markdown", "rich.traceback", "yaml")),
        (LIST_JOBS, (*SDKS, "boto3", "cryptography", "requests", *(f"trainium_eks.{each}" for each in UNLISTED))),
        (
            "import trainium_eks.cli.jobs.logs",
            (*SDKS, "cryptography", "trainium_eks.local.images", "trainium_eks.operate"),
        ),
        ("import trainium_eks.local.deployment", SDKS),
        # One component does not load what the others need.
        ("from trainium_eks import VolcanoStack", ("pulumi_aws.ec2", "pulumi_eks")),
    ],
)
def test_an_import_loads_no_more_than_it_needs(line, heavy):
    program = f"{line}\nimport sys\nprint([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_every_lazy_name_equals_the_stubs():
    tree = ast.parse((ROOT / "components" / "__init__.pyi").read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.name: f"components.{node.module}" for node in imports for alias in node.names}
    assert sorted(seen) == sorted(components.__all__)
    assert {name: getattr(components, name).__module__ for name in seen} == seen
    assert set(components.__all__) <= set(dir(components))
    for package in (components, trainium_eks):
        with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'Netwrk'"):
            package.Netwrk  # noqa: B018
    found = {}
    exec("from trainium_eks import *", found)
    assert {name for name in found if not name.startswith("__")} == set(components.__all__)


def test_the_typed_dicts_and_the_stub_are_current():
    assert typed_dicts.stale() == [], "run make docs"
