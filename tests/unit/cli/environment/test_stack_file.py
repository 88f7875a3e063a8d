"""Fixes as lines of the stack's file."""

import pytest
import yaml

from trainium_eks.cli.shared.stack_file import StackFile
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


def found(directory, text):
    (directory / "Pulumi.yaml").write_text("name: small\nruntime: python\n")
    (directory / "__main__.py").write_text("")
    if text is not None:
        (directory / "Pulumi.dev.yaml").write_text(text)
    return StackFile.find(load_project(directory), "dev")


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("region", "us-east-1", " line 2: small:region: us-east-1"),
        ("node_groups[0].max_size", 450, " line 5: maxSize: 450"),
        ("node_groups[1].max_size", 4, " line 6, under small:nodeGroups[1]: add maxSize: 4"),
        ("node_groups[2].name", "x", " line 4, under small:nodeGroups: add - {name: x}"),
        ("owner", "<name>", ": add small:owner: <name>"),
        ("allowed_account_ids[0]", "012345678901", ": add small:allowedAccountIds: ['012345678901']"),
        ("cluster.addons.dns", "a: b", ": add small:cluster: {addons: {dns: 'a: b'}}"),
        ('queues[0].capability["aws.amazon.com/neuron"]', 32, " line 8: aws.amazon.com/neuron: 32"),
        ("network.zone_ids", ("a", "b"), ": add small:network: {zoneIds: [a, b]}"),
        ("production", True, ": add small:production: true"),
    ],
)
def test_fix_is_a_line_of_the_stack_file(tmp_path, path, value, line):
    shown = found(tmp_path, FILE).setting(path, value)
    assert shown == f"Pulumi.dev.yaml{line}"
    assert yaml.safe_load(shown.partition(": ")[2].removeprefix("add ")) is not None


def test_put_writes_to_an_empty_file_and_refuses_an_unreadable_one(tmp_path):
    assert found(tmp_path, None) is None
    assert found(tmp_path, "config: {") is None
    assert found(tmp_path, "").setting("region", "us-west-2") == "Pulumi.dev.yaml: add small:region: us-west-2"
