"""Changes of a stack's file: what is asked for changes, and all else stays, comments and layout too."""

import pytest
import yaml

from trainium_eks.client.failure import CommandError
from trainium_eks.client.stack_edit import GroupEdit

BLOCK = {"type": "capacity-block", "id": "cr-0123456789abcdef0", "starts": "2027-01-11T11:30:00Z", "nodes": 8}
VALUES = {"maxSize": 8, "ignoreDesiredSize": True, "capacity": BLOCK}
KEYS = ("nodeGroups", "small:nodeGroups")

FILE = """\
# The environment of January.
config:
  small:region: us-west-2 # Oregon
  small:nodeGroups:
    - name: one
      maxSize: 4 # for a while
      capacity: # bought by Kim
        type: capacity-block
        id: cr-1 # the first

    # The second.
    - { name: two, maxSize: 2 }
  # Queues.
  small:queues:
    - name: test
"""


ALIAS = "config:\n  small:nodeGroups:\n  - &base {name: one}\n  - {<<: *base, name: two}\n"


def edit(directory, text, group, values=None):
    file = directory / "Pulumi.dev.yaml"
    file.write_bytes(text.encode())
    return GroupEdit(file, KEYS, group, values or VALUES)


def test_values_change_and_comments_stay(tmp_path):
    made = edit(tmp_path, FILE, "one")
    assert made.difference() == [
        "   small:nodeGroups:",
        "     - name: one",
        "-      maxSize: 4 # for a while",
        "+      maxSize: 8 # for a while",
        "       capacity: # bought by Kim",
        "         type: capacity-block",
        "-        id: cr-1 # the first",
        "+        id: cr-0123456789abcdef0 # the first",
        "+        starts: '2027-01-11T11:30:00Z'",
        "+        nodes: 8",
        "+      ignoreDesiredSize: true",
        " ",
        "     # The second.",
    ]
    made.write()
    assert made.difference() == []


@pytest.mark.parametrize(
    "text",
    [
        FILE,
        FILE.removesuffix("\n"),
        "config:\n  nodeGroups: [{name: two, maxSize: 1, capacity: }, {name: one}]",
        "config:\n  small:nodeGroups: []\n",
        "config:\n  small:nodeGroups:\n  - name: one\n    capacity:\n  - {}\n",
        "config: {small:nodeGroups: [{name: 'one', labels: {a: b}}]}",
        "config:\n  small:nodeGroups:\n    - labels: {a: b}\n      name: two\n      note: |\n        long\n",
    ],
)
@pytest.mark.parametrize("group", ["one", "two", "new"])
def test_every_layout_is_changed_and_reads_the_same_but_for_it(tmp_path, text, group):
    made = edit(tmp_path, text, group)
    before = yaml.safe_load(text)["config"]
    made.write()
    after = yaml.safe_load(made.file.read_bytes())["config"]
    [key] = [each for each in KEYS if each in before]
    [found] = [each for each in after.pop(key) if each.get("name") == group]
    assert VALUES["capacity"].items() <= found["capacity"].items()
    assert (found["maxSize"], found["ignoreDesiredSize"]) == (8, True)
    assert {name: value for name, value in before.items() if name != key} == after
    lost = [line for line in text.splitlines() if "#" in line and "maxSize" not in line and "cr-1" not in line]
    assert set(lost) <= set(made.file.read_bytes().decode().splitlines())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (FILE.replace("\n", "\r\n"), "line ends of Windows"),
        (ALIAS, "cannot be changed as text"),
        ("config: {}\n", "no list `nodeGroups`"),
        ("config: {\n", "while parsing"),
        ("", "no list `nodeGroups`"),
    ],
)
def test_file_that_cannot_be_changed_is_refused_with_the_lines_to_write(tmp_path, text, reason):
    with pytest.raises(CommandError) as refused:
        edit(tmp_path, text, "one").write()
    assert reason in refused.value.title
    assert "- name: one\n  maxSize: 8\n" in refused.value.detail
