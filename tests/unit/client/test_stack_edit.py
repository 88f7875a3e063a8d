"""Changes of a stack's file: what is asked for changes, and all else stays, comments and layout too."""

import pytest
import yaml

from trainium_eks.client.failure import CommandError
from trainium_eks.client.stack_edit import GroupEdit

BLOCK = {"type": "capacity-block", "id": "cr-0123456789abcdef0", "starts": "2027-01-11T11:30:00Z", "nodes": 8}
VALUES = {"maxSize": 8, "ignoreDesiredSize": True, "capacity": BLOCK}
FILE = """\
config:
  small:region:   us-west-2 # Oregon
  nodeGroups: # of the team
    - name: one
      maxSize: 4 # for a while
      capacity: # bought by Kim
        type: capacity-block
        id: cr-1

    # The second.
    - { name: two, maxSize: 2 }
  # Queues.
  small:queues: [ { name: test } ]
"""
LAYOUTS = (
    FILE.removesuffix("\n"),
    FILE.replace("    - { name: two, maxSize: 2 }\n", ""),
    "config:\n  nodeGroups: [{name: two, maxSize: 1, capacity: }, {name: one}]",
    "config:\n    nodeGroups:\n    - name: one\n      capacity:\n    - {}\n",
    "config: {nodeGroups: [{name: 'one', labels: {a: b}}]}",
    "config:\n  nodeGroups:\n    - labels: {a: b}\n      name: two\n      note: |\n        long\n\n\n  z: []\n",
)


def edit(directory, text, group="one"):
    file = directory / "Pulumi.dev.yaml"
    file.write_bytes(text.encode())
    return GroupEdit(file, ("small:nodeGroups", "nodeGroups"), group, VALUES)


def test_values_change_and_comments_stay(tmp_path):
    made = edit(tmp_path, FILE)
    assert [line for line in made.difference() if line[0] in "+-"] == [
        "-      maxSize: 4 # for a while",
        "+      maxSize: 8 # for a while",
        "-        id: cr-1",
        "+        id: cr-0123456789abcdef0",
        "+        starts: '2027-01-11T11:30:00Z'",
        "+        nodes: 8",
        "+      ignoreDesiredSize: true",
    ]
    made.write()
    assert made.difference() == []


@pytest.mark.parametrize("text", LAYOUTS)
@pytest.mark.parametrize("group", ["one", "two", "new"])
def test_every_layout_is_changed_and_reads_the_same_but_for_it(tmp_path, text, group):
    before, made = yaml.safe_load(text)["config"], edit(tmp_path, text, group)
    made.write()
    after = yaml.safe_load(made.file.read_bytes())["config"]
    there = [each for each in before.pop("nodeGroups") if each.get("name") != group]
    [found] = [each for each in after["nodeGroups"] if each.get("name") == group]
    assert VALUES.items() <= found.items()
    assert [each for each in after.pop("nodeGroups") if each != found] == there
    assert after == before
    written = made.file.read_bytes().decode()
    assert ("# Queues.\n  small:queues" in written) == ("# Queues." in text)
    lost = set(text.splitlines()) - set(written.splitlines())
    assert len(lost) <= 2 * (group != "new" or "\n    " not in text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (FILE.replace("\n", "\r\n"), "line ends of Windows"),
        (FILE.replace("[ {", "[\n  {"), "flow over several lines"),
        ("config:\n  nodeGroups:\n    - &base {name: one}\n    - {<<: *base, name: two}\n", "anchors"),
        ("config: {}\n", "no list `nodeGroups`"),
        ("config: {\n", "while parsing"),
        ("", "no list `nodeGroups`"),
    ],
)
def test_file_that_cannot_be_changed_is_refused_with_the_lines_to_write(tmp_path, text, reason):
    with pytest.raises(CommandError) as refused:
        edit(tmp_path, text).write()
    assert reason in refused.value.title
    assert "- name: one\n  maxSize: 8\n" in refused.value.detail
