"""A value set in a stack's file changes that value and nothing else."""

import pytest
import yaml

from trainium_eks.cli.shared.stack_file_edit import NotEditableError, put

FILE = """\
# The environment.
config:
  p:region: us-west-2 # why
  p:nodeGroups:
    - name: a

# The end.
encryptionsalt: v1
"""
PATH = ("config", "p:instanceTypes", "trn1.32xlarge", "hourlyUsd")


def test_what_is_not_there_is_added_at_the_end_of_its_mapping() -> None:
    once = put(FILE, PATH, 21.5)
    assert once == FILE.replace(
        "    - name: a\n", "    - name: a\n  p:instanceTypes: { trn1.32xlarge: { hourlyUsd: 21.5 } }\n"
    )
    twice = put(once, (*PATH[:3], "priceDate"), "2026-11-01")
    assert '{ hourlyUsd: 21.5, priceDate: "2026-11-01" }' in twice
    thrice = put(twice, ("config", "p:instanceTypes", "trn2.48xlarge", "hourlyUsd"), 1)
    held = yaml.safe_load(thrice)["config"]["p:instanceTypes"]
    assert held == {"trn1.32xlarge": {"hourlyUsd": 21.5, "priceDate": "2026-11-01"}, "trn2.48xlarge": {"hourlyUsd": 1}}


def test_a_value_that_is_there_is_replaced() -> None:
    text = put(FILE, ("config", "p:region"), "eu-west-1")
    assert text == FILE.replace("us-west-2", '"eu-west-1"')


def test_a_block_is_gone_on_with() -> None:
    block = FILE.replace("\n# The end", "  p:instanceTypes:\n    trn1.32xlarge:\n      vcpus: 128 # all\n\n# The end")
    assert "      vcpus: 128 # all\n      hourlyUsd: 21.5\n\n# The end" in put(block, PATH, 21.5)


def test_an_entry_of_a_list_is_reached() -> None:
    groups = ("config", "p:nodeGroups")
    assert '    - name: a\n      releaseVersion: "1.35"\n\n# The' in put(FILE, (*groups, 0, "releaseVersion"), "1.35")
    flow = FILE.replace("- name: a", "- { name: a }")
    assert '- { name: a, releaseVersion: "1.35" }' in put(flow, (*groups, 0, "releaseVersion"), "1.35")
    for path in ((*groups, 1, "releaseVersion"), (*groups, "name"), ("config", "p:queues", 0, "name")):
        with pytest.raises(NotEditableError, match="write it out first"):
            put(FILE, path, "x")


def test_what_an_alias_shares_is_not_changed_in_both_places() -> None:
    with pytest.raises(NotEditableError, match="without changing more"):
        put("config:\n  a: &a {x: 1}\n  b: *a\n", ("config", "b", "x"), 2)


def test_a_file_without_a_last_line_end_is_kept_valid() -> None:
    text = put("config:\n  a: 1", ("config", "b"), 2)
    assert yaml.safe_load(text) == {"config": {"a": 1, "b": 2}}


@pytest.mark.parametrize(
    "text",
    [
        "config: 3\n",
        "[]\n",
        "config: {}\nx: 1\n",
        "config:\n  a: 1\n  p:instanceTypes: none\n",
        "config:\n  a: |\n    x\n",
    ],
)
def test_what_cannot_be_edited_is_refused(text: str) -> None:
    with pytest.raises(NotEditableError):
        put(text, PATH, 21.5)
