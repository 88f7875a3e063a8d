"""Reviews from their files to numbers: what is read, what is refused, what is kept."""

import csv
import json
import pickle
from pathlib import Path

import pyarrow
import pytest
import torch
from pyarrow import parquet
from trainium_workloads.polarity import encoded, make_data, reviews, synthetic, wordpieces
from trainium_workloads.polarity.reviews import Chunk
from trainium_workloads.training.refusal import Refusal
from trainium_workloads.training.task import Position
from transformers import AutoTokenizer


@pytest.fixture(scope="module")
def pieces() -> wordpieces.WordPieces:
    texts = (text for chunk in synthetic.chunks(0, 300) for text in chunk.texts)
    return wordpieces.learn(texts, 512)


def write_csv(file: Path, *rows: tuple[object, ...], names: tuple[str, ...] = ("label", "title", "content")) -> Path:
    with file.open("w", newline="") as text:
        csv.writer(text).writerows([names, *rows])
    return file


# --- Files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_csv", [False, True])
def test_both_kinds_of_files_give_the_same_reviews(tmp_path: Path, as_csv: bool) -> None:
    file = make_data.write(tmp_path, "test", seed=3, numbers=range(5000, 9500), as_csv=as_csv)
    found = list(reviews.read(reviews.split_files(tmp_path, "test")))
    assert file.parent == tmp_path
    assert [len(each.texts) for each in found] == [4096, 404]
    expected = [synthetic.review(3, number) for number in range(5000, 9500)]
    assert [label for chunk in found for label in chunk.labels] == [label for label, _, _ in expected]
    assert [text for chunk in found for text in chunk.texts] == [content for _, _, content in expected]


def test_files_are_found_as_the_hub_has_them_as_a_channel_or_in_directories(tmp_path: Path) -> None:
    for name in ("train-00001-of-00002.parquet", "train-00000-of-00002.parquet", "test.csv", "README.md", ".x.csv"):
        (tmp_path / name).touch()
    names = [each.name for each in reviews.split_files(tmp_path, "train")]
    assert names == ["train-00000-of-00002.parquet", "train-00001-of-00002.parquet"]
    assert [each.name for each in reviews.split_files(tmp_path, "test")] == ["test.csv"]
    channel = tmp_path / "channel"
    channel.mkdir()
    (channel / "part-1.csv").touch()
    assert [each.name for each in reviews.split_files(channel, "train")] == ["part-1.csv"]
    (tmp_path / "split" / "train").mkdir(parents=True)
    (tmp_path / "split" / "train" / "0.parquet").touch()
    assert [each.name for each in reviews.split_files(tmp_path / "split", "train")] == ["0.parquet"]
    assert reviews.split_files(tmp_path / "test.csv", "train") == (tmp_path / "test.csv",)


def test_what_is_missing_is_said_with_the_command_that_brings_it(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="trn stage amazon-polarity"):
        reviews.split_files(tmp_path / "none", "train")
    (tmp_path / "train.csv").touch()
    with pytest.raises(Refusal, match=r"no test reviews: test\*\.parquet"):
        reviews.split_files(tmp_path, "test")


@pytest.mark.parametrize(
    ("names", "row", "words"),
    [
        (("label", "content"), (2, "fine"), r"review 2: label '2' is neither 0 \(negative\) nor 1.*need 1 taken off"),
        (("label", "content"), ("good", "fine"), "review 2: label 'good' is neither"),
        (("label", "text"), (1, "fine"), "has no column content; its columns: label, text"),
        (("stars", "body"), (1, "fine"), "has no column label and no column content"),
        (("label", "content"), (1,), "review 2: content is None, no text"),
    ],
)
def test_a_wrong_shape_is_refused_with_its_place(
    tmp_path: Path, names: tuple[str, ...], row: tuple[object, ...], words: str
) -> None:
    file = write_csv(tmp_path / "train.csv", (0, "good enough"), row, names=names)
    with pytest.raises(Refusal, match=words):
        list(reviews.read([file]))


def test_wrong_parquet_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "train.parquet"
    parquet.write_table(pyarrow.table({"label": [0, 1], "title": ["a", "b"]}), file)
    with pytest.raises(Refusal, match="has no column content; its columns: label, title"):
        list(reviews.read([file]))
    parquet.write_table(pyarrow.table({"label": [0, None], "content": ["a", "b"]}), file)
    with pytest.raises(Refusal, match="review 2: label None is neither"):
        list(reviews.read([file]))
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(Refusal, match=r"cannot be read as Parquet.*--replace"):
        list(reviews.read([file]))


def test_empty_files_are_refused(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "train.csv")
    with pytest.raises(Refusal, match=r"train\.csv: no reviews in there"):
        list(reviews.read([file]))
    (tmp_path / "nothing.csv").touch()
    with pytest.raises(Refusal, match="has no column label"):
        list(reviews.read([tmp_path / "nothing.csv"]))


def test_no_more_are_read_than_wanted(tmp_path: Path) -> None:
    make_data.write(tmp_path, "train", 0, range(10))
    assert [len(each.labels) for each in reviews.read(reviews.split_files(tmp_path, "train"), most=7)] == [7]


# --- Numbers ----------------------------------------------------------------------------------------------------------


def test_text_becomes_the_numbers_that_transformers_makes_of_it(tmp_path: Path, pieces: wordpieces.WordPieces) -> None:
    pieces.save(tmp_path, 24)
    judge = AutoTokenizer.from_pretrained(tmp_path)
    texts = ["", "This kettle is Awful, unlikely so.", synthetic.review(0, 4)[2] * 3, "Ünïcode 漢字"]
    expected = judge(texts, padding="max_length", truncation=True, max_length=24, return_tensors="pt")
    mine = torch.from_numpy(pieces.encode(texts, 24))
    assert torch.equal(mine, expected["input_ids"])
    assert torch.equal((mine != pieces.pad_id).long(), expected["attention_mask"])
    again = wordpieces.load(tmp_path)
    assert again.as_json == pieces.as_json


def test_googles_vocabulary_cuts_as_it_does(tmp_path: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "##ness", "bad", "."]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    assert wordpieces.load(tmp_path).encode(["Goodness bad."], 7).tolist() == [[2, 5, 6, 7, 8, 3, 0]]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    assert wordpieces.load(tmp_path).encode(["Goodness bad."], 7).tolist() == [[2, 1, 7, 8, 3, 0, 0]]


def test_a_directory_without_a_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"neither tokenizer\.json nor vocab\.txt"):
        wordpieces.load(tmp_path)
    (tmp_path / "vocab.txt").write_text("good\nbad\n")
    with pytest.raises(Refusal, match="vocabulary"):
        wordpieces.load(tmp_path)


def test_encoded_reviews_are_kept_and_found_again(tmp_path: Path, pieces: wordpieces.WordPieces) -> None:
    chunks = list(synthetic.chunks(5, 40))
    made = encoded.encode(chunks, pieces, 16, tmp_path / "k")
    there = encoded.encode([], pieces, 16, tmp_path / "k")
    assert there == made == encoded.find(tmp_path / "k")
    batch = made.__getitems__([Position(0, 3), Position(2, 0)])
    assert batch["labels"].tolist() == [chunks[0].labels[3], chunks[0].labels[0]]
    assert torch.equal(batch["input_ids"], torch.from_numpy(pieces.encode([chunks[0].texts[i] for i in (3, 0)], 16)))
    assert [each.name for each in tmp_path.iterdir()] == ["k"]
    # A worker of a DataLoader gets a copy: of the paths, not of gigabytes.
    assert len(pickle.dumps(made)) < 1000
    assert torch.equal(pickle.loads(pickle.dumps(made)).rows([3])["labels"], made.rows([3])["labels"])


def test_what_is_not_whole_is_made_again(tmp_path: Path, pieces: wordpieces.WordPieces) -> None:
    made = encoded.encode(synthetic.chunks(5, 40), pieces, 16, tmp_path / "k")
    with (tmp_path / "k" / "ids").open("r+b") as file:
        file.truncate(100)
    assert encoded.find(tmp_path / "k") is None
    assert len(encoded.encode(synthetic.chunks(5, 40), pieces, 16, tmp_path / "k")) == len(made) == 40
    assert encoded.find(tmp_path / "k") is not None


def test_reviews_of_the_wrong_shape_leave_nothing(tmp_path: Path, pieces: wordpieces.WordPieces) -> None:
    def broken() -> object:
        yield Chunk(["a"], [0])
        raise Refusal("no")

    with pytest.raises(Refusal):
        encoded.encode(broken(), pieces, 16, tmp_path / "k")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_another_vocabulary_length_or_file_is_another_key(tmp_path: Path, pieces: wordpieces.WordPieces) -> None:
    file = write_csv(tmp_path / "train.csv", (0, "t", "x"))
    base = encoded.key(encoded.stamps([file]), pieces, 16)
    assert encoded.key(encoded.stamps([file]), pieces, 16) == base
    other = wordpieces.learn(["quite other words"], 60)
    write_csv(file, (0, "t", "xy"))
    keys = {encoded.key([], pieces, 16), encoded.key([], pieces, 32), encoded.key([], other, 16)}
    assert len({base, encoded.key(encoded.stamps([file]), pieces, 16), *keys}) == 5


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path, pieces: wordpieces.WordPieces) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Refusal, match="--cache-dir"):
        encoded.encode(synthetic.chunks(5, 4), pieces, 16, tmp_path / "file" / "k")
