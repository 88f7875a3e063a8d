"""Consumers in TypeScript and YAML on a real engine: their types are checked and their resources previewed."""

import shutil
import subprocess
import sysconfig
import venv
from collections import Counter
from pathlib import Path

import pytest
import yaml
from engine.rig import REPOSITORY, succeeded

MISTAKES = {
    "a name": """new trainium.Network("a", { region: "us-west-2", zoneIDs: [] });""",
    "a name inside": """new trainium.TrainingStack("b", { region: "r", owner: "o", queues: [{ nam: "q" }] });""",
    "a value": """new trainium.Network("c", { region: "us-west-2", natGateways: "one" });""",
    "an output that must be plain": """new trainium.Network("d", { region: environment.clusterName });""",
    "an output that there is not": """export const e = environment.clusterNam;""",
}


def needs(*tools):
    absent = [tool for tool in tools if shutil.which(tool) is None]
    return pytest.mark.skipif(bool(absent), reason=f"no {', '.join(absent)} on PATH: install it to run this test")


@pytest.fixture(scope="module")
def checkout(new_rig):
    """A copy of the repository with the provider and its consumers.

    The provider has a separate environment with the tests' packages, so the CLI's installations change no other.
    """
    rig = new_rig()
    skipped = shutil.ignore_patterns("__pycache__", "venv", "node_modules", "sdks")
    for name in ("provider", "examples"):
        shutil.copytree(REPOSITORY / name, rig.project / name, ignore=skipped)
    plugin = yaml.safe_load((rig.project / "provider" / "PulumiPlugin.yaml").read_text())
    environment = rig.project / "provider" / plugin["runtime"]["options"]["virtualenv"]
    venv.create(environment, symlinks=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(environment), "platbase": str(environment)}))
    (site / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return rig


@pytest.fixture(scope="module")
def typescript(checkout):
    """The consumer in TypeScript with its packages from npm and an SDK made from the schema."""
    folder = checkout.project / "examples" / "typescript"
    schema = REPOSITORY / "tests" / "provider_schema.json"
    checkout.pulumi("package", "gen-sdk", str(schema), "--language", "nodejs", "--out", str(folder / "made"))
    shutil.move(folder / "made" / "nodejs", folder / "sdks" / "trainium-eks")
    for command in (("npm", "install", "--no-audit", "--no-fund"), ("npx", "tsc", "-p", "sdks/trainium-eks")):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if command[0] == "npm" and done.returncode:
            pytest.skip(f"npm cannot install what the consumer needs: {done.stderr.strip().splitlines()[-1]}")
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


def tsc(folder):
    done = subprocess.run(["npx", "tsc", "--pretty", "false"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 2), done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith("index.ts(")]


def previewed(rig, folder):
    """How often a preview of an example makes each type."""
    inside = ("-C", str(rig.project / "examples" / folder))
    rig.pulumi("stack", "init", "dev", *inside)
    return Counter(step.urn.split("::")[2].rpartition("$")[2] for step in succeeded(rig.preview("dev", *inside)).steps)


in_typescript = needs("npm", "npx", "pulumi-language-nodejs")
"""Also for the SDK: `pulumi package gen-sdk` has it made by the language's plugin."""


@in_typescript
def test_typescript_compiler_finds_every_mistake(typescript):
    assert tsc(typescript) == []
    program = typescript / "index.ts"
    right = program.read_text()
    first = len(right.splitlines()) + 1
    program.write_text(right + "".join(f"{line}\n" for line in MISTAKES.values()))
    found = tsc(typescript)
    program.write_text(right)
    lines = {int(each.removeprefix("index.ts(").partition(",")[0]) for each in found}
    assert lines == set(range(first, first + len(MISTAKES))), found


@in_typescript
def test_whole_environment_is_built_from_typescript(checkout, typescript):
    made = previewed(checkout, typescript.name)
    assert made["trainium-eks:index:TrainiumCluster"] == 1
    assert made["aws:eks/nodeGroup:NodeGroup"] == 4
    assert made["aws:fsx/lustreFileSystem:LustreFileSystem"] == 1


@needs("pulumi-language-yaml")
def test_single_components_are_built_from_yaml(checkout):
    """And all problems of a program, without a traceback."""
    made = previewed(checkout, "yaml")
    assert made["trainium-eks:index:FsxLustre"] == 1
    assert made["aws:ec2/natGateway:NatGateway"] == 2

    program = checkout.project / "examples" / "yaml" / "Pulumi.yaml"
    right = program.read_text()
    program.write_text(right.replace("throughputPerTib: 500", "throughputPerTib: 7").replace("4800", "5"))
    text = checkout.refused("dev", "-C", str(program.parent))
    program.write_text(right)
    assert "storageCapacityGib = 5" in text
    assert "throughputPerTib = 7" in text
    assert "Traceback" not in text
