"""Which files of a directory a training takes, and which directories are ambiguous."""

import pytest
from trainium_workloads.data_files import files_of, kind_of
from trainium_workloads.training.refusal import RefusalError

KINDS = (".jsonl", ".json", ".txt", ".parquet", ".csv")
SHARDS = "data/{}-00000-of-00001.parquet"
SFT = SHARDS.replace("{}", "train_sft")


@pytest.mark.parametrize(
    ("names", "split", "taken"),
    [
        (f"{SHARDS} data/test-00000-of-00001.parquet dataset_infos.json README.md .cache/a.json", "train", SHARDS),
        ("train.jsonl test.jsonl valid.jsonl more.jsonl", "train", "train.jsonl"),
        ("train.jsonl test.jsonl valid.jsonl more.jsonl", "test", "test.jsonl"),
        ("train.jsonl dev.jsonl", "test", "dev.jsonl"),
        ("train/0.jsonl.zst train/1.json val.jsonl.zst", "train", "train/0.jsonl.zst train/1.json"),
        ("c4-train.0-of-2.json.gz c4-validation.0-of-1.json.gz", "train", "c4-train.0-of-2.json.gz"),
        ("a.json b.jsonl LICENSE.txt state.json dataset_info.json x.part __x/c.json", "train", "a.json b.jsonl"),
        (f"{SFT} data/test_sft-00000-of-00001.parquet", "train", SFT),
        (SHARDS.replace("{}", "en"), "train", SHARDS.replace("{}", "en")),
        ("00.jsonl 01.jsonl val.jsonl", "train", None),
        ("test/0.jsonl", "train", None),
        (f"{SFT} data/train_gen-00000-of-00001.parquet", "train", None),
        ("a.parquet b.jsonl", "train", None),
        ("book.txt talks.jsonl", "train", None),
        ("eval-training.jsonl", "train", None),
        ("data/train-sft-00000-of-00001.parquet", "train", None),
        ("part-1.csv", "test", None),
        ("train.csv", "test", None),
    ],
)  # fmt: skip
def test_files_of_a_split_are_found(names, split, taken, tmp_path, capsys):
    data = tmp_path / "test [1]"
    files = [data / each for each in names.replace("{}", "train").split()]
    for each in files:
        each.parent.mkdir(parents=True, exist_ok=True)
        each.touch()
    if taken is None:
        with pytest.raises(RefusalError, match=r"name a file|Split name"):
            files_of(data, split, KINDS)
        return
    expected = [data / each for each in taken.replace("{}", "train").split()]
    assert files_of(data, split, KINDS) == expected
    said = capsys.readouterr().out.partition("; left out: ")
    assert all(str(each.relative_to(data)) in said[0] for each in expected)
    assert ("nothing" in said[2]) is (len([each for each in files if "/." not in str(each)]) == len(expected))


def test_repository_subset_is_the_default_or_named(tmp_path):
    for each in ("a/train.jsonl", "a/test.jsonl", "b/x.jsonl"):
        (tmp_path / each).parent.mkdir(exist_ok=True)
        (tmp_path / each).touch()
    subset = "- config_name: {}\n  data_files:\n  - split: train\n    path: {}\n"
    page = "---\nconfigs:\n" + subset.format("one", "a/train*") + subset.format("two", "b/*")
    (tmp_path / "README.md").write_text(f"{page}---\n")
    with pytest.raises(RefusalError, match=r"holds the data sets one, two by its README.md: name the directory of one"):
        files_of(tmp_path, "train", KINDS)
    (tmp_path / "README.md").write_text(f"{page}  default: true\n---\n")
    assert files_of(tmp_path, "train", KINDS) == [tmp_path / "b/x.jsonl"]
    (tmp_path / "README.md").write_text("---\nconfigs:\n" + subset.format("one", "../*") + "---\n")
    assert files_of(tmp_path, "train", KINDS) == [tmp_path / "a/train.jsonl"]


def test_named_file_and_single_split_directory_are_used_unchanged(tmp_path):
    (tmp_path / "part-1.test.csv.gz").touch()
    assert kind_of(tmp_path / "part-1.test.csv.gz") == ".csv"
    assert files_of(tmp_path / "part-1.test.csv.gz", "train", KINDS) == [tmp_path / "part-1.test.csv.gz"]
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "part-1.csv").touch()
    assert files_of(tmp_path / "x", "test", KINDS, is_alone=True) == [tmp_path / "x" / "part-1.csv"]
    with pytest.raises(RefusalError, match=r"must hold .parquet files to train with; it holds .gz"):
        files_of(tmp_path / "part-1.test.csv.gz", "train", [".parquet"])
