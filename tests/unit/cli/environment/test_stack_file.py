"""Fixes as lines of the stack's file."""

from pathlib import Path

import pytest
import yaml

from trainium_eks.cli.shared.stack_file import StackFile
from trainium_eks.model.validation.problems import Value
from trainium_eks.plan.recording.project import load_project

FILE = """\
config:
  small:region: us-west-2
  small:nodeGroups:
    - name: one
      maxSize: 900
    - name: two
  small:queues:
    - capability: {"aws.amazon.com/neuron": 64}
"""


@pytest.fixture
def file(tmp_path: Path) -> StackFile:
    (tmp_path / "Pulumi.yaml").write_text("name: small\nruntime: python\n")
    (tmp_path / "__main__.py").write_text("")
    (tmp_path / "Pulumi.dev.yaml").write_text(FILE)
    found = StackFile.find(load_project(tmp_path), "dev")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("region", "us-east-1", "Pulumi.dev.yaml line 2: small:region: us-east-1"),
        ("node_groups[0].max_size", 450, "Pulumi.dev.yaml line 5: maxSize: 450"),
        ("node_groups[1].max_size", 4, "Pulumi.dev.yaml line 6, under small:nodeGroups[1]: add maxSize: 4"),
        ("node_groups[2].name", "x", "Pulumi.dev.yaml line 4, under small:nodeGroups: add - {name: x}"),
        ("owner", "<name>", "Pulumi.dev.yaml: add small:owner: <name>"),
        ("allowed_account_ids[0]", "012345678901", "Pulumi.dev.yaml: add small:allowedAccountIds: ['012345678901']"),
        ("cluster.addons.dns", "a: b", "Pulumi.dev.yaml: add small:cluster: {addons: {dns: 'a: b'}}"),
        (
            'queues[0].capability["aws.amazon.com/neuron"]',
            32,
            "Pulumi.dev.yaml line 8: aws.amazon.com/neuron: 32",
        ),
        ("network.zone_ids", ("a", "b"), "Pulumi.dev.yaml: add small:network: {zoneIds: [a, b]}"),
        ("production", True, "Pulumi.dev.yaml: add small:production: true"),
    ],
)
def test_a_fix_is_the_line_of_the_file(file: StackFile, path: str, value: Value, line: str) -> None:
    assert file.setting(path, value) == line
    assert yaml.safe_load(line.partition(": ")[2].removeprefix("add ")) is not None


def test_a_stack_without_a_readable_file_has_no_lines(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: small\nruntime: python\n")
    (tmp_path / "__main__.py").write_text("")
    project = load_project(tmp_path)
    assert StackFile.find(project, "dev") is None
    (tmp_path / "Pulumi.dev.yaml").write_text("config: {")
    assert StackFile.find(project, "dev") is None


def test_an_empty_file_takes_the_whole_line(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: small\nruntime: python\n")
    (tmp_path / "__main__.py").write_text("")
    (tmp_path / "Pulumi.dev.yaml").write_text("")
    found = StackFile.find(load_project(tmp_path), "dev")
    assert found is not None
    assert found.setting("region", "us-west-2") == "Pulumi.dev.yaml: add small:region: us-west-2"
