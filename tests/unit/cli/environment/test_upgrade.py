"""`trn upgrade` on copies of the committed environments, recorded from the program that `pulumi up` runs."""

import json
import shutil
from pathlib import Path

import pytest
from outcome import ends

ROOT = Path(__file__).resolve().parents[4]

BLOCK = """
config:
  trainium-eks:region: us-west-2
  trainium-eks:owner: me
  trainium-eks:cluster:
    endpoint: { publicAccessCidrs: ["203.0.113.0/24"] }
  trainium-eks:nodeGroups:
    - name: block
      instanceType: trn1.32xlarge
      maxSize: 4
      desiredSize: 2 # while the block runs
      capacity: { type: capacity-block, id: cr-0123456789abcdef0, zoneId: usw2-az4 }
  trainium-eks:allowedAccountIds: ["111122223333"]
"""


@pytest.fixture
def copy(tmp_path):
    """The project with its environment dev."""
    for name in ("Pulumi.yaml", "Pulumi.dev.yaml", "__main__.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def _json(trn, copy, *arguments):
    result = trn("upgrade", "--directory", copy, "--json", *arguments)
    return result.exit_code, json.loads(result.stdout)


@pytest.mark.slow
def test_a_version_is_shown_then_written(trn, copy):
    before = (copy / "Pulumi.dev.yaml").read_text()
    code, data = _json(trn, copy, "--to", "1.36")
    assert (code, data["written"]) == (0, "")
    assert (copy / "Pulumi.dev.yaml").read_text() == before
    phases = [step["phase"] for step in data["steps"]]
    assert phases[:3] == ["control plane", "add-on", "node group"]
    assert phases.count("node group") == 4
    [group] = [step for step in data["steps"] if step["nodes"] == 2 and "trn1-32xl" in step["name"]]
    assert group["batches"] == 2
    assert data["kubernetes"][0] == {"version": "1.35", "standardEnd": "2027-03-27", "extendedEnd": "2028-03-27"}
    assert any("Volcano" in text for text in data["warnings"])
    assert [each["line"] for each in data["settings"]] == [
        "Pulumi.dev.yaml line 7, under trainium-eks:cluster: add kubernetesVersion: '1.36'"
    ]

    ends(0, trn("upgrade", "--directory", copy, "--to", "1.36", "--write"), "Pulumi.dev.yaml is changed")
    after = (copy / "Pulumi.dev.yaml").read_text()
    assert [line for line in after.splitlines() if line not in before.splitlines()] == ['    kubernetesVersion: "1.36"']
    code, data = _json(trn, copy)
    assert data["kubernetes"][0] == {"version": "1.36", "standardEnd": "2027-08-02", "extendedEnd": "2028-08-02"}


@pytest.mark.slow
def test_running_capacity_block_refuses_upgrades_that_replace_nodes(trn, copy):
    (copy / "Pulumi.dev.yaml").write_text(BLOCK)
    assert trn("upgrade", "--directory", copy, "--to", "1.36").exit_code == 1
    assert trn("upgrade", "--directory", copy, "--to", "1.36", "--keep-nodes").exit_code == 0
    result = trn("upgrade", "--directory", copy, "--ami", "1.35.9-20261020", "--write")
    refused = "nothing was written, because AWS would refuse this"
    ends(1, result, refused, "set desiredSize and minSize to 0")
    assert (copy / "Pulumi.dev.yaml").read_text() == BLOCK


@pytest.mark.slow
def test_upgrade_reports_a_driver_older_than_the_image_needs(trn, copy):
    code, data = _json(trn, copy, "--ami", "1.35.1-20260312")
    assert code == 1
    paths = [f"nodeGroups[{index}].releaseVersion" for index in (0, 1)]
    assert {problem["path"] for problem in data["problems"]} == {*paths}


def test_upgrade_without_a_version_shows_the_next_and_skips_none(trn, copy):
    following = "--to 1.36 shows what the next version changes"
    ends(0, trn("upgrade", "--directory", copy), "standard support until 2027-03-27", following)
    file = copy / "Pulumi.dev.yaml"
    endpoint = "    endpoint:\n"
    file.write_text(file.read_text().replace(endpoint, f'    kubernetesVersion: "1.34"\n{endpoint}'))
    code, data = _json(trn, copy, "--to", "1.36")
    assert code == 1
    [problem] = data["problems"]
    reason = "EKS goes one minor version at a time: 1.34 to 1.35 comes first"
    told = ("cluster.kubernetesVersion", reason, "trn upgrade --to 1.35")
    assert (problem["path"], problem["reason"], problem["fix"]) == told


@pytest.mark.parametrize("arguments", [("--addon", "vpc-cni"), ("--sdk", "=x"), ("--keep-nodes",)])
def test_an_option_without_its_other_half_is_wrong_usage(trn, copy, arguments):
    assert trn("upgrade", "--directory", copy, *arguments).exit_code == 2
