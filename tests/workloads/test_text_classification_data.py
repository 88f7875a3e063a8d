"""Reviews from their files to numbers: what is read, what is refused, what is kept."""

import json
import pickle
from types import SimpleNamespace

import pyarrow
import pytest
from datasets import ClassLabel, Dataset, Features, Value
from pyarrow import parquet
from trainium_workloads.text_classification import make_data
from trainium_workloads.text_classification.data import ReviewSource, learn
from trainium_workloads.tokenized import read_tokenizer
from trainium_workloads.training.refusal import RefusalError
from trainium_workloads.training.task import Position

ONE_RANK = SimpleNamespace(rank=0, local_rank=0, any=lambda flag: flag, share=lambda text: text)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    directory = tmp_path_factory.mktemp("vocabulary")
    learn(make_data.reviews(0, range(300))["content"], 512).save_pretrained(directory)
    return directory


@pytest.fixture
def prepared(tmp_path, vocabulary):
    """Tokenizes the reviews of a directory."""

    def prepare(directory, **other):
        settings = dict.fromkeys(("train", "test"), directory) | {"length": 16, "vocabulary": vocabulary}
        settings |= {"synthetic": 0, "seed": 0, "cache": None, "each_node": False, "output": tmp_path / "output"}
        return ReviewSource(**(settings | other)).prepared(ONE_RANK)

    return prepare


@pytest.mark.parametrize("as_csv", [False, True])
def test_both_file_formats_give_transformers_token_ids(tmp_path, prepared, vocabulary, as_csv):
    for split, numbers in (("train", range(40)), ("test", range(40, 50))):
        file = make_data.write(tmp_path / "data", split, seed=3, numbers=numbers)
        if as_csv:
            make_data.reviews(3, numbers).to_csv(file.with_name(f"{split}.csv"))
            file.unlink()
    data = prepared(tmp_path / "data")
    expected = make_data.reviews(3, range(50))
    assert (len(data.train), len(data.test), data.labels) == (40, 10, ("negative", "positive"))
    batch = data.test.__getitems__([Position(0, 3), Position(2, 0)])
    assert batch["labels"].tolist() == [expected[43]["label"], expected[40]["label"]]
    texts = [expected[43]["content"], expected[40]["content"]]
    judge, _ = read_tokenizer(vocabulary, model_max_length=16)
    told = judge(texts, padding="max_length", truncation=True, max_length=16, return_tensors="pt")
    assert batch["input_ids"].tolist() == told["input_ids"].tolist()
    assert batch["attention_mask"].tolist() == told["attention_mask"].tolist()
    # A worker of a DataLoader gets a copy: of the paths, not of gigabytes.
    assert len(pickle.dumps(data.train)) < 20_000
    assert pickle.loads(pickle.dumps(data.train)).at([3])["labels"] == data.train.at([3])["labels"]


def test_labels_have_the_datas_names(tmp_path, prepared):
    file, table = tmp_path / "train.parquet", tmp_path / "train.csv"
    names = ClassLabel(names=["world", "sports", "business"])
    reviews = Dataset.from_dict({"text": ["a", "NA"], "label": [2, 0]}, Features(text=Value("string"), label=names))
    reviews.to_parquet(file)
    for content, labels, found in (
        ("", ("world", "sports", "business"), [2, 0]),
        ("label,text\nspam,NA\nham,b\n", ("ham", "spam"), [1, 0]),
        ("label,text\n2,a\n0,b\n1,c\n", ("0", "1", "2"), [2, 0]),
        ("label,text\n" + "".join(f"{number},a\n" for number in range(11, -1, -1)), None, [11, 10]),
    ):
        table.write_text(content)
        data = prepared(table if content else file)
        assert data.labels == (labels or tuple(map(str, range(12))))
        assert data.test.at([0, 1])["labels"].tolist() == found


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("label,content\n1,fine\n2,x", r"train\.csv: the labels are 1, 2, .*need 1 taken off"),
        ("label,content\n1,fine\n,x", r"train\.csv: the labels are '', '1'"),
        ("label,content\n1,a\n0,b\ngood,x", r"train\.csv: the labels are .0., .1., .good., where names or all numbers"),
        ("label,body\n1,fine", "has no column text or content; its columns: label, body"),
        ("stars,body\n1,fine", "has no column label and no column text or content"),
        ("label,content\n", r"train\.csv has no reviews, or cannot be read as csv"),
        ("\n", r"train\.csv has no reviews, or cannot be read as csv"),
    ],
)
def test_a_wrong_shape_is_refused(tmp_path, prepared, content, words):
    file = tmp_path / "train.csv"
    file.write_text(content)
    with pytest.raises(RefusalError, match=words):
        prepared(file)
    assert not list(tmp_path.glob(".tokenized/*"))


def test_invalid_parquet_is_refused_with_its_row(tmp_path, prepared):
    file, test = tmp_path / "train.parquet", tmp_path / "test.parquet"
    parquet.write_table(pyarrow.table({"label": [0, 1], "text": ["a", None]}), file)
    with pytest.raises(RefusalError, match=r"train\.parquet, review 2: text is None, no text"):
        prepared(file)
    parquet.write_table(pyarrow.table({"label": [0, 1], "text": ["a", "b"]}), file)
    parquet.write_table(pyarrow.table({"label": [1, 2], "text": ["a", "b"]}), test)
    with pytest.raises(RefusalError, match=r"review 2: label 2 is not one of 0 \(negative\), 1 \(positive\)"):
        prepared(file, test=test)
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(RefusalError, match=r"train\.parquet has no reviews, or cannot be read as parquet.*--replace"):
        prepared(file)


def test_tokenized_reviews_are_cached(tmp_path, prepared, monkeypatch):
    file = make_data.write(tmp_path / "data", "train", 0, range(12))
    prepared(file)
    cached = sorted((tmp_path / "data" / ".tokenized").iterdir())
    assert [each.name.partition("-")[0] for each in cached] == ["test", "train"]
    with monkeypatch.context() as patch:
        patch.setattr(Dataset, "map", None)  # nothing is tokenized again
        prepared(file)
    cached[1].write_bytes(cached[1].read_bytes()[:500])  # not whole: made again
    assert len(prepared(file).train) == 12
    prepared(file, length=24)
    make_data.write(tmp_path / "data", "train", 1, range(12))
    prepared(file)
    assert len(list((tmp_path / "data" / ".tokenized").iterdir())) == 6  # another length and other reviews
    (tmp_path / "file").touch()
    with pytest.raises(RefusalError, match="takes no tokens"):
        prepared(file, cache=tmp_path / "file" / "cache")


def test_trained_vocabulary_is_deterministic_and_lower_case():
    texts = ["Good kettle, good LAMP.", "bad lamp"]
    first = learn(texts, 60)
    assert first.backend_tokenizer.to_str() == learn(texts, 60).backend_tokenizer.to_str()
    assert first.tokenize("GOOD kettle, lama") == ["good", "kettle", ",", "l", "##a", "##m", "##a"]


def test_googles_vocabulary_splits_like_the_original(tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "##ness", "bad", "."]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    assert read_tokenizer(tmp_path)[0]("Goodness bad.")["input_ids"] == [2, 5, 6, 7, 8, 3]
    with pytest.raises(RefusalError, match="nothing has no tokenizer"):
        read_tokenizer(tmp_path / "nothing")


def test_unread_columns_of_json_may_change_their_types(tmp_path, prepared):
    early, late = {"label": 0, "text": "a", "id": None, "pad": "x" * 1_000_000}, {"label": 1, "text": "b", "id": "c"}
    (tmp_path / "train.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in [early] * 11 + [late]))
    assert len(prepared(tmp_path / "train.jsonl").train) == 12
