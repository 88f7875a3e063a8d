"""The data set of BERT: what is written is read, each example once an epoch, and what is not one is refused."""

import pickle
from itertools import pairwise

import h5py
import numpy as np
import pytest
import torch
from trainium_workloads.bert import make_data, wikicorpus
from trainium_workloads.bert.wikicorpus import open_corpus, write_shard
from trainium_workloads.training.refusal import RefusalError
from trainium_workloads.training.task import Position

SEQUENCE, PREDICTIONS, VOCABULARY = 32, 5, 160


def _columns(count, seed=1, **other):
    sizes = {"sequence": SEQUENCE, "predictions": PREDICTIONS, "vocabulary": VOCABULARY} | other
    return make_data.make(count, seed=seed, **sizes)


@pytest.fixture
def directory(tmp_path):
    for shard, count in enumerate((30, 50, 20)):
        write_shard(tmp_path / f"wiki_training_{shard}.hdf5", _columns(count, seed=shard))
    write_shard(tmp_path / "wiki_test_0.hdf5", _columns(7))
    return tmp_path


def _open(directory, **other):
    return open_corpus(
        directory, **({"sequence": None, "predictions": None, "vocabulary": VOCABULARY, "seed": 5} | other)
    )


def test_examples_equal_the_written_ones(directory):
    corpus = _open(directory)
    assert len(corpus) == 100  # not those for tests
    batch = corpus.__getitems__([Position(0, index) for index in range(100)])
    assert {name: (list(each.shape), each.dtype) for name, each in batch.items()} == {
        "tokens": ([100, 32], torch.int64),
        "segments": ([100, 32], torch.int64),
        "mask": ([100, 32], torch.int64),
        "positions": ([100, 5], torch.int64),
        "answers": ([100, 5], torch.int64),
        "labels": ([100], torch.int64),
    }
    shards = [_columns(count, seed=shard) for shard, count in enumerate((30, 50, 20))]
    written = np.concatenate([each["input_ids"] for each in shards]).tolist()
    assert sorted(batch["tokens"].tolist()) == sorted(written)
    row = written.index(batch["tokens"][0].tolist())
    assert batch["answers"][0].tolist() == np.concatenate([each["masked_lm_ids"] for each in shards])[row].tolist()
    # No more masked words are taken than asked for.
    fewer = _open(directory, predictions=3).__getitems__([Position(0, 0)])
    assert fewer["positions"].shape == fewer["answers"].shape == (1, 3)


@pytest.mark.parametrize("together", [1, 60, 1000])
def test_each_epoch_has_each_example_once_in_another_order(directory, together, monkeypatch):
    monkeypatch.setattr(wikicorpus, "_TOGETHER", together)
    corpus = _open(directory)
    epochs = [[corpus._where(Position(epoch, index)) for index in range(100)] for epoch in range(3)]
    for epoch in epochs:
        assert sorted(epoch) == [(shard, row) for shard, count in enumerate((30, 50, 20)) for row in range(count)]
    assert epochs[0] != epochs[1] != epochs[2]
    again, other = _open(directory), _open(directory, seed=6)
    assert epochs[1] == [again._where(Position(1, index)) for index in range(100)]
    assert epochs[1] != [other._where(Position(1, index)) for index in range(100)]
    changes = sum(first != second for (first, _), (second, _) in pairwise(epochs[0]))
    assert (changes == 2) == (together == 1)  # one shard after the other, or mixed


def test_an_example_is_the_same_whenever_it_is_asked_for(directory, monkeypatch):
    monkeypatch.setattr(wikicorpus, "_TOGETHER", 1)
    corpus = _open(directory)
    in_order = [corpus.__getitems__([Position(2, index)])["tokens"] for index in range(100)]
    for index in (99, 0, 55, 54, 31, 1):
        assert torch.equal(corpus.__getitems__([Position(2, index)])["tokens"], in_order[index])
    for_a_worker = pickle.loads(pickle.dumps(corpus))
    assert torch.equal(for_a_worker.__getitems__([Position(2, 55)])["tokens"], in_order[55])


@pytest.mark.parametrize(("together", "in_a_turn"), [(1, 1), (60, 2)])
def test_shards_are_prefetched_once_an_epoch(directory, together, in_a_turn, monkeypatch):
    corpus = _open(directory)
    read = []
    content = wikicorpus._content
    monkeypatch.setattr(wikicorpus, "_TOGETHER", together)
    monkeypatch.setattr(wikicorpus, "_content", lambda path, most: (read.append(path), content(path, most))[1])
    corpus._read.clear()
    at_once = []
    for epoch in range(3):
        for index in range(0, 100, 2):
            before = len(read)
            corpus.__getitems__([Position(epoch, index), Position(epoch, index + 1)])
            at_once.append(len(read) - before)
            assert len(corpus._read) <= 2 * in_a_turn
    assert max(at_once[1:]) == 1  # no micro-batch but the first waits for several files
    assert 3 <= len(read) <= 3 * 3 + len(corpus._next.shards)


def test_synthetic_examples_have_the_papers_format():
    columns = _columns(2000)
    tokens, positions, answers = (columns[name] for name in ("input_ids", "masked_lm_positions", "masked_lm_ids"))
    assert set(np.unique(tokens[:, 0])) == {make_data.CLASSIFY}
    assert ((tokens == make_data.SEPARATE).sum(axis=1) == 2).all()
    assert ((tokens == make_data.PADDING) == (columns["input_mask"] == 0)).all()
    used = positions > 0
    assert (used == (answers > 0)).all()
    assert all((np.diff(row[keep]) > 0).all() for row, keep in zip(positions, used, strict=True))
    shown = np.take_along_axis(tokens, positions, axis=1)[used]
    assert np.mean(shown == make_data.MASK) == pytest.approx(0.8, abs=0.02)
    assert np.mean(shown == answers[used]) == pytest.approx(0.1, abs=0.02)
    assert used.sum() / columns["input_mask"].sum() == pytest.approx(0.15, abs=0.02)
    assert (answers[used] > make_data.MASK).all()
    assert answers.max() < VOCABULARY
    assert 0.4 < columns["next_sentence_labels"].mean() < 0.6
    assert (_columns(2000)["input_ids"] == tokens).all()
    assert (_columns(2000, seed=2)["input_ids"] != tokens).any()


def test_the_generator_writes_a_data_set(tmp_path, monkeypatch):
    def generate(*arguments):
        monkeypatch.setattr("sys.argv", ["make_data", "--to", str(tmp_path / "new" / "set"), *arguments])
        return make_data.main()

    assert generate("--examples", "101", "--seq-len", "128") == 0
    corpus = _open(tmp_path / "new", vocabulary=30522)
    assert (len(corpus), corpus.sequence, corpus.predictions) == (101, 128, 20)
    with h5py.File(tmp_path / "new" / "set" / "synthetic_training_0.hdf5") as file:
        found = {name: str(each.dtype) for name, each in file.items()}
    small = dict.fromkeys(("input_mask", "segment_ids", "next_sentence_labels"), "int8")
    assert found == small | dict.fromkeys(("input_ids", "masked_lm_positions", "masked_lm_ids"), "int32")
    with pytest.raises(RefusalError, match=r"--examples must be 4 or more, not 3; --seq-len must be 16 or more, not 3"):
        generate("--seq-len", "3", "--examples", "3")


def test_missing_or_empty_directory_is_refused_with_the_staging_command(tmp_path):
    with pytest.raises(RefusalError, match=r"nowhere is not a directory.*trn stage wikicorpus-bert-128.*--synthetic"):
        _open(tmp_path / "nowhere")
    with pytest.raises(RefusalError, match=r"no \.hdf5 files.*trn stage wikicorpus-bert-512"):
        _open(tmp_path, sequence=512)


def _with(name, **given):
    def change(path):
        with h5py.File(path, "a") as file:
            del file[name]
            if given:
                file.create_dataset(name, **given)

    return change


def _cut(path):
    path.write_bytes(path.read_bytes()[:2000])


def _garbled(path):
    """The data are broken, the structure is not."""
    with h5py.File(path) as file:
        offset = file["input_ids"].id.get_chunk_info(0).byte_offset
    content = bytearray(path.read_bytes())
    content[offset : offset + 40] = b"\xff" * 40
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_with("masked_lm_ids"), r"_0\.hdf5: has no masked_lm_ids"),
        (_cut, r"_0\.hdf5: cannot be read \(.*truncated.*\): stage it again"),
        (_garbled, r"_0\.hdf5: cannot be read \(.*\): stage it again"),
        (lambda path: path.write_text("not HDF5"), r"_0\.hdf5: cannot be read"),
        (_with("input_ids", data=np.zeros((30, 32))), r"input_ids is float64\[30, 32\], not integers \[examples, seq"),
        (_with("input_ids", data=np.zeros(30, "i4")), r"input_ids is int32\[30\], not integers \[examples, sequence\]"),
        (_with("input_ids", data=np.zeros((30, 16), "i4")), r"its columns have 16 and 32 sequence"),
        (_with("segment_ids", data=np.zeros((29, 32), "i1")), r"its columns have 29 and 30 examples"),
        (_with("input_ids", data=np.full((30, 32), 160)), r"input_ids has 160 to 160, where 0 to 159 is allowed"),
        (_with("masked_lm_positions", data=np.full((30, 5), 32)), r"masked_lm_positions has 32 to 32, where 0 to 31"),
        (_with("next_sentence_labels", data=np.full(30, -1)), r"next_sentence_labels has -1 to -1, where 0 to 1"),
    ],
)  # fmt: skip
def test_malformed_shard_is_refused(directory, change, said):
    change(directory / "wiki_training_0.hdf5")
    with pytest.raises(RefusalError, match=said):
        _open(directory)


def test_all_faults_of_a_data_set_are_reported_at_once(directory):
    _cut(directory / "wiki_training_0.hdf5")
    write_shard(directory / "wiki_training_2.hdf5", _columns(10, sequence=64, predictions=10))
    with pytest.raises(RefusalError) as refused:
        _open(directory, predictions=6)
    assert str(refused.value).count("wiki_training_") >= 3
    assert "64 tokens, not 32 (--seq-len)" in str(refused.value)
    assert "5 masked words, not 6: give --max-pred-len 5" in str(refused.value)
    with pytest.raises(RefusalError, match=r"has 32 tokens, not 128|have 32 tokens, not 128 \(--seq-len\)"):
        _open(directory, sequence=128)


def test_damaged_shard_is_refused_on_reading(directory):
    _garbled(directory / "wiki_training_1.hdf5")
    corpus = _open(directory)
    with pytest.raises(RefusalError, match=r"wiki_training_1\.hdf5.*stage it again"):
        corpus.__getitems__([Position(0, index) for index in range(100)])
