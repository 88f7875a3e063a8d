"""BERT-tiny learns which reviews are good: in a gang, killed and resumed, and as SageMaker would run it."""

import json
import runpy
from pathlib import Path

import pytest
import torch
from gangs import WORKLOADS, XLA_ON_CPU
from trainium_workloads.model_directory import write_model
from trainium_workloads.text_classification import make_data, sagemaker
from trainium_workloads.text_classification.data import learn
from trainium_workloads.text_classification.train import RESULT
from trainium_workloads.training.refusal import EXIT_CODE
from transformers import AutoModelForSequenceClassification, AutoTokenizer, DistilBertConfig, DistilBertForMaskedLM

TRAIN = "trainium_workloads.text_classification.train"
TINY = ("--size", "tiny", "--length", "32", "--precision", "fp32")
SHORT = (*TINY, "--synthetic", "160", "--steps", "8", "--checkpoint-every", "2", "--warm-up", "1")


def result(output):
    return json.loads((output / RESULT).read_text())


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Reviews as they lie on the Hub."""
    directory = tmp_path_factory.mktemp("reviews")
    make_data.write(directory, "train", 0, range(800))
    make_data.write(directory, "test", 0, range(800, 1000))
    return directory


def test_two_ranks_train_a_model_that_transformers_loads(gang, data, tmp_path):
    losses = gang(TRAIN, *TINY, "--data-dir", data, "--steps", 40, "--warm-up", 5, "--output", "out").losses
    assert losses[40] < 0.5 * losses[1]
    found = result(tmp_path / "out")
    assert found["accuracy"] > 0.9  # of reviews that it has not seen; chance is one half
    assert (found["evaluated"], found["reviews"], found["ranks"], found["batch_size"]) == (200, 800, 2, 32)
    assert 0 < found["train_seconds"] < found["seconds"]
    assert found["iterations_per_second"] > 0
    assert len(list((data / ".tokenized").iterdir())) == 2
    directory = tmp_path / "out" / "model"
    assert sorted(each.name for each in directory.iterdir()) == [
        *("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "training.json")
    ]
    model = AutoModelForSequenceClassification.from_pretrained(directory)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    assert (tokenizer.model_max_length, model.config.architectures) == (32, ["BertForSequenceClassification"])
    texts = ["This lamp is superb and reliable. My family loves it.", "A broken kettle. I sent it back. " * 30]
    with torch.no_grad():
        told = model(**tokenizer(texts, padding="max_length", truncation=True, return_tensors="pt")).logits
    assert [model.config.id2label[each] for each in told.argmax(dim=1).tolist()] == ["positive", "negative"]


def test_killed_training_resumes_to_the_same_model(gang, tmp_path):
    whole = gang(TRAIN, *SHORT, "--output", "whole")
    gang(TRAIN, *SHORT, "--output", "cut", kill_at=5, kill_when=tmp_path / "cut" / "checkpoints" / "latest")
    assert not (tmp_path / "cut" / "model").exists()
    again = gang(TRAIN, *SHORT, "--output", "cut")
    assert min(again.losses) > 2
    assert again.losses[8] == whole.losses[8]
    weights = [tmp_path / output / "model" / "model.safetensors" for output in ("cut", "whole")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_given_encoder_is_tuned_for_the_given_epochs(gang, tmp_path):
    """Evaluated after steps that change next to nothing, the model is the one that was given, with a new head."""
    torch.manual_seed(0)
    pieces = learn(["good bad book " * 3], 60)
    sizes = {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": 40}
    given = DistilBertForMaskedLM(DistilBertConfig(vocab_size=len(pieces), **sizes))
    write_model(given, given.state_dict(), tmp_path / "given", pieces)
    few = ("--synthetic", 40, "--epochs", 1.5, "--batch-size", 10, "--learning-rate", "1e-12", "--output", "out")
    gang(TRAIN, *TINY, *few, "--model-dir", tmp_path / "given", ranks=1)
    trained = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out" / "model")
    for name, tensor in given.distilbert.state_dict().items():
        torch.testing.assert_close(trained.distilbert.state_dict()[name], tensor)
    assert (result(tmp_path / "out")["steps"], result(tmp_path / "out")["model"]) == (6, "given")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--size", "base"), "trn stage bert-base-uncased"),
        ((*TINY, "--synthetic", "40", "--length", "4"), "--length must be 8 or more, not 4"),
        ((*TINY, "--synthetic", "40", "--length", "200"), "--length 200 is more than the model takes: 128 at most"),
        ((*TINY, "--synthetic", "40", "--model-dir", "none"), "none holds no model (config.json)"),
        ((*TINY, "--synthetic", "40", "--model-dir", "reviews", "--vocabulary", "reviews"), "reviews has no tokenizer"),
        ((*TINY, "--data-dir", "reviews"), "has no column text or content"),
        ((*TINY, "--data-dir", "reviews/train.csv"), "is one file: give --train-data and --test-data"),
    ],
)
def test_impossible_classification_is_refused_for_good(gang, tmp_path, arguments, words):
    (tmp_path / "reviews").mkdir()
    (tmp_path / "reviews" / "train.csv").write_text("label,body\n1,fine\n")
    (tmp_path / "reviews" / "config.json").write_text("{")
    ranks = 2 if "reviews" in arguments else 1
    ended = gang(TRAIN, *arguments, "--output", "out", ranks=ranks, code=EXIT_CODE)
    # The other rank may be ended before it has said the same.
    assert words in "".join(ended.err)


JUDGED = """
import json, sys
from pathlib import Path
import torch
import torch_xla.debug.metrics as measured
from trainium_workloads.bert.config import config_of
from trainium_workloads.text_classification.data import ReviewSource
from trainium_workloads.text_classification.train import Classification
from trainium_workloads.training import backends
from trainium_workloads.training.evaluation import Evaluation
from trainium_workloads.training.options import Options
from transformers import AutoModelForSequenceClassification

found = {}
for name in ("xla", "cpu"):
    options = Options(backend=name, precision="fp32", batch_size=8)
    backend = backends.start(options)
    data = ReviewSource(None, None, 60, 0, 16, None, None, False, Path("output")).prepared(backend)
    torch.manual_seed(0)
    config = config_of("tiny", name, vocabulary=len(data.tokenizer))
    config.num_hidden_layers = 1
    model = AutoModelForSequenceClassification.from_config(config).to(backend.device)
    task = Classification(data, config, None)
    found[name] = [
        Evaluation(task, data.train.first(most), options, backend, (0, 1)).of(model, 1)["eval_accuracy"]
        for most in (0, 13, 60)
    ]
    found.setdefault("graphs", measured.metric_data("CompileTime")[0])
    backend.close()
print(json.dumps(found))
"""


def test_xla_predicts_the_same_with_one_graph(gang, tmp_path):
    (tmp_path / "judged.py").write_text(JUDGED)
    ended = gang("judged", ranks=1, environment=XLA_ON_CPU)
    found = json.loads(ended.out[0].splitlines()[-1])
    assert found["xla"] == found["cpu"]
    assert found["xla"][0] == found["xla"][2] != found["xla"][1]
    assert found["graphs"] == 1


# --- SageMaker --------------------------------------------------------------------------------------------------------


def channels(data, root):
    """What SageMaker's training toolkit sets."""
    places = {name: str(root / name) for name in ("model", "data", "checkpoints")}
    for each in places.values():
        Path(each).mkdir(parents=True)  # mounted before the script begins
    found = {"SM_CHANNEL_TRAIN": str(data), "SM_CHANNEL_TEST": str(data), "SM_NUM_NEURONS": "0", "SM_NUM_GPUS": "0"}
    found |= {"SM_MODEL_DIR": places["model"], "SM_OUTPUT_DATA_DIR": places["data"], "TRN_PRECISION": "fp32"}
    return {**found, "SM_CHECKPOINT": places["checkpoints"]}


def appended(root):
    """Hyper-parameters, as the toolkit appends them to the command."""
    given = {"size": "tiny", "max_length": 32, "per_device_train_batch_size": 8, "max_train_steps": 6, "resume": True}
    given |= {"cache_dir": root / "cache", "warm-up": 1}
    return [word for name, value in given.items() for word in (f"--{name}", str(value))]


def test_sagemaker_runs_the_script_by_torchrun(gang, data, tmp_path):
    ml = tmp_path / "ml"
    environment = channels(data, ml)
    gang(TRAIN, *appended(ml), environment=environment)
    _check_sagemaker(ml, ranks=2)
    # A job that SageMaker starts again finds its checkpoints, and the encoded reviews of the node.
    again = gang(TRAIN, *appended(ml), environment=environment)
    assert "resumed from step 6" in again.out[0]


def test_sagemaker_runs_the_script_as_one_process(data, tmp_path, monkeypatch):
    for name, value in channels(data, tmp_path / "ml").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.argv", ["train.py", *appended(tmp_path / "ml")])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(WORKLOADS.parent / "examples" / "sagemaker" / "train.py"), run_name="__main__")
    assert ended.value.code == 0
    _check_sagemaker(tmp_path / "ml", ranks=1)


def _check_sagemaker(ml, ranks):
    found = result(ml / "data")
    assert (found["steps"], found["batch_size"], found["ranks"], found["backend"]) == (6, 8 * ranks, ranks, "cpu")
    assert AutoTokenizer.from_pretrained(ml / "model").model_max_length == 32
    assert (ml / "checkpoints" / "checkpoints" / "latest").exists()
    assert len(list((ml / "cache").iterdir())) == 2


def test_sagemaker_variables_become_options():
    environment = {
        "SM_MODEL_DIR": "/opt/ml/model",
        "SM_CHANNEL_TRAINING": "/opt/ml/input/data/training",
        "SM_CHANNEL_VAL": "/opt/ml/input/data/val",
        "SM_CHANNEL_MODEL": "/opt/ml/input/data/model",
        "SM_NUM_NEURONS": "32",
    }
    assert sagemaker.arguments(environment, ["--compile", "False", "--seed", "1"]) == [
        *("--output", "/opt/ml/checkpoints", "--backend", "xla"),
        *("--train-data", "/opt/ml/input/data/training", "--test-data", "/opt/ml/input/data/val"),
        *("--model-dir", "/opt/ml/input/data/model", "--model-out", "/opt/ml/model"),
        *("--no-compile", "--seed", "1"),
    ]
    assert sagemaker.arguments({}, ["--flag", "True"]) == ["--flag", "True"]
