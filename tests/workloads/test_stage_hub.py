"""Data sets and models of the Hugging Face Hub are staged by huggingface_hub, from a stub of the Hub."""

import json
import random

import pytest
from staging_servers import content_of, hub
from trainium_workloads.stage import copying
from trainium_workloads.stage.__main__ import main


@pytest.fixture
def stage(tmp_path, capsys, monkeypatch):
    """Runs the command; its exit code and last message."""
    monkeypatch.setattr(copying, "pause", lambda _: None)

    def run(source, *options):
        code = main([source, "--to", "set", "--root", str(tmp_path), *options])
        return code, json.loads(capsys.readouterr().out.splitlines()[-1])["message"]

    return run


@pytest.fixture
def the_hub(monkeypatch):
    with hub() as stub:
        stub.files = {
            "README.md": b"# A data set",
            "data/a b.parquet": random.Random(1).randbytes(2_500_000),
            "data/c.json": b"{}",
            "other/d.json": b"[]",
        }
        stub.large = frozenset({"data/a b.parquet"})
        monkeypatch.setenv("HF_ENDPOINT", stub.url)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield stub


def test_data_set_is_fetched_from_one_commit_and_verified(the_hub, stage, tmp_path):
    assert stage("hf://datasets/org/name")[0] == 0
    assert content_of(tmp_path / "set") == the_hub.files
    lines = list(map(json.loads, (tmp_path / "set/.stage-files.jsonl").read_text().splitlines()))
    kinds = {line["path"]: line["checksum"].partition(":")[0] for line in lines}
    assert kinds == {path: "sha256" if path in the_hub.large else "git" for path in the_hub.files}
    assert json.loads((tmp_path / "set/.stage.json").read_text())["revision"] == the_hub.commit


@pytest.mark.parametrize(("below", "wanted"), [("data/", {"a b.parquet", "c.json"}), ("data/c.json", {"c.json"})])
def test_part_of_a_model_is_staged(the_hub, stage, tmp_path, below, wanted):
    the_hub.name = "models/org/name"
    assert stage(f"hf://org/name@main/{below}")[0] == 0
    assert set(content_of(tmp_path / "set")) == wanted


def test_token_is_sent_only_to_the_hub(the_hub, stage, monkeypatch):
    the_hub.token = "hf_secret"
    code, message = stage("hf://datasets/org/name")
    assert (code, "a private or gated one needs a token" in message) == (1, True)
    monkeypatch.setenv("HF_TOKEN", "hf_secret\n")
    assert stage("hf://datasets/org/name")[0] == 0
    assert set(the_hub.tokens_at_the_bytes) == {""}


@pytest.mark.parametrize(
    ("source", "spoiled", "said"),
    [
        ("hf://datasets/org/name@v9", None, "revision 'v9' is not there"),
        ("hf://datasets/org/none", None, "there is no such repository"),
        ("hf://datasets/org", None, "is none of the Hub's"),
        ("hf://datasets/org/name/none", None, "holds no files below none"),
        ("hf://datasets/org/name", "data/a b.parquet", "data/a b.parquet came with wrong bytes"),
        ("hf://datasets/org/name", "data/c.json", "data/c.json came with wrong bytes"),
    ],
)
def test_missing_or_spoilt_hub_file_is_not_placed(the_hub, stage, tmp_path, source, spoiled, said):
    the_hub.spoiled = frozenset({spoiled})
    code, message = stage(source)
    assert (code, said in message, (tmp_path / "set").exists()) == (1, True, False), message


def test_cut_connections_and_a_busy_hub_are_retried(the_hub, stage, tmp_path):
    the_hub.breaks = 3
    assert stage("hf://datasets/org/name/data")[0] == 0
    the_hub.status = 501  # the library itself waits a minute at 500, 502, 503 and 504
    code, message = stage("hf://datasets/org/name", "--replace")
    assert (code, "501" in message) == (75, True)
    assert content_of(tmp_path / "set").keys() == {"a b.parquet", "c.json"}
