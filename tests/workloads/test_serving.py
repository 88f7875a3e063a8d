"""A trained model at work: over HTTP, also as SageMaker asks, and in batches, what is refused, how it ends."""

import csv
import http.client
import json
import signal
import sys
import threading
import types
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pyarrow.csv
import pytest
import tiny_models
import torch
from gangs import free_port, start
from pyarrow import parquet
from trainium_workloads.serving import batch, generator, sagemaker, server
from trainium_workloads.serving.predictor import BATCHES, Predictor
from trainium_workloads.training.refusal import EXIT_CODE, RefusalError, guarded
from transformers import AutoModelForCausalLM
from waiting import SECONDS, until

TEXTS = [f"This {thing} is {word}. " * (1 + 7 * (number % 3)) for number in range(4) for thing, word in
         (("lamp", "superb"), ("kettle", "broken"), ("chair", "fine"))] + ["", "short"]  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Directories ``classifier`` and ``generator`` with models that know nothing yet."""
    place = tmp_path_factory.mktemp("models")
    tiny_models.make(place)
    return place


def options(model, **changed):
    return Namespace(**{"model": model, "backend": "cpu", "threads": 0, "graphs": None, **changed})


@pytest.fixture(scope="module")
def predictor(made):
    return Predictor(options(made / "classifier"))


# --- Predictions ------------------------------------------------------------------------------------------------------


def test_predictions_keep_their_order_in_any_batch(predictor):
    together = predictor.predict(TEXTS)
    alone = [predictor.predict([text])[0] for text in TEXTS]
    assert len({each["score"] for each in together}) > 3
    assert [each["label"] for each in together] == [each["label"] for each in alone]
    assert [each["score"] for each in together] == pytest.approx([each["score"] for each in alone], abs=1e-4)


def test_only_compiled_shapes_are_computed(predictor, monkeypatch):
    seen = []
    run = predictor._run
    monkeypatch.setattr(predictor, "_run", lambda ids, mask: seen.append((*ids.shape,)) or run(ids, mask))
    predictor.warm_up()
    assert seen == [(number, length) for number in BATCHES for length in (32, 40)] == predictor.shapes
    seen.clear()
    predictor.predict(["lamp"] * 6 + ["lamp " * 70] * 31)
    # The shorter texts first; the longest are cut off where the tokenizer says.
    assert seen == [(32, 40), (8, 40)]


def test_traced_graphs_are_kept(made, predictor, tmp_path, monkeypatch):
    """With PyTorch's own tracing in the place of Neuron's, which makes the same kind of module."""
    traced = []

    def trace(module, example):
        traced.append(tuple(example[0].shape))
        return torch.jit.trace(module, example)

    neuron = types.SimpleNamespace(__version__="2.9", trace=trace)
    monkeypatch.setitem(sys.modules, "torch_neuronx", neuron)
    monkeypatch.setattr("trainium_workloads.serving.predictor.BATCHES", (1, 32))
    asked = options(made / "classifier", backend="xla", graphs=tmp_path / "graphs")
    first = Predictor(asked)
    assert traced == first.shapes
    second = Predictor(asked, core=1)
    assert traced == first.shapes, "what was kept is taken"
    expected = [each["score"] for each in predictor.predict(TEXTS)]
    for each in (first, second):
        assert [found["score"] for found in each.predict(TEXTS)] == pytest.approx(expected, abs=1e-4)


def test_a_directory_without_a_classifier_is_refused(made, tmp_path):
    def words():
        with pytest.raises(RefusalError) as refused:
            Predictor(options(tmp_path))
        return str(refused.value)

    config = json.loads((made / "classifier/config.json").read_text())
    assert "not a model directory: config.json: No such file" in words()
    for content, expected in (
        ("{", "config.json is not a JSON object"),
        (config | {"architectures": ["BertForPreTraining"]}, "holds BertForPreTraining by its config.json"),
        (config | {"architectures": ["LlamaForCausalLM"]}, "generates text, and predictions need"),
        (config, "cannot be read"),
    ):
        (tmp_path / "config.json").write_text(content if content == "{" else json.dumps(content))
        assert expected in words()


# --- Over HTTP --------------------------------------------------------------------------------------------------------


# SageMaker's command ``serve``, with a model in another place than ``/opt/ml/model``.
CONTAINER = """
import sys
from pathlib import Path

from trainium_workloads.serving import sagemaker

if __name__ == "__main__":
    sagemaker.arguments.__defaults__ = (Path(sys.argv[1]),)
    sys.exit(sagemaker.main())
"""

JSON, LINES = "application/json", "application/jsonlines"


class Server:
    """A process that serves a model, by its own command or as SageMaker's container does."""

    def __init__(self, model, *words, is_sagemaker=False):
        self.port = free_port()
        self.log = model.parent / f"{model.name}-{self.port}.out"
        port = str(self.port)
        if is_sagemaker:
            variables = {"SAGEMAKER_BIND_TO_PORT": port, "SAGEMAKER_MODEL_SERVER_WORKERS": "1", "TRN_BACKEND": "cpu"}
            (model.parent / "container.py").write_text(CONTAINER)
            self.process = start("container", model, log=self.log, environment=variables)
        else:
            words = ("--host", "127.0.0.1", "--port", port, "--threads", "1", "--linger", "1", *words)
            self.process = start("trainium_workloads.serving.server", model, *words, log=self.log)

    def connection(self):
        return closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS))

    def get(self, path):
        return self.ask(path, None)

    def ask(self, path, body, content=JSON):
        """The status and the text of its answer."""
        given = body if isinstance(body, bytes | None) else json.dumps(body)
        with self.connection() as connection:
            connection.request("GET" if body is None else "POST", path, given, {"Content-Type": content})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def predict(self, *texts):
        status, answer = self.ask("/predict", {"texts": texts})
        assert status == 200, answer
        return json.loads(answer)["predictions"]

    def is_ready(self):
        assert self.process.code() is None, self.errors()
        try:
            return self.get("/health")[0] == 200
        except OSError:
            return False

    def errors(self):
        return self.log.with_suffix(".err").read_text()

    def code(self):
        """Its exit code, once it has ended."""
        until(lambda: self.process.code() is not None, "the server's end")
        return self.process.code()


@pytest.fixture(scope="module")
def servers(made):
    """A classifier, two generators, and one with a model whose weights are not there; they start side by side."""
    broken = made / "broken"
    broken.mkdir()
    (broken / "config.json").write_text((made / "classifier/config.json").read_text())
    found = {
        "broken": Server(broken),
        "classifier": Server(made / "classifier", is_sagemaker=True),
        "generator": Server(made / "generator", "--name", "serve-tiny"),
        "container": Server(made / "generator", is_sagemaker=True),
    }
    yield found
    for each in found.values():
        each.process.end()  # with the processes that LitServe started


@pytest.fixture(scope="module")
def classifier(servers):
    until(servers["classifier"].is_ready, "the classifier's first answer")
    return servers["classifier"]


@pytest.fixture(scope="module")
def chat(servers):
    until(servers["generator"].is_ready, "the generator's first answer")
    return servers["generator"]


def test_classifier_answers_concurrent_requests(classifier, predictor):
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(classifier.predict, TEXTS, reversed(TEXTS)))
    scores = [[each["score"] for each in answer] for answer in answers]
    expected = [each["score"] for each in predictor.predict(TEXTS)]
    assert [score for score, _ in scores] == pytest.approx(expected, abs=1e-4)
    assert [score for _, score in scores] == pytest.approx(expected[::-1], abs=1e-4)
    assert answers[0][0].keys() == {"label", "score"}


@pytest.mark.parametrize(
    ("path", "body", "content", "status", "words"),
    [
        ("/predict", b"no json", JSON, 422, "JSON"),
        ("/predict", {"text": "a"}, JSON, 422, "texts"),
        ("/predict", {"texts": []}, JSON, 422, "at least 1 item"),
        ("/predict", {"texts": ["a", 1]}, JSON, 422, "valid string"),
        ("/predict", {"texts": ["a"] * 257}, JSON, 422, "at most 256 items"),
        ("/predict", b" " * (2 << 20), JSON, 413, "too large"),
        ("/invocations", b'"a"\n{"stars": 5}', LINES, 400, "line 2 is neither a text, nor has content or text"),
        ("/invocations", b'{"text": 5}', LINES, 400, "line 1: the text is not a string"),
        ("/invocations", b"{", LINES, 400, "line 1"),
        ("/invocations", b"[]", JSON, 400, "an object with texts, messages or prompt"),
        ("/invocations", b"a", "text/csv", 415, "Content-Type must be application/json or application/jsonlines"),
        ("/invocations", b'{"texts": []}', JSON, 422, "texts"),
    ],
)
def test_malformed_request_gets_an_error(classifier, path, body, content, status, words):
    found, answer = classifier.ask(path, body, content)
    assert (found, words in answer) == (status, True), answer


def test_chat_is_answered_by_openais_api(chat):
    def ask(content="a lamp", model="serve-tiny"):
        asked = {"model": model, "messages": [{"role": "user", "content": content}]}
        status, answer = chat.ask("/v1/chat/completions", asked | {"max_tokens": 5, "temperature": 0})
        return status, json.loads(answer)

    status, answer = ask()
    assert status == 200, answer
    assert answer["choices"][0]["message"]["role"] == "assistant"
    assert answer["usage"]["completion_tokens"] == 5
    assert ask([{"type": "text", "text": "a lamp"}])[1]["choices"] == answer["choices"]
    for content in ([{"type": "image_url", "image_url": {"url": "a"}}], 7):
        status, answer = ask(content)
        assert (status, "reads text alone, and a message has a part" in str(answer)) == (422, True), answer
    assert ask(model="other")[0] == 400
    assert [each["id"] for each in json.loads(chat.get("/v1/models")[1])["data"]] == ["serve-tiny"]
    assert chat.ask("/reset", {})[0] == 404, "anyone in the namespace could unload the model"


def test_classifier_answers_invocations_and_json_lines(classifier):
    assert classifier.get("/ping")[0] == 200
    status, answer = classifier.ask("/invocations", {"texts": ["a lamp", "a chair"]})
    alone = json.loads(answer)["predictions"]
    assert (status, len(alone)) == (200, 2)
    records = [{"content": "a lamp"}, "a chair", {"text": "a lamp", "stars": 5}] * 100
    status, answer = classifier.ask("/invocations", "\n".join(map(json.dumps, records)).encode() + b"\n\n", LINES)
    lines = [json.loads(line) for line in answer.splitlines()]
    assert (status, len(lines)) == (200, 300)
    assert [each["label"] for each in lines[:3]] == [alone[0]["label"], alone[1]["label"], alone[0]["label"]]
    assert lines[299]["score"] == pytest.approx(alone[0]["score"], abs=1e-4)


def test_generator_answers_single_batched_and_streamed_invocations(servers):
    container = servers["container"]
    until(container.is_ready, "the container's first answer")
    asked = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}
    status, answer = container.ask("/invocations", asked)
    assert (status, json.loads(answer)["choices"][0]["message"]["role"]) == (200, "assistant")
    lines = f"{json.dumps(asked)}\n{json.dumps({'prompt': 'Hello', 'max_tokens': 2})}".encode()
    status, answer = container.ask("/invocations", lines, LINES)
    kinds = [set(json.loads(each)["choices"][0]) & {"message", "text"} for each in answer.splitlines()]
    assert (status, kinds) == (200, [{"message"}, {"text"}])
    status, answer = container.ask("/invocations", {**asked, "stream": True})
    assert (status, '"completion_tokens":2' in answer) == (200, True), answer


def test_unreadable_model_ends_the_server_with_its_reason(servers):
    assert servers["broken"].code() == EXIT_CODE
    assert "broken cannot be read" in servers["broken"].errors()


def test_a_classifier_loses_no_request_when_it_ends(classifier):
    """Clients that keep their connections ask without a pause, until an answer says that its connection ends."""
    statuses = []
    is_busy = threading.Event()

    def ask(text):
        body = json.dumps({"texts": [text]})
        with classifier.connection() as connection:
            for _ in range(300):
                connection.request("POST", "/predict", body, {"Content-Type": JSON})
                answer = connection.getresponse()
                answer.read()
                statuses.append(answer.status)
                if answer.will_close:
                    return
                if len(statuses) > 100:
                    is_busy.set()
        raise AssertionError("no answer ended the connection")

    with ThreadPoolExecutor(9) as pool:
        asking = [pool.submit(ask, text) for text in TEXTS[:8]]
        assert is_busy.wait(SECONDS)
        pool.submit(classifier.get, "/drain")
        for each in asking:
            each.result(SECONDS)
        # New connections are answered, too, until SIGTERM.
        assert classifier.predict("late")
        classifier.process.send(signal.SIGTERM)
        assert classifier.code() == 0
    assert set(statuses) == {200}


def test_a_generator_finishes_its_answer_when_it_ends(chat):
    question = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 40, "stream": True}
    with chat.connection() as connection:
        connection.request("POST", "/v1/chat/completions", json.dumps(question), {"Content-Type": JSON})
        answer = connection.getresponse()
        first = answer.readline()
        chat.process.send(signal.SIGTERM)
        rest = answer.read()
    assert first.startswith(b"data: ")
    assert b'"finish_reason":"' in rest
    assert chat.code() == 0


# --- Engines and adapters ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "words", "expected"),
    [
        ("classifier", ("--engine", "transformers"), "is a classifier: serve it with --engine classifier"),
        ("generator", ("--engine", "classifier"), "serve it with --engine transformers or vllm"),
        ("generator", ("--backend", "cuda"), "--engine vllm, or slower with --engine transformers"),
        ("generator", ("--backend", "neuron", "--engine", "transformers"), "an --image with vLLM for Neuron"),
        ("generator", ("--backend", "xla"), "no vLLM for Inferentia2 and Trn1"),
        ("generator", ("--copies", "2"), "--copies must be 1"),
    ],
)
def test_model_unsupported_by_an_engine_is_refused(made, monkeypatch, model, words, expected):
    monkeypatch.setattr("sys.argv", ["server", str(made / model), *words])
    with pytest.raises(RefusalError, match=expected):
        server.main()


def test_an_adapter_is_served_with_its_base(made, tmp_path):
    from peft import LoraConfig, get_peft_model

    base = AutoModelForCausalLM.from_pretrained(made / "generator")
    adapted = get_peft_model(base, LoraConfig(r=2, init_lora_weights=False, task_type="CAUSAL_LM"))
    adapted.save_pretrained(tmp_path / "adapter")
    merged = generator.merged(tmp_path / "adapter", tmp_path / "merged")
    ids = torch.arange(10)[None]
    found = AutoModelForCausalLM.from_pretrained(merged)(ids).logits
    torch.testing.assert_close(found, adapted.eval()(ids).logits, rtol=1e-4, atol=1e-5)
    assert (merged / "tokenizer.json").is_file()
    config = tmp_path / "adapter/adapter_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "base_model_name_or_path": "/data/gone"}))
    with pytest.raises(RefusalError, match=r"its base /data/gone is not there: fine-tune with --merge"):
        generator.merged(tmp_path / "adapter", tmp_path / "again")


# --- In batches -------------------------------------------------------------------------------------------------------

REVIEWS = [{"label": number % 2, "title": "a, b", "content": f"{text}\nmore"} for number, text in enumerate(TEXTS)]


def write_input(directory, suffix):
    file, table = directory / f"reviews{suffix}", pyarrow.Table.from_pylist(REVIEWS)
    if suffix == ".jsonl":
        file.write_text("\n".join(map(json.dumps, REVIEWS)) + "\n\n")
    else:
        (pyarrow.csv.write_csv if suffix == ".csv" else parquet.write_table)(table, file)
    return file


def run_batch(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["batch", *map(str, arguments)])
    return batch.main()


@pytest.mark.parametrize("suffix", batch.SUFFIXES)
def test_each_format_is_predicted(made, predictor, tmp_path, monkeypatch, suffix):
    output = tmp_path / "new" / "predictions.jsonl"
    assert run_batch(monkeypatch, made / "classifier", write_input(tmp_path, suffix), "--to", output) == 0
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    expected = predictor.predict([each["content"] for each in REVIEWS])
    assert rows == [{"row": number, **each} for number, each in enumerate(expected, 1)]
    assert [each.name for each in output.parent.iterdir()] == ["predictions.jsonl"]
    with pytest.raises(RefusalError, match=r"is there already; --replace"):
        run_batch(monkeypatch, made / "classifier", write_input(tmp_path, suffix), "--to", output)


def test_predictions_are_written_as_csv(made, tmp_path, monkeypatch):
    (tmp_path / "in.csv").write_text("body\nfine\n7\n")
    output = tmp_path / "out.csv"
    assert run_batch(monkeypatch, made / "classifier", tmp_path / "in.csv", "--to", output, "--field", "body") == 0
    rows = list(csv.DictReader(output.open()))
    assert [row["row"] for row in rows] == ["1", "2"]
    assert rows[0].keys() == {"row", "label", "score"}


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.txt", "x", r"must end with \.jsonl, \.csv or \.parquet"),
        ("a.jsonl", "{}\n", "has no field content or text, only none; --field"),
        ("a.jsonl", '{"body": "x"}\n', "has no field content or text, only body"),
        ("a.jsonl", '{"text": "x"}\n{"text": 3}\n', "changed from string to number"),
        ("a.jsonl", '{"text": "x"}\n{"body": "y"}\n', "row 2: there is no text in text"),
        ("a.jsonl", "x\n", "JSON parse error: Invalid value"),
        ("a.csv", "text\n", "holds no rows"),
        ("a.parquet", "x", "cannot be read as parquet"),
    ],
)
def test_invalid_input_is_refused_without_output(made, tmp_path, monkeypatch, capsys, name, content, words):
    (tmp_path / name).write_text(content)
    given = (made / "classifier", tmp_path / name, "--to", tmp_path / "out.jsonl")
    assert guarded(lambda: run_batch(monkeypatch, *given)) == EXIT_CODE
    assert words.replace("\\", "") in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == [name]


# --- Variables of SageMaker -------------------------------------------------------------------------------------------


def test_environment_variables_become_options(tmp_path):
    (tmp_path / "graphs").mkdir()
    variables = {"SAGEMAKER_BIND_TO_PORT": "8081", "SAGEMAKER_MODEL_SERVER_WORKERS": "2", "TRN_ENGINE": "classifier"}
    found = sagemaker.arguments(variables, tmp_path)
    assert found[:3] == [str(tmp_path), "--graphs", f"{tmp_path}/graphs"]
    assert found[3:] == ["--port", "8081", "--copies", "2", "--engine", "classifier"]
    with pytest.raises(RefusalError, match="SAGEMAKER_BIND_TO_PORT must be a whole number, not http"):
        sagemaker.arguments({"SAGEMAKER_BIND_TO_PORT": "http"})


def test_text_field_of_a_record_can_be_named(monkeypatch):
    monkeypatch.setenv(sagemaker.FIELD, "body")
    assert [*sagemaker._requests(b'{"body": "a", "text": "b"}')] == [("/predict", {"texts": ["a"]})]
