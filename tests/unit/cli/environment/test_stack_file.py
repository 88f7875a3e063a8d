"""Fixes as lines of the stack's file; and a value set in it changes that value and nothing else."""

import pytest
import yaml

from trainium_eks.cli.shared.stack_file import StackFile
from trainium_eks.cli.shared.stack_file_edit import NotEditableError, put
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
def test_a_fix_is_the_line_of_the_file(tmp_path, path, value, line):
    shown = found(tmp_path, FILE).setting(path, value)
    assert shown == f"Pulumi.dev.yaml{line}"
    assert yaml.safe_load(shown.partition(": ")[2].removeprefix("add ")) is not None


def test_an_empty_file_takes_the_whole_line_and_one_that_cannot_be_read_none(tmp_path):
    assert found(tmp_path, None) is None
    assert found(tmp_path, "config: {") is None
    assert found(tmp_path, "").setting("region", "us-west-2") == "Pulumi.dev.yaml: add small:region: us-west-2"


# --- A value that is set ----------------------------------------------------------------------------------------------

EDITED = """\
# The environment.
config:
  p:region: us-west-2 # why
  p:nodeGroups:
    - name: a

# The end.
encryptionsalt: v1
"""
TYPES = ("config", "p:instanceTypes")
PATH = (*TYPES, "trn1.32xlarge", "hourlyUsd")
GROUPS = ("config", "p:nodeGroups")
VERSION = (*GROUPS, 0, "releaseVersion")


def test_put_adds_missing_keys_and_replaces_existing_ones():
    once = put(EDITED, PATH, 21.5)
    added = "    - name: a\n  p:instanceTypes: { trn1.32xlarge: { hourlyUsd: 21.5 } }\n"
    assert once == EDITED.replace("    - name: a\n", added)
    twice = put(once, (*PATH[:3], "priceDate"), "2026-11-01")
    assert '{ hourlyUsd: 21.5, priceDate: "2026-11-01" }' in twice
    held = yaml.safe_load(put(twice, (*TYPES, "trn2.48xlarge", "hourlyUsd"), 1))["config"]["p:instanceTypes"]
    assert held == {"trn1.32xlarge": {"hourlyUsd": 21.5, "priceDate": "2026-11-01"}, "trn2.48xlarge": {"hourlyUsd": 1}}
    assert yaml.safe_load(put("config:\n  a: 1", ("config", "b"), 2)) == {"config": {"a": 1, "b": 2}}, (
        "no last line end"
    )
    assert put(EDITED, ("config", "p:region"), "eu-west-1") == EDITED.replace("us-west-2", '"eu-west-1"')
    block = EDITED.replace("\n# The end", "  p:instanceTypes:\n    trn1.32xlarge:\n      vcpus: 128 # all\n\n# The end")
    assert "      vcpus: 128 # all\n      hourlyUsd: 21.5\n\n# The end" in put(block, PATH, 21.5)
    assert '    - name: a\n      releaseVersion: "1.35"\n\n# The' in put(EDITED, VERSION, "1.35")
    flow = EDITED.replace("- name: a", "- { name: a }")
    assert '- { name: a, releaseVersion: "1.35" }' in put(flow, VERSION, "1.35")


def test_put_refuses_a_value_that_it_cannot_edit():
    for text, path, why in (
        (EDITED, (*GROUPS, 1, "releaseVersion"), "write it out first"),
        (EDITED, ("config", "p:queues", 0, "name"), "write it out first"),
        ("config:\n  a: &a {x: 1}\n  b: *a\n", ("config", "b", "x"), "without changing more"),
        ("config: 3\n", PATH, None),
        ("config: {}\nx: 1\n", PATH, None),
        ("config:\n  a: 1\n  p:instanceTypes: none\n", PATH, None),
        ("config:\n  a: |\n    x\n", PATH, None),
    ):
        with pytest.raises(NotEditableError, match=why):
            put(text, path, 21.5)
